/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The negative log-likelihood of each sample. */

#include "transform/batch.h"

#include <libcore/ops.h>

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

/* nll_loss_forward(self, target, weight, reduction, ignore_index) */
core_status core__batch_nll_loss(core__batch *batch)
{
    int64_t reduction = batch->args[3].u.i;
    core__scope *s = &batch->scope;
    core_tensor *x;
    losses l;

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
