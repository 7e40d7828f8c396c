/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Cumulative sums, products, maxima, minima and log-sum-exp along one
 * dimension.  f32 and narrower types accumulate in double. */

#include <math.h>
#include <stdlib.h>

#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

enum { SUM, PROD, LOGSUMEXP, MAX, MIN };

/* Lines that are summed at once, at most, in steps of some elements. */
enum { ABREAST = 4, STEP = 256 };

typedef struct scan_job {
    const core_view *from, *to, *index; /* index: MAX and MIN only */
    uint32_t dim;
    uintptr_t what;
    int64_t abreast; /* sums of lines: how many at once */
    core_status status;
} scan_job;

static double log_add(double a, double b)
{
    double most = a > b ? a : b;

    if (most == -INFINITY || a != a || b != b)
        return a + b;
    if (most == INFINITY)
        return most;
    return most + log1p(exp((a > b ? b : a) - most));
}

#define ACCUMULATE(NAME, TYPE, WIDE, WIDE_NAME)                                \
    static void accumulate_##NAME(uintptr_t what, TYPE *row, int64_t n)        \
    {                                                                          \
        WIDE sum = what == PROD ? 1 : 0;                                       \
        if (what == LOGSUMEXP) {                                               \
            double total = -INFINITY;                                          \
            for (int64_t i = 0; i < n; i++)                                    \
                row[i] = (TYPE)(total = log_add(total, (double)row[i]));       \
        } else if (what == SUM) {                                              \
            for (int64_t i = 0; i < n; i++)                                    \
                row[i] = (TYPE)(sum = cpu_add_##WIDE_NAME(sum, row[i]));       \
        } else {                                                               \
            for (int64_t i = 0; i < n; i++)                                    \
                row[i] = (TYPE)(sum = cpu_mul_##WIDE_NAME(sum, row[i]));       \
        }                                                                      \
    }                                                                          \
    /* Sums of ABREAST rows: an addition waits for the last one of its row. */ \
    static void sums_##NAME(WIDE *sum, TYPE rows[ABREAST][STEP], int64_t n)    \
    {                                                                          \
        WIDE a = sum[0], b = sum[1], c = sum[2], d = sum[3];                   \
        for (int64_t i = 0; i < n; i++) {                                      \
            rows[0][i] = (TYPE)(a = cpu_add_##WIDE_NAME(a, rows[0][i]));       \
            rows[1][i] = (TYPE)(b = cpu_add_##WIDE_NAME(b, rows[1][i]));       \
            rows[2][i] = (TYPE)(c = cpu_add_##WIDE_NAME(c, rows[2][i]));       \
            rows[3][i] = (TYPE)(d = cpu_add_##WIDE_NAME(d, rows[3][i]));       \
        }                                                                      \
        sum[0] = a;                                                            \
        sum[1] = b;                                                            \
        sum[2] = c;                                                            \
        sum[3] = d;                                                            \
    }                                                                          \
    /* The last of equal elements; NaN from its first occurrence on. */        \
    static void extremes_##NAME(uintptr_t what, TYPE *row, int64_t *index,     \
                                int64_t n)                                     \
    {                                                                          \
        TYPE best = row[0];                                                    \
        int64_t at = 0;                                                        \
        for (int64_t i = 0; i < n; i++) {                                      \
            if (row[i] != row[i] ||                                            \
                (best == best &&                                               \
                 (what == MAX ? row[i] >= best : row[i] <= best))) {           \
                best = row[i];                                                 \
                at = i;                                                        \
            }                                                                  \
            row[i] = best;                                                     \
            index[i] = at;                                                     \
        }                                                                      \
    }                                                                          \
    static void sum_lines_##NAME(const scan_job *job, int64_t line,            \
                                 int64_t count)                                \
    {                                                                          \
        const core_view *from = job->from, *to = job->to;                      \
        int64_t n = cpu_line_size(from, job->dim), m;                          \
        int64_t from_stride = cpu_line_stride(from, job->dim),                 \
                to_stride = cpu_line_stride(to, job->dim);                     \
        const char *x[ABREAST];                                                \
        char *y[ABREAST];                                                      \
        WIDE sum[ABREAST] = {0};                                               \
        TYPE rows[ABREAST][STEP];                                              \
        for (int64_t r = 0; r < ABREAST; r++) {                                \
            int64_t at = line + (r < count ? r : 0);                           \
            x[r] = cpu_line_address(from, job->dim, at);                       \
            y[r] = cpu_line_address(to, job->dim, at);                         \
        }                                                                      \
        for (int64_t i = 0; i < n; i += m) {                                   \
            m = n - i < STEP ? n - i : STEP;                                   \
            for (int64_t r = 0; r < ABREAST; r++)                              \
                cpu_get_##NAME(rows[r], from->dtype,                           \
                               x[r] + i * from_stride *                        \
                                          cpu_item_size(from->dtype),          \
                               from_stride, m);                                \
            sums_##NAME(sum, rows, m);                                         \
            for (int64_t r = 0; r < count; r++)                                \
                cpu_put_##NAME(to->dtype,                                      \
                               y[r] +                                          \
                                   i * to_stride * cpu_item_size(to->dtype),   \
                               to_stride, rows[r], m);                         \
        }                                                                      \
    }                                                                          \
    static void sum_task_##NAME(void *context, int64_t begin, int64_t end)     \
    {                                                                          \
        scan_job *job = context;                                               \
        int64_t lines = cpu_line_count(job->from, job->dim);                   \
        int64_t count = job->abreast;                                          \
        for (int64_t line = begin * count; line < end * count; line += count)  \
            sum_lines_##NAME(job, line,                                        \
                             lines - line < count ? lines - line : count);     \
    }                                                                          \
    static void scan_task_##NAME(void *context, int64_t begin, int64_t end)    \
    {                                                                          \
        scan_job *job = context;                                               \
        const core_view *from = job->from, *to = job->to, *at = job->index;    \
        uint32_t dim = job->dim;                                               \
        int64_t n = cpu_line_size(from, dim);                                  \
        TYPE *row = cpu_allocate(n, sizeof(TYPE));                             \
        int64_t *index = at ? cpu_allocate(n, sizeof(int64_t)) : NULL;         \
        if (!row || (at && !index))                                            \
            __atomic_store_n(&job->status, CORE_ERROR_OUT_OF_MEMORY,           \
                             __ATOMIC_RELAXED);                                \
        for (int64_t line = begin; line < end && row && (!at || index);        \
             line++) {                                                         \
            cpu_get_##NAME(row, from->dtype,                                   \
                           cpu_line_address(from, dim, line),                  \
                           cpu_line_stride(from, dim), n);                     \
            if (at) {                                                          \
                extremes_##NAME(job->what, row, index, n);                     \
                cpu_put_i64(at->dtype, cpu_line_address(at, dim, line),        \
                            cpu_line_stride(at, dim), index, n);               \
            } else {                                                           \
                accumulate_##NAME(job->what, row, n);                          \
            }                                                                  \
            cpu_put_##NAME(to->dtype, cpu_line_address(to, dim, line),         \
                           cpu_line_stride(to, dim), row, n);                  \
        }                                                                      \
        free(row);                                                             \
        free(index);                                                           \
    }
ACCUMULATE(f32, float, double, f64)
ACCUMULATE(f64, double, double, f64)
ACCUMULATE(i64, int64_t, int64_t, i64)

/* ---------------------------------------------------- neighbouring lines -- */

/* Sums and products along another dimension than the last: lines that are
 * neighbours in memory advance together, each in its own order. */
enum { TOGETHER = 128 };

static bool neighbours(const scan_job *job)
{
    uint32_t last = job->from->ndim - 1;

    return job->from->ndim > 1 && job->dim < last &&
           (job->what == SUM || job->what == PROD) &&
           job->from->strides[last] == 1 && job->to->strides[last] == 1;
}

/* The blocks of neighbouring lines in the last dimension. */
static int64_t across(const scan_job *job)
{
    return (job->from->sizes[job->from->ndim - 1] + TOGETHER - 1) / TOGETHER;
}

#define SCAN_TOGETHER(NAME, TYPE, WIDE, WIDE_NAME)                             \
    static void advance_##NAME(uintptr_t what, WIDE *sum, TYPE *row,           \
                               int64_t width)                                  \
    {                                                                          \
        for (int64_t k = 0; k < width; k++) {                                  \
            sum[k] = what == SUM ? cpu_add_##WIDE_NAME(sum[k], row[k])         \
                                 : cpu_mul_##WIDE_NAME(sum[k], row[k]);        \
            row[k] = (TYPE)sum[k];                                             \
        }                                                                      \
    }                                                                          \
    static void together_##NAME(void *context, int64_t begin, int64_t end)     \
    {                                                                          \
        const scan_job *job = context;                                         \
        const core_view *from = job->from, *to = job->to;                      \
        int64_t n = cpu_line_size(from, job->dim), blocks = across(job);       \
        int64_t from_step =                                                    \
            cpu_line_stride(from, job->dim) * cpu_item_size(from->dtype);      \
        int64_t to_step =                                                      \
            cpu_line_stride(to, job->dim) * cpu_item_size(to->dtype);          \
        int64_t inner = from->sizes[from->ndim - 1];                           \
        for (int64_t block = begin; block < end; block++) {                    \
            int64_t first = block % blocks * TOGETHER;                         \
            int64_t line = block / blocks * inner + first;                     \
            int64_t width = inner - first;                                     \
            const char *x = cpu_line_address(from, job->dim, line);            \
            char *y = cpu_line_address(to, job->dim, line);                    \
            WIDE sum[TOGETHER];                                                \
            TYPE row[TOGETHER];                                                \
            width = width < TOGETHER ? width : TOGETHER;                       \
            for (int64_t k = 0; k < width; k++)                                \
                sum[k] = job->what == PROD;                                    \
            for (int64_t i = 0; i < n; i++) {                                  \
                cpu_get_##NAME(row, from->dtype, x + i * from_step, 1, width); \
                advance_##NAME(job->what, sum, row, width);                    \
                cpu_put_##NAME(to->dtype, y + i * to_step, 1, row, width);     \
            }                                                                  \
        }                                                                      \
    }
SCAN_TOGETHER(f32, float, double, f64)
SCAN_TOGETHER(f64, double, double, f64)
SCAN_TOGETHER(i64, int64_t, int64_t, i64)

static void scan_together(scan_job *job, core_dtype dtype)
{
    const core_view *from = job->from;
    int64_t inner = from->sizes[from->ndim - 1];
    int64_t blocks = cpu_line_count(from, job->dim) / inner * across(job);

    cpu_parallel_for(blocks, cpu_grain(blocks, 4 * from->numel / blocks),
                     dtype == CORE_F32   ? together_f32
                     : dtype == CORE_F64 ? together_f64
                                         : together_i64,
                     job);
}

/* Fewer lines at once if threads would have none. */
static void scan_abreast(scan_job *job, core_dtype dtype, int64_t lines)
{
    int64_t cost = 4 * job->to->numel / lines, groups;
    int64_t threads =
        cpu_grain(lines, cost) < lines ? (int64_t)cpu_thread_pool_threads() : 1;

    job->abreast = (lines + threads - 1) / threads;
    if (job->abreast > ABREAST)
        job->abreast = ABREAST;
    groups = (lines + job->abreast - 1) / job->abreast;
    cpu_parallel_for(groups, cpu_grain(groups, 4 * job->to->numel / groups),
                     dtype == CORE_F32   ? sum_task_f32
                     : dtype == CORE_F64 ? sum_task_f64
                                         : sum_task_i64,
                     job);
}

/* cumsum(self, dim, *, dtype), cumprod, logcumsumexp(self, dim);
 * cummax(self, dim) -> (values, indices), cummin */
static core_status launch_scan(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    scan_job job = {.from = cpu_view(&args[0]),
                    .to = cpu_view(&results[0]),
                    .what = (uintptr_t)call->user};
    core_dtype dtype = cpu_compute_dtype(job.to->dtype);
    int64_t lines;

    (void)nargs;
    if (job.to->numel == 0)
        return CORE_OK;
    if (job.what >= MAX && nresults > 1)
        job.index = cpu_view(&results[1]);
    job.dim = cpu_dim(cpu_int(&args[1]), job.from->ndim);
    if (neighbours(&job)) {
        scan_together(&job, dtype);
        return CORE_OK;
    }
    lines = cpu_line_count(job.from, job.dim);
    if (job.what == SUM && lines >= ABREAST)
        scan_abreast(&job, dtype, lines);
    else
        cpu_parallel_for(lines, cpu_grain(lines, 4 * job.to->numel / lines),
                         dtype == CORE_F32   ? scan_task_f32
                         : dtype == CORE_F64 ? scan_task_f64
                                             : scan_task_i64,
                         &job);
    if (job.status != CORE_OK)
        cpu_error(job.status, "no host memory for a line of a scan");
    return job.status;
}

static const cpu_kernel kernels[] = {
    {"cumsum", launch_scan, (void *)SUM, {CPU_ALL, CPU_ALL}, 0},
    {"cumprod", launch_scan, (void *)PROD, {CPU_ALL, CPU_ALL}, 0},
    {"logcumsumexp",
     launch_scan,
     (void *)LOGSUMEXP,
     {CPU_FLOATS, CPU_FLOATS},
     0},
    {"cummax", launch_scan, (void *)MAX, {CPU_ALL, CPU_ALL}, 0},
    {"cummin", launch_scan, (void *)MIN, {CPU_ALL, CPU_ALL}, 0},
};

const cpu_kernel_table cpu_scan_kernels = {kernels,
                                           sizeof kernels / sizeof kernels[0]};
