/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* memory.c: memory, copies and fills; peers; address ranges. */

#include <gpu/host/interfaces.h>

#include <sys/mman.h>
#include <unistd.h>

#define calls (gpu_this_vendor.driver)

static core_status usable(gpu_device *device)
{
    return gpu_report(device, atomic_load(&device->lost), "the device");
}

static core_status alloc(void *opaque, uint64_t size, core_memory *out_memory)
{
    gpu_device *device = opaque;
    core_status status = usable(device);

    out_memory->handle = NULL;
    out_memory->offset = 0;
    if (status != CORE_OK)
        return status;
    return gpu_report(device,
                      calls->alloc(device->context, size, &out_memory->handle),
                      "allocating memory");
}

static void release(void *opaque, core_memory memory, uint64_t size)
{
    (void)size;
    gpu_free(opaque, GPU_FREE_DEVICE, memory.handle, 0);
}

static core_status info(void *opaque, uint64_t *out_free, uint64_t *out_total)
{
    gpu_device *device = opaque;

    return gpu_report(device,
                      calls->memory(device->context, out_free, out_total),
                      "querying free memory");
}

/* To a device: on an H100 a copy of 1 MB did not wait, and one of 64 MB did. */
enum { LARGE_COPY = 1 << 20 };

/* A copy of pageable memory waits in the driver for earlier work of the stream.
 * Meanwhile other threads can neither allocate nor create events, and a host
 * callback that does would never let the stream continue.  So the thread waits
 * here first, which does not block other threads; the copy reports an error. */
static void wait_before_pageable(gpu_device *device, const gpu_stream *stream,
                                 const void *host)
{
    if (atomic_load_explicit(&device->has_callbacks, memory_order_relaxed) &&
        calls->host_is_pinned != NULL &&
        !calls->host_is_pinned(device->context, host) &&
        !gpu_native_is_capturing(device->context, stream->native))
        (void)gpu_wait_stream(device, stream->native);
}

static core_status move(gpu_device *device, gpu_stream *stream, void *to,
                        const void *from, uint64_t size, int direction)
{
    core_status status = usable(device);

    if (status != CORE_OK || size == 0 || to == from)
        return status;
    if (direction == GPU_TO_HOST ||
        (direction == GPU_TO_DEVICE && size > LARGE_COPY))
        wait_before_pageable(device, stream,
                             direction == GPU_TO_HOST ? to : from);
    return gpu_report(
        device,
        calls->copy(device->context, stream->native, to, from, size, direction),
        "copying");
}

static core_status copy_from_host(void *device, void *stream, core_memory to,
                                  const void *from, uint64_t size)
{
    return move(device, stream, gpu_address(to), from, size, GPU_TO_DEVICE);
}

static core_status copy_to_host(void *device, void *stream, void *to,
                                core_memory from, uint64_t size)
{
    return move(device, stream, to, gpu_address(from), size, GPU_TO_HOST);
}

static core_status copy(void *device, void *stream, core_memory to,
                        core_memory from, uint64_t size)
{
    return move(device, stream, gpu_address(to), gpu_address(from), size,
                GPU_WITHIN);
}

/* A kernel fills with 8-byte patterns and unaligned memory. */
static core_status fill(void *opaque, void *on, core_memory to, uint64_t size,
                        uint64_t pattern, uint32_t pattern_size)
{
    gpu_device *device = opaque;
    gpu_stream *stream = on;
    core_status status = usable(device);
    gpu_fill p = {.to = gpu_address(to), .pattern = pattern};

    if (status != CORE_OK || size == 0)
        return status;
    p.count = size / pattern_size;
    if (pattern_size < 8 && (uintptr_t)p.to % pattern_size == 0)
        return gpu_report(device,
                          calls->fill(device->context, stream->native, p.to,
                                      (uint32_t)pattern, pattern_size, p.count),
                          "filling");
    if ((uintptr_t)p.to % pattern_size == 0)
        return gpu_launch_on(stream, "move", "fill_w64",
                             gpu_spread(device, p.count, 4), &p, sizeof p);
    p.count = size;
    return gpu_launch_on(stream, "move",
                         pattern_size == 8   ? "fill_bytes_8"
                         : pattern_size == 4 ? "fill_bytes_4"
                                             : "fill_bytes_2",
                         gpu_spread(device, p.count, 4), &p, sizeof p);
}

const core_memory_table gpu_memory_table = {
    .struct_size = sizeof(core_memory_table),
    .alloc = alloc,
    .free = release,
    .info = info,
    .copy_from_host = copy_from_host,
    .copy_to_host = copy_to_host,
    .copy = copy,
    .fill = fill,
};

/* --------------------------------------------------------- host memory -- */

static uint64_t whole_pages(uint64_t size)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    return size <= UINT64_MAX / 2 ? (size + page - 1) / page * page : 0;
}

/* Host memory is not allocated by the driver: a reset would free it while
 * tensors of the CPU use it.  It is mapped shared: after a fork, the device's
 * pages stay in place. */
static core_status host_alloc(void *opaque, uint64_t size, void **out_data)
{
    gpu_device *device = opaque;
    uint64_t whole = whole_pages(size);
    void *data = mmap(NULL, whole, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int code;

    *out_data = NULL;
    if (data == MAP_FAILED)
        return gpu_refuse(CORE_ERROR_OUT_OF_MEMORY,
                          "no host memory for %llu pinned bytes",
                          (unsigned long long)size);
    code = calls->host_pin(device->context, data, whole);
    if (code != 0) {
        munmap(data, whole);
        return gpu_report(device, code, "pinning host memory");
    }
    *out_data = data;
    return CORE_OK;
}

static void host_free(void *opaque, void *data, uint64_t size)
{
    gpu_free(opaque, GPU_FREE_HOST, data, whole_pages(size));
}

const core_host_memory_interface gpu_host_memory = {
    .struct_size = sizeof(core_host_memory_interface),
    .alloc = host_alloc,
    .free = host_free,
};

/* --------------------------------------------------------------- peers -- */

static core_status peer_accessible(void *opaque, void *other, uint32_t *out_yes)
{
    gpu_device *device = opaque;

    *out_yes = 0;
    return gpu_report(device,
                      calls->peer_accessible(device->context,
                                             ((gpu_device *)other)->context,
                                             out_yes),
                      "querying peer access");
}

static core_status peer_copy(void *opaque, void *on, core_memory to,
                             void *from_device, core_memory from, uint64_t size)
{
    gpu_device *device = opaque, *source = from_device;
    gpu_stream *stream = on;
    core_status status = usable(device);

    if (status != CORE_OK || size == 0)
        return status;
    return gpu_report(device,
                      calls->peer_copy(device->context, stream->native,
                                       gpu_address(to), source->context,
                                       gpu_address(from), size),
                      "copying between devices");
}

const core_peer_interface gpu_peer = {
    .struct_size = sizeof(core_peer_interface),
    .can_access = peer_accessible,
    .copy = peer_copy,
};

/* ------------------------------------------------------ address ranges -- */

static core_status granularity(void *opaque, uint64_t *out_bytes)
{
    gpu_device *device = opaque;

    return gpu_report(device,
                      calls->virtual_granularity(device->context, out_bytes),
                      "querying the granularity of address ranges");
}

static core_status reserve(void *opaque, uint64_t size, core_memory *out_memory)
{
    gpu_device *device = opaque;
    core_status status = usable(device);

    out_memory->handle = NULL;
    out_memory->offset = 0;
    if (status != CORE_OK)
        return status;
    return gpu_report(
        device,
        calls->virtual_reserve(device->context, size, &out_memory->handle),
        "reserving addresses");
}

static void release_range(void *opaque, core_memory memory, uint64_t size)
{
    gpu_free(opaque, GPU_FREE_RANGE, memory.handle, size);
}

static core_status map(void *opaque, core_memory memory, uint64_t offset,
                       uint64_t size)
{
    gpu_device *device = opaque;
    core_status status = usable(device);

    if (status != CORE_OK)
        return status;
    return gpu_report(device,
                      calls->virtual_map(device->context,
                                         (char *)gpu_address(memory) + offset,
                                         size),
                      "mapping memory");
}

static void unmap(void *opaque, core_memory memory, uint64_t offset,
                  uint64_t size)
{
    gpu_free(opaque, GPU_FREE_MAPPING, (char *)gpu_address(memory) + offset,
             size);
}

const core_virtual_memory_interface gpu_virtual_memory = {
    .struct_size = sizeof(core_virtual_memory_interface),
    .granularity = granularity,
    .reserve = reserve,
    .release = release_range,
    .map = map,
    .unmap = unmap,
};
