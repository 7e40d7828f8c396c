/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Buffers, copies and fills.  Every command goes through the stream's queue;
 * none blocks. */

#include "packed_weights.h"

#define MEM(memory) ((cl_mem)(memory).handle)

static bool exceeds(const opencl_device *device, uint64_t size)
{
    return device->total != 0 &&
           atomic_load(&device->allocated) + size > device->total;
}

static core_status alloc(void *handle, uint64_t size, core_memory *out_memory)
{
    opencl_device *device = handle;
    cl_int code;

    out_memory->handle = NULL;
    out_memory->offset = 0;
    /* Many OpenCL implementations allocate at first use, where a failure can no
     * longer be reported. */
    if (exceeds(device, size))
        opencl_packed_weights_drop(device, NULL);
    if ((device->largest && size > device->largest) || exceeds(device, size))
        return opencl_refuse(
            CORE_ERROR_OUT_OF_MEMORY,
            "%llu bytes: the device has %llu, allocates at most %llu at once, "
            "and %llu are in use",
            (unsigned long long)size, (unsigned long long)device->total,
            (unsigned long long)device->largest,
            (unsigned long long)atomic_load(&device->allocated));
    out_memory->handle =
        cl.CreateBuffer(device->context, CL_MEM_READ_WRITE, size, NULL, &code);
    if (code != CL_SUCCESS) {
        out_memory->handle = NULL;
        return opencl_fail(device, code, "clCreateBuffer");
    }
    atomic_fetch_add(&device->allocated, size);
    return CORE_OK;
}

static void release(void *handle, core_memory memory, uint64_t size)
{
    opencl_device *device = handle;

    atomic_fetch_sub(&device->allocated, size);
    opencl_packed_weights_drop(device, MEM(memory));
    cl.ReleaseMemObject(MEM(memory));
}

static core_status info(void *handle, uint64_t *out_free, uint64_t *out_total)
{
    opencl_device *device = handle;
    uint64_t used = atomic_load(&device->allocated);

    *out_total = device->total;
    *out_free = used < device->total ? device->total - used : 0;
    return CORE_OK;
}

static core_status ended(opencl_stream *stream, cl_int code, cl_event event,
                         const char *what, uint64_t bytes)
{
    bool fills = strcmp(what, "clEnqueueFillBuffer") == 0;

    if (code != CL_SUCCESS)
        return opencl_fail(stream->device, code, what);
    opencl_profile_submitted(stream, event,
                             fills ? CORE_ACTIVITY_FILL : CORE_ACTIVITY_COPY,
                             what + strlen("clEnqueue"), bytes);
    opencl_stream_submitted(stream, event);
    return CORE_OK;
}

static core_status copy_from_host(void *device, void *handle, core_memory to,
                                  const void *from, uint64_t size)
{
    opencl_stream *stream = handle;
    core_status status = opencl_stream_usable(stream);
    cl_event event = NULL;
    cl_int code;

    (void)device;
    if (status != CORE_OK || size == 0)
        return status;
    code = cl.EnqueueWriteBuffer(stream->queue, MEM(to), CL_FALSE, to.offset,
                                 size, from, 0, NULL, &event);
    return ended(stream, code, event, "clEnqueueWriteBuffer", size);
}

static core_status copy_to_host(void *device, void *handle, void *to,
                                core_memory from, uint64_t size)
{
    opencl_stream *stream = handle;
    core_status status = opencl_stream_usable(stream);
    cl_event event = NULL;
    cl_int code;

    (void)device;
    if (status != CORE_OK || size == 0)
        return status;
    code = cl.EnqueueReadBuffer(stream->queue, MEM(from), CL_FALSE, from.offset,
                                size, to, 0, NULL, &event);
    return ended(stream, code, event, "clEnqueueReadBuffer", size);
}

/* OpenCL refuses overlapping copies within a buffer: they go through another
 * one, which is released when the commands are done. */
static core_status copy_through(opencl_stream *stream, core_memory to,
                                core_memory from, uint64_t size)
{
    cl_int code;
    cl_event first = NULL, event = NULL;
    cl_mem way = cl.CreateBuffer(stream->device->context, CL_MEM_READ_WRITE,
                                 size, NULL, &code);

    if (code != CL_SUCCESS)
        return opencl_fail(stream->device, code, "clCreateBuffer");
    code = cl.EnqueueCopyBuffer(stream->queue, MEM(from), way, from.offset, 0,
                                size, 0, NULL, &first);
    if (code == CL_SUCCESS) {
        ended(stream, code, first, "clEnqueueCopyBuffer", size);
        code = cl.EnqueueCopyBuffer(stream->queue, way, MEM(to), 0, to.offset,
                                    size, 0, NULL, &event);
    }
    cl.ReleaseMemObject(way);
    return ended(stream, code, event, "clEnqueueCopyBuffer", size);
}

static core_status copy(void *device, void *handle, core_memory to,
                        core_memory from, uint64_t size)
{
    opencl_stream *stream = handle;
    core_status status = opencl_stream_usable(stream);
    cl_event event = NULL;
    cl_int code;

    (void)device;
    if (status != CORE_OK || size == 0)
        return status;
    if (to.handle == from.handle) {
        if (to.offset == from.offset)
            return CORE_OK;
        if (to.offset < from.offset + size && from.offset < to.offset + size)
            return copy_through(stream, to, from, size);
    }
    code = cl.EnqueueCopyBuffer(stream->queue, MEM(from), MEM(to), from.offset,
                                to.offset, size, 0, NULL, &event);
    return ended(stream, code, event, "clEnqueueCopyBuffer", size);
}

/* OpenCL only fills from offsets that are multiples of the pattern: otherwise
 * the pattern is rotated, and the beginning and the end are filled byte by
 * byte. */
static core_status fill(void *device, void *handle, core_memory to,
                        uint64_t size, uint64_t pattern, uint32_t pattern_size)
{
    opencl_stream *stream = handle;
    core_status status = opencl_stream_usable(stream);
    unsigned char bytes[8], turned[8];
    uint64_t done = 0;

    (void)device;
    memcpy(bytes, &pattern, 8);
    while (status == CORE_OK && done < size) {
        uint64_t at = to.offset + done, left = size - done;
        uint32_t width = pattern_size;
        cl_event event = NULL;
        cl_int code;

        while (at % width != 0 || left < width)
            width /= 2;
        for (uint32_t i = 0; i < width; i++)
            turned[i] = bytes[(done + i) % pattern_size];
        /* The whole middle part at once, or a piece. */
        left = width == pattern_size ? left - left % width : width;
        code = cl.EnqueueFillBuffer(stream->queue, MEM(to), turned, width, at,
                                    left, 0, NULL, &event);
        status = ended(stream, code, event, "clEnqueueFillBuffer", left);
        done += left;
    }
    return status;
}

const core_memory_table opencl_memory_table = {
    .struct_size = sizeof(core_memory_table),
    .alloc = alloc,
    .free = release,
    .info = info,
    .copy_from_host = copy_from_host,
    .copy_to_host = copy_to_host,
    .copy = copy,
    .fill = fill,
};
