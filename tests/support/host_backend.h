/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* host_backend.h: the smallest backend: one synchronous device whose memory is
 * the host's.  For plugins and tests that register their own kernels; a backend
 * that differs replaces single functions. */

#ifndef TESTS_SUPPORT_HOST_BACKEND_H
#define TESTS_SUPPORT_HOST_BACKEND_H

#include <libcore/backend.h>

#include <stdlib.h>
#include <string.h>

enum { HOST_BACKEND_ALIGNMENT = 64 };

static inline core_status host_backend_enumerate(void *backend,
                                                 uint32_t *out_count,
                                                 core_string *out_reason)
{
    (void)backend;
    *out_count = 1;
    *out_reason = (core_string){"", 0};
    return CORE_OK;
}

static inline core_status host_backend_open(void *backend, uint32_t index,
                                            void **out_device)
{
    (void)index;
    *out_device = backend;
    return CORE_OK;
}

static inline void host_backend_close(void *backend, void *device)
{
    (void)backend;
    (void)device;
}

static inline core_status host_backend_properties(void *device,
                                                  core_device_properties *out)
{
    (void)device;
    out->flags = CORE_DEVICE_FLAT | CORE_DEVICE_HAS_F64;
    out->base_alignment = HOST_BACKEND_ALIGNMENT;
    out->granularity = HOST_BACKEND_ALIGNMENT;
    out->numa_node = UINT32_MAX;
    return CORE_OK;
}

static inline core_status host_backend_alloc(void *device, uint64_t size,
                                             core_memory *out_memory)
{
    uint64_t whole = (size + HOST_BACKEND_ALIGNMENT - 1) /
                     HOST_BACKEND_ALIGNMENT * HOST_BACKEND_ALIGNMENT;

    (void)device;
    out_memory->offset = 0;
    out_memory->handle = aligned_alloc(HOST_BACKEND_ALIGNMENT, whole);
    return out_memory->handle ? CORE_OK : CORE_ERROR_OUT_OF_MEMORY;
}

static inline void host_backend_free(void *device, core_memory memory,
                                     uint64_t size)
{
    (void)device;
    (void)size;
    free(memory.handle);
}

static inline char *host_backend_address(core_memory memory)
{
    return (char *)memory.handle + memory.offset;
}

static inline core_status host_backend_from_host(void *device, void *stream,
                                                 core_memory to,
                                                 const void *from,
                                                 uint64_t size)
{
    (void)device;
    (void)stream;
    memcpy(host_backend_address(to), from, size);
    return CORE_OK;
}

static inline core_status host_backend_to_host(void *device, void *stream,
                                               void *to, core_memory from,
                                               uint64_t size)
{
    (void)device;
    (void)stream;
    memcpy(to, host_backend_address(from), size);
    return CORE_OK;
}

static inline core_status host_backend_copy(void *device, void *stream,
                                            core_memory to, core_memory from,
                                            uint64_t size)
{
    (void)device;
    (void)stream;
    memmove(host_backend_address(to), host_backend_address(from), size);
    return CORE_OK;
}

static inline core_status host_backend_fill(void *device, void *stream,
                                            core_memory to, uint64_t size,
                                            uint64_t pattern,
                                            uint32_t pattern_size)
{
    char *bytes = host_backend_address(to);

    (void)device;
    (void)stream;
    for (uint64_t i = 0; i < size; i++)
        bytes[i] = (char)(pattern >> i % pattern_size * 8);
    return CORE_OK;
}

static const core_memory_table host_backend_memory = {
    .struct_size = sizeof(core_memory_table),
    .alloc = host_backend_alloc,
    .free = host_backend_free,
    .copy_from_host = host_backend_from_host,
    .copy_to_host = host_backend_to_host,
    .copy = host_backend_copy,
    .fill = host_backend_fill,
};

/* Initializers of a core_backend; type is a string literal. */
#define HOST_BACKEND(type)                                                 \
    .struct_size = sizeof(core_backend),                                   \
    .device_type = {type, sizeof(type) - 1},                               \
    .enumerate = host_backend_enumerate, .device_open = host_backend_open, \
    .device_close = host_backend_close,                                    \
    .device_properties = host_backend_properties,                          \
    .memory = &host_backend_memory

#endif
