/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* arange, linspace, eye, and the coordinates of triangles.  Integers are
 * computed in i64, floating types in f64. */

#include <math.h>

#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

typedef struct sequence {
    bool integers;
    cpu_dense out;
    int64_t first, step; /* integers */
    double start, end, width;
    int64_t count;
} sequence;

static core_status sequence_open(sequence *job, const core_view *result)
{
    job->integers = cpu_compute_dtype(result->dtype) == CORE_I64;
    job->count = result->numel;
    return cpu_dense_open(result, job->integers ? CORE_I64 : CORE_F64,
                          &job->out);
}

static void arange_task(void *context, int64_t begin, int64_t end)
{
    const sequence *job = context;

    for (int64_t i = begin; i < end; i++)
        if (job->integers)
            ((int64_t *)job->out.data)[i] =
                cpu_add_i64(job->first, cpu_mul_i64(i, job->step));
        else
            ((double *)job->out.data)[i] = job->start + (double)i * job->width;
}

/* Both ends are exact: each half counts from its own.  For integers, which are
 * truncated, the product is not rounded: 2 must not become 1. */
static double linspace_at(const sequence *job, int64_t i)
{
    bool first = i < job->count / 2 || job->count == 1;
    double from = first ? job->start : job->end;
    double steps = first ? (double)i : -(double)(job->count - 1 - i);

    return job->integers ? fma(steps, job->width, from)
                         : from + steps * job->width;
}

static void linspace_task(void *context, int64_t begin, int64_t end)
{
    const sequence *job = context;

    for (int64_t i = begin; i < end; i++)
        if (job->integers)
            ((int64_t *)job->out.data)[i] =
                math_i64_of_f64(linspace_at(job, i));
        else
            ((double *)job->out.data)[i] = linspace_at(job, i);
}

static core_status sequence_run(sequence *job, const core_view *result,
                                cpu_task task)
{
    core_status status = sequence_open(job, result);

    if (status == CORE_OK && job->count > 0)
        cpu_parallel_for(job->count, cpu_grain(job->count, 1), task, job);
    if (status == CORE_OK)
        cpu_dense_write(&job->out);
    cpu_dense_close(&job->out);
    return status;
}

/* arange.start_step(start, end, step, …), arange.start(start, end, …),
 * arange(end, …): call->user is the number of these arguments */
static core_status launch_arange(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    uintptr_t given = (uintptr_t)call->user;
    const core_value zero = {.tag = CORE_VALUE_INT};
    const core_value one = {.tag = CORE_VALUE_INT, .u.i = 1};
    const core_value *start = given > 1 ? &args[0] : &zero;
    const core_value *step = given > 2 ? &args[2] : &one;
    sequence job = {.first = cpu_int(start),
                    .step = cpu_int(step),
                    .start = cpu_float(start),
                    .width = cpu_float(step)};

    (void)nargs;
    (void)nresults;
    return sequence_run(&job, cpu_view(&results[0]), arange_task);
}

/* linspace(start, end, steps, …) */
static core_status launch_linspace(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    const core_view *result = cpu_view(&results[0]);
    sequence job = {.start = cpu_float(&args[0]), .end = cpu_float(&args[1])};

    (void)call;
    (void)nargs;
    (void)nresults;
    if (cpu_compute_dtype(result->dtype) == CORE_I64) {
        job.start = (double)cpu_int(&args[0]);
        job.end = (double)cpu_int(&args[1]);
    }
    if (result->numel > 1) {
        double steps = (double)(result->numel - 1);

        job.width = (job.end - job.start) / steps;
        if (isinf(job.end - job.start)) /* the ends may be finite */
            job.width = job.end / steps - job.start / steps;
    }
    return sequence_run(&job, result, linspace_task);
}

/* eye.m(n, m, …), eye(n, …) */
static core_status launch_eye(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    const core_view *result = cpu_view(&results[0]);
    const core_value zero = {.tag = CORE_VALUE_INT};
    int64_t n = result->sizes[0] < result->sizes[1] ? result->sizes[0]
                                                    : result->sizes[1];
    int64_t stride = result->strides[0] + result->strides[1];
    const int64_t one = 1, still = 0;

    (void)call;
    (void)args;
    (void)nargs;
    (void)nresults;
    cpu_view_fill(result, &zero);
    cpu_copy(result->dtype, cpu_address(result->memory), &stride, CORE_I64,
             &one, &still, 1, &n);
    return CORE_OK;
}

/* tril_indices(row, col, offset, …), triu_indices: call->user says upper.
 * Two rows: the row and the column of each element, row by row. */
static core_status launch_triangle(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    const core_view *result = cpu_view(&results[0]);
    bool upper = call->user != NULL;
    int64_t rows = cpu_int(&args[0]), columns = cpu_int(&args[1]);
    int64_t offset = cpu_int(&args[2]), count = result->numel / 2, at = 0;
    int64_t begin, end;
    cpu_dense out = {0};
    core_status status = cpu_dense_open(result, CORE_I64, &out);
    int64_t *to = out.data;

    (void)nargs;
    (void)nresults;
    /* Skips rows without elements, of which there may be very many. */
    offset = offset < -rows ? -rows : offset > columns ? columns : offset;
    begin = !upper && offset < 0 ? -offset : 0;
    end = upper && columns - offset < rows ? columns - offset : rows;
    for (int64_t i = begin; status == CORE_OK && i < end; i++) {
        int64_t first = upper ? i + offset : 0;
        int64_t last = upper ? columns : i + offset + 1;

        first = first < 0 ? 0 : first;
        last = last > columns ? columns : last;
        for (int64_t j = first; j < last && at < count; j++, at++) {
            to[at] = i;
            to[count + at] = j;
        }
    }
    if (status == CORE_OK)
        cpu_dense_write(&out);
    cpu_dense_close(&out);
    return status;
}

static const cpu_kernel kernels[] = {
    {"arange", launch_arange, (void *)1, {CPU_NUMBERS}, 0},
    {"arange.start", launch_arange, (void *)2, {CPU_NUMBERS}, 0},
    {"arange.start_step", launch_arange, (void *)3, {CPU_NUMBERS}, 0},
    {"linspace", launch_linspace, NULL, {CPU_NUMBERS}, 0},
    {"eye", launch_eye, NULL, {CPU_ALL}, 0},
    {"eye.m", launch_eye, NULL, {CPU_ALL}, 0},
    {"tril_indices", launch_triangle, NULL, {CPU_NUMBERS}, 0},
    {"triu_indices", launch_triangle, (void *)1, {CPU_NUMBERS}, 0},
};

const cpu_kernel_table cpu_factory_kernels = {kernels, sizeof kernels /
                                                           sizeof kernels[0]};
