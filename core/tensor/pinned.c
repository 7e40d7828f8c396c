/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Host tensors in pinned memory of a device. */

#include "memory/host_memory.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

#include <libcore/memory.h>
#include <libcore/tensor.h>

/* Fails only in a forked child, where the memory is the parent's. */
static void free_pinned(void *context, void *data)
{
    core_device *device = context;
    core__error_record earlier;

    core__error_save(&earlier);
    (void)core__host_memory_free(device, data, true);
    core__error_restore(&earlier);
    core_device_release(device);
}

core_status core_tensor_pinned(core_device *device, core_dtype dtype,
                               const int64_t *sizes, size_t ndim,
                               core_tensor **out_tensor)
{
    core_storage *storage = NULL;
    core_tensor *shape;
    core_device *host;
    core_status status;
    void *data = NULL;
    uint64_t bytes;

    CORE__NOT_NULL(out_tensor);
    *out_tensor = NULL;
    CORE__NOT_NULL(device);
    if (ndim)
        CORE__NOT_NULL(sizes);
    CORE_TRY(core__device_host(&host));
    /* Checks the sizes and counts the elements. */
    if (ndim > CORE_MAX_NDIM)
        ndim = CORE_MAX_NDIM + 1;
    CORE_TRY(core__tensor_new(&core__meta_device, dtype, (uint32_t)ndim, sizes,
                              NULL, &shape));
    bytes = (uint64_t)shape->numel * core_dtype_size(dtype);
    core__tensor_release(shape);
    CORE_TRY(core__host_memory_alloc(device, bytes ? bytes : 1, true, &data));
    status = core__storage_adopt(host, data, bytes, free_pinned,
                                 core_device_retain(device), &storage);
    if (status != CORE_OK) {
        free_pinned(device, data);
        return status;
    }
    status = core__tensor_new_on_storage(storage, dtype, (uint32_t)ndim, sizes,
                                         out_tensor);
    core__storage_release(storage);
    return status;
}
