/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Export of tensors to DLPack. */

#include "base/error.h"
#include "base/memory.h"
#include "device/device.h"
#include "dlpack/dlpack.h"
#include "tensor/tensor.h"

#include <libcore/autograd.h>
#include <libcore/ops.h>

#include <string.h>

/* What a consumer owns: the DLPack struct and everything it points to. */
typedef struct exported {
    union {
        core_dlpack_managed versioned;
        core_dlpack_unversioned unversioned;
    } managed;
    core_tensor *tensor;
    int64_t dims[]; /* sizes, strides */
} exported;

static void end(exported *self)
{
    core__tensor_release(self->tensor);
    core__free(self);
}

static void delete_versioned(core_dlpack_managed *managed)
{
    if (managed)
        end(managed->manager_ctx);
}

static void delete_unversioned(core_dlpack_unversioned *managed)
{
    if (managed)
        end(managed->manager_ctx);
}

static core_status check(const core_tensor *tensor, uint64_t flags)
{
    const uint64_t known = CORE_DLPACK_READ_ONLY | CORE_DLPACK_COPIED;

    if (flags & ~known)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "DLPack: the export flags are 0x%llx; accepted: "
                           "CORE_DLPACK_READ_ONLY and CORE_DLPACK_COPIED",
                           (unsigned long long)flags);
    if (core__tensor_requires_grad(tensor))
        return core__error(CORE_ERROR_AUTOGRAD,
                           "DLPack: the tensor requires grad and cannot be "
                           "exported, as changes made elsewhere would not be "
                           "recorded; export the result of detach");
    if (core__tensor_is_meta(tensor))
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "DLPack: the tensor is on \"%s\" and has no memory to share",
            tensor->device->name);
    return CORE_OK;
}

static core_status copy_of(core_tensor *tensor, core_tensor **out_copy)
{
    bool before = core_grad_mode_set(false);
    core_status status = core_clone(tensor, CORE_FORMAT_CONTIGUOUS, out_copy);

    core_grad_mode_set(before);
    return status;
}

/* On devices with flat addresses, data is the address of the first element,
 * since not every consumer applies byte_offset. */
static void describe(exported *self, core_dlpack_tensor *out)
{
    const core_tensor *tensor = self->tensor;
    core_memory memory = core__tensor_memory(tensor);
    bool flat =
        tensor->device->flags & (CORE_DEVICE_FLAT | CORE_DEVICE_HOST_ACCESS);

    memcpy(self->dims, tensor->sizes, tensor->ndim * sizeof(int64_t));
    memcpy(self->dims + tensor->ndim, tensor->strides,
           tensor->ndim * sizeof(int64_t));
    *out = (core_dlpack_tensor){
        .data = memory.handle,
        .device = core__dlpack_from_device(tensor->device),
        .ndim = tensor->ndim,
        .dtype = core__dlpack_from_dtype(tensor->dtype),
        .shape = self->dims,
        .strides = self->dims + tensor->ndim,
        .byte_offset = memory.offset,
    };
    if (flat) {
        out->data =
            memory.handle ? (char *)memory.handle + memory.offset : NULL;
        out->byte_offset = 0;
    }
}

/* Fills everything but the DLPack struct. */
static core_status begin(core_tensor *tensor, uint64_t flags, int64_t stream,
                         exported **out_self)
{
    exported *self = NULL;
    size_t size;
    core_status status = CORE_OK;

    *out_self = NULL;
    CORE_TRY(core__tensor_check_untraced("DLPack", tensor));
    CORE_TRY(check(tensor, flags));
    size = sizeof *self + 2 * tensor->ndim * sizeof(int64_t);
    self = core__alloc_zero(size);
    if (!self)
        return core__error_memory(size);
    if (flags & CORE_DLPACK_COPIED)
        status = copy_of(tensor, &self->tensor);
    else
        self->tensor = core_tensor_retain(tensor);
    if (status == CORE_OK)
        status = core__dlpack_order_consumer(tensor->device, stream);
    if (status == CORE_OK) {
        *out_self = self;
        return CORE_OK;
    }
    end(self);
    return status;
}

core_status core_dlpack_export(core_tensor *tensor, uint64_t flags,
                               int64_t stream,
                               core_dlpack_managed **out_managed)
{
    exported *self;

    CORE__NOT_NULL(out_managed);
    *out_managed = NULL;
    CORE__NOT_NULL(tensor);
    CORE_TRY(begin(tensor, flags, stream, &self));
    if (core_tensor_is_read_only(self->tensor))
        flags |= CORE_DLPACK_READ_ONLY;
    self->managed.versioned = (core_dlpack_managed){
        .major = CORE_DLPACK_MAJOR,
        .minor = CORE_DLPACK_MINOR,
        .manager_ctx = self,
        .deleter = delete_versioned,
        .flags = flags,
    };
    describe(self, &self->managed.versioned.tensor);
    *out_managed = &self->managed.versioned;
    return CORE_OK;
}

core_status core_dlpack_export_unversioned(
    core_tensor *tensor, uint64_t flags, int64_t stream,
    core_dlpack_unversioned **out_managed)
{
    exported *self;

    CORE__NOT_NULL(out_managed);
    *out_managed = NULL;
    CORE__NOT_NULL(tensor);
    if ((flags & CORE_DLPACK_READ_ONLY) ||
        (core_tensor_is_read_only(tensor) && !(flags & CORE_DLPACK_COPIED)))
        return core__error(
            CORE_ERROR_REFUSED,
            "DLPack: the tensor is read-only, which the unversioned struct "
            "cannot express; export the versioned one");
    CORE_TRY(begin(tensor, flags, stream, &self));
    self->managed.unversioned = (core_dlpack_unversioned){
        .manager_ctx = self,
        .deleter = delete_unversioned,
    };
    describe(self, &self->managed.unversioned.tensor);
    *out_managed = &self->managed.unversioned;
    return CORE_OK;
}
