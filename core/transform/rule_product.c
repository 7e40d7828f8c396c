/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Products of matrices and vectors: one product for all samples, without
 * repeating the factor that they share. */

#include "transform/batch.h"

#include "ops_ids.h"

/* A result and its dimension of the samples. */
typedef struct product {
    core_tensor *tensor;
    uint32_t dim;
} product;

/* [samples, n, k] to [samples n, k] */
static core_tensor *stacked_rows(core__batch *batch, const core__operand *o)
{
    return core__batch_merged(batch, core__batch_front(batch, o));
}

/* Joins dimension `dim` with the next one. */
static core_tensor *joined(core__batch *batch, core_tensor *x, uint32_t dim)
{
    int64_t sizes[CORE_MAX_NDIM + 1];
    uint32_t ndim = 0;

    if (batch->scope.status != CORE_OK)
        return x;
    for (uint32_t i = 0; i < x->ndim; i++) {
        if (i == dim + 1)
            sizes[ndim - 1] *= x->sizes[i];
        else
            sizes[ndim++] = x->sizes[i];
    }
    return core__x_reshape(&batch->scope, x, sizes, ndim);
}

/* The samples in dimension `to`. */
static core_tensor *moved(core__batch *batch, const core__operand *o,
                          uint32_t to)
{
    if (o->dim == to)
        return o->tensor;
    return CORE__DO(&batch->scope, core_movedim, o->tensor, o->dim, to);
}

/* a [n, k], b [k, m] */
static product mm_of(core__batch *batch, const core__operand *a,
                     const core__operand *b)
{
    core__scope *s = &batch->scope;
    core_tensor *x;

    if (a->mapped && b->mapped)
        return (product){core__x_bmm(s, core__batch_front(batch, a),
                                     core__batch_front(batch, b)),
                         0};
    if (a->mapped) {
        x = core__x_mm(s, stacked_rows(batch, a), b->tensor);
        return (product){core__batch_split(batch, x, 0), 0};
    }
    /* The columns of all samples beside one another. */
    x = core__x_mm(s, a->tensor, joined(batch, moved(batch, b, 1), 1));
    return (product){core__batch_split(batch, x, 1), 1};
}

/* a [b, n, k], b [b, k, m] */
static product bmm_of(core__batch *batch, const core__operand *a,
                      const core__operand *b)
{
    core__scope *s = &batch->scope;
    core_tensor *x;

    if (a->mapped && b->mapped) {
        x = core__x_bmm(s, stacked_rows(batch, a), stacked_rows(batch, b));
        return (product){core__batch_split(batch, x, 0), 0};
    }
    if (a->mapped) {
        x = core__x_bmm(s, joined(batch, moved(batch, a, 1), 1), b->tensor);
        return (product){core__batch_split(batch, x, 1), 1};
    }
    x = core__x_bmm(s, a->tensor, joined(batch, moved(batch, b, 2), 2));
    return (product){core__batch_split(batch, x, 2), 2};
}

/* a [n, k], v [k] */
static product mv_of(core__batch *batch, const core__operand *a,
                     const core__operand *v)
{
    core__scope *s = &batch->scope;
    core_tensor *x;

    if (a->mapped && v->mapped) {
        x = core__x_unsqueeze(s, core__batch_front(batch, v), 2);
        x = core__x_bmm(s, core__batch_front(batch, a), x);
        return (product){CORE__DO(s, core_squeeze_dim, x, 2), 0};
    }
    if (a->mapped) {
        x = CORE__DO(s, core_mv, stacked_rows(batch, a), v->tensor);
        return (product){core__batch_split(batch, x, 0), 0};
    }
    return (product){
        core__x_mm(s, core__batch_front(batch, v), core__x_t(s, a->tensor)), 0};
}

static product dot_of(core__batch *batch, const core__operand *a,
                      const core__operand *b)
{
    core__scope *s = &batch->scope;
    core_tensor *x, *y;

    if (!a->mapped || !b->mapped)
        return (product){CORE__DO(s, core_mv,
                                  core__batch_front(batch, a->mapped ? a : b),
                                  a->mapped ? b->tensor : a->tensor),
                         0};
    x = core__x_unsqueeze(s, core__batch_front(batch, a), 1);
    y = core__x_unsqueeze(s, core__batch_front(batch, b), 2);
    return (product){
        core__x_reshape(s, core__x_bmm(s, x, y), &batch->batching->size, 1), 0};
}

/* a [n], b [m] to [n, m] */
static product outer_of(core__batch *batch, const core__operand *a,
                        const core__operand *b)
{
    core__scope *s = &batch->scope;

    return (product){
        core__x_mul(s, core__x_unsqueeze(s, core__batch_front(batch, a), -1),
                    core__x_unsqueeze(s, core__batch_front(batch, b), -2)),
        0};
}

typedef product (*product_of)(core__batch *batch, const core__operand *a,
                              const core__operand *b);

/* The operands at positions `first` and the next one, if they have as many
 * dimensions as the product needs; otherwise a call for one sample reports
 * what is wrong. */
static bool factors(core__batch *batch, uint32_t first, uint32_t ndim_a,
                    uint32_t ndim_b, core__operand *a, core__operand *b)
{
    *a = core__batch_operand(batch, first);
    *b = core__batch_operand(batch, first + 1);
    return a->ndim == ndim_a && b->ndim == ndim_b;
}

static core_status plain(core__batch *batch, product_of of, uint32_t ndim_a,
                         uint32_t ndim_b)
{
    core__operand a, b;
    product result;

    if (!factors(batch, 0, ndim_a, ndim_b, &a, &b) ||
        a.tensor->dtype != b.tensor->dtype)
        return core__batch_loop(batch);
    result = of(batch, &a, &b);
    return core__batch_result(batch, 0, result.tensor, result.dim);
}

core_status core__batch_mm(core__batch *batch)
{
    return plain(batch, mm_of, 2, 2);
}

core_status core__batch_bmm(core__batch *batch)
{
    return plain(batch, bmm_of, 3, 3);
}

core_status core__batch_mv(core__batch *batch)
{
    return plain(batch, mv_of, 2, 1);
}

core_status core__batch_dot(core__batch *batch)
{
    return plain(batch, dot_of, 1, 1);
}

/* ------------------------------------------- products added to something -- */

static bool is_one(const core_value *number)
{
    return core__double_of(number) == 1;
}

/* The product of factors that all samples share. */
static core_tensor *unmapped(core__batch *batch, product_of of,
                             const core__operand *a, const core__operand *b)
{
    core__scope *s = &batch->scope;

    if (of == mm_of)
        return core__x_mm(s, a->tensor, b->tensor);
    if (of == bmm_of)
        return core__x_bmm(s, a->tensor, b->tensor);
    if (of == mv_of)
        return CORE__DO(s, core_mv, a->tensor, b->tensor);
    return outer_of(batch, a, b).tensor;
}

/* beta self + alpha product; sum: of the product's first dimension.  ndim: of
 * the result. */
static core_status added(core__batch *batch, product_of of, uint32_t ndim_a,
                         uint32_t ndim_b, uint32_t ndim, bool sum)
{
    const core_value *beta = &batch->args[3], *alpha = &batch->args[4];
    core__operand self = core__batch_operand(batch, 0), a, b;
    core__scope *s = &batch->scope;
    core__operand made;
    core_tensor *x;
    product result;

    if (!factors(batch, 1, ndim_a, ndim_b, &a, &b) || self.ndim > ndim ||
        a.tensor->dtype != b.tensor->dtype ||
        self.tensor->dtype != a.tensor->dtype)
        return core__batch_loop(batch);
    if (a.mapped || b.mapped) {
        result = of(batch, &a, &b);
        CORE_TRY(s->status);
        made = (core__operand){result.tensor, true, result.dim, ndim + sum};
        x = core__batch_front(batch, &made);
    } else {
        /* Only self is mapped: one product for all. */
        core_tensor *self_tensor = core__batch_padded(batch, &self, ndim);

        x = unmapped(batch, of, &a, &b);
        if (sum)
            x = core__x_sum_dim(s, x, &(const int64_t){0}, 1, false);
        if (!is_one(alpha))
            x = CORE__DO(s, core_mul_scalar, x, *alpha);
        if (core__double_of(beta) == 0)
            return core__batch_result(batch, 0, x, CORE__BATCH_NONE);
        x = CORE__DO(s, core_add, x, self_tensor, *beta);
        return core__batch_result(batch, 0, x, 0);
    }
    if (sum)
        x = core__x_sum_dim(s, x, &(const int64_t){1}, 1, false);
    if (!is_one(alpha))
        x = CORE__DO(s, core_mul_scalar, x, *alpha);
    if (core__double_of(beta) != 0)
        x = CORE__DO(s, core_add, x, core__batch_padded(batch, &self, ndim),
                     *beta);
    return core__batch_result(batch, 0, x, 0);
}

core_status core__batch_addmm(core__batch *batch)
{
    core__operand self = core__batch_operand(batch, 0), a, b;
    core_tensor *x;

    /* A bias for all rows. */
    if (factors(batch, 1, 2, 2, &a, &b) && a.mapped && !b.mapped &&
        !self.mapped && self.ndim <= 1) {
        x = CORE__DO(&batch->scope, core_addmm, self.tensor,
                     stacked_rows(batch, &a), b.tensor, batch->args[3],
                     batch->args[4]);
        return core__batch_result(batch, 0, core__batch_split(batch, x, 0), 0);
    }
    return added(batch, mm_of, 2, 2, 2, false);
}

core_status core__batch_addbmm(core__batch *batch)
{
    return added(batch, bmm_of, 3, 3, 2, true);
}

core_status core__batch_baddbmm(core__batch *batch)
{
    return added(batch, bmm_of, 3, 3, 3, false);
}

core_status core__batch_addmv(core__batch *batch)
{
    return added(batch, mv_of, 2, 1, 1, false);
}

core_status core__batch_addr(core__batch *batch)
{
    return added(batch, outer_of, 1, 1, 2, false);
}
