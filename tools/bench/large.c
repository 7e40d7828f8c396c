/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Large tensors and rows of matrices, in GB/s of what must be read and
 * written. */

#include "bench.h"

enum { LARGE = 16 << 20, CACHED = 65536, ROWS = 4096, COLUMNS = 1024 };

typedef struct operands {
    core_tensor *a, *b, *o;
    core_tensor *weight, *bias;
} operands;

#define ROW(name, call)                    \
    static inline void name(void *context) \
    {                                      \
        operands *x = context;             \
                                           \
        must(call);                        \
    }
#define RESULT_ROW(name, call)             \
    static inline void name(void *context) \
    {                                      \
        operands *x = context;             \
        core_tensor *r;                    \
                                           \
        must(call);                        \
        core_tensor_release(r);            \
    }

ROW(add_out, core_add_out(x->a, x->b, core_int(1), x->o))
RESULT_ROW(add_alloc, core_add(x->a, x->b, core_int(1), &r))
ROW(mul_in_place, core_mul_(x->o, x->b))
ROW(copy, core_copy_(x->o, x->a, false))
ROW(copy_back, core_copy_(x->a, x->o, false))
ROW(exp_out, core_exp_out(x->a, x->o))
ROW(gelu_out, core_gelu_out(x->a, "none", x->o))
ROW(gelu_tanh_out, core_gelu_out(x->a, "tanh", x->o))
ROW(sigmoid_out, core_sigmoid_out(x->a, x->o))
ROW(tanh_out, core_tanh_out(x->a, x->o))
RESULT_ROW(sum, core_sum(x->a, CORE_DTYPE_NONE, &r))
RESULT_ROW(largest, core_max(x->a, &r))
ROW(softmax, core_softmax_out(x->a, -1, CORE_DTYPE_NONE, x->o))
RESULT_ROW(log_softmax, core_log_softmax(x->a, -1, CORE_DTYPE_NONE, &r))
RESULT_ROW(layer_norm, core_layer_norm(x->a, (const int64_t[]){COLUMNS}, 1,
                                       x->weight, x->bias, 1e-5, &r))
RESULT_ROW(sum_rows, core_sum_dim(x->a, (const int64_t[]){1}, 1, false,
                                  CORE_DTYPE_NONE, &r))
RESULT_ROW(sum_columns, core_sum_dim(x->a, (const int64_t[]){0}, 1, false,
                                     CORE_DTYPE_NONE, &r))

#define SPEED(row, bytes) (1e-9 * (double)(bytes) / bench_seconds(row, x, 0.05))
#define GB(name, row, bytes) \
    bench_out_threads(name, threads, SPEED(row, bytes), "GB/s")
/* Operands larger than the caches: as a share of the memory bandwidth. */
#define READS(name, row, bytes)                               \
    bench_out_share(name, threads, SPEED(row, bytes), "GB/s", \
                    bench_limit(BENCH_READ, threads))
#define WRITES(name, row, bytes)                              \
    bench_out_share(name, threads, SPEED(row, bytes), "GB/s", \
                    most_written(threads))

/* With non-temporal or ordinary stores, whichever is faster here. */
static double most_written(uint32_t threads)
{
    double copied = bench_limit(BENCH_COPY, threads);
    double streamed = bench_limit(BENCH_STREAM, threads);

    return copied > streamed ? copied : streamed;
}

static core_tensor *uniform(const int64_t *sizes, size_t ndim)
{
    core_tensor *tensor;

    must(core_rand(sizes, ndim, NULL, CORE_F32, NULL, &tensor));
    return tensor;
}

static core_tensor *as(core_tensor *tensor, core_dtype dtype)
{
    core_tensor *other;

    must(core_to_copy(tensor, dtype, NULL, false, -1, &other));
    core_tensor_release(tensor);
    return other;
}

static void drop(operands *x)
{
    core_tensor_release(x->a);
    core_tensor_release(x->b);
    core_tensor_release(x->o);
    core_tensor_release(x->weight);
    core_tensor_release(x->bias);
    *x = (operands){0};
}

static void single(operands *x, uint32_t threads)
{
    const int64_t n = LARGE;

    x->a = uniform(&n, 1);
    x->b = uniform(&n, 1);
    x->o = bench_full(&n, 1, 0);
    WRITES("add_out_16M_f32", add_out, 12 * n);
    WRITES("add_alloc_16M_f32", add_alloc, 12 * n);
    WRITES("mul__16M_f32", mul_in_place, 12 * n);
    WRITES("copy_16M_f32", copy, 8 * n);
    WRITES("exp_out_16M_f32", exp_out, 8 * n);
    WRITES("gelu_out_16M_f32", gelu_out, 8 * n);
    WRITES("gelu_tanh_out_16M_f32", gelu_tanh_out, 8 * n);
    WRITES("sigmoid_out_16M_f32", sigmoid_out, 8 * n);
    WRITES("tanh_out_16M_f32", tanh_out, 8 * n);
    READS("sum_16M_f32", sum, 4 * n);
    READS("max_16M_f32", largest, 4 * n);
    drop(x);
}

static void half(operands *x, uint32_t threads)
{
    const int64_t n = LARGE;

    x->a = as(uniform(&n, 1), CORE_BF16);
    x->b = as(uniform(&n, 1), CORE_BF16);
    x->o = as(bench_full(&n, 1, 0), CORE_BF16);
    WRITES("add_out_16M_bf16", add_out, 6 * n);
    core_tensor_release(x->o);
    x->o = bench_full(&n, 1, 0);
    WRITES("cast_bf16_to_f32_16M", copy, 6 * n);
    WRITES("cast_f32_to_bf16_16M", copy_back, 6 * n);
    drop(x);
}

static void cached(operands *x, uint32_t threads)
{
    const int64_t n = CACHED;

    x->a = uniform(&n, 1);
    x->b = uniform(&n, 1);
    x->o = bench_full(&n, 1, 0);
    GB("add_out_64K_f32_cached", add_out, 12 * n);
    GB("exp_out_64K_f32_cached", exp_out, 8 * n);
    GB("gelu_out_64K_f32_cached", gelu_out, 8 * n);
    drop(x);
}

static void rows(operands *x, uint32_t threads)
{
    const int64_t sizes[] = {ROWS, COLUMNS}, n = (int64_t)ROWS * COLUMNS;

    x->a = bench_normal(sizes, 2, 1);
    x->o = bench_full(sizes, 2, 0);
    x->weight = bench_full(sizes + 1, 1, 1);
    x->bias = bench_full(sizes + 1, 1, 0);
    x->b = uniform(sizes + 1, 1);
    WRITES("softmax_out_4096x1024_f32", softmax, 8 * n);
    WRITES("log_softmax_4096x1024_f32", log_softmax, 8 * n);
    WRITES("layer_norm_4096x1024_f32", layer_norm, 8 * n);
    READS("sum_dim1_4096x1024_f32", sum_rows, 4 * n);
    READS("sum_dim0_4096x1024_f32", sum_columns, 4 * n);
    WRITES("add_bcast_row_4096x1024_f32", add_out, 8 * n);
    drop(x);
}

static void transposed(operands *x, uint32_t threads)
{
    const int64_t sizes[] = {4096, 4096}, n = sizes[0] * sizes[1];
    core_tensor *whole = bench_normal(sizes, 2, 1);

    x->o = bench_full(sizes, 2, 0);
    must(core_t(whole, &x->a));
    WRITES("transpose_copy_4096x4096_f32", copy, 8 * n);
    x->b = x->a;
    x->a = whole;
    WRITES("add_out_transposed_4096_f32", add_out, 12 * n);
    drop(x);
}

void bench_large(void)
{
    bool before = core_grad_mode_set(false);

    for (uint32_t threads = bench.first_threads; threads <= bench.last_threads;
         threads++) {
        operands x = {0};

        must(core_threads_set(threads));
        single(&x, threads);
        half(&x, threads);
        cached(&x, threads);
        rows(&x, threads);
        transposed(&x, threads);
    }
    must(core_threads_set(1));
    core_grad_mode_set(before);
}
