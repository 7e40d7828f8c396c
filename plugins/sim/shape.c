/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The bytes of operands. */

#include "shape.h"

/* Dimensions that only lengthen the run of bytes become part of it; overlapping
 * windows (a stride below the run) are one run too. */
static void coalesce(sim_shape *shape, uint64_t itemsize)
{
    uint32_t ndim = shape->ndim;

    /* by stride, the largest first */
    for (uint32_t i = 1; i < ndim; i++)
        for (uint32_t j = i; j > 0 && shape->strides[j - 1] < shape->strides[j];
             j--) {
            uint64_t size = shape->sizes[j], stride = shape->strides[j];

            shape->sizes[j] = shape->sizes[j - 1];
            shape->strides[j] = shape->strides[j - 1];
            shape->sizes[j - 1] = size;
            shape->strides[j - 1] = stride;
        }
    shape->run = itemsize;
    while (ndim > 0 && shape->strides[ndim - 1] <= shape->run) {
        ndim--;
        shape->run += (shape->sizes[ndim] - 1) * shape->strides[ndim];
    }
    shape->ndim = ndim;
    shape->end = shape->offset + shape->run;
    for (uint32_t i = 0; i < ndim; i++)
        shape->end += (shape->sizes[i] - 1) * shape->strides[i];
}

bool sim_shape_of(sim_shape *shape, uint32_t ndim, const int64_t *sizes,
                  const int64_t *strides, uint64_t scale, uint64_t itemsize)
{
    shape->ndim = 0;
    shape->offset = 0;
    for (uint32_t i = 0; i < ndim; i++) {
        if (sizes[i] == 0 && strides[i] != 0)
            return false;
        if (sizes[i] <= 1 || strides[i] == 0)
            continue;
        shape->sizes[shape->ndim] = (uint64_t)sizes[i];
        shape->strides[shape->ndim++] = (uint64_t)strides[i] * scale;
    }
    coalesce(shape, itemsize);
    return itemsize > 0;
}

void sim_shape_bytes(sim_shape *shape, uint64_t size)
{
    shape->ndim = 0;
    shape->offset = 0;
    shape->run = size;
    shape->end = size;
}

uint64_t sim_shape_runs(const sim_shape *shape)
{
    uint64_t runs = 1;

    for (uint32_t i = 0; i < shape->ndim && runs < UINT32_MAX; i++)
        runs *= shape->sizes[i];
    return runs;
}

/* Tests whether a run of dimensions [dim, ndim) from base has a byte in [from,
 * to). */
static bool touches(const sim_shape *shape, uint32_t dim, uint64_t base,
                    uint64_t from, uint64_t to)
{
    uint64_t inner = shape->run, first = 0;

    if (dim == shape->ndim)
        return base < to && from < base + shape->run;
    for (uint32_t i = dim + 1; i < shape->ndim; i++)
        inner += (shape->sizes[i] - 1) * shape->strides[i];
    if (from >= base + inner)
        first = (from - base - inner) / shape->strides[dim] + 1;
    for (uint64_t i = first; i < shape->sizes[dim]; i++) {
        uint64_t at = base + i * shape->strides[dim];

        if (at >= to)
            return false;
        if (touches(shape, dim + 1, at, from, to))
            return true;
    }
    return false;
}

bool sim_shape_touches(const sim_shape *shape, uint64_t from, uint64_t to)
{
    return touches(shape, 0, shape->offset, from, to);
}

uint64_t sim_shape_run_at(const sim_shape *shape, uint64_t index)
{
    uint64_t at = shape->offset;

    for (uint32_t i = shape->ndim; i-- > 0;) {
        at += index % shape->sizes[i] * shape->strides[i];
        index /= shape->sizes[i];
    }
    return at;
}

bool sim_shape_meet(const sim_shape *a, const sim_shape *b, uint64_t from,
                    uint64_t to)
{
    uint64_t runs = sim_shape_runs(a);

    for (uint64_t i = 0; i < runs; i++) {
        uint64_t at = sim_shape_run_at(a, i);
        uint64_t end = at + a->run;

        if (at < from)
            at = from;
        if (end > to)
            end = to;
        if (at < end && sim_shape_touches(b, at, end))
            return true;
    }
    return false;
}
