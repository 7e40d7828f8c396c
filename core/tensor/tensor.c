/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Creates and destroys tensors and storages.  Both come from the thread's free
 * lists, so the result of a small call needs neither a lock nor malloc. */

#include "tensor/tensor.h"

#include "base/memory.h"
#include "base/thread.h"
#include "device/device.h"
#include "memory/memory.h"
#include "tensor/batched.h"
#include "tensor/dtype.h"
#include "tensor/tensor_cache.h"
#include "tensor/layout.h"
#include "tensor/upcalls.h"

#include <string.h>

/* ------------------------------------------------------------ storages -- */

static inline core_storage *storage_wrap(core_device *device,
                                         core_memory memory, uint64_t size,
                                         uint64_t capacity)
{
    core_storage *storage = core__small_alloc(sizeof *storage);

    if (!storage)
        return NULL;
    /* a plain assignment would be a locked exchange */
    atomic_init(&storage->references, 1);
    atomic_init(&storage->version, 0);
    storage->device = device;
    storage->memory = memory;
    storage->size = size;
    storage->capacity = capacity;
    storage->block = NULL;
    storage->generation = 0;
    storage->cache_class = 0;
    storage->release = NULL;
    storage->context = NULL;
    atomic_init(&storage->number, 0);
    core__thread_add64(
        &core__thread_self()->storages[core__keys_slot(device->keys)], 1);
    return storage;
}

static inline core_status storage_new(core_device *device, uint64_t size,
                                      core_storage **out_storage)
{
    struct core__block *block;
    core_memory memory;
    uint64_t capacity;

    *out_storage = NULL;
    CORE_TRY(core__memory_alloc(device, size, &memory, &capacity, &block));
    *out_storage = storage_wrap(device, memory, size, capacity);
    if (!*out_storage) {
        core__memory_free(device, memory, capacity, block);
        return core__error_memory(sizeof **out_storage);
    }
    if (core__likely(device->small_blocks)) {
        (*out_storage)->cache_class = core__tensor_cache_class(capacity);
    } else if (!device->synchronous) {
        (*out_storage)->block = block;
        (*out_storage)->generation = atomic_load(&device->generation);
    }
    return CORE_OK;
}

void core__storage_destroy(core_storage *storage)
{
    core_device *device = storage->device;

    if (storage->release)
        storage->release(storage->context, storage->memory.handle);
    else if (storage->capacity)
        core__memory_free(device, storage->memory, storage->capacity,
                          storage->block);
    core__thread_add64(
        &core__thread_self()->storages[core__keys_slot(device->keys)], -1);
    core__small_free(storage, sizeof *storage);
}

core_status core__storage_adopt(core_device *device, void *data, uint64_t size,
                                void (*release)(void *, void *), void *context,
                                core_storage **out_storage)
{
    core_storage *storage =
        storage_wrap(device, (core_memory){data, 0}, size, 0);

    *out_storage = storage;
    if (!storage)
        return core__error_memory(sizeof *storage);
    storage->release = release;
    storage->context = context;
    return CORE_OK;
}

void core__storage_take(core_storage *to, core_storage *from)
{
    to->memory = from->memory;
    to->size = from->size;
    to->capacity = from->capacity;
    to->block = from->block;
    to->generation = from->generation;
    to->release = from->release;
    to->context = from->context;
    from->memory = (core_memory){0};
    from->size = from->capacity = 0;
    from->block = NULL;
    from->cache_class = 0;
    from->release = NULL;
}

uint64_t core__storage_number(core_storage *storage)
{
    static _Atomic uint64_t newest;
    uint64_t number = atomic_load(&storage->number), fresh;

    if (number && number != CORE__STORAGE_NUMBER_VARIES)
        return number;
    fresh = atomic_fetch_add(&newest, 1) + 1;
    if (storage->cache_class || number == CORE__STORAGE_NUMBER_VARIES ||
        atomic_compare_exchange_strong(&storage->number, &number, fresh))
        return fresh;
    return number;
}

/* ------------------------------------------------------------- tensors -- */

/* Header and dimensions; the caller sets storage, flags and numel. */
static inline __attribute__((always_inline)) core_tensor *tensor_header(
    core__thread *self, core_device *device, uint16_t kind, uint32_t ndim)
{
    core_tensor *tensor = core__small_alloc_of(self, sizeof *tensor);

    if (core__unlikely(!tensor))
        return NULL;
    atomic_init(&tensor->references, 1);
    tensor->kind = kind;
    tensor->flags = 0;
    tensor->keys = device->keys | CORE__KEYS_TENSOR;
    tensor->storage = NULL;
    tensor->device = device;
    tensor->offset = 0;
    tensor->autograd = NULL;
    tensor->base = NULL;
    tensor->sizes = tensor->inline_dims;
    if (core__unlikely(ndim > CORE__TENSOR_INLINE_NDIM)) {
        tensor->sizes = core__small_alloc_of(self, 2 * ndim * sizeof(int64_t));
        if (!tensor->sizes) {
            core__small_free_of(self, tensor, sizeof *tensor);
            return NULL;
        }
    }
    tensor->strides = tensor->sizes + ndim;
    if (core__unlikely(self->inference)) {
        tensor->flags = CORE__TENSOR_INFERENCE;
        tensor->keys = device->keys | CORE__KEYS_INFERENCE;
    }
    return tensor;
}

void core__tensor_take_apart(core_tensor *tensor, core__thread *self)
{
    if (core__likely(tensor->storage != NULL)) {
        if (core__storage_drop(tensor->storage))
            core__storage_destroy(tensor->storage);
    } else if (tensor->flags & CORE__TENSOR_BATCHED) {
        core__tensor_release(tensor->held);
    }
    core__tensor_release(tensor->base);
    if (tensor->sizes != tensor->inline_dims)
        core__small_free_of(self, tensor->sizes,
                            2 * tensor->ndim * sizeof(int64_t));
    core__small_free_of(self, tensor, sizeof *tensor);
}

static void __attribute__((noinline))
release_both(core_storage *storage, core_tensor *base)
{
    if (storage)
        core__storage_destroy(storage);
    if (base)
        core__tensor_destroy(base);
}

/* Frees a view without references.  Usually its elements have other owners, so
 * its references and header are released without a call. */
static inline bool drop_view(core__thread *self, core_tensor *view)
{
    core_storage *storage = view->storage;
    core_tensor *base = view->base;
    bool last_storage, last_base;

    if (!base || view->autograd || !storage ||
        view->ndim > CORE__TENSOR_INLINE_NDIM ||
        !core__small_put(self, view, sizeof *view))
        return false;
    last_storage = core__storage_drop(storage);
    last_base = core__tensor_drop(base);
    if (core__unlikely(last_storage || last_base))
        release_both(last_storage ? storage : NULL, last_base ? base : NULL);
    return true;
}

static inline void destroy(core_tensor *tensor, core__thread *self)
{
    if (core__likely(core__tensor_cache_put(self, tensor)) ||
        core__likely(drop_view(self, tensor)))
        return;
    /* Read here, not kept in a register from above. */
    __asm__("" : : : "memory");
    if (tensor->autograd)
        core__tensor_upcalls.destroy_recorded(self, tensor);
    else
        core__tensor_take_apart(tensor, self);
}

/* For a thread that has never called the core. */
static void __attribute__((noinline)) destroy_first(core_tensor *tensor)
{
    destroy(tensor, core__thread_create());
}

/* No function is called on the path of cached tensors, so no register is
 * saved. */
void core__tensor_destroy(core_tensor *tensor)
{
    core__thread *self = core__self_pointer;

    if (core__unlikely(!self))
        destroy_first(tensor);
    else
        destroy(tensor, self);
}

void core__tensor_update_layout(core_tensor *tensor)
{
    uint32_t flags = core__layout_flags(tensor->ndim, tensor->sizes,
                                        tensor->strides, &tensor->numel);

    tensor->flags =
        (uint16_t)((tensor->flags &
                    ~(uint32_t)(CORE__TENSOR_CONTIGUOUS | CORE__TENSOR_DENSE)) |
                   flags);
}

/* SHAPE error for a tensor whose last element is too far from its first. */
static core_status check_reach(int64_t last)
{
    return core__likely(last < INT64_MAX / 8)
               ? CORE_OK
               : core__error(CORE_ERROR_SHAPE,
                             "a tensor of these sizes has more bytes than can "
                             "be addressed");
}

/* Bytes of storage that the layout reaches; SHAPE error on overflow. */
static core_status layout_bytes(const core_tensor *tensor, uint64_t *out_bytes)
{
    int64_t last = 0;

    *out_bytes = 0;
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        int64_t reach;

        if (tensor->sizes[i] == 0)
            return CORE_OK;
        if (__builtin_mul_overflow(tensor->sizes[i] - 1, tensor->strides[i],
                                   &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return check_reach(INT64_MAX);
    }
    CORE_TRY(check_reach(last));
    *out_bytes = (uint64_t)(last + 1) * core__dtype_size(tensor->dtype);
    return CORE_OK;
}

static core_status check_sizes(core_dtype dtype, uint32_t ndim,
                               const int64_t *sizes)
{
    CORE_TRY(core__dtype_check(dtype));
    if (ndim > CORE_MAX_NDIM)
        return core__error(CORE_ERROR_SHAPE,
                           "%u dimensions; a tensor has at most %d", ndim,
                           CORE_MAX_NDIM);
    for (uint32_t i = 0; i < ndim; i++)
        if (sizes[i] < 0)
            return core__error(
                CORE_ERROR_SHAPE,
                "dimension %u has size %lld; sizes must not be negative", i,
                (long long)sizes[i]);
    return CORE_OK;
}

/* Row-major strides; a dimension of size 0 counts as 1. */
static core_status default_strides(core_tensor *tensor)
{
    int64_t stride = 1;

    for (uint32_t i = tensor->ndim; i-- > 0;) {
        int64_t size = tensor->sizes[i];

        tensor->strides[i] = stride;
        if (__builtin_mul_overflow(stride, size > 1 ? size : 1, &stride))
            return core__error(CORE_ERROR_SHAPE,
                               "a tensor of these sizes has more elements "
                               "than can be counted");
    }
    return CORE_OK;
}

core_status core__tensor_new(core_device *device, core_dtype dtype,
                             uint32_t ndim, const int64_t *sizes,
                             const int64_t *strides, core_tensor **out_tensor)
{
    core_tensor *tensor = NULL;
    core_status status;
    uint64_t bytes;

    *out_tensor = NULL;
    status = check_sizes(dtype, ndim, sizes);
    if (core__unlikely(status != CORE_OK))
        return status;
    if (core__likely(!strides)) {
        *out_tensor = core__tensor_cache_take_new(core__thread_self(), device,
                                                  dtype, ndim, sizes);
        if (core__likely(*out_tensor != NULL))
            return CORE_OK;
    }
    tensor = tensor_header(core__thread_self(), device,
                           core__tensor_kind((uint8_t)ndim, dtype), ndim);
    if (core__unlikely(!tensor))
        return core__error_memory(sizeof *tensor);
    for (uint32_t i = 0; i < ndim; i++)
        tensor->sizes[i] = sizes[i];
    if (strides) {
        memcpy(tensor->strides, strides, ndim * sizeof *strides);
        core__tensor_update_layout(tensor);
        status = layout_bytes(tensor, &bytes);
    } else {
        int64_t numel = 1;

        status = default_strides(tensor);
        if (status != CORE_OK)
            goto done;
        for (uint32_t i = 0; i < ndim; i++)
            numel *= sizes[i];
        tensor->numel = numel;
        tensor->flags |= CORE__TENSOR_CONTIGUOUS | CORE__TENSOR_DENSE;
        status = check_reach(numel - 1);
        bytes = (uint64_t)numel * core__dtype_size(dtype);
    }
    if (status == CORE_OK && core__likely(!device->meta))
        status = storage_new(device, bytes, &tensor->storage);
    if (status != CORE_OK)
        goto done;
    *out_tensor = tensor;
    tensor = NULL;
done:
    core__tensor_release(tensor);
    return status;
}

core_status core__tensor_new_like(const core_tensor *like, core_dtype dtype,
                                  core_tensor **out_tensor)
{
    core__tensor_like header = core__tensor_like_of(like);
    core_tensor *tensor;
    core_status status;

    header.kind = core__tensor_kind(like->ndim, dtype);
    tensor = core__tensor_cache_take_like(core__thread_self(), header,
                                          core__dtype_size(dtype));

    if (core__likely(tensor != NULL)) {
        *out_tensor = tensor;
        return CORE_OK;
    }
    tensor = tensor_header(core__thread_self(), like->device, header.kind,
                           like->ndim);
    *out_tensor = tensor;
    if (core__unlikely(!tensor))
        return core__error_memory(sizeof *tensor);
    for (uint32_t i = 0; i < 2u * like->ndim; i++)
        tensor->sizes[i] = like->sizes[i]; /* and strides after them */
    tensor->numel = like->numel;
    tensor->flags |= CORE__TENSOR_CONTIGUOUS | CORE__TENSOR_DENSE;
    status = storage_new(like->device,
                         (uint64_t)like->numel * core__dtype_size(dtype),
                         &tensor->storage);
    if (core__likely(status == CORE_OK))
        return CORE_OK;
    core__tensor_release(tensor);
    *out_tensor = NULL;
    return status;
}

core_status core__tensor_new_on_storage(core_storage *storage, core_dtype dtype,
                                        uint32_t ndim, const int64_t *sizes,
                                        core_tensor **out_tensor)
{
    core_tensor *tensor = NULL;
    core_status status;

    *out_tensor = NULL;
    CORE_TRY(check_sizes(dtype, ndim, sizes));
    tensor = tensor_header(core__thread_self(), storage->device,
                           core__tensor_kind((uint8_t)ndim, dtype), ndim);
    if (!tensor)
        return core__error_memory(sizeof *tensor);
    if (ndim)
        memcpy(tensor->sizes, sizes, ndim * sizeof *sizes);
    status = default_strides(tensor);
    core__tensor_update_layout(tensor);
    tensor->storage = storage;
    core__storage_retain(storage);
    if (status != CORE_OK) {
        core__tensor_release(tensor);
        return status;
    }
    *out_tensor = tensor;
    return CORE_OK;
}

static void __attribute__((cold, noinline))
inherit_flags(core_tensor *tensor, const core_tensor *source)
{
    tensor->flags |=
        source->flags & (CORE__TENSOR_READ_ONLY | CORE__TENSOR_TRACED);
    if (source->flags & CORE__TENSOR_TRACED) {
        tensor->keys |= CORE__KEYS_TRACED;
        core__tensor_upcalls.alias_traced(tensor);
    }
}

/* A tensor on the storage of another, without sizes, strides, numel and layout
 * flags. */
static inline __attribute__((always_inline)) core_tensor *alias_header(
    core__thread *self, core_tensor *source, uint16_t kind, uint32_t ndim,
    int64_t offset)
{
    core_tensor *tensor = tensor_header(self, source->device, kind, ndim);

    if (core__unlikely(!tensor))
        return NULL;
    tensor->offset = offset;
    tensor->storage = source->storage;
    if (core__likely(tensor->storage != NULL))
        core__storage_retain(tensor->storage);
    else if (source->flags & CORE__TENSOR_BATCHED)
        core__batched_share(tensor, source);
    if (core__unlikely(source->flags &
                       (CORE__TENSOR_READ_ONLY | CORE__TENSOR_TRACED)))
        inherit_flags(tensor, source);
    return tensor;
}

core_status core__tensor_alias(core_tensor *source, core_dtype dtype,
                               uint32_t ndim, const int64_t *sizes,
                               const int64_t *strides, int64_t offset,
                               core_tensor **out_tensor)
{
    core_tensor *tensor;

    *out_tensor = NULL;
    if (core__unlikely(ndim > CORE_MAX_NDIM))
        return check_sizes(dtype, ndim, sizes);
    tensor =
        alias_header(core__thread_self(), source,
                     core__tensor_kind((uint8_t)ndim, dtype), ndim, offset);
    if (core__unlikely(!tensor))
        return core__error_memory(sizeof *tensor);
    for (uint32_t i = 0; i < ndim; i++) {
        tensor->sizes[i] = sizes[i];
        tensor->strides[i] = strides[i];
    }
    core__tensor_update_layout(tensor);
    *out_tensor = tensor;
    return CORE_OK;
}

/* Sets an alias's base and creation flags, which make it a view for
 * autograd. */
static inline void make_view(core__thread *self, core_tensor *view,
                             core_tensor *source)
{
    core_tensor *base = source->base ? source->base : source;

    if (core__unlikely(self->inference)) {
        /* A view of an ordinary tensor is ordinary, and records in which mode
         * it was created; a view of an inference tensor needs no base. */
        if (source->flags & CORE__TENSOR_INFERENCE)
            return;
        view->flags &= (uint16_t)~CORE__TENSOR_INFERENCE;
        view->flags |= CORE__TENSOR_VIEW_INFERENCE;
        view->keys |= CORE__KEYS_TENSOR;
    } else if (core__unlikely(source->flags & CORE__TENSOR_INFERENCE)) {
        view->flags |= CORE__TENSOR_INFERENCE;
        view->keys &= ~(CORE__KEYS_TENSOR & ~CORE__KEYS_INFERENCE);
        return;
    }
    if (self->no_grad)
        view->flags |= CORE__TENSOR_VIEW_NO_GRAD;
    /* If a view's history is unknown, so is that of a view of it. */
    view->flags |= source->flags &
                   (CORE__TENSOR_VIEW_UNKNOWN | CORE__TENSOR_VIEW_FUNCTION);
    /* Its base may join the graph, so autograd may have to refuse a change.
     * Calls made by autograd set this themselves. */
    if (view->flags & CORE__TENSOR_VIEW_UNKNOWN ||
        !((self->excluded & CORE__KEY_AUTOGRAD) || self->no_grad))
        view->keys |= CORE__KEYS_VIEW;
    view->base = base;
    core__tensor_retain(base);
}

core_status core__tensor_view(core_tensor *source, uint32_t ndim,
                              const int64_t *sizes, const int64_t *strides,
                              int64_t offset, core_tensor **out_tensor)
{
    CORE_TRY(core__tensor_alias(source, source->dtype, ndim, sizes, strides,
                                offset, out_tensor));
    make_view(core__thread_self(), *out_tensor, source);
    return CORE_OK;
}

core_status core__tensor_permuted(core_tensor *source, const uint32_t *order,
                                  core_tensor **out_tensor)
{
    uint32_t ndim = source->ndim;
    core__thread *self = core__thread_self();
    core_tensor *view =
        alias_header(self, source, source->kind, ndim, source->offset);
    bool contiguous = true;
    int64_t expected = 1;

    *out_tensor = view;
    if (core__unlikely(!view))
        return core__error_memory(sizeof *view);
    for (uint32_t i = ndim; i-- > 0;) {
        int64_t size = source->sizes[order[i]];
        int64_t stride = source->strides[order[i]];

        view->sizes[i] = size;
        view->strides[i] = stride;
        contiguous &= stride == expected || size == 1;
        expected *= size;
    }
    /* Dense is independent of the order, and an empty tensor is also
     * contiguous. */
    view->flags |= source->flags & CORE__TENSOR_DENSE;
    if (contiguous || source->numel == 0)
        view->flags |= CORE__TENSOR_CONTIGUOUS;
    view->numel = source->numel;
    make_view(self, view, source);
    return CORE_OK;
}

/* Same storage and layout; NULL: no memory. */
static inline __attribute__((always_inline)) core_tensor *same(
    core__thread *self, core_tensor *source)
{
    uint32_t ndim = source->ndim;
    core_tensor *tensor =
        alias_header(self, source, source->kind, ndim, source->offset);

    if (core__unlikely(!tensor))
        return NULL;
    /* And strides after them; two dimensions without a check, because most
     * tensors have no more, and all have space for them. */
    memcpy(tensor->sizes, source->sizes, 4 * sizeof *source->sizes);
    for (uint32_t i = 4; core__unlikely(i < 2 * ndim); i++)
        tensor->sizes[i] = source->sizes[i];
    tensor->flags |=
        source->flags & (CORE__TENSOR_CONTIGUOUS | CORE__TENSOR_DENSE);
    tensor->numel = source->numel;
    return tensor;
}

static void swap(int64_t *values, uint32_t a, uint32_t b)
{
    int64_t value = values[a];

    values[a] = values[b];
    values[b] = value;
}

core_status core__tensor_transposed(core_tensor *source, uint32_t a, uint32_t b,
                                    core_tensor **out_tensor)
{
    core__thread *self = core__thread_self();
    core_tensor *view = same(self, source);

    *out_tensor = view;
    if (core__unlikely(!view))
        return core__error_memory(sizeof *view);
    if (core__likely(a != b)) {
        swap(view->sizes, a, b);
        swap(view->strides, a, b);
        /* A contiguous tensor is not contiguous after the swap; other cases
         * are checked. */
        if (core__likely(source->flags & CORE__TENSOR_CONTIGUOUS &&
                         view->sizes[a] > 1 && view->sizes[b] > 1 &&
                         source->numel > 0))
            view->flags &= (uint16_t)~CORE__TENSOR_CONTIGUOUS;
        else
            core__tensor_update_layout(view);
    }
    make_view(self, view, source);
    return CORE_OK;
}

core_status core__tensor_sliced(core_tensor *source, uint32_t dim,
                                int64_t first, int64_t count, int64_t step,
                                core_tensor **out_tensor)
{
    core__thread *self = core__thread_self();
    core_tensor *view = same(self, source);
    int64_t stride = source->strides[dim];

    *out_tensor = view;
    if (core__unlikely(!view))
        return core__error_memory(sizeof *view);
    view->offset += first * stride;
    view->sizes[dim] = count;
    /* Adjacent rows of a contiguous tensor remain contiguous, whatever their
     * number; their stride is the size of a row, if there are several.  Other
     * cases are checked. */
    if (core__likely(dim == 0 && step == 1 &&
                     source->flags & CORE__TENSOR_CONTIGUOUS &&
                     source->sizes[0] > 1 && source->numel > 0)) {
        view->numel = count * stride;
    } else {
        /* A step that is never taken, and whose stride would overflow, is
         * ignored. */
        if (!__builtin_mul_overflow(stride, step, &stride))
            view->strides[dim] = stride;
        core__tensor_update_layout(view);
    }
    make_view(self, view, source);
    return CORE_OK;
}

core_status core__tensor_shallow_copy(core_tensor *source,
                                      core_tensor **out_tensor)
{
    *out_tensor = same(core__thread_self(), source);
    return core__likely(*out_tensor != NULL)
               ? CORE_OK
               : core__error_memory(sizeof **out_tensor);
}

core_status core__tensor_number(core_scalar value, core_tensor **out_tensor)
{
    core_dtype dtype = value.tag == CORE_VALUE_FLOAT  ? CORE_F64
                       : value.tag == CORE_VALUE_BOOL ? CORE_BOOL
                                                      : CORE_I64;
    core_device *host;

    *out_tensor = NULL;
    CORE_TRY(core__device_host(&host));
    CORE_TRY(core__tensor_new(host, dtype, 0, NULL, NULL, out_tensor));
    core__element_store(dtype, core__tensor_memory(*out_tensor).handle, value);
    (*out_tensor)->flags |= CORE__TENSOR_NUMBER;
    return CORE_OK;
}

/* Takes over sizes and strides of `from`; the old ones are left in neither. */
static void move_dims(core_tensor *tensor, core_tensor *from)
{
    if (tensor->sizes != tensor->inline_dims)
        core__small_free(tensor->sizes, 2 * tensor->ndim * sizeof(int64_t));
    tensor->ndim = from->ndim;
    tensor->sizes = tensor->inline_dims;
    if (from->sizes != from->inline_dims) {
        tensor->sizes = from->sizes;
        from->sizes = from->inline_dims;
    } else {
        memcpy(tensor->inline_dims, from->inline_dims,
               sizeof from->inline_dims);
    }
    tensor->strides = tensor->sizes + tensor->ndim;
    core__tensor_update_layout(tensor);
    if (tensor->autograd)
        core__tensor_upcalls.autograd_relayout(tensor);
}

void core__tensor_take_layout(core_tensor *tensor, core_tensor *view)
{
    move_dims(tensor, view);
    tensor->offset = view->offset;
}

void core__tensor_detach(core_tensor *tensor)
{
    core__tensor_upcalls.history_drop(tensor);
}

core_status core__tensor_resize(core_tensor *tensor, uint32_t ndim,
                                const int64_t *sizes)
{
    core_tensor *fresh;

    if (tensor->base || (tensor->storage && tensor->storage->references != 1))
        return core__error(
            CORE_ERROR_SHAPE,
            "the tensor cannot be resized: it shares its storage");
    if (core__tensor_is_batched(tensor))
        return core__error(CORE_ERROR_SHAPE,
                           "the tensor cannot be resized: core_vmap has made "
                           "it for its samples");
    CORE_TRY(core__tensor_new(tensor->device, tensor->dtype, ndim, sizes, NULL,
                              &fresh));
    core__storage_release(tensor->storage);
    tensor->storage = fresh->storage;
    fresh->storage = NULL;
    tensor->offset = 0;
    move_dims(tensor, fresh);
    core__tensor_release(fresh);
    return CORE_OK;
}

static core_status __attribute__((cold))
without_content(const char *name, const core_tensor *tensor, bool only_lost)
{
    bool lost;
    const char *origin = core__tensor_upcalls.traced_origin(tensor, &lost);

    return only_lost && !lost
               ? CORE_OK
               : core__error(CORE_ERROR_UNSUPPORTED,
                             "%s: the tensor has no content: it stands for a "
                             "value of %s",
                             name, origin);
}

core_status core__tensor_check_untraced(const char *name,
                                        const core_tensor *tensor)
{
    CORE_TRY(core__thread_cut(name));
    if (tensor && tensor->flags & CORE__TENSOR_TRACED)
        return without_content(name, tensor, false);
    return core__thread_check_unrecorded(name);
}

core_status core__tensor_check_not_lost(const char *name,
                                        const core_tensor *tensor)
{
    return tensor->flags & CORE__TENSOR_TRACED
               ? without_content(name, tensor, true)
               : CORE_OK;
}

core_memory core__tensor_memory(const core_tensor *tensor)
{
    core_memory memory = {0};

    if (tensor->storage) {
        memory = tensor->storage->memory;
        memory.offset +=
            (uint64_t)tensor->offset * core__dtype_size(tensor->dtype);
    }
    return memory;
}

void core__tensor_fill_view(const core_tensor *tensor, core_view *out_view)
{
    out_view->struct_size = sizeof *out_view;
    out_view->dtype = tensor->dtype;
    out_view->memory = core__tensor_memory(tensor);
    out_view->sizes = tensor->sizes;
    out_view->strides = tensor->strides;
    out_view->numel = tensor->numel;
    out_view->ndim = tensor->ndim;
    out_view->flags =
        tensor->flags & CORE__TENSOR_CONTIGUOUS ? CORE_VIEW_CONTIGUOUS : 0;
    out_view->device = tensor->device;
}
