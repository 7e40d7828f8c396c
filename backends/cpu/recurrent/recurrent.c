/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A recurrent layer in one direction and its gradients: per time step one
 * product with the weight, which is packed once, and the cell.  Threads share
 * the samples or, if these are few, the hidden units; a number is computed in
 * the same order in both cases.  Compiled per instruction set. */

#include <math.h>
#include <stdlib.h>

#include <expressions/vecmath.h>

#include "gemm/blas.h"
#include "gemm/gemm.h"
#include "runtime/scratch.h"
#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

/* The argument `mode` of the operators. */
typedef enum kind { RELU, TANH, LSTM, GRU } kind;

enum { BUFFERS = 14 };

/* A layer.  Rows are those of all samples at the first step, then those at the
 * second, and so on; the samples of a step are the first ones.  A row of
 * `saved` has, per hidden unit, input, forget, cell and output gate and the
 * cell state of an LSTM; reset, update and new gate and the hidden part of the
 * new gate of a GRU. */
typedef struct layer {
    kind kind;
    bool reverse, whole; /* whole: not divided for threads */
    int64_t steps, batch, rows, n, gates, saved;
    int64_t lines;           /* samples of a task */
    int64_t columns, blocks; /* hidden units of a packed panel; panels */
    int64_t at;              /* the iteration, where tasks have one each */
    int64_t *starts;         /* steps + 1: the first row of each step */
    void *panels;            /* the packed weight; NULL: read in place */
    const void *weight, *bias;
    /* forward */
    const void *input, *hx, *cx;
    void *output, *hy, *cy, *workspace;
    /* backward; NULL: absent */
    const void *grad_output, *grad_hy, *grad_cy, *grad_saved;
    void *to_input, *to_hidden, *to_hx, *to_cx;
    cpu_dense buffers[BUFFERS];
    uint32_t nbuffers;
} layer;

/* A part of the samples and of the hidden units. */
typedef struct part {
    int64_t row, end, unit, unit_end;
} part;

static int64_t smaller(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

static int64_t at_least_1(int64_t x)
{
    return x > 1 ? x : 1;
}

/* The samples of a step. */
static int64_t count_at(const layer *a, int64_t step)
{
    return a->starts[step + 1] - a->starts[step];
}

/* The step of an iteration. */
static int64_t step_at(const layer *a, int64_t iteration)
{
    return a->reverse ? a->steps - 1 - iteration : iteration;
}

/* How many samples of the step of an iteration also have the one before. */
static int64_t continued(const layer *a, int64_t iteration)
{
    return iteration > 0 ? smaller(count_at(a, step_at(a, iteration)),
                                   count_at(a, step_at(a, iteration - 1)))
                         : 0;
}

/* Where the product for a gate is in a row of saved numbers: a GRU's hidden
 * part of the new gate is not added to that of the input. */
static int64_t place_of(const layer *a, int64_t gate)
{
    return a->kind == GRU && gate == 2 ? 3 : gate;
}

/* --------------------------------------------------------------- packing -- */

/* Panels of a->columns columns of op(weight), k numbers deep: the gates' rows
 * for forward, the columns for backward. */
static void pack(layer *a, bool backward)
{
    const gemm_functions *f = &CPU_NAME(cpu_gemm_functions);
    int64_t n = a->n, k = backward ? a->gates * n : n;
    const float *weight = a->weight;
    float *to = a->panels;

    for (int64_t gate = 0; gate < (backward ? 1 : a->gates); gate++)
        for (int64_t u = 0; u < n; u += a->columns, to += a->columns * k) {
            int64_t count = smaller(a->columns, n - u);

            if (!backward) {
                f->transpose(to, weight + (gate * n + u) * n, n, count, k);
                continue;
            }
            for (int64_t q = 0; q < k; q++) {
                memcpy(to + q * a->columns, weight + q * n + u,
                       (size_t)count * sizeof *to);
                memset(to + q * a->columns + count, 0,
                       (size_t)(a->columns - count) * sizeof *to);
            }
        }
}

/* c [lines] += a [lines, k] times a panel; distance: between lines. */
static void multiply_panel(const layer *a, const float *from, int64_t distance,
                           int64_t k, int64_t panel, int64_t lines, float *c,
                           int64_t c_distance, int64_t columns)
{
    const gemm_functions *f = &CPU_NAME(cpu_gemm_functions);
    const float *b = (const float *)a->panels + panel * a->columns * k;

    for (int64_t q = 0; q < k; q += GEMM_BLOCK_K) {
        const gemm_lines l = {.a = from + q,
                              .row_a = distance,
                              .step_a = 1,
                              .b = b + q * a->columns,
                              .step_b = a->columns,
                              .k = smaller(GEMM_BLOCK_K, k - q),
                              .c = c,
                              .distance = c_distance,
                              .alpha = 1,
                              .beta = 1};

        f->multiply(&l, lines, columns);
    }
}

#define TYPE float
#define T(name) name##_f32
#define L(name) name##_f32
#include "recurrent_type.h"
#undef TYPE
#undef T
#undef L
#define TYPE double
#define T(name) name##_f64
#define L(name) name##_f64
#include "recurrent_type.h"
#undef TYPE
#undef T
#undef L

/* -------------------------------------------------------------- threads -- */

enum {
    FEW = 8,              /* samples of a task without panels */
    WORK_SHARED = 1 << 18 /* operations of a step that are worth a barrier */
};

/* Divides the samples; the bits do not depend on how, if panels are used. */
static void divide(layer *a)
{
    int64_t threads = cpu_thread_pool_threads();

    a->lines = FEW;
    a->whole = true;
    if (!a->panels)
        return;
    a->lines = smaller(CPU_NAME(cpu_gemm_functions).lines,
                       at_least_1((a->batch + threads - 1) / threads));
    /* Rows at this distance share the same lines of the cache. */
    if (a->n * (int64_t)sizeof(float) % 4096 == 0)
        a->lines = smaller(a->lines, 8);
    a->whole = (a->batch + a->lines - 1) / a->lines * 2 > threads ||
               a->batch * a->gates * a->n * a->n < WORK_SHARED;
}

/* Runs `iterations` iterations of a pass. */
static void run(layer *a, int64_t iterations, cpu_task all, cpu_task one)
{
    int64_t groups = (a->batch + a->lines - 1) / a->lines;

    if (a->whole) {
        cpu_parallel_for(groups, 1, all, a);
        return;
    }
    for (a->at = 0; a->at < iterations; a->at++)
        cpu_parallel_for(groups * a->blocks, 1, one, a);
}

static part part_of(const layer *a, int64_t group)
{
    return (part){group * a->lines, smaller(a->batch, (group + 1) * a->lines),
                  0, a->n};
}

static part block_of(const layer *a, int64_t task)
{
    part p = part_of(a, task / a->blocks);

    p.unit = task % a->blocks * a->columns;
    p.unit_end = smaller(a->n, p.unit + a->columns);
    return p;
}

#define TASKS(TYPE)                                                            \
    static void forward_all_##TYPE(void *context, int64_t begin, int64_t end)  \
    {                                                                          \
        const layer *a = context;                                              \
        for (; begin < end; begin++) {                                         \
            part p = part_of(a, begin);                                        \
            for (int64_t i = 0; i < a->steps; i++)                             \
                forward_##TYPE(a, i, &p);                                      \
        }                                                                      \
    }                                                                          \
    static void forward_one_##TYPE(void *context, int64_t begin, int64_t end)  \
    {                                                                          \
        const layer *a = context;                                              \
        for (; begin < end; begin++) {                                         \
            part p = block_of(a, begin);                                       \
            forward_##TYPE(a, a->at, &p);                                      \
        }                                                                      \
    }                                                                          \
    static void backward_all_##TYPE(void *context, int64_t begin, int64_t end) \
    {                                                                          \
        const layer *a = context;                                              \
        for (; begin < end; begin++) {                                         \
            part p = part_of(a, begin);                                        \
            for (int64_t i = 0; i <= a->steps; i++)                            \
                backward_##TYPE(a, i, &p);                                     \
        }                                                                      \
    }                                                                          \
    static void backward_one_##TYPE(void *context, int64_t begin, int64_t end) \
    {                                                                          \
        const layer *a = context;                                              \
        for (; begin < end; begin++) {                                         \
            part p = block_of(a, begin);                                       \
            backward_##TYPE(a, a->at, &p);                                     \
        }                                                                      \
    }
TASKS(f32)
TASKS(f64)
#undef TASKS

/* ----------------------------------------------------------------- calls -- */

/* The contents of a view in the type that is computed in; NULL for none. */
static void *open_view(layer *a, const core_view *view, bool writes,
                       core_dtype dtype, core_status *status)
{
    cpu_dense *buffer = &a->buffers[a->nbuffers];

    if (*status != CORE_OK || !view)
        return NULL;
    *status = writes ? cpu_dense_open(view, dtype, buffer)
                     : cpu_dense_read(view, dtype, buffer);
    a->nbuffers++;
    return buffer->data;
}

static core_status open_steps(layer *a, const core_value *sizes)
{
    bool given = sizes->tag == CORE_VALUE_INT_LIST && sizes->count > 0;

    a->steps = given                          ? (int64_t)sizes->count
               : sizes->tag == CORE_VALUE_INT ? 1
               : a->batch > 0                 ? a->rows / a->batch
                                              : 0;
    a->starts = cpu_allocate(a->steps + 1, sizeof *a->starts);
    if (!a->starts)
        return CORE_ERROR_OUT_OF_MEMORY;
    a->starts[0] = 0;
    for (int64_t i = 0; i < a->steps; i++)
        a->starts[i + 1] = a->starts[i] + (given ? sizes->u.ints[i] : a->batch);
    return CORE_OK;
}

/* Sizes, and the packed weight. */
static core_status begin(layer *a, const core_view *hx, const core_view *weight,
                         const core_value *last, core_dtype dtype,
                         bool backward)
{
    static const uint8_t gates[] = {1, 1, 4, 3}, saved[] = {0, 0, 5, 4};
    const gemm_functions *f = &CPU_NAME(cpu_gemm_functions);
    core_status status;

    a->kind = (kind)cpu_int(&last[1]);
    a->reverse = cpu_int(&last[2]) != 0;
    a->batch = hx->sizes[0];
    a->n = hx->sizes[1];
    a->gates = gates[a->kind];
    a->saved = saved[a->kind];
    status = open_steps(a, &last[0]);
    a->weight = open_view(a, weight, false, dtype, &status);
    if (status == CORE_OK && dtype == CORE_F32 && f->multiply) {
        a->columns = f->columns;
        a->blocks = (a->n + f->columns - 1) / f->columns;
        a->panels = cpu_scratch_take(a->blocks * a->columns * a->gates * a->n *
                                     (int64_t)sizeof(float));
        if (!a->panels)
            status = CORE_ERROR_OUT_OF_MEMORY;
    }
    if (a->panels)
        pack(a, backward);
    if (status == CORE_OK)
        divide(a);
    return status;
}

static core_status finish(layer *a, core_status status)
{
    for (uint32_t i = 0; i < a->nbuffers; i++) {
        if (status == CORE_OK)
            cpu_dense_write(&a->buffers[i]);
        cpu_dense_close(&a->buffers[i]);
    }
    cpu_scratch_give(a->panels);
    free(a->starts);
    return status;
}

/* (input, hx, cx, w_hh, b_hh, batch_sizes, mode, reverse) -> (output, hy, cy,
 * workspace) */
static core_status launch_forward(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const core_view *input = cpu_view(&args[0]);
    core_dtype dtype = cpu_compute_dtype(input->dtype);
    layer a = {.rows = input->sizes[0]};
    core_status status = begin(&a, cpu_view(&args[1]), cpu_view(&args[3]),
                               args + 5, dtype, false);

    (void)call;
    (void)nargs;
    (void)nresults;
    a.input = open_view(&a, input, false, dtype, &status);
    a.hx = open_view(&a, cpu_view(&args[1]), false, dtype, &status);
    a.cx = open_view(&a, cpu_view(&args[2]), false, dtype, &status);
    a.bias = open_view(&a, cpu_view(&args[4]), false, dtype, &status);
    a.output = open_view(&a, cpu_view(&results[0]), true, dtype, &status);
    a.hy = open_view(&a, cpu_view(&results[1]), true, dtype, &status);
    a.cy = open_view(&a, cpu_view(&results[2]), true, dtype, &status);
    a.workspace = open_view(&a, cpu_view(&results[3]), true, dtype, &status);
    if (status == CORE_OK && dtype == CORE_F64) {
        run(&a, a.steps, forward_all_f64, forward_one_f64);
        last_states_f64(&a);
    } else if (status == CORE_OK) {
        run(&a, a.steps, forward_all_f32, forward_one_f32);
        last_states_f32(&a);
    }
    return finish(&a, status);
}

/* (grad_output, grad_hy, grad_cy, grad_workspace, output, hx, cx, w_hh,
 * workspace, batch_sizes, mode, reverse) -> (grad_input, grad_hidden, grad_hx,
 * grad_cx) */
static core_status launch_backward(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    const core_view *output = cpu_view(&args[4]);
    core_dtype dtype = cpu_compute_dtype(output->dtype);
    layer a = {.rows = output->sizes[0]};
    core_status status = begin(&a, cpu_view(&args[5]), cpu_view(&args[7]),
                               args + 9, dtype, true);

    (void)call;
    (void)nargs;
    (void)nresults;
    a.grad_output = open_view(&a, cpu_view(&args[0]), false, dtype, &status);
    a.grad_hy = open_view(&a, cpu_view(&args[1]), false, dtype, &status);
    if (a.kind == LSTM)
        a.grad_cy = open_view(&a, cpu_view(&args[2]), false, dtype, &status);
    if (a.saved > 0)
        a.grad_saved = open_view(&a, cpu_view(&args[3]), false, dtype, &status);
    a.output = open_view(&a, output, false, dtype, &status);
    a.hx = open_view(&a, cpu_view(&args[5]), false, dtype, &status);
    a.cx = open_view(&a, cpu_view(&args[6]), false, dtype, &status);
    a.workspace = open_view(&a, cpu_view(&args[8]), false, dtype, &status);
    a.to_input = open_view(&a, cpu_view(&results[0]), true, dtype, &status);
    a.to_hidden = open_view(&a, cpu_view(&results[1]), true, dtype, &status);
    a.to_hx = open_view(&a, cpu_view(&results[2]), true, dtype, &status);
    a.to_cx = open_view(&a, cpu_view(&results[3]), true, dtype, &status);
    if (a.kind != GRU)
        a.to_hidden = a.to_input;
    if (status == CORE_OK && dtype == CORE_F64) {
        first_gradients_f64(&a);
        run(&a, a.steps + 1, backward_all_f64, backward_one_f64);
    } else if (status == CORE_OK) {
        first_gradients_f32(&a);
        run(&a, a.steps + 1, backward_all_f32, backward_one_f32);
    }
    return finish(&a, status);
}

#define FLOATS_5 CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS
static const cpu_kernel kernels[] = {
    {"_recurrent_layer", launch_forward, NULL, {FLOATS_5}, 0},
    {"_recurrent_layer_backward", launch_backward, NULL, {FLOATS_5}, 0},
};

const cpu_kernel_table CPU_NAME(cpu_recurrent_kernels) = {
    kernels, sizeof kernels / sizeof kernels[0]};
