/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Softmax and its logarithm along one dimension, and their gradients.  One
 * driver provides every line of the operands as a contiguous row of f32 or f64
 * (in place if possible), and a row function computes.  Compiled per
 * instruction set. */

#include "isa.h"
#include "loop/block.h"
#include "math/lanes.h"
#include "move/transpose_lines.h"
#include "runtime/scratch.h"
#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

/* ----------------------------------------------------------------- rows -- */

/* b is for the gradients only. */
#define SOFTMAX_ROWS(NAME, TYPE)                                              \
    static void softmax_##NAME(TYPE *to, const TYPE *x, const TYPE *b,        \
                               int64_t n)                                     \
    {                                                                         \
        TYPE most = lanes_max_##NAME(x, n), factor;                           \
        (void)b;                                                              \
        /* The next row usually follows this one. */                          \
        factor = (TYPE)(1 / lanes_exp_##NAME(to, x, most, n, x + n, to + n)); \
        for (int64_t i = 0; i < n; i++)                                       \
            to[i] *= factor;                                                  \
    }                                                                         \
    static void log_softmax_##NAME(TYPE *to, const TYPE *x, const TYPE *b,    \
                                   int64_t n)                                 \
    {                                                                         \
        TYPE most = lanes_max_##NAME(x, n), shift, block[512];                \
        double sum = 0;                                                       \
        (void)b;                                                              \
        for (int64_t i = 0; i < n; i += 512) {                                \
            int64_t m = n - i < 512 ? n - i : 512;                            \
            sum += lanes_exp_##NAME(block, x + i, most, m, x + n + i,         \
                                    to + n + i);                              \
        }                                                                     \
        shift = (TYPE)log(sum);                                               \
        for (int64_t i = 0; i < n; i++)                                       \
            to[i] = x[i] - most - shift;                                      \
    }                                                                         \
    static void softmax_gradient_##NAME(TYPE *to, const TYPE *grad,           \
                                        const TYPE *y, int64_t n)             \
    {                                                                         \
        TYPE sum = (TYPE)lanes_dot_##NAME(grad, y, 0, n);                     \
        for (int64_t i = 0; i < n; i++)                                       \
            to[i] = y[i] * (grad[i] - sum);                                   \
    }                                                                         \
    static void log_softmax_gradient_##NAME(TYPE *to, const TYPE *grad,       \
                                            const TYPE *y, int64_t n)         \
    {                                                                         \
        TYPE sum = (TYPE)lanes_sum_##NAME(grad, NULL, 0, n), block[512];      \
        for (int64_t i = 0; i < n; i += 512) {                                \
            int64_t m = n - i < 512 ? n - i : 512;                            \
            lanes_exp_##NAME(block, y + i, 0, m, NULL, NULL);                 \
            for (int64_t j = 0; j < m; j++)                                   \
                to[i + j] = grad[i + j] - block[j] * sum;                     \
        }                                                                     \
    }
CPU_COMPUTE_FLOATS(SOFTMAX_ROWS)

/* Rows of bf16: what softmax_gradient_f32 computes, without rows of f32. */
#if defined(__AVX2__)
#define WIDE(x) math_f32_of_bits((uint32_t)(x) << 16)

/* As lanes_dot_f32. */
static float dot_bf16(const uint16_t *a, const uint16_t *b, int64_t n)
{
    double total = 0;

    for (int64_t at = 0; at < n; at += LANES_BLOCK) {
        int64_t end = n - at < LANES_BLOCK ? n : at + LANES_BLOCK, i;
        float lane[LANES] = {0};

        for (i = at; i + LANES <= end; i += LANES)
            MATH_EACH_LANE(float, LANES, l,
                           lane[l] += WIDE(a[i + l]) * WIDE(b[i + l]);)
        LANES_FOLD(lane)
        total += (double)lane[0];
        for (; i < end; i++) {
            __asm__ volatile(""); /* not vectorized: vectors are long code */
            total += (double)(WIDE(a[i]) * WIDE(b[i]));
        }
    }
    return (float)total;
}

static void softmax_gradient_bf16(uint16_t *to, const uint16_t *grad,
                                  const uint16_t *y, int64_t n)
{
    enum { BLOCK = 512 };
    float sum = dot_bf16(grad, y, n), block[BLOCK];

    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK, j;

        for (j = 0; j + LANES <= m; j += LANES)
            for (int l = 0; l < LANES; l++)
                block[j + l] =
                    WIDE(y[i + j + l]) * (WIDE(grad[i + j + l]) - sum);
        for (; j < m; j++) {
            __asm__ volatile("");
            block[j] = WIDE(y[i + j]) * (WIDE(grad[i + j]) - sum);
        }
        cpu_put_f32(CORE_BF16, to + i, 1, block, m);
    }
}
#endif

/* --------------------------------------------------------------- driver -- */

typedef struct row_functions {
    void (*f32)(float *to, const float *a, const float *b, int64_t n);
    void (*f64)(double *to, const double *a, const double *b, int64_t n);
} row_functions;

typedef struct line_job {
    const row_functions *functions;
    const core_view *to, *a, *b; /* b may be NULL */
    uint32_t dim;
    int64_t n;
    core_status status;
} line_job;

/* A line of a view as a row: in place, or copied to scratch memory. */
#define LINE_TASK(NAME, TYPE, DTYPE)                                           \
    static const TYPE *line_read_##NAME(const core_view *view, uint32_t dim,   \
                                        int64_t line, TYPE *scratch,           \
                                        int64_t n)                             \
    {                                                                          \
        const char *from = cpu_address(view->memory);                          \
        from += cpu_line_offset(view, dim, line) * cpu_item_size(view->dtype); \
        if (view->dtype == DTYPE && cpu_line_stride(view, dim) == 1)           \
            return (const TYPE *)from;                                         \
        cpu_get_##NAME(scratch, view->dtype, from, cpu_line_stride(view, dim), \
                       n);                                                     \
        return scratch;                                                        \
    }                                                                          \
    static void line_task_##NAME(void *context, int64_t begin, int64_t end)    \
    {                                                                          \
        line_job *job = context;                                               \
        const core_view *to = job->to;                                         \
        int64_t n = job->n, stride = cpu_line_stride(to, job->dim);            \
        bool direct = to->dtype == DTYPE && stride == 1;                       \
        TYPE *scratch = cpu_scratch_take(3 * n * (int64_t)sizeof(TYPE));       \
        if (!scratch) {                                                        \
            __atomic_store_n(&job->status, CORE_ERROR_OUT_OF_MEMORY,           \
                             __ATOMIC_RELAXED);                                \
            return;                                                            \
        }                                                                      \
        for (int64_t line = begin; line < end; line++) {                       \
            char *out = (char *)cpu_address(to->memory) +                      \
                        cpu_line_offset(to, job->dim, line) *                  \
                            cpu_item_size(to->dtype);                          \
            TYPE *row = direct ? (TYPE *)out : scratch;                        \
            const TYPE *b = NULL;                                              \
            if (job->b)                                                        \
                b = line_read_##NAME(job->b, job->dim, line, scratch + n, n);  \
            job->functions->NAME(                                              \
                row,                                                           \
                line_read_##NAME(job->a, job->dim, line, scratch + 2 * n, n),  \
                b, n);                                                         \
            if (!direct)                                                       \
                cpu_put_##NAME(to->dtype, out, stride, row, n);                \
        }                                                                      \
        cpu_scratch_give(scratch);                                             \
    }
LINE_TASK(f32, float, CORE_F32)
LINE_TASK(f64, double, CORE_F64)

/* -------------------------------------------------------------- strips -- */

/* Along another dimension than the last, the lines of a strip are neighbours in
 * memory: they are turned into rows together, while their cache lines are
 * used. */
enum {
    STRIP = 16,
    NARROWEST = 4,         /* fewer lines are not worth it */
    STRIP_ELEMENTS = 16384 /* of a line */
};

/* Rows of the view's dtype are kept in memory for those of the compute type. */
static bool dense_across(const core_view *view, int64_t compute_size)
{
    return !view || (view->strides[view->ndim - 1] == 1 &&
                     cpu_item_size(view->dtype) <= compute_size);
}

static bool has_strips(const line_job *job)
{
    int64_t size = job->a->dtype == CORE_F64 ? 8 : 4;

    return job->to->ndim > 1 && job->dim < job->to->ndim - 1 &&
           job->to->sizes[job->to->ndim - 1] >= NARROWEST &&
           cpu_line_stride(job->to, job->dim) != 1 &&
           job->n <= STRIP_ELEMENTS && dense_across(job->to, size) &&
           dense_across(job->a, size) && dense_across(job->b, size);
}

static int64_t strips_across(const line_job *job)
{
    return (job->to->sizes[job->to->ndim - 1] + STRIP - 1) / STRIP;
}

/* The lines of a strip, from one on. */
typedef struct strip {
    const line_job *job;
    int64_t line, width;
} strip;

static strip strip_at(const line_job *job, int64_t number)
{
    int64_t inner = job->to->sizes[job->to->ndim - 1];
    int64_t first = number % strips_across(job) * STRIP;

    return (strip){job, number / strips_across(job) * inner + first,
                   inner - first < STRIP ? inner - first : STRIP};
}

/* To or from dense rows of the view's dtype. */
static void strip_turn(const strip *s, const core_view *view, char *rows,
                       bool out)
{
    int64_t n = s->job->n, size = cpu_item_size(view->dtype);
    int64_t stride = cpu_line_stride(view, s->job->dim) * size;
    char *at = cpu_line_address(view, s->job->dim, s->line);

    if (out)
        CPU_NAME(cpu_transpose_lines)
    ((uint32_t)size, at, stride, rows, n * size, s->width, n);
    else CPU_NAME(cpu_transpose_lines)((uint32_t)size, rows, n * size, at,
                                       stride, n, s->width);
}

#define STRIP_TASK(NAME, TYPE, DTYPE)                                          \
    /* Row k of some dense ones: in place, or converted. */                    \
    static const TYPE *strip_row_##NAME(const core_view *view, const char *in, \
                                        int64_t k, int64_t n, TYPE *row)       \
    {                                                                          \
        int64_t size = cpu_item_size(view->dtype);                             \
        if (view->dtype == DTYPE)                                              \
            return (const TYPE *)(const void *)in + k * n;                     \
        cpu_load(DTYPE, row, view->dtype, in + k * n * size, size, n);         \
        return row;                                                            \
    }                                                                          \
    static void strip_run_##NAME(const strip *s, TYPE *memory)                 \
    {                                                                          \
        const line_job *job = s->job;                                          \
        int64_t n = job->n, size = cpu_item_size(job->to->dtype);              \
        TYPE *rows = memory + 3 * n;                                           \
        char *a = (char *)rows, *b = (char *)(rows + STRIP * n);               \
        char *to = (char *)(rows + 2 * STRIP * n);                             \
        strip_turn(s, job->a, a, false);                                       \
        if (job->b)                                                            \
            strip_turn(s, job->b, b, false);                                   \
        for (int64_t k = 0; k < s->width; k++) {                               \
            bool same = job->to->dtype == DTYPE;                               \
            TYPE *row = same ? (TYPE *)(void *)to + k * n : memory;            \
            const TYPE *y =                                                    \
                job->b ? strip_row_##NAME(job->b, b, k, n, memory + n) : NULL; \
            job->functions->NAME(                                              \
                row, strip_row_##NAME(job->a, a, k, n, memory + 2 * n), y, n); \
            if (!same)                                                         \
                cpu_store(job->to->dtype, to + k * n * size, size, DTYPE, row, \
                          n);                                                  \
        }                                                                      \
        strip_turn(s, job->to, to, true);                                      \
    }                                                                          \
    static void strip_task_##NAME(void *context, int64_t begin, int64_t end)   \
    {                                                                          \
        line_job *job = context;                                               \
        TYPE *memory = cpu_scratch_take(3 * (STRIP + 1) * job->n *             \
                                        (int64_t)sizeof(TYPE));                \
        if (!memory)                                                           \
            __atomic_store_n(&job->status, CORE_ERROR_OUT_OF_MEMORY,           \
                             __ATOMIC_RELAXED);                                \
        for (int64_t number = begin; memory && number < end; number++) {       \
            strip s = strip_at(job, number);                                   \
            strip_run_##NAME(&s, memory);                                      \
        }                                                                      \
        cpu_scratch_give(memory);                                              \
    }
STRIP_TASK(f32, float, CORE_F32)
STRIP_TASK(f64, double, CORE_F64)

#if defined(__AVX2__)

static bool are_rows_of_bf16(const line_job *job)
{
    const core_view *views[] = {job->to, job->a, job->b};

    for (int k = 0; k < 3; k++)
        if (!views[k] || views[k]->dtype != CORE_BF16 ||
            cpu_line_stride(views[k], job->dim) != 1)
            return false;
    return true;
}

static __attribute__((noinline)) void *row_at(const core_view *view,
                                              uint32_t dim, int64_t line)
{
    return cpu_line_address(view, dim, line);
}

static void bf16_task(void *context, int64_t begin, int64_t end)
{
    const line_job *job = context;

    for (int64_t line = begin; line < end; line++)
        softmax_gradient_bf16(row_at(job->to, job->dim, line),
                              row_at(job->a, job->dim, line),
                              row_at(job->b, job->dim, line), job->n);
}

#endif

static void (*task_of(const line_job *job))(void *, int64_t, int64_t)
{
#if defined(__AVX2__)
    if (job->functions->f32 == softmax_gradient_f32 && are_rows_of_bf16(job))
        return bf16_task;
#endif
    return job->a->dtype == CORE_F64 ? line_task_f64 : line_task_f32;
}

static core_status run_lines(line_job *job)
{
    bool f64 = job->a->dtype == CORE_F64;
    int64_t lines = cpu_line_count(job->to, job->dim);

    if (job->to->numel == 0)
        return CORE_OK;
    job->n = cpu_line_size(job->to, job->dim);
    if (has_strips(job)) {
        int64_t inner = job->to->sizes[job->to->ndim - 1];

        lines = lines / inner * strips_across(job);
        cpu_parallel_for(lines, cpu_grain(lines, 4 * STRIP * job->n),
                         f64 ? strip_task_f64 : strip_task_f32, job);
    } else {
        cpu_parallel_for(lines, cpu_grain(lines, 4 * job->n), task_of(job),
                         job);
    }
    return cpu_rows_status(job->status, job->n);
}

/* _softmax(self, dim, half_to_float) */
static core_status launch_forward(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    line_job job = {.functions = call->user,
                    .to = cpu_view(&results[0]),
                    .a = cpu_view(&args[0])};

    (void)nargs;
    (void)nresults;
    job.dim = cpu_dim(cpu_int(&args[1]), job.to->ndim);
    return run_lines(&job);
}

/* _softmax_backward_data(grad_output, output, dim, input_dtype) */
static core_status launch_backward(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    line_job job = {.functions = call->user,
                    .to = cpu_view(&results[0]),
                    .a = cpu_view(&args[0]),
                    .b = cpu_view(&args[1])};

    (void)nargs;
    (void)nresults;
    job.dim = cpu_dim(cpu_int(&args[2]), job.to->ndim);
    return run_lines(&job);
}

#define ROW_FUNCTIONS(NAME)    \
    {                          \
        NAME##_f32, NAME##_f64 \
    }
static const row_functions functions[] = {
    ROW_FUNCTIONS(softmax),
    ROW_FUNCTIONS(log_softmax),
    ROW_FUNCTIONS(softmax_gradient),
    ROW_FUNCTIONS(log_softmax_gradient),
};

#define FORWARD                \
    {                          \
        CPU_FLOATS, CPU_FLOATS \
    }
#define BACKWARD                           \
    {                                      \
        CPU_FLOATS, CPU_FLOATS, CPU_FLOATS \
    }

static const cpu_kernel kernels[] = {
    {"_softmax", launch_forward, (void *)&functions[0], FORWARD, 0},
    {"_log_softmax", launch_forward, (void *)&functions[1], FORWARD, 0},
    {"_softmax_backward_data", launch_backward, (void *)&functions[2], BACKWARD,
     0},
    {"_log_softmax_backward_data", launch_backward, (void *)&functions[3],
     BACKWARD, 0},
};

const cpu_kernel_table CPU_NAME(cpu_softmax_kernels) = {
    kernels, sizeof kernels / sizeof kernels[0]};
