/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "fused_step.h"

#include "element_value.h"

#include <math.h>

enum { LARGEST = 131103 };

const char *const fused_names[FUSED_STEPS] = {
    "_fused_sgd_step", "_fused_adam_step", "_fused_sgd_step.device_numbers",
    "_fused_adam_step.device_numbers"};

static int64_t size_of(const fused *test, uint32_t k)
{
    const int64_t sizes[FUSED_FEW] = {3, 1, test->large, 4, 257};

    return test->count == FUSED_FEW ? sizes[k] : 7;
}

/* Eighths, exact in every dtype; squares are positive. */
static double value_of(const fused *test, uint32_t list, uint32_t k, int64_t i)
{
    int64_t from = test->turned + (list == 1 ? test->gradient : 0);
    int64_t place = (from + i + (int64_t)k) * (2 * (int64_t)list + 3) % 19;

    return (double)(list == 3 ? place + 1 : place - 9) / 8;
}

void fused_release(lists *l)
{
    for (uint32_t list = 0; list < FUSED_LISTS; list++)
        for (uint32_t k = 0; k < FUSED_MANY; k++)
            core_tensor_release(l->tensors[list][k]);
    core_tensor_release(l->found);
    core_tensor_release(l->scale);
    core_tensor_release(l->numbers);
    *l = (lists){.scale = NULL};
}

static bool is_sgd(const fused *test)
{
    return test->which % 2 == 0;
}

uint32_t fused_lists(const fused *test)
{
    return is_sgd(test) ? 3 : 4;
}

/* The third step, or the first one. */
static int64_t count_of(const step *with)
{
    return with->first ? 1 : 3;
}

int64_t fused_numbers(const fused *test, const step *with,
                      double out[FUSED_NUMBERS])
{
    double count = (double)count_of(with);

    if (is_sgd(test)) {
        out[0] = test->rate;
        out[1] = with->first;
        return 2;
    }
    out[0] = -(test->rate / (1 - pow(.9, count)));
    out[1] = sqrt(1 - pow(.99, count));
    out[2] = 1 - test->rate * with->decay;
    return 3;
}

static core_status make_numbers(const fused *test, const step *with,
                                core_device *device, core_tensor **out)
{
    double numbers[FUSED_NUMBERS];
    const int64_t size = fused_numbers(test, with, numbers);

    return core_tensor_from_data(numbers, CORE_F64, &size, 1, device, out);
}

core_status fused_make(const fused *test, const step *with, core_device *device,
                       core_dtype dtype, lists *out)
{
    static unsigned char bytes[LARGEST * sizeof(double)];
    size_t item = core_dtype_size(dtype);
    const float scale = (float)with->scale, found = (float)with->found;

    *out = (lists){.scale = NULL};
    for (uint32_t list = 0; list < fused_lists(test); list++)
        for (uint32_t k = 0; k < test->count; k++) {
            int64_t size = size_of(test, k);

            for (int64_t i = 0; i < size; i++)
                element_store(dtype, value_of(test, list, k, i),
                              bytes + (size_t)i * item);
            CORE_TRY(core_tensor_from_data(bytes, dtype, &size, 1, device,
                                           &out->tensors[list][k]));
        }
    if (with->scale > 0)
        CORE_TRY(core_tensor_from_data(&scale, CORE_F32, NULL, 0, device,
                                       &out->scale));
    if (with->found >= 0)
        CORE_TRY(core_tensor_from_data(&found, CORE_F32, NULL, 0, device,
                                       &out->found));
    return test->which < FUSED_ON_DEVICE
               ? CORE_OK
               : make_numbers(test, with, device, &out->numbers);
}

static core_value optional(core_tensor *tensor)
{
    return tensor ? suite_tensor_value(tensor) : (core_value){0};
}

core_status fused_run(const fused *test, const step *with, lists *on)
{
    core_value args[16] = {{0}};
    core_tensor *none; /* there is no result */
    uint32_t n = 0;

    for (; n < fused_lists(test); n++)
        args[n] = (core_value){
            CORE_VALUE_TENSOR_LIST, test->count, {.tensors = on->tensors[n]}};
    if (on->numbers)
        args[n++] = suite_tensor_value(on->numbers);
    if (is_sgd(test)) {
        if (!on->numbers)
            args[n++] = core_float(test->rate);
        args[n++] = core_float(with->momentum);
        args[n++] = core_float(with->dampening);
        args[n++] = core_float(with->decay);
        args[n++] = core_bool(with->other);
        if (!on->numbers)
            args[n++] = core_bool(with->first);
    } else {
        if (!on->numbers) {
            args[n++] = core_int(count_of(with));
            args[n++] = core_float(test->rate);
        }
        args[n++] = core_float(.9);
        args[n++] = core_float(.99);
        args[n++] = core_float(1e-8);
        args[n++] = core_float(with->decay);
        args[n++] = core_bool(with->other);
    }
    args[n++] = optional(on->scale);
    args[n++] = optional(on->found);
    return suite_call(fused_names[test->which], args, n, &none);
}

/* Gradients must not change. */
static bool same_tensor(const fused *test, const step *with, uint32_t list,
                        uint32_t k, core_tensor *got, core_tensor *expected,
                        const char *when)
{
    static unsigned char bytes[LARGEST * sizeof(double)];
    static double wanted[LARGEST];
    static const char *const of[2][FUSED_LISTS] = {
        {"self", "grads", "momentum_buffers", ""},
        {"self", "grads", "exp_avgs", "exp_avg_sqs"}};
    size_t size = (size_t)size_of(test, k), item = core_dtype_size(test->dtype);
    const char *list_name = of[is_sgd(test) ? 0 : 1][list];

    if (!expect_ok(test->out, core_tensor_read(got, bytes, size * item),
                   "reading a tensor") ||
        !expect_ok(test->out,
                   core_tensor_read(expected, wanted, size * sizeof *wanted),
                   "reading a reference"))
        return false;
    for (size_t i = 0; i < size; i++) {
        double is = element_load(test->dtype, bytes + i * item);
        double bound =
            list == 1 ? 0
                      : 16 * dtype_epsilon(test->dtype) * (4 + fabs(wanted[i]));

        if (!expect(
                test->out, fabs(is - wanted[i]) <= bound,
                "%s of %s, %u tensors, %s%s: element %zu of %s[%u] is %.9g, "
                "expected %.9g (weight_decay %g, momentum %g, dampening "
                "%g, %s %d)",
                fused_names[test->which], core_dtype_name(test->dtype),
                test->count, with->what, when, i, list_name, k, is, wanted[i],
                with->decay, with->momentum, with->dampening,
                is_sgd(test) ? "nesterov" : "decoupled", with->other))
            return false;
    }
    return true;
}

bool fused_holds(const fused *test, const step *with, uint32_t list,
                 const lists *device, const lists *host, const char *when)
{
    bool good = true;

    for (uint32_t k = 0; good && k < test->count; k++)
        good = same_tensor(test, with, list, k, device->tensors[list][k],
                           host->tensors[list][k], when);
    return good;
}
