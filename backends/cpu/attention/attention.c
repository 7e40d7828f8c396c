/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Fused attention and its gradients.  A block of queries at a time is combined
 * with all keys, so that scores stay in the cache; backward recomputes them.
 * Threads share the heads (forward: blocks of them), and each result is
 * computed by one thread in a fixed order.  Compiled per instruction set. */

#include <math.h>
#include <stdlib.h>

#include <expressions/philox.h>

#include "gemm/blas.h"
#include "gemm/gemm.h"
#include "math/lanes.h"
#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

/* Views are [batch, head, position, element]; NULL: absent. */
typedef struct attention {
    const core_view *query, *key, *value, *bias, *output, *grad;
    const core_view *to_query, *to_key, *to_value, *to_bias;
    void *sum; /* logarithms, in the compute type; or NULL */
    const int64_t *sum_strides;
    int64_t batch, heads, rows, columns, inner, outer;
    int64_t block, blocks; /* queries per block; blocks per head */
    double scale, dropout, kept_scale;
    uint64_t seed, offset;
    bool causal;
    core_status status;
} attention;

typedef struct place {
    int64_t which, batch, head;
} place;

static place place_of(const attention *a, int64_t which)
{
    return (place){which, which / a->heads, which % a->heads};
}

static int64_t sum_at(const attention *a, const place *at, int64_t row)
{
    return at->batch * a->sum_strides[0] + at->head * a->sum_strides[1] +
           row * a->sum_strides[2];
}

/* The keys visible to queries before `end`. */
static int64_t columns_of(const attention *a, int64_t end)
{
    return a->causal && end < a->columns ? end : a->columns;
}

/* C = alpha op(A) op(B) + beta C with the kernels of gemm.h, or of blas.h. */
static void product_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                        float alpha, const float *a, int64_t lda,
                        const float *b, int64_t ldb, float beta, float *c,
                        int64_t ldc)
{
    const gemm_problem p = {.m = m,
                            .n = n,
                            .k = k,
                            .a = a,
                            .row_a = ta ? 1 : lda,
                            .step_a = ta ? lda : 1,
                            .b = b,
                            .step_b = tb ? 1 : ldb,
                            .column_b = tb ? ldb : 1,
                            .c = c,
                            .distance = ldc,
                            .alpha = alpha,
                            .beta = beta};

    if (!cpu_gemm_is_faster(m, n, k) || !cpu_gemm_multiply(&p))
        cpu_gemm_f32(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

#define product_f64 cpu_gemm_f64

#define L(name) name##_f32
#define T(name) name##_f32
#define TYPE float
#define DTYPE CORE_F32
#include "attention_type.h"
#undef L
#undef T
#undef TYPE
#undef DTYPE
#define L(name) name##_f64
#define T(name) name##_f64
#define TYPE double
#define DTYPE CORE_F64
#include "attention_type.h"
#undef L
#undef T
#undef TYPE
#undef DTYPE

/* args: query, key, value, bias */
static attention begin(const core_value *args, double dropout, bool causal,
                       const core_value *scale)
{
    attention a = {.query = cpu_view(&args[0]),
                   .key = cpu_view(&args[1]),
                   .value = cpu_view(&args[2]),
                   .bias = cpu_view(&args[3]),
                   .dropout = dropout,
                   .causal = causal,
                   .status = CORE_OK};
    enum { SCORES = 1 << 16, LONG = 1 << 16, LEAST = 64, FEW = 16, MOST = 128 };
    int64_t least;

    a.batch = a.query->sizes[0];
    a.heads = a.query->sizes[1];
    a.rows = a.query->sizes[2];
    a.columns = a.key->sizes[2];
    a.inner = a.query->sizes[3];
    a.outer = a.value->sizes[3];
    a.block = SCORES / (a.columns > 0 ? a.columns : 1);
    /* Over very many keys, fewer rows, as each needs memory for all keys. */
    least = a.columns > LONG ? FEW : LEAST;
    a.block = a.block < least ? least : a.block > MOST ? MOST : a.block;
    a.blocks = (a.rows + a.block - 1) / a.block;
    a.scale = scale->tag == CORE_VALUE_NONE ? 1 / sqrt((double)a.inner)
                                            : cpu_float(scale);
    a.kept_scale = dropout < 1 ? 1 / (1 - dropout) : 0;
    return a;
}

static core_status run(attention *a, int64_t items, cpu_task task)
{
    cpu_parallel_for(items, 1, task, a);
    if (a->status != CORE_OK) /* a worker's error message belongs to another
                               * thread */
        cpu_error(a->status, "no host memory for blocks of %lld scores",
                  (long long)(a->block * a->columns));
    return a->status;
}

/* (query, key, value, attn_bias, compute_log_sumexp, dropout_p, is_causal,
 * scale) -> (output, log_sumexp, philox_seed, philox_offset) */
static core_status launch_forward(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    attention a = begin(args, cpu_float(&args[5]), args[6].u.i != 0, &args[7]);
    const core_view *sum = cpu_view(&results[1]);
    const core_value *last = &args[nargs - 1];
    /* A host of minor 0.1 that borrows this kernel passes two values. */
    const core_value *seed = last->tag == CORE_VALUE_INT ? last - 1 : last - 2;

    (void)call;
    (void)nresults;
    a.output = cpu_view(&results[0]);
    a.sum = sum->numel > 0 ? cpu_address(sum->memory) : NULL;
    a.sum_strides = sum->strides;
    a.seed = (uint64_t)seed[0].u.i;
    a.offset = (uint64_t)seed[1].u.i;
    if (last->tag == CORE_VALUE_VIEW) {
        const uint64_t *counter = cpu_address(last->u.view->memory);

        a.offset += counter[0];
        a.seed = counter[1];
    }
    *(uint64_t *)cpu_address(results[2].u.view->memory) = a.seed;
    *(uint64_t *)cpu_address(results[3].u.view->memory) = a.offset;
    return run(&a, a.batch * a.heads * a.blocks,
               a.query->dtype == CORE_F64 ? forward_task_f64
                                          : forward_task_f32);
}

/* (grad_out, query, key, value, attn_bias, out, logsumexp, philox_seed,
 * philox_offset, dropout_p, grad_input_mask, is_causal, scale) */
static core_status launch_backward(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    attention a =
        begin(args + 1, cpu_float(&args[9]), args[11].u.i != 0, &args[12]);

    (void)call;
    (void)nargs;
    (void)nresults;
    a.grad = cpu_view(&args[0]);
    a.output = cpu_view(&args[5]);
    a.sum = cpu_address(args[6].u.view->memory);
    a.sum_strides = args[6].u.view->strides;
    a.seed = *(const uint64_t *)cpu_address(args[7].u.view->memory);
    a.offset = *(const uint64_t *)cpu_address(args[8].u.view->memory);
    a.to_query = cpu_view(&results[0]);
    a.to_key = cpu_view(&results[1]);
    a.to_value = cpu_view(&results[2]);
    a.to_bias = cpu_view(&results[3]);
    return run(&a, a.batch * a.heads,
               a.query->dtype == CORE_F64 ? backward_task_f64
                                          : backward_task_f32);
}

#define FORWARD "_scaled_dot_product_efficient_attention"
#define BACKWARD FORWARD "_backward"
#define I64 CORE_DTYPE_MASK(CORE_I64)
#define MASKED (CPU_FLOATS | CPU_BOOL)
static const cpu_kernel kernels[] = {
    {FORWARD,
     launch_forward,
     NULL,
     {CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, MASKED, CPU_FLOATS, CPU_FLOATS, I64,
      I64},
     0},
    {BACKWARD,
     launch_backward,
     NULL,
     {CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, MASKED, CPU_FLOATS,
      CPU_FLOATS, I64},
     0},
};

const cpu_kernel_table CPU_NAME(cpu_attention_kernels) = {
    kernels, sizeof kernels / sizeof kernels[0]};
