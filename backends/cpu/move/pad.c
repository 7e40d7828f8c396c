/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Reflection and replication padding of the last one, two or three dimensions,
 * and their gradients.  The input coordinate of each output coordinate is
 * tabulated per dimension. */

#include <stdlib.h>

#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

enum { REFLECT = 1, REPLICATE = 2 };

typedef struct pad_job {
    core_dtype dtype;
    int64_t outer;
    int64_t in[3], out[3]; /* depth, height, width */
    int64_t *from[3];      /* per output coordinate */
    int64_t *owned;
    cpu_dense small, large; /* before and after padding */
} pad_job;

static int64_t source_of(int64_t i, int64_t before, int64_t size, bool reflect)
{
    i -= before;
    if (reflect) {
        i = i < 0 ? -i : i;
        return i >= size ? 2 * (size - 1) - i : i;
    }
    return i < 0 ? 0 : i >= size ? size - 1 : i;
}

/* user: kind * 4 + padded dimensions */
static core_status pad_open(pad_job *job, const core_call *call,
                            const core_view *in, const core_view *out,
                            const core_value *padding)
{
    uintptr_t user = (uintptr_t)call->user;
    uint32_t ndim = user % 4;
    bool reflect = user / 4 == REFLECT;
    int64_t total = 0, *next;

    job->outer = 1;
    for (uint32_t d = 0; d + ndim < in->ndim; d++)
        job->outer *= in->sizes[d];
    for (uint32_t k = 0; k < 3; k++) {
        bool padded = k + ndim >= 3;

        job->in[k] = padded ? in->sizes[in->ndim + k - 3] : 1;
        job->out[k] = padded ? out->sizes[out->ndim + k - 3] : 1;
        total += job->out[k];
    }
    next = job->owned = cpu_allocate(total, sizeof(int64_t));
    if (!job->owned)
        return CORE_ERROR_OUT_OF_MEMORY;
    for (uint32_t k = 0; k < 3; k++) {
        int64_t before =
            k + ndim < 3 ? 0 : cpu_list_int(padding, 2 * (2 - k), 0);

        job->from[k] = next;
        for (int64_t i = 0; i < job->out[k]; i++)
            *next++ = source_of(i, before, job->in[k], reflect);
    }
    return CORE_OK;
}

static void pad_close(pad_job *job)
{
    free(job->owned);
    cpu_dense_close(&job->small);
    cpu_dense_close(&job->large);
}

/* The source row of a row of the output, within one outer index. */
static int64_t row_from(const pad_job *job, int64_t row)
{
    int64_t z = job->from[0][row / job->out[1]];
    int64_t y = job->from[1][row % job->out[1]];

    return (z * job->in[1] + y) * job->in[2];
}

static void pad_task(void *context, int64_t begin, int64_t end)
{
    const pad_job *job = context;
    int64_t item = cpu_item_size(job->dtype), width = job->out[2];
    int64_t rows = job->out[0] * job->out[1];
    int64_t plane = job->in[0] * job->in[1] * job->in[2];

    for (int64_t row = begin; row < end; row++) {
        const char *from =
            (const char *)job->small.data +
            (row / rows * plane + row_from(job, row % rows)) * item;
        char *to = (char *)job->large.data + row * width * item;

        for (int64_t x = 0; x < width; x++)
            cpu_move(to + x * item, from + job->from[2][x] * item, item);
    }
}

/* Outer indices [begin, end): sums the gradients of all copies of an
 * element. */
#define GRADIENT(NAME, TYPE)                                               \
    static void gradient_##NAME(void *context, int64_t begin, int64_t end) \
    {                                                                      \
        const pad_job *job = context;                                      \
        int64_t rows = job->out[0] * job->out[1], width = job->out[2];     \
        int64_t plane = job->in[0] * job->in[1] * job->in[2];              \
        for (int64_t i = begin; i < end; i++) {                            \
            TYPE *to = (TYPE *)job->small.data + i * plane;                \
            const TYPE *from =                                             \
                (const TYPE *)job->large.data + i * rows * width;          \
            memset(to, 0, (size_t)plane * sizeof(TYPE));                   \
            for (int64_t row = 0; row < rows; row++, from += width)        \
                for (int64_t x = 0; x < width; x++)                        \
                    to[row_from(job, row) + job->from[2][x]] += from[x];   \
        }                                                                  \
    }
CPU_COMPUTE_FLOATS(GRADIENT)

/* reflection_pad2d(self, padding) and its like */
static core_status launch_pad(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]), *result = cpu_view(&results[0]);
    pad_job job = {.dtype = self->dtype};
    core_status status = pad_open(&job, call, self, result, &args[1]);

    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        status = cpu_dense_read(self, job.dtype, &job.small);
    if (status == CORE_OK)
        status = cpu_dense_open(result, job.dtype, &job.large);
    if (status != CORE_OK)
        goto done;
    if (result->numel > 0) {
        int64_t rows = job.outer * job.out[0] * job.out[1];

        cpu_parallel_for(rows, cpu_grain(rows, job.out[2]), pad_task, &job);
    }
    cpu_dense_write(&job.large);
done:
    pad_close(&job);
    return status;
}

/* reflection_pad2d_backward(grad_output, self, padding) and its like */
static core_status launch_gradient(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    const core_view *grad = cpu_view(&args[0]), *result = cpu_view(&results[0]);
    pad_job job = {.dtype = cpu_compute_dtype(grad->dtype)};
    core_status status = pad_open(&job, call, result, grad, &args[2]);

    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        status = cpu_dense_read(grad, job.dtype, &job.large);
    if (status == CORE_OK)
        status = cpu_dense_open(result, job.dtype, &job.small);
    if (status != CORE_OK)
        goto done;
    if (result->numel > 0)
        cpu_parallel_for(
            job.outer, cpu_grain(job.outer, grad->numel / job.outer),
            job.dtype == CORE_F32 ? gradient_f32 : gradient_f64, &job);
    cpu_dense_write(&job.small);
done:
    pad_close(&job);
    return status;
}

#define PADS(NAME, KIND, NDIM)                                            \
    {NAME, launch_pad, (void *)(KIND * 4 + NDIM), {CPU_ALL, CPU_ALL}, 0}, \
    {                                                                     \
        NAME "_backward", launch_gradient, (void *)(KIND * 4 + NDIM),     \
            {CPU_FLOATS, CPU_FLOATS, CPU_FLOATS}, 0                       \
    }

static const cpu_kernel kernels[] = {
    PADS("reflection_pad1d", REFLECT, 1),
    PADS("reflection_pad2d", REFLECT, 2),
    PADS("reflection_pad3d", REFLECT, 3),
    PADS("replication_pad1d", REPLICATE, 1),
    PADS("replication_pad2d", REPLICATE, 2),
    PADS("replication_pad3d", REPLICATE, 3),
};

const cpu_kernel_table cpu_pad_kernels = {kernels,
                                          sizeof kernels / sizeof kernels[0]};
