/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* distance.c: distances between all pairs of rows of two matrices (cdist) or
 * of one (pdist), in the p norm, and their gradients. */

#include <math.h>

#include "pool.h"
#include "tables.h"
#include "view.h"

typedef struct distances {
    core_dtype dtype;
    double p;
    bool one; /* pdist: x2 is x1, pairs i < j, packed */
    int64_t batch, rows1, rows2, size;
    int64_t step1, step2; /* between batches, 0 where there is one for all */
    cpu_dense x1, x2, y, grad, out;
} distances;

static void distances_close(distances *job)
{
    cpu_dense_close(&job->x1);
    cpu_dense_close(&job->x2);
    cpu_dense_close(&job->y);
    cpu_dense_close(&job->grad);
    cpu_dense_close(&job->out);
}

/* Where the distance of rows i < j of n stands among the packed ones. */
static int64_t packed(int64_t i, int64_t j, int64_t n)
{
    return i * n - i * (i + 1) / 2 + j - i - 1;
}

static double norm_term(double difference, double p)
{
    difference = fabs(difference);
    if (p == 1)
        return difference;
    if (p == 2)
        return difference * difference;
    if (p == 0)
        return difference != 0 ? 1 : 0;
    return pow(difference, p);
}

static double norm_end(double sum, double p)
{
    if (p == 2)
        return sqrt(sum);
    return p == 0 || p == 1 || p == INFINITY ? sum : pow(sum, 1 / p);
}

/* The derivative of a distance by one coordinate's difference. */
static double norm_slope(double difference, double distance, double p)
{
    double sign = difference > 0 ? 1 : difference < 0 ? -1 : 0;

    if (p == 0 || sign == 0 || distance == 0)
        return 0;
    if (p == 1)
        return sign;
    if (p == 2)
        return difference / distance;
    if (p == INFINITY)
        return fabs(difference) == distance ? sign : 0;
    return sign * pow(fabs(difference) / distance, p - 1);
}

#define DISTANCES(NAME, TYPE)                                                 \
    static TYPE distance_##NAME(const TYPE *a, const TYPE *b, int64_t n,      \
                                double p)                                     \
    {                                                                         \
        double sum = 0;                                                       \
        for (int64_t i = 0; i < n; i++) {                                     \
            double difference = (double)a[i] - (double)b[i];                  \
            if (p != INFINITY)                                                \
                sum += norm_term(difference, p);                              \
            else if (fabs(difference) > sum || difference != difference)      \
                sum = fabs(difference);                                       \
        }                                                                     \
        return (TYPE)norm_end(sum, p);                                        \
    }                                                                         \
    /* Rows of x1, over all batches: their distances to rows of x2. */        \
    static void forward_##NAME(void *context, int64_t begin, int64_t end)     \
    {                                                                         \
        const distances *job = context;                                       \
        TYPE *y = job->y.data;                                                \
        for (int64_t at = begin; at < end; at++) {                            \
            int64_t batch = at / job->rows1, i = at % job->rows1;             \
            const TYPE *a = (const TYPE *)job->x1.data + batch * job->step1 + \
                            i * job->size;                                    \
            const TYPE *b = (const TYPE *)job->x2.data + batch * job->step2;  \
            for (int64_t j = job->one ? i + 1 : 0; j < job->rows2; j++)       \
                y[job->one ? packed(i, j, job->rows1)                         \
                           : at * job->rows2 + j] =                           \
                    distance_##NAME(a, b + j * job->size, job->size, job->p); \
        }                                                                     \
    }                                                                         \
    /* The gradient of rows of x1. */                                         \
    static void backward_##NAME(void *context, int64_t begin, int64_t end)    \
    {                                                                         \
        const distances *job = context;                                       \
        const TYPE *y = job->y.data, *grad = job->grad.data;                  \
        for (int64_t at = begin; at < end; at++) {                            \
            int64_t batch = at / job->rows1, i = at % job->rows1;             \
            const TYPE *a = (const TYPE *)job->x1.data + batch * job->step1 + \
                            i * job->size;                                    \
            const TYPE *b = (const TYPE *)job->x2.data + batch * job->step2;  \
            TYPE *out = (TYPE *)job->out.data + at * job->size;               \
            memset(out, 0, (size_t)job->size * sizeof *out);                  \
            for (int64_t j = 0; j < job->rows2; j++, b += job->size) {        \
                int64_t pair = at * job->rows2 + j;                           \
                if (job->one && i == j)                                       \
                    continue;                                                 \
                if (job->one)                                                 \
                    pair = i < j ? packed(i, j, job->rows1)                   \
                                 : packed(j, i, job->rows1);                  \
                for (int64_t k = 0; k < job->size; k++)                       \
                    out[k] += (TYPE)((double)grad[pair] *                     \
                                     norm_slope((double)a[k] - (double)b[k],  \
                                                (double)y[pair], job->p));    \
            }                                                                 \
        }                                                                     \
    }
CPU_COMPUTE_FLOATS(DISTANCES)

/* x1 and x2 with the batches of a result. */
static core_status distances_open(distances *job, const core_view *x1,
                                  const core_view *x2, int64_t results)
{
    uint32_t n1 = x1->ndim, n2 = x2->ndim;
    core_status status;

    job->dtype = cpu_compute_dtype(x1->dtype);
    job->rows1 = x1->sizes[n1 - 2];
    job->rows2 = x2->sizes[n2 - 2];
    job->size = x1->sizes[n1 - 1];
    job->batch = 1;
    if (!job->one && job->rows1 * job->rows2 > 0)
        job->batch = results / (job->rows1 * job->rows2);
    job->step1 = x1->numel / job->batch;
    job->step2 = x2->numel / job->batch;
    if (x1->numel == job->rows1 * job->size)
        job->step1 = 0;
    if (x2->numel == job->rows2 * job->size)
        job->step2 = 0;
    status = cpu_dense_read(x1, job->dtype, &job->x1);
    if (status == CORE_OK)
        status = cpu_dense_read(x2, job->dtype, &job->x2);
    return status;
}

static core_status distances_forward(distances *job, const core_view *x1,
                                     const core_view *x2,
                                     const core_view *result)
{
    core_status status;
    int64_t rows;

    if (result->numel == 0)
        return CORE_OK;
    status = distances_open(job, x1, x2, result->numel);
    if (status == CORE_OK)
        status = cpu_dense_open(result, job->dtype, &job->y);
    if (status == CORE_OK) {
        rows = job->batch * job->rows1;
        cpu_parallel_for(rows, cpu_grain(rows, job->rows2 * job->size),
                         job->dtype == CORE_F32 ? forward_f32 : forward_f64,
                         job);
        cpu_dense_write(&job->y);
    }
    distances_close(job);
    return status;
}

static core_status distances_backward(distances *job, const core_value *grad,
                                      const core_view *x1, const core_view *x2,
                                      const core_value *y,
                                      const core_view *result)
{
    core_status status;
    int64_t rows;

    if (result->numel == 0)
        return CORE_OK;
    status = distances_open(job, x1, x2, cpu_view(y)->numel);
    if (status == CORE_OK)
        status = cpu_dense_read(cpu_view(grad), job->dtype, &job->grad);
    if (status == CORE_OK)
        status = cpu_dense_read(cpu_view(y), job->dtype, &job->y);
    if (status == CORE_OK)
        status = cpu_dense_open(result, job->dtype, &job->out);
    if (status == CORE_OK) {
        rows = job->batch * job->rows1;
        cpu_parallel_for(rows, cpu_grain(rows, 2 * job->rows2 * job->size),
                         job->dtype == CORE_F32 ? backward_f32 : backward_f64,
                         job);
        cpu_dense_write(&job->out);
    }
    distances_close(job);
    return status;
}

/* _cdist_forward(x1, x2, p, compute_mode) */
static core_status launch_cdist(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    distances job = {.p = cpu_float(&args[2])};

    (void)call;
    (void)nargs;
    (void)nresults;
    return distances_forward(&job, cpu_view(&args[0]), cpu_view(&args[1]),
                             cpu_view(&results[0]));
}

/* _cdist_backward(grad, x1, x2, p, cdist) -> gradient of x1 */
static core_status launch_cdist_gradient(core_call *call,
                                         const core_value *args,
                                         uint32_t nargs, core_value *results,
                                         uint32_t nresults)
{
    distances job = {.p = cpu_float(&args[3])};

    (void)call;
    (void)nargs;
    (void)nresults;
    return distances_backward(&job, &args[0], cpu_view(&args[1]),
                              cpu_view(&args[2]), &args[4],
                              cpu_view(&results[0]));
}

/* _pdist_forward(self, p) */
static core_status launch_pdist(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    distances job = {.p = cpu_float(&args[1]), .one = true};

    (void)call;
    (void)nargs;
    (void)nresults;
    return distances_forward(&job, cpu_view(&args[0]), cpu_view(&args[0]),
                             cpu_view(&results[0]));
}

/* _pdist_backward(grad, self, p, pdist) */
static core_status launch_pdist_gradient(core_call *call,
                                         const core_value *args,
                                         uint32_t nargs, core_value *results,
                                         uint32_t nresults)
{
    distances job = {.p = cpu_float(&args[2]), .one = true};

    (void)call;
    (void)nargs;
    (void)nresults;
    return distances_backward(&job, &args[0], cpu_view(&args[1]),
                              cpu_view(&args[1]), &args[3],
                              cpu_view(&results[0]));
}

#define ALL {CPU_FLOATS, CPU_FLOATS, CPU_FLOATS}

static const cpu_kernel kernels[] = {
    {"_cdist_forward", launch_cdist, NULL, ALL, 0},
    {"_cdist_backward", launch_cdist_gradient, NULL, ALL, 0},
    {"_pdist_forward", launch_pdist, NULL, ALL, 0},
    {"_pdist_backward", launch_pdist_gradient, NULL, ALL, 0},
};

const cpu_kernel_table cpu_distance_kernels = {
    kernels, sizeof kernels / sizeof kernels[0]};
