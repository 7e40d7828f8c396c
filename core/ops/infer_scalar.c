/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Checks of numbers among the arguments of element-wise operators. */

#include "ops/functions.h"
#include "ops/shape.h"

#include <math.h>
#include <string.h>

/* fill_(self, value) */
CORE__INFER(fill_number)
{
    return core__number_check_range(infer->op, "value", &infer->args[1],
                                    infer->results[0].dtype);
}

/* masked_fill(self, mask, value) */
CORE__INFER(masked_fill_number)
{
    const core_tensor *mask = core__arg_tensor(infer->args, 1);

    if (mask->dtype != CORE_BOOL)
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "mask must be bool, not %s",
                              core__dtype_name(mask->dtype));
    return core__number_check_range(infer->op, "value", &infer->args[2],
                                    infer->results[0].dtype);
}

/* where(condition, self, other) */
CORE__INFER(where_condition)
{
    const core_tensor *condition = core__arg_tensor(infer->args, 0);

    if (condition->dtype == CORE_BOOL)
        return CORE_OK;
    return core__op_error(CORE_ERROR_DTYPE, infer->op,
                          "condition must be bool, not %s",
                          core__dtype_name(condition->dtype));
}

/* linalg_vector_norm(self, ord, dim, …): an order below 0, or infinity, is an
 * extreme, which zero elements do not have. */
CORE__INFER(norm_of_nothing)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    double ord = core__arg_float(infer->args, 1, 2);
    size_t count;
    const int64_t *dims = core__ints_of(&infer->args[2], &count);
    bool nothing = count == 0;

    if (self->numel > 0 || !(ord < 0 || ord == (double)INFINITY))
        return CORE_OK;
    for (size_t i = 0; i < count; i++) {
        uint32_t dim;

        CORE_TRY(core__dim_wrap(infer->op, dims[i], self->ndim, &dim));
        nothing = nothing || self->sizes[dim] == 0;
    }
    if (!nothing)
        return CORE_OK;
    return core__op_error(CORE_ERROR_SHAPE, infer->op,
                          "a norm of order %g over zero elements has no value",
                          ord);
}

/* softshrink(self, lambd) */
CORE__INFER(softshrink_number)
{
    double lambd = core__arg_float(infer->args, 1, 0.5);

    if (lambd >= 0)
        return CORE_OK;
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                          "lambd is %g; it must be 0 or more", lambd);
}

static core_status gelu_known(core__inference *infer, uint32_t position)
{
    const core_value *name = &infer->args[position];

    if (position >= infer->nargs || name->tag != CORE_VALUE_STRING ||
        strcmp(name->u.string, "none") == 0 ||
        strcmp(name->u.string, "tanh") == 0)
        return CORE_OK;
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                          "approximate must be \"none\" or \"tanh\", not "
                          "\"%.32s\"",
                          name->u.string);
}

/* gelu(self, *, approximate) */
CORE__INFER(gelu_name)
{
    return gelu_known(infer, 1);
}

/* gelu_backward(grad_output, self, *, approximate) */
CORE__INFER(gelu_backward_name)
{
    return gelu_known(infer, 2);
}

/* pow(self, exponent): integers have no integer powers below 0, except for 1
 * and -1. */
CORE__INFER(pow_number)
{
    const core_value *exponent = &infer->args[1];

    if (exponent->tag != CORE_VALUE_INT || exponent->u.i >= 0 ||
        core__dtype_is_floating(infer->results[0].dtype))
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_INVALID_ARGUMENT, infer->op,
        "exponent is %lld; it must be 0 or more for %s tensors (the exponent "
        "%lld.0 makes the result floating)",
        (long long)exponent->u.i, core__dtype_name(infer->results[0].dtype),
        (long long)exponent->u.i);
}
