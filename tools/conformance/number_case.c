/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "number_case.h"

#include "bounds.h"
#include "element_value.h"
#include "skipped_calls.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIDE = 2, NUMEL = SIDE * SIDE };

static void put(const number_case *of, const number *from, void *to)
{
    if (of->dtype == CORE_I64)
        memcpy(to, &from->i, sizeof from->i);
    else
        element_store(of->dtype, from->f, to);
}

static core_status make(suite *self, const number_case *of, const number *from,
                        core_tensor **memory, core_tensor **out)
{
    static const int64_t sizes[2] = {SIDE, SIDE}, strides[2] = {2, 5};
    const int64_t all = 4 * NUMEL;
    unsigned char bytes[4 * NUMEL * 8], mask[NUMEL] = {1, 1, 1, 1};
    size_t item = core_dtype_size(of->dtype);
    core_value args[4];

    for (size_t i = 0; i < 4 * NUMEL; i++)
        put(of, from, bytes + i * item);
    if (from->kind == MASK)
        return core_tensor_from_data(mask, CORE_BOOL, sizes, 2, self->device,
                                     out);
    if (from->kind != GAPS)
        return core_tensor_from_data(bytes, of->dtype, sizes,
                                     from->kind == TENSOR ? 2 : 0, self->device,
                                     out);
    CORE_TRY(
        core_tensor_from_data(bytes, of->dtype, &all, 1, self->device, memory));
    args[0] = suite_tensor_value(*memory);
    args[1] = (core_value){CORE_VALUE_INT_LIST, 2, {.ints = sizes}};
    args[2] = (core_value){CORE_VALUE_INT_LIST, 2, {.ints = strides}};
    args[3] = core_int(1);
    return suite_call("as_strided", args, 4, out);
}

static void number_text(const number_case *of, const number *one, char *text,
                        size_t size)
{
    if (!core_dtype_is_floating(of->dtype) || one->kind == WHOLE_NUMBER)
        snprintf(text, size, "%lld", (long long)one->i);
    else
        snprintf(text, size, "%.9g", one->f);
}

/* "addmm(7, 0.5, 1, 0, 2) of f32": all elements of a tensor are equal. */
static const char *describe(const number_case *of, char *text, size_t size)
{
    static const char *const kinds[] = {
        [TENSOR] = "",
        [GAPS] = " with gaps",
        [ZERO_DIM] = " without dimensions",
        [MASK] = "a true mask",
        [NUMBER] = "",
        [WHOLE_NUMBER] = "",
        [LEFT_OUT] = "None",
        [ROUNDED_DOWN] = "\"floor\"",
        [ROUNDED_TO_0] = "\"trunc\"",
        [FIRST_TENSOR] = "into the first operand",
        [SECOND_TENSOR] = "into the second operand"};
    size_t used = (size_t)snprintf(text, size, "%s(", of->name);

    for (int i = 0; i < NUMBER_ARGUMENTS && of->args[i].kind != NONE; i++) {
        const number *one = &of->args[i];
        char value[40] = "";

        if (one->kind < MASK || one->kind == NUMBER ||
            one->kind == WHOLE_NUMBER)
            number_text(of, one, value, sizeof value);
        if (used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s%s",
                                     i ? ", " : "", value, kinds[one->kind]);
    }
    if (used < size)
        snprintf(text + used, size - used, ") of %s",
                 core_dtype_name(of->dtype));
    return text;
}

/* How far an element may be from its value. */
static double allowed(const suite *self, const number_case *of,
                      core_dtype dtype)
{
    core_operator *op;
    bounds units;

    if (of->how == IS_EXACT || core_op_find(of->name, &op) != CORE_OK)
        return 0;
    units = bounds_of(self, op);
    return of->how == IS_ROUNDED ? bounds_of_element(&units, dtype, of->f)
                                 : bounds_of_sum(&units, dtype, of->f);
}

static bool holds_number(suite *self, const number_case *of, size_t i,
                         core_dtype dtype, const unsigned char *bytes,
                         outcome *out)
{
    double is = element_load(dtype, bytes), bound = 0;
    int64_t whole = (int64_t)(core_dtype_is_floating(dtype) ? 0 : is);
    char text[200];

    if (!core_dtype_is_floating(dtype)) {
        if (dtype == CORE_I64)
            memcpy(&whole, bytes, sizeof whole);
        return expect(out, whole == of->i,
                      "%s: element %zu is %lld, expected %lld",
                      describe(of, text, sizeof text), i, (long long)whole,
                      (long long)of->i);
    }
    bound = allowed(self, of, dtype);
    return expect(out,
                  is == of->f || fabs(is - of->f) <= bound ||
                      (isnan(is) && isnan(of->f)),
                  "%s: element %zu is %.17g, expected %.17g",
                  describe(of, text, sizeof text), i, is, of->f);
}

/* The value of an argument that is not a tensor. */
static core_value plain_value(const number_case *of, const number *from,
                              const core_value *before)
{
    switch (from->kind) {
    case NUMBER:
        return core_dtype_is_floating(of->dtype) ? core_float(from->f)
                                                 : core_int(from->i);
    case WHOLE_NUMBER:
        return core_int(from->i);
    case ROUNDED_DOWN:
        return (core_value){CORE_VALUE_STRING, 5, {.string = "floor"}};
    case ROUNDED_TO_0:
        return (core_value){CORE_VALUE_STRING, 5, {.string = "trunc"}};
    case FIRST_TENSOR:
    case SECOND_TENSOR:
        return before[from->kind - FIRST_TENSOR];
    default:
        return (core_value){0};
    }
}

/* *out_ran: false if no kernel computes it. */
static bool call(suite *self, const number_case *of, bool *out_ran,
                 outcome *out)
{
    core_tensor *tensors[NUMBER_ARGUMENTS] = {NULL}, *memory = NULL,
                *got = NULL;
    core_value args[NUMBER_ARGUMENTS] = {{0}};
    unsigned char bytes[NUMEL * 8];
    core_status status = CORE_OK;
    uint32_t n = 0;
    size_t item, numel;

    *out_ran = false;
    for (; n < NUMBER_ARGUMENTS && of->args[n].kind != NONE; n++) {
        const number *from = &of->args[n];

        if (from->kind >= NUMBER)
            args[n] = plain_value(of, from, args);
        else if (expect_ok(out, make(self, of, from, &memory, &tensors[n]),
                           "making an operand"))
            args[n] = suite_tensor_value(tensors[n]);
        else
            goto done;
    }
    status = suite_call(of->name, args, n, &got);
    if (status == CORE_ERROR_NO_KERNEL || !expect_ok(out, status, of->name))
        goto done;
    item = core_dtype_size(core_tensor_dtype(got));
    numel = (size_t)core_tensor_numel(got);
    *out_ran = true;
    if (!expect(out, numel <= NUMEL, "%s: the result has wrong sizes",
                of->name) ||
        !expect_ok(out, core_tensor_read(got, bytes, numel * item),
                   "reading a result"))
        goto done;
    for (size_t i = 0; i < numel; i++)
        if (!holds_number(self, of, i, core_tensor_dtype(got), bytes + i * item,
                          out))
            break;
done:
    core_tensor_release(got);
    for (uint32_t k = 0; k < NUMBER_ARGUMENTS; k++)
        core_tensor_release(tensors[k]);
    core_tensor_release(memory);
    return out->verdict == VERDICT_PASS;
}

void number_cases_check(suite *self, const number_case *cases, size_t count,
                        outcome *out)
{
    skipped_calls left = {.length = 0};
    bool ran;

    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t i = 0; i < count; i++) {
        if (!call(self, &cases[i], &ran, out))
            return;
        if (!ran)
            skipped_calls_add(&left, cases[i].name, cases[i].dtype);
    }
    skipped_calls_report(&left, count - left.count, out);
}
