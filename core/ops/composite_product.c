/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Products over chosen dimensions: tensordot, inner, kron. */

#include "dispatch/structured.h"
#include "ops/expression.h"
#include "ops/shape.h"

#include <string.h>

/* The dimensions that a product sums over. */
typedef struct contraction {
    size_t count;
    int64_t dims[2][CORE_MAX_NDIM]; /* of both operands */
    uint32_t masks[2];
} contraction;

/* An operand as a matrix of the dimensions that stay and those that are summed,
 * which come last in the first operand and first in the second.  Appends the
 * sizes that stay. */
static core_tensor *as_matrix(core__scope *scope, core_tensor *x,
                              const contraction *c, int second, int64_t *sizes,
                              uint32_t *ndim)
{
    int64_t order[CORE_MAX_NDIM], stays = 1, summed = 1;
    uint32_t place = second ? (uint32_t)c->count : 0;
    uint32_t to = second ? 0 : x->ndim - (uint32_t)c->count;

    for (uint32_t i = 0; i < x->ndim; i++) {
        if (c->masks[second] >> i & 1)
            continue;
        order[place++] = i;
        if (__builtin_mul_overflow(stays, x->sizes[i], &stays))
            stays = INT64_MAX; /* refused where it is used */
        sizes[(*ndim)++] = x->sizes[i];
    }
    for (size_t i = 0; i < c->count; i++) {
        order[to + i] = c->dims[second][i];
        summed *= core_tensor_size(x, c->dims[second][i]);
    }
    x = CORE__DO(scope, core_permute, x, order, x->ndim);
    return core__x_reshape(scope, x,
                           second ? (const int64_t[]){summed, stays}
                                  : (const int64_t[]){stays, summed},
                           2);
}

/* The products of the operands, summed over pairs of dimensions.  Where one of a
 * pair has size 1, the other one is summed alone. */
static core_status contracted(core__scope *scope, const core_operator *op,
                              core_tensor *a, core_tensor *b,
                              const contraction *c, core_value *result)
{
    int64_t sizes[2 * CORE_MAX_NDIM];
    uint32_t ndim = 0;

    for (size_t i = 0; scope->status == CORE_OK && i < c->count; i++) {
        int64_t size = core_tensor_size(a, c->dims[0][i]);
        int64_t other = core_tensor_size(b, c->dims[1][i]);

        if (size != other && size == 1)
            b = CORE__DO(scope, core_sum_dim, b, &c->dims[1][i], 1, true,
                         b->dtype);
        else if (size != other && other == 1)
            a = CORE__DO(scope, core_sum_dim, a, &c->dims[0][i], 1, true,
                         a->dtype);
        else if (size != other)
            return core__op_shapes_error(
                op, "self", a, "other", b,
                "dimension %lld of self and %lld of other are summed and must "
                "have the same size",
                (long long)c->dims[0][i], (long long)c->dims[1][i]);
    }
    if (scope->status != CORE_OK)
        return scope->status;
    CORE_TRY(core__dtypes_check_equal(op, "self and other", a, b));
    CORE_TRY(core__ndim_check(op, a->ndim + b->ndim - 2 * c->count));
    a = as_matrix(scope, a, c, 0, sizes, &ndim);
    b = as_matrix(scope, b, c, 1, sizes, &ndim);
    a = core__x_mm(scope, a, b);
    return core__scope_result(scope, core__x_reshape(scope, a, sizes, ndim),
                              result);
}

/* tensordot(self, other, dims_self, dims_other) */
CORE__COMPOSITE(tensordot)
{
    contraction c = {.count = 0};

    for (int k = 0; k < 2; k++) {
        core_tensor *x = args[k].u.tensor;
        size_t count;
        const int64_t *dims = core__ints_of(&args[2 + k], &count);

        CORE_TRY(core__dims_mask(call->op, &args[2 + k], x->ndim, &c.masks[k]));
        if (count > x->ndim || (k == 1 && count != c.count))
            return core__op_error(
                CORE_ERROR_INVALID_ARGUMENT, call->op,
                "dims_self has %zu dimensions and dims_other %zu; both must "
                "have the same number, of those that the tensors have",
                k == 1 ? c.count : count, count);
        c.count = count;
        memcpy(c.dims[k], dims, count * sizeof *dims);
    }
    return contracted(scope, call->op, args[0].u.tensor, args[1].u.tensor, &c,
                      &results[0]);
}

/* inner(self, other): summed over the last dimension of both */
CORE__COMPOSITE(inner)
{
    core_tensor *a = args[0].u.tensor, *b = args[1].u.tensor;
    const int64_t last = -1;

    if (a->ndim == 0 || b->ndim == 0)
        return core__scope_result(scope, core__x_mul(scope, a, b), &results[0]);
    if (a->sizes[a->ndim - 1] != b->sizes[b->ndim - 1])
        return core__op_shapes_error(call->op, "self", a, "other", b,
                                     "the last dimensions must have the same "
                                     "size");
    return core__scope_result(
        scope, CORE__DO(scope, core_tensordot, a, b, &last, 1, &last, 1),
        &results[0]);
}

/* The sizes of x with ones between them, before or after each. */
static core_tensor *spread(core__scope *scope, core_tensor *x, uint32_t ndim,
                           uint32_t before, int64_t *product)
{
    int64_t sizes[CORE_MAX_NDIM];
    uint32_t missing = ndim - x->ndim;

    for (uint32_t i = 0; i < ndim; i++) {
        int64_t size = i < missing ? 1 : x->sizes[i - missing];

        sizes[2 * i + 1 - before] = 1;
        sizes[2 * i + before] = size;
        if (__builtin_mul_overflow(product[i], size, &product[i]))
            product[i] = INT64_MAX; /* refused where it is used */
    }
    return core__x_reshape(scope, x, sizes, 2 * ndim);
}

/* kron(self, other): [a, b] and [c, d] are [a, 1, b, 1] times [1, c, 1, d],
 * reshaped to [a c, b d]. */
CORE__COMPOSITE(kron)
{
    core_tensor *a = args[0].u.tensor, *b = args[1].u.tensor;
    uint32_t ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    int64_t sizes[CORE_MAX_NDIM];

    CORE_TRY(core__ndim_check(call->op, 2 * (uint64_t)ndim));
    for (uint32_t i = 0; i < ndim; i++)
        sizes[i] = 1;
    a = spread(scope, a, ndim, 0, sizes);
    b = spread(scope, b, ndim, 1, sizes);
    a = core__x_mul(scope, a, b);
    return core__scope_result(scope, core__x_reshape(scope, a, sizes, ndim),
                              &results[0]);
}
