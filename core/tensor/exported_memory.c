/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Device memory that processes share: exports of tensors, and tensors in
 * imported memory. */

#include "base/checksum.h"
#include "base/memory.h"
#include "device/stream.h"
#include "memory/imported.h"
#include "tensor/storage_check.h"
#include "tensor/tensor.h"

#include <libcore/memory.h>
#include <libcore/tensor.h>

#include <stdio.h>
#include <string.h>

/* The content of a core_memory_handle. */
typedef struct handle_content {
    char magic[8];
    uint32_t version;
    uint32_t reserved;
    char type[32];       /* of the device */
    uint8_t id[16];      /* checksum of the device's stable id */
    uint64_t allocation; /* bytes of the plugin's allocation */
    uint64_t offset;     /* of the tensor in it */
    uint64_t size;       /* bytes of the tensor */
    uint8_t plugin[CORE_IPC_HANDLE_SIZE];
    uint8_t padding[24];
    uint8_t sum[16]; /* of everything before */
} handle_content;
CORE_STATIC_ASSERT(sizeof(handle_content) == sizeof(core_memory_handle),
                   "core_memory_handle");

enum { HANDLE_VERSION = 1 };
static const char handle_magic[8] = "LIBCORE";

struct core_memory_export {
    core_storage *storage; /* with a reference */
    core_memory memory;    /* the allocation */
    uint64_t size;
    uint32_t generation;
};

static void checksum(const void *data, size_t size, uint8_t out_sum[16])
{
    core__checksum sum;

    core__checksum_begin(&sum, true);
    core__checksum_add(&sum, data, size);
    core__checksum_end(&sum, out_sum);
}

static void device_sum(const core_device *device, uint8_t out_sum[16])
{
    core_string id = device->information.stable_id;

    checksum(id.data ? id.data : "", id.data ? id.size : 0, out_sum);
}

static core_status unsupported(const core_device *device, const char *what)
{
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "%s: the plugin of \"%s\" does not offer core.ipc", what,
                       device->name);
}

/* -------------------------------------------------------------- exports -- */

static core_status check_exportable(const core_tensor *tensor)
{
    const core_storage *storage = tensor->storage;
    const char *name = tensor->device->name;

    if (!tensor->device->interfaces.ipc.export_memory)
        return unsupported(tensor->device, "core_memory_export_create");
    if (!(tensor->flags & CORE__TENSOR_CONTIGUOUS) || tensor->numel == 0)
        return core__error(
            CORE_ERROR_SHAPE,
            "core_memory_export_create: the tensor on \"%s\" has "
            "%lld elements and is %srow-major; row-major tensors "
            "with elements are accepted",
            name, (long long)tensor->numel,
            tensor->flags & CORE__TENSOR_CONTIGUOUS ? "" : "not ");
    if (storage->release || storage->capacity == 0)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "core_memory_export_create: the memory of the tensor "
            "on \"%s\" was not allocated by libcore in this "
            "process",
            name);
    return core__storage_check(storage);
}

/* Fills everything but the plugin's part and the checksum. */
static core_status fill_content(const core_tensor *tensor,
                                const core_memory_export *export,
                                handle_content *out)
{
    core_memory memory = core__tensor_memory(tensor);

    memset(out, 0, sizeof *out);
    memcpy(out->magic, handle_magic, sizeof out->magic);
    out->version = HANDLE_VERSION;
    snprintf(out->type, sizeof out->type, "%s",
             core_device_type(tensor->device));
    device_sum(tensor->device, out->id);
    out->allocation = export->size;
    out->offset = memory.offset - export->memory.offset;
    out->size = (uint64_t)tensor->numel * core_dtype_size(tensor->dtype);
    if (memory.handle == export->memory.handle && out->offset <= export->size &&
        out->size <= export->size - out->offset)
        return CORE_OK;
    return core__error(CORE_ERROR_INTERNAL,
                       "core_memory_export_create: the tensor is outside its "
                       "allocation");
}

static core_status find_allocation(const core_tensor *tensor,
                                   core_memory_export *export)
{
    const core_storage *storage = tensor->storage;

    export->memory = storage->memory;
    export->size = storage->capacity;
    return storage->block
               ? core__block_allocation(tensor->device, storage->block,
                                        &export->memory, &export->size)
               : CORE_OK;
}

static core_status export_tensor(core_tensor *tensor,
                                 core_memory_export *export,
                                 core_memory_handle *out_handle)
{
    core_device *device = tensor->device;
    handle_content content;
    core_status status;
    uint32_t errors;

    CORE_TRY(find_allocation(tensor, export));
    CORE_TRY(fill_content(tensor, export, &content));
    CORE_TRY(core__host_wait(device, "core_memory_export_create"));
    errors = core__error_sequence();
    status = device->interfaces.ipc.export_memory(device->impl, export->memory,
                                                  export->size, content.plugin);
    CORE_TRY(core__device_check_status(device, status, errors));
    checksum(&content, offsetof(handle_content, sum), content.sum);
    memcpy(out_handle, &content, sizeof content);
    export->generation = atomic_load(&device->generation);
    export->storage = tensor->storage;
    core__storage_retain(export->storage);
    return CORE_OK;
}

core_status core_memory_export_create(core_tensor *tensor,
                                      core_memory_handle *out_handle,
                                      core_memory_export **out_export)
{
    core_memory_export *export;
    core_status status;

    CORE__NOT_NULL(out_export);
    *out_export = NULL;
    CORE__NOT_NULL(out_handle);
    memset(out_handle, 0, sizeof *out_handle);
    CORE__NOT_NULL(tensor);
    CORE_TRY(core__tensor_check_untraced(__func__, tensor));
    CORE_TRY(check_exportable(tensor));
    CORE_TRY(core__device_check_process(tensor->device));
    export = core__alloc_zero(sizeof *export);
    if (!export)
        return core__error_memory(sizeof *export);
    status = export_tensor(tensor, export, out_handle);
    if (status == CORE_OK)
        *out_export = export;
    else
        core__free(export);
    return status;
}

void core_memory_export_release(core_memory_export *export)
{
    core_device *device;

    if (!export)
        return;
    device = export->storage->device;
    if (!device->forked && device->interfaces.ipc.end_export &&
        core__device_has_generation(device, export->generation))
        device->interfaces.ipc.end_export(device->impl, export->memory,
                                          export->size);
    core__storage_release(export->storage);
    core__free(export);
}

/* -------------------------------------------------------------- imports -- */

static void release_imported(void *context, void *data)
{
    (void)data;
    core__imported_release(context);
}

bool core__storage_is_imported(const core_storage *storage)
{
    return storage->release == release_imported;
}

static core_status check_handle(const core_device *device,
                                const handle_content *content)
{
    uint8_t sum[16];

    if (memcmp(content->magic, handle_magic, sizeof handle_magic) != 0 ||
        content->version != HANDLE_VERSION)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_memory_import: the handle is not one of "
                           "core_memory_export_create");
    checksum(content, offsetof(handle_content, sum), sum);
    if (memcmp(sum, content->sum, sizeof sum) != 0 ||
        content->offset > content->allocation ||
        content->size > content->allocation - content->offset)
        return core__error(CORE_ERROR_CORRUPT,
                           "core_memory_import: the handle is damaged");
    device_sum(device, sum);
    if (strncmp(content->type, core_device_type(device),
                sizeof content->type) != 0 ||
        memcmp(sum, content->id, sizeof sum) != 0)
        return core__error(CORE_ERROR_DEVICE,
                           "core_memory_import: the memory is on another "
                           "device of type \"%.31s\", not on \"%s\"",
                           content->type, device->name);
    return CORE_OK;
}

/* Checks the sizes and counts the bytes. */
static core_status check_size(const handle_content *content, core_dtype dtype,
                              const int64_t *sizes, size_t ndim)
{
    core_tensor *shape;
    uint64_t bytes;

    if (ndim > CORE_MAX_NDIM)
        ndim = CORE_MAX_NDIM + 1;
    CORE_TRY(core__tensor_new(&core__meta_device, dtype, (uint32_t)ndim, sizes,
                              NULL, &shape));
    bytes = (uint64_t)shape->numel * core_dtype_size(dtype);
    core__tensor_release(shape);
    if (bytes <= content->size && content->offset % core_dtype_size(dtype) == 0)
        return CORE_OK;
    return core__error(CORE_ERROR_SHAPE,
                       "core_memory_import: the tensor needs %llu bytes of "
                       "%s, the exported memory has %llu bytes at offset %llu",
                       (unsigned long long)bytes, core_dtype_name(dtype),
                       (unsigned long long)content->size,
                       (unsigned long long)content->offset);
}

static core_status new_storage(core_device *device,
                               const handle_content *content,
                               core_storage **out_storage)
{
    core__imported *imported;
    core_memory memory;
    core_status status;

    CORE_TRY(core__imported_open(device, content->plugin, content->allocation,
                                 &imported, &memory));
    status = core__storage_adopt(device, memory.handle, content->size,
                                 release_imported, imported, out_storage);
    if (status != CORE_OK) {
        core__imported_release(imported);
        return status;
    }
    (*out_storage)->memory.offset = memory.offset + content->offset;
    if (!device->synchronous)
        (*out_storage)->generation = atomic_load(&device->generation);
    return CORE_OK;
}

core_status core_memory_import(core_device *device,
                               const core_memory_handle *handle,
                               core_dtype dtype, const int64_t *sizes,
                               size_t ndim, core_tensor **out_tensor)
{
    handle_content content;
    core_storage *storage;
    core_status status;

    CORE__NOT_NULL(out_tensor);
    *out_tensor = NULL;
    CORE__NOT_NULL(device);
    CORE__NOT_NULL(handle);
    if (ndim)
        CORE__NOT_NULL(sizes);
    if (!device->interfaces.ipc.open || !device->interfaces.ipc.close)
        return unsupported(device, "core_memory_import");
    CORE_TRY(core__device_check_process(device));
    if (atomic_load(&device->lost))
        return core__device_stale_error(device);
    memcpy(&content, handle, sizeof content);
    CORE_TRY(check_handle(device, &content));
    CORE_TRY(check_size(&content, dtype, sizes, ndim));
    CORE_TRY(new_storage(device, &content, &storage));
    status = core__tensor_new_on_storage(storage, dtype, (uint32_t)ndim, sizes,
                                         out_tensor);
    core__storage_release(storage);
    return status;
}
