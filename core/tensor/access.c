/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The public accessors of libcore/tensor.h. */

#include "base/memory.h"
#include "tensor/batched.h"
#include "tensor/dtype.h"
#include "tensor/layout.h"

#include <libcore/tensor.h>

#include <string.h>

core_tensor *core_tensor_retain(core_tensor *tensor)
{
    if (tensor)
        core__tensor_retain(tensor);
    return tensor;
}

void core_tensor_release(core_tensor *tensor)
{
    core__tensor_release(tensor);
}

void core_tensors_release(core_tensor **tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        core__tensor_release(tensors[i]);
    core__free(tensors);
}

void core_value_release(core_value *value)
{
    if (!value)
        return;
    if (value->tag == CORE_VALUE_TENSOR)
        core__tensor_release(value->u.tensor);
    else if (value->tag == CORE_VALUE_TENSOR_LIST)
        core_tensors_release((core_tensor **)value->u.tensors, value->count);
    *value = (core_value){0};
}

uint32_t core_tensor_ndim(const core_tensor *tensor)
{
    return tensor->ndim;
}

const int64_t *core_tensor_sizes(const core_tensor *tensor)
{
    return tensor->sizes;
}

const int64_t *core_tensor_strides(const core_tensor *tensor)
{
    return tensor->strides;
}

int64_t core_tensor_size(const core_tensor *tensor, int64_t dim)
{
    if (dim < 0)
        dim += tensor->ndim;
    return dim < 0 || dim >= tensor->ndim ? -1 : tensor->sizes[dim];
}

int64_t core_tensor_numel(const core_tensor *tensor)
{
    return tensor->numel;
}

core_dtype core_tensor_dtype(const core_tensor *tensor)
{
    return tensor->dtype;
}

core_device *core_tensor_device(const core_tensor *tensor)
{
    return tensor->device;
}

int64_t core_tensor_offset(const core_tensor *tensor)
{
    return tensor->offset;
}

bool core_tensor_is_contiguous(const core_tensor *tensor, uint32_t format)
{
    int64_t strides[CORE_MAX_NDIM];

    if (format == CORE_FORMAT_CONTIGUOUS)
        return tensor->flags & CORE__TENSOR_CONTIGUOUS;
    if (!(format == CORE_FORMAT_CHANNELS_LAST && tensor->ndim == 4) &&
        !(format == CORE_FORMAT_CHANNELS_LAST_3D && tensor->ndim == 5))
        return false;
    core__layout_channels_last(tensor->ndim, tensor->sizes, strides);
    for (uint32_t i = 0; i < tensor->ndim; i++)
        if (tensor->sizes[i] > 1 && tensor->strides[i] != strides[i])
            return false;
    return true;
}

bool core_tensor_shares_storage(const core_tensor *a, const core_tensor *b)
{
    return a->storage && a->storage == b->storage;
}

uint32_t core_tensor_version(const core_tensor *tensor)
{
    return core__content_version(tensor) & INT32_MAX;
}

core_tensor *core_tensor_base(const core_tensor *tensor)
{
    return tensor->base;
}

bool core_tensor_is_read_only(const core_tensor *tensor)
{
    return tensor->flags & CORE__TENSOR_READ_ONLY;
}

uint32_t core_tensor_references(const core_tensor *tensor)
{
    return atomic_load(&tensor->references);
}

uint32_t core_dtype_size(core_dtype dtype)
{
    return dtype < CORE_DTYPE_LIMIT ? core__dtype_sizes[dtype] : 0;
}

const char *core_dtype_name(core_dtype dtype)
{
    return core__dtype_name(dtype);
}

core_dtype core_dtype_from_name(const char *name)
{
    return core__dtype_from_name(name, strlen(name));
}

core_dtype core_dtype_promote(core_dtype a, core_dtype b)
{
    if (!core_dtype_size(a) || !core_dtype_size(b))
        return CORE_DTYPE_NONE;
    return core__dtype_promote(a, b);
}

bool core_dtype_is_floating(core_dtype dtype)
{
    return core__dtype_is_floating(dtype);
}
