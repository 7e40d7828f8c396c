/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The gradient of fused attention: by the fused operator or, if it is to be
 * differentiated again, by recorded operators. */

#include "autograd/formulas/formulas.h"

#include "ops/expression.h"

#include <libcore/autograd.h>
#include <libcore/random.h>

#include <math.h>

/* The inputs of both ways. */
typedef struct attention {
    core_tensor *grad, *query, *key, *value, *bias;
    core_tensor *output, *sum, *seed, *offset;
    double dropout, scale;
    bool causal;
    const uint8_t *mask;
} attention;

/* The dropout mask of the forward pass, for a tensor with like's sizes; the
 * seed is read on the host. */
static core_tensor *drawn(core__scope *s, const attention *a, core_tensor *like)
{
    uint64_t state[2] = {0, 0};
    core_generator *generator = NULL;
    core_tensor *mask;

    mask = CORE__DO(s, core_empty_like, like, CORE_BOOL, NULL, -1);
    CORE__RUN(s, core_tensor_read(a->seed, &state[0], sizeof *state));
    CORE__RUN(s, core_tensor_read(a->offset, &state[1], sizeof *state));
    CORE__RUN(s, core_generator_create(state[0], &generator));
    if (generator)
        core_generator_set_state(generator, state[0], state[1]);
    CORE__RUN(s, core_bernoulli_float_(mask, 1 - a->dropout, generator));
    core_generator_release(generator);
    return CORE__DO(s, core_to, mask, core_tensor_dtype(like), NULL, false,
                    false, -1);
}

/* true where a score is masked out; NULL: nothing is. */
static core_tensor *hidden(core__scope *s, const attention *a)
{
    int64_t sizes[2] = {a->query->sizes[2], a->key->sizes[2]};
    core_tensor *mask = NULL;

    if (a->causal) {
        mask = CORE__DO(s, core_new_ones, a->query, sizes, 2, CORE_BOOL, NULL);
        mask = CORE__DO(s, core_triu, mask, 1);
    }
    if (a->bias && a->bias->dtype == CORE_BOOL) {
        core_tensor *other = core__x_logical_not(s, a->bias);

        mask = mask ? CORE__DO(s, core_logical_or, mask, other) : other;
    }
    return mask;
}

/* With P the softmax of the scores and Z dropout's mask, scaled:
 *
 *     dV = (P Z)ᵀ dO,  dS = P (dP - sum(P dP)),  dP = Z (dO Vᵀ)
 *     dQ = scale dS K,  dK = scale dSᵀ Q */
static void recorded(core__scope *s, const attention *a, core_tensor **out)
{
    core_tensor *mask = hidden(s, a), *x, *p, *z = NULL;
    const int64_t last = -1;

    x = CORE__DO(s, core_matmul, a->query,
                 core__x_transpose(s, a->key, -2, -1));
    x = core__x_mul_scalar(s, x, a->scale);
    if (a->bias && a->bias->dtype != CORE_BOOL)
        x = core__x_add(s, x, a->bias);
    if (mask)
        x = CORE__DO(s, core_masked_fill, x, mask, core_float(-INFINITY));
    p = core__x_masked_softmax(s, x, -1, CORE_DTYPE_NONE);
    if (a->dropout > 0)
        z = core__x_mul_scalar(s, drawn(s, a, p),
                               a->dropout < 1 ? 1 / (1 - a->dropout) : 0);
    if (a->mask[2]) {
        x = z ? core__x_mul(s, p, z) : p;
        out[2] =
            CORE__DO(s, core_matmul, core__x_transpose(s, x, -2, -1), a->grad);
    }
    x = CORE__DO(s, core_matmul, a->grad,
                 core__x_transpose(s, a->value, -2, -1));
    if (z)
        x = core__x_mul(s, x, z);
    x = core__x_sub(s, x,
                    core__x_sum_dim(s, core__x_mul(s, x, p), &last, 1, true));
    x = core__x_mul(s, x, p);
    if (mask)
        x = CORE__DO(s, core_masked_fill, x, mask, core_int(0));
    out[3] = a->mask[3] ? x : NULL;
    x = core__x_mul_scalar(s, x, a->scale);
    out[0] = a->mask[0] ? CORE__DO(s, core_matmul, x, a->key) : NULL;
    if (a->mask[1])
        out[1] =
            CORE__DO(s, core_matmul, core__x_transpose(s, x, -2, -1), a->query);
}

core_status core__formula_attention_grad(
    core_tensor *grad, core_tensor *query, core_tensor *key, core_tensor *value,
    core_tensor *attn_bias, core_tensor *output, core_tensor *log_sumexp,
    core_tensor *philox_seed, core_tensor *philox_offset, double dropout_p,
    bool is_causal, const double *scale, const uint8_t *output_mask,
    size_t output_mask_count, core_tensor **out0, core_tensor **out1,
    core_tensor **out2, core_tensor **out3)
{
    const attention a = {
        .grad = grad,
        .query = query,
        .key = key,
        .value = value,
        .bias = attn_bias,
        .output = output,
        .sum = log_sumexp,
        .seed = philox_seed,
        .offset = philox_offset,
        .dropout = dropout_p,
        .scale = scale ? *scale : 1 / sqrt((double)query->sizes[3]),
        .causal = is_causal,
        .mask = output_mask,
    };
    core_tensor *gradients[4] = {NULL, NULL, NULL, NULL};
    core_status status;
    core__scope s;

    if (!core_grad_mode())
        return core_efficient_attention_backward(
            grad, query, key, value, attn_bias, output, log_sumexp, philox_seed,
            philox_offset, dropout_p, output_mask, output_mask_count, is_causal,
            scale, out0, out1, out2, out3);
    core__scope_begin(&s);
    recorded(&s, &a, gradients);
    if (s.status == CORE_OK) {
        *out0 = core__formula_same(gradients[0]);
        *out1 = core__formula_same(gradients[1]);
        *out2 = core__formula_same(gradients[2]);
        *out3 = core__formula_same(gradients[3]);
    }
    status = core__scope_end(&s);
    return status;
}
