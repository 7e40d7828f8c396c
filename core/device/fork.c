/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What becomes of a device in a child of fork. */

#include "device/device.h"
#include "device/upcalls.h"

/* Instead of the plugin's: its threads are not here, and what they had locked
 * is in whatever state. */
static core_status refuse(void)
{
    return core__error(CORE_ERROR_DEVICE_LOST,
                       "a device of the parent process cannot be used in a "
                       "forked child: its plugin does not offer "
                       "core.fork_safe");
}

static core_status alloc(void *device, uint64_t size, core_memory *out_memory)
{
    (void)device;
    (void)size;
    *out_memory = (core_memory){0};
    return refuse();
}

static void release(void *device, core_memory memory, uint64_t size)
{
    (void)device;
    (void)memory;
    (void)size;
}

static core_status copy_from_host(void *device, void *stream, core_memory to,
                                  const void *from, uint64_t size)
{
    (void)device;
    (void)stream;
    (void)to;
    (void)from;
    (void)size;
    return refuse();
}

static core_status copy_to_host(void *device, void *stream, void *to,
                                core_memory from, uint64_t size)
{
    (void)device;
    (void)stream;
    (void)to;
    (void)from;
    (void)size;
    return refuse();
}

static core_status copy(void *device, void *stream, core_memory to,
                        core_memory from, uint64_t size)
{
    (void)device;
    (void)stream;
    (void)to;
    (void)from;
    (void)size;
    return refuse();
}

static core_status fill(void *device, void *stream, core_memory to,
                        uint64_t size, uint64_t pattern, uint32_t pattern_size)
{
    (void)device;
    (void)stream;
    (void)to;
    (void)size;
    (void)pattern;
    (void)pattern_size;
    return refuse();
}

static const core_memory_table refusing = {
    .struct_size = sizeof(core_memory_table),
    .alloc = alloc,
    .free = release,
    .copy_from_host = copy_from_host,
    .copy_to_host = copy_to_host,
    .copy = copy,
    .fill = fill,
};

/* A device that runs on its own is the parent's: its plugin's threads are not
 * here, and other threads had the locks of its streams and of its memory in
 * whatever state.  So is one whose plugin does not say that it knows of forks.
 * It is as lost, for good, and the plugin knows nothing of what there is. */
void core__device_forked(core_device *device)
{
    if (device->synchronous && device->interfaces.fork_safe.struct_size) {
        core__device_upcalls.host_memory_forked(device);
        if (device->interfaces.fork_safe.child)
            device->interfaces.fork_safe.child(device->impl);
        return;
    }
    if (device->synchronous) {
        /* From here on every call looks whether its stream is stale. */
        device->synchronous = false;
        device->small_blocks = false;
        device->memory = refusing;
        /* What was kept of it would be given out as if there were memory. */
        core__device_upcalls.memory_forget(device);
    }
    device->forked = true;
    atomic_store(&device->lost, true);
    atomic_fetch_add(&device->generation, 2);
    core__device_upcalls.allocator_forked(device);
}
