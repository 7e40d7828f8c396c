/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* view.h: helpers of the kernels that receive views: reading arguments, and
 * computing on dense buffers.
 *
 * Such kernels compute in one of three types, whatever the operands' dtype
 * is: f32 (for f32, f16, bf16), f64, and i64 (integers and bool).  A dense
 * buffer has the contents of a view, row-major, in such a type: the view's
 * own memory if it already has that form, otherwise a converted copy.  So a
 * kernel is written for dense memory and three types, and works with any
 * strides and dtype. */

#ifndef CPU_VIEW_H
#define CPU_VIEW_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <expressions/number.h>

#include "cpu.h"

/* ----------------------------------------------------------- arguments -- */

/* Returns NULL if the value is absent. */
static inline const core_view *cpu_view(const core_value *value)
{
    return value->tag == CORE_VALUE_VIEW ? value->u.view : NULL;
}

static inline double cpu_float(const core_value *value)
{
    return value->tag == CORE_VALUE_FLOAT ? value->u.f : (double)value->u.i;
}

static inline int64_t cpu_int(const core_value *value)
{
    return value->tag == CORE_VALUE_FLOAT ? math_i64_nearest(value->u.f)
                                          : value->u.i;
}

/* Returns element k of a list, or the number that was given instead of a
 * list. */
static inline int64_t cpu_list_int(const core_value *value, uint32_t k,
                                   int64_t absent)
{
    if (value->tag == CORE_VALUE_INT)
        return value->u.i;
    if (value->tag != CORE_VALUE_INT_LIST || value->count == 0)
        return absent;
    return value->u.ints[value->count == 1 ? 0 : k];
}

/* Returns a dimension, counted from the end if negative. */
static inline uint32_t cpu_dim(int64_t dim, uint32_t ndim)
{
    if (ndim == 0)
        return 0;
    return (uint32_t)(dim < 0 ? dim + (int64_t)ndim : dim);
}

/* Returns the name of the operator being computed, for messages. */
static inline core_string cpu_operator(const core_call *call)
{
    return call->host->operator_name(call->op);
}

/* Reports an index that is out of range for a dimension; `argument` contains
 * it. */
core_status cpu_index_error(const core_call *call, const char *argument,
                            int64_t index, int64_t size, int64_t dim);

/* The size of a dimension, and the products of the sizes before and after
 * it. */
typedef struct cpu_split {
    int64_t outer, size, inner;
} cpu_split;

cpu_split cpu_split_at(const core_view *view, uint32_t dim);

/* A line is the elements along one dimension; lines are numbered over all other
 * dimensions, equally for views that differ in that dimension only. */
int64_t cpu_line_count(const core_view *view, uint32_t dim);

/* Returns the offset in a view of the first element of a line of `shape`, which
 * is not larger in the other dimensions. */
static inline int64_t cpu_line_offset_in(const core_view *shape,
                                         const core_view *view, uint32_t dim,
                                         int64_t line)
{
    int64_t offset = 0;

    for (uint32_t d = shape->ndim; d-- > 0;) {
        if (d == dim)
            continue;
        offset += line % shape->sizes[d] * view->strides[d];
        line /= shape->sizes[d];
    }
    return offset;
}

static inline int64_t cpu_line_offset(const core_view *view, uint32_t dim,
                                      int64_t line)
{
    return cpu_line_offset_in(view, view, dim, line);
}

static inline int64_t cpu_line_size(const core_view *view, uint32_t dim)
{
    return view->ndim > 0 ? view->sizes[dim] : 1;
}

static inline int64_t cpu_line_stride(const core_view *view, uint32_t dim)
{
    return view->ndim > 0 ? view->strides[dim] : 1;
}

/* -------------------------------------------------------------- dtypes -- */

static inline uint32_t cpu_item_size(core_dtype dtype)
{
    static const uint8_t sizes[CORE_DTYPE_LIMIT] = {
        [CORE_F64] = 8,    [CORE_F32] = 4,    [CORE_F16] = 2, [CORE_BF16] = 2,
        [CORE_F8E4M3] = 1, [CORE_F8E5M2] = 1, [CORE_I64] = 8, [CORE_I32] = 4,
        [CORE_I16] = 2,    [CORE_I8] = 1,     [CORE_U8] = 1,  [CORE_BOOL] = 1};
    return dtype < CORE_DTYPE_LIMIT ? sizes[dtype] : 0;
}

static inline void *cpu_line_address(const core_view *view, uint32_t dim,
                                     int64_t line)
{
    return (char *)cpu_address(view->memory) +
           cpu_line_offset(view, dim, line) * cpu_item_size(view->dtype);
}

/* Returns the type that a kernel computes in: CORE_F32, CORE_F64 or
 * CORE_I64. */
static inline core_dtype cpu_compute_dtype(core_dtype dtype)
{
    if (dtype == CORE_F64)
        return CORE_F64;
    return dtype <= CORE_BF16 || dtype == CORE_F8E4M3 || dtype == CORE_F8E5M2
               ? CORE_F32
               : CORE_I64;
}

/* Tests whether two views are dense f16 or bf16, of the same dtype: they can be
 * converted in parts, where they are used. */
static inline bool cpu_are_halves(const core_view *a, const core_view *b)
{
    return (a->dtype == CORE_F16 || a->dtype == CORE_BF16) &&
           b->dtype == a->dtype && (a->flags & b->flags & CORE_VIEW_CONTIGUOUS);
}

/* Integers wrap around. */
#define CPU_ARITHMETIC(NAME, TYPE, WORD)              \
    static inline TYPE cpu_add_##NAME(TYPE a, TYPE b) \
    {                                                 \
        return (TYPE)((WORD)a + (WORD)b);             \
    }                                                 \
    static inline TYPE cpu_mul_##NAME(TYPE a, TYPE b) \
    {                                                 \
        return (TYPE)((WORD)a * (WORD)b);             \
    }
CPU_ARITHMETIC(f32, float, float)
CPU_ARITHMETIC(f64, double, double)
CPU_ARITHMETIC(i64, int64_t, uint64_t)
#undef CPU_ARITHMETIC

#define CPU_FLOATS                                           \
    (CORE_DTYPE_MASK(CORE_F64) | CORE_DTYPE_MASK(CORE_F32) | \
     CORE_DTYPE_MASK(CORE_F16) | CORE_DTYPE_MASK(CORE_BF16))
#define CPU_INTEGERS                                         \
    (CORE_DTYPE_MASK(CORE_I64) | CORE_DTYPE_MASK(CORE_I32) | \
     CORE_DTYPE_MASK(CORE_I16) | CORE_DTYPE_MASK(CORE_I8) |  \
     CORE_DTYPE_MASK(CORE_U8))
#define CPU_BOOL CORE_DTYPE_MASK(CORE_BOOL)
#define CPU_NUMBERS (CPU_FLOATS | CPU_INTEGERS)
#define CPU_ALL (CPU_NUMBERS | CPU_BOOL)
/* Storage types only. */
#define CPU_FLOAT8 (CORE_DTYPE_MASK(CORE_F8E4M3) | CORE_DTYPE_MASK(CORE_F8E5M2))
#define CPU_INDICES (CORE_DTYPE_MASK(CORE_I64) | CORE_DTYPE_MASK(CORE_I32))

/* Expands X(dtype name, C type) for the types that kernels compute in. */
#define CPU_COMPUTE_FLOATS(X) \
    X(f32, float)             \
    X(f64, double)
#define CPU_COMPUTE_TYPES(X) \
    CPU_COMPUTE_FLOATS(X)    \
    X(i64, int64_t)

/* ------------------------------------------------------- dense buffers -- */

typedef struct cpu_dense {
    void *data;            /* NULL if the view was */
    void *owned;           /* of scratch.h, or NULL */
    const core_view *view; /* to be written back to, or NULL */
    core_dtype dtype;
} cpu_dense;

/* Returns the contents of a view as `dtype` (F32, F64, I64, or the view's own).
 * For a NULL view the data are NULL. */
core_status cpu_dense_read(const core_view *view, core_dtype dtype,
                           cpu_dense *out);

/* The same, to be changed and written back by cpu_dense_write. */
core_status cpu_dense_update(const core_view *view, core_dtype dtype,
                             cpu_dense *out);

/* Returns memory for the contents of a view, to be filled and written back by
 * cpu_dense_write.  For a NULL view the data are NULL. */
core_status cpu_dense_open(const core_view *view, core_dtype dtype,
                           cpu_dense *out);
void cpu_dense_write(cpu_dense *dense);

/* Like cpu_dense_read; if the view is NULL, `count` times a value. */
core_status cpu_dense_or(const core_view *view, core_dtype dtype, int64_t count,
                         double value, cpu_dense *out);

/* Returns memory for a result with the contents of another view of its shape,
 * or one that broadcasts to it; copies nothing if both are the same. */
core_status cpu_dense_copy(const core_view *result, const core_view *from,
                           core_dtype dtype, cpu_dense *out);

/* Returns the contents of a view broadcast to `shape`. */
core_status cpu_dense_expand(const core_view *view, const core_view *shape,
                             core_dtype dtype, cpu_dense *out);

/* Accepts zeroed and closed buffers. */
void cpu_dense_close(cpu_dense *dense);

/* Copies n bytes, usually few. */
static inline void cpu_move(void *to, const void *from, int64_t n)
{
    switch (n) {
    case 1:
        memcpy(to, from, 1);
        break;
    case 2:
        memcpy(to, from, 2);
        break;
    case 4:
        memcpy(to, from, 4);
        break;
    case 8:
        memcpy(to, from, 8);
        break;
    default:
        memcpy(to, from, (size_t)n);
    }
}

/* Allocates count elements of size bytes, at least one; reports an error if it
 * returns NULL. */
void *cpu_allocate(int64_t count, int64_t size);

/* The same for memory of scratch.h. */
void *cpu_scratch_elements(int64_t count, int64_t size);

/* Reports the status of tasks that needed memory for rows of n elements: a
 * worker's error message belongs to another thread. */
core_status cpu_rows_status(core_status status, int64_t n);

/* Copies and converts, strides in elements. */
void cpu_copy(core_dtype to_dtype, void *to, const int64_t *to_strides,
              core_dtype from_dtype, const void *from,
              const int64_t *from_strides, uint32_t ndim, const int64_t *sizes);

/* Copies one view into another of the same sizes. */
void cpu_view_copy(const core_view *to, const core_view *from);

/* Sets every element to a number. */
void cpu_view_fill(const core_view *to, const core_value *number);

/* Read and write a row of n strided elements as a compute type. */
#define CPU_ROWS(NAME, TYPE)                                          \
    void cpu_get_##NAME(TYPE *to, core_dtype dtype, const void *from, \
                        int64_t stride, int64_t n);                   \
    void cpu_put_##NAME(core_dtype dtype, void *to, int64_t stride,   \
                        const TYPE *from, int64_t n);
CPU_COMPUTE_TYPES(CPU_ROWS)
#undef CPU_ROWS

/* Returns the number of items per chunk, of n items that cost `cost` elementary
 * steps each, that is worth a thread.  Depends on the problem alone. */
static inline int64_t cpu_grain(int64_t n, int64_t cost)
{
    int64_t grain = 32768 / (cost > 0 ? cost : 1);

    if (grain > n)
        grain = n;
    return grain > 0 ? grain : 1;
}

#endif
