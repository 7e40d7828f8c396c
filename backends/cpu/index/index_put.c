/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* index_put.c: index.Tensor and index_put, with a list of index tensors that
 * broadcast together, one for each indexed dimension (absent elsewhere).
 *
 * With self dense, an element's offset is the sum of three: by the
 * dimensions before the indexed ones, by the indices, and by the dimensions
 * after.  All three are tabulated.  If the indexed dimensions are not
 * adjacent, the indices come first in the result, followed by all other
 * dimensions. */

#include <stdlib.h>

#include "runtime/thread_pool.h"
#include "tables.h"
#include "view.h"

typedef struct table {
    int64_t *offsets;
    int64_t count;
} table;

typedef struct indexing {
    core_call *call;
    core_dtype dtype;      /* of the buffers */
    cpu_dense self, other; /* the indexed operand; the one with the result's
                            * shape */
    table before, indices, after;
    bool after_follow; /* after's offsets are 0, 1, 2, … */
} indexing;

static void indexing_close(indexing *job)
{
    cpu_dense_close(&job->self);
    cpu_dense_close(&job->other);
    free(job->before.offsets);
    free(job->indices.offsets);
    free(job->after.offsets);
}

/* --------------------------------------------------------------- tables -- */

/* The offsets of all positions in some dimensions, row-major. */
static core_status table_fill(table *out, uint32_t ndim, const int64_t *sizes,
                              const int64_t *strides)
{
    int64_t *offsets;

    out->count = 1;
    for (uint32_t d = 0; d < ndim; d++)
        out->count *= sizes[d];
    offsets = out->offsets = cpu_allocate(out->count, sizeof(int64_t));
    if (!offsets)
        return CORE_ERROR_OUT_OF_MEMORY;
    for (int64_t i = 0; i < out->count; i++) {
        int64_t rest = i;

        offsets[i] = 0;
        for (uint32_t d = ndim; d-- > 0;) {
            offsets[i] += rest % sizes[d] * strides[d];
            rest /= sizes[d];
        }
    }
    return CORE_OK;
}

/* The shape that the index tensors broadcast to, as a view without memory. */
static void index_shape(const core_value *indices, core_view *shape,
                        int64_t *sizes)
{
    shape->ndim = 0;
    for (uint32_t k = 0; k < indices->count; k++) {
        const core_view *view = indices->u.views[k];

        if (view && view->ndim > shape->ndim)
            shape->ndim = view->ndim;
    }
    for (uint32_t d = 0; d < shape->ndim; d++)
        sizes[d] = 1;
    for (uint32_t k = 0; k < indices->count; k++) {
        const core_view *view = indices->u.views[k];
        uint32_t more = view ? shape->ndim - view->ndim : 0;

        for (uint32_t d = 0; view && d < view->ndim; d++)
            if (view->sizes[d] != 1)
                sizes[d + more] = view->sizes[d];
    }
    shape->sizes = sizes;
    shape->numel = 1;
    for (uint32_t d = 0; d < shape->ndim; d++)
        shape->numel *= sizes[d];
}

/* Adds the offsets that one index tensor selects along its dimension. */
static core_status table_add(indexing *job, const core_view *index,
                             const core_view *shape, int64_t size,
                             int64_t stride, int64_t dim)
{
    cpu_dense dense = {0};
    core_status status = cpu_dense_expand(index, shape, CORE_I64, &dense);
    const int64_t *data = dense.data;

    for (int64_t i = 0; status == CORE_OK && i < shape->numel; i++) {
        int64_t k = data[i];

        if (k < -size || k >= size)
            status = cpu_index_error(job->call, "indices", k, size, dim);
        else
            job->indices.offsets[i] += (k < 0 ? k + size : k) * stride;
    }
    cpu_dense_close(&dense);
    return status;
}

static core_status tables_build(indexing *job, const core_view *self,
                                const core_value *list)
{
    int64_t strides[CORE_MAX_NDIM], shape_sizes[CORE_MAX_NDIM];
    int64_t sizes[2][CORE_MAX_NDIM], steps[2][CORE_MAX_NDIM], stride = 1;
    uint32_t first = CORE_MAX_NDIM, last = 0, indexed = 0, n[2] = {0, 0};
    core_view shape = {0};
    core_status status;
    bool adjacent;

    for (uint32_t d = self->ndim; d-- > 0;) {
        strides[d] = stride;
        stride *= self->sizes[d];
    }
    for (uint32_t k = 0; k < list->count; k++)
        if (list->u.views[k]) {
            first = indexed++ == 0 ? k : first;
            last = k;
        }
    adjacent = indexed == last - first + 1;
    for (uint32_t d = 0; d < self->ndim; d++) {
        uint32_t side = !adjacent || d > first;

        if (d < list->count && list->u.views[d])
            continue;
        sizes[side][n[side]] = self->sizes[d];
        steps[side][n[side]++] = strides[d];
    }
    job->after_follow = true;
    status = table_fill(&job->before, n[0], sizes[0], steps[0]);
    if (status == CORE_OK)
        status = table_fill(&job->after, n[1], sizes[1], steps[1]);
    if (status != CORE_OK)
        return status;
    for (int64_t i = 0; i < job->after.count; i++)
        job->after_follow &= job->after.offsets[i] == i;
    index_shape(list, &shape, shape_sizes);
    job->indices.count = shape.numel;
    job->indices.offsets = cpu_allocate(shape.numel, sizeof(int64_t));
    if (!job->indices.offsets)
        return CORE_ERROR_OUT_OF_MEMORY;
    memset(job->indices.offsets, 0, (size_t)shape.numel * sizeof(int64_t));
    for (uint32_t k = 0; k < list->count && status == CORE_OK; k++)
        if (list->u.views[k])
            status = table_add(job, list->u.views[k], &shape, self->sizes[k],
                               strides[k], k);
    return status;
}

/* ---------------------------------------------------------------- tasks -- */

/* Elements before x indices of the result. */
static void read_task(void *context, int64_t begin, int64_t end)
{
    const indexing *job = context;
    int64_t item = cpu_item_size(job->dtype), n = job->after.count;
    const int64_t *after = job->after.offsets;

    for (int64_t i = begin; i < end; i++) {
        const char *from = (const char *)job->self.data +
                           (job->before.offsets[i / job->indices.count] +
                            job->indices.offsets[i % job->indices.count]) *
                               item;
        char *to = (char *)job->other.data + i * n * item;

        if (job->after_follow) {
            cpu_move(to, from, n * item);
            continue;
        }
        for (int64_t j = 0; j < n; j++)
            cpu_move(to + j * item, from + after[j] * item, item);
    }
}

/* Elements of one index that follow each other in the values, and in self if
 * after_follow: offsets of the first, and how many. */
typedef struct segment {
    int64_t to, from, after, count;
} segment;

/* That of the elements before x after from j on, up to end. */
static inline segment segment_at(const indexing *job, int64_t i, int64_t j,
                                 int64_t end)
{
    int64_t n = job->after.count, before = j / n, after = j - before * n;

    return (segment){job->before.offsets[before] + job->indices.offsets[i],
                     (before * job->indices.count + i) * n + after, after,
                     n - after < end - j ? n - after : end - j};
}

/* Elements before x after: each processes the indices in order, so that the
 * last of equal ones wins, and sums have one order. */
static void write_task(void *context, int64_t begin, int64_t end)
{
    const indexing *job = context;
    int64_t item = cpu_item_size(job->dtype);
    segment s;

    for (int64_t i = 0; i < job->indices.count; i++)
        for (int64_t j = begin; j < end; j += s.count) {
            const int64_t *after;
            char *to;
            const char *from;

            s = segment_at(job, i, j, end);
            after = job->after.offsets + s.after;
            to = (char *)job->self.data + s.to * item;
            from = (const char *)job->other.data + s.from * item;
            if (job->after_follow) {
                cpu_move(to + s.after * item, from, s.count * item);
                continue;
            }
            for (int64_t k = 0; k < s.count; k++)
                cpu_move(to + after[k] * item, from + k * item, item);
        }
}

#define ADD_TASK(NAME, TYPE)                                                \
    static void add_task_##NAME(void *context, int64_t begin, int64_t end)  \
    {                                                                       \
        const indexing *job = context;                                      \
        segment s;                                                          \
        for (int64_t i = 0; i < job->indices.count; i++)                    \
            for (int64_t j = begin; j < end; j += s.count) {                \
                const int64_t *after;                                       \
                TYPE *to;                                                   \
                const TYPE *from;                                           \
                s = segment_at(job, i, j, end);                             \
                after = job->after.offsets + s.after;                       \
                to = (TYPE *)job->self.data + s.to;                         \
                from = (const TYPE *)job->other.data + s.from;              \
                for (int64_t k = 0; job->after_follow && k < s.count; k++)  \
                    to[s.after + k] =                                       \
                        cpu_add_##NAME(to[s.after + k], from[k]);           \
                for (int64_t k = 0; !job->after_follow && k < s.count; k++) \
                    to[after[k]] = cpu_add_##NAME(to[after[k]], from[k]);   \
            }                                                               \
    }
CPU_COMPUTE_TYPES(ADD_TASK)

/* -------------------------------------------------------------- kernels -- */

/* index.Tensor(self, indices) */
static core_status launch_index(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    indexing job = {.call = call, .dtype = self->dtype};
    core_status status = tables_build(&job, self, &args[1]);
    int64_t rows;

    (void)nargs;
    (void)nresults;
    if (status == CORE_OK)
        status = cpu_dense_read(self, job.dtype, &job.self);
    if (status == CORE_OK)
        status = cpu_dense_open(cpu_view(&results[0]), job.dtype, &job.other);
    if (status != CORE_OK)
        goto done;
    rows = job.before.count * job.indices.count;
    if (rows > 0 && job.after.count > 0)
        cpu_parallel_for(rows, cpu_grain(rows, job.after.count + 2), read_task,
                         &job);
    cpu_dense_write(&job.other);
done:
    indexing_close(&job);
    return status;
}

/* Values broadcast to the shape that index.Tensor would give. */
static core_status values_read(indexing *job, const core_view *self,
                               const core_value *list, const core_view *values)
{
    int64_t sizes[2 * CORE_MAX_NDIM], index_sizes[CORE_MAX_NDIM];
    core_view shape = {0}, index = {0};
    uint32_t first = CORE_MAX_NDIM, last = 0, indexed = 0;

    index_shape(list, &index, index_sizes);
    for (uint32_t k = 0; k < list->count; k++)
        if (list->u.views[k]) {
            first = indexed++ == 0 ? k : first;
            last = k;
        }
    if (indexed != last - first + 1)
        first = 0;
    for (uint32_t d = 0; d < self->ndim || d == 0; d++) {
        for (uint32_t k = 0; d == first && k < index.ndim; k++)
            sizes[shape.ndim++] = index_sizes[k];
        if (d < self->ndim && (d >= list->count || !list->u.views[d]))
            sizes[shape.ndim++] = self->sizes[d];
    }
    shape.sizes = sizes;
    shape.numel = job->before.count * job->indices.count * job->after.count;
    return cpu_dense_expand(values, &shape, job->dtype, &job->other);
}

/* index_put(self, indices, values, accumulate) */
static core_status launch_put(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    const core_view *self = cpu_view(&args[0]);
    bool add = nargs > 3 && cpu_int(&args[3]);
    indexing job = {.call = call, .dtype = self->dtype};
    cpu_task task = write_task;
    core_status status;
    int64_t columns;

    (void)nresults;
    if (add) {
        job.dtype = cpu_compute_dtype(self->dtype);
        task = job.dtype == CORE_F32   ? add_task_f32
               : job.dtype == CORE_F64 ? add_task_f64
                                       : add_task_i64;
    }
    status = tables_build(&job, self, &args[1]);
    if (status == CORE_OK)
        status =
            cpu_dense_copy(cpu_view(&results[0]), self, job.dtype, &job.self);
    if (status == CORE_OK)
        status = values_read(&job, self, &args[1], cpu_view(&args[2]));
    if (status != CORE_OK)
        goto done;
    columns = job.before.count * job.after.count;
    if (columns > 0 && job.indices.count > 0)
        cpu_parallel_for(columns, cpu_grain(columns, job.indices.count * 2),
                         task, &job);
    cpu_dense_write(&job.self);
done:
    indexing_close(&job);
    return status;
}

static const cpu_kernel kernels[] = {
    {"index.Tensor", launch_index, NULL, {CPU_ALL, 0, CPU_ALL}, 0},
    {"index_put", launch_put, NULL, {CPU_ALL, 0, CPU_ALL, CPU_ALL}, 0},
};

const cpu_kernel_table cpu_indexput_kernels = {kernels, sizeof kernels /
                                                            sizeof kernels[0]};
