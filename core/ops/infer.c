/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Helpers that inference functions share: arguments, results, and sizes. */

#include "ops/infer.h"

#include "ops/functions.h"
#include "ops/shape.h"
#include "tensor/layout.h"

#include <libcore/device.h>
#include <libcore/tensor.h>

#include <string.h>

core_status core__ints_fill(const core_operator *op, const char *name,
                            const core_value *value, size_t count,
                            int64_t absent, int64_t *out_values)
{
    size_t given;
    const int64_t *values = core__ints_of(value, &given);

    if (value->tag != CORE_VALUE_NONE && given != 1 && given != count)
        return core__op_error(
            CORE_ERROR_SHAPE, op,
            "%s has %zu entries; it must have %zu, or one for all", name, given,
            count);
    for (size_t i = 0; i < given; i++)
        CORE_TRY(core__size_operand_check(op, name, values[i]));
    for (size_t i = 0; i < count; i++)
        out_values[i] = given == 0 ? absent : values[given == 1 ? 0 : i];
    return CORE_OK;
}

core_status core__size_operand_check(const core_operator *op, const char *name,
                                     int64_t value)
{
    if (value > -CORE__SIZE_OPERAND_MAX && value < CORE__SIZE_OPERAND_MAX)
        return CORE_OK;
    return core__op_error(CORE_ERROR_SHAPE, op,
                          "%s is %lld, which is too large for a size", name,
                          (long long)value);
}

void core__result_like(core__result_spec *result, const core_tensor *tensor)
{
    core__result_set(result, tensor->dtype, tensor->ndim, tensor->sizes);
}

void core__result_set(core__result_spec *result, core_dtype dtype,
                      uint32_t ndim, const int64_t *sizes)
{
    result->dtype = dtype;
    result->ndim = ndim;
    result->has_strides = false;
    if (ndim > 0)
        memcpy(result->sizes, sizes, ndim * sizeof *sizes);
}

core_status core__sizes_check(const core_operator *op, size_t ndim,
                              const int64_t *sizes)
{
    int64_t numel = 1;
    char text[256];

    CORE_TRY(core__ndim_check(op, ndim));
    for (size_t i = 0; i < ndim; i++) {
        if (sizes[i] < 0)
            return core__op_error(
                CORE_ERROR_SHAPE, op,
                "the size of dimension %zu is %lld; it must be 0 or more", i,
                (long long)sizes[i]);
        if (__builtin_mul_overflow(numel, sizes[i] > 1 ? sizes[i] : 1,
                                   &numel) ||
            numel >= CORE__NUMEL_MAX)
            return core__op_error(
                CORE_ERROR_SHAPE, op,
                "a tensor of sizes %s has more elements than can be addressed",
                core__sizes_text((uint32_t)ndim, sizes, text, sizeof text));
    }
    return CORE_OK;
}

core_status core__sizes_check_equal(const core_operator *op, const char *name,
                                    const core_tensor *tensor, uint32_t ndim,
                                    const int64_t *sizes)
{
    char have[256];
    char want[256];

    if (!tensor || (tensor->ndim == ndim &&
                    (ndim == 0 ||
                     memcmp(tensor->sizes, sizes, ndim * sizeof *sizes) == 0)))
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_SHAPE, op, "%s has sizes %s; it must have %s", name,
        core__sizes_text(tensor->ndim, tensor->sizes, have, sizeof have),
        core__sizes_text(ndim, sizes, want, sizeof want));
}

core_status core__dtypes_check_equal(const core_operator *op, const char *names,
                                     const core_tensor *a, const core_tensor *b)
{
    if (a->dtype == b->dtype)
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_DTYPE, op, "%s must have the same dtype, not %s and %s",
        names, core__dtype_name(a->dtype), core__dtype_name(b->dtype));
}

core_status core__normalized_shape_check(const core_operator *op,
                                         const core_tensor *input, size_t count,
                                         const int64_t *shape)
{
    char have[256];
    char want[256];

    if (count > 0 && count <= input->ndim &&
        memcmp(shape, input->sizes + input->ndim - count,
               count * sizeof *shape) == 0)
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_SHAPE, op,
        "input has sizes %s, which do not end in normalized_shape %s",
        core__sizes_text(input->ndim, input->sizes, have, sizeof have),
        core__sizes_text((uint32_t)count, shape, want, sizeof want));
}

core_status core__results_mask(core__inference *infer, const core_value *mask,
                               uint32_t count)
{
    if (mask->tag != CORE_VALUE_BOOL_LIST)
        return CORE_OK;
    if (mask->count != count)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "output_mask must have %u entries, not %u", count,
                              mask->count);
    for (uint32_t i = 0; i < count; i++)
        if (!mask->u.bools[i])
            infer->results[i].dtype = CORE_DTYPE_NONE;
    return CORE_OK;
}

core_status core__dims_mask(const core_operator *op, const core_value *list,
                            uint32_t ndim, uint32_t *out_mask)
{
    size_t count;
    const int64_t *dims = core__ints_of(list, &count);

    *out_mask = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t dim;

        CORE_TRY(core__dim_wrap(op, dims[i], ndim, &dim));
        if (*out_mask >> dim & 1)
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                                  "dimension %u is given twice", dim);
        *out_mask |= 1u << dim;
    }
    return CORE_OK;
}

core_status core__reduction_check(const core_operator *op, int64_t reduction)
{
    if (reduction == CORE_REDUCTION_NONE || reduction == CORE_REDUCTION_MEAN ||
        reduction == CORE_REDUCTION_SUM)
        return CORE_OK;
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                          "reduction must be CORE_REDUCTION_NONE (0), _MEAN "
                          "(1) or _SUM (2), not %lld",
                          (long long)reduction);
}
