/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Makes a device of the parent process unusable in a forked child. */

#include "device/device.h"
#include "device/upcalls.h"

/* Replaces the plugin's functions: its threads do not exist in the child, and
 * the data that they had locked may be inconsistent. */
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

/* A device with streams stays the parent's: the plugin's threads do not exist
 * here, and other threads may have held the locks of its streams and memory.
 * The same applies to a device whose plugin does not offer core.fork_safe.  In
 * the child it is lost for good, and the plugin has none of its objects. */
void core__device_after_fork(core_device *device)
{
    if (device->synchronous && device->interfaces.fork_safe.struct_size) {
        core__device_upcalls.host_memory_forked(device);
        if (device->interfaces.fork_safe.child)
            device->interfaces.fork_safe.child(device->impl);
        return;
    }
    if (device->synchronous) {
        /* From here on every call checks whether its stream is stale. */
        device->synchronous = false;
        device->small_blocks = false;
        device->memory = refusing;
        /* Cached blocks would be returned as if the device could allocate. */
        core__device_upcalls.memory_free_cached(device);
    }
    device->forked = true;
    atomic_store(&device->lost, true);
    atomic_fetch_add(&device->generation, 2);
    core__device_upcalls.allocator_forked(device);
}
