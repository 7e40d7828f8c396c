/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Element-wise operators among others, called as they are and compiled: with a
 * layer norm, with a softmax and dropout, and in a training step of
 * convolutions. */

#include "bench.h"

#define SIZES(...)                  \
    (const int64_t[]){__VA_ARGS__}, \
        sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)

static bool is_trial(void)
{
    return bench_only_checks();
}

static core_tensor *uniform(const int64_t *sizes, size_t ndim)
{
    core_tensor *tensor;

    must(core_rand(sizes, ndim, NULL, CORE_F32, NULL, &tensor));
    return tensor;
}

/* ---------------------------------------------------------------- kernels -- */

/* gelu(layer_norm(x + y) s) + x: inputs x, y, weight, bias, s */
static core_status norm_gelu_residual(void *context, core_tensor *const *x,
                                      size_t ninputs, core_tensor **out,
                                      size_t *noutputs)
{
    int64_t width = core_tensor_size(x[0], 1);
    core_tensor *sum, *norm, *scaled, *active;

    (void)context;
    (void)ninputs;
    must(core_add(x[0], x[1], core_int(1), &sum));
    must(core_layer_norm(sum, &width, 1, x[2], x[3], 1e-5, &norm));
    must(core_mul(norm, x[4], &scaled));
    must(core_gelu(scaled, "none", &active));
    must(core_add(active, x[0], core_int(1), &out[0]));
    core_tensor_release(sum);
    core_tensor_release(norm);
    core_tensor_release(scaled);
    core_tensor_release(active);
    *noutputs = 1;
    return CORE_OK;
}

static void norm(uint32_t threads)
{
    int64_t rows = is_trial() ? 8 : 4096, width = 1024;
    bench_compiled b = {
        .function = norm_gelu_residual, .ninputs = 5, .noutputs = 1};

    for (size_t i = 0; i < 5; i++)
        b.inputs[i] =
            i < 2 ? uniform(SIZES(rows, width)) : uniform(SIZES(width));
    bench_compiled_large("compile.norm_gelu_residual_4096x1024", threads, &b);
    bench_compiled_release(&b);
}

/* dropout(softmax(x / 8 + mask)) 2 */
static core_status softmax_mask_dropout(void *context, core_tensor *const *x,
                                        size_t ninputs, core_tensor **out,
                                        size_t *noutputs)
{
    core_tensor *scaled, *masked, *weights, *kept;

    (void)context;
    (void)ninputs;
    must(core_mul_scalar(x[0], core_float(.125), &scaled));
    must(core_add(scaled, x[1], core_int(1), &masked));
    must(core_softmax(masked, -1, CORE_DTYPE_NONE, &weights));
    must(core_dropout(weights, .1, true, &kept));
    must(core_mul_scalar(kept, core_float(2), &out[0]));
    core_tensor_release(scaled);
    core_tensor_release(masked);
    core_tensor_release(weights);
    core_tensor_release(kept);
    *noutputs = 1;
    return CORE_OK;
}

static void attention_weights(uint32_t threads)
{
    int64_t heads = is_trial() ? 1 : 64, length = 128;
    bench_compiled b = {.function = softmax_mask_dropout,
                        .inputs = {uniform(SIZES(heads, length, length)),
                                   uniform(SIZES(length, length))},
                        .ninputs = 2,
                        .noutputs = 1};

    bench_compiled_large("compile.softmax_mask_dropout_64x128x128", threads,
                         &b);
    bench_compiled_release(&b);
}

/* ----------------------------------------------------------- convolutions -- */

/* Inputs: x, y, two convolutions' weights, norm weight and bias, classes */
static core_status cnn_loss(core_tensor *const *x, core_tensor **out_loss)
{
    static const int64_t one[] = {1, 1}, two[] = {2, 2}, none[] = {0, 0};
    const int64_t flat[] = {core_tensor_size(x[0], 0), -1};
    core_tensor *t[8];

    must(core_conv2d(x[0], x[2], NULL, one, 2, one, 2, one, 2, 1, &t[0]));
    must(core_batch_norm(t[0], x[4], x[5], NULL, NULL, true, .1, 1e-5, &t[1]));
    must(core_silu(t[1], &t[2]));
    must(core_max_pool2d(t[2], two, 2, two, 2, none, 2, one, 2, false, &t[3]));
    must(core_conv2d(t[3], x[3], NULL, one, 2, one, 2, one, 2, 1, &t[4]));
    must(core_mul(t[4], t[4], &t[5]));
    must(core_reshape(t[5], flat, 2, &t[6]));
    must(core_mm(t[6], x[6], &t[7]));
    must(core_mse_loss(t[7], x[1], CORE_REDUCTION_MEAN, out_loss));
    for (int i = 0; i < 8; i++)
        core_tensor_release(t[i]);
    return CORE_OK;
}

enum { WEIGHTS = 5 };

static core_status cnn_step(void *context, core_tensor *const *x,
                            size_t ninputs, core_tensor **out, size_t *noutputs)
{
    core_tensor *loss, *grads[WEIGHTS];
    bool before;

    (void)context;
    (void)ninputs;
    must(cnn_loss(x, &loss));
    must(core_grad(&loss, 1, NULL, &x[2], WEIGHTS, 0, grads));
    before = core_grad_mode_set(false);
    for (int i = 0; i < WEIGHTS; i++) {
        must(core_add_(x[2 + i], grads[i], core_float(-1e-6)));
        core_tensor_release(grads[i]);
    }
    core_grad_mode_set(before);
    must(core_detach(loss, &out[0]));
    core_tensor_release(loss);
    *noutputs = 1;
    return CORE_OK;
}

static void convolutions(uint32_t threads)
{
    int64_t batch = is_trial() ? 1 : 32;
    bool before = core_grad_mode_set(true);
    bench_compiled b = {
        .function = cnn_step,
        .inputs = {uniform(SIZES(batch, 3, 32, 32)), uniform(SIZES(batch, 10)),
                   uniform(SIZES(16, 3, 3, 3)), uniform(SIZES(32, 16, 3, 3)),
                   uniform(SIZES(16)), uniform(SIZES(16)),
                   uniform(SIZES(8192, 10))},
        .ninputs = 7,
        .noutputs = 1};

    for (int i = 2; i < 7; i++)
        bench_requires_grad(b.inputs[i]);
    bench_compiled_large("compile.cnn_step_b32", threads, &b);
    bench_compiled_release(&b);
    core_grad_mode_set(before);
}

void bench_compiled_fused(uint32_t threads)
{
    norm(threads);
    attention_weights(threads);
    convolutions(threads);
}
