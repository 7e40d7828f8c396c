/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Records the streams that use a tensor's memory besides its own. */

#include "base/thread.h"
#include "memory/allocator.h"
#include "memory/host_memory.h"
#include "memory/imported.h"
#include "memory/memory.h"
#include "tensor/tensor.h"

#include <libcore/memory.h>

core_status core_tensor_record_stream(core_tensor *tensor, core_stream *stream)
{
    core_storage *storage;
    core_device *device;

    CORE__NOT_NULL(tensor);
    CORE__NOT_NULL(stream);
    CORE_TRY(core__thread_cut(__func__));
    storage = tensor->storage;
    device = tensor->device;
    if (device != stream->device) {
        if (storage && core__host_memory_is_pinned(stream->device,
                                                   storage->memory.handle, 1))
            return core__host_memory_record_stream(
                stream->device, storage->memory.handle, stream);
        return core__error(
            CORE_ERROR_DEVICE,
            "core_tensor_record_stream: the tensor is on \"%s\", the stream is "
            "of \"%s\"; both must be of one device",
            device->name, stream->device->name);
    }
    if (storage && core__storage_is_imported(storage))
        return core__imported_record_stream(storage->context, stream);
    if (!storage || !storage->block)
        return CORE_OK;
    return core__allocator_record(device, storage->block, stream);
}

core_status core__tensor_record_handle(core_tensor *tensor, void *handle)
{
    core_storage *storage = tensor->storage;

    if (storage && core__storage_is_imported(storage) &&
        !storage->device->synchronous)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "the plugin of \"%s\" cannot name another stream "
                           "that uses imported memory; the call's stream must "
                           "wait for it",
                           storage->device->name);
    return core__memory_record_handle(tensor->device,
                                      storage ? storage->block : NULL, handle);
}
