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

/* A call's arguments. */
typedef struct attention {
    core_tensor *tensors[3]; /* query, key, value */
    core_tensor *mask;
    double dropout;
    bool causal;
    const double *scale; /* NULL: 1 / sqrt(d) */
} attention;

/* softmax(Q Kᵀ scale + mask) V: Vaswani et al. 2017, eq. 1 */
static core_tensor *composed(core__scope *scope, const attention *a)
{
    core_tensor *query = a->tensors[0], *mask = a->mask;
    double width = (double)query->sizes[query->ndim - 1];
    core_scalar least = core_float(-INFINITY);
    core_tensor *x;

    x = core__x_mul_scalar(scope, query,
                           a->scale ? *a->scale : 1 / sqrt(width));
    x = CORE__DO(scope, core_matmul, x,
                 core__x_transpose(scope, a->tensors[1], -2, -1));
    if (a->causal)
        x = CORE__DO(scope, core_masked_fill, x, causal_mask(scope, x), least);
    else if (mask && mask->dtype == CORE_BOOL)
        x = CORE__DO(scope, core_masked_fill, x,
                     core__x_logical_not(scope, mask), least);
    else if (mask)
        x = core__x_add(scope, x, mask);
    /* Without a mask too, as in PyTorch: scores may overflow to -inf. */
    x = core__x_masked_softmax(scope, x, -1, CORE_DTYPE_NONE);
    if (a->dropout > 0)
        x = CORE__DO(scope, core_dropout, x, a->dropout, true);
    return CORE__DO(scope, core_matmul, x, a->tensors[2]);
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
static bool fused(const attention *a)
{
    core_tensor *q = a->tensors[0];
    core_dtype sums = q->dtype == CORE_F64 ? CORE_F64 : CORE_F32;
    core_dtype results[4] = {q->dtype, sums, CORE_I64, CORE_I64};
    core_value values[8] = {{0}};

    if (!plain(q, a->tensors[1], a->tensors[2]) ||
        (a->mask && !plain_mask(a->mask, q, a->tensors[1])) ||
        !(a->dropout >= 0 && a->dropout <= 1))
        return false;
    for (int i = 0; i < 3; i++)
        values[i] = core_pack_tensor(a->tensors[i]);
    values[3] = core_pack_tensor(a->mask);
    values[4] = core_bool(true);
    values[5] = core_float(a->dropout);
    values[6] = core_bool(a->causal);
    values[7] = core_pack_float_optional(a->scale);
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
                              const attention *a)
{
    core_tensor *sum = NULL, *seed = NULL, *offset = NULL;
    core_tensor *out;

    if (scope->status != CORE_OK)
        return NULL;
    out = core__scope_add(scope,
                          core_efficient_attention(
                              h->tensors[0], h->tensors[1], h->tensors[2],
                              h->tensors[3], h->compute, a->dropout, a->causal,
                              a->scale, &scope->pending, &sum, &seed, &offset));
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

static core_tensor *fuse(core__scope *scope, const attention *a)
{
    core_tensor *out;
    heads h = {.compute = false};
    int64_t sizes[4];

    for (int i = 0; i < 3; i++) {
        h.tensors[i] = lifted(scope, a->tensors[i]);
        h.compute = h.compute || may_need_grad(a->tensors[i]);
    }
    if (a->mask && scope->status == CORE_OK) {
        memcpy(sizes, h.tensors[0]->sizes, 3 * sizeof *sizes);
        sizes[3] = h.tensors[1]->sizes[2];
        h.tensors[3] = CORE__DO(scope, core_expand, a->mask, sizes, 4, false);
        h.compute = h.compute || may_need_grad(a->mask);
    }
    h.compute = h.compute && !core__thread_self()->no_grad;
    out = run_fused(scope, &h, a);
    for (uint32_t i = a->tensors[0]->ndim; i < 4; i++)
        out = CORE__DO(scope, core_squeeze_dim, out, 0);
    return out;
}

/* ---------------------------------------------------------------- call -- */

/* Repeats each head of keys or values `times`, side by side. */
static core_tensor *repeated(core__scope *scope, core_tensor *x, int64_t times)
{
    int64_t sizes[CORE_MAX_NDIM + 1];
    uint32_t ndim = x->ndim, head = ndim - 3;
    core_tensor *each = core__x_unsqueeze(scope, x, -3);

    if (scope->status != CORE_OK)
        return NULL;
    memcpy(sizes, each->sizes, (ndim + 1) * sizeof *sizes);
    sizes[head + 1] = times;
    each = CORE__DO(scope, core_expand, each, sizes, ndim + 1, false);
    memcpy(sizes, x->sizes, ndim * sizeof *sizes);
    sizes[head] *= times;
    return core__x_reshape(scope, each, sizes, ndim);
}

/* Ainslie et al. 2023: several heads of the query use one of the keys. */
static core_status group_heads(core__scope *scope, const core_operator *op,
                               attention *a)
{
    core_tensor *q = a->tensors[0], *k = a->tensors[1], *v = a->tensors[2];
    int64_t heads, keys;

    if (q->ndim < 3 || k->ndim < 3 || v->ndim < 3)
        return core__op_shapes_error(op, "query", q, "key", k,
                                     "enable_gqa needs a dimension of heads");
    heads = q->sizes[q->ndim - 3];
    keys = k->sizes[k->ndim - 3];
    if (keys == 0 || heads % keys != 0 || v->sizes[v->ndim - 3] != keys)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "query has %lld heads, key %lld and value %lld; "
                              "key and value need the same number, which "
                              "divides that of query",
                              (long long)heads, (long long)keys,
                              (long long)v->sizes[v->ndim - 3]);
    for (int i = 1; i < 3 && heads != keys; i++)
        a->tensors[i] = repeated(scope, a->tensors[i], heads / keys);
    return scope->status;
}

/* The dimensions before the last two broadcast. */
static bool batches_fit(const core_tensor *a, const core_tensor *b)
{
    uint32_t ndim = a->ndim < b->ndim ? a->ndim : b->ndim;

    for (uint32_t i = 3; i <= ndim; i++) {
        int64_t x = a->sizes[a->ndim - i], y = b->sizes[b->ndim - i];

        if (x != y && x != 1 && y != 1)
            return false;
    }
    return true;
}

static bool mask_fits(const core_tensor *mask, const core_tensor *q,
                      const core_tensor *k)
{
    int64_t keys = k->sizes[k->ndim - 2], queries = q->sizes[q->ndim - 2];
    uint32_t n = mask->ndim;

    if (n >= 1 && mask->sizes[n - 1] != 1 && mask->sizes[n - 1] != keys)
        return false;
    if (n >= 2 && mask->sizes[n - 2] != 1 && mask->sizes[n - 2] != queries &&
        queries != 1)
        return false;
    return batches_fit(mask, q);
}

static core_status check_sizes(const core_operator *op, const attention *a)
{
    const core_tensor *q = a->tensors[0], *k = a->tensors[1];
    const core_tensor *v = a->tensors[2];

    if (q->sizes[q->ndim - 1] != k->sizes[k->ndim - 1])
        return core__op_shapes_error(
            op, "query", q, "key", k,
            "the last dimensions must have the same size");
    if (k->sizes[k->ndim - 2] != v->sizes[v->ndim - 2])
        return core__op_shapes_error(
            op, "key", k, "value", v,
            "the dimensions before the last must have the same size");
    if (!batches_fit(q, k))
        return core__op_shapes_error(
            op, "query", q, "key", k,
            "the dimensions before the last two do not broadcast");
    if (!batches_fit(q, v))
        return core__op_shapes_error(
            op, "query", q, "value", v,
            "the dimensions before the last two do not broadcast");
    if (a->mask && !mask_fits(a->mask, q, k))
        return core__op_shapes_error(
            op, "query", q, "attn_mask", a->mask,
            "attn_mask must broadcast to [..., %lld, %lld], of queries and "
            "keys",
            (long long)q->sizes[q->ndim - 2], (long long)k->sizes[k->ndim - 2]);
    return CORE_OK;
}

static core_status check_kinds(const core_operator *op, const attention *a)
{
    static const char *const names[] = {"query", "key", "value"};
    const core_tensor *q = a->tensors[0];

    if (!core__dtype_is_floating(q->dtype))
        return core__op_error(CORE_ERROR_DTYPE, op,
                              "query must have a floating dtype, not %s",
                              core__dtype_name(q->dtype));
    for (int i = 1; i < 3; i++) {
        const core_tensor *x = a->tensors[i];

        if (x->dtype != q->dtype)
            return core__op_error(CORE_ERROR_DTYPE, op,
                                  "query is %s and %s %s; they must have the "
                                  "same dtype",
                                  core__dtype_name(q->dtype), names[i],
                                  core__dtype_name(x->dtype));
        if (x->device != q->device)
            return core__op_error(CORE_ERROR_DEVICE, op,
                                  "query is on \"%s\" and %s on \"%s\"",
                                  q->device->name, names[i], x->device->name);
    }
    return CORE_OK;
}

/* (query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa); scale
 * is to hold the number. */
static core_status attention_of(core__scope *scope, const core_operator *op,
                                const core_value *args, double *scale,
                                attention *out)
{
    *scale = core__double_of(&args[6]);
    *out = (attention){
        .tensors = {args[0].u.tensor, args[1].u.tensor, args[2].u.tensor},
        .mask = core__tensor_of(&args[3]),
        .dropout = core__double_of(&args[4]),
        .causal = core__arg_bool(args, 5, false),
        .scale = args[6].tag == CORE_VALUE_NONE ? NULL : scale,
    };

    for (int i = 1; i < 3; i++)
        if (out->tensors[0]->ndim < 2 || out->tensors[i]->ndim < 2)
            return core__op_shapes_error(
                op, "query", out->tensors[0], i == 1 ? "key" : "value",
                out->tensors[i], "both must have at least 2 dimensions");
    CORE_TRY(check_kinds(op, out));
    if (!(out->dropout >= 0 && out->dropout <= 1))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "dropout_p is %g; a probability must be from 0 "
                              "to 1",
                              out->dropout);
    if (out->mask && out->causal)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "is_causal is true and attn_mask is given; only "
                              "one of them may be used");
    if (core__arg_bool(args, 7, false))
        CORE_TRY(group_heads(scope, op, out));
    return check_sizes(op, out);
}

/* _fused_sdp_choice, of the same arguments: 2, the efficient kernel, where
 * scaled_dot_product_attention uses it, else 0 */
CORE__COMPOSITE(fused_sdp_choice)
{
    double scale;
    attention a;

    CORE_TRY(attention_of(scope, call->op, args, &scale, &a));
    results[0] = core_int(fused(&a) ? 2 : 0);
    return scope->status;
}

CORE__COMPOSITE(scaled_dot_product_attention)
{
    double scale;
    attention a;

    CORE_TRY(attention_of(scope, call->op, args, &scale, &a));
    return core__scope_result(
        scope, fused(&a) ? fuse(scope, &a) : composed(scope, &a), &results[0]);
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
