/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Tensors on the storage of another, and where a tensor's memory is. */

#include "device/device.h"
#include "tensor/dtype.h"
#include "tensor/storage_check.h"
#include "tensor/tensor.h"

#include <libcore/tensor.h>

/* The arguments of core_tensor_alias. */
typedef struct layout {
    core_dtype dtype;
    uint32_t ndim;
    const int64_t *sizes;
    const int64_t *strides;
    int64_t offset;
} layout;

static core_status check_source(const core_tensor *storage)
{
    if (storage->flags & CORE__TENSOR_BATCHED)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "core_tensor_alias: a tensor inside of core_vmap has no storage");
    if (core__tensor_is_meta(storage))
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "core_tensor_alias: a tensor on \"meta\" has no "
                           "memory");
    CORE_TRY(core__tensor_check_untraced("core_tensor_alias", storage));
    return core__storage_check(storage->storage);
}

static core_status check_dims(const layout *to)
{
    for (uint32_t i = 0; i < to->ndim; i++) {
        if (to->sizes[i] < 0)
            return core__error(CORE_ERROR_SHAPE,
                               "core_tensor_alias: the size of dimension %u is "
                               "%lld; it must be 0 or more",
                               i, (long long)to->sizes[i]);
        if (to->strides[i] < 0)
            return core__error(
                CORE_ERROR_SHAPE,
                "core_tensor_alias: the stride of dimension %u is %lld; it "
                "must be 0 or more",
                i, (long long)to->strides[i]);
    }
    return CORE_OK;
}

static core_status too_large(void)
{
    return core__error(CORE_ERROR_SHAPE,
                       "core_tensor_alias: the sizes and strides need more "
                       "bytes than can be addressed");
}

/* The number of elements is limited where strides are 0 as well: everything
 * that counts the bytes of a result relies on that.  *out_end: the end of the
 * last element, in elements from the start of the storage. */
static core_status count_elements(const layout *to, int64_t *out_end)
{
    int64_t numel = 1, last = to->offset, reach;
    bool empty = false;

    for (uint32_t i = 0; i < to->ndim; i++) {
        int64_t size = to->sizes[i] > 1 ? to->sizes[i] : 1;

        empty = empty || to->sizes[i] == 0;
        if (__builtin_mul_overflow(numel, size, &numel) ||
            __builtin_mul_overflow(size - 1, to->strides[i], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return too_large();
    }
    if (numel >= INT64_MAX / 8 || last >= INT64_MAX / 8)
        return too_large();
    *out_end = empty ? to->offset : last + 1;
    return CORE_OK;
}

static core_status check_memory(const core_storage *storage, const layout *to)
{
    uint64_t size = core_dtype_size(to->dtype), place = storage->memory.offset;
    int64_t end = 0;

    CORE_TRY(count_elements(to, &end));
    if ((uint64_t)end * size > storage->size)
        return core__error(
            CORE_ERROR_SHAPE,
            "core_tensor_alias: the tensor ends %llu bytes after "
            "the start of the storage, which has %llu",
            (unsigned long long)((uint64_t)end * size),
            (unsigned long long)storage->size);
    if (storage->device->flags & (CORE_DEVICE_FLAT | CORE_DEVICE_HOST_ACCESS))
        place += (uint64_t)(uintptr_t)storage->memory.handle;
    if (place % size != 0)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_tensor_alias: the storage is at 0x%llx, which "
                           "is not a multiple of the %llu bytes of %s",
                           (unsigned long long)place, (unsigned long long)size,
                           core_dtype_name(to->dtype));
    return CORE_OK;
}

static core_status check_layout(const core_tensor *storage, const layout *to)
{
    if (!core_dtype_size(to->dtype))
        return core__error(CORE_ERROR_DTYPE,
                           "core_tensor_alias: %u is not a supported dtype",
                           to->dtype);
    if (to->offset < 0)
        return core__error(CORE_ERROR_SHAPE,
                           "core_tensor_alias: the offset is %lld; it must be "
                           "0 or more",
                           (long long)to->offset);
    CORE_TRY(check_dims(to));
    return check_memory(storage->storage, to);
}

core_status core_tensor_alias(core_tensor *storage, core_dtype dtype,
                              const int64_t *sizes, const int64_t *strides,
                              size_t ndim, int64_t offset,
                              core_tensor **out_tensor)
{
    layout to = {dtype, (uint32_t)ndim, sizes, strides, offset};

    CORE__NOT_NULL(out_tensor);
    *out_tensor = NULL;
    CORE__NOT_NULL(storage);
    if (ndim) {
        CORE__NOT_NULL(sizes);
        CORE__NOT_NULL(strides);
    }
    if (ndim > CORE_MAX_NDIM)
        return core__error(CORE_ERROR_SHAPE,
                           "core_tensor_alias: the tensor has %zu dimensions; "
                           "it must have 0 to %d",
                           ndim, CORE_MAX_NDIM);
    CORE_TRY(check_source(storage));
    CORE_TRY(check_layout(storage, &to));
    CORE_TRY(core__tensor_alias(storage, dtype, to.ndim, sizes, strides, offset,
                                out_tensor));
    /* An ordinary tensor even in inference mode, as its memory existed
     * before. */
    (*out_tensor)->keys |= CORE__KEYS_TENSOR;
    (*out_tensor)->flags &= (uint16_t)~CORE__TENSOR_INFERENCE;
    return CORE_OK;
}

core_status core_tensor_memory(const core_tensor *tensor,
                               core_memory *out_memory)
{
    CORE__NOT_NULL(out_memory);
    *out_memory = (core_memory){0};
    CORE__NOT_NULL(tensor);
    if (!tensor->storage)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "core_tensor_memory: the tensor on \"%s\" has no "
                           "memory",
                           core_device_name(tensor->device));
    CORE_TRY(core__tensor_check_untraced("core_tensor_memory", tensor));
    CORE_TRY(core__storage_check(tensor->storage));
    *out_memory = core__tensor_memory(tensor);
    return CORE_OK;
}
