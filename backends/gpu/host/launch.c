/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* launch.c: finds and launches kernels by name.  An image is loaded when the
 * first of its kernels is launched; a kernel is looked up once per device. */

#include <gpu/host/host.h>

#include <stdlib.h>

#define calls (gpu_this_vendor.driver)

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 2166136261u;

    for (; *name != 0; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

/* Returns the slot of the name; *out_known is false if that is free, and
 * another thread may take it while the lock is not held.  NULL: all are
 * taken. */
static gpu_function *slot_of(gpu_device *device, const char *name,
                             bool *out_known)
{
    uint32_t at = hash_of(name) % GPU_FUNCTIONS;

    for (uint32_t k = 0; k < GPU_FUNCTIONS; k++) {
        gpu_function *slot = &device->functions[(at + k) % GPU_FUNCTIONS];
        const char *there =
            atomic_load_explicit(&slot->name, memory_order_acquire);

        *out_known = there != NULL && strcmp(there, name) == 0;
        if (there == NULL || *out_known)
            return slot;
    }
    return NULL;
}

static core_status module_of(gpu_device *device, const char *family,
                             void **out_module)
{
    const gpu_image *images = gpu_this_vendor.images;
    core_status status = CORE_OK;
    uint32_t i = 0;

    while (images[i].family != NULL && strcmp(images[i].family, family) != 0)
        i++;
    if (images[i].family == NULL)
        return gpu_refuse(CORE_ERROR_INTERNAL,
                          "%s: the plugin has no image of this kernel family",
                          family);
    if (device->modules[i] == NULL)
        status = gpu_report(device,
                            calls->module_load(device->context, images[i].data,
                                               &device->modules[i]),
                            "loading kernels");
    *out_module = device->modules[i];
    return status;
}

static core_status find(gpu_device *device, const char *family,
                        const char *name, void **out_function)
{
    gpu_function *slot;
    void *module = NULL;
    core_status status;
    bool known;
    char *copy;

    pthread_mutex_lock(&device->loading);
    slot = slot_of(device, name, &known);
    copy = strdup(name);
    if (slot == NULL || copy == NULL) {
        status = gpu_refuse(CORE_ERROR_OUT_OF_MEMORY,
                            "%s: the table of kernels is full", name);
        goto done;
    }
    if (known) {
        *out_function = slot->function;
        status = CORE_OK;
        goto done;
    }
    status = module_of(device, family, &module);
    if (status != CORE_OK)
        goto done;
    status = gpu_report(
        device,
        calls->function_find(device->context, module, name, &slot->function),
        name);
    if (status != CORE_OK)
        goto done;
    *out_function = slot->function;
    atomic_store_explicit(&slot->name, copy, memory_order_release);
    copy = NULL;
done:
    free(copy);
    pthread_mutex_unlock(&device->loading);
    return status;
}

core_status gpu_launch_function(gpu_stream *stream, void *function,
                                const char *name, gpu_shape shape,
                                const void *parameters, size_t size)
{
    gpu_device *device = stream->device;
    int code = atomic_load_explicit(&device->lost, memory_order_relaxed);

    if (code != 0)
        return gpu_report(device, code, "the device");
    code = calls->launch(device->context, stream->native, function, shape.grid,
                         shape.block, shape.shared_bytes, parameters, size);
    return code == 0 ? CORE_OK : gpu_report(device, code, name);
}

core_status gpu_launch_on(gpu_stream *stream, const char *family,
                          const char *name, gpu_shape shape,
                          const void *parameters, size_t size)
{
    gpu_device *device = stream->device;
    gpu_function *slot;
    void *function = NULL;
    core_status status;
    int code = atomic_load_explicit(&device->lost, memory_order_relaxed);
    bool known;

    if (code != 0)
        return gpu_report(device, code, "the device");
    if (shape.grid[0] == 0 || shape.grid[1] == 0 || shape.grid[2] == 0)
        return CORE_OK;
    slot = slot_of(device, name, &known);
    if (slot != NULL && known) {
        function = slot->function;
    } else {
        status = find(device, family, name, &function);
        if (status != CORE_OK)
            return status;
    }
    code = calls->launch(device->context, stream->native, function, shape.grid,
                         shape.block, shape.shared_bytes, parameters, size);
    return code == 0 ? CORE_OK : gpu_report(device, code, name);
}

core_status gpu_launch(core_call *call, const char *family, const char *name,
                       gpu_shape shape, const void *parameters, size_t size)
{
    return gpu_launch_on(gpu_stream_of(call), family, name, shape, parameters,
                         size);
}

/* -------------------------------------------------------------- shapes -- */

gpu_shape gpu_blocks(uint64_t blocks, uint32_t threads)
{
    gpu_shape shape = {{0, 1, 1}, {threads, 1, 1}, 0};
    uint64_t most =
        calls->max_blocks != NULL ? calls->max_blocks(threads) : INT32_MAX;

    shape.grid[0] = (uint32_t)(blocks < most ? blocks : most);
    return shape;
}

gpu_shape gpu_spread(const gpu_device *device, uint64_t items, uint32_t each)
{
    uint64_t unit = (uint64_t)GPU_BLOCK * each;
    uint64_t blocks = (items + unit - 1) / unit;
    /* 2048 threads per multiprocessor, four times. */
    uint64_t most = (uint64_t)device->facts.units * 32;

    return gpu_blocks(blocks < most ? blocks : most, GPU_BLOCK);
}

/* --------------------------------------------------------------- names -- */

const char *gpu_dtype_name(core_dtype dtype)
{
    static const char *const names[CORE_DTYPE_LIMIT] = {
        [CORE_F64] = "f64",   [CORE_F32] = "f32", [CORE_F16] = "f16",
        [CORE_BF16] = "bf16", [CORE_I64] = "i64", [CORE_I32] = "i32",
        [CORE_I16] = "i16",   [CORE_I8] = "i8",   [CORE_U8] = "u8",
        [CORE_BOOL] = "bool",
    };

    return dtype < CORE_DTYPE_LIMIT && names[dtype] ? names[dtype] : "none";
}

const char *gpu_width_name(uint32_t bytes)
{
    return bytes == 8 ? "w64" : bytes == 4 ? "w32" : bytes == 2 ? "w16" : "w8";
}

const char *gpu_name(char buffer[GPU_NAME], const char *stem, core_dtype dtype)
{
    const char *type = gpu_dtype_name(dtype);
    size_t n = strlen(stem), m = strlen(type);

    if (n + m + 2 > GPU_NAME)
        n = GPU_NAME - m - 2;
    memcpy(buffer, stem, n);
    buffer[n] = '_';
    memcpy(buffer + n + 1, type, m + 1);
    return buffer;
}
