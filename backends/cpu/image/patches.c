/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The windows of an image as columns (im2col), and their sum as an image
 * (col2im); fractional max pooling; frexp. */

#include <math.h>

#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

/* ------------------------------------------------------ image to columns -- */

typedef struct patches {
    core_dtype dtype;
    int64_t planes, in[2], out[2]; /* image; places of the window */
    int64_t kernel[2], dilation[2], padding[2], stride[2];
    cpu_dense image, columns;
} patches;

/* Columns of one plane: kernel[0] kernel[1] rows of out[0] out[1] each. */
#define PATCHES(NAME, TYPE)                                                    \
    static void plane_##NAME(const patches *job, TYPE *image, TYPE *columns,   \
                             bool sum)                                         \
    {                                                                          \
        for (int64_t k = 0; k < job->kernel[0] * job->kernel[1]; k++)          \
            for (int64_t i = 0; i < job->out[0]; i++)                          \
                for (int64_t j = 0; j < job->out[1]; j++, columns++) {         \
                    int64_t y = i * job->stride[0] - job->padding[0] +         \
                                k / job->kernel[1] * job->dilation[0];         \
                    int64_t x = j * job->stride[1] - job->padding[1] +         \
                                k % job->kernel[1] * job->dilation[1];         \
                    bool inside =                                              \
                        y >= 0 && y < job->in[0] && x >= 0 && x < job->in[1];  \
                    TYPE *pixel = image + (inside ? y * job->in[1] + x : 0);   \
                    if (!sum)                                                  \
                        *columns = inside ? *pixel : 0;                        \
                    else if (inside)                                           \
                        *pixel = cpu_add_##NAME(*pixel, *columns);             \
                }                                                              \
    }                                                                          \
    static void planes_##NAME(patches *job, int64_t begin, int64_t end,        \
                              bool sum)                                        \
    {                                                                          \
        int64_t image = job->in[0] * job->in[1];                               \
        int64_t columns =                                                      \
            job->kernel[0] * job->kernel[1] * job->out[0] * job->out[1];       \
        for (int64_t p = begin; p < end; p++) {                                \
            TYPE *pixels = (TYPE *)job->image.data + p * image;                \
            for (int64_t i = 0; sum && i < image; i++)                         \
                pixels[i] = 0;                                                 \
            plane_##NAME(job, pixels, (TYPE *)job->columns.data + p * columns, \
                         sum);                                                 \
        }                                                                      \
    }                                                                          \
    static void split_task_##NAME(void *context, int64_t begin, int64_t end)   \
    {                                                                          \
        planes_##NAME(context, begin, end, false);                             \
    }                                                                          \
    static void sum_task_##NAME(void *context, int64_t begin, int64_t end)     \
    {                                                                          \
        planes_##NAME(context, begin, end, true);                              \
    }
CPU_COMPUTE_TYPES(PATCHES)

/* args: kernel_size, dilation, padding, stride */
static void patches_shape(patches *job, const core_view *image,
                          const core_value *args)
{
    job->dtype = cpu_compute_dtype(image->dtype);
    job->planes = 1;
    for (uint32_t d = 0; d + 2 < image->ndim; d++)
        job->planes *= image->sizes[d];
    for (uint32_t k = 0; k < 2; k++) {
        job->in[k] = image->sizes[image->ndim - 2 + k];
        job->kernel[k] = cpu_list_int(&args[0], k, 1);
        job->dilation[k] = cpu_list_int(&args[1], k, 1);
        job->padding[k] = cpu_list_int(&args[2], k, 0);
        job->stride[k] = cpu_list_int(&args[3], k, 1);
        job->out[k] = (job->in[k] + 2 * job->padding[k] -
                       job->dilation[k] * (job->kernel[k] - 1) - 1) /
                          job->stride[k] +
                      1;
    }
}

static void patches_close(patches *job)
{
    cpu_dense_close(&job->image);
    cpu_dense_close(&job->columns);
}

/* im2col(self, kernel_size, dilation, padding, stride) */
static core_status launch_split(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]), *to = cpu_view(&results[0]);
    patches job = {.planes = 1};
    core_status status;

    (void)call;
    (void)nargs;
    (void)nresults;
    patches_shape(&job, self, args + 1);
    status = cpu_dense_read(self, job.dtype, &job.image);
    if (status == CORE_OK)
        status = cpu_dense_open(to, job.dtype, &job.columns);
    if (status == CORE_OK && to->numel > 0) {
        cpu_parallel_for(job.planes,
                         cpu_grain(job.planes, to->numel / job.planes),
                         job.dtype == CORE_F32   ? split_task_f32
                         : job.dtype == CORE_F64 ? split_task_f64
                                                 : split_task_i64,
                         &job);
        cpu_dense_write(&job.columns);
    }
    patches_close(&job);
    return status;
}

/* col2im(self, output_size, kernel_size, dilation, padding, stride) */
static core_status launch_sum(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]), *to = cpu_view(&results[0]);
    patches job = {.planes = 1};
    core_status status;

    (void)call;
    (void)nargs;
    (void)nresults;
    patches_shape(&job, to, args + 2);
    status = cpu_dense_read(self, job.dtype, &job.columns);
    if (status == CORE_OK)
        status = cpu_dense_open(to, job.dtype, &job.image);
    if (status == CORE_OK && to->numel > 0) {
        cpu_parallel_for(job.planes,
                         cpu_grain(job.planes, self->numel / job.planes),
                         job.dtype == CORE_F32   ? sum_task_f32
                         : job.dtype == CORE_F64 ? sum_task_f64
                                                 : sum_task_i64,
                         &job);
        cpu_dense_write(&job.image);
    }
    patches_close(&job);
    return status;
}

/* ---------------------------------------------- fractional max pooling -- */

typedef struct fraction {
    core_dtype dtype;
    uint32_t ndim;
    int64_t planes, in[3], out[3], kernel[3], in_size, out_size;
    cpu_dense x, samples, y, indices;
} fraction;

/* The beginning of window i of a dimension: the last one ends with the input,
 * the others begin at rounded multiples of their mean distance, shifted by a
 * sample. (Graham 2014, "Fractional max-pooling") */
#define FRACTION(NAME, TYPE)                                                  \
    static int64_t start_##NAME(const fraction *job, uint32_t k, TYPE sample, \
                                int64_t i)                                    \
    {                                                                         \
        TYPE slack = (TYPE)(job->in[k] - job->kernel[k]), mean;               \
        if (i + 1 == job->out[k])                                             \
            return job->in[k] - job->kernel[k];                               \
        mean = slack / (TYPE)(job->out[k] - 1);                               \
        mean = (TYPE)(int64_t)(((TYPE)i + sample) * mean) -                   \
               (TYPE)(int64_t)(sample * mean);                                \
        return (int64_t)mean;                                                 \
    }                                                                         \
    static void largest_##NAME(const fraction *job, const TYPE *x,            \
                               const int64_t *at, TYPE *y, int64_t *index)    \
    {                                                                         \
        TYPE best = -(TYPE)INFINITY;                                          \
        *index = (at[0] * job->in[1] + at[1]) * job->in[2] + at[2];           \
        for (int64_t i = at[0]; i < at[0] + job->kernel[0]; i++)              \
            for (int64_t j = at[1]; j < at[1] + job->kernel[1]; j++)          \
                for (int64_t k = at[2]; k < at[2] + job->kernel[2]; k++) {    \
                    int64_t here = (i * job->in[1] + j) * job->in[2] + k;     \
                    if (x[here] > best || x[here] != x[here]) {               \
                        best = x[here];                                       \
                        *index = here;                                        \
                    }                                                         \
                }                                                             \
        *y = best;                                                            \
    }                                                                         \
    static void fraction_task_##NAME(void *context, int64_t begin,            \
                                     int64_t end)                             \
    {                                                                         \
        fraction *job = context;                                              \
        for (int64_t p = begin; p < end; p++)                                 \
            for (int64_t o = 0; o < job->out_size; o++) {                     \
                const TYPE *samples =                                         \
                    (const TYPE *)job->samples.data + p * job->ndim;          \
                int64_t rest = o, at[3] = {0, 0, 0};                          \
                for (uint32_t k = 3; k-- > 3 - job->ndim;) {                  \
                    /* two dimensions: the first sample is the width's */     \
                    TYPE sample = samples[job->ndim == 2 ? 2 - k : k];        \
                    at[k] = start_##NAME(job, k, sample, rest % job->out[k]); \
                    rest /= job->out[k];                                      \
                }                                                             \
                largest_##NAME(                                               \
                    job, (const TYPE *)job->x.data + p * job->in_size, at,    \
                    (TYPE *)job->y.data + p * job->out_size + o,              \
                    (int64_t *)job->indices.data + p * job->out_size + o);    \
            }                                                                 \
    }
CPU_COMPUTE_FLOATS(FRACTION)

static core_status samples_check(const core_call *call, const cpu_dense *dense,
                                 int64_t n)
{
    core_string name = cpu_operator(call);

    for (int64_t i = 0; i < n; i++) {
        double x = dense->dtype == CORE_F64
                       ? ((const double *)dense->data)[i]
                       : (double)((const float *)dense->data)[i];

        if (!(x >= 0 && x <= 1))
            return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                             "%.*s: random sample %lld is %g, not in [0, 1]",
                             (int)name.size, name.data, (long long)i, x);
    }
    return CORE_OK;
}

/* fractional_max_pool<n>d(self, kernel_size, output_size, random_samples);
 * call->user is n */
static core_status launch_fraction(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]), *to = cpu_view(&results[0]);
    const core_view *samples = cpu_view(&args[3]);
    fraction job = {.dtype = cpu_compute_dtype(self->dtype),
                    .ndim = (uint32_t)(uintptr_t)call->user,
                    .planes = 1,
                    .in_size = 1,
                    .out_size = 1};
    core_status status = cpu_dense_read(self, job.dtype, &job.x);

    (void)nargs;
    (void)nresults;
    for (uint32_t k = 0; k < 3; k++) {
        bool present = k + job.ndim >= 3;

        job.in[k] = present ? self->sizes[self->ndim + k - 3] : 1;
        job.out[k] = present ? to->sizes[to->ndim + k - 3] : 1;
        job.kernel[k] =
            present ? cpu_list_int(&args[1], k + job.ndim - 3, 1) : 1;
        job.in_size *= job.in[k];
        job.out_size *= job.out[k];
    }
    if (status == CORE_OK)
        status = cpu_dense_read(samples, job.dtype, &job.samples);
    if (status == CORE_OK)
        status = samples_check(call, &job.samples, samples->numel);
    if (status == CORE_OK)
        status = cpu_dense_open(to, job.dtype, &job.y);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[1]), CORE_I64, &job.indices);
    if (status == CORE_OK && to->numel > 0) {
        job.planes = to->numel / job.out_size;
        cpu_parallel_for(
            job.planes,
            cpu_grain(job.planes, job.out_size * job.kernel[0] * job.kernel[1] *
                                      job.kernel[2]),
            job.dtype == CORE_F64 ? fraction_task_f64 : fraction_task_f32,
            &job);
        cpu_dense_write(&job.y);
        cpu_dense_write(&job.indices);
    }
    cpu_dense_close(&job.x);
    cpu_dense_close(&job.samples);
    cpu_dense_close(&job.y);
    cpu_dense_close(&job.indices);
    return status;
}

/* ---------------------------------------------------------------- frexp -- */

/* frexp.Tensor(self) -> (mantissa, exponent) */
static core_status launch_frexp(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    cpu_dense x = {0}, mantissa = {0}, exponent = {0};
    core_status status = cpu_dense_read(self, CORE_F64, &x);

    (void)call;
    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[0]), CORE_F64, &mantissa);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[1]), CORE_I32, &exponent);
    for (int64_t i = 0; status == CORE_OK && i < self->numel; i++) {
        int power = 0;

        ((double *)mantissa.data)[i] =
            frexp(((const double *)x.data)[i], &power);
        ((int32_t *)exponent.data)[i] = power;
    }
    if (status == CORE_OK) {
        cpu_dense_write(&mantissa);
        cpu_dense_write(&exponent);
    }
    cpu_dense_close(&x);
    cpu_dense_close(&mantissa);
    cpu_dense_close(&exponent);
    return status;
}

#define FRACTIONAL                                      \
    {                                                   \
        CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_INDICES \
    }

static const cpu_kernel kernels[] = {
    {"im2col", launch_split, NULL, {CPU_ALL, CPU_ALL}, 0},
    {"col2im", launch_sum, NULL, {CPU_ALL, CPU_ALL}, 0},
    {"fractional_max_pool2d", launch_fraction, (void *)2, FRACTIONAL, 0},
    {"fractional_max_pool3d", launch_fraction, (void *)3, FRACTIONAL, 0},
    {"frexp.Tensor",
     launch_frexp,
     NULL,
     {CPU_FLOATS, CPU_FLOATS, CORE_DTYPE_MASK(CORE_I32)},
     0},
};

const cpu_kernel_table cpu_patches_kernels = {kernels, sizeof kernels /
                                                           sizeof kernels[0]};
