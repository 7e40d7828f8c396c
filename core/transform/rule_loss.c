/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The negative log-likelihood of each sample. */

#include "transform/batch.h"

#include <libcore/ops.h>

#include <string.h>

/* nll_loss of rows [samples, N, C] and targets [samples, N]; of one row, N is
 * 1. */
typedef struct losses {
    core__scope *s;
    core_tensor *self;   /* [samples, N, C] */
    core_tensor *at;     /* i64 [samples, N, 1]: the targets, or 0 */
    core_tensor *weight; /* of each target, [samples, N]; 0 where ignored */
    core_tensor *total;  /* [samples] */
    bool single;         /* no N */
} losses;

static core_status prepare(core__batch *batch, losses *l, uint32_t self_at,
                           int64_t ignored)
{
    core__operand self = core__batch_operand(batch, self_at);
    core__operand target = core__batch_operand(batch, self_at + 1);
    core__operand weight = core__batch_operand(batch, self_at + 2);
    core_tensor *targets, *keep, *w;
    core__scope *s = &batch->scope;

    *l = (losses){.s = s, .single = self.ndim == 1};
    l->self = core__batch_full(batch, &self);
    targets = core__batch_full(batch, &target);
    if (l->single) {
        l->self = core__x_unsqueeze(s, l->self, 1);
        targets = core__x_unsqueeze(s, targets, 1);
    }
    keep = CORE__DO(s, core_ne_scalar, targets, core_int(ignored));
    l->at = CORE__DO(s, core_masked_fill, targets, core__x_logical_not(s, keep),
                     core_int(0));
    l->at = core__x_unsqueeze(s, l->at, 2);
    if (weight.tensor) {
        w = core__batch_full(batch, &weight); /* [samples, C] */
        w = core__x_unsqueeze(s, w, 1);
        w = CORE__DO(s, core_expand, w,
                     s->status == CORE_OK ? l->self->sizes : NULL, 3, false);
        w = CORE__DO(s, core_gather, w, 2, l->at, false);
        w = CORE__DO(s, core_squeeze_dim, w, 2);
        w = core__x_mul(s, w, keep);
    } else {
        w = core__x_cast(s, keep, self.tensor->dtype);
    }
    l->weight = w;
    l->total = core__x_sum_dim(s, w, &(const int64_t){1}, 1, false);
    return s->status;
}

static bool is_plain(const core__batch *batch, uint32_t self_at)
{
    core__operand self = core__batch_operand(batch, self_at);
    core__operand target = core__batch_operand(batch, self_at + 1);

    return self.ndim >= 1 && self.ndim <= 2 && target.ndim + 1 == self.ndim &&
           target.tensor->dtype == CORE_I64 && self.tensor->numel > 0;
}

/* -------------------------------------------------------------- pictures -- */

/* nll_loss2d of pictures, whose first dimension the samples join: the kernel
 * computes the loss of each place.  A mapped weight leaves that to a loop. */
static bool is_picture(const core__batch *batch, uint32_t self_at)
{
    return core__batch_operand(batch, self_at).ndim == 4 &&
           core__batch_operand(batch, self_at + 1).ndim == 3 &&
           !core__batch_operand(batch, self_at + 2).mapped;
}

/* The places of each sample in one row. */
static core_tensor *as_rows(core__batch *batch, core_tensor *merged)
{
    return core__x_reshape(&batch->scope, merged,
                           (int64_t[]){batch->batching->size, -1}, 2);
}

/* The sum of the weights of a sample's targets, without ignored ones. */
static core_tensor *total_of(core__batch *batch, core_tensor *target,
                             core_tensor *weight, core_tensor *losses,
                             int64_t ignored)
{
    core__scope *s = &batch->scope;
    core_tensor *keep = CORE__DO(s, core_ne_scalar, target, core_int(ignored));
    core_tensor *w = core__x_cast(s, keep, losses->dtype);

    if (weight) {
        core_tensor *at = CORE__DO(s, core_masked_fill, target,
                                   core__x_logical_not(s, keep), core_int(0));

        at = core__x_reshape(s, at, &(const int64_t){-1}, 1);
        at = CORE__DO(s, core_index_select, weight, 0, at);
        w = core__x_mul(s, w,
                        core__x_reshape(s, at, losses->sizes, losses->ndim));
    }
    return core__x_sum_dim(s, as_rows(batch, w), &(const int64_t){1}, 1, false);
}

static core_status picture_loss(core__batch *batch)
{
    int64_t reduction = batch->args[3].u.i;
    core_value args[5], values[2];
    core__scope *s = &batch->scope;
    core_tensor *x, *total;

    memcpy(args, batch->args, sizeof args);
    for (uint32_t i = 0; i < 2; i++) {
        core__operand o = core__batch_operand(batch, i);

        args[i].u.tensor =
            core__batch_merged(batch, core__batch_full(batch, &o));
    }
    if (args[2].tag == CORE_VALUE_TENSOR)
        args[2].u.tensor = core__batch_operand(batch, 2).tensor;
    args[3] = core_pack_int(CORE_REDUCTION_NONE);
    CORE_TRY(s->status);
    CORE_TRY(core__batch_compute(batch, batch->op, args, 5, values, 2));
    x = core__scope_keep(s, values[0].u.tensor);
    core__scope_keep(s, values[1].u.tensor);
    total = total_of(batch, args[1].u.tensor,
                     args[2].tag == CORE_VALUE_TENSOR ? args[2].u.tensor : NULL,
                     x, args[4].u.i);
    if (reduction == CORE_REDUCTION_NONE) {
        x = core__batch_split(batch, x, 0);
        total = core__x_zeros_like(s, total);
    } else {
        x = core__x_sum_dim(s, as_rows(batch, x), &(const int64_t){1}, 1,
                            false);
        if (reduction == CORE_REDUCTION_MEAN)
            x = core__x_div(s, x, total);
    }
    CORE_TRY(core__batch_result(batch, 0, x, 0));
    return core__batch_result(batch, 1, total, 0);
}

static core_status picture_loss_backward(core__batch *batch)
{
    core__operand grad = core__batch_operand(batch, 0);
    core__operand target = core__batch_operand(batch, 2);
    core__operand total = core__batch_operand(batch, 6);
    core_tensor *g = core__batch_full(batch, &grad);
    core_tensor *at = core__batch_full(batch, &target);
    core_tensor *sums = core__batch_full(batch, &total);
    core_value args[7], value;
    core__scope *s = &batch->scope;

    memcpy(args, batch->args, sizeof args);
    if (args[4].u.i == CORE_REDUCTION_MEAN)
        g = core__x_div(s, g, sums);
    for (uint32_t i = grad.ndim; i < 3; i++)
        g = core__x_unsqueeze(s, g, -1);
    CORE_TRY(s->status);
    g = CORE__DO(s, core_expand, g, at->sizes, at->ndim, false);
    args[0].u.tensor = core__batch_merged(batch, g);
    grad = core__batch_operand(batch, 1);
    args[1].u.tensor =
        core__batch_merged(batch, core__batch_full(batch, &grad));
    args[2].u.tensor = core__batch_merged(batch, at);
    if (args[3].tag == CORE_VALUE_TENSOR)
        args[3].u.tensor = core__batch_operand(batch, 3).tensor;
    args[4] = core_pack_int(CORE_REDUCTION_NONE);
    args[6].u.tensor = CORE__DO(s, core_select, sums, 0, 0);
    CORE_TRY(s->status);
    CORE_TRY(core__batch_compute(batch, batch->op, args, 7, &value, 1));
    g = core__scope_keep(s, value.u.tensor);
    return core__batch_result(batch, 0, core__batch_split(batch, g, 0), 0);
}

/* ----------------------------------------------------------------- calls -- */

/* nll_loss_forward(self, target, weight, reduction, ignore_index) */
core_status core__batch_nll_loss(core__batch *batch)
{
    int64_t reduction = batch->args[3].u.i;
    core__scope *s = &batch->scope;
    core_tensor *x;
    losses l;

    if (is_picture(batch, 0) && reduction >= CORE_REDUCTION_NONE &&
        reduction <= CORE_REDUCTION_SUM)
        return picture_loss(batch);
    if (!is_plain(batch, 0) || reduction < CORE_REDUCTION_NONE ||
        reduction > CORE_REDUCTION_SUM)
        return core__batch_loop(batch);
    CORE_TRY(prepare(batch, &l, 0, batch->args[4].u.i));
    x = CORE__DO(s, core_gather, l.self, 2, l.at, false);
    x = core__x_mul(s, CORE__DO(s, core_squeeze_dim, x, 2), l.weight);
    /* 0 where ignored, also if the row has an infinity. */
    x = core__x_zero_where(s, x, core__x_eq_scalar(s, l.weight, 0));
    x = core__x_neg(s, x);
    if (reduction == CORE_REDUCTION_NONE) {
        if (l.single)
            x = CORE__DO(s, core_squeeze_dim, x, 1);
        l.total = core__x_zeros_like(s, l.total);
    } else {
        x = core__x_sum_dim(s, x, &(const int64_t){1}, 1, false);
        if (reduction == CORE_REDUCTION_MEAN)
            x = core__x_div(s, x, l.total);
    }
    CORE_TRY(core__batch_result(batch, 0, x, 0));
    return core__batch_result(batch, 1, l.total, 0);
}

/* nll_loss_backward(grad_output, self, target, weight, reduction, ignore_index,
 * total_weight) */
core_status core__batch_nll_loss_backward(core__batch *batch)
{
    core__operand grad = core__batch_operand(batch, 0);
    core__operand total = core__batch_operand(batch, 6);
    int64_t reduction = batch->args[4].u.i;
    core__scope *s = &batch->scope;
    core_tensor *x, *g;
    losses l;

    if (is_picture(batch, 1) && reduction >= CORE_REDUCTION_NONE &&
        reduction <= CORE_REDUCTION_SUM)
        return picture_loss_backward(batch);
    if (!is_plain(batch, 1) || reduction < CORE_REDUCTION_NONE ||
        reduction > CORE_REDUCTION_SUM)
        return core__batch_loop(batch);
    CORE_TRY(prepare(batch, &l, 1, batch->args[5].u.i));
    g = core__batch_full(batch, &grad);
    if (reduction == CORE_REDUCTION_MEAN)
        g = core__x_div(s, g, core__batch_full(batch, &total));
    if (reduction != CORE_REDUCTION_NONE || l.single)
        g = core__x_unsqueeze(s, g, 1);
    x = core__x_neg(s, core__x_mul(s, g, l.weight));
    x = core__x_unsqueeze(s, x, 2);
    x = CORE__DO(s, core_scatter, core__x_zeros_like(s, l.self), 2, l.at, x);
    if (l.single)
        x = CORE__DO(s, core_squeeze_dim, x, 1);
    return core__batch_result(batch, 0, x, 0);
}
