/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* gpu_emulated.h: what tests of the GPUs' host side share, on the emulated
 * device or another (gpu_device_name.h). */

#ifndef TESTS_SUPPORT_GPUEMU_H
#define TESTS_SUPPORT_GPUEMU_H

#include "autograd.h"
#include "gpu_device_name.h"

#include <libcore/device.h>

#include <math.h>
#include <unistd.h>

/* Each test opens the device: a forked child cannot use its parent's. */
static inline core_device *opened(const char *name)
{
    core_device *device;

    OK(core_device_find(name, &device));
    return device;
}

static inline core_device *gpuemu(void)
{
    return opened(gpu_name());
}

static inline core_tensor *moved(core_tensor *tensor, core_device *device)
{
    return CALL(to_copy, tensor, core_tensor_dtype(tensor), device, false, -1);
}

/* Repeating numbers, with NaN if requested. */
static inline core_tensor *numbers(core_dtype dtype, int64_t rows,
                                   int64_t columns, unsigned seed, int range,
                                   bool nan)
{
    size_t count = (size_t)(rows * columns);
    double *values = malloc(count * sizeof *values);
    core_tensor *tensor;

    ck_assert_ptr_nonnull(values);
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (double)((int)(seed >> 8) % range - range / 4);
        if (nan && seed % 97 == 0)
            values[i] = NAN;
    }
    tensor = typed(dtype, 2, (int64_t[]){rows, columns}, values);
    free(values);
    return tensor;
}

/* b must equal a; tolerance 0: bit for bit. */
static inline void same(core_tensor *a, core_tensor *b, double tolerance)
{
    int64_t count = core_tensor_numel(a);
    core_tensor *wide[2];
    double *values[2];

    ck_assert_int_eq(core_tensor_numel(b), count);
    ck_assert_ptr_eq(core_tensor_device(a), opened("cpu"));
    ck_assert_ptr_eq(core_tensor_device(b), gpuemu());
    for (int k = 0; k < 2; k++) {
        wide[k] =
            CALL(to_copy, k == 0 ? a : b, CORE_F64, opened("cpu"), false, -1);
        values[k] = malloc((size_t)count * sizeof(double));
        ck_assert_ptr_nonnull(values[k]);
        OK(core_tensor_read(wide[k], values[k],
                            (size_t)count * sizeof(double)));
    }
    for (int64_t i = 0; i < count; i++) {
        double x = values[0][i], y = values[1][i];

        if (isnan(x) && isnan(y))
            continue;
        ck_assert_msg(fabs(x - y) <= tolerance * (1 + fabs(x)) || x == y,
                      "element %lld is %.17g, on the GPU %.17g", (long long)i,
                      x, y);
    }
    free(values[0]);
    free(values[1]);
}

/* main of such a program; skipped if the plugin was not built. */
static inline int run_emulated(const char *name, const TTest *const *tests,
                               size_t count)
{
    if (!gpu_plugin_found())
        return suite_skip_all("the plugin of %s is not built", gpu_name());
    return run_suite(name, tests, count);
}

#define EMULATED_SUITE(name, ...)                                       \
    int main(void)                                                      \
    {                                                                   \
        const TTest *const tests[] = {__VA_ARGS__};                     \
                                                                        \
        return run_emulated(name, tests, sizeof tests / sizeof *tests); \
    }

#endif
