/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Checks of number arguments. */

#include "ops/functions.h"
#include "ops/shape.h"

#include <math.h>
#include <string.h>

core_status core__number_fits(const core_operator *op, const char *name,
                              const core_scalar *number, core_dtype dtype)
{
    bool is_signed = dtype != CORE_U8;
    uint32_t bits = core__dtype_size(dtype) * 8;
    int64_t most, least;

    if (core__dtype_is_real(dtype) || dtype == CORE_BOOL)
        return CORE_OK;
    most = is_signed ? INT64_MAX >> (64 - bits) : UINT8_MAX;
    least = is_signed ? -most - 1 : 0;
    if (number->tag == CORE_VALUE_FLOAT) {
        double value = trunc(number->u.f);

        /* Powers of two are exact in f64; the largest i64 is not. */
        if (value >= (double)least &&
            value < ldexp(1, (int)bits - (is_signed ? 1 : 0)))
            return CORE_OK;
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, op,
            "%s is %.17g, which %s cannot hold; its range is %lld to %lld",
            name, number->u.f, core__dtype_name(dtype), (long long)least,
            (long long)most);
    }
    if (number->u.i <= most && number->u.i >= (is_signed ? least : -most))
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_INVALID_ARGUMENT, op,
        "%s is %lld, which %s cannot hold; its range is %lld to %lld", name,
        (long long)number->u.i, core__dtype_name(dtype), (long long)least,
        (long long)most);
}

core_status core__number_whole(const core_operator *op, const char *name,
                               const core_scalar *number, core_dtype dtype)
{
    if (number->tag != CORE_VALUE_FLOAT || core__dtype_is_floating(dtype))
        return CORE_OK;
    if (dtype != CORE_BOOL && number->u.f == trunc(number->u.f))
        return core__number_fits(op, name, number, dtype);
    return core__op_error(
        CORE_ERROR_INVALID_ARGUMENT, op,
        "%s is %g; it must be a whole number, as the result is %s", name,
        number->u.f, core__dtype_name(dtype));
}

core_status core__numbers_check(const core_operator *op, const core_value *args,
                                uint32_t nargs, core_device *device,
                                core_dtype result, core_dtype compute)
{
    core__inference inference = {.op = (core_operator *)op,
                                 .args = args,
                                 .nargs = nargs,
                                 .device = device};

    if (op->data->whole)
        CORE_TRY(
            core__number_whole(op, "alpha", &args[op->data->whole], compute));
    if (!op->data->infer)
        return CORE_OK;
    inference.results[0].dtype = result;
    return op->data->infer(&inference);
}

/* fill_(self, value) */
CORE__INFER(fill_number)
{
    return core__number_fits(infer->op, "value", &infer->args[1],
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
    return core__number_fits(infer->op, "value", &infer->args[2],
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
