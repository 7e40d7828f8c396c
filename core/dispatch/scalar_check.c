/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Checks that number arguments can be stored or multiplied as the operator
 * requires. */

#include "dispatch/inference.h"

#include <math.h>

core_status core__number_check_range(const core_operator *op, const char *name,
                                     const core_scalar *number,
                                     core_dtype dtype)
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

core_status core__number_check_whole(const core_operator *op, const char *name,
                                     const core_scalar *number,
                                     core_dtype dtype)
{
    if (number->tag != CORE_VALUE_FLOAT || core__dtype_is_floating(dtype))
        return CORE_OK;
    if (dtype != CORE_BOOL && number->u.f == trunc(number->u.f))
        return core__number_check_range(op, name, number, dtype);
    return core__op_error(
        CORE_ERROR_INVALID_ARGUMENT, op,
        "%s is %g; it must be a whole number, as the result is %s", name,
        number->u.f, core__dtype_name(dtype));
}

/* Apart from the caller, which rarely needs the large struct. */
static core_status __attribute__((noinline))
infer(const core_operator *op, const core_value *args, uint32_t nargs,
      core_device *device, core_dtype result)
{
    core__inference inference = {.op = (core_operator *)op,
                                 .args = args,
                                 .nargs = nargs,
                                 .device = device};

    inference.results[0].dtype = result;
    return op->data->infer(&inference);
}

core_status core__numbers_check(const core_operator *op, const core_value *args,
                                uint32_t nargs, core_device *device,
                                core_dtype result, core_dtype compute)
{
    if (op->data->integral_alpha)
        CORE_TRY(core__number_check_whole(
            op, "alpha", &args[op->data->integral_alpha], compute));
    return op->data->infer ? infer(op, args, nargs, device, result) : CORE_OK;
}
