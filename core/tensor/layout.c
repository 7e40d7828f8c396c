/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "tensor/layout.h"

#include "tensor/dtype.h"

/* Sorts dimensions of size > 1 by rising stride; among equal strides a later
 * dimension comes first.  Insertion sort, because there are few dimensions and
 * they are mostly sorted. */
static uint32_t sort_dims(uint32_t ndim, const int64_t *sizes,
                          const int64_t *strides, uint8_t *order)
{
    uint32_t count = 0;

    for (uint32_t i = ndim; i-- > 0;) {
        uint32_t at = count;

        if (sizes[i] == 1)
            continue;
        while (at > 0 && strides[order[at - 1]] > strides[i]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = (uint8_t)i;
        count++;
    }
    return count;
}

static bool is_dense(uint32_t ndim, const int64_t *sizes,
                     const int64_t *strides)
{
    uint8_t order[CORE_MAX_NDIM];
    uint32_t count = sort_dims(ndim, sizes, strides, order);
    int64_t expected = 1;

    for (uint32_t i = 0; i < count; i++) {
        if (strides[order[i]] != expected)
            return false;
        expected *= sizes[order[i]];
    }
    return true;
}

uint32_t core__layout_flags(uint32_t ndim, const int64_t *sizes,
                            const int64_t *strides, int64_t *out_numel)
{
    int64_t expected = 1;
    int64_t numel = 1;
    bool contiguous = true;

    for (uint32_t i = ndim; i-- > 0;) {
        if (sizes[i] != 1) {
            contiguous &= strides[i] == expected;
            expected *= sizes[i];
        }
        numel *= sizes[i];
    }
    *out_numel = numel;
    if (contiguous || numel == 0)
        return CORE__TENSOR_CONTIGUOUS | CORE__TENSOR_DENSE;
    return is_dense(ndim, sizes, strides) ? CORE__TENSOR_DENSE : 0;
}

void core__layout_contiguous(uint32_t ndim, const int64_t *sizes,
                             int64_t *out_strides)
{
    int64_t stride = 1;

    for (uint32_t i = ndim; i-- > 0;) {
        out_strides[i] = stride;
        stride *= sizes[i] > 1 ? sizes[i] : 1;
    }
}

core_status core__layout_format_check(int64_t format)
{
    if (format >= CORE_FORMAT_CONTIGUOUS &&
        format <= CORE_FORMAT_CHANNELS_LAST_3D)
        return CORE_OK;
    return core__error(
        CORE_ERROR_UNSUPPORTED,
        "%lld is not a memory format; accepted: contiguous (0), preserve (1), "
        "channels-last (2) and channels-last of 3 dimensions (3)",
        (long long)format);
}

void core__layout_channels_last(uint32_t ndim, const int64_t *sizes,
                                int64_t *out_strides)
{
    int64_t stride = 1;

    out_strides[1] = stride;
    stride *= sizes[1] > 1 ? sizes[1] : 1;
    for (uint32_t i = ndim; i-- > 2;) {
        out_strides[i] = stride;
        stride *= sizes[i] > 1 ? sizes[i] : 1;
    }
    out_strides[0] = stride;
}

/* The channel's stride must be the smallest, followed by the spatial
 * dimensions from the last to the first, then the batch.  Ties caused by
 * dimensions of size 1 count as row-major. */
bool core__layout_is_channels_last(const core_tensor *tensor)
{
    const int64_t *sizes = tensor->sizes;
    const int64_t *strides = tensor->strides;
    int64_t least = 0;
    uint32_t ndim = tensor->ndim;

    if ((ndim != 4 && ndim != 5) || strides[1] == 0)
        return false;
    for (uint32_t i = 0; i < ndim; i++) {
        uint32_t d = i == 0 ? 1 : i == ndim - 1 ? 0 : ndim - i;

        if (sizes[d] == 0 || strides[d] < least)
            return false;
        if (d == 0 && least == strides[1])
            return false; /* N111: row-major fits as well */
        least = strides[d];
        if (sizes[d] > 1)
            least *= sizes[d];
    }
    return true;
}

/* Whether dimension a belongs inside b: < 0 yes, > 0 no, 0 unknown.  Elements
 * that share memory (a stride of 0) say nothing about the order. */
static int compare_dims(const core_tensor *tensor, uint32_t a, uint32_t b)
{
    int64_t stride_a = tensor->strides[a], stride_b = tensor->strides[b];

    if (stride_a == 0 || stride_b == 0)
        return 0;
    if (stride_a != stride_b)
        return stride_a < stride_b ? -1 : 1;
    return tensor->sizes[a] > tensor->sizes[b] ? 1 : 0;
}

/* Dimensions, innermost first, as ATen orders those of a result. */
static void order_dims(const core_tensor *tensor, uint8_t *order)
{
    for (uint32_t i = 0; i < tensor->ndim; i++)
        order[i] = (uint8_t)(tensor->ndim - 1 - i);
    /* Insertion sort that skips dimensions whose order is unknown. */
    for (uint32_t i = 1; i < tensor->ndim; i++) {
        uint32_t at = i;
        int inside = 0;

        for (uint32_t other = i; other-- > 0 && inside >= 0;) {
            uint8_t moved = order[other];

            inside = compare_dims(tensor, moved, order[at]);
            if (inside <= 0)
                continue;
            order[other] = order[at];
            order[at] = moved;
            at = other;
        }
    }
}

void core__layout_like(const core_tensor *tensor, int64_t *out_strides)
{
    uint8_t order[CORE_MAX_NDIM];
    int64_t stride = 1;

    if (tensor->flags & CORE__TENSOR_CONTIGUOUS) {
        core__layout_contiguous(tensor->ndim, tensor->sizes, out_strides);
        return;
    }
    if (tensor->flags & CORE__TENSOR_DENSE) {
        for (uint32_t i = 0; i < tensor->ndim; i++)
            out_strides[i] = tensor->strides[i];
        return;
    }
    order_dims(tensor, order);
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        out_strides[order[i]] = stride;
        stride *= tensor->sizes[order[i]] > 1 ? tensor->sizes[order[i]] : 1;
    }
}

bool core__layout_view(uint32_t ndim, const int64_t *sizes,
                       const int64_t *strides, uint32_t to_ndim,
                       const int64_t *to_sizes, int64_t *out_strides)
{
    int64_t chunk_stride;
    int64_t chunk_numel = 1;
    int64_t to_numel = 1;
    uint32_t to = to_ndim;

    for (uint32_t i = 0; i < ndim; i++) {
        if (sizes[i] == 0) {
            core__layout_contiguous(to_ndim, to_sizes, out_strides);
            return true;
        }
    }
    if (ndim == 0) {
        for (uint32_t i = 0; i < to_ndim; i++)
            out_strides[i] = 1;
        return true;
    }
    chunk_stride = strides[ndim - 1];
    /* Runs of adjacent source dimensions, innermost first, are each split into
     * target dimensions. */
    for (uint32_t i = ndim; i-- > 0;) {
        chunk_numel *= sizes[i];
        if (i != 0 &&
            (sizes[i - 1] == 1 || strides[i - 1] == chunk_numel * chunk_stride))
            continue;
        while (to > 0 && (to_numel < chunk_numel || to_sizes[to - 1] == 1)) {
            to--;
            out_strides[to] = to_numel * chunk_stride;
            to_numel *= to_sizes[to];
        }
        if (to_numel != chunk_numel)
            return false;
        if (i != 0) {
            chunk_stride = strides[i - 1];
            chunk_numel = 1;
            to_numel = 1;
        }
    }
    return to == 0;
}

void core__layout_bytes(const core_tensor *tensor, uint64_t *from, uint64_t *to)
{
    core_memory memory = core__tensor_memory(tensor);
    uint64_t last = 0;

    for (uint32_t i = 0; i < tensor->ndim; i++)
        last += (uint64_t)((tensor->sizes[i] - 1) * tensor->strides[i]);
    *from = memory.offset;
    *to = memory.offset + (last + 1) * core__dtype_size(tensor->dtype);
}

/* Bytes between a tensor's first and last element, not counting steps of whole
 * periods. */
static uint64_t reach_within(const core_tensor *tensor, uint64_t period)
{
    uint64_t size = core__dtype_size(tensor->dtype);
    uint64_t reach = size;

    for (uint32_t i = 0; i < tensor->ndim; i++) {
        uint64_t step = (uint64_t)tensor->strides[i] * size;

        if (tensor->sizes[i] > 1 && step % period != 0)
            reach += (uint64_t)(tensor->sizes[i] - 1) * step;
    }
    return reach;
}

/* True if a stride of `of` is a period in which the two tensors do not meet:
 * columns of a matrix, every other row. */
static bool interleaves(const core_tensor *a, uint64_t from_a,
                        const core_tensor *b, uint64_t from_b,
                        const core_tensor *of)
{
    for (uint32_t i = 0; i < of->ndim; i++) {
        uint64_t period =
            (uint64_t)of->strides[i] * core__dtype_size(of->dtype);
        uint64_t gap;

        if (of->sizes[i] == 1 || period == 0)
            continue;
        gap = (from_b % period + period - from_a % period) % period;
        if (reach_within(a, period) <= gap &&
            reach_within(b, period) <= period - gap)
            return true;
    }
    return false;
}

core__overlap core__layout_overlap(const core_tensor *a, const core_tensor *b)
{
    uint64_t from_a;
    uint64_t to_a;
    uint64_t from_b;
    uint64_t to_b;
    bool same;

    if (a->storage != b->storage || !a->storage || a->numel == 0 ||
        b->numel == 0)
        return CORE__OVERLAP_NONE;
    same = a->offset == b->offset && a->dtype == b->dtype && a->ndim == b->ndim;
    for (uint32_t i = 0; same && i < a->ndim; i++)
        same = a->sizes[i] == b->sizes[i] &&
               (a->sizes[i] == 1 || a->strides[i] == b->strides[i]);
    if (same)
        return CORE__OVERLAP_SAME;
    core__layout_bytes(a, &from_a, &to_a);
    core__layout_bytes(b, &from_b, &to_b);
    if (to_a <= from_b || to_b <= from_a ||
        interleaves(a, from_a, b, from_b, a) ||
        interleaves(a, from_a, b, from_b, b))
        return CORE__OVERLAP_NONE;
    return CORE__OVERLAP_PARTIAL;
}

bool core__strides_overlap(uint32_t ndim, const int64_t *sizes,
                           const int64_t *strides)
{
    uint8_t order[CORE_MAX_NDIM];
    uint32_t count = sort_dims(ndim, sizes, strides, order);
    int64_t reach = 1;

    for (uint32_t i = 0; i < count; i++) {
        int64_t stride = strides[order[i]];

        if (stride < reach)
            return true;
        reach = stride * (sizes[order[i]] - 1) + reach;
    }
    return false;
}

bool core__layout_overlaps_itself(const core_tensor *tensor)
{
    return !(tensor->flags & CORE__TENSOR_DENSE) &&
           core__strides_overlap(tensor->ndim, tensor->sizes, tensor->strides);
}
