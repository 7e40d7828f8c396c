/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* pooling.c: maxima and averages of windows of the last two or three
 * dimensions, sliding or adaptive, and their gradients.
 *
 * Every window is a box: for each dimension a table has the range of
 * coordinates of each output coordinate.  Planes (all dimensions before) are
 * independent, and each is computed by one thread. */

#include <math.h>
#include <stdlib.h>

#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

typedef struct window {
    int64_t begin, end; /* within the input */
    int64_t extent;     /* the divisor of an average, in this dimension */
} window;

typedef struct pooling {
    core_dtype dtype;
    uint32_t ndim;
    int64_t planes, in[3], out[3], in_size, out_size;
    int64_t step[3]; /* dilation */
    window *windows[3];
    window *owned;
    double divisor; /* instead of the extents; 0: none */
    cpu_dense x, y, indices;
} pooling;

/* --------------------------------------------------------------- windows -- */

/* call->user: the number of dimensions, and whether windows adapt to the
 * output's size. */
enum { ADAPTIVE = 4 };

static core_status pooling_shape(pooling *job, const core_call *call,
                                 const core_view *in, const core_view *out)
{
    int64_t total = 0;

    job->ndim = (uint32_t)(uintptr_t)call->user % 4;
    job->planes = 1;
    for (uint32_t d = 0; d + job->ndim < in->ndim; d++)
        job->planes *= in->sizes[d];
    job->in_size = job->out_size = 1;
    for (uint32_t k = 0; k < 3; k++) {
        bool present = k + job->ndim >= 3;

        job->in[k] = present ? in->sizes[in->ndim + k - 3] : 1;
        job->out[k] = present ? out->sizes[out->ndim + k - 3] : 1;
        job->in_size *= job->in[k];
        job->out_size *= job->out[k];
        total += job->out[k];
    }
    job->owned = cpu_allocate(total, sizeof(window));
    if (!job->owned)
        return CORE_ERROR_OUT_OF_MEMORY;
    job->windows[0] = job->owned;
    job->windows[1] = job->windows[0] + job->out[0];
    job->windows[2] = job->windows[1] + job->out[1];
    return CORE_OK;
}

static void windows_adapt(pooling *job)
{
    for (uint32_t k = 0; k < 3; k++)
        for (int64_t o = 0; o < job->out[k]; o++) {
            window *w = &job->windows[k][o];

            w->begin = o * job->in[k] / job->out[k];
            w->end = ((o + 1) * job->in[k] + job->out[k] - 1) / job->out[k];
            w->extent = w->end - w->begin;
            job->step[k] = 1;
        }
}

/* args: kernel_size, stride, padding; dilation may be NULL. */
static void windows_slide(pooling *job, const core_value *args,
                          const core_value *dilation, bool include_padding)
{
    for (uint32_t k = 0; k < 3; k++) {
        uint32_t d = k + job->ndim - 3;
        bool present = k + job->ndim >= 3;
        int64_t size = present ? cpu_list_int(&args[0], d, 1) : 1;
        int64_t stride = present ? cpu_list_int(&args[1], d, size) : 1;
        int64_t padding = present ? cpu_list_int(&args[2], d, 0) : 0;
        int64_t step = present && dilation ? cpu_list_int(dilation, d, 1) : 1;

        job->step[k] = step;
        for (int64_t o = 0; o < job->out[k]; o++) {
            window *w = &job->windows[k][o];
            int64_t begin = o * stride - padding;
            int64_t end = begin + (size - 1) * step + 1;
            int64_t limit = job->in[k] + padding;

            w->extent = (end < limit ? end : limit) - begin;
            if (begin < 0)
                begin += (-begin + step - 1) / step * step;
            w->begin = begin;
            w->end = end < job->in[k] ? end : job->in[k];
            if (!include_padding)
                w->extent = w->end - w->begin;
        }
    }
}

static void pooling_close(pooling *job)
{
    free(job->owned);
    cpu_dense_close(&job->x);
    cpu_dense_close(&job->y);
    cpu_dense_close(&job->indices);
}

/* ---------------------------------------------------------------- planes -- */

/* Dilation may step over the whole input: such a window is empty. */
#define POOLING(NAME, TYPE, WORD, WIDE, LEAST)                                 \
    /* Maximum and index (-1: none) so far, NaN above all; no branches. */     \
    static void max_along_##NAME(const pooling *job, const TYPE *x,            \
                                 int64_t row, TYPE *y, int64_t *index)         \
    {                                                                          \
        for (int64_t o = 0; o < job->out[2]; o++) {                            \
            const window *w = &job->windows[2][o];                             \
            TYPE most = y[o];                                                  \
            WORD best, value;                                                  \
            int64_t at = index[o];                                             \
            memcpy(&best, &most, sizeof best);                                 \
            for (int64_t k = row + w->begin; k < row + w->end;                 \
                 k += job->step[2]) {                                          \
                WORD take = (x[k] > most) | (x[k] != x[k]);                    \
                memcpy(&value, &x[k], sizeof value);                           \
                best ^= (best ^ value) & (WORD)(0 - take);                     \
                at ^= (at ^ k) & -(int64_t)take;                               \
                memcpy(&most, &best, sizeof most);                             \
            }                                                                  \
            y[o] = most;                                                       \
            index[o] = at;                                                     \
        }                                                                      \
    }                                                                          \
    static void max_row_##NAME(const pooling *job, const TYPE *x,              \
                               const window *d, const window *h, TYPE *y,      \
                               int64_t *index)                                 \
    {                                                                          \
        bool some = d->begin < d->end && h->begin < h->end;                    \
        int64_t first = (d->begin * job->in[1] + h->begin) * job->in[2];       \
        for (int64_t o = 0; o < job->out[2]; o++) {                            \
            const window *w = &job->windows[2][o];                             \
            y[o] = LEAST;                                                      \
            index[o] = some && w->begin < w->end ? first + w->begin : -1;      \
        }                                                                      \
        for (int64_t i = d->begin; i < d->end; i += job->step[0])              \
            for (int64_t j = h->begin; j < h->end; j += job->step[1])          \
                max_along_##NAME(job, x, (i * job->in[1] + j) * job->in[2], y, \
                                 index);                                       \
    }                                                                          \
    static WIDE box_sum_##NAME(const pooling *job, const TYPE *x,              \
                               const window *d, const window *h,               \
                               const window *w)                                \
    {                                                                          \
        WIDE sum = 0;                                                          \
        for (int64_t i = d->begin; i < d->end; i++)                            \
            for (int64_t j = h->begin; j < h->end; j++) {                      \
                int64_t row = (i * job->in[1] + j) * job->in[2];               \
                for (int64_t k = w->begin; k < w->end; k++)                    \
                    sum += x[row + k];                                         \
            }                                                                  \
        return sum;                                                            \
    }                                                                          \
    static void box_add_##NAME(const pooling *job, TYPE *x, TYPE value,        \
                               const window *d, const window *h,               \
                               const window *w)                                \
    {                                                                          \
        for (int64_t i = d->begin; i < d->end; i++)                            \
            for (int64_t j = h->begin; j < h->end; j++) {                      \
                int64_t row = (i * job->in[1] + j) * job->in[2];               \
                for (int64_t k = w->begin; k < w->end; k++)                    \
                    x[row + k] += value;                                       \
            }                                                                  \
    }                                                                          \
    static WIDE divisor_##NAME(const pooling *job, const window *d,            \
                               const window *h, const window *w)               \
    {                                                                          \
        if (job->divisor != 0)                                                 \
            return (WIDE)job->divisor;                                         \
        return (WIDE)(d->extent * h->extent * w->extent);                      \
    }                                                                          \
    static TYPE average_##NAME(const pooling *job, const TYPE *x,              \
                               const window *d, const window *h,               \
                               const window *w)                                \
    {                                                                          \
        return (TYPE)(box_sum_##NAME(job, x, d, h, w) /                        \
                      divisor_##NAME(job, d, h, w));                           \
    }                                                                          \
    static void max_task_##NAME(void *context, int64_t begin, int64_t end)     \
    {                                                                          \
        const pooling *job = context;                                          \
        int64_t height = job->out[1], width = job->out[2];                     \
        for (int64_t plane = begin; plane < end; plane++)                      \
            for (int64_t o = 0; o < job->out[0] * height; o++) {               \
                int64_t at = plane * job->out_size + o * width;                \
                max_row_##NAME(                                                \
                    job, (const TYPE *)job->x.data + plane * job->in_size,     \
                    &job->windows[0][o / height],                              \
                    &job->windows[1][o % height], (TYPE *)job->y.data + at,    \
                    (int64_t *)job->indices.data + at);                        \
            }                                                                  \
    }                                                                          \
    static void average_task_##NAME(void *context, int64_t begin, int64_t end) \
    {                                                                          \
        const pooling *job = context;                                          \
        TYPE *y = (TYPE *)job->y.data + begin * job->out_size;                 \
        const TYPE *x = (const TYPE *)job->x.data + begin * job->in_size;      \
        for (int64_t n = begin; n < end; n++, x += job->in_size)               \
            for (int64_t d = 0; d < job->out[0]; d++)                          \
                for (int64_t h = 0; h < job->out[1]; h++)                      \
                    for (int64_t w = 0; w < job->out[2]; w++)                  \
                        *y++ = average_##NAME(job, x, &job->windows[0][d],     \
                                              &job->windows[1][h],             \
                                              &job->windows[2][w]);            \
    }                                                                          \
    static void max_gradient_##NAME(void *context, int64_t begin, int64_t end) \
    {                                                                          \
        const pooling *job = context;                                          \
        const TYPE *y = job->y.data;                                           \
        const int64_t *index = job->indices.data;                              \
        for (int64_t plane = begin; plane < end; plane++) {                    \
            TYPE *x = (TYPE *)job->x.data + plane * job->in_size;              \
            memset(x, 0, (size_t)job->in_size * sizeof *x);                    \
            for (int64_t o = plane * job->out_size;                            \
                 o < (plane + 1) * job->out_size; o++)                         \
                if (index[o] >= 0)                                             \
                    x[index[o]] += y[o];                                       \
        }                                                                      \
    }                                                                          \
    static void average_gradient_##NAME(void *context, int64_t begin,          \
                                        int64_t end)                           \
    {                                                                          \
        const pooling *job = context;                                          \
        const TYPE *y = (const TYPE *)job->y.data + begin * job->out_size;     \
        for (int64_t plane = begin; plane < end; plane++) {                    \
            TYPE *x = (TYPE *)job->x.data + plane * job->in_size;              \
            memset(x, 0, (size_t)job->in_size * sizeof *x);                    \
            for (int64_t d = 0; d < job->out[0]; d++)                          \
                for (int64_t h = 0; h < job->out[1]; h++)                      \
                    for (int64_t w = 0; w < job->out[2]; w++) {                \
                        const window *a = &job->windows[0][d];                 \
                        const window *b = &job->windows[1][h];                 \
                        const window *c = &job->windows[2][w];                 \
                        WIDE by = divisor_##NAME(job, a, b, c);                \
                        box_add_##NAME(job, x, (TYPE)(*y++ / by), a, b, c);    \
                    }                                                          \
        }                                                                      \
    }
POOLING(f32, float, uint32_t, double, -INFINITY)
POOLING(f64, double, uint64_t, double, -INFINITY)
POOLING(i64, int64_t, uint64_t, int64_t, INT64_MIN)

#define TASK(NAME, DTYPE)               \
    ((DTYPE) == CORE_F32   ? NAME##_f32 \
     : (DTYPE) == CORE_F64 ? NAME##_f64 \
                           : NAME##_i64)

/* ---------------------------------------------------------------- halves -- */

/* f16 and bf16, plane by plane: a whole tensor in f32 would not fit in the
 * cache, but a plane does. */
typedef struct halves {
    const pooling *job; /* of dtype f32, whose data are half precision */
    core_dtype dtype;
    cpu_task task;
    bool gradient; /* from y to x */
    core_status status;
} halves;

static void half_plane(const halves *h, int64_t plane, float *scratch)
{
    pooling one = *h->job;
    uint16_t *x = (uint16_t *)one.x.data + plane * one.in_size;
    uint16_t *y = (uint16_t *)one.y.data + plane * one.out_size;

    one.x.data = scratch;
    one.y.data = scratch + one.in_size;
    if (one.indices.data)
        one.indices.data = (int64_t *)one.indices.data + plane * one.out_size;
    if (h->gradient)
        cpu_get_f32(one.y.data, h->dtype, y, 1, one.out_size);
    else
        cpu_get_f32(one.x.data, h->dtype, x, 1, one.in_size);
    h->task(&one, 0, 1);
    if (h->gradient)
        cpu_put_f32(h->dtype, x, 1, one.x.data, one.in_size);
    else
        cpu_put_f32(h->dtype, y, 1, one.y.data, one.out_size);
}

static void half_task(void *context, int64_t begin, int64_t end)
{
    halves *h = context;
    float *scratch =
        cpu_allocate(h->job->in_size + h->job->out_size, sizeof *scratch);

    if (!scratch)
        __atomic_store_n(&h->status, CORE_ERROR_OUT_OF_MEMORY,
                         __ATOMIC_RELAXED);
    for (int64_t plane = begin; plane < end && scratch; plane++)
        half_plane(h, plane, scratch);
    free(scratch);
}

/* The dtype of the dense operands: half precision is not converted. */
static core_dtype held_dtype(const pooling *job, const core_view *x,
                             const core_view *y)
{
    bool half = x->dtype == CORE_BF16 || x->dtype == CORE_F16;

    return half && x->dtype == y->dtype ? x->dtype : job->dtype;
}

static core_status run_planes(pooling *job, cpu_task task, bool gradient)
{
    halves h = {job, job->x.dtype, task, gradient, CORE_OK};
    bool half = h.dtype == CORE_BF16 || h.dtype == CORE_F16;

    if (job->planes > 0 && job->in_size > 0)
        cpu_parallel_for(
            job->planes,
            cpu_grain(job->planes, 2 * (job->in_size + 4 * job->out_size)),
            half ? half_task : task, half ? (void *)&h : job);
    return h.status;
}

/* --------------------------------------------------------------- forward -- */

/* The windows are set up in job; results are (y) or (y, indices). */
static core_status pooling_forward(pooling *job, const core_view *self,
                                   const core_value *results, uint32_t nresults,
                                   cpu_task task)
{
    const core_view *result = cpu_view(&results[0]);
    core_dtype dtype = held_dtype(job, self, result);
    core_status status = cpu_dense_read(self, dtype, &job->x);

    if (status == CORE_OK)
        status = cpu_dense_open(result, dtype, &job->y);
    if (status == CORE_OK && nresults > 1)
        status = cpu_dense_open(cpu_view(&results[1]), CORE_I64, &job->indices);
    if (status == CORE_OK) {
        if (job->out_size > 0)
            status = run_planes(job, task, false);
        cpu_dense_write(&job->y);
        cpu_dense_write(&job->indices);
    }
    return status;
}

/* max_pool2d_with_indices(self, kernel_size, stride, padding, dilation,
 * ceil_mode), adaptive_max_pool2d(self, output_size) -> (output, indices) */
static core_status launch_max(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    pooling job = {.dtype = cpu_compute_dtype(self->dtype)};
    core_status status = pooling_shape(&job, call, self, cpu_view(&results[0]));

    (void)nargs;
    if (status == CORE_OK) {
        if ((uintptr_t)call->user & ADAPTIVE)
            windows_adapt(&job);
        else
            windows_slide(&job, &args[1], &args[4], false);
        status = pooling_forward(&job, self, results, nresults,
                                 TASK(max_task, job.dtype));
    }
    pooling_close(&job);
    return status;
}

/* The arguments of a sliding average, from kernel_size on. */
static void average_windows(pooling *job, const core_value *args)
{
    windows_slide(job, args, NULL, cpu_int(&args[4]) != 0);
    if (args[5].tag != CORE_VALUE_NONE)
        job->divisor = cpu_float(&args[5]);
}

/* avg_pool2d(self, kernel_size, stride, padding, ceil_mode,
 * count_include_pad, divisor_override), _adaptive_avg_pool2d(self,
 * output_size) */
static core_status launch_average(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    pooling job = {.dtype = cpu_compute_dtype(self->dtype)};
    core_status status = pooling_shape(&job, call, self, cpu_view(&results[0]));

    (void)nargs;
    (void)nresults;
    if (status == CORE_OK) {
        if ((uintptr_t)call->user & ADAPTIVE)
            windows_adapt(&job);
        else
            average_windows(&job, &args[1]);
        status = pooling_forward(&job, self, results, 1,
                                 TASK(average_task, job.dtype));
    }
    pooling_close(&job);
    return status;
}

/* ----------------------------------------------------------- gradients -- */

static core_status pooling_backward(pooling *job, const core_view *grad,
                                    const core_view *result, cpu_task task)
{
    core_dtype dtype = held_dtype(job, result, grad);
    core_status status = cpu_dense_read(grad, dtype, &job->y);

    if (status == CORE_OK)
        status = cpu_dense_open(result, dtype, &job->x);
    if (status == CORE_OK) {
        status = run_planes(job, task, true);
        cpu_dense_write(&job->x);
    }
    return status;
}

/* Other indices than those of the forward pass would silently lose
 * gradients. */
static core_status check_indices(const core_call *call, const pooling *job)
{
    const int64_t *index = job->indices.data;
    core_string name = cpu_operator(call);

    for (int64_t i = 0; i < job->planes * job->out_size; i++)
        if (index[i] < -1 || index[i] >= job->in_size)
            return cpu_error(CORE_ERROR_INDEX,
                             "%.*s: indices has %lld at element %lld, and a "
                             "plane of the input has %lld elements",
                             (int)name.size, name.data, (long long)index[i],
                             (long long)i, (long long)job->in_size);
    return CORE_OK;
}

/* max_pool2d_with_indices_backward(grad_output, self, kernel_size, stride,
 * padding, dilation, ceil_mode, indices),
 * adaptive_max_pool2d_backward(grad_output, self, indices) */
static core_status launch_max_gradient(core_call *call, const core_value *args,
                                       uint32_t nargs, core_value *results,
                                       uint32_t nresults)
{
    const core_view *grad = cpu_view(&args[0]), *result = cpu_view(&results[0]);
    bool adaptive = ((uintptr_t)call->user & ADAPTIVE) != 0;
    pooling job = {.dtype = cpu_compute_dtype(grad->dtype)};
    core_status status = pooling_shape(&job, call, result, grad);

    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        status = cpu_dense_read(cpu_view(&args[adaptive ? 2 : 7]), CORE_I64,
                                &job.indices);
    if (status == CORE_OK)
        status = check_indices(call, &job);
    if (status == CORE_OK)
        status =
            pooling_backward(&job, grad, result, TASK(max_gradient, job.dtype));
    pooling_close(&job);
    return status;
}

/* avg_pool2d_backward(grad_output, self, kernel_size, stride, padding,
 * ceil_mode, count_include_pad, divisor_override),
 * _adaptive_avg_pool2d_backward(grad_output, self) */
static core_status launch_average_gradient(core_call *call,
                                           const core_value *args,
                                           uint32_t nargs, core_value *results,
                                           uint32_t nresults)
{
    const core_view *grad = cpu_view(&args[0]), *result = cpu_view(&results[0]);
    pooling job = {.dtype = cpu_compute_dtype(grad->dtype)};
    core_status status = pooling_shape(&job, call, result, grad);

    (void)nargs;
    (void)nresults;
    if (status == CORE_OK) {
        if ((uintptr_t)call->user & ADAPTIVE)
            windows_adapt(&job);
        else
            average_windows(&job, &args[2]);
        status = pooling_backward(&job, grad, result,
                                  TASK(average_gradient, job.dtype));
    }
    pooling_close(&job);
    return status;
}

#define MAX                                   \
    {                                         \
        CPU_NUMBERS, CPU_NUMBERS, CPU_INDICES \
    }
#define AVERAGE                  \
    {                            \
        CPU_NUMBERS, CPU_NUMBERS \
    }
#define GRADIENT               \
    {                          \
        CPU_FLOATS, CPU_FLOATS \
    }
#define POOLS(N, SUFFIX)                                                      \
    {"max_pool" SUFFIX "_with_indices", launch_max, (void *)N, MAX, 0},       \
        {"max_pool" SUFFIX "_with_indices_backward", launch_max_gradient,     \
         (void *)N, GRADIENT, 0},                                             \
        {"adaptive_max_pool" SUFFIX, launch_max, (void *)(N + ADAPTIVE), MAX, \
         0},                                                                  \
        {"adaptive_max_pool" SUFFIX "_backward", launch_max_gradient,         \
         (void *)(N + ADAPTIVE), GRADIENT, 0},                                \
        {"avg_pool" SUFFIX, launch_average, (void *)N, AVERAGE, 0},           \
        {"avg_pool" SUFFIX "_backward", launch_average_gradient, (void *)N,   \
         GRADIENT, 0},                                                        \
        {"_adaptive_avg_pool" SUFFIX, launch_average, (void *)(N + ADAPTIVE), \
         AVERAGE, 0},                                                         \
    {                                                                         \
        "_adaptive_avg_pool" SUFFIX "_backward", launch_average_gradient,     \
            (void *)(N + ADAPTIVE), GRADIENT, 0                               \
    }

static const cpu_kernel kernels[] = {
    POOLS(2, "2d"),
    POOLS(3, "3d"),
};

const cpu_kernel_table cpu_pooling_kernels = {kernels, sizeof kernels /
                                                           sizeof kernels[0]};
