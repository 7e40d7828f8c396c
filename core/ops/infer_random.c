/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Checks of random operators that fill a tensor: their parameters are checked
 * here for every device, not when the kernel runs on a stream. */

#include "ops/functions.h"
#include "tensor/dtype.h"

#include <math.h>

static core_status fills(core__inference *infer)
{
    core__result_like(&infer->results[0], core__arg_tensor(infer->args, 0));
    return CORE_OK;
}

/* uniform_(self, from, to, generator) */
CORE__INFER(uniform)
{
    core_dtype dtype = core__arg_tensor(infer->args, 0)->dtype;
    double from = core__arg_float(infer->args, 1, 0);
    double to = core__arg_float(infer->args, 2, 1);
    double largest = core__dtype_largest(dtype);

    if (!isfinite(from) || !isfinite(to) || from > to)
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, infer->op,
            "from is %g and to %g; both must be finite, and from must not be "
            "above to",
            from, to);
    /* Each operation of a kernel is rounded in the dtype. */
    if (from >= -largest && to <= largest && to - from <= largest)
        return fills(infer);
    return core__op_error(
        CORE_ERROR_INVALID_ARGUMENT, infer->op,
        "from is %g and to %g; both, and their difference, must be at most "
        "%g, the largest number of %s",
        from, to, largest, core__dtype_name(dtype));
}

/* normal_(self, mean, std, generator) */
CORE__INFER(normal)
{
    core_dtype dtype = core__arg_tensor(infer->args, 0)->dtype;
    double mean = core__arg_float(infer->args, 1, 0);
    double std = core__arg_float(infer->args, 2, 1);
    double largest = core__dtype_largest(dtype);

    if (!(std >= 0))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "std is %g; it must be 0 or more", std);
    /* An infinite or undefined mean was given as such. */
    if (!(isfinite(mean) && fabs(mean) > largest) &&
        !(isfinite(std) && std > largest))
        return fills(infer);
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                          "mean is %g and std %g, but the largest number of %s "
                          "is %g",
                          mean, std, core__dtype_name(dtype), largest);
}

/* bernoulli_.float(self, p, generator) */
CORE__INFER(chance)
{
    double p = core__arg_float(infer->args, 1, .5);

    if (p >= 0 && p <= 1)
        return fills(infer);
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                          "p is %g; a probability must be from 0 to 1", p);
}

/* The range of integers that a dtype represents; for a floating dtype, its
 * exact range. */
static void integer_range(core_dtype dtype, int64_t *least, int64_t *most)
{
    uint32_t bits = core__dtype_size(dtype) * 8;

    *most = dtype == CORE_BOOL               ? 1
            : dtype == CORE_U8               ? UINT8_MAX
            : dtype == CORE_F16              ? 65504
            : core__dtype_is_floating(dtype) ? INT64_MAX
                                             : INT64_MAX >> (64 - bits);
    *least = dtype == CORE_BOOL || dtype == CORE_U8 ? 0
             : dtype == CORE_F16                    ? -*most
                                                    : -*most - 1;
}

/* random_.from(self, from, to?, generator): from … to - 1, or up to the dtype's
 * largest integer */
CORE__INFER(integers)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    int64_t from = infer->args[1].u.i, least, most, last;

    integer_range(self->dtype, &least, &most);
    last = core__arg_int(infer->args, 2, most);
    if (infer->args[2].tag != CORE_VALUE_NONE && from >= last)
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, infer->op,
            "from is %lld and to %lld; from must be less than to",
            (long long)from, (long long)last);
    if (infer->args[2].tag != CORE_VALUE_NONE)
        last--;
    if (from >= least && last <= most && from <= last)
        return fills(infer);
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                          "integers from %lld to %lld do not fit self, which "
                          "is %s and holds %lld to %lld",
                          (long long)from, (long long)last,
                          core__dtype_name(self->dtype), (long long)least,
                          (long long)most);
}
