/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Batch normalization, forward and backward, over dimension 1.  Each channel is
 * computed by one thread, over all of its runs of elements (one run per image).
 * Without training its statistics are known, and long runs of f32 and halves are
 * normalized in the order of memory.  Compiled per instruction set. */

#include "loop/block.h"
#include "math/lanes.h"
#include "runtime/scratch.h"
#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

typedef struct batch_norm {
    core_dtype dtype;
    core_dtype half; /* of x and y, which are converted by channel or
                      * by run; or 0 */
    bool training;
    double eps, momentum;
    int64_t images, channels, inner;
    cpu_dense x, weight, bias, running_mean, running_var;
    cpu_dense y, mean, invstd;                      /* forward */
    cpu_dense grad, grad_x, grad_weight, grad_bias; /* backward */
    core_status status;
} batch_norm;

/* A channel's elements: runs of `inner`, `step` apart. */
typedef struct runs {
    int64_t count, inner, step;
} runs;

/* If runs are shorter than this, a channel is gathered first. */
enum { SHORT = 16 };

/* Converts a channel of x to a row, or a row to a channel of y. */
static void half_channel(const batch_norm *job, int64_t c, float *row, bool out)
{
    int64_t step = job->channels * job->inner;

    for (int64_t i = 0; i < job->images; i++) {
        int64_t at = 2 * (i * step + c * job->inner);

        if (out)
            cpu_store(job->half, (char *)job->y.data + at, 2, CORE_F32,
                      row + i * job->inner, job->inner);
        else
            cpu_load(CORE_F32, row + i * job->inner, job->half,
                     (const char *)job->x.data + at, 2, job->inner);
    }
}

static runs runs_of(const batch_norm *job)
{
    if (job->inner < SHORT)
        return (runs){1, job->images * job->inner, 0};
    return (runs){job->images, job->inner,
                  job->half ? job->inner : job->channels * job->inner};
}

/* -------------------------------------------------------------- forward -- */

#define NUMBER(DENSE, INDEX, TYPE) (((TYPE *)(DENSE).data)[INDEX])

#define BATCH_FORWARD(NAME, TYPE)                                              \
    /* Memory for `rows` gathered channels. */                                 \
    static TYPE *together_##NAME(batch_norm *job, int64_t rows)                \
    {                                                                          \
        int64_t size =                                                         \
            job->inner < SHORT || job->half ? job->images * job->inner : 0;    \
        TYPE *memory = cpu_scratch_elements(rows * size, sizeof(TYPE));        \
        if (!memory)                                                           \
            __atomic_store_n(&job->status, CORE_ERROR_OUT_OF_MEMORY,           \
                             __ATOMIC_RELAXED);                                \
        return memory;                                                         \
    }                                                                          \
    /* A channel of a dense operand: in place, or gathered to `row`. */        \
    static const TYPE *channel_##NAME(const batch_norm *job, const void *data, \
                                      int64_t c, TYPE *row)                    \
    {                                                                          \
        const TYPE *from = (const TYPE *)data + c * job->inner;                \
        int64_t step = job->channels * job->inner;                             \
        if (job->inner >= SHORT)                                               \
            return from;                                                       \
        for (int64_t i = 0; i < job->images; i++)                              \
            for (int64_t j = 0; j < job->inner; j++)                           \
                row[i * job->inner + j] = from[i * step + j];                  \
        return row;                                                            \
    }                                                                          \
    static void scatter_##NAME(const batch_norm *job, void *data, int64_t c,   \
                               const TYPE *row)                                \
    {                                                                          \
        TYPE *to = (TYPE *)data + c * job->inner;                              \
        int64_t step = job->channels * job->inner;                             \
        for (int64_t i = 0; job->inner < SHORT && i < job->images; i++)        \
            for (int64_t j = 0; j < job->inner; j++)                           \
                to[i * step + j] = row[i * job->inner + j];                    \
    }                                                                          \
    static void statistics_##NAME(batch_norm *job, const TYPE *x, int64_t c,   \
                                  TYPE *out_mean, TYPE *out_invstd)            \
    {                                                                          \
        runs r = runs_of(job);                                                 \
        double count = (double)(r.count * r.inner), sum = 0, var = 0;          \
        double mix = job->momentum;                                            \
        TYPE mean;                                                             \
        for (int64_t i = 0; i < r.count; i++)                                  \
            sum += lanes_sum_##NAME(x + i * r.step, NULL, 0, r.inner);         \
        mean = (TYPE)(sum / count);                                            \
        for (int64_t i = 0; i < r.count; i++)                                  \
            var += lanes_square_##NAME(x + i * r.step, NULL, mean, r.inner);   \
        *out_mean = mean;                                                      \
        *out_invstd = (TYPE)(1 / sqrt(var / count + job->eps));                \
        if (job->running_mean.data)                                            \
            NUMBER(job->running_mean, c, TYPE) =                               \
                (TYPE)((1 - mix) * NUMBER(job->running_mean, c, TYPE) +        \
                       mix * mean);                                            \
        if (job->running_var.data)                                             \
            NUMBER(job->running_var, c, TYPE) =                                \
                (TYPE)((1 - mix) * NUMBER(job->running_var, c, TYPE) +         \
                       mix * var / (count - 1));                               \
    }                                                                          \
    static void running_##NAME(const batch_norm *job, int64_t c,               \
                               TYPE *out_mean, TYPE *out_invstd)               \
    {                                                                          \
        *out_mean = NUMBER(job->running_mean, c, TYPE);                        \
        *out_invstd =                                                          \
            (TYPE)(1 / sqrt(NUMBER(job->running_var, c, TYPE) + job->eps));    \
    }                                                                          \
    __attribute__((noinline)) static void normalize_##NAME(                    \
        const batch_norm *job, int64_t c, TYPE mean, TYPE invstd,              \
        const TYPE *x, TYPE *y, int64_t n)                                     \
    {                                                                          \
        TYPE scale = invstd * NUMBER(job->weight, c, TYPE);                    \
        TYPE shift = NUMBER(job->bias, c, TYPE);                               \
        MATH_LOOP                                                              \
        for (int64_t j = 0; j < n; j++)                                        \
            y[j] = (x[j] - mean) * scale + shift;                              \
    }                                                                          \
    static void batch_channel_##NAME(batch_norm *job, const TYPE *x, TYPE *y,  \
                                     int64_t c)                                \
    {                                                                          \
        runs r = runs_of(job);                                                 \
        TYPE mean, invstd;                                                     \
        if (job->training)                                                     \
            statistics_##NAME(job, x, c, &mean, &invstd);                      \
        else                                                                   \
            running_##NAME(job, c, &mean, &invstd);                            \
        if (job->mean.data)                                                    \
            NUMBER(job->mean, c, TYPE) = mean;                                 \
        if (job->invstd.data)                                                  \
            NUMBER(job->invstd, c, TYPE) = invstd;                             \
        for (int64_t i = 0; i < r.count; i++)                                  \
            normalize_##NAME(job, c, mean, invstd, x + i * r.step,             \
                             y + i * r.step, r.inner);                         \
    }                                                                          \
    static void batch_task_##NAME(void *context, int64_t begin, int64_t end)   \
    {                                                                          \
        batch_norm *job = context;                                             \
        TYPE *row = together_##NAME(job, 1);                                   \
        for (int64_t c = begin; row && c < end; c++) {                         \
            const TYPE *x = channel_##NAME(job, job->x.data, c, row);          \
            TYPE *y = x == row ? row : (TYPE *)job->y.data + c * job->inner;   \
            batch_channel_##NAME(job, x, y, c);                                \
            scatter_##NAME(job, job->y.data, c, row);                          \
        }                                                                      \
        cpu_scratch_give(row);                                                 \
    }
CPU_COMPUTE_FLOATS(BATCH_FORWARD)

/* Runs, in the order of memory, of channels whose statistics are known. */
static void run_task(void *context, int64_t begin, int64_t end)
{
    const batch_norm *job = context;

    for (int64_t run = begin; run < end; run++) {
        int64_t c = run % job->channels, at = run * job->inner;

        normalize_f32(job, c, NUMBER(job->mean, c, float),
                      NUMBER(job->invstd, c, float),
                      (const float *)job->x.data + at,
                      (float *)job->y.data + at, job->inner);
    }
}

static void run_task_half(void *context, int64_t begin, int64_t end)
{
    batch_norm *job = context;
    float *row = cpu_scratch_elements(job->inner, sizeof *row);

    if (!row)
        __atomic_store_n(&job->status, CORE_ERROR_OUT_OF_MEMORY,
                         __ATOMIC_RELAXED);
    for (int64_t run = begin; row && run < end; run++) {
        int64_t c = run % job->channels, at = 2 * run * job->inner;

        cpu_load(CORE_F32, row, job->half, (const char *)job->x.data + at, 2,
                 job->inner);
        normalize_f32(job, c, NUMBER(job->mean, c, float),
                      NUMBER(job->invstd, c, float), row, row, job->inner);
        cpu_store(job->half, (char *)job->y.data + at, 2, CORE_F32, row,
                  job->inner);
    }
    cpu_scratch_give(row);
}

static void batch_task_half(void *context, int64_t begin, int64_t end)
{
    batch_norm *job = context;
    float *row = together_f32(job, 1);

    for (int64_t c = begin; row && c < end; c++) {
        half_channel(job, c, row, false);
        batch_channel_f32(job, row, row, c);
        half_channel(job, c, row, true);
    }
    cpu_scratch_give(row);
}

static void run_channels(batch_norm *job)
{
    cpu_parallel_for(job->channels,
                     cpu_grain(job->channels, 3 * job->images * job->inner),
                     job->half                ? batch_task_half
                     : job->dtype == CORE_F32 ? batch_task_f32
                                              : batch_task_f64,
                     job);
}

/* Without training a channel's statistics are known before it is read.  Of f32
 * and halves. */
static void run_known(batch_norm *job)
{
    int64_t count = job->images * job->channels;

    for (int64_t c = 0; c < job->channels; c++)
        running_f32(job, c, &NUMBER(job->mean, c, float),
                    &NUMBER(job->invstd, c, float));
    cpu_parallel_for(count, cpu_grain(count, 3 * job->inner),
                     job->half ? run_task_half : run_task, job);
}

static void batch_close(batch_norm *job)
{
    cpu_dense *all[] = {
        &job->x,           &job->weight, &job->bias,        &job->running_mean,
        &job->running_var, &job->y,      &job->mean,        &job->invstd,
        &job->grad,        &job->grad_x, &job->grad_weight, &job->grad_bias};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        cpu_dense_close(all[i]);
}

static void batch_shape(batch_norm *job, const core_view *input)
{
    cpu_split split = cpu_split_at(input, 1);

    job->dtype = cpu_compute_dtype(input->dtype);
    job->images = split.outer;
    job->channels = split.size;
    job->inner = split.inner;
}

/* A saved statistic may be empty if it is not needed; run_known needs it. */
static core_status open_statistic(const core_view *view, batch_norm *job,
                                  cpu_dense *out)
{
    bool needed = view && view->numel == job->channels;

    if (!needed && !job->training)
        return cpu_dense_or(NULL, job->dtype, job->channels, 0, out);
    return cpu_dense_open(needed ? view : NULL, job->dtype, out);
}

static core_status batch_open(batch_norm *job, const core_value *args,
                              const core_value *results)
{
    const core_view *x = cpu_view(&args[0]), *y = cpu_view(&results[0]);
    core_dtype dtype = job->dtype, given = dtype;
    core_status status;

    if (job->inner >= SHORT && cpu_are_halves(x, y))
        given = job->half = x->dtype;
    status = cpu_dense_read(x, given, &job->x);
    if (status == CORE_OK)
        status = cpu_dense_or(cpu_view(&args[1]), dtype, job->channels, 1,
                              &job->weight);
    if (status == CORE_OK)
        status = cpu_dense_or(cpu_view(&args[2]), dtype, job->channels, 0,
                              &job->bias);
    if (status == CORE_OK)
        status =
            cpu_dense_update(cpu_view(&args[3]), dtype, &job->running_mean);
    if (status == CORE_OK)
        status = cpu_dense_update(cpu_view(&args[4]), dtype, &job->running_var);
    if (status == CORE_OK)
        status = cpu_dense_open(y, given, &job->y);
    if (status == CORE_OK)
        status = open_statistic(cpu_view(&results[1]), job, &job->mean);
    if (status == CORE_OK)
        status = open_statistic(cpu_view(&results[2]), job, &job->invstd);
    return status;
}

/* A worker's error message belongs to another thread. */
static core_status batch_done(const batch_norm *job)
{
    if (job->status != CORE_OK)
        cpu_error(job->status, "no host memory for a channel's elements");
    return job->status;
}

/* native_batch_norm(input, weight?, bias?, running_mean?, running_var?,
 * training, momentum, eps) -> (output, save_mean, save_invstd).  In training
 * the running statistics are updated in place. */
static core_status launch_forward(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    batch_norm job = {.training = cpu_int(&args[5]) != 0,
                      .momentum = cpu_float(&args[6]),
                      .eps = cpu_float(&args[7])};
    core_status status;

    (void)call;
    (void)nargs;
    (void)nresults;
    batch_shape(&job, cpu_view(&args[0]));
    status = batch_open(&job, args, results);
    if (status != CORE_OK)
        goto done;
    if (!job.training && (!job.running_mean.data || !job.running_var.data)) {
        status = cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                           "native_batch_norm: the running statistics are "
                           "required without training");
        goto done;
    }
    if (job.training || job.inner < SHORT || job.dtype != CORE_F32)
        run_channels(&job);
    else
        run_known(&job);
    status = batch_done(&job);
    if (status != CORE_OK)
        goto done;
    cpu_dense_write(&job.y);
    cpu_dense_write(&job.mean);
    cpu_dense_write(&job.invstd);
    if (job.training) {
        cpu_dense_write(&job.running_mean);
        cpu_dense_write(&job.running_var);
    }
done:
    batch_close(&job);
    return status;
}

/* ------------------------------------------------------------- backward -- */

#define BATCH_BACKWARD(NAME, TYPE)                                             \
    static void gradient_channel_##NAME(batch_norm *job, const TYPE *x,        \
                                        const TYPE *grad, TYPE *to, int64_t c) \
    {                                                                          \
        runs r = runs_of(job);                                                 \
        TYPE mean, invstd, scale, average = 0, slope = 0;                      \
        double sum = 0, moment = 0;                                            \
        if (job->training) {                                                   \
            mean = NUMBER(job->mean, c, TYPE);                                 \
            invstd = NUMBER(job->invstd, c, TYPE);                             \
        } else {                                                               \
            mean = NUMBER(job->running_mean, c, TYPE);                         \
            invstd = (TYPE)(1 / sqrt(NUMBER(job->running_var, c, TYPE) +       \
                                     job->eps));                               \
        }                                                                      \
        for (int64_t i = 0; i < r.count; i++) {                                \
            sum += lanes_sum_##NAME(grad + i * r.step, NULL, 0, r.inner);      \
            moment += lanes_moment_##NAME(x + i * r.step, grad + i * r.step,   \
                                          mean, r.inner);                      \
        }                                                                      \
        if (job->grad_weight.data)                                             \
            NUMBER(job->grad_weight, c, TYPE) = (TYPE)(moment * invstd);       \
        if (job->grad_bias.data)                                               \
            NUMBER(job->grad_bias, c, TYPE) = (TYPE)sum;                       \
        scale = invstd * NUMBER(job->weight, c, TYPE);                         \
        if (job->training) {                                                   \
            double count = (double)(r.count * r.inner);                        \
            average = (TYPE)(sum / count);                                     \
            slope = (TYPE)(moment * invstd * invstd / count);                  \
        }                                                                      \
        for (int64_t i = 0; to && i < r.count; i++)                            \
            for (int64_t j = i * r.step; j < i * r.step + r.inner; j++)        \
                to[j] = scale * (grad[j] - average - (x[j] - mean) * slope);   \
    }                                                                          \
    static void gradient_task_##NAME(void *context, int64_t begin,             \
                                     int64_t end)                              \
    {                                                                          \
        batch_norm *job = context;                                             \
        int64_t size = job->images * job->inner;                               \
        TYPE *rows = together_##NAME(job, 2), *to = job->grad_x.data;          \
        for (int64_t c = begin; rows && c < end; c++) {                        \
            const TYPE *x = channel_##NAME(job, job->x.data, c, rows);         \
            const TYPE *grad = channel_##NAME(job, job->grad.data, c,          \
                                              rows + (x == rows ? size : 0));  \
            if (!to)                                                           \
                gradient_channel_##NAME(job, x, grad, NULL, c);                \
            else if (x == rows)                                                \
                gradient_channel_##NAME(job, x, grad, rows, c);                \
            else                                                               \
                gradient_channel_##NAME(job, x, grad, to + c * job->inner, c); \
            if (to)                                                            \
                scatter_##NAME(job, to, c, rows);                              \
        }                                                                      \
        cpu_scratch_give(rows);                                                \
    }
CPU_COMPUTE_FLOATS(BATCH_BACKWARD)

static core_status gradient_open(batch_norm *job, const core_value *args,
                                 const core_value *results)
{
    core_dtype dtype = job->dtype;
    const core_value *mask = &args[9];
    cpu_dense *in[] = {&job->grad,         &job->x,           NULL,
                       &job->running_mean, &job->running_var, &job->mean,
                       &job->invstd};
    cpu_dense *out[] = {&job->grad_x, &job->grad_weight, &job->grad_bias};
    core_status status =
        cpu_dense_or(cpu_view(&args[2]), dtype, job->channels, 1, &job->weight);

    for (uint32_t k = 0; k < 7 && status == CORE_OK; k++)
        if (in[k])
            status = cpu_dense_read(cpu_view(&args[k]), dtype, in[k]);
    for (uint32_t k = 0; k < 3 && status == CORE_OK; k++) {
        bool needed = mask->tag != CORE_VALUE_BOOL_LIST || mask->u.bools[k];

        status = cpu_dense_open(needed ? cpu_view(&results[k]) : NULL, dtype,
                                out[k]);
    }
    return status;
}

/* native_batch_norm_backward(grad_out, input, weight?, running_mean?,
 * running_var?, save_mean?, save_invstd?, train, eps, output_mask)
 * -> (grad_input, grad_weight, grad_bias) */
static core_status launch_backward(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    batch_norm job = {.training = cpu_int(&args[7]) != 0,
                      .eps = cpu_float(&args[8])};
    cpu_dense *mean = job.training ? &job.mean : &job.running_mean;
    cpu_dense *spread = job.training ? &job.invstd : &job.running_var;
    core_status status;

    (void)call;
    (void)nargs;
    (void)nresults;
    batch_shape(&job, cpu_view(&args[1]));
    status = gradient_open(&job, args, results);
    if (status != CORE_OK)
        goto done;
    if (!mean->data || !spread->data) {
        status = cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                           "native_batch_norm_backward: the %s statistics "
                           "are missing",
                           job.training ? "saved" : "running");
        goto done;
    }
    cpu_parallel_for(
        job.channels, cpu_grain(job.channels, 4 * job.images * job.inner),
        job.dtype == CORE_F32 ? gradient_task_f32 : gradient_task_f64, &job);
    status = batch_done(&job);
    if (status != CORE_OK)
        goto done;
    cpu_dense_write(&job.grad_x);
    cpu_dense_write(&job.grad_weight);
    cpu_dense_write(&job.grad_bias);
done:
    batch_close(&job);
    return status;
}

static const cpu_kernel kernels[] = {
    {"native_batch_norm",
     launch_forward,
     NULL,
     {CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS},
     0},
    {"native_batch_norm_backward",
     launch_backward,
     NULL,
     {CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS},
     0},
};

const cpu_kernel_table CPU_NAME(cpu_batchnorm_kernels) = {
    kernels, sizeof kernels / sizeof kernels[0]};
