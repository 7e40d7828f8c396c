/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Scaled dot product attention: with a device's fused kernel, or composed of
 * products and softmax. */

#include "dispatch/structured.h"
#include "ops/expression.h"
#include "ops/shape.h"
#include "ops_ids.h"

#include <math.h>
#include <string.h>

static core_tensor *causal_mask(core__scope *scope, core_tensor *scores)
{
    int64_t sizes[2];
    core_tensor *mask;

    if (scope->status != CORE_OK)
        return NULL;
    sizes[0] = scores->sizes[scores->ndim - 2];
    sizes[1] = scores->sizes[scores->ndim - 1];
    mask = CORE__DO(scope, core_new_ones, scores, sizes, 2, CORE_BOOL, NULL);
    return CORE__DO(scope, core_triu, mask, 1);
}

/* softmax(Q Kᵀ / sqrt(d) + mask) V: Vaswani et al. 2017, eq. 1 */
static core_tensor *composed(core__scope *scope, const core_value *args,
                             core_tensor *mask, double dropout, bool causal)
{
    core_tensor *query = args[0].u.tensor;
    core_scalar least = core_float(-INFINITY);
    core_tensor *x;

    x = core__x_mul_scalar(scope, query,
                           1 / sqrt((double)query->sizes[query->ndim - 1]));
    x = CORE__DO(scope, core_matmul, x,
                 core__x_transpose(scope, args[1].u.tensor, -2, -1));
    if (causal)
        x = CORE__DO(scope, core_masked_fill, x, causal_mask(scope, x), least);
    else if (mask && mask->dtype == CORE_BOOL)
        x = CORE__DO(scope, core_masked_fill, x,
                     core__x_logical_not(scope, mask), least);
    else if (mask)
        x = core__x_add(scope, x, mask);
    x = core__x_masked_softmax(scope, x);
    if (dropout > 0)
        x = CORE__DO(scope, core_dropout, x, dropout, true);
    return CORE__DO(scope, core_matmul, x, args[2].u.tensor);
}

/* --------------------------------------------------------------- fused -- */

/* Query, key, value and mask with four dimensions. */
typedef struct heads {
    core_tensor *tensors[4];
    bool compute; /* compute log_sumexp, which the gradient needs */
} heads;

/* Whether the sizes fit the fused operator without broadcasting. */
static bool plain(const core_tensor *q, const core_tensor *k,
                  const core_tensor *v)
{
    uint32_t n = q->ndim;

    if (n > 4 || k->ndim != n || v->ndim != n || k->dtype != q->dtype ||
        v->dtype != q->dtype || !core__dtype_is_floating(q->dtype) ||
        q->numel == 0 || k->numel == 0 || v->numel == 0)
        return false;
    for (uint32_t i = 0; i + 2 < n; i++)
        if (k->sizes[i] != q->sizes[i] || v->sizes[i] != q->sizes[i])
            return false;
    return k->sizes[n - 1] == q->sizes[n - 1] &&
           v->sizes[n - 2] == k->sizes[n - 2];
}

static bool plain_mask(const core_tensor *mask, const core_tensor *q,
                       const core_tensor *k)
{
    uint32_t n = q->ndim;

    if (mask->ndim > n || (mask->dtype != CORE_BOOL && mask->dtype != q->dtype))
        return false;
    for (uint32_t i = 1; i <= mask->ndim; i++) {
        int64_t size = mask->sizes[mask->ndim - i];

        if (size != 1 && size != (i == 1 ? k->sizes[n - 2] : q->sizes[n - i]))
            return false;
    }
    return true;
}

/* Whether the device's kernel accepts these arguments.  Checked before they get
 * four dimensions, since the last two do not depend on that. */
static bool fused(const core_value *args, core_tensor *mask, double dropout,
                  bool causal)
{
    core_tensor *q = args[0].u.tensor;
    core_dtype sums = q->dtype == CORE_F64 ? CORE_F64 : CORE_F32;
    core_dtype results[4] = {q->dtype, sums, CORE_I64, CORE_I64};
    core_value values[8];

    if (!plain(q, args[1].u.tensor, args[2].u.tensor) ||
        (mask && !plain_mask(mask, q, args[1].u.tensor)) ||
        !(dropout >= 0 && dropout <= 1))
        return false;
    memcpy(values, args, 3 * sizeof *values);
    values[3] = mask ? args[3] : (core_value){0};
    values[4] = (core_value){CORE_VALUE_BOOL, 0, {.i = 1}};
    values[5] = (core_value){CORE_VALUE_FLOAT, 0, {.f = dropout}};
    values[6] = (core_value){CORE_VALUE_BOOL, 0, {.i = causal}};
    values[7] = (core_value){0};
    return core__kernel_exists(
        &core__operators[CORE_OP_SCALED_DOT_PRODUCT_EFFICIENT_ATTENTION],
        values, 8, results, 4);
}

static core_tensor *lifted(core__scope *scope, core_tensor *x)
{
    while (scope->status == CORE_OK && x->ndim < 4)
        x = core__x_unsqueeze(scope, x, 0);
    return x;
}

static core_tensor *run_fused(core__scope *scope, const heads *h,
                              double dropout, bool causal)
{
    core_tensor *sum = NULL, *seed = NULL, *offset = NULL;
    core_tensor *out;

    if (scope->status != CORE_OK)
        return NULL;
    out = core__scope_add(
        scope,
        core_efficient_attention(h->tensors[0], h->tensors[1], h->tensors[2],
                                 h->tensors[3], h->compute, dropout, causal,
                                 NULL, &scope->pending, &sum, &seed, &offset));
    core_tensor_release(sum);
    core_tensor_release(seed);
    core_tensor_release(offset);
    return out;
}

/* Whether a gradient of x may be needed.  A view joins the graph when its base
 * does. */
static bool may_need_grad(const core_tensor *x)
{
    return core__tensor_requires_grad(x) ||
           (x->base && core__tensor_requires_grad(x->base));
}

static core_tensor *fuse(core__scope *scope, const core_value *args,
                         core_tensor *mask, double dropout, bool causal)
{
    core_tensor *q = args[0].u.tensor, *out;
    heads h = {.compute = false};
    int64_t sizes[4];

    for (int i = 0; i < 3; i++) {
        h.tensors[i] = lifted(scope, args[i].u.tensor);
        h.compute = h.compute || may_need_grad(args[i].u.tensor);
    }
    if (mask && scope->status == CORE_OK) {
        memcpy(sizes, h.tensors[0]->sizes, 3 * sizeof *sizes);
        sizes[3] = h.tensors[1]->sizes[2];
        h.tensors[3] = CORE__DO(scope, core_expand, mask, sizes, 4, false);
        h.compute = h.compute || may_need_grad(mask);
    }
    h.compute = h.compute && !core__thread_self()->no_grad;
    out = run_fused(scope, &h, dropout, causal);
    for (uint32_t i = q->ndim; i < 4; i++)
        out = CORE__DO(scope, core_squeeze_dim, out, 0);
    return out;
}

CORE__COMPOSITE(scaled_dot_product_attention)
{
    core_tensor *query = args[0].u.tensor;
    core_tensor *key = args[1].u.tensor;
    core_tensor *mask = core__tensor_of(&args[3]);
    double dropout = core__double_of(&args[4]);
    bool causal = core__arg_bool(args, 5, false);

    if (query->ndim < 2 || key->ndim < 2)
        return core__op_shapes_error(call->op, "query", query, "key", key,
                                     "both must have at least 2 dimensions");
    if (mask && causal)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "is_causal is true and attn_mask is given; only "
                              "one of them may be used");
    return core__scope_result(
        scope,
        fused(args, mask, dropout, causal)
            ? fuse(scope, args, mask, dropout, causal)
            : composed(scope, args, mask, dropout, causal),
        &results[0]);
}

/* The mask in the sizes of the scores, or NULL. */
static core_tensor *mask_of(core__scope *scope, const core_value *value,
                            const core_value *args)
{
    core_tensor *mask = core__tensor_of(value);
    core_tensor *q = args[0].u.tensor, *k = args[1].u.tensor;

    if (!mask || q->ndim != 4 || k->ndim != 4)
        return mask;
    return CORE__DO(
        scope, core_expand, mask,
        (const int64_t[]){q->sizes[0], q->sizes[1], q->sizes[2], k->sizes[2]},
        4, false);
}

static const double *scale_of(const core_value *value)
{
    return value->tag == CORE_VALUE_FLOAT ? &value->u.f : NULL;
}

static core_status without_dropout(const core_operator *op, double dropout)
{
    if (dropout == 0)
        return CORE_OK;
    return core__op_error(CORE_ERROR_UNSUPPORTED, op,
                          "dropout_p is %g; only 0 is supported", dropout);
}

/* _scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p,
 * is_causal, *, attn_mask, scale) -> (output, logsumexp) */
CORE__COMPOSITE(scaled_dot_product_flash_attention_for_cpu)
{
    core_tensor *out = NULL, *sums = NULL, *seed = NULL, *offset = NULL;
    core_tensor *mask = mask_of(scope, &args[5], args);

    CORE_TRY(without_dropout(call->op, core__arg_float(args, 3, 0)));
    CORE__RUN(scope, core_efficient_attention(
                         args[0].u.tensor, args[1].u.tensor, args[2].u.tensor,
                         mask, true, 0, core__arg_bool(args, 4, false),
                         scale_of(&args[6]), &out, &sums, &seed, &offset));
    core__scope_keep(scope, out);
    core__scope_keep(scope, sums);
    core__scope_keep(scope, seed);
    core__scope_keep(scope, offset);
    CORE_TRY(core__scope_result(scope, out, &results[0]));
    return core__scope_result(scope, sums, &results[1]);
}

/* _scaled_dot_product_flash_attention_for_cpu_backward(grad_out, query, key,
 * value, out, logsumexp, dropout_p, is_causal, *, attn_mask, scale) */
CORE__COMPOSITE(scaled_dot_product_flash_attention_for_cpu_backward)
{
    static const uint8_t wanted[4] = {1, 1, 1, 0};
    core_tensor *grads[4] = {NULL, NULL, NULL, NULL};
    core_tensor *mask = mask_of(scope, &args[8], args + 1);
    core_tensor *none = CORE__DO(scope, core_new_zeros, args[0].u.tensor, NULL,
                                 0, CORE_I64, NULL);

    CORE_TRY(without_dropout(call->op, core__arg_float(args, 6, 0)));
    CORE__RUN(scope, core_efficient_attention_backward(
                         args[0].u.tensor, args[1].u.tensor, args[2].u.tensor,
                         args[3].u.tensor, mask, args[4].u.tensor,
                         args[5].u.tensor, none, none, 0, wanted, 4,
                         core__arg_bool(args, 7, false), scale_of(&args[9]),
                         &grads[0], &grads[1], &grads[2], &grads[3]));
    for (int i = 0; i < 4; i++)
        if (grads[i])
            core__scope_keep(scope, grads[i]);
    for (int i = 0; i < 3; i++)
        CORE_TRY(core__scope_result(scope, grads[i], &results[i]));
    return CORE_OK;
}
