/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* tensor_cache.h: a per-thread cache of small tensors, complete with storage
 * and memory.
 *
 * The results of small calls are created and released again and again in few
 * sizes.  Reusing a cached one costs access to the head of a list and setting
 * the new tensor's layout; storage, device and block are already in place.
 * Only for the device whose small blocks the thread caches (memory/memory.c):
 * cached tensors are freed together with those. */

#ifndef CORE_TENSOR_TENSOR_CACHE_H
#define CORE_TENSOR_TENSOR_CACHE_H

#include "base/thread.h"
#include "device/device.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

#include <string.h>

enum {
    CORE__TENSOR_CACHE_UNIT = 64,
    CORE__TENSOR_CACHE_BYTES_MAX = CORE__SMALL_CLASSES * CORE__TENSOR_CACHE_UNIT
};

static inline core__tensor_cache_list *core__tensor_cache_list_of(
    core__thread *self, uint64_t cls)
{
    core__tensor_cache_list *list = &self->cached_tensors[cls];

    __asm__("" : "+r"(list)); /* computed once, not for each field */
    return list;
}

/* The class in which a storage with this capacity is cached; 0: none. */
static inline uint32_t core__tensor_cache_class(uint64_t capacity)
{
    uint64_t cls = capacity / CORE__TENSOR_CACHE_UNIT;

    return cls < CORE__SMALL_CLASSES && capacity % CORE__TENSOR_CACHE_UNIT == 0
               ? (uint32_t)cls
               : 0;
}

/* Takes a cached tensor with a storage of this size, both with one reference.
 * Its other fields are those of the old tensor, except autograd, which is
 * NULL, and sizes.  NULL: none is cached. */
static inline core_tensor *core__tensor_cache_take(core__thread *self,
                                                   const core_device *device,
                                                   uint64_t bytes)
{
    uint64_t cls =
        (bytes + CORE__TENSOR_CACHE_UNIT - 1) / CORE__TENSOR_CACHE_UNIT;
    core_tensor *tensor;
    core__tensor_cache_list *list;

    if (core__unlikely(device != self->blocks_of || cls >= CORE__SMALL_CLASSES))
        return NULL;
    list = core__tensor_cache_list_of(self, cls);
    tensor = list->head;
    if (core__unlikely(!tensor))
        return NULL;
    list->head = tensor->base; /* the link */
    core__thread_add32(&list->count, -1);
    atomic_store_explicit(&tensor->references, 1, memory_order_relaxed);
    tensor->storage->size = bytes;
    return tensor;
}

/* Makes a cached tensor a new row-major one; the caller sets ndim, dtype,
 * sizes, strides and numel. */
static inline void core__tensor_cache_renew(const core__thread *self,
                                            core_tensor *tensor,
                                            const core_device *device)
{
    tensor->flags = CORE__TENSOR_CONTIGUOUS | CORE__TENSOR_DENSE;
    tensor->keys = device->keys | CORE__KEYS_TENSOR;
    tensor->offset = 0;
    tensor->base = NULL;
    if (core__unlikely(self->inference)) {
        tensor->flags |= CORE__TENSOR_INFERENCE;
        tensor->keys = device->keys | CORE__KEYS_INFERENCE;
    }
}

/* The fields of a tensor that core__tensor_cache_take_like reads: kept in registers,
 * because the compiler cannot know that the new tensor is a different
 * object. */
typedef struct core__tensor_like {
    core_device *device;
    const int64_t *sizes; /* and strides after them */
    int64_t numel;
    uint32_t ndim;
    uint16_t kind;
} core__tensor_like;

static inline core__tensor_like core__tensor_like_of(const core_tensor *tensor)
{
    return (core__tensor_like){tensor->device, tensor->sizes, tensor->numel,
                               tensor->ndim, tensor->kind};
}

/* core__tensor_new_like with a cached tensor, or NULL; item: bytes per
 * element. */
static inline __attribute__((always_inline)) core_tensor *
core__tensor_cache_take_like(core__thread *self, core__tensor_like like,
                             uint64_t item)
{
    core_tensor *tensor = NULL;

    if (core__likely(like.ndim <= CORE__TENSOR_INLINE_NDIM))
        tensor = core__tensor_cache_take(self, like.device,
                                         (uint64_t)like.numel * item);
    if (core__unlikely(!tensor))
        return NULL;
    core__tensor_cache_renew(self, tensor, like.device);
    tensor->kind = like.kind;
    tensor->strides = tensor->inline_dims + like.ndim;
    tensor->numel = like.numel;
    /* The first two without a check: most tensors have no more dimensions. */
    memcpy(tensor->inline_dims, like.sizes, 2 * sizeof *like.sizes);
    for (uint32_t i = 1; core__unlikely(i < like.ndim); i++)
        memcpy(&tensor->inline_dims[2 * i], &like.sizes[2 * i],
               2 * sizeof *like.sizes);
    return tensor;
}

/* A small row-major tensor from the cache, or NULL.  dtype is one of this
 * release.  sizes may be anything: negative or overflowing sizes exceed those
 * that are cached. */
static inline core_tensor *core__tensor_cache_take_new(
    core__thread *self, const core_device *device, core_dtype dtype,
    uint64_t ndim, const int64_t *sizes)
{
    int64_t numel = 1, stride = 1;
    core_tensor *tensor;

    if (core__unlikely(ndim > CORE__TENSOR_INLINE_NDIM))
        return NULL;
    for (uint32_t i = 0; i < ndim; i++) {
        if (core__unlikely((uint64_t)sizes[i] > CORE__TENSOR_CACHE_BYTES_MAX))
            return NULL;
        numel *= sizes[i];
    }
    tensor = core__tensor_cache_take(self, device,
                                     (uint64_t)numel * core__dtype_size(dtype));
    if (core__unlikely(!tensor))
        return NULL;
    core__tensor_cache_renew(self, tensor, device);
    tensor->ndim = (uint8_t)ndim;
    tensor->dtype = (uint8_t)dtype;
    tensor->strides = tensor->inline_dims + ndim;
    tensor->numel = numel;
    for (uint64_t i = ndim; i-- > 0;) {
        int64_t size = sizes[i];

        tensor->inline_dims[i] = size;
        tensor->inline_dims[ndim + i] = stride;
        stride *= size > 1 ? size : 1;
    }
    return tensor;
}

/* Caches a tensor without references; false if the caller must destroy it.  In
 * the cache its reference count is 0, so a program that releases it once more
 * does not add it to the list again. */
static inline bool core__tensor_cache_put(core__thread *self,
                                          core_tensor *tensor)
{
    core_storage *storage = tensor->storage;
    core__tensor_cache_list *list;

    if (((uintptr_t)tensor->autograd | (uintptr_t)tensor->base) != 0 ||
        !storage || !storage->cache_class ||
        storage->device != self->blocks_of ||
        tensor->ndim > CORE__TENSOR_INLINE_NDIM ||
        atomic_load_explicit(&storage->references, memory_order_acquire) != 1)
        return false;
    list = core__tensor_cache_list_of(self, storage->cache_class);
    if (list->count >= self->cached_tensors_limit)
        return false;
    atomic_store_explicit(&storage->version, 0, memory_order_relaxed);
    atomic_store_explicit(&tensor->references, 0, memory_order_relaxed);
    tensor->base = list->head;
    list->head = tensor;
    core__thread_add32(&list->count, 1);
    return true;
}

/* Prepends all of a thread's cached tensors to the list, linked through
 * base. */
void core__tensor_cache_collect(core__thread *thread, core_tensor **list);
/* Frees the tensors of a list; calls the plugin. */
void core__tensor_cache_free(core_tensor *list);

#endif
