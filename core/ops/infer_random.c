/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Checks of random operators that fill a tensor: their parameters are checked
 * here for every device, not when the kernel runs on a stream. */

#include "dispatch/structured.h"
#include "ops/functions.h"
#include "ops/shape.h"
#include "tensor/dtype.h"

#include <math.h>
#include <string.h>

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
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "to is %lld; it must be above %lld",
                              (long long)last, (long long)from);
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

/* Tensors of one floating dtype, the first `count` arguments, that broadcast to
 * the sizes of the result. */
static core_status broadcast_floats(core__inference *infer, uint32_t count)
{
    const core_tensor *first = core__arg_tensor(infer->args, 0);
    int64_t sizes[CORE_MAX_NDIM];
    uint32_t ndim = first->ndim;

    memcpy(sizes, first->sizes, ndim * sizeof *sizes);
    for (uint32_t i = 0; i < count; i++) {
        const core_tensor *x = core__arg_tensor(infer->args, i);

        if (!core__dtype_is_floating(x->dtype) || x->dtype != first->dtype)
            return core__op_error(
                CORE_ERROR_DTYPE, infer->op,
                "%s is %s and %s %s; all must have one floating dtype",
                core__argument_name(infer->op, i), core__dtype_name(x->dtype),
                core__argument_name(infer->op, i ? 0 : 1),
                core__dtype_name(i ? first->dtype
                                   : core__arg_tensor(infer->args, 1)->dtype));
        CORE_TRY(core__sizes_broadcast(infer->op, ndim, sizes, x->ndim,
                                       x->sizes, &ndim, sizes));
    }
    CORE_TRY(core__sizes_check(infer->op, ndim, sizes));
    core__result_set(&infer->results[0], first->dtype, ndim, sizes);
    return CORE_OK;
}

/* poisson, _standard_gamma(self, generator) */
CORE__INFER(sampled)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);

    if (!core__dtype_is_floating(self->dtype))
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "self must have a floating dtype, not %s",
                              core__dtype_name(self->dtype));
    core__result_like(&infer->results[0], self);
    return CORE_OK;
}

/* binomial(count, prob, generator), _standard_gamma_grad(self, output) */
CORE__INFER(two_floats)
{
    return broadcast_floats(infer, 2);
}

/* _dirichlet_grad(x, alpha, total) */
CORE__INFER(three_floats)
{
    return broadcast_floats(infer, 3);
}
