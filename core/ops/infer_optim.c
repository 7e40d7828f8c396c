/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Checks for fused optimizer steps, which have no results. */

#include "dispatch/structured.h"
#include "ops/functions.h"
#include "ops/shape.h"
#include "tensor/layout.h"

static core_status check_one(const core__inference *infer, uint32_t list,
                             uint32_t k, const core_tensor *first)
{
    const core_tensor *tensor = infer->args[list].u.tensors[k];
    const core_tensor *self = infer->args[0].u.tensors[k];
    const char *name = core__argument_name(infer->op, list);

    if (!tensor)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "%s[%u] is not a tensor", name, k);
    if (!core__dtype_is_floating(first->dtype) || tensor->dtype != first->dtype)
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "%s[%u] is %s and self[0] %s; all must have the "
                              "same floating dtype",
                              name, k, core__dtype_name(tensor->dtype),
                              core__dtype_name(first->dtype));
    if (tensor->device != infer->device)
        return core__op_error(
            CORE_ERROR_DEVICE, infer->op,
            "%s[%u] is on \"%s\", but other tensors are on \"%s\"", name, k,
            tensor->device->name, infer->device->name);
    if (!core_tensor_is_contiguous(tensor, CORE_FORMAT_CONTIGUOUS))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "%s[%u] is not contiguous", name, k);
    return core__sizes_check_equal(infer->op, name, tensor, self->ndim,
                                   self->sizes);
}

static core_status check_number(const core__inference *infer, uint32_t position)
{
    const core_tensor *tensor = core__arg_tensor(infer->args, position);

    if (!tensor || (tensor->dtype == CORE_F32 && tensor->numel == 1))
        return CORE_OK;
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                          "%s must be an f32 tensor with one element",
                          core__argument_name(infer->op, position));
}

/* After the lists: two numbers of SGD, three of Adam. */
static core_status check_numbers(const core__inference *infer, uint32_t lists)
{
    const core_tensor *numbers = infer->args[lists].u.tensor;
    int64_t count = lists - 1;

    if (numbers->dtype == CORE_F64 && numbers->ndim == 1 &&
        numbers->sizes[0] == count && numbers->strides[0] == 1 &&
        numbers->device == infer->device)
        return CORE_OK;
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                          "numbers must be an f64 tensor with sizes [%lld] on "
                          "\"%s\"",
                          (long long)count, infer->device->name);
}

/* Lists of the length of self come first; without momentum the list of buffers
 * may be empty.  The last two arguments are grad_scale and found_inf. */
CORE__INFER(fused_step)
{
    uint32_t count = infer->args[0].count;
    uint32_t lists = 1;

    for (; infer->args[lists].tag == CORE_VALUE_TENSOR_LIST; lists++) {
        uint32_t n = infer->args[lists].count;
        bool unused = lists == 2 && n == 0 &&
                      infer->args[3].tag != CORE_VALUE_TENSOR_LIST &&
                      core__arg_float(infer->args, 4, 0) == 0;

        if (n != count && !unused)
            return core__op_error(
                CORE_ERROR_INVALID_ARGUMENT, infer->op,
                "%s has %u tensors and self %u; both must have the same number",
                core__argument_name(infer->op, lists), n, count);
    }
    for (uint32_t list = 0; list < lists; list++)
        for (uint32_t k = 0; k < infer->args[list].count; k++)
            CORE_TRY(check_one(infer, list, k, infer->args[0].u.tensors[0]));
    if (infer->args[lists].tag == CORE_VALUE_TENSOR)
        CORE_TRY(check_numbers(infer, lists));
    CORE_TRY(check_number(infer, infer->nargs - 2));
    return check_number(infer, infer->nargs - 1);
}
