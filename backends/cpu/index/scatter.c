/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* gather and the scatters.  All work is line by line along one dimension, in
 * order within a line, and lines share no elements, so results do not depend on
 * the number of threads. */

#include <math.h>
#include <stdlib.h>

#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

/* Indices are read in groups of this size. */
enum { STEP = 256 };

enum { REDUCE_SUM, REDUCE_PROD, REDUCE_MEAN, REDUCE_MAX, REDUCE_MIN };

typedef struct gather_job {
    const core_view *index;   /* its lines are the units of work */
    const core_view *full;    /* gather: self.  scatter: the result */
    const core_view *indexed; /* gather: the result.  scatter: src, or NULL */
    uint64_t value;           /* instead of src: an element's bytes */
    core_value number;        /* the same as a number */
    uint32_t dim;
    uint32_t reduction;
    bool include_self;
    bool failed;
    int64_t bad; /* an index out of range */
    core_status status;
} gather_job;

static void *line_at(const gather_job *job, const core_view *view, int64_t line)
{
    return (char *)cpu_address(view->memory) +
           cpu_line_offset_in(job->index, view, job->dim, line) *
               cpu_item_size(view->dtype);
}

static void bad_index(gather_job *job, int64_t index)
{
    __atomic_store_n(&job->bad, index, __ATOMIC_RELAXED);
    __atomic_store_n(&job->failed, true, __ATOMIC_RELAXED);
}

/* Reads and checks n indices at a stride: in place, or in `memory`.  NULL when
 * one is out of range. */
static const int64_t *indices_at(gather_job *job, const char *from,
                                 int64_t stride, int64_t n, int64_t *memory)
{
    int64_t size = cpu_line_size(job->full, job->dim);
    const int64_t *index = (const int64_t *)(const void *)from;
    uint64_t signs = 0; /* of what is negative for an index out of range */

    if (job->index->dtype != CORE_I64 || stride != 1) {
        cpu_get_i64(memory, job->index->dtype, from, stride, n);
        index = memory;
    }
    for (int64_t i = 0; i < n; i++)
        signs |=
            (uint64_t)index[i] | ((uint64_t)(size - 1) - (uint64_t)index[i]);
    for (int64_t i = 0; signs >> 63 && i < n; i++)
        if ((uint64_t)index[i] >= (uint64_t)size) {
            bad_index(job, index[i]);
            return NULL;
        }
    return index;
}

/* Those of a line. */
static const int64_t *indices_read(gather_job *job, const void *line,
                                   int64_t from, int64_t n, int64_t *memory)
{
    int64_t stride = cpu_line_stride(job->index, job->dim);

    return indices_at(job,
                      (const char *)line +
                          from * stride * cpu_item_size(job->index->dtype),
                      stride, n, memory);
}

/* ------------------------------------------------------------- movement -- */

/* X(item size, type) */
#define ITEMS(X)   \
    X(1, uint8_t)  \
    X(2, uint16_t) \
    X(4, uint32_t) \
    X(8, uint64_t)

#define MOVE_TASKS(SIZE, TYPE)                                            \
    static void gather_##SIZE(void *context, int64_t begin, int64_t end)  \
    {                                                                     \
        gather_job *job = context;                                        \
        const int64_t *index;                                             \
        int64_t memory[STEP], n = cpu_line_size(job->index, job->dim);    \
        int64_t full_stride = cpu_line_stride(job->full, job->dim);       \
        int64_t indexed_stride = cpu_line_stride(job->indexed, job->dim); \
        for (int64_t line = begin; line < end; line++) {                  \
            const void *indices = line_at(job, job->index, line);         \
            const TYPE *from = line_at(job, job->full, line);             \
            TYPE *to = line_at(job, job->indexed, line);                  \
            for (int64_t i = 0; i < n; i += STEP) {                       \
                int64_t m = n - i < STEP ? n - i : STEP;                  \
                index = indices_read(job, indices, i, m, memory);         \
                if (!index)                                               \
                    return;                                               \
                bool dense = full_stride == 1 && indexed_stride == 1;     \
                for (int64_t k = 0; dense && k < m; k++)                  \
                    to[i + k] = from[index[k]];                           \
                for (int64_t k = 0; !dense && k < m; k++)                 \
                    to[(i + k) * indexed_stride] =                        \
                        from[index[k] * full_stride];                     \
            }                                                             \
        }                                                                 \
    }                                                                     \
    static void scatter_##SIZE(void *context, int64_t begin, int64_t end) \
    {                                                                     \
        gather_job *job = context;                                        \
        const int64_t *index;                                             \
        int64_t memory[STEP], n = cpu_line_size(job->index, job->dim);    \
        int64_t full_stride = cpu_line_stride(job->full, job->dim);       \
        int64_t indexed_stride =                                          \
            job->indexed ? cpu_line_stride(job->indexed, job->dim) : 0;   \
        TYPE value;                                                       \
        memcpy(&value, &job->value, sizeof value);                        \
        for (int64_t line = begin; line < end; line++) {                  \
            const void *indices = line_at(job, job->index, line);         \
            const TYPE *from =                                            \
                job->indexed ? line_at(job, job->indexed, line) : &value; \
            TYPE *to = line_at(job, job->full, line);                     \
            for (int64_t i = 0; i < n; i += STEP) {                       \
                int64_t m = n - i < STEP ? n - i : STEP;                  \
                index = indices_read(job, indices, i, m, memory);         \
                if (!index)                                               \
                    return;                                               \
                for (int64_t k = 0; k < m; k++)                           \
                    to[index[k] * full_stride] =                          \
                        from[(i + k) * indexed_stride];                   \
            }                                                             \
        }                                                                 \
    }
ITEMS(MOVE_TASKS)

#define GATHER_CASE(SIZE, TYPE) \
    case SIZE:                  \
        return gather_##SIZE;
#define SCATTER_CASE(SIZE, TYPE) \
    case SIZE:                   \
        return scatter_##SIZE;

static cpu_task gather_task(uint32_t size)
{
    switch (size) {
        ITEMS(GATHER_CASE)
    }
    return NULL;
}

static cpu_task scatter_task(uint32_t size)
{
    switch (size) {
        ITEMS(SCATTER_CASE)
    }
    return NULL;
}

/* ------------------------------------------------------------ reduction -- */

/* NaN wins over every number. */
#define LARGER(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#define SMALLER(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))

#define MEAN_OF_FLOATS(sum, count) ((sum) / (count))

static int64_t floored(int64_t sum, int64_t count)
{
    return sum / count - (sum % count < 0);
}

/* An integer stays exact among integers. */
static inline int64_t number_i64(const core_value *value)
{
    return cpu_int(value);
}
static inline double number_f64(const core_value *value)
{
    return cpu_float(value);
}
static inline float number_f32(const core_value *value)
{
    return (float)cpu_float(value);
}

/* Copies a line of the result to `row`; `count` has the number of values that
 * each of its elements has received. */
#define REDUCE_TASK(NAME, TYPE, MEAN)                                        \
    static void combine_##NAME(const gather_job *job, TYPE *row,             \
                               int32_t *count, const int64_t *index,         \
                               const TYPE *source, int64_t n)                \
    {                                                                        \
        bool adds = job->reduction == REDUCE_SUM && job->include_self;       \
        for (int64_t k = 0; adds && k < n; k++)                              \
            row[index[k]] = cpu_add_##NAME(row[index[k]], source[k]);        \
        for (int64_t k = 0; !adds && k < n; k++) {                           \
            TYPE *to = row + index[k], from = source[k];                     \
            if (count[index[k]]++ == 0 && !job->include_self)                \
                *to = from;                                                  \
            else if (job->reduction == REDUCE_PROD)                          \
                *to = cpu_mul_##NAME(*to, from);                             \
            else if (job->reduction == REDUCE_MAX)                           \
                *to = *to != *to ? *to : LARGER(*to, from);                  \
            else if (job->reduction == REDUCE_MIN)                           \
                *to = *to != *to ? *to : SMALLER(*to, from);                 \
            else                                                             \
                *to = cpu_add_##NAME(*to, from);                             \
        }                                                                    \
    }                                                                        \
    static void reduce_line_##NAME(gather_job *job, int64_t line, TYPE *row, \
                                   int32_t *count)                           \
    {                                                                        \
        const int64_t *index;                                                \
        int64_t memory[STEP], n = cpu_line_size(job->index, job->dim);       \
        TYPE source[STEP];                                                   \
        const core_view *full = job->full, *indexed = job->indexed;          \
        int64_t size = cpu_line_size(full, job->dim);                        \
        int64_t stride = cpu_line_stride(full, job->dim);                    \
        int64_t from_stride =                                                \
            indexed ? cpu_line_stride(indexed, job->dim) : 0;                \
        const char *from = indexed ? line_at(job, indexed, line) : NULL;     \
        memset(count, 0, (size_t)size * sizeof *count);                      \
        cpu_get_##NAME(row, full->dtype, line_at(job, full, line), stride,   \
                       size);                                                \
        for (int64_t k = 0; k < STEP && !indexed; k++)                       \
            source[k] = number_##NAME(&job->number);                         \
        for (int64_t i = 0; i < n; i += STEP) {                              \
            int64_t m = n - i < STEP ? n - i : STEP;                         \
            index = indices_read(job, line_at(job, job->index, line), i, m,  \
                                 memory);                                    \
            if (!index)                                                      \
                return;                                                      \
            if (indexed)                                                     \
                cpu_get_##NAME(source, indexed->dtype,                       \
                               from + i * from_stride *                      \
                                          cpu_item_size(indexed->dtype),     \
                               from_stride, m);                              \
            combine_##NAME(job, row, count, index, source, m);               \
        }                                                                    \
        for (int64_t i = 0; job->reduction == REDUCE_MEAN && i < size; i++)  \
            if (count[i] > 0)                                                \
                row[i] = MEAN(row[i], count[i] + job->include_self);         \
        cpu_put_##NAME(full->dtype, line_at(job, full, line), stride, row,   \
                       size);                                                \
    }                                                                        \
    static void reduce_##NAME(void *context, int64_t begin, int64_t end)     \
    {                                                                        \
        gather_job *job = context;                                           \
        int64_t size = cpu_line_size(job->full, job->dim);                   \
        TYPE *row = cpu_allocate(size, sizeof(TYPE) + sizeof(int32_t));      \
        if (!row) {                                                          \
            __atomic_store_n(&job->status, CORE_ERROR_OUT_OF_MEMORY,         \
                             __ATOMIC_RELAXED);                              \
            return;                                                          \
        }                                                                    \
        for (int64_t line = begin; line < end; line++)                       \
            reduce_line_##NAME(job, line, row, (int32_t *)(row + size));     \
        free(row);                                                           \
    }
REDUCE_TASK(f32, float, MEAN_OF_FLOATS)
REDUCE_TASK(f64, double, MEAN_OF_FLOATS)
REDUCE_TASK(i64, int64_t, floored)

/* ---------------------------------------------------- neighbouring lines -- */

/* Along another dimension than the last: a strip is so many lines that are
 * neighbours in memory in every operand, in which the same position of all is
 * processed together; each line in its own order. */
static bool neighbours(const gather_job *job)
{
    uint32_t last = job->index->ndim - 1;

    return job->index->ndim > 1 && job->dim < last &&
           job->index->strides[last] == 1 && job->full->strides[last] == 1 &&
           (!job->indexed || job->indexed->strides[last] == 1);
}

static int64_t strips_across(const gather_job *job)
{
    return (job->index->sizes[job->index->ndim - 1] + STEP - 1) / STEP;
}

typedef struct strip {
    int64_t line, width;
} strip;

static strip strip_at(const gather_job *job, int64_t number)
{
    int64_t inner = job->index->sizes[job->index->ndim - 1];
    int64_t across = strips_across(job), first = number % across * STEP;

    return (strip){number / across * inner + first,
                   inner - first < STEP ? inner - first : STEP};
}

/* OF: an assignment to or from `full`, the element of the indexed line, and
 * `one`, that of the other. */
#define STRIPS(NAME, TYPE, OF)                                               \
    static void NAME(void *context, int64_t begin, int64_t end)              \
    {                                                                        \
        gather_job *job = context;                                           \
        int64_t memory[STEP], n = cpu_line_size(job->index, job->dim);       \
        int64_t full_stride = cpu_line_stride(job->full, job->dim);          \
        int64_t one_stride = cpu_line_stride(job->indexed, job->dim);        \
        int64_t step = cpu_line_stride(job->index, job->dim) *               \
                       cpu_item_size(job->index->dtype);                     \
        for (int64_t number = begin; number < end; number++) {               \
            strip s = strip_at(job, number);                                 \
            const char *indices = line_at(job, job->index, s.line);          \
            TYPE *whole = line_at(job, job->full, s.line);                   \
            TYPE *line = line_at(job, job->indexed, s.line);                 \
            for (int64_t i = 0; i < n; i++) {                                \
                const int64_t *index =                                       \
                    indices_at(job, indices + i * step, 1, s.width, memory); \
                if (!index)                                                  \
                    return;                                                  \
                for (int64_t k = 0; k < s.width; k++) {                      \
                    TYPE *full = whole + index[k] * full_stride + k;         \
                    TYPE *one = line + i * one_stride + k;                   \
                    OF;                                                      \
                }                                                            \
            }                                                                \
        }                                                                    \
    }

#define MOVE_STRIPS(SIZE, TYPE)                      \
    STRIPS(gather_strips_##SIZE, TYPE, *one = *full) \
    STRIPS(scatter_strips_##SIZE, TYPE, *full = *one)
ITEMS(MOVE_STRIPS)

#define GATHER_STRIPS_CASE(SIZE, TYPE) \
    case SIZE:                         \
        return gather_strips_##SIZE;
#define SCATTER_STRIPS_CASE(SIZE, TYPE) \
    case SIZE:                          \
        return scatter_strips_##SIZE;

static cpu_task gather_strips_task(uint32_t size)
{
    switch (size) {
        ITEMS(GATHER_STRIPS_CASE)
    }
    return NULL;
}

static cpu_task scatter_strips_task(uint32_t size)
{
    switch (size) {
        ITEMS(SCATTER_STRIPS_CASE)
    }
    return NULL;
}

/* Sums of elements of the compute type are added in place. */
static bool adds_in_place(const gather_job *job)
{
    core_dtype dtype = job->full->dtype;

    return job->reduction == REDUCE_SUM && job->include_self && job->indexed &&
           dtype == job->indexed->dtype && dtype == cpu_compute_dtype(dtype);
}

#define ADD_TASKS(NAME, TYPE)                                                  \
    STRIPS(add_strips_##NAME, TYPE, *full = cpu_add_##NAME(*full, *one))       \
    static void add_##NAME(void *context, int64_t begin, int64_t end)          \
    {                                                                          \
        gather_job *job = context;                                             \
        int64_t memory[STEP], n = cpu_line_size(job->index, job->dim);         \
        int64_t full_stride = cpu_line_stride(job->full, job->dim);            \
        int64_t indexed_stride = cpu_line_stride(job->indexed, job->dim);      \
        for (int64_t line = begin; line < end; line++) {                       \
            const void *indices = line_at(job, job->index, line);              \
            const TYPE *from = line_at(job, job->indexed, line);               \
            TYPE *to = line_at(job, job->full, line);                          \
            for (int64_t i = 0; i < n; i += STEP) {                            \
                int64_t m = n - i < STEP ? n - i : STEP;                       \
                const int64_t *index =                                         \
                    indices_read(job, indices, i, m, memory);                  \
                if (!index)                                                    \
                    return;                                                    \
                bool dense = full_stride == 1 && indexed_stride == 1;          \
                for (int64_t k = 0; dense && k < m; k++)                       \
                    to[index[k]] = cpu_add_##NAME(to[index[k]], from[i + k]);  \
                for (int64_t k = 0; !dense && k < m; k++) {                    \
                    TYPE *at = to + index[k] * full_stride;                    \
                    *at = cpu_add_##NAME(*at, from[(i + k) * indexed_stride]); \
                }                                                              \
            }                                                                  \
        }                                                                      \
    }
ADD_TASKS(f32, float)
ADD_TASKS(f64, double)
ADD_TASKS(i64, int64_t)

/* -------------------------------------------------------------- kernels -- */

/* strips: instead of `task`, for neighbours; NULL: there is no such task. */
static core_status run_lines(core_call *call, gather_job *job, cpu_task task,
                             cpu_task strips)
{
    int64_t items, cost = cpu_line_size(job->index, job->dim);
    core_string op;

    if (job->index->numel == 0)
        return CORE_OK;
    items = cpu_line_count(job->index, job->dim);
    if (strips && neighbours(job)) {
        items = items / job->index->sizes[job->index->ndim - 1] *
                strips_across(job);
        cost = job->index->numel / items;
        task = strips;
    }
    cpu_parallel_for(items, cpu_grain(items, 4 * cost + 8), task, job);
    if (job->failed)
        return cpu_index_error(call, "index", job->bad,
                               cpu_line_size(job->full, job->dim), job->dim);
    op = cpu_operator(call);
    if (job->status != CORE_OK)
        return cpu_error(job->status,
                         "%.*s: no host memory for a line of %lld elements",
                         (int)op.size, op.data,
                         (long long)cpu_line_size(job->full, job->dim));
    return CORE_OK;
}

/* gather(self, dim, index, *, sparse_grad) */
static core_status launch_gather(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    gather_job job = {.full = cpu_view(&args[0]),
                      .index = cpu_view(&args[2]),
                      .indexed = cpu_view(&results[0])};

    (void)nargs;
    (void)nresults;
    job.dim = cpu_dim(cpu_int(&args[1]), job.full->ndim);
    return run_lines(call, &job, gather_task(cpu_item_size(job.full->dtype)),
                     gather_strips_task(cpu_item_size(job.full->dtype)));
}

/* Reads the common arguments of scatters: self, dim, index, and src or a
 * number. */
static void scatter_begin(gather_job *job, const core_value *args,
                          const core_value *results)
{
    const core_view *self = cpu_view(&args[0]);

    job->full = cpu_view(&results[0]);
    job->index = cpu_view(&args[2]);
    job->indexed = cpu_view(&args[3]);
    job->dim = cpu_dim(cpu_int(&args[1]), self->ndim);
    if (cpu_address(self->memory) != cpu_address(job->full->memory))
        cpu_view_copy(job->full, self);
    if (!job->indexed) {
        double number = cpu_float(&args[3]);

        job->number = args[3];
        if (job->full->dtype == CORE_BOOL)
            cpu_put_i64(CORE_BOOL, &job->value, 1, &(int64_t){number != 0}, 1);
        else if (cpu_compute_dtype(job->full->dtype) == CORE_I64)
            cpu_put_i64(job->full->dtype, &job->value, 1,
                        &(int64_t){cpu_int(&args[3])}, 1);
        else
            cpu_put_f64(job->full->dtype, &job->value, 1, &number, 1);
    }
}

/* scatter.src(self, dim, index, src), scatter.value(self, dim, index, value) */
static core_status launch_scatter(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    gather_job job = {0};

    (void)nargs;
    (void)nresults;
    scatter_begin(&job, args, results);
    return run_lines(call, &job, scatter_task(cpu_item_size(job.full->dtype)),
                     job.indexed
                         ? scatter_strips_task(cpu_item_size(job.full->dtype))
                         : NULL);
}

static core_status reduction_of(const core_call *call, const core_value *name,
                                uint32_t *out)
{
    static const struct {
        const char *name;
        uint32_t reduction;
    } known[] = {{"sum", REDUCE_SUM},   {"add", REDUCE_SUM},
                 {"prod", REDUCE_PROD}, {"multiply", REDUCE_PROD},
                 {"mean", REDUCE_MEAN}, {"amax", REDUCE_MAX},
                 {"amin", REDUCE_MIN}};
    core_string op = cpu_operator(call);

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strlen(known[i].name) == name->count &&
            memcmp(known[i].name, name->u.string, name->count) == 0) {
            *out = known[i].reduction;
            return CORE_OK;
        }
    return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                     "%.*s: no reduction is called '%.*s'", (int)op.size,
                     op.data, (int)name->count, name->u.string);
}

/* A dense copy of a view in f32. */
typedef struct wide {
    core_view view;
    int64_t strides[CORE_MAX_NDIM];
    cpu_dense dense;
} wide;

static core_status widen(const core_view *view, wide *out)
{
    int64_t stride = 1;
    core_status status = cpu_dense_update(view, CORE_F32, &out->dense);

    out->view = *view;
    out->view.dtype = CORE_F32;
    out->view.strides = out->strides;
    for (uint32_t d = view->ndim; d-- > 0;) {
        out->strides[d] = stride;
        stride *= view->sizes[d];
    }
    out->view.memory = (core_memory){.handle = out->dense.data};
    return status;
}

/* Sums of halves along an outer dimension: lines are far apart in memory, so
 * they are not converted one by one. */
static core_status add_halves(core_call *call, gather_job *job)
{
    wide full = {.dense = {0}}, from = {.dense = {0}};
    core_status status = widen(job->full, &full);

    if (status == CORE_OK)
        status = widen(job->indexed, &from);
    if (status == CORE_OK) {
        job->full = &full.view;
        job->indexed = &from.view;
        status = run_lines(call, job, add_f32, add_strips_f32);
    }
    if (status == CORE_OK)
        cpu_dense_write(&full.dense);
    cpu_dense_close(&full.dense);
    cpu_dense_close(&from.dense);
    return status;
}

static bool adds_halves(const gather_job *job)
{
    core_dtype dtype = job->full->dtype;

    return job->reduction == REDUCE_SUM && job->include_self && job->indexed &&
           dtype == job->indexed->dtype &&
           (dtype == CORE_F16 || dtype == CORE_BF16) && neighbours(job);
}

/* scatter_add(self, dim, index, src), scatter.reduce(…, *, reduce),
 * scatter_reduce.two(…, reduce, *, include_self) */
static core_status launch_reduce(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    gather_job job = {.include_self = nargs < 6 || cpu_int(&args[5])};
    core_status status = CORE_OK;
    core_dtype dtype = cpu_compute_dtype(cpu_view(&results[0])->dtype);

    (void)nresults;
    if (nargs > 4)
        status = reduction_of(call, &args[4], &job.reduction);
    if (status != CORE_OK)
        return status;
    scatter_begin(&job, args, results);
    if (adds_in_place(&job))
        return run_lines(call, &job,
                         dtype == CORE_F32   ? add_f32
                         : dtype == CORE_F64 ? add_f64
                                             : add_i64,
                         dtype == CORE_F32   ? add_strips_f32
                         : dtype == CORE_F64 ? add_strips_f64
                                             : add_strips_i64);
    if (adds_halves(&job))
        return add_halves(call, &job);
    return run_lines(call, &job,
                     dtype == CORE_F32   ? reduce_f32
                     : dtype == CORE_F64 ? reduce_f64
                                         : reduce_i64,
                     NULL);
}

#define SIGNATURE                              \
    {                                          \
        CPU_ALL, CPU_INDICES, CPU_ALL, CPU_ALL \
    }

static const cpu_kernel kernels[] = {
    {"gather", launch_gather, NULL, {CPU_ALL, CPU_INDICES, CPU_ALL}, 0},
    {"scatter.src", launch_scatter, NULL, SIGNATURE, 0},
    {"scatter.value", launch_scatter, NULL, {CPU_ALL, CPU_INDICES, CPU_ALL}, 0},
    {"scatter_add", launch_reduce, NULL, SIGNATURE, 0},
    {"scatter.reduce", launch_reduce, NULL, SIGNATURE, 0},
    {"scatter.value_reduce",
     launch_reduce,
     NULL,
     {CPU_ALL, CPU_INDICES, CPU_ALL},
     0},
    {"scatter_reduce.two", launch_reduce, NULL, SIGNATURE, 0},
};

const cpu_kernel_table cpu_gather_kernels = {kernels, sizeof kernels /
                                                          sizeof kernels[0]};
