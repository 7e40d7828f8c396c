/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* norm.c: layer and group normalisation, forward and backward.
 *
 * Both normalise rows of a dense matrix: mean and variance by two passes, in
 * lanes and then double.  With h = (x - mean) / std and g = grad * weight,
 *     grad_x      = (g - mean(g) - h mean(g h)) / std        per row
 *     grad_weight = sum(grad h),  grad_bias = sum(grad)      over rows.
 * Compiled per instruction set. */

#include <stdlib.h>

#include "loop/block.h"
#include "math/lanes.h"
#include "runtime/scratch.h"
#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

/* A row is `channels` runs of `inner` elements; layer normalization has one
 * weight per element (inner 1), group normalization one per run, and `groups`
 * consecutive rows have different weights. */
typedef struct norm {
    core_dtype dtype;
    core_dtype half; /* of x, y, and the gradients of both, which are
                      * converted row by row; or 0 */
    core_status status;
    double eps;
    int64_t rows, groups, channels, inner, size;
    cpu_dense x, weight, bias, y, mean, rstd;       /* forward */
    cpu_dense grad, grad_x, grad_weight, grad_bias; /* backward */
} norm;

/* -------------------------------------------------------------- forward -- */

/* Prefetches the next row, if the first-level cache has space for it beside the
 * current one. */
static inline void fetch_row(const void *row, int64_t bytes)
{
    for (int64_t k = 0; bytes <= 8192 && k < bytes; k += 64)
        __builtin_prefetch((const char *)row + k);
}

#define NORM_FORWARD(NAME, TYPE)                                               \
    static void affine_##NAME(TYPE *y, const TYPE *x, TYPE mean, TYPE rstd,    \
                              const TYPE *weight, const TYPE *bias,            \
                              int64_t channels, int64_t inner)                 \
    {                                                                          \
        if (inner == 1) {                                                      \
            for (int64_t i = 0; i < channels; i++)                             \
                y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];             \
            return;                                                            \
        }                                                                      \
        for (int64_t c = 0; c < channels; c++) {                               \
            TYPE scale = rstd * weight[c], shift = bias[c];                    \
            for (int64_t i = c * inner; i < (c + 1) * inner; i++)              \
                y[i] = (x[i] - mean) * scale + shift;                          \
        }                                                                      \
    }                                                                          \
    static void forward_row_##NAME(norm *job, int64_t row, const TYPE *x,      \
                                   TYPE *y)                                    \
    {                                                                          \
        int64_t first = row % job->groups * job->channels;                     \
        TYPE mean = (TYPE)(lanes_sum_##NAME(x, NULL, 0, job->size) /           \
                           (double)job->size);                                 \
        double var;                                                            \
        fetch_row(x + job->size, job->size * (int64_t)sizeof(TYPE));           \
        var =                                                                  \
            lanes_square_##NAME(x, NULL, mean, job->size) / (double)job->size; \
        TYPE rstd = (TYPE)(1 / sqrt(var + job->eps));                          \
        ((TYPE *)job->mean.data)[row] = mean;                                  \
        ((TYPE *)job->rstd.data)[row] = rstd;                                  \
        affine_##NAME(                                                         \
            y, x, mean, rstd, (const TYPE *)job->weight.data + first,          \
            (const TYPE *)job->bias.data + first, job->channels, job->inner);  \
    }                                                                          \
    static void forward_task_##NAME(void *context, int64_t begin, int64_t end) \
    {                                                                          \
        norm *job = context;                                                   \
        for (int64_t row = begin; row < end; row++)                            \
            forward_row_##NAME(job, row,                                       \
                               (const TYPE *)job->x.data + row * job->size,    \
                               (TYPE *)job->y.data + row * job->size);         \
    }
CPU_COMPUTE_FLOATS(NORM_FORWARD)

/* Memory for a task's rows. */
static void *rows_memory(norm *job, int64_t bytes)
{
    void *memory = cpu_scratch_take(bytes);

    if (!memory)
        __atomic_store_n(&job->status, CORE_ERROR_OUT_OF_MEMORY,
                         __ATOMIC_RELAXED);
    return memory;
}

/* Elements of x or of the gradient, from `at` on: in place, or converted. */
static const float *part_f32(const norm *job, const cpu_dense *from, int64_t at,
                             float *to, int64_t n)
{
    if (!job->half)
        return (const float *)from->data + at;
    cpu_load(CORE_F32, to, job->half, (const char *)from->data + 2 * at, 2, n);
    return to;
}

static const double *part_f64(const norm *job, const cpu_dense *from,
                              int64_t at, double *to, int64_t n)
{
    (void)job;
    (void)to;
    (void)n;
    return (const double *)from->data + at;
}

/* Rows of f16 or bf16. */
static void forward_task_half(void *context, int64_t begin, int64_t end)
{
    norm *job = context;
    float *row = rows_memory(job, job->size * (int64_t)sizeof *row);

    if (!row)
        return;
    for (int64_t r = begin; r < end; r++) {
        int64_t at = r * job->size * 2;

        cpu_load(CORE_F32, row, job->half, (char *)job->x.data + at, 2,
                 job->size);
        forward_row_f32(job, r, row, row);
        cpu_store(job->half, (char *)job->y.data + at, 2, CORE_F32, row,
                  job->size);
    }
    cpu_scratch_give(row);
}

static cpu_task forward_task(const norm *job)
{
    if (job->half)
        return forward_task_half;
    return job->dtype == CORE_F32 ? forward_task_f32 : forward_task_f64;
}

static void norm_close(norm *job)
{
    cpu_dense_close(&job->x);
    cpu_dense_close(&job->weight);
    cpu_dense_close(&job->bias);
    cpu_dense_close(&job->y);
    cpu_dense_close(&job->mean);
    cpu_dense_close(&job->rstd);
    cpu_dense_close(&job->grad);
    cpu_dense_close(&job->grad_x);
    cpu_dense_close(&job->grad_weight);
    cpu_dense_close(&job->grad_bias);
}

static core_status norm_forward(norm *job, const core_view *input,
                                const core_value *weight,
                                const core_value *bias, core_value *results)
{
    int64_t count = job->groups * job->channels;
    core_dtype dtype = job->dtype;
    core_status status;

    job->size = job->channels * job->inner;
    if (cpu_are_halves(input, cpu_view(&results[0])))
        dtype = job->half = input->dtype;
    status = cpu_dense_read(input, dtype, &job->x);
    if (status == CORE_OK)
        status =
            cpu_dense_or(cpu_view(weight), job->dtype, count, 1, &job->weight);
    if (status == CORE_OK)
        status = cpu_dense_or(cpu_view(bias), job->dtype, count, 0, &job->bias);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[0]), dtype, &job->y);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[1]), job->dtype, &job->mean);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[2]), job->dtype, &job->rstd);
    if (status != CORE_OK)
        goto done;
    cpu_parallel_for(job->rows, cpu_grain(job->rows, 3 * job->size),
                     forward_task(job), job);
    status = cpu_rows_status(job->status, job->size);
    cpu_dense_write(&job->y);
    cpu_dense_write(&job->mean);
    cpu_dense_write(&job->rstd);
done:
    norm_close(job);
    return status;
}

static int64_t product_of(const core_value *list)
{
    int64_t product = 1;

    for (uint32_t k = 0; k < list->count; k++)
        product *= list->u.ints[k];
    return product;
}

/* native_layer_norm(input, normalized_shape, weight?, bias?, eps)
 * -> (output, mean, rstd) */
static core_status layer_forward(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    const core_view *input = cpu_view(&args[0]);
    int64_t size = product_of(&args[1]);
    norm job = {.dtype = cpu_compute_dtype(input->dtype),
                .groups = 1,
                .channels = size,
                .inner = 1,
                .eps = cpu_float(&args[4])};

    (void)call;
    (void)nargs;
    (void)nresults;
    job.rows = cpu_view(&results[1])->numel;
    return norm_forward(&job, input, &args[2], &args[3], results);
}

/* native_group_norm(input, weight?, bias?, N, C, HxW, group, eps)
 * -> (output, mean, rstd) */
static core_status group_forward(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    const core_view *input = cpu_view(&args[0]);
    norm job = {.dtype = cpu_compute_dtype(input->dtype),
                .groups = cpu_int(&args[6]),
                .inner = cpu_int(&args[5]),
                .eps = cpu_float(&args[7])};

    (void)call;
    (void)nargs;
    (void)nresults;
    job.rows = cpu_int(&args[3]) * job.groups;
    job.channels = cpu_int(&args[4]) / job.groups;
    return norm_forward(&job, input, &args[1], &args[2], results);
}

/* ------------------------------------------------------------- backward -- */

/* Rows per block of the sums over rows, which are then added to doubles. */
enum { ROW_BLOCK = 64, COLUMN_BLOCK = 1024, FEW_COLUMNS = 128 };

#define NORM_BACKWARD(NAME, TYPE)                                              \
    static void gradient_row_##NAME(                                           \
        TYPE *to, const TYPE *x, const TYPE *grad, TYPE mean, TYPE rstd,       \
        const TYPE *weight, int64_t channels, int64_t inner, TYPE *scaled)     \
    {                                                                          \
        int64_t size = channels * inner;                                       \
        TYPE average, moment;                                                  \
        for (int64_t c = 0; inner == 1 && c < channels; c++)                   \
            scaled[c] = grad[c] * weight[c];                                   \
        for (int64_t c = 0; inner > 1 && c < channels; c++)                    \
            for (int64_t i = c * inner; i < (c + 1) * inner; i++)              \
                scaled[i] = grad[i] * weight[c];                               \
        average =                                                              \
            (TYPE)(lanes_sum_##NAME(scaled, NULL, 0, size) / (double)size);    \
        moment = (TYPE)(lanes_moment_##NAME(x, scaled, mean, size) *           \
                        (double)rstd * (double)rstd / (double)size);           \
        for (int64_t i = 0; i < size; i++)                                     \
            to[i] = rstd * (scaled[i] - average - (x[i] - mean) * moment);     \
    }                                                                          \
    static void gradient_task_##NAME(void *context, int64_t begin,             \
                                     int64_t end)                              \
    {                                                                          \
        norm *job = context;                                                   \
        int64_t size = job->size, part = job->half ? size : 0;                 \
        TYPE *rows = rows_memory(job, (job->half ? 3 : 1) * size *             \
                                          (int64_t)sizeof(TYPE));              \
        for (int64_t row = begin; rows && row < end; row++) {                  \
            int64_t at = row * size;                                           \
            int64_t first = row % job->groups * job->channels;                 \
            TYPE *to = job->half ? rows : (TYPE *)job->grad_x.data + at;       \
            gradient_row_##NAME(                                               \
                to, part_##NAME(job, &job->x, at, rows + part, size),          \
                part_##NAME(job, &job->grad, at, rows + 2 * part, size),       \
                ((const TYPE *)job->mean.data)[row],                           \
                ((const TYPE *)job->rstd.data)[row],                           \
                (const TYPE *)job->weight.data + first, job->channels,         \
                job->inner, rows);                                             \
            if (job->half)                                                     \
                cpu_store(job->half, (char *)job->grad_x.data + 2 * at, 2,     \
                          CORE_F32, rows, size);                               \
        }                                                                      \
        cpu_scratch_give(rows);                                                \
    }                                                                          \
    /* Weights and biases [begin, end), inner 1: adds whole rows. */           \
    static void columns_task_##NAME(void *context, int64_t begin, int64_t end) \
    {                                                                          \
        norm *job = context;                                                   \
        TYPE *weight = job->grad_weight.data, *bias = job->grad_bias.data;     \
        double w[COLUMN_BLOCK] = {0}, b[COLUMN_BLOCK] = {0};                   \
        int64_t width = end - begin;                                           \
        for (int64_t r = 0; r < job->rows; r += ROW_BLOCK) {                   \
            TYPE ws[COLUMN_BLOCK] = {0}, bs[COLUMN_BLOCK] = {0};               \
            TYPE x_part[COLUMN_BLOCK], grad_part[COLUMN_BLOCK];                \
            for (int64_t s = r; s < r + ROW_BLOCK && s < job->rows; s++) {     \
                int64_t at = s * job->size + begin;                            \
                const TYPE *x = part_##NAME(job, &job->x, at, x_part, width);  \
                const TYPE *grad =                                             \
                    part_##NAME(job, &job->grad, at, grad_part, width);        \
                TYPE mean = ((const TYPE *)job->mean.data)[s];                 \
                TYPE rstd = ((const TYPE *)job->rstd.data)[s];                 \
                for (int64_t i = 0; i < width; i++) {                          \
                    ws[i] += grad[i] * ((x[i] - mean) * rstd);                 \
                    bs[i] += grad[i];                                          \
                }                                                              \
            }                                                                  \
            for (int64_t i = 0; i < width; i++) {                              \
                w[i] += ws[i];                                                 \
                b[i] += bs[i];                                                 \
            }                                                                  \
        }                                                                      \
        for (int64_t i = 0; i < width; i++) {                                  \
            if (weight)                                                        \
                weight[begin + i] = (TYPE)w[i];                                \
            if (bias)                                                          \
                bias[begin + i] = (TYPE)b[i];                                  \
        }                                                                      \
    }                                                                          \
    /* The same if each weight has runs of elements. */                        \
    static void runs_task_##NAME(void *context, int64_t begin, int64_t end)    \
    {                                                                          \
        norm *job = context;                                                   \
        TYPE *weight = job->grad_weight.data, *bias = job->grad_bias.data;     \
        int64_t part = job->half ? job->inner : 0;                             \
        TYPE *parts =                                                          \
            rows_memory(job, (2 * part + 1) * (int64_t)sizeof(TYPE));          \
        for (int64_t c = begin; parts && c < end; c++) {                       \
            double w = 0, b = 0;                                               \
            for (int64_t row = c / job->channels; row < job->rows;             \
                 row += job->groups) {                                         \
                int64_t at = row * job->size + c % job->channels * job->inner; \
                const TYPE *x =                                                \
                    part_##NAME(job, &job->x, at, parts, job->inner);          \
                const TYPE *grad = part_##NAME(job, &job->grad, at,            \
                                               parts + part, job->inner);      \
                w += lanes_moment_##NAME(                                      \
                         x, grad, ((TYPE *)job->mean.data)[row], job->inner) * \
                     ((TYPE *)job->rstd.data)[row];                            \
                b += lanes_sum_##NAME(grad, NULL, 0, job->inner);              \
            }                                                                  \
            if (weight)                                                        \
                weight[c] = (TYPE)w;                                           \
            if (bias)                                                          \
                bias[c] = (TYPE)b;                                             \
        }                                                                      \
        cpu_scratch_give(parts);                                               \
    }
CPU_COMPUTE_FLOATS(NORM_BACKWARD)

/* Long parts of rows, as long as each thread has some. */
static int64_t columns_of_task(int64_t count)
{
    int64_t columns = count / cpu_thread_pool_threads();

    if (columns > COLUMN_BLOCK)
        return COLUMN_BLOCK;
    return columns > FEW_COLUMNS ? columns : FEW_COLUMNS;
}

static void norm_gradients(norm *job)
{
    bool f32 = job->dtype == CORE_F32;
    int64_t count = job->groups * job->channels;

    if (job->grad_x.data)
        cpu_parallel_for(job->rows, cpu_grain(job->rows, 5 * job->size),
                         f32 ? gradient_task_f32 : gradient_task_f64, job);
    if (!job->grad_weight.data && !job->grad_bias.data)
        return;
    if (job->inner == 1 && job->groups == 1)
        cpu_parallel_for(count, columns_of_task(count),
                         f32 ? columns_task_f32 : columns_task_f64, job);
    else
        cpu_parallel_for(count, cpu_grain(count, 2 * job->rows * job->inner),
                         f32 ? runs_task_f32 : runs_task_f64, job);
}

/* The common arguments of both, by name. */
typedef struct norm_arguments {
    const core_value *grad, *input, *mean, *rstd, *weight, *mask;
} norm_arguments;

static const core_view *requested_result(const norm_arguments *from,
                                         const core_value *results, uint32_t k)
{
    const core_value *mask = from->mask;

    if (mask->tag == CORE_VALUE_BOOL_LIST && k < mask->count &&
        !mask->u.bools[k])
        return NULL;
    return cpu_view(&results[k]);
}

static core_status norm_backward(norm *job, const norm_arguments *from,
                                 core_value *results)
{
    const core_view *x = cpu_view(from->input), *grad = cpu_view(from->grad);
    const core_view *out = requested_result(from, results, 0);
    core_dtype dtype = job->dtype, given = dtype;
    core_status status;

    job->size = job->channels * job->inner;
    if (cpu_are_halves(x, grad) && cpu_are_halves(x, out ? out : x))
        given = job->half = x->dtype;
    status = cpu_dense_read(x, given, &job->x);
    if (status == CORE_OK)
        status = cpu_dense_read(grad, given, &job->grad);
    if (status == CORE_OK)
        status = cpu_dense_read(cpu_view(from->mean), dtype, &job->mean);
    if (status == CORE_OK)
        status = cpu_dense_read(cpu_view(from->rstd), dtype, &job->rstd);
    if (status == CORE_OK)
        status = cpu_dense_or(cpu_view(from->weight), dtype,
                              job->groups * job->channels, 1, &job->weight);
    if (status == CORE_OK)
        status = cpu_dense_open(out, given, &job->grad_x);
    if (status == CORE_OK)
        status = cpu_dense_open(requested_result(from, results, 1), dtype,
                                &job->grad_weight);
    if (status == CORE_OK)
        status = cpu_dense_open(requested_result(from, results, 2), dtype,
                                &job->grad_bias);
    if (status != CORE_OK)
        goto done;
    norm_gradients(job);
    status = cpu_rows_status(job->status, job->size);
    cpu_dense_write(&job->grad_x);
    cpu_dense_write(&job->grad_weight);
    cpu_dense_write(&job->grad_bias);
done:
    norm_close(job);
    return status;
}

/* native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd,
 * weight?, bias?, output_mask) -> (grad_input, grad_weight, grad_bias) */
static core_status layer_backward(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    norm_arguments from = {&args[0], &args[1], &args[3],
                           &args[4], &args[5], &args[7]};
    norm job = {.dtype = cpu_compute_dtype(cpu_view(&args[1])->dtype),
                .groups = 1,
                .channels = product_of(&args[2]),
                .inner = 1};

    (void)call;
    (void)nargs;
    (void)nresults;
    job.rows = cpu_view(&args[3])->numel;
    return norm_backward(&job, &from, results);
}

/* native_group_norm_backward(grad_out, input, mean, rstd, weight?, N, C, HxW,
 * group, output_mask) -> (grad_input, grad_weight, grad_bias) */
static core_status group_backward(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    norm_arguments from = {&args[0], &args[1], &args[2],
                           &args[3], &args[4], &args[9]};
    norm job = {.dtype = cpu_compute_dtype(cpu_view(&args[1])->dtype),
                .groups = cpu_int(&args[8]),
                .inner = cpu_int(&args[7])};

    (void)call;
    (void)nargs;
    (void)nresults;
    job.rows = cpu_int(&args[5]) * job.groups;
    job.channels = cpu_int(&args[6]) / job.groups;
    return norm_backward(&job, &from, results);
}

static const cpu_kernel kernels[] = {
    {"native_layer_norm",
     layer_forward,
     NULL,
     {CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS},
     0},
    {"native_group_norm",
     group_forward,
     NULL,
     {CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS},
     0},
    {"native_layer_norm_backward",
     layer_backward,
     NULL,
     {CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS},
     0},
    {"native_group_norm_backward",
     group_backward,
     NULL,
     {CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS, CPU_FLOATS},
     0},
};

const cpu_kernel_table CPU_NAME(cpu_norm_kernels) = {
    kernels, sizeof kernels / sizeof kernels[0]};
