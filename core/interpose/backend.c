/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A plugin's backend: devices and memory. */

#include "base/memory.h"
#include "interpose/interposer.h"

#include <stdio.h>
#include <string.h>

#define BYTES(size) (unsigned long long)(size)

static core__layers *layers_of(const layer_device *device)
{
    return device->backend->layers;
}

static core_status enter(layer_call *call, const layer_device *device,
                         const char *slot, layer_kind kind)
{
    return layer_enter(call, layers_of(device), device->backend->type, slot,
                       kind);
}

/* --------------------------------------------------------------- devices -- */

static void check_string(layer_call *call, const char *what, core_string text)
{
    if (text.size > 0 && !text.data)
        layer_breach(call, "%s has %llu bytes at NULL", what, BYTES(text.size));
    else if (text.size > 65536)
        layer_breach(call, "%s has %llu bytes", what, BYTES(text.size));
}

static core_status enumerate(void *user, uint32_t *out_count,
                             core_string *out_reason)
{
    layer_backend *backend = user;
    layer_call call;
    core_status status;

    status = layer_enter(&call, backend->layers, backend->type, "enumerate",
                         LAYER_NEVER);
    if (status != CORE_OK)
        return status;
    status = backend->real.enumerate(backend->real.user, out_count, out_reason);
    if (layer_validates(backend->layers) && status == CORE_OK) {
        check_string(&call, "the reason", *out_reason);
        if (*out_count > 65536)
            layer_breach(&call, "counts %u devices", *out_count);
        if (*out_count == 0 && out_reason->size == 0)
            layer_breach(&call, "counts no device and gives no reason");
    }
    backend->enumerated = *out_count;
    return layer_leave(&call, status, "-> %u devices", *out_count);
}

static void read_properties(layer_device *device)
{
    core_device_properties p = {.struct_size = sizeof p};

    if (device->backend->layers->minor < 2)
        p.struct_size = offsetof(core_device_properties, max_streams);
    if (device->backend->real.device_properties(device->impl, &p) != CORE_OK)
        return;
    device->flags = p.flags;
    device->base_alignment = p.base_alignment;
    device->tail_padding = p.tail_padding;
}

static core_status device_open(void *user, uint32_t index, void **out_device)
{
    layer_backend *backend = user;
    layer_device *device;
    layer_call call;
    core_status status;

    *out_device = NULL;
    CORE_TRY(layer_enter(&call, backend->layers, backend->type, "device_open",
                         LAYER_OPEN));
    device = core__alloc_zero(sizeof *device);
    if (!device)
        return core__error_memory(sizeof *device);
    device->backend = backend;
    if (layer_validates(backend->layers) && index >= backend->enumerated)
        layer_breach(&call, "libcore opens device %u of %u", index,
                     backend->enumerated);
    status =
        backend->real.device_open(backend->real.user, index, &device->impl);
    if (status == CORE_OK)
        read_properties(device);
    status = layer_leave(&call, status, "%u -> %p", index, device->impl);
    if (status != CORE_OK) {
        core__free(device);
        return status;
    }
    device->open = true;
    layer_lock(backend->layers);
    device->next = backend->layers->devices;
    backend->layers->devices = device;
    pthread_mutex_unlock(&backend->layers->lock);
    *out_device = device;
    return CORE_OK;
}

static void device_close(void *user, void *word)
{
    layer_backend *backend = user;
    layer_device *device = word;
    layer_call call;

    layer_enter(&call, backend->layers, backend->type, "device_close",
                LAYER_NEVER);
    if (layer_validates(backend->layers)) {
        uint64_t blocks = layer_alive(backend->layers, LAYER_MEMORY, device);

        if (!device->open)
            layer_breach(&call, "libcore closes a device twice");
        if (blocks)
            layer_breach(&call, "libcore leaves %llu blocks of memory",
                         BYTES(blocks));
    }
    backend->real.device_close(backend->real.user, device->impl);
    layer_forget(backend->layers, device);
    device->open = false;
    layer_leave_void(&call, "%p", device->impl);
}

static core_status device_information(void *word, core_device_information *out)
{
    layer_device *device = word;
    uint32_t size = out->struct_size;
    layer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "device_information", LAYER_NEVER));
    status = device->backend->real.device_information(device->impl, out);
    if (layer_validates(layers_of(device)) && status == CORE_OK) {
        check_string(&call, "the name", out->name);
        check_string(&call, "the stable id", out->stable_id);
        check_string(&call, "the driver", out->driver);
        check_string(&call, "the runtime", out->runtime);
        check_string(&call, "the firmware", out->firmware);
        check_string(&call, "the features", out->features);
        if (out->struct_size > size)
            layer_breach(&call, "grows struct_size from %u to %u", size,
                         out->struct_size);
    }
    return layer_leave(&call, status, "%p", device->impl);
}

static core_status device_properties(void *word, core_device_properties *out)
{
    layer_device *device = word;
    uint32_t size = out->struct_size;
    layer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "device_properties", LAYER_NEVER));
    status = device->backend->real.device_properties(device->impl, out);
    if (layer_validates(layers_of(device)) && status == CORE_OK) {
        uint64_t align = out->base_alignment;

        if (align == 0 || (align & (align - 1)) != 0)
            layer_breach(&call,
                         "has a base alignment of %llu, which is no "
                         "power of two",
                         BYTES(align));
        if (out->granularity == 0)
            layer_breach(&call, "has a granularity of 0");
        if (out->flags & CORE_DEVICE_HOST_ACCESS &&
            !(out->flags & CORE_DEVICE_FLAT))
            layer_breach(&call, "has HOST_ACCESS without FLAT");
        if (out->struct_size > size)
            layer_breach(&call, "grows struct_size from %u to %u", size,
                         out->struct_size);
    }
    return layer_leave(&call, status, "%p -> flags 0x%x", device->impl,
                       out->flags);
}

static core_status device_status(void *word)
{
    layer_device *device = word;
    layer_call call;

    CORE_TRY(enter(&call, device, "device_status", LAYER_NEVER));
    return layer_leave(&call, device->backend->real.device_status(device->impl),
                       "%p", device->impl);
}

/* ---------------------------------------------------------------- memory -- */

static core_status alloc(void *word, uint64_t size, core_memory *out_memory)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    *out_memory = (core_memory){0};
    CORE_TRY(enter(&call, device, "alloc", LAYER_ALLOC));
    if (size == 0 && layer_validates(layers_of(device)))
        layer_breach(&call, "libcore asks for 0 bytes");
    status = device->backend->memory.alloc(device->impl, size, out_memory);
    if (status == CORE_OK && layer_validates(layers_of(device))) {
        uint64_t address =
            (uint64_t)(uintptr_t)out_memory->handle + out_memory->offset;

        layer_made(&call, LAYER_MEMORY, device, out_memory->handle,
                   out_memory->offset, size + device->tail_padding);
        if (device->flags & CORE_DEVICE_FLAT && device->base_alignment > 1 &&
            address % device->base_alignment != 0)
            layer_breach(&call, "gives %p + %llu, which is not aligned to %llu",
                         out_memory->handle, BYTES(out_memory->offset),
                         BYTES(device->base_alignment));
        if (device->flags & CORE_DEVICE_FLAT && address == 0)
            layer_breach(&call, "gives the address 0");
    }
    return layer_leave(&call, status, "%p, %llu -> %p + %llu", device->impl,
                       BYTES(size), out_memory->handle,
                       BYTES(out_memory->offset));
}

static void release(void *word, core_memory memory, uint64_t size)
{
    layer_device *device = word;
    layer_call call;

    layer_enter(&call, layers_of(device), device->backend->type, "free",
                LAYER_NEVER);
    if (layer_destroys(&call, LAYER_MEMORY, device, memory.handle,
                       memory.offset, size + device->tail_padding))
        device->backend->memory.free(device->impl, memory, size);
    layer_leave_void(&call, "%p, %p + %llu, %llu", device->impl, memory.handle,
                     BYTES(memory.offset), BYTES(size));
}

static core_status info(void *word, uint64_t *out_free, uint64_t *out_total)
{
    layer_device *device = word;
    layer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "info", LAYER_NEVER));
    status = device->backend->memory.info(device->impl, out_free, out_total);
    if (layer_validates(layers_of(device)) && status == CORE_OK &&
        *out_free > *out_total)
        layer_breach(&call, "has %llu bytes free of %llu", BYTES(*out_free),
                     BYTES(*out_total));
    return layer_leave(&call, status, "%p -> %llu of %llu", device->impl,
                       BYTES(*out_free), BYTES(*out_total));
}

/* A stream is one of this device's; a synchronous device has none. */
static void check_stream(layer_call *call, const layer_device *device,
                         const void *stream)
{
    if (!layer_validates(call->layers))
        return;
    if (!device->backend->real.streams) {
        if (stream)
            layer_breach(call, "libcore gives a synchronous device a stream");
    } else {
        layer_uses(call, LAYER_STREAM_OBJECT, device, stream, true);
    }
}

static bool check_host(layer_call *call, const void *data, uint64_t size)
{
    if (!data && size > 0 && layer_validates(call->layers))
        layer_breach(call, "libcore copies %llu bytes at NULL", BYTES(size));
    return data || size == 0;
}

static core_status copy_from_host(void *word, void *stream, core_memory to,
                                  const void *from, uint64_t size)
{
    layer_device *device = word;
    layer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "copy_from_host", LAYER_COPY));
    check_stream(&call, device, stream);
    check_host(&call, from, size);
    layer_uses_memory(&call, device, to, size);
    if (!call.broken)
        status = device->backend->memory.copy_from_host(device->impl, stream,
                                                        to, from, size);
    return layer_leave(&call, status, "%p, %p, %p + %llu, %p, %llu",
                       device->impl, stream, to.handle, BYTES(to.offset), from,
                       BYTES(size));
}

static core_status copy_to_host(void *word, void *stream, void *to,
                                core_memory from, uint64_t size)
{
    layer_device *device = word;
    layer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "copy_to_host", LAYER_COPY));
    check_stream(&call, device, stream);
    check_host(&call, to, size);
    layer_uses_memory(&call, device, from, size);
    if (!call.broken)
        status = device->backend->memory.copy_to_host(device->impl, stream, to,
                                                      from, size);
    return layer_leave(&call, status, "%p, %p, %p, %p + %llu, %llu",
                       device->impl, stream, to, from.handle,
                       BYTES(from.offset), BYTES(size));
}

static core_status copy(void *word, void *stream, core_memory to,
                        core_memory from, uint64_t size)
{
    layer_device *device = word;
    layer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "copy", LAYER_COPY));
    check_stream(&call, device, stream);
    layer_uses_memory(&call, device, to, size);
    layer_uses_memory(&call, device, from, size);
    if (!call.broken)
        status =
            device->backend->memory.copy(device->impl, stream, to, from, size);
    return layer_leave(&call, status, "%p, %p, %p + %llu, %p + %llu, %llu",
                       device->impl, stream, to.handle, BYTES(to.offset),
                       from.handle, BYTES(from.offset), BYTES(size));
}

static core_status fill(void *word, void *stream, core_memory to, uint64_t size,
                        uint64_t pattern, uint32_t pattern_size)
{
    layer_device *device = word;
    layer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "fill", LAYER_FILL));
    check_stream(&call, device, stream);
    layer_uses_memory(&call, device, to, size);
    if (layer_validates(layers_of(device)) &&
        ((pattern_size != 1 && pattern_size != 2 && pattern_size != 4 &&
          pattern_size != 8) ||
         size % pattern_size != 0))
        layer_breach(&call, "libcore fills %llu bytes with a pattern of %u",
                     BYTES(size), pattern_size);
    if (!call.broken)
        status = device->backend->memory.fill(device->impl, stream, to, size,
                                              pattern, pattern_size);
    return layer_leave(&call, status, "%p, %p, %p + %llu, %llu, 0x%llx / %u",
                       device->impl, stream, to.handle, BYTES(to.offset),
                       BYTES(size), (unsigned long long)pattern, pattern_size);
}

/* --------------------------------------------------------------- wrapping -- */

static const core_memory_table memory_wrappers = {
    .struct_size = sizeof(core_memory_table),
    .alloc = alloc,
    .free = release,
    .info = info,
    .copy_from_host = copy_from_host,
    .copy_to_host = copy_to_host,
    .copy = copy,
    .fill = fill,
};

static const core_backend backend_wrappers = {
    .struct_size = sizeof(core_backend),
    .enumerate = enumerate,
    .device_open = device_open,
    .device_close = device_close,
    .device_information = device_information,
    .device_properties = device_properties,
    .device_status = device_status,
    .get_interface = layer_get_interface,
};

static void copy_known(void *to, size_t full, const void *from)
{
    uint32_t known = 0;

    memset(to, 0, full);
    if (from) {
        memcpy(&known, from, sizeof known);
        memcpy(to, from, known < full ? known : full);
    }
}

static void wrap_memory(layer_backend *backend)
{
    const core_memory_table *real = &backend->memory;
    core_memory_table *wrapped = &backend->wrapped_memory;

    *wrapped = memory_wrappers;
    LAYER_KEEP(alloc);
    LAYER_KEEP(free);
    LAYER_KEEP(info);
    LAYER_KEEP(copy_from_host);
    LAYER_KEEP(copy_to_host);
    LAYER_KEEP(copy);
    LAYER_KEEP(fill);
    backend->wrapped.memory = wrapped;
}

static void wrap(layer_backend *backend)
{
    const core_backend *real = &backend->real;
    core_backend *wrapped = &backend->wrapped;

    *wrapped = backend_wrappers;
    wrapped->flags = real->flags;
    wrapped->device_type = real->device_type;
    wrapped->user = backend;
    LAYER_KEEP(enumerate);
    LAYER_KEEP(device_open);
    LAYER_KEEP(device_close);
    LAYER_KEEP(device_information);
    LAYER_KEEP(device_properties);
    LAYER_KEEP(device_status);
    LAYER_KEEP(get_interface);
    wrap_memory(backend);
    if (real->streams) {
        layer_wrap_streams(backend);
        layer_wrap_events(backend);
    }
}

core_status core__layers_backend(core__layers *layers,
                                 const core_backend *backend,
                                 const core_backend **out_backend)
{
    layer_backend *made = core__alloc_zero(sizeof *made);
    size_t size;

    *out_backend = NULL;
    if (!made)
        return core__error_memory(sizeof *made);
    made->layers = layers;
    copy_known(&made->real, sizeof made->real, backend);
    copy_known(&made->memory, sizeof made->memory, made->real.memory);
    copy_known(&made->streams, sizeof made->streams, made->real.streams);
    copy_known(&made->events, sizeof made->events, made->real.events);
    size = made->real.device_type.size;
    if (size >= sizeof made->type)
        size = sizeof made->type - 1;
    if (made->real.device_type.data)
        memcpy(made->type, made->real.device_type.data, size);
    wrap(made);
    made->next = layers->backends;
    layers->backends = made;
    *out_backend = &made->wrapped;
    return CORE_OK;
}

void *layer_device_word(core__layers *layers, void *word,
                        layer_device **out_device)
{
    layer_device *device;

    layer_lock(layers);
    device = layers->devices;
    while (device && device != word)
        device = device->next;
    pthread_mutex_unlock(&layers->lock);
    *out_device = device;
    return device ? device->impl : word;
}
