/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Two perceptrons and a transformer block. */

#include "models.h"

#include <math.h>
#include <string.h>

/* Replaces an intermediate result and releases it. */
static void replace(core_tensor **y, core_tensor *next)
{
    core_tensor_release(*y);
    *y = next;
}

static core_tensor *parameter(const int64_t *sizes, size_t ndim, float scale)
{
    return bench_requires_grad(bench_normal(sizes, ndim, scale));
}

static void linear(core_tensor **y, core_tensor *weight, core_tensor *bias)
{
    core_tensor *next;

    must(core_linear(*y, weight, bias, &next));
    replace(y, next);
}

/* One step of gradient descent.  Takes over the gradients. */
static void descend(core_tensor *const *parameters, core_tensor *const *grads,
                    int count)
{
    bool before = core_grad_mode_set(false);

    for (int i = 0; i < count; i++) {
        must(core_add_(parameters[i], grads[i], core_float(-0.01)));
        core_tensor_release(grads[i]);
    }
    core_grad_mode_set(before);
}

static void clear_grads(core_tensor *const *parameters, int count)
{
    for (int i = 0; i < count; i++)
        must(core_tensor_set_grad(parameters[i], NULL));
}

/* --------------------------------------------------------- perceptrons -- */

void bench_perceptron_open(bench_perceptron *p, const int64_t *widths,
                           int layers, int64_t batch)
{
    *p = (bench_perceptron){.layers = layers};
    for (int i = 0; i < layers; i++) {
        int64_t from = widths[i], to = widths[i + 1];

        p->parameters[2 * i] =
            parameter(SIZES(to, from), (float)(0.85 / sqrt((double)from)));
        p->parameters[2 * i + 1] = parameter(SIZES(to), 0);
    }
    p->x = bench_normal(SIZES(batch, widths[0]), 1);
    p->y = bench_integers(batch, widths[layers]);
}

static core_tensor *loss_of(const bench_perceptron *p)
{
    enum { MEAN = 1, NOTHING_IGNORED = -100 };
    core_tensor *h = core_tensor_retain(p->x), *next;

    for (int i = 0; i < p->layers; i++) {
        linear(&h, p->parameters[2 * i], p->parameters[2 * i + 1]);
        if (i + 1 == p->layers)
            break;
        must(core_relu(h, &next));
        replace(&h, next);
    }
    must(core_cross_entropy_loss(h, p->y, NULL, MEAN, NOTHING_IGNORED, 0,
                                 &next));
    core_tensor_release(h);
    return next;
}

static void update(bench_perceptron *p)
{
    bool before = core_grad_mode_set(false);

    for (int i = 0; i < 2 * p->layers; i++) {
        core_tensor *tensor = p->parameters[i];

        must(core_add_(tensor, core_tensor_grad(tensor), core_float(-0.01)));
        must(core_tensor_set_grad(tensor, NULL));
    }
    core_grad_mode_set(before);
}

void bench_perceptron_step(void *context)
{
    bench_perceptron *p = context;
    double t0 = bench_now(), t1, t2;
    core_tensor *loss = loss_of(p);

    t1 = bench_now();
    must(core_backward(&loss, 1, NULL, 0));
    t2 = bench_now();
    update(p);
    p->forward += t1 - t0;
    p->backward += t2 - t1;
    p->update += bench_now() - t2;
    p->steps++;
    core_tensor_release(loss);
}

core_status bench_perceptron_function(void *context, core_tensor *const *inputs,
                                      size_t ninputs, core_tensor **outputs,
                                      size_t *noutputs)
{
    bench_perceptron *p = context;
    core_tensor *grads[2 * BENCH_LAYERS_MAX], *loss = loss_of(p);
    int count = 2 * p->layers;

    (void)inputs;
    (void)ninputs;
    must(core_grad(&loss, 1, NULL, p->parameters, (size_t)count, 0, grads));
    descend(p->parameters, grads, count);
    must(core_detach(loss, &outputs[0]));
    core_tensor_release(loss);
    *noutputs = 1;
    return CORE_OK;
}

void bench_perceptron_close(bench_perceptron *p)
{
    for (int i = 0; i < 2 * p->layers; i++)
        core_tensor_release(p->parameters[i]);
    core_tensor_release(p->x);
    core_tensor_release(p->y);
}

/* --------------------------------------------------------- transformer -- */

static core_tensor *norm(core_tensor *x, core_tensor *gamma, core_tensor *beta)
{
    core_tensor *y;

    must(core_layer_norm(x, SIZES(C), gamma, beta, 1e-5, &y));
    return y;
}

/* [B, T, 3 C] to query, key and value, [B, H, T, D] each. */
static void split_heads(core_tensor *joint, core_tensor **out)
{
    core_tensor *view, *turned;

    must(core_view_sizes(joint, SIZES(B, T, 3, H, D), &view));
    must(core_permute(view, SIZES(2, 0, 3, 1, 4), &turned));
    for (int i = 0; i < 3; i++)
        must(core_select(turned, 0, i, &out[i]));
    core_tensor_release(view);
    core_tensor_release(turned);
}

static core_tensor *attention(core_tensor *const *heads)
{
    core_tensor *keys, *y, *next;

    must(core_transpose(heads[1], -2, -1, &keys));
    must(core_matmul(heads[0], keys, &y));
    core_tensor_release(keys);
    must(core_mul_scalar(y, core_float(1 / sqrt((double)D)), &next));
    replace(&y, next);
    must(core_softmax(y, -1, CORE_DTYPE_NONE, &next));
    replace(&y, next);
    must(core_matmul(y, heads[2], &next));
    replace(&y, next);
    must(core_transpose(y, 1, 2, &next));
    replace(&y, next);
    must(core_reshape(y, SIZES(B, T, C), &next));
    replace(&y, next);
    return y;
}

static core_tensor *fused_attention(core_tensor *const *heads)
{
    core_tensor *y, *next;

    must(core_scaled_dot_product_attention(heads[0], heads[1], heads[2], NULL,
                                           0, false, NULL, false, &y));
    must(core_transpose(y, 1, 2, &next));
    replace(&y, next);
    must(core_reshape(y, SIZES(B, T, C), &next));
    replace(&y, next);
    return y;
}

static core_tensor *forward(const bench_block *b)
{
    core_tensor *heads[3], *y, *m, *next;

    y = norm(b->p[X], b->p[GAMMA1], b->p[BETA1]);
    linear(&y, b->p[W_QKV], b->p[B_QKV]);
    split_heads(y, heads);
    replace(&y, b->fused ? fused_attention(heads) : attention(heads));
    for (int i = 0; i < 3; i++)
        core_tensor_release(heads[i]);
    linear(&y, b->p[W_OUT], b->p[B_OUT]);
    must(core_add(b->p[X], y, core_int(1), &next));
    replace(&y, next);
    m = norm(y, b->p[GAMMA2], b->p[BETA2]);
    linear(&m, b->p[W_UP], b->p[B_UP]);
    must(core_gelu(m, "none", &next));
    replace(&m, next);
    linear(&m, b->p[W_DOWN], b->p[B_DOWN]);
    must(core_add(y, m, core_int(1), &next));
    replace(&y, next);
    core_tensor_release(m);
    return y;
}

void bench_block_forward(void *context)
{
    core_tensor_release(forward(context));
}

void bench_block_step(void *context)
{
    bench_block *b = context;
    core_tensor *y = forward(b);

    must(core_backward(&y, 1, &b->grad, 0));
    core_tensor_release(y);
    clear_grads(b->p, BLOCK_PARAMETERS);
}

core_status bench_block_forward_function(void *context,
                                         core_tensor *const *inputs,
                                         size_t ninputs, core_tensor **outputs,
                                         size_t *noutputs)
{
    (void)inputs;
    (void)ninputs;
    outputs[0] = forward(context);
    *noutputs = 1;
    return CORE_OK;
}

void bench_block_backward(const bench_block *b, core_tensor *output)
{
    core_tensor *grads[BLOCK_PARAMETERS];

    must(core_grad(&output, 1, &b->grad, b->p, BLOCK_PARAMETERS, 0, grads));
    for (int i = 0; i < BLOCK_PARAMETERS; i++)
        core_tensor_release(grads[i]);
}

core_status bench_block_function(void *context, core_tensor *const *inputs,
                                 size_t ninputs, core_tensor **outputs,
                                 size_t *noutputs)
{
    bench_block *b = context;
    core_tensor *grads[BLOCK_PARAMETERS], *y = forward(b);

    (void)inputs;
    (void)ninputs;
    must(core_grad(&y, 1, &b->grad, b->p, BLOCK_PARAMETERS, 0, grads));
    descend(b->p, grads, BLOCK_PARAMETERS);
    must(core_detach(y, &outputs[0]));
    core_tensor_release(y);
    *noutputs = 1;
    return CORE_OK;
}

void bench_block_step_bf16(void *context)
{
    bench_block *b = context;
    uint64_t region;
    core_tensor *y, *grad;

    must(core_autocast_begin(core_tensor_device(b->grad), CORE_BF16, 0,
                             &region));
    y = forward(b);
    must(core_autocast_end(region));
    must(core_to(b->grad, core_tensor_dtype(y), NULL, false, false, -1, &grad));
    must(core_backward(&y, 1, &grad, 0));
    core_tensor_release(grad);
    core_tensor_release(y);
    clear_grads(b->p, BLOCK_PARAMETERS);
}

void bench_block_open(bench_block *b)
{
    *b = (bench_block){
        .p = {[GAMMA1] = bench_requires_grad(bench_full(SIZES(C), 1)),
              [BETA1] = parameter(SIZES(C), 0),
              [GAMMA2] = bench_requires_grad(bench_full(SIZES(C), 1)),
              [BETA2] = parameter(SIZES(C), 0),
              [W_QKV] = parameter(SIZES(3 * C, C), .06f),
              [B_QKV] = parameter(SIZES(3 * C), 0),
              [W_OUT] = parameter(SIZES(C, C), .06f),
              [B_OUT] = parameter(SIZES(C), 0),
              [W_UP] = parameter(SIZES(4 * C, C), .06f),
              [B_UP] = parameter(SIZES(4 * C), 0),
              [W_DOWN] = parameter(SIZES(C, 4 * C), .03f),
              [B_DOWN] = parameter(SIZES(C), 0),
              [X] = parameter(SIZES(B, T, C), 1)},
        .grad = bench_normal(SIZES(B, T, C), 1),
    };
}

void bench_block_close(bench_block *b)
{
    for (int i = 0; i < BLOCK_PARAMETERS; i++)
        core_tensor_release(b->p[i]);
    core_tensor_release(b->grad);
}
