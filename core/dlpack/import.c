/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Import of tensors from DLPack. */

#include "base/error.h"
#include "base/memory.h"
#include "device/device.h"
#include "dlpack/dlpack.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

#include <libcore/device.h>

#include <string.h>

/* An imported DLPack tensor and how to return it. */
typedef struct imported {
    void *managed;
    bool versioned;
    core_device *device;
} imported;

static void return_to_producer(void *managed, bool versioned)
{
    core_dlpack_managed *newer = managed;
    core_dlpack_unversioned *older = managed;

    if (versioned && newer->deleter)
        newer->deleter(newer);
    else if (!versioned && older->deleter)
        older->deleter(older);
}

/* Called when the last tensor that uses the memory is released.  The deleter
 * knows nothing about libcore's streams, so the device must have finished its
 * work. */
static void release(void *context, void *data)
{
    imported *self = context;
    core__error_record earlier;

    (void)data;
    core__error_save(&earlier);
    if (!self->device->synchronous)
        (void)core_device_synchronize(self->device);
    core__error_restore(&earlier);
    return_to_producer(self->managed, self->versioned);
    core__free(self);
}

/* ------------------------------------------------------------- checking -- */

/* The limit of elements, and of bytes from the first to the last. */
#define MOST (INT64_MAX / 8)

typedef struct layout {
    core_dtype dtype;
    uint32_t ndim;
    int64_t numel;
    uint64_t bytes; /* from the first element to the end of the last */
    int64_t sizes[CORE_MAX_NDIM];
    int64_t strides[CORE_MAX_NDIM];
} layout;

static core_status too_large(void)
{
    return core__error(
        CORE_ERROR_SHAPE,
        "DLPack: the sizes and strides need more bytes than can be addressed");
}

/* The number of elements is limited where strides are 0 as well: everything
 * that counts the bytes of a result relies on that. */
static core_status read_sizes(const core_dlpack_tensor *from, layout *to)
{
    int64_t numel = 1;
    bool empty = false;

    if (from->ndim < 0 || from->ndim > CORE_MAX_NDIM)
        return core__error(
            CORE_ERROR_SHAPE,
            "DLPack: the tensor has %d dimensions; it must have 0 to %d",
            from->ndim, CORE_MAX_NDIM);
    if (from->ndim > 0 && !from->shape)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "DLPack: shape is NULL, but the tensor has %d dimensions",
            from->ndim);
    to->ndim = (uint32_t)from->ndim;
    for (uint32_t i = 0; i < to->ndim; i++) {
        to->sizes[i] = from->shape[i];
        if (to->sizes[i] < 0)
            return core__error(CORE_ERROR_SHAPE,
                               "DLPack: the size of dimension %u is %lld; it "
                               "must be 0 or more",
                               i, (long long)to->sizes[i]);
        empty = empty || to->sizes[i] == 0;
        if (__builtin_mul_overflow(numel, to->sizes[i] > 1 ? to->sizes[i] : 1,
                                   &numel) ||
            numel >= MOST)
            return too_large();
    }
    to->numel = empty ? 0 : numel;
    return CORE_OK;
}

/* Row-major strides where none are given, and in dimensions of size 1. */
static core_status read_strides(const core_dlpack_tensor *from, layout *to)
{
    int64_t stride = 1;

    for (uint32_t i = to->ndim; i-- > 0;) {
        bool counts = from->strides && to->numel && to->sizes[i] > 1;

        to->strides[i] = counts ? from->strides[i] : stride;
        if (to->strides[i] < 0)
            return core__error(CORE_ERROR_UNSUPPORTED,
                               "DLPack: the stride of dimension %u is %lld; "
                               "negative strides are not supported",
                               i, (long long)to->strides[i]);
        if (__builtin_mul_overflow(stride, to->sizes[i] > 1 ? to->sizes[i] : 1,
                                   &stride))
            return too_large();
    }
    return CORE_OK;
}

static core_status count_bytes(layout *to)
{
    int64_t last = 0, reach;

    if (to->numel == 0)
        return CORE_OK;
    for (uint32_t i = 0; i < to->ndim; i++)
        if (__builtin_mul_overflow(to->sizes[i] - 1, to->strides[i], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return too_large();
    if (last >= MOST)
        return too_large();
    to->bytes = (uint64_t)(last + 1) * core__dtype_size(to->dtype);
    return CORE_OK;
}

static core_status check_memory(const core_dlpack_tensor *from,
                                const core_device *device, const layout *to)
{
    uint64_t place = from->byte_offset, size = core__dtype_size(to->dtype);
    uint64_t end;

    /* Nothing is larger than INT64_MAX; offsets of views are signed. */
    if (__builtin_add_overflow(place, to->bytes, &end) || end > INT64_MAX)
        return core__error(CORE_ERROR_SHAPE,
                           "DLPack: byte_offset is %llu and the tensor has "
                           "%llu bytes, which ends beyond all memory",
                           (unsigned long long)place,
                           (unsigned long long)to->bytes);
    if (to->numel == 0)
        return CORE_OK;
    if (!from->data)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "DLPack: data is NULL, but the tensor has %lld elements",
            (long long)to->numel);
    if ((device->flags & (CORE_DEVICE_FLAT | CORE_DEVICE_HOST_ACCESS)) &&
        __builtin_add_overflow(place, (uint64_t)(uintptr_t)from->data, &place))
        return too_large();
    if (__builtin_add_overflow(place, to->bytes, &end))
        return too_large();
    if (place % size != 0)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "DLPack: the data of a tensor of %s is at 0x%llx, "
                           "which is not a multiple of %llu",
                           core__dtype_name(to->dtype),
                           (unsigned long long)place, (unsigned long long)size);
    return CORE_OK;
}

/* --------------------------------------------------------------- import -- */

static core_status make_tensor(const core_dlpack_tensor *from,
                               const layout *shape, imported *self,
                               core_tensor **out_tensor)
{
    core_storage *storage = NULL;
    core_tensor *flat = NULL;
    const int64_t none = 0;
    core_status status;

    CORE_TRY(core__storage_adopt(self->device, from->data, shape->bytes, NULL,
                                 self, &storage));
    storage->memory.offset = from->byte_offset;
    status =
        core__tensor_new_on_storage(storage, shape->dtype, 1, &none, &flat);
    if (status == CORE_OK)
        status =
            core__tensor_alias(flat, shape->dtype, shape->ndim, shape->sizes,
                               shape->strides, 0, out_tensor);
    /* Only now, since on earlier failures the caller still owns the DLPack
     * tensor. */
    if (status == CORE_OK)
        storage->release = release;
    core__tensor_release(flat);
    core__storage_release(storage);
    return status;
}

static core_status import(const core_dlpack_tensor *from, void *managed,
                          bool versioned, uint64_t flags, core_device *device,
                          core_stream *stream, core_tensor **out_tensor)
{
    imported *self = NULL;
    layout shape = {0};
    core_status status;

    status = core__dlpack_dtype(from->dtype, &shape.dtype);
    if (status == CORE_OK)
        status = read_sizes(from, &shape);
    if (status == CORE_OK)
        status = read_strides(from, &shape);
    if (status == CORE_OK)
        status = count_bytes(&shape);
    if (status == CORE_OK)
        status = core__dlpack_device(from->device, device, &device);
    if (status == CORE_OK)
        status = check_memory(from, device, &shape);
    if (status == CORE_OK)
        status = core__dlpack_wait_for_producer(device, stream);
    if (status == CORE_OK) {
        self = core__alloc(sizeof *self);
        status = self ? CORE_OK : core__error_memory(sizeof *self);
    }
    if (status == CORE_OK) {
        *self = (imported){managed, versioned, device};
        status = make_tensor(from, &shape, self, out_tensor);
    }
    if (status == CORE_OK) {
        /* An ordinary tensor even in inference mode, as its memory existed
         * before. */
        (*out_tensor)->keys |= CORE__KEYS_TENSOR;
        (*out_tensor)->flags &= (uint16_t)~CORE__TENSOR_INFERENCE;
        if (flags & CORE_DLPACK_READ_ONLY)
            (*out_tensor)->flags |= CORE__TENSOR_READ_ONLY;
        return CORE_OK;
    }
    core__free(self);
    return_to_producer(managed, versioned);
    return status;
}

core_status core_dlpack_import(core_dlpack_managed *managed,
                               core_device *device, core_stream *stream,
                               core_tensor **out_tensor)
{
    CORE__NOT_NULL(out_tensor);
    *out_tensor = NULL;
    CORE__NOT_NULL(managed);
    if (managed->major != CORE_DLPACK_MAJOR) {
        uint32_t major = managed->major, minor = managed->minor;

        return_to_producer(managed, true);
        return core__error(
            CORE_ERROR_INCOMPATIBLE,
            "DLPack: the tensor has version %u.%u; libcore supports %u.x",
            major, minor, CORE_DLPACK_MAJOR);
    }
    return import(&managed->tensor, managed, true, managed->flags, device,
                  stream, out_tensor);
}

core_status core_dlpack_import_unversioned(core_dlpack_unversioned *managed,
                                           core_device *device,
                                           core_stream *stream,
                                           core_tensor **out_tensor)
{
    CORE__NOT_NULL(out_tensor);
    *out_tensor = NULL;
    CORE__NOT_NULL(managed);
    return import(&managed->tensor, managed, false, 0, device, stream,
                  out_tensor);
}
