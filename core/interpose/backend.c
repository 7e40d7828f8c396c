/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Wrappers of a plugin's backend: devices and memory. */

#include "base/memory.h"
#include "interpose/interposer.h"

#include <stdio.h>
#include <string.h>

#define BYTES(size) (unsigned long long)(size)

static core__interposers *interposers_of(const interposer_device *device)
{
    return device->backend->interposers;
}

static core_status enter(interposer_call *call, const interposer_device *device,
                         const char *slot, interposer_kind kind)
{
    return interposer_enter(call, interposers_of(device), device->backend->type,
                            slot, kind);
}

/* ------------------------------------------------------------- devices -- */

static void check_string(interposer_call *call, const char *what,
                         core_string text)
{
    if (text.size > 0 && !text.data)
        interposer_violation(call, "%s has %llu bytes at NULL", what,
                             BYTES(text.size));
    else if (text.size > 65536)
        interposer_violation(call,
                             "%s has %llu bytes; at most 65536 are accepted",
                             what, BYTES(text.size));
}

static core_status enumerate(void *user, uint32_t *out_count,
                             core_string *out_reason)
{
    interposer_backend *backend = user;
    interposer_call call;
    core_status status;

    status = interposer_enter(&call, backend->interposers, backend->type,
                              "enumerate", INTERPOSER_NEVER);
    if (status != CORE_OK)
        return status;
    status = backend->real.enumerate(backend->real.user, out_count, out_reason);
    if (interposer_validates(backend->interposers) && status == CORE_OK) {
        check_string(&call, "the reason", *out_reason);
        if (*out_count > 65536)
            interposer_violation(
                &call, "reports %u devices; at most 65536 are accepted",
                *out_count);
        if (*out_count == 0 && out_reason->size == 0)
            interposer_violation(&call, "reports no devices and no reason");
    }
    backend->enumerated = *out_count;
    return interposer_leave(&call, status, "-> %u devices", *out_count);
}

static void read_properties(interposer_device *device)
{
    core_device_properties p = {.struct_size = sizeof p};

    if (device->backend->interposers->minor < 2)
        p.struct_size = offsetof(core_device_properties, max_streams);
    else if (device->backend->interposers->minor < 6)
        p.struct_size = offsetof(core_device_properties, copy_streams);
    if (device->backend->real.device_properties(device->impl, &p) != CORE_OK)
        return;
    device->flags = p.flags;
    device->base_alignment = p.base_alignment;
    device->tail_padding = p.tail_padding;
}

static core_status device_open(void *user, uint32_t index, void **out_device)
{
    interposer_backend *backend = user;
    interposer_device *device;
    interposer_call call;
    core_status status;

    *out_device = NULL;
    CORE_TRY(interposer_enter(&call, backend->interposers, backend->type,
                              "device_open", INTERPOSER_OPEN));
    device = core__alloc_zero(sizeof *device);
    if (!device)
        return core__error_memory(sizeof *device);
    device->backend = backend;
    if (interposer_validates(backend->interposers) &&
        index >= backend->enumerated)
        interposer_violation(&call, "libcore opens device %u of %u", index,
                             backend->enumerated);
    status =
        backend->real.device_open(backend->real.user, index, &device->impl);
    if (status == CORE_OK)
        read_properties(device);
    status = interposer_leave(&call, status, "%u -> %p", index, device->impl);
    if (status != CORE_OK) {
        core__free(device);
        return status;
    }
    device->open = true;
    interposer_lock(backend->interposers);
    device->next = backend->interposers->devices;
    backend->interposers->devices = device;
    pthread_mutex_unlock(&backend->interposers->lock);
    *out_device = device;
    return CORE_OK;
}

static void device_close(void *user, void *handle)
{
    interposer_backend *backend = user;
    interposer_device *device = handle;
    interposer_call call;

    interposer_enter(&call, backend->interposers, backend->type, "device_close",
                     INTERPOSER_NEVER);
    if (interposer_validates(backend->interposers)) {
        uint64_t blocks =
            interposer_alive(backend->interposers, INTERPOSER_MEMORY, device);

        if (!device->open)
            interposer_violation(&call, "libcore closes a device twice");
        if (blocks)
            interposer_violation(&call,
                                 "libcore does not free %llu blocks of memory",
                                 BYTES(blocks));
    }
    backend->real.device_close(backend->real.user, device->impl);
    interposer_objects_drop(backend->interposers, device);
    device->open = false;
    interposer_leave_void(&call, "%p", device->impl);
}

static core_status device_information(void *handle,
                                      core_device_information *out)
{
    interposer_device *device = handle;
    uint32_t size = out->struct_size;
    interposer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "device_information", INTERPOSER_NEVER));
    status = device->backend->real.device_information(device->impl, out);
    if (interposer_validates(interposers_of(device)) && status == CORE_OK) {
        check_string(&call, "the name", out->name);
        check_string(&call, "the stable id", out->stable_id);
        check_string(&call, "the driver", out->driver);
        check_string(&call, "the runtime", out->runtime);
        check_string(&call, "the firmware", out->firmware);
        check_string(&call, "the features", out->features);
        if (out->struct_size > size)
            interposer_violation(&call, "increases struct_size from %u to %u",
                                 size, out->struct_size);
    }
    return interposer_leave(&call, status, "%p", device->impl);
}

static core_status device_properties(void *handle, core_device_properties *out)
{
    interposer_device *device = handle;
    uint32_t size = out->struct_size;
    interposer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "device_properties", INTERPOSER_NEVER));
    status = device->backend->real.device_properties(device->impl, out);
    if (interposer_validates(interposers_of(device)) && status == CORE_OK) {
        uint64_t align = out->base_alignment;

        if (align == 0 || (align & (align - 1)) != 0)
            interposer_violation(
                &call,
                "reports a base alignment of %llu, which is not a power of two",
                BYTES(align));
        if (out->granularity == 0)
            interposer_violation(&call, "reports a granularity of 0");
        if (out->flags & CORE_DEVICE_HOST_ACCESS &&
            !(out->flags & CORE_DEVICE_FLAT))
            interposer_violation(&call, "reports HOST_ACCESS without FLAT");
        if (out->struct_size > size)
            interposer_violation(&call, "increases struct_size from %u to %u",
                                 size, out->struct_size);
    }
    return interposer_leave(&call, status, "%p -> flags 0x%x", device->impl,
                            out->flags);
}

static core_status device_status(void *handle)
{
    interposer_device *device = handle;
    interposer_call call;

    CORE_TRY(enter(&call, device, "device_status", INTERPOSER_NEVER));
    return interposer_leave(&call,
                            device->backend->real.device_status(device->impl),
                            "%p", device->impl);
}

/* -------------------------------------------------------------- memory -- */

static core_status alloc(void *handle, uint64_t size, core_memory *out_memory)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    *out_memory = (core_memory){0};
    CORE_TRY(enter(&call, device, "alloc", INTERPOSER_ALLOC));
    if (size == 0 && interposer_validates(interposers_of(device)))
        interposer_violation(&call, "libcore requests 0 bytes");
    status = device->backend->memory.alloc(device->impl, size, out_memory);
    if (status == CORE_OK && interposer_validates(interposers_of(device))) {
        uint64_t address =
            (uint64_t)(uintptr_t)out_memory->handle + out_memory->offset;

        interposer_created(&call, INTERPOSER_MEMORY, device, out_memory->handle,
                           out_memory->offset, size + device->tail_padding);
        if (device->flags & CORE_DEVICE_FLAT && device->base_alignment > 1 &&
            address % device->base_alignment != 0)
            interposer_violation(
                &call, "returns %p + %llu, which is not aligned to %llu",
                out_memory->handle, BYTES(out_memory->offset),
                BYTES(device->base_alignment));
    }
    return interposer_leave(&call, status, "%p, %llu -> %p + %llu",
                            device->impl, BYTES(size), out_memory->handle,
                            BYTES(out_memory->offset));
}

static void release(void *handle, core_memory memory, uint64_t size)
{
    interposer_device *device = handle;
    interposer_call call;

    interposer_enter(&call, interposers_of(device), device->backend->type,
                     "free", INTERPOSER_NEVER);
    if (interposer_destroys(&call, INTERPOSER_MEMORY, device, memory.handle,
                            memory.offset, size + device->tail_padding))
        device->backend->memory.free(device->impl, memory, size);
    interposer_leave_void(&call, "%p, %p + %llu, %llu", device->impl,
                          memory.handle, BYTES(memory.offset), BYTES(size));
}

static core_status info(void *handle, uint64_t *out_free, uint64_t *out_total)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "info", INTERPOSER_NEVER));
    status = device->backend->memory.info(device->impl, out_free, out_total);
    if (interposer_validates(interposers_of(device)) && status == CORE_OK &&
        *out_free > *out_total)
        interposer_violation(&call, "reports %llu bytes free of %llu",
                             BYTES(*out_free), BYTES(*out_total));
    return interposer_leave(&call, status, "%p -> %llu of %llu", device->impl,
                            BYTES(*out_free), BYTES(*out_total));
}

/* Checks that a stream is one of this device's; a synchronous device has
 * none. */
static void check_stream(interposer_call *call, const interposer_device *device,
                         const void *stream)
{
    if (!interposer_validates(call->interposers))
        return;
    if (!device->backend->real.streams) {
        if (stream)
            interposer_violation(
                call, "libcore passes a stream to a synchronous device");
    } else {
        interposer_uses(call, INTERPOSER_STREAM_OBJECT, device, stream, true);
    }
}

static bool check_host(interposer_call *call, const void *data, uint64_t size)
{
    if (!data && size > 0 && interposer_validates(call->interposers))
        interposer_violation(call, "libcore copies %llu bytes at NULL",
                             BYTES(size));
    return data || size == 0;
}

static core_status copy_from_host(void *handle, void *stream, core_memory to,
                                  const void *from, uint64_t size)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "copy_from_host", INTERPOSER_COPY));
    check_stream(&call, device, stream);
    check_host(&call, from, size);
    interposer_uses_memory(&call, device, to, size);
    if (!call.violated)
        status = device->backend->memory.copy_from_host(device->impl, stream,
                                                        to, from, size);
    return interposer_leave(&call, status, "%p, %p, %p + %llu, %p, %llu",
                            device->impl, stream, to.handle, BYTES(to.offset),
                            from, BYTES(size));
}

static core_status copy_to_host(void *handle, void *stream, void *to,
                                core_memory from, uint64_t size)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "copy_to_host", INTERPOSER_COPY));
    check_stream(&call, device, stream);
    check_host(&call, to, size);
    interposer_uses_memory(&call, device, from, size);
    if (!call.violated)
        status = device->backend->memory.copy_to_host(device->impl, stream, to,
                                                      from, size);
    return interposer_leave(&call, status, "%p, %p, %p, %p + %llu, %llu",
                            device->impl, stream, to, from.handle,
                            BYTES(from.offset), BYTES(size));
}

static core_status copy(void *handle, void *stream, core_memory to,
                        core_memory from, uint64_t size)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "copy", INTERPOSER_COPY));
    check_stream(&call, device, stream);
    interposer_uses_memory(&call, device, to, size);
    interposer_uses_memory(&call, device, from, size);
    if (!call.violated)
        status =
            device->backend->memory.copy(device->impl, stream, to, from, size);
    return interposer_leave(&call, status, "%p, %p, %p + %llu, %p + %llu, %llu",
                            device->impl, stream, to.handle, BYTES(to.offset),
                            from.handle, BYTES(from.offset), BYTES(size));
}

static core_status fill(void *handle, void *stream, core_memory to,
                        uint64_t size, uint64_t pattern, uint32_t pattern_size)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status = CORE_ERROR_INTERNAL;

    CORE_TRY(enter(&call, device, "fill", INTERPOSER_FILL));
    check_stream(&call, device, stream);
    interposer_uses_memory(&call, device, to, size);
    if (interposer_validates(interposers_of(device)) &&
        ((pattern_size != 1 && pattern_size != 2 && pattern_size != 4 &&
          pattern_size != 8) ||
         size % pattern_size != 0))
        interposer_violation(
            &call, "libcore fills %llu bytes with a pattern of %u bytes",
            BYTES(size), pattern_size);
    if (!call.violated)
        status = device->backend->memory.fill(device->impl, stream, to, size,
                                              pattern, pattern_size);
    return interposer_leave(
        &call, status, "%p, %p, %p + %llu, %llu, 0x%llx / %u", device->impl,
        stream, to.handle, BYTES(to.offset), BYTES(size),
        (unsigned long long)pattern, pattern_size);
}

/* ------------------------------------------------------------ wrapping -- */

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
    .get_interface = interposer_get_interface,
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

static void wrap_memory(interposer_backend *backend)
{
    const core_memory_table *real = &backend->memory;
    core_memory_table *wrapped = &backend->wrapped_memory;

    *wrapped = memory_wrappers;
    INTERPOSER_KEEP(alloc);
    INTERPOSER_KEEP(free);
    INTERPOSER_KEEP(info);
    INTERPOSER_KEEP(copy_from_host);
    INTERPOSER_KEEP(copy_to_host);
    INTERPOSER_KEEP(copy);
    INTERPOSER_KEEP(fill);
    backend->wrapped.memory = wrapped;
}

static void wrap(interposer_backend *backend)
{
    const core_backend *real = &backend->real;
    core_backend *wrapped = &backend->wrapped;

    *wrapped = backend_wrappers;
    wrapped->flags = real->flags;
    wrapped->device_type = real->device_type;
    wrapped->user = backend;
    INTERPOSER_KEEP(enumerate);
    INTERPOSER_KEEP(device_open);
    INTERPOSER_KEEP(device_close);
    INTERPOSER_KEEP(device_information);
    INTERPOSER_KEEP(device_properties);
    INTERPOSER_KEEP(device_status);
    INTERPOSER_KEEP(get_interface);
    wrap_memory(backend);
    if (real->streams) {
        interposer_wrap_streams(backend);
        interposer_wrap_events(backend);
    }
}

core_status core__interposers_backend(core__interposers *interposers,
                                      const core_backend *backend,
                                      const core_backend **out_backend)
{
    interposer_backend *wrapper = core__alloc_zero(sizeof *wrapper);
    size_t size;

    *out_backend = NULL;
    if (!wrapper)
        return core__error_memory(sizeof *wrapper);
    wrapper->interposers = interposers;
    copy_known(&wrapper->real, sizeof wrapper->real, backend);
    copy_known(&wrapper->memory, sizeof wrapper->memory, wrapper->real.memory);
    copy_known(&wrapper->streams, sizeof wrapper->streams,
               wrapper->real.streams);
    copy_known(&wrapper->events, sizeof wrapper->events, wrapper->real.events);
    size = wrapper->real.device_type.size;
    if (size >= sizeof wrapper->type)
        size = sizeof wrapper->type - 1;
    if (wrapper->real.device_type.data)
        memcpy(wrapper->type, wrapper->real.device_type.data, size);
    wrap(wrapper);
    wrapper->next = interposers->backends;
    interposers->backends = wrapper;
    *out_backend = &wrapper->wrapped;
    return CORE_OK;
}

void *interposer_device_handle(core__interposers *interposers, void *handle,
                               interposer_device **out_device)
{
    interposer_device *device;

    interposer_lock(interposers);
    device = interposers->devices;
    while (device && device != handle)
        device = device->next;
    pthread_mutex_unlock(&interposers->lock);
    *out_device = device;
    return device ? device->impl : handle;
}
