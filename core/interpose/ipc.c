/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Wrapper of core.ipc. */

#include "interpose/interposer.h"

#define REAL(device) (&(device)->backend->interfaces)

static core_status enter(interposer_call *call, const interposer_device *device,
                         const char *slot, interposer_kind kind)
{
    return interposer_enter(call, device->backend->interposers,
                            device->backend->type, slot, kind);
}

static core_status export_memory(void *handle, core_memory memory,
                                 uint64_t size, void *out_handle)
{
    interposer_device *device = handle;
    core_status status = CORE_ERROR_INTERNAL;
    interposer_call call;

    CORE_TRY(enter(&call, device, "ipc.export_memory", INTERPOSER_INTERFACE));
    if (interposer_uses_memory(&call, device, memory, size))
        status = REAL(device)->ipc.export_memory(device->impl, memory, size,
                                                 out_handle);
    return interposer_leave(&call, status, "%p, %p + %llu, %llu", device->impl,
                            memory.handle, (unsigned long long)memory.offset,
                            (unsigned long long)size);
}

static core_status open_memory(void *handle, const void *from, uint64_t size,
                               core_memory *out_memory)
{
    interposer_device *device = handle;
    interposer_call call;
    core_status status;

    CORE_TRY(enter(&call, device, "ipc.open", INTERPOSER_ALLOC));
    status = REAL(device)->ipc.open(device->impl, from, size, out_memory);
    if (status == CORE_OK)
        interposer_created(&call, INTERPOSER_MEMORY, device, out_memory->handle,
                           out_memory->offset, size);
    return interposer_leave(&call, status, "%p, %llu -> %p", device->impl,
                            (unsigned long long)size, out_memory->handle);
}

static void close_memory(void *handle, core_memory memory, uint64_t size)
{
    interposer_device *device = handle;
    interposer_call call;

    enter(&call, device, "ipc.close", INTERPOSER_NEVER);
    if (interposer_destroys(&call, INTERPOSER_MEMORY, device, memory.handle,
                            memory.offset, size))
        REAL(device)->ipc.close(device->impl, memory, size);
    interposer_leave_void(&call, "%p, %p, %llu", device->impl, memory.handle,
                          (unsigned long long)size);
}

static void end_export(void *handle, core_memory memory, uint64_t size)
{
    interposer_device *device = handle;
    interposer_call call;

    enter(&call, device, "ipc.end_export", INTERPOSER_NEVER);
    REAL(device)->ipc.end_export(device->impl, memory, size);
    interposer_leave_void(&call, "%p, %p, %llu", device->impl, memory.handle,
                          (unsigned long long)size);
}

const core_ipc_interface interposer_ipc = {sizeof(core_ipc_interface),
                                           0,
                                           export_memory,
                                           open_memory,
                                           close_memory,
                                           end_export};
