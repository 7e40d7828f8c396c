/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* stream.h: short helpers for the tests of asynchronous devices. */

#ifndef TESTS_SUPPORT_STREAM_H
#define TESTS_SUPPORT_STREAM_H

#include "autograd.h"

#include <libcore/device.h>
#include <libcore/settings.h>
#include <libcore/stream.h>

static inline core_device *device_of(const char *name)
{
    core_device *device;

    OK(core_device_find(name, &device));
    return device;
}

static inline core_stream *stream_of(core_device *device)
{
    core_stream *stream;

    OK(core_stream_create(device, &stream));
    return stream;
}

static inline core_event *event_of(core_device *device)
{
    core_event *event;

    OK(core_event_create(device, 0, &event));
    return event;
}

/* A vector of n equal numbers, computed on the current stream. */
static inline core_tensor *filled(core_device *device, int64_t n, double value)
{
    core_tensor *tensor;

    OK(core_full(&n, 1, core_float(value), CORE_F32, device, &tensor));
    return keep(tensor);
}

/* All elements equal this number. */
static inline void all_are(core_tensor *tensor, double value)
{
    int64_t n = core_tensor_numel(tensor);
    float *have = malloc((size_t)n * sizeof *have);

    ck_assert_ptr_nonnull(have);
    OK(core_tensor_read(tensor, have, (size_t)n * sizeof *have));
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg((double)have[i] == value, "element %lld is %g, not %g",
                      (long long)i, (double)have[i], value);
    free(have);
}

/* Like run_suite, with a function to be called before each test. */
static inline int run_suite_with(const char *name, void (*start)(void),
                                 const TTest *const *tests, size_t count)
{
    const test_suite suite = {.name = name,
                              .setup = start,
                              .teardown = drop_all,
                              .tests = tests,
                              .test_count = count};

    return suite_run(&suite, 1);
}

static inline core_tensor *indices(core_device *device, int64_t n,
                                   const int64_t *values)
{
    core_tensor *tensor;

    OK(core_tensor_from_data(values, CORE_I64, &n, 1, device, &tensor));
    return keep(tensor);
}

#endif
