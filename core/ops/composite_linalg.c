/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Public linear algebra operators, composed of factorizations and solves. */

#include "ops/expression.h"
#include "ops/shape.h"

#include <math.h>
#include <string.h>

CORE__OP(cholesky)
{
    core_tensor *factor = NULL;
    core_tensor *info = NULL;

    CORE_TRY(core_linalg_cholesky_ex(args[0].u.tensor, args[1].u.i != 0, true,
                                     &factor, &info));
    core__tensor_release(info);
    core__result_tensor(&results[0], factor);
    return CORE_OK;
}

/* Batches broadcast; the kernel receives them expanded. */
CORE__COMPOSITE(linalg_solve_triangular)
{
    core_tensor *parts[2] = {args[0].u.tensor, args[1].u.tensor};
    int64_t sizes[CORE_MAX_NDIM];
    uint32_t ndim;

    if (parts[0]->ndim < 2 || parts[1]->ndim < 2)
        return core__op_error(
            CORE_ERROR_SHAPE, call->op,
            "the operands have %u and %u dimensions; both must have 2",
            parts[0]->ndim, parts[1]->ndim);
    CORE_TRY(core__sizes_broadcast(call->op, parts[0]->ndim - 2,
                                   parts[0]->sizes, parts[1]->ndim - 2,
                                   parts[1]->sizes, &ndim, sizes));
    for (int i = 0; i < 2; i++) {
        memcpy(sizes + ndim, parts[i]->sizes + parts[i]->ndim - 2,
               2 * sizeof *sizes);
        parts[i] =
            CORE__DO(scope, core_expand, parts[i], sizes, ndim + 2, false);
    }
    return core__scope_result(scope,
                              CORE__DO(scope, core_solve_triangular_same,
                                       parts[0], parts[1], args[2].u.i != 0,
                                       core__arg_bool(args, 3, true),
                                       core__arg_bool(args, 4, false)),
                              &results[0]);
}

/* ----------------------------------------------- determinants and inverses -- */

/* linalg_slogdet and slogdet */
CORE__COMPOSITE(slogdet)
{
    core_tensor *lu = NULL, *pivots = NULL;
    core_tensor *sign = NULL, *logarithm = NULL;
    core_status status = core_linalg_slogdet_parts(args[0].u.tensor, &sign,
                                                   &logarithm, &lu, &pivots);

    core__tensor_release(lu);
    core__tensor_release(pivots);
    core__result_tensor(&results[0], sign);
    core__result_tensor(&results[1], logarithm);
    return status;
}

/* The logarithm of a negative determinant is NaN. */
CORE__COMPOSITE(logdet)
{
    core_tensor *sign = NULL, *x = NULL;
    core_status status = core_slogdet(args[0].u.tensor, &sign, &x);

    if (status != CORE_OK)
        return status;
    sign = core__scope_keep(scope, sign);
    x = core__scope_keep(scope, x);
    x = CORE__DO(scope, core_masked_fill, x, core__x_lt_scalar(scope, sign, 0),
                 core_float(NAN));
    return core__scope_result(scope, x, &results[0]);
}

/* linalg_det and det */
CORE__COMPOSITE(det)
{
    core_tensor *lu = NULL, *pivots = NULL, *x = NULL;
    core_status status =
        core_linalg_det_parts(args[0].u.tensor, &x, &lu, &pivots);

    core__tensor_release(lu);
    core__tensor_release(pivots);
    core__result_tensor(&results[0], x);
    return status;
}

/* linalg_inv and inverse */
CORE__COMPOSITE(inverse)
{
    core_tensor *info = NULL, *x = NULL;
    core_status status = core_linalg_inv_ex(args[0].u.tensor, true, &x, &info);

    core__tensor_release(info);
    core__result_tensor(&results[0], x);
    return status;
}
