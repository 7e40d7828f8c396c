/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Buckets: which gradients are in which, and where. */

#include "comm/reducer.h"

#include "base/memory.h"
#include "device/stream.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"

#include <libcore/memory.h>
#include <libcore/ops.h>

#include <string.h>

enum { ALIGNMENT = 64, DTYPES = 64 };

static core_dtype dtype_in_bucket(const core_reducer *reducer,
                                  const core_tensor *parameter)
{
    return reducer->dtype ? reducer->dtype : parameter->dtype;
}

static uint64_t align_up(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* -------------------------------------------------------------- division -- */

/* The bucket of a dtype that is being filled. */
typedef struct open_bucket {
    uint32_t number; /* index + 1; 0: none */
    uint64_t left;   /* bytes that it still takes */
    uint64_t rest;   /* bytes of the dtype that are in no bucket */
} open_bucket;

typedef struct division {
    open_bucket of[DTYPES]; /* by dtype */
    uint32_t nbuckets;
} division;

/* What follows the last gradient is not hidden by the backward, so the last
 * buckets become smaller: each takes half of the rest, down to the size of the
 * first one. */
static uint64_t capacity(const core_reducer *reducer, uint32_t index,
                         uint64_t rest)
{
    uint64_t least = reducer->first_bucket_bytes;
    uint64_t most = reducer->bucket_bytes, half = rest / 2;

    if (index == 0)
        return least;
    if (half < least)
        half = least;
    return half < most ? half : most;
}

static uint32_t choose_bucket(const core_reducer *reducer, division *d,
                              core_dtype dtype, uint64_t bytes)
{
    open_bucket *open = &d->of[dtype % DTYPES];

    if (!open->number || bytes > open->left) {
        open->left = capacity(reducer, d->nbuckets, open->rest);
        open->number = ++d->nbuckets;
    }
    open->left -= bytes < open->left ? bytes : open->left;
    open->rest -= bytes;
    return open->number - 1;
}

/* Sorts the order by bucket. */
static core_status sort_order(core_reducer *reducer)
{
    size_t size = reducer->count * sizeof *reducer->order;
    uint32_t *sorted = core__alloc(size), at = 0;

    if (!sorted)
        return core__error_memory(size);
    for (uint32_t b = 0; b < reducer->nbuckets; b++) {
        core__bucket *bucket = &reducer->buckets[b];

        bucket->first = at;
        for (uint32_t i = 0; i < reducer->count; i++)
            if (reducer->parameters[reducer->order[i]].bucket == b)
                sorted[at++] = reducer->order[i];
        bucket->count = at - bucket->first;
    }
    memcpy(reducer->order, sorted, size);
    core__free(sorted);
    return CORE_OK;
}

static uint64_t bytes_in_bucket(const core_reducer *reducer,
                                const core__reduced *item)
{
    core_dtype dtype = dtype_in_bucket(reducer, item->parameter);

    return align_up((uint64_t)item->parameter->numel * core__dtype_size(dtype));
}

static core_status divide(core_reducer *reducer)
{
    division d = {.nbuckets = 0};

    for (uint32_t i = 0; i < reducer->count; i++) {
        const core__reduced *item = &reducer->parameters[i];

        d.of[dtype_in_bucket(reducer, item->parameter) % DTYPES].rest +=
            bytes_in_bucket(reducer, item);
    }
    for (uint32_t i = 0; i < reducer->count; i++) {
        core__reduced *item = &reducer->parameters[reducer->order[i]];

        item->bucket = choose_bucket(reducer, &d,
                                     dtype_in_bucket(reducer, item->parameter),
                                     bytes_in_bucket(reducer, item));
    }
    reducer->buckets = core__alloc_zero(d.nbuckets * sizeof *reducer->buckets);
    if (!reducer->buckets)
        return core__error_memory(d.nbuckets * sizeof *reducer->buckets);
    reducer->nbuckets = d.nbuckets;
    return sort_order(reducer);
}

/* ---------------------------------------------------------------- memory -- */

void core__reducer_strides(const core_tensor *parameter, int64_t *strides)
{
    if (parameter->flags & CORE__TENSOR_DENSE)
        memcpy(strides, parameter->strides, parameter->ndim * sizeof *strides);
    else
        core__layout_contiguous(parameter->ndim, parameter->sizes, strides);
}

core_status core__bucket_view(const core__bucket *bucket,
                              const core__reduced *item, core_tensor **out)
{
    const core_tensor *parameter = item->parameter;
    int64_t strides[CORE_MAX_NDIM];

    core__reducer_strides(parameter, strides);
    return core__tensor_alias(bucket->memory, bucket->memory->dtype,
                              parameter->ndim, parameter->sizes, strides,
                              item->at, out);
}

/* With the content of the view before. */
static core_status view_gradient(core__bucket *bucket, core__reduced *item)
{
    core_status status = CORE_OK;
    core_tensor *view;

    CORE_TRY(core__bucket_view(bucket, item, &view));
    if (item->view)
        status = core_copy_(view, item->view, false);
    core__tensor_release(item->view);
    item->view = view;
    return status;
}

/* Elements of a bucket's gradients; sets where they begin. */
static int64_t place_gradients(core_reducer *reducer,
                               const core__bucket *bucket, int64_t item_size)
{
    int64_t at = 0;

    for (uint32_t i = 0; i < bucket->count; i++) {
        core__reduced *item =
            &reducer->parameters[reducer->order[bucket->first + i]];

        item->at = at;
        at +=
            (int64_t)align_up((uint64_t)(item->parameter->numel * item_size)) /
            item_size;
    }
    return at;
}

/* Another stream may have made the memory. */
static core_status order_after_zeros(const core_reducer *reducer,
                                     const core__bucket *bucket)
{
    core_stream *current;

    if (!reducer->stream || !bucket->zeroed)
        return CORE_OK;
    current = core__stream_current(reducer->comm->device);
    return current == bucket->zeroed
               ? CORE_OK
               : core__stream_order(current, bucket->zeroed);
}

core_status core__bucket_allocate(core_reducer *reducer, core__bucket *bucket)
{
    int64_t size;

    if (bucket->memory)
        return order_after_zeros(reducer, bucket);
    size = bucket->part->numel * reducer->comm->size;
    CORE_TRY(core_zeros(&size, 1, bucket->part->dtype, reducer->comm->device,
                        &bucket->memory));
    if (!reducer->stream)
        return CORE_OK;
    core_stream_release(bucket->zeroed);
    bucket->zeroed =
        core_stream_retain(core__stream_current(reducer->comm->device));
    return core_tensor_record_stream(bucket->memory, reducer->stream);
}

/* A bucket that can be divided among the ranks. */
static core_status allocate_parts(core_reducer *reducer, core__bucket *bucket,
                                  core_dtype dtype, int64_t size)
{
    int64_t item_size = (int64_t)core__dtype_size(dtype);
    int64_t ranks = reducer->comm->size, count = bucket->count;
    int64_t part =
        (int64_t)align_up((uint64_t)((size + ranks - 1) / ranks * item_size)) /
        item_size;
    core_device *device = reducer->comm->device;

    CORE_TRY(core_zeros(&part, 1, dtype, device, &bucket->part));
    CORE_TRY(core_zeros(&count, 1, dtype, device, &bucket->present));
    reducer->counts.bytes += (uint64_t)(part * ranks * item_size);
    if (!reducer->frees)
        CORE_TRY(core__bucket_allocate(reducer, bucket));
    if (!reducer->stream)
        return CORE_OK;
    CORE_TRY(core_tensor_record_stream(bucket->present, reducer->stream));
    return core_tensor_record_stream(bucket->part, reducer->stream);
}

static core_status allocate(core_reducer *reducer, core__bucket *bucket)
{
    const core__reduced *first =
        &reducer->parameters[reducer->order[bucket->first]];
    core_dtype dtype = dtype_in_bucket(reducer, first->parameter);
    int64_t item_size = (int64_t)core__dtype_size(dtype);
    int64_t at = place_gradients(reducer, bucket, item_size), size;
    int64_t present = bucket->count, one = 1;

    if (reducer->shard)
        return allocate_parts(reducer, bucket, dtype, at);
    size = at + present;
    CORE_TRY(
        core_zeros(&size, 1, dtype, reducer->comm->device, &bucket->memory));
    reducer->counts.bytes += (uint64_t)(size * item_size);
    if (reducer->stream)
        CORE_TRY(core_tensor_record_stream(bucket->memory, reducer->stream));
    return core__tensor_alias(bucket->memory, dtype, 1, &present, &one, at,
                              &bucket->present);
}

static core_status lay_out(core_reducer *reducer, core__bucket *bucket)
{
    CORE_TRY(allocate(reducer, bucket));
    for (uint32_t i = 0; i < bucket->count; i++) {
        core__reduced *item =
            &reducer->parameters[reducer->order[bucket->first + i]];

        if (bucket->memory)
            CORE_TRY(view_gradient(bucket, item));
    }
    return CORE_OK;
}

/* -------------------------------------------------------------- interface -- */

void core__buckets_release(core_reducer *reducer)
{
    for (uint32_t b = 0; b < reducer->nbuckets; b++) {
        core__tensor_release(reducer->buckets[b].memory);
        core__tensor_release(reducer->buckets[b].present);
        core__tensor_release(reducer->buckets[b].before);
        core__tensor_release(reducer->buckets[b].part);
        core_stream_release(reducer->buckets[b].written);
        core_stream_release(reducer->buckets[b].zeroed);
    }
    core__free(reducer->buckets);
    reducer->buckets = NULL;
    reducer->nbuckets = 0;
    reducer->counts.bytes = 0;
}

core_status core__buckets_build(core_reducer *reducer)
{
    core_status status;

    core__buckets_release(reducer);
    status = divide(reducer);
    for (uint32_t b = 0; b < reducer->nbuckets && status == CORE_OK; b++)
        status = lay_out(reducer, &reducer->buckets[b]);
    if (status != CORE_OK)
        core__buckets_release(reducer);
    reducer->counts.buckets = reducer->nbuckets;
    return status;
}
