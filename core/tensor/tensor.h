/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* tensor.h: the structs of tensors and storages, and their internal
 * functions. */

#ifndef CORE_TENSOR_TENSOR_H
#define CORE_TENSOR_TENSOR_H

#include "base/error.h"
#include "base/keys.h"

#include <libcore/kernel.h>

#include <stdatomic.h>
#include <stdbool.h>

typedef struct core_storage core_storage;
typedef struct core__autograd_meta
    core__autograd_meta; /* autograd/graph/autograd_meta.h */

/* Memory of a device, shared by a tensor and its views.  The version counts
 * in-place changes; views and detached tensors share it. */
struct core_storage {
    _Atomic uint32_t references;
    _Atomic uint32_t version;
    core_device *device; /* with a reference */
    core_memory memory;
    uint64_t size;             /* bytes available to tensors */
    uint64_t capacity;         /* bytes allocated */
    struct core__block *block; /* memory/allocator.h; NULL: none */
    uint32_t generation;       /* the device's at creation; 0 if synchronous */
    uint32_t cache_class; /* class in which threads cache it with its tensor
                     * (tensor_cache.h); 0: none */
    /* For memory that was passed in: called instead of freeing it. */
    void (*release)(void *context, void *data);
    void *context;
    _Atomic uint64_t number; /* for core__storage_number; 0: none yet, or
                              * CORE__STORAGE_NUMBER_VARIES */
};

/* The number of a storage whose changes its version does not count: each query
 * gets a new one. */
#define CORE__STORAGE_NUMBER_VARIES UINT64_MAX

enum {
    CORE__TENSOR_CONTIGUOUS = 1u << 0,   /* row-major, without gaps */
    CORE__TENSOR_DENSE = 1u << 1,        /* row-major in some order of its
                                        * dimensions, so no overlap */
    CORE__TENSOR_INFERENCE = 1u << 2,    /* created in inference mode */
    CORE__TENSOR_NUMBER = 1u << 3,       /* represents a number argument: ranks
                                        * below 0-dim tensors in promotion */
    CORE__TENSOR_VIEW_NO_GRAD = 1u << 4, /* view created with grad mode off */
    CORE__TENSOR_VIEW_INFERENCE = 1u << 5, /* view created in inference mode */
    /* one of these: autograd does not know how it derives from its base */
    CORE__TENSOR_VIEW_UNKNOWN =
        CORE__TENSOR_VIEW_NO_GRAD | CORE__TENSOR_VIEW_INFERENCE,
    CORE__TENSOR_VIEW_MULTIPLE = 1u << 6, /* one of several output views */
    CORE__TENSOR_READ_ONLY = 1u << 7,     /* memory that must not be changed */
    /* view whose history is a program's function, or a view of one */
    CORE__TENSOR_VIEW_FUNCTION = 1u << 8,
    CORE__TENSOR_BATCHED = 1u << 9, /* tensor/batched.h */
    CORE__TENSOR_TRACED = 1u << 10  /* stands for a value of a program that is
                                   * recorded: its storage has no memory
                                   * (compile/record/trace.h) */
};

enum { CORE__TENSOR_INLINE_NDIM = 6 };

struct core_tensor {
    _Atomic uint32_t references;
    union {
        struct {
            uint8_t ndim;
            uint8_t dtype;
        };
        uint16_t kind; /* both, compared and copied as one value */
    };
    uint16_t flags;
    uint64_t keys;         /* slot, functionality, requires-grad fact */
    core_storage *storage; /* NULL on the meta device and of a batched tensor */
    core_device *device;   /* without a reference: the storage's; permanent for
                            * meta */
    int64_t numel;
    int64_t offset;                /* elements, from the start of the storage */
    core__autograd_meta *autograd; /* NULL until it is needed */
    core_tensor *base; /* of a view: the tensor that is not a view; with a
                        * reference */
    int64_t *sizes;    /* inline_dims, or a block of 2 * ndim */
    int64_t *strides;  /* sizes + ndim */
    int64_t inline_dims[2 * CORE__TENSOR_INLINE_NDIM];
    /* Only of a batched tensor: the tensor of all samples, with a reference;
     * the call of core_vmap that it belongs to, and which dimension of `held`
     * is that of the samples, or CORE__BATCH_NONE.  Of a tensor of a lazy
     * region: the next one (compile/record/lazy.h). */
    core_tensor *held;
    uint64_t level : 56;
    uint64_t batch_dim : 8;
};

static inline uint16_t core__tensor_kind(uint8_t ndim, core_dtype dtype)
{
    core_tensor tensor;

    tensor.ndim = ndim;
    tensor.dtype = (uint8_t)dtype;
    return tensor.kind;
}

/* ------------------------------------------------------------ creation -- */

/* Creates a tensor with uninitialised memory.  strides NULL: row-major.  On a
 * meta device it has no memory. */
core_status core__tensor_new(core_device *device, core_dtype dtype,
                             uint32_t ndim, const int64_t *sizes,
                             const int64_t *strides, core_tensor **out_tensor);
/* The same, row-major, with the sizes of a row-major tensor: nothing can
 * overflow, so nothing is checked. */
core_status core__tensor_new_like(const core_tensor *like, core_dtype dtype,
                                  core_tensor **out_tensor);
/* Creates a tensor on the storage of `source`, on the same device.  offset is
 * in elements of dtype.  It is not yet a view for autograd: see
 * core__tensor_view. */
core_status core__tensor_alias(core_tensor *source, core_dtype dtype,
                               uint32_t ndim, const int64_t *sizes,
                               const int64_t *strides, int64_t offset,
                               core_tensor **out_tensor);
/* The same with base and creation flags: the result of view operators. */
core_status core__tensor_view(core_tensor *source, uint32_t ndim,
                              const int64_t *sizes, const int64_t *strides,
                              int64_t offset, core_tensor **out_tensor);
/* The same with the dimensions in another order: order[i] is a source
 * dimension. */
core_status core__tensor_permuted(core_tensor *source, const uint32_t *order,
                                  core_tensor **out_tensor);
/* The same with two dimensions swapped. */
core_status core__tensor_transposed(core_tensor *source, uint32_t a, uint32_t b,
                                    core_tensor **out_tensor);
/* The same with `count` elements of one dimension, starting at `first`, a step
 * apart. */
core_status core__tensor_sliced(core_tensor *source, uint32_t dim,
                                int64_t first, int64_t count, int64_t step,
                                core_tensor **out_tensor);
/* Same storage and layout, without history. */
core_status core__tensor_shallow_copy(core_tensor *source,
                                      core_tensor **out_tensor);
/* Creates a 0-dim tensor on the host for a number, marked TENSOR_NUMBER. */
core_status core__tensor_number(core_scalar value, core_tensor **out_tensor);
/* Gives a tensor other sizes and, if needed, a larger storage; only for
 * tensors without views. */
core_status core__tensor_resize(core_tensor *tensor, uint32_t ndim,
                                const int64_t *sizes);
/* Gives a tensor the layout of `view`, an unshared tensor on the same storage,
 * which can only be released afterwards. */
void core__tensor_take_layout(core_tensor *tensor, core_tensor *view);
/* Turns the tensor into a leaf that does not require grad. */
void core__tensor_detach(core_tensor *tensor);
void core__tensor_destroy(core_tensor *tensor);
void core__storage_destroy(core_storage *storage);
/* Creates a storage on memory that is passed in; release may be NULL. */
core_status core__storage_adopt(core_device *device, void *data, uint64_t size,
                                void (*release)(void *, void *), void *context,
                                core_storage **out_storage);
/* Moves the memory of a storage, which is left without any, to one of the same
 * device that has none. */
void core__storage_take(core_storage *to, core_storage *from);
/* True for memory of another process (exported_memory.c). */
bool core__storage_is_imported(const core_storage *storage);
/* The number that identifies a storage's memory; never used again.  Memory that
 * threads recycle (tensor_cache.h) has a new one each time, as has memory with
 * CORE__STORAGE_NUMBER_VARIES. */
uint64_t core__storage_number(core_storage *storage);
/* Creates a row-major tensor at the start of a storage. */
core_status core__tensor_new_on_storage(core_storage *storage, core_dtype dtype,
                                        uint32_t ndim, const int64_t *sizes,
                                        core_tensor **out_tensor);

/* Recomputes numel and the layout flags after sizes or strides changed. */
void core__tensor_update_layout(core_tensor *tensor);

/* ------------------------------------------------------- small helpers -- */

static inline void core__tensor_retain(core_tensor *tensor)
{
    atomic_fetch_add_explicit(&tensor->references, 1, memory_order_relaxed);
}

/* Drops a reference; true if it was the last, and the caller must destroy the
 * tensor. */
static inline bool core__tensor_drop(core_tensor *tensor)
{
    /* A sole owner needs no atomic read-modify-write. */
    return atomic_load_explicit(&tensor->references, memory_order_acquire) ==
               1 ||
           atomic_fetch_sub_explicit(&tensor->references, 1,
                                     memory_order_acq_rel) == 1;
}

static inline void core__tensor_release(core_tensor *tensor)
{
    if (tensor && core__tensor_drop(tensor))
        core__tensor_destroy(tensor);
}

static inline void core__storage_retain(core_storage *storage)
{
    atomic_fetch_add_explicit(&storage->references, 1, memory_order_relaxed);
}

static inline bool core__storage_drop(core_storage *storage)
{
    return atomic_load_explicit(&storage->references, memory_order_acquire) ==
               1 ||
           atomic_fetch_sub_explicit(&storage->references, 1,
                                     memory_order_acq_rel) == 1;
}

static inline void core__storage_release(core_storage *storage)
{
    if (storage && core__storage_drop(storage))
        core__storage_destroy(storage);
}

static inline bool core__tensor_requires_grad(const core_tensor *tensor)
{
    return tensor->keys & CORE__KEYS_REQUIRES_GRAD;
}

/* True if changes of the memory may not be counted. */
static inline bool core__storage_varies(const core_storage *storage)
{
    return storage &&
           atomic_load_explicit(&storage->number, memory_order_relaxed) ==
               CORE__STORAGE_NUMBER_VARIES;
}

/* The memory is not cached with a tensor any more: the next tensor would vary,
 * too. */
static inline void core__storage_set_varying(core_storage *storage)
{
    storage->cache_class = 0;
    atomic_store(&storage->number, CORE__STORAGE_NUMBER_VARIES);
}

/* 0 for a batched tensor: see core__batched_version. */
static inline uint32_t core__tensor_version(const core_tensor *tensor)
{
    return tensor->storage ? atomic_load_explicit(&tensor->storage->version,
                                                  memory_order_relaxed)
                           : 0;
}

static inline void core__storage_bump_version(core_storage *storage)
{
    atomic_fetch_add_explicit(&storage->version, 1, memory_order_relaxed);
}

static inline void core__tensor_bump_version(core_tensor *tensor)
{
    if (tensor->storage)
        core__storage_bump_version(tensor->storage);
}

static inline bool core__tensor_is_meta(const core_tensor *tensor)
{
    return !tensor->storage;
}

/* UNSUPPORTED, beginning with the name of a call that accesses memory, if a
 * program is being recorded in this thread, or the tensor is of one.  tensor
 * may be NULL. */
core_status core__tensor_check_untraced(const char *name,
                                        const core_tensor *tensor);
/* UNSUPPORTED, if the tensor is of a recording that has ended, so that it never
 * has content. */
core_status core__tensor_check_not_lost(const char *name,
                                        const core_tensor *tensor);

/* Memory of the element at (0, …). */
core_memory core__tensor_memory(const core_tensor *tensor);
/* Valid as long as the tensor exists and keeps its layout. */
void core__tensor_fill_view(const core_tensor *tensor, core_view *out_view);

/* core__memory_record_handle for the tensor's memory. */
core_status core__tensor_record_handle(core_tensor *tensor, void *handle);

/* Frees a tensor without an autograd record and drops its references. */
typedef struct core__thread core__thread; /* base/thread.h */
void core__tensor_take_apart(core_tensor *tensor, core__thread *self);

#endif
