/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Strided copies with conversion, and dense buffers (view.h). */

#include "view.h"

#include <stdlib.h>

#include "isa.h"
#include "loop/block_table.h"
#include "runtime/scratch.h"
#include "runtime/thread_pool.h"

/* ---------------------------------------------------------------- rows -- */

static const cpu_block_functions *blocks(void)
{
    return CPU_CHOSEN(&cpu_block_functions);
}

#define ROWS(NAME, TYPE, DTYPE)                                               \
    void cpu_get_##NAME(TYPE *to, core_dtype dtype, const void *from,         \
                        int64_t stride, int64_t n)                            \
    {                                                                         \
        blocks()->load(DTYPE, to, dtype, from, stride *cpu_item_size(dtype),  \
                       n);                                                    \
    }                                                                         \
    void cpu_put_##NAME(core_dtype dtype, void *to, int64_t stride,           \
                        const TYPE *from, int64_t n)                          \
    {                                                                         \
        blocks()->store(dtype, to, stride *cpu_item_size(dtype), DTYPE, from, \
                        n);                                                   \
    }
ROWS(f32, float, CORE_F32)
ROWS(f64, double, CORE_F64)
ROWS(i64, int64_t, CORE_I64)

/* -------------------------------------------------------------- copies -- */

typedef struct copy {
    core_dtype to_dtype, from_dtype;
    char *to;
    const char *from;
    uint32_t ndim; /* of the rows around the innermost dimension */
    int64_t sizes[CORE_MAX_NDIM];
    int64_t to_strides[CORE_MAX_NDIM];
    int64_t from_strides[CORE_MAX_NDIM];
    int64_t n, to_stride, from_stride; /* of a row */
} copy;

/* Both sides strided: in dense blocks. */
static void copy_blocks(const copy *c, char *to, int64_t to_step,
                        const char *from, int64_t from_step)
{
    enum { STEP = 256 };
    _Alignas(64) char block[STEP * 8];

    for (int64_t i = 0; i < c->n; i += STEP) {
        int64_t n = c->n - i < STEP ? c->n - i : STEP;

        blocks()->gather(block, from + i * from_step, from_step,
                         cpu_item_size(c->from_dtype), n);
        blocks()->store(c->to_dtype, to + i * to_step, to_step, c->from_dtype,
                        block, n);
    }
}

static void copy_row(const copy *c, char *to, const char *from)
{
    int64_t from_step = c->from_stride * cpu_item_size(c->from_dtype);
    int64_t to_step = c->to_stride * cpu_item_size(c->to_dtype);

    if (c->to_stride == 1)
        blocks()->load(c->to_dtype, to, c->from_dtype, from, from_step, c->n);
    else if (c->from_stride == 1)
        blocks()->store(c->to_dtype, to, to_step, c->from_dtype, from, c->n);
    else
        copy_blocks(c, to, to_step, from, from_step);
}

static void copy_rows(void *context, int64_t begin, int64_t end)
{
    const copy *c = context;
    uint32_t to_size = cpu_item_size(c->to_dtype);
    uint32_t from_size = cpu_item_size(c->from_dtype);

    for (int64_t row = begin; row < end; row++) {
        int64_t rest = row, to = 0, from = 0;

        for (uint32_t d = 0; d < c->ndim; d++) {
            int64_t index = rest % c->sizes[d];

            rest /= c->sizes[d];
            to += index * c->to_strides[d];
            from += index * c->from_strides[d];
        }
        copy_row(c, c->to + to * to_size, c->from + from * from_size);
    }
}

void cpu_copy(core_dtype to_dtype, void *to, const int64_t *to_strides,
              core_dtype from_dtype, const void *from,
              const int64_t *from_strides, uint32_t ndim, const int64_t *sizes)
{
    copy c = {.to_dtype = to_dtype,
              .from_dtype = from_dtype,
              .to = to,
              .from = from,
              .n = 1,
              .to_stride = 1,
              .from_stride = 1};
    int64_t rows = 1;

    /* Innermost first; contiguous dimensions are merged. */
    for (uint32_t d = ndim; d-- > 0;) {
        uint32_t last = c.ndim - 1;

        if (sizes[d] == 0)
            return;
        if (sizes[d] == 1)
            continue;
        if (c.ndim > 0 && to_strides[d] == c.to_strides[last] * c.sizes[last] &&
            from_strides[d] == c.from_strides[last] * c.sizes[last]) {
            c.sizes[last] *= sizes[d];
            continue;
        }
        c.sizes[c.ndim] = sizes[d];
        c.to_strides[c.ndim] = to_strides[d];
        c.from_strides[c.ndim++] = from_strides[d];
    }
    if (c.ndim > 0) {
        c.n = c.sizes[0];
        c.to_stride = c.to_strides[0];
        c.from_stride = c.from_strides[0];
        c.ndim--;
        for (uint32_t d = 0; d < c.ndim; d++) {
            c.sizes[d] = c.sizes[d + 1];
            c.to_strides[d] = c.to_strides[d + 1];
            c.from_strides[d] = c.from_strides[d + 1];
            rows *= c.sizes[d];
        }
    }
    cpu_parallel_for(rows, cpu_grain(rows, c.n), copy_rows, &c);
}

void cpu_view_copy(const core_view *to, const core_view *from)
{
    cpu_copy(to->dtype, cpu_address(to->memory), to->strides, from->dtype,
             cpu_address(from->memory), from->strides, to->ndim, to->sizes);
}

void cpu_view_fill(const core_view *to, const core_value *number)
{
    static const int64_t zeros[CORE_MAX_NDIM];
    bool floating = number->tag == CORE_VALUE_FLOAT;
    uint64_t element;

    /* Converted once. */
    cpu_copy(to->dtype, &element, zeros, floating ? CORE_F64 : CORE_I64,
             &number->u, zeros, 0, zeros);
    cpu_copy(to->dtype, cpu_address(to->memory), to->strides, to->dtype,
             &element, zeros, to->ndim, to->sizes);
}

/* ------------------------------------------------------- dense buffers -- */

static core_status no_memory(int64_t count, int64_t size)
{
    return cpu_error(CORE_ERROR_OUT_OF_MEMORY,
                     "no host memory for %lld temporary elements of %lld bytes",
                     (long long)count, (long long)size);
}

void *cpu_allocate(int64_t count, int64_t size)
{
    void *memory = NULL;

    if (count >= 0 && count <= INT64_MAX / 2 / (size > 0 ? size : 1))
        memory = aligned_alloc(64, ((size_t)(count * size) + 64) / 64 * 64);
    if (!memory)
        no_memory(count, size);
    return memory;
}

core_status cpu_rows_status(core_status status, int64_t n)
{
    if (status != CORE_OK)
        cpu_error(status, "no host memory for rows of %lld elements",
                  (long long)n);
    return status;
}

void *cpu_scratch_elements(int64_t count, int64_t size)
{
    void *memory = NULL;

    if (count >= 0 && count <= INT64_MAX / 2 / (size > 0 ? size : 1))
        memory = cpu_scratch_take(count * size);
    if (!memory)
        no_memory(count, size);
    return memory;
}

static core_status dense_allocate(cpu_dense *out, int64_t count)
{
    out->owned = cpu_scratch_elements(count, cpu_item_size(out->dtype));
    out->data = out->owned;
    return out->owned ? CORE_OK : CORE_ERROR_OUT_OF_MEMORY;
}

/* Row-major strides. */
static void dense_strides(const core_view *view, int64_t *out)
{
    int64_t stride = 1;

    for (uint32_t d = view->ndim; d-- > 0;) {
        out[d] = stride;
        stride *= view->sizes[d];
    }
}

core_status cpu_dense_open(const core_view *view, core_dtype dtype,
                           cpu_dense *out)
{
    *out = (cpu_dense){.dtype = dtype, .view = view};
    if (!view)
        return CORE_OK;
    if (view->dtype == dtype && (view->flags & CORE_VIEW_CONTIGUOUS)) {
        out->data = cpu_address(view->memory);
        out->view = NULL;
        return CORE_OK;
    }
    out->view = NULL;
    if (dense_allocate(out, view->numel) != CORE_OK)
        return CORE_ERROR_OUT_OF_MEMORY;
    out->view = view;
    return CORE_OK;
}

core_status cpu_dense_read(const core_view *view, core_dtype dtype,
                           cpu_dense *out)
{
    int64_t strides[CORE_MAX_NDIM];
    core_status status = cpu_dense_open(view, dtype, out);

    out->view = NULL;
    if (status != CORE_OK || !out->owned)
        return status;
    dense_strides(view, strides);
    cpu_copy(dtype, out->data, strides, view->dtype, cpu_address(view->memory),
             view->strides, view->ndim, view->sizes);
    return CORE_OK;
}

core_status cpu_dense_update(const core_view *view, core_dtype dtype,
                             cpu_dense *out)
{
    core_status status = cpu_dense_read(view, dtype, out);

    if (out->owned)
        out->view = view;
    return status;
}

core_status cpu_dense_or(const core_view *view, core_dtype dtype, int64_t count,
                         double value, cpu_dense *out)
{
    const int64_t none = 0, one = 1;

    if (view)
        return cpu_dense_read(view, dtype, out);
    *out = (cpu_dense){.dtype = dtype};
    if (dense_allocate(out, count) != CORE_OK)
        return CORE_ERROR_OUT_OF_MEMORY;
    cpu_copy(dtype, out->data, &one, CORE_F64, &value, &none, 1, &count);
    return CORE_OK;
}

/* The strides with which a view is read as a shape that it broadcasts to. */
static void broadcast_strides(const core_view *view, const core_view *shape,
                              int64_t *out)
{
    uint32_t more = shape->ndim - view->ndim;

    for (uint32_t d = 0; d < shape->ndim; d++)
        out[d] = d < more || view->sizes[d - more] != shape->sizes[d]
                     ? 0
                     : view->strides[d - more];
}

core_status cpu_dense_copy(const core_view *result, const core_view *from,
                           core_dtype dtype, cpu_dense *out)
{
    int64_t strides[CORE_MAX_NDIM], to[CORE_MAX_NDIM];
    core_status status = cpu_dense_open(result, dtype, out);

    if (status != CORE_OK || out->data == cpu_address(from->memory))
        return status;
    broadcast_strides(from, result, strides);
    dense_strides(result, to);
    cpu_copy(dtype, out->data, to, from->dtype, cpu_address(from->memory),
             strides, result->ndim, result->sizes);
    return CORE_OK;
}

core_status cpu_dense_expand(const core_view *view, const core_view *shape,
                             core_dtype dtype, cpu_dense *out)
{
    int64_t strides[CORE_MAX_NDIM];
    core_view expanded = *view;

    if (view->ndim == shape->ndim && view->numel == shape->numel)
        return cpu_dense_read(view, dtype, out);
    broadcast_strides(view, shape, strides);
    expanded.ndim = shape->ndim;
    expanded.sizes = shape->sizes;
    expanded.strides = strides;
    expanded.numel = shape->numel;
    expanded.flags = 0;
    return cpu_dense_read(&expanded, dtype, out);
}

void cpu_dense_write(cpu_dense *dense)
{
    int64_t strides[CORE_MAX_NDIM];
    const core_view *view = dense->view;

    if (!view)
        return;
    dense_strides(view, strides);
    cpu_copy(view->dtype, cpu_address(view->memory), view->strides,
             dense->dtype, dense->data, strides, view->ndim, view->sizes);
}

void cpu_dense_close(cpu_dense *dense)
{
    cpu_scratch_give(dense->owned);
    *dense = (cpu_dense){0};
}

cpu_split cpu_split_at(const core_view *view, uint32_t dim)
{
    cpu_split split = {1, 1, 1};

    for (uint32_t d = 0; d < view->ndim; d++) {
        if (d < dim)
            split.outer *= view->sizes[d];
        else if (d == dim)
            split.size = view->sizes[d];
        else
            split.inner *= view->sizes[d];
    }
    return split;
}

int64_t cpu_line_count(const core_view *view, uint32_t dim)
{
    cpu_split split = cpu_split_at(view, dim);

    return split.outer * split.inner;
}

core_status cpu_index_error(const core_call *call, const char *argument,
                            int64_t index, int64_t size, int64_t dim)
{
    core_string name = cpu_operator(call);

    return cpu_error(CORE_ERROR_INDEX,
                     "%.*s: argument %s contains %lld, which is out of range "
                     "for dimension %lld of size %lld",
                     (int)name.size, name.data, argument, (long long)index,
                     (long long)dim, (long long)size);
}
