/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Matrix products and convolutions, in GFLOP/s. */

#include "bench.h"

#include <stdio.h>

typedef struct operands {
    core_tensor *a, *b, *o;
    core_tensor *bias, *grad;
} operands;

static inline void mm(void *context)
{
    operands *x = context;

    must(core_mm_out(x->a, x->b, x->o));
}

static inline void mv(void *context)
{
    operands *x = context;

    must(core_mv_out(x->a, x->b, x->o));
}

static inline void bmm(void *context)
{
    operands *x = context;

    must(core_bmm_out(x->a, x->b, x->o));
}

static inline void linear(void *context)
{
    operands *x = context;
    core_tensor *r;

    must(core_linear(x->a, x->b, x->bias, &r));
    core_tensor_release(r);
}

static core_tensor *convolve(const operands *x)
{
    const int64_t one[] = {1, 1};
    core_tensor *r;

    must(core_conv2d(x->a, x->b, x->bias, one, 2, one, 2, one, 2, 1, &r));
    return r;
}

static inline void conv2d(void *context)
{
    core_tensor_release(convolve(context));
}

static inline void conv2d_and_back(void *context)
{
    operands *x = context;
    core_tensor *r = convolve(x);

    must(core_backward(&r, 1, &x->grad, 0));
    core_tensor_release(r);
    must(core_tensor_set_grad(x->a, NULL));
    must(core_tensor_set_grad(x->b, NULL));
    must(core_tensor_set_grad(x->bias, NULL));
}

static void drop(operands *x)
{
    core_tensor_release(x->a);
    core_tensor_release(x->b);
    core_tensor_release(x->o);
    core_tensor_release(x->bias);
    core_tensor_release(x->grad);
    *x = (operands){0};
}

#define RATE(row, flop) (1e-9 * (double)(flop) / bench_seconds(row, x, 0.1))
#define GFLOP(name, row, flop)                                 \
    bench_out_share(name, threads, RATE(row, flop), "GFLOP/s", \
                    bench_limit(BENCH_FMA, threads))
/* Other types than f32 have another limit. */
#define GFLOP_OTHER(name, row, flop) \
    bench_out_threads(name, threads, RATE(row, flop), "GFLOP/s")

static core_tensor *as(core_tensor *tensor, core_dtype dtype)
{
    core_tensor *other;

    must(core_to_copy(tensor, dtype, NULL, false, -1, &other));
    return other;
}

static void converted(const operands *from, core_dtype dtype, double flop,
                      const char *name, uint32_t threads)
{
    operands own = {as(from->a, dtype), as(from->b, dtype), as(from->o, dtype),
                    NULL, NULL};
    operands *x = &own;

    GFLOP_OTHER(name, mm, flop);
    drop(x);
}

static void square(operands *x, int64_t n, uint32_t threads)
{
    const int64_t sizes[] = {n, n};
    double flop = 2.0 * (double)n * (double)n * (double)n;
    core_tensor *b;
    char name[48];

    x->a = bench_normal(sizes, 2, 1);
    x->b = bench_normal(sizes, 2, 1);
    x->o = bench_full(sizes, 2, 0);
    snprintf(name, sizeof name, "mm_out_%lld^3_f32", (long long)n);
    GFLOP(name, mm, flop);
    if (n == 1024) {
        b = x->b;
        must(core_t(b, &x->b));
        GFLOP("mm_out_1024^3_f32_Bt", mm, flop);
        core_tensor_release(x->b);
        x->b = b;
        converted(x, CORE_BF16, flop, "mm_out_1024^3_bf16", threads);
        converted(x, CORE_F64, flop, "mm_out_1024^3_f64", threads);
    }
    drop(x);
}

static void others(operands *x, uint32_t threads)
{
    const int64_t matrix[] = {1024, 1024}, batch[] = {64, 128, 128};
    const int64_t input[] = {128, 784}, weight[] = {512, 784};

    x->a = bench_normal(matrix, 2, 1);
    x->b = bench_normal(matrix, 1, 1);
    x->o = bench_full(matrix, 1, 0);
    GFLOP("mv_out_1024_f32", mv, 2.0 * 1024 * 1024);
    drop(x);
    x->a = bench_normal(batch, 3, 1);
    x->b = bench_normal(batch, 3, 1);
    x->o = bench_full(batch, 3, 0);
    GFLOP("bmm_out_64x128^3_f32", bmm, 64 * 2.0 * 128 * 128 * 128);
    drop(x);
    x->a = bench_normal(input, 2, 1);
    x->b = bench_normal(weight, 2, 1);
    x->bias = bench_normal(weight, 1, 1);
    GFLOP("linear_128x784x512_f32", linear, 2.0 * 128 * 784 * 512);
    drop(x);
}

static core_tensor *channels_last(core_tensor *tensor)
{
    core_tensor *other;

    must(core_contiguous(tensor, CORE_FORMAT_CHANNELS_LAST, &other));
    core_tensor_release(tensor);
    return other;
}

static void convolutions(operands *x, uint32_t threads)
{
    const int64_t input[] = {32, 64, 56, 56}, weight[] = {64, 64, 3, 3};
    const double flop = 2.0 * 32 * 64 * 64 * 9 * 56 * 56;

    x->a = bench_normal(input, 4, 1);
    x->b = bench_normal(weight, 4, 1);
    x->bias = bench_normal(weight, 1, 1);
    GFLOP("conv2d_32x64x56x56_k3p1_64_f32", conv2d, flop);
    x->a = channels_last(x->a);
    x->b = channels_last(x->b);
    GFLOP("conv2d_same_channels_last_f32", conv2d, flop);
    drop(x);
    core_grad_mode_set(true);
    x->a = bench_requires_grad(bench_normal(input, 4, 1));
    x->b = bench_requires_grad(bench_normal(weight, 4, 1));
    x->bias = bench_requires_grad(bench_normal(weight, 1, 1));
    x->grad = bench_full(input, 4, 1);
    GFLOP("conv2d_same_fwd+bwd_f32", conv2d_and_back, 3 * flop);
    core_grad_mode_set(false);
    drop(x);
}

void bench_blas(void)
{
    static const int64_t sides[] = {64, 256, 512, 1024, 2048};
    bool before = core_grad_mode_set(false);

    for (uint32_t threads = bench.first_threads; threads <= bench.last_threads;
         threads++) {
        operands x = {0};

        must(core_threads_set(threads));
        for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
            square(&x, sides[i], threads);
        others(&x, threads);
        convolutions(&x, threads);
    }
    must(core_threads_set(1));
    core_grad_mode_set(before);
}
