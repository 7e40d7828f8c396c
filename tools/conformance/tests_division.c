/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: integers that are divided by zero.  A kernel reports that at once
 * or by the error of its stream (core.stream_error), and does not end the
 * process. */

#include "claims.h"
#include "skipped_calls.h"
#include "suite.h"

#include <string.h>

enum { COUNT = 40 };

static const struct {
    const char *name;
    const char *rounding; /* an argument, or NULL */
} divisions[] = {{"floor_divide", NULL},
                 {"remainder.Tensor", NULL},
                 {"fmod.Tensor", NULL},
                 {"div.Tensor_mode", "floor"},
                 {"div.Tensor_mode", "trunc"}};

static core_status make(core_dtype dtype, int64_t value, core_device *device,
                        core_tensor **out)
{
    const int64_t size = COUNT;
    unsigned char bytes[COUNT * 8] = {0};

    for (size_t i = 0; i < COUNT - 1; i++) /* the last one stays 0 */
        memcpy(bytes + i * core_dtype_size(dtype), &value,
               core_dtype_size(dtype));
    return core_tensor_from_data(bytes, dtype, &size, 1, device, out);
}

/* Divides and waits; the error of either. */
static core_status divide(size_t which, core_dtype dtype, core_device *device)
{
    const char *rounding = divisions[which].rounding;
    core_tensor *operands[2] = {NULL, NULL}, *got = NULL;
    core_value args[3] = {{0}};
    core_status status = make(dtype, 7, device, &operands[0]);

    if (status == CORE_OK)
        status = make(dtype, 2, device, &operands[1]);
    for (int i = 0; status == CORE_OK && i < 2; i++)
        args[i] = suite_tensor_value(operands[i]);
    if (rounding)
        args[2] = (core_value){CORE_VALUE_STRING,
                               (uint32_t)strlen(rounding),
                               {.string = rounding}};
    if (status == CORE_OK)
        status =
            suite_call(divisions[which].name, args, rounding ? 3 : 2, &got);
    if (status == CORE_OK)
        status = core_device_synchronize(device);
    core_tensor_release(got);
    core_tensor_release(operands[1]);
    core_tensor_release(operands[0]);
    return status;
}

static void check(suite *self, size_t which, core_dtype dtype,
                  skipped_calls *left, uint32_t *ran, outcome *out)
{
    core_status status = divide(which, dtype, self->host);
    const char *name = divisions[which].name;

    core_error_clear();
    if (status == CORE_OK)
        return;
    status = divide(which, dtype, self->device);
    if (call_is_left(self, status, name)) {
        core_error_clear();
        skipped_calls_add(left, name, dtype);
        return;
    }
    ++*ran;
    if (status == CORE_ERROR_DEVICE_LOST) {
        expect_ok(out, status, name);
        return;
    }
    core_error_clear();
    expect(out, status == CORE_ERROR_INVALID_ARGUMENT,
           "%s of %s: a number divided by 0: got %s, expected "
           "CORE_ERROR_INVALID_ARGUMENT, of the call or of the wait for its "
           "stream (core.stream_error)",
           name, core_dtype_name(dtype), core_status_name(status));
    expect_ok(out, core_device_synchronize(self->device),
              "after a division by 0, the next wait");
}

static void divisions_by_zero(suite *self, outcome *out, const test *one)
{
    static const core_dtype integers[] = {CORE_I64, CORE_I32, CORE_I16, CORE_I8,
                                          CORE_U8};
    skipped_calls left = {.length = 0};
    const void *table;
    uint32_t ran = 0;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    if (!self->synchronous &&
        core_device_interface(self->device, "core.stream_error", 1, &table) !=
            CORE_OK) {
        core_error_clear();
        not_supported(out, "it has no core.stream_error, so a division by 0 "
                           "is not reported");
        return;
    }
    for (size_t k = 0; k < sizeof divisions / sizeof *divisions; k++)
        for (size_t d = 0; d < sizeof integers / sizeof *integers; d++)
            if (out->verdict == VERDICT_PASS)
                check(self, k, integers[d], &left, &ran, out);
    if (ran == 0 && out->verdict == VERDICT_PASS)
        not_supported(out, "no division of integers is claimed");
    skipped_calls_report(&left, ran, out);
}

bool suite_add_division(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/divisions-by-zero-are-reported", divisions_by_zero, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
