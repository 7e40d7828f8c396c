/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* index.c: operators on slices selected by a list of indices along one
 * dimension, read (index_select, embedding), written (index_copy,
 * index_fill) or added (index_add, embedding's gradient); and take.
 *
 * Operands are dense: outer x size x inner.  Writes process the indices in
 * order, for a range of the other elements, so that repeated indices give
 * the same result with any number of threads. */

#include <stdlib.h>

#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

typedef struct index_job {
    core_dtype dtype; /* of the buffers */
    cpu_split split;  /* of the indexed operand */
    cpu_dense self, index, other;
    int64_t count;       /* indices */
    int64_t ignored;     /* an index to skip, or -1 */
    uint64_t bytes;      /* index_fill: an element */
    bool wraps;          /* negative indices count from the end */
    const double *scale; /* embedding's gradient: per index, or NULL */
    union {
        float f32;
        double f64;
        int64_t i64;
    } alpha;
} index_job;

static void index_close(index_job *job)
{
    cpu_dense_close(&job->self);
    cpu_dense_close(&job->index);
    cpu_dense_close(&job->other);
}

/* Reads and checks the indices into a dimension. */
static core_status index_read(const core_call *call, index_job *job,
                              const char *name, const core_view *index,
                              int64_t dim)
{
    core_status status = cpu_dense_read(index, CORE_I64, &job->index);
    const int64_t *data = job->index.data;
    int64_t size = job->split.size, least = job->wraps ? -size : 0;

    job->count = index->numel;
    job->ignored = -1;
    for (int64_t i = 0; status == CORE_OK && i < job->count; i++)
        if (data[i] < least || data[i] >= size)
            return cpu_index_error(call, name, data[i], size, dim);
    return status;
}

/* -------------------------------------------------------------- reading -- */

/* Along the last dimension: single elements. */
#define SELECT_ELEMENTS(SIZE, TYPE)                                   \
    static void select_elements_##SIZE(void *context, int64_t begin,  \
                                       int64_t end)                   \
    {                                                                 \
        index_job *job = context;                                     \
        const int64_t *index = job->index.data;                       \
        for (int64_t row = begin; row < end; row++) {                 \
            const TYPE *from =                                        \
                (const TYPE *)job->self.data + row * job->split.size; \
            TYPE *to = (TYPE *)job->other.data + row * job->count;    \
            for (int64_t i = 0; i < job->count; i++)                  \
                to[i] = from[index[i]];                               \
        }                                                             \
    }
SELECT_ELEMENTS(1, uint8_t)
SELECT_ELEMENTS(2, uint16_t)
SELECT_ELEMENTS(4, uint32_t)
SELECT_ELEMENTS(8, uint64_t)

static void select_elements(index_job *job)
{
    uint32_t size = cpu_item_size(job->dtype);
    int64_t rows = job->split.outer;

    cpu_parallel_for(rows, cpu_grain(rows, job->count),
                     size == 1   ? select_elements_1
                     : size == 2 ? select_elements_2
                     : size == 4 ? select_elements_4
                                 : select_elements_8,
                     job);
}

static void select_task(void *context, int64_t begin, int64_t end)
{
    index_job *job = context;
    const int64_t *index = job->index.data;
    int64_t slice = job->split.inner * cpu_item_size(job->dtype);
    const char *from = job->self.data;
    char *to = job->other.data;

    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / job->count * job->split.size + index[i % job->count];

        cpu_move(to + i * slice, from + row * slice, slice);
    }
}

static core_status select_slices(core_call *call, const core_view *self,
                                 uint32_t dim, const char *name,
                                 const core_view *index,
                                 const core_view *result)
{
    index_job job = {.dtype = self->dtype, .split = cpu_split_at(self, dim)};
    core_status status = index_read(call, &job, name, index, dim);
    int64_t slices = job.split.outer * job.count;

    if (status == CORE_OK)
        status = cpu_dense_read(self, job.dtype, &job.self);
    if (status == CORE_OK)
        status = cpu_dense_open(result, job.dtype, &job.other);
    if (status != CORE_OK)
        goto done;
    if (result->numel > 0 && job.split.inner == 1 && job.split.outer > 1)
        select_elements(&job);
    else if (result->numel > 0)
        cpu_parallel_for(slices, cpu_grain(slices, job.split.inner + 2),
                         select_task, &job);
    cpu_dense_write(&job.other);
done:
    index_close(&job);
    return status;
}

/* index_select(self, dim, index) */
static core_status launch_select(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);

    (void)nargs;
    (void)nresults;
    return select_slices(call, self, cpu_dim(cpu_int(&args[1]), self->ndim),
                         "index", cpu_view(&args[2]), cpu_view(&results[0]));
}

/* embedding(weight, indices, …) */
static core_status launch_embedding(core_call *call, const core_value *args,
                                    uint32_t nargs, core_value *results,
                                    uint32_t nresults)
{
    (void)nargs;
    (void)nresults;
    return select_slices(call, cpu_view(&args[0]), 0, "indices",
                         cpu_view(&args[1]), cpu_view(&results[0]));
}

/* take(self, index): self as one row; negative indices count from its end */
static core_status launch_take(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]), *index = cpu_view(&args[1]);
    int64_t size = cpu_item_size(self->dtype), n = self->numel;
    cpu_dense from = {0}, at = {0}, to = {0};
    core_status status = cpu_dense_read(self, self->dtype, &from);

    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        status = cpu_dense_read(index, CORE_I64, &at);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[0]), self->dtype, &to);
    for (int64_t i = 0; status == CORE_OK && i < index->numel; i++) {
        int64_t k = ((const int64_t *)at.data)[i];

        if (k < -n || k >= n)
            status = cpu_index_error(call, "index", k, n, 0);
        else
            cpu_move((char *)to.data + i * size,
                     (const char *)from.data + (k < 0 ? k + n : k) * size,
                     size);
    }
    if (status == CORE_OK)
        cpu_dense_write(&to);
    cpu_dense_close(&from);
    cpu_dense_close(&at);
    cpu_dense_close(&to);
    return status;
}

/* -------------------------------------------------------------- writing -- */

/* A range of the elements around the indexed dimension: one outer index, and
 * some of inner. */
enum { COLUMNS = 256 };

typedef struct columns {
    int64_t outer, first, width;
} columns;

static int64_t column_blocks(const cpu_split *split)
{
    return split->outer * ((split->inner + COLUMNS - 1) / COLUMNS);
}

static columns columns_at(const cpu_split *split, int64_t block)
{
    int64_t blocks = (split->inner + COLUMNS - 1) / COLUMNS;
    columns at = {block / blocks, block % blocks * COLUMNS, COLUMNS};

    if (split->inner - at.first < at.width)
        at.width = split->inner - at.first;
    return at;
}

static void write_task(void *context, int64_t begin, int64_t end)
{
    index_job *job = context;
    const int64_t *index = job->index.data;
    int64_t item = cpu_item_size(job->dtype), inner = job->split.inner;

    for (int64_t block = begin; block < end; block++) {
        columns at = columns_at(&job->split, block);
        char *to = (char *)job->self.data +
                   (at.outer * job->split.size * inner + at.first) * item;
        const char *from = job->other.data;

        if (from)
            from += (at.outer * job->count * inner + at.first) * item;
        for (int64_t i = 0; i < job->count; i++) {
            int64_t k = index[i] < 0 ? index[i] + job->split.size : index[i];
            char *row = to + k * inner * item;

            if (from)
                cpu_move(row, from + i * inner * item, at.width * item);
            for (int64_t j = 0; !from && j < at.width; j++)
                cpu_move(row + j * item, &job->bytes, item);
        }
    }
}

#define ADD_TASK(NAME, TYPE)                                                 \
    static void add_task_##NAME(void *context, int64_t begin, int64_t end)   \
    {                                                                        \
        index_job *job = context;                                            \
        const int64_t *index = job->index.data;                              \
        int64_t inner = job->split.inner;                                    \
        for (int64_t block = begin; block < end; block++) {                  \
            columns at = columns_at(&job->split, block);                     \
            TYPE *to = (TYPE *)job->self.data +                              \
                       at.outer * job->split.size * inner + at.first;        \
            const TYPE *from = (const TYPE *)job->other.data +               \
                               at.outer * job->count * inner + at.first;     \
            for (int64_t i = 0; i < job->count; i++, from += inner) {        \
                TYPE *row = to + index[i] * inner;                           \
                TYPE alpha = job->alpha.NAME;                                \
                for (int64_t j = 0; j < at.width; j++)                       \
                    row[j] = cpu_add_##NAME(row[j],                          \
                                            cpu_mul_##NAME(alpha, from[j])); \
            }                                                                \
        }                                                                    \
    }
CPU_COMPUTE_TYPES(ADD_TASK)

static void run_columns(index_job *job, cpu_task task)
{
    int64_t blocks = column_blocks(&job->split);
    int64_t width = job->split.inner < COLUMNS ? job->split.inner : COLUMNS;

    cpu_parallel_for(blocks, cpu_grain(blocks, job->count * width), task, job);
}

static cpu_task add_task(core_dtype dtype)
{
    return dtype == CORE_F32   ? add_task_f32
           : dtype == CORE_F64 ? add_task_f64
                               : add_task_i64;
}

/* The result as a copy of self, and the indices; source may be NULL. */
static core_status write_open(core_call *call, index_job *job,
                              const core_value *args, const core_view *source,
                              const core_view *result)
{
    const core_view *self = cpu_view(&args[0]);
    uint32_t dim = cpu_dim(cpu_int(&args[1]), self->ndim);
    core_status status;

    job->split = cpu_split_at(self, dim);
    status = index_read(call, job, "index", cpu_view(&args[2]), dim);
    if (status == CORE_OK)
        status = cpu_dense_copy(result, self, job->dtype, &job->self);
    if (status == CORE_OK)
        status = cpu_dense_read(source, job->dtype, &job->other);
    return status;
}

/* index_copy(self, dim, index, source) */
static core_status launch_copy(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    const core_view *result = cpu_view(&results[0]);
    index_job job = {.dtype = result->dtype};
    core_status status =
        write_open(call, &job, args, cpu_view(&args[3]), result);

    (void)nargs;
    (void)nresults;
    if (status == CORE_OK) {
        run_columns(&job, write_task);
        cpu_dense_write(&job.self);
    }
    index_close(&job);
    return status;
}

/* index_fill.int_Scalar(self, dim, index, value) */
static core_status launch_fill(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    const core_view *result = cpu_view(&results[0]);
    const core_view *value = cpu_view(&args[3]);
    index_job job = {.dtype = result->dtype, .wraps = true};
    core_status status = write_open(call, &job, args, NULL, result);
    double number;
    int64_t integer;

    (void)nargs;
    (void)nresults;
    if (value) {
        cpu_get_f64(&number, value->dtype, cpu_address(value->memory), 1, 1);
        cpu_get_i64(&integer, value->dtype, cpu_address(value->memory), 1, 1);
    } else {
        number = cpu_float(&args[3]);
        integer = cpu_int(&args[3]);
    }
    if (result->dtype == CORE_BOOL)
        integer = number != 0;
    if (cpu_compute_dtype(result->dtype) == CORE_I64)
        cpu_put_i64(result->dtype, &job.bytes, 1, &integer, 1);
    else
        cpu_put_f64(result->dtype, &job.bytes, 1, &number, 1);
    if (status == CORE_OK) {
        run_columns(&job, write_task);
        cpu_dense_write(&job.self);
    }
    index_close(&job);
    return status;
}

/* index_add(self, dim, index, source, *, alpha) */
static core_status launch_add(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    const core_view *result = cpu_view(&results[0]);
    index_job job = {.dtype = cpu_compute_dtype(result->dtype)};
    core_status status =
        write_open(call, &job, args, cpu_view(&args[3]), result);

    (void)nargs;
    (void)nresults;
    if (job.dtype == CORE_F32)
        job.alpha.f32 = (float)cpu_float(&args[4]);
    else if (job.dtype == CORE_F64)
        job.alpha.f64 = cpu_float(&args[4]);
    else
        job.alpha.i64 = cpu_int(&args[4]);
    if (status == CORE_OK) {
        run_columns(&job, add_task(job.dtype));
        cpu_dense_write(&job.self);
    }
    index_close(&job);
    return status;
}

/* 1 / how often each index occurs. */
static core_status frequencies(const index_job *job, double **out)
{
    const int64_t *index = job->index.data;
    double *scale = cpu_allocate(job->split.size, sizeof(double));

    *out = scale;
    if (!scale)
        return CORE_ERROR_OUT_OF_MEMORY;
    memset(scale, 0, (size_t)job->split.size * sizeof(double));
    for (int64_t i = 0; i < job->count; i++)
        scale[index[i]]++;
    for (int64_t i = 0; i < job->split.size; i++)
        scale[i] = scale[i] > 0 ? 1 / scale[i] : 0;
    return CORE_OK;
}

/* embedding's gradient: the sum of the rows of each index, in their order. */
typedef struct row_sums {
    const index_job *job;
    const int64_t *first; /* per index, where its rows begin in `rows` */
    const int64_t *rows;
} row_sums;

enum { PART = 256 /* elements of a row, of a task */ };

static int64_t parts_of(const index_job *job)
{
    return (job->split.inner + PART - 1) / PART;
}

#define ROW_SUMS(NAME, TYPE, DTYPE)                                           \
    static void sum_part_##NAME(const row_sums *s, int64_t index, int64_t at, \
                                int64_t width, TYPE *sums)                    \
    {                                                                         \
        const index_job *job = s->job;                                        \
        int64_t inner = job->split.inner, size = cpu_item_size(job->dtype);   \
        TYPE scale = job->scale ? (TYPE)job->scale[index] : 1, row[PART];     \
        memset(sums, 0, (size_t)width * sizeof *sums);                        \
        for (int64_t q = s->first[index]; q < s->first[index + 1]; q++) {     \
            const char *from = (const char *)job->other.data +                \
                               (s->rows[q] * inner + at) * size;              \
            const TYPE *x = (const TYPE *)(const void *)from;                 \
            if (job->dtype != DTYPE) {                                        \
                cpu_get_##NAME(row, job->dtype, from, 1, width);              \
                x = row;                                                      \
            }                                                                 \
            for (int64_t j = 0; j < width; j++)                               \
                sums[j] += scale * x[j];                                      \
        }                                                                     \
    }                                                                         \
    static void sum_rows_##NAME(void *context, int64_t begin, int64_t end)    \
    {                                                                         \
        const row_sums *s = context;                                          \
        const index_job *job = s->job;                                        \
        int64_t inner = job->split.inner, size = cpu_item_size(job->dtype);   \
        int64_t parts = parts_of(job);                                        \
        TYPE sums[PART];                                                      \
        for (int64_t item = begin; item < end; item++) {                      \
            int64_t index = item / parts, at = item % parts * PART;           \
            int64_t width = inner - at < PART ? inner - at : PART;            \
            char *to = (char *)job->self.data + (index * inner + at) * size;  \
            if (index == job->ignored ||                                      \
                s->first[index] == s->first[index + 1]) {                     \
                memset(to, 0, (size_t)(width * size));                        \
                continue;                                                     \
            }                                                                 \
            sum_part_##NAME(s, index, at, width, sums);                       \
            cpu_put_##NAME(job->dtype, to, 1, sums, width);                   \
        }                                                                     \
    }
ROW_SUMS(f32, float, CORE_F32)
ROW_SUMS(f64, double, CORE_F64)

/* Sorts the rows of a gradient by their indices. */
static void sort_rows(const index_job *job, int64_t *first, int64_t *rows)
{
    const int64_t *index = job->index.data;
    int64_t size = job->split.size, sum = 0;

    memset(first, 0, (size_t)(size + 1) * sizeof *first);
    for (int64_t i = 0; i < job->count; i++)
        first[index[i]]++;
    for (int64_t k = 0; k <= size; k++) {
        sum += first[k];
        first[k] = sum;
    }
    for (int64_t i = job->count; i-- > 0;)
        rows[--first[index[i]]] = i;
}

static core_status sum_rows(const index_job *job)
{
    int64_t size = job->split.size, items = size * parts_of(job);
    int64_t cost = job->split.inner * (job->count + size);
    int64_t *first = cpu_allocate(size + 1 + job->count, sizeof *first);
    row_sums sums = {job, first, first + size + 1};

    if (!first)
        return CORE_ERROR_OUT_OF_MEMORY;
    sort_rows(job, first, first + size + 1);
    if (cost > 0)
        cpu_parallel_for(items, cpu_grain(items, cost / items),
                         cpu_compute_dtype(job->dtype) == CORE_F32
                             ? sum_rows_f32
                             : sum_rows_f64,
                         &sums);
    free(first);
    return CORE_OK;
}

/* embedding_dense_backward(grad_output, indices, num_weights, padding_idx,
 * scale_grad_by_freq) */
static core_status launch_gradient(core_call *call, const core_value *args,
                                   uint32_t nargs, core_value *results,
                                   uint32_t nresults)
{
    const core_view *grad = cpu_view(&args[0]);
    const core_view *result = cpu_view(&results[0]);
    index_job job = {.dtype = cpu_compute_dtype(result->dtype),
                     .split = cpu_split_at(result, 0)};
    double *scale = NULL;
    core_status status =
        index_read(call, &job, "indices", cpu_view(&args[1]), 0);

    (void)nargs;
    (void)nresults;
    job.ignored = cpu_int(&args[3]);
    if (status == CORE_OK && cpu_int(&args[4]))
        status = frequencies(&job, &scale);
    if (grad->dtype == result->dtype)
        job.dtype = grad->dtype;
    if (status == CORE_OK)
        status = cpu_dense_read(grad, job.dtype, &job.other);
    if (status == CORE_OK)
        status = cpu_dense_open(result, job.dtype, &job.self);
    if (status != CORE_OK)
        goto done;
    job.scale = scale;
    status = sum_rows(&job);
    if (status == CORE_OK)
        cpu_dense_write(&job.self);
done:
    free(scale);
    index_close(&job);
    return status;
}

#define WRITES                                 \
    {                                          \
        CPU_ALL, CPU_INDICES, CPU_ALL, CPU_ALL \
    }

static const cpu_kernel kernels[] = {
    {"index_select", launch_select, NULL, {CPU_ALL, CPU_INDICES, CPU_ALL}, 0},
    {"embedding", launch_embedding, NULL, {CPU_ALL, CPU_INDICES, CPU_ALL}, 0},
    {"embedding_dense_backward",
     launch_gradient,
     NULL,
     {CPU_FLOATS, CPU_INDICES, CPU_FLOATS},
     0},
    {"take", launch_take, NULL, {CPU_ALL, CPU_INDICES, CPU_ALL}, 0},
    {"index_add", launch_add, NULL, WRITES, 0},
    {"index_copy", launch_copy, NULL, WRITES, 0},
    {"index_fill.int_Scalar",
     launch_fill,
     NULL,
     {CPU_ALL, CPU_INDICES, CPU_ALL},
     0},
    {"index_fill.int_Tensor", launch_fill, NULL, WRITES, 0},
};

const cpu_kernel_table cpu_index_kernels = {kernels,
                                            sizeof kernels / sizeof kernels[0]};
