/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Host memory as a device's memory. */

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "cpu.h"
#include "device.h"
#include "thread_pool.h"

enum {
    HUGE_PAGE = 2 << 20,
    COPY_GRAIN = 1 << 20 /* bytes that one thread copies at a time */
};

static core_status memory_alloc(void *device, uint64_t size,
                                core_memory *out_memory)
{
    uint64_t alignment = size >= HUGE_PAGE ? HUGE_PAGE : CPU_MEMORY_ALIGNMENT;
    uint64_t rounded;
    void *memory;

    (void)device;
    out_memory->handle = NULL;
    out_memory->offset = 0;
    if (size > UINT64_C(1) << 48) /* more than the address space */
        goto none;
    /* The tail is readable; aligned_alloc requires a multiple of the
     * alignment. */
    rounded = (size + CPU_MEMORY_TAIL + alignment - 1) & ~(alignment - 1);
    memory = aligned_alloc(alignment, rounded);
    if (memory == NULL)
        goto none;
#ifdef __linux__
    if (alignment == HUGE_PAGE)
        madvise(memory, rounded, MADV_HUGEPAGE); /* a hint; may fail */
#endif
    out_memory->handle = memory;
    return CORE_OK;

none:
    return cpu_error(CORE_ERROR_OUT_OF_MEMORY,
                     "cannot allocate %llu bytes of host memory",
                     (unsigned long long)size);
}

static void memory_free(void *device, core_memory memory, uint64_t size)
{
    (void)device;
    (void)size;
    free(memory.handle);
}

void cpu_memory_sizes(uint64_t *out_available, uint64_t *out_total)
{
    char line[256];
    FILE *file = fopen("/proc/meminfo", "re");
    unsigned long long kilobytes;

    *out_available = 0;
    *out_total = 0;
    if (file == NULL)
        return;
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemTotal: %llu kB", &kilobytes) == 1)
            *out_total = kilobytes * 1024;
        else if (sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1)
            *out_available = kilobytes * 1024;
    }
    fclose(file);
}

static core_status memory_info(void *device, uint64_t *out_free,
                               uint64_t *out_total)
{
    (void)device;
    cpu_memory_sizes(out_free, out_total);
    if (*out_total == 0)
        return cpu_error(CORE_ERROR_UNSUPPORTED,
                         "the system does not report its memory size");
    return CORE_OK;
}

typedef struct copy_context {
    char *to;
    const char *from;
} copy_context;

static void copy_task(void *context, int64_t begin, int64_t end)
{
    const copy_context *copy = context;

    memcpy(copy->to + begin, copy->from + begin, (size_t)(end - begin));
}

static core_status copy_bytes(void *to, const void *from, uint64_t size)
{
    copy_context copy = {to, from};

    cpu_parallel_for((int64_t)size, COPY_GRAIN, copy_task, &copy);
    return CORE_OK;
}

static core_status memory_copy_from_host(void *device, void *stream,
                                         core_memory to, const void *from,
                                         uint64_t size)
{
    (void)device;
    (void)stream;
    return copy_bytes(cpu_address(to), from, size);
}

static core_status memory_copy_to_host(void *device, void *stream, void *to,
                                       core_memory from, uint64_t size)
{
    (void)device;
    (void)stream;
    return copy_bytes(to, cpu_address(from), size);
}

static core_status memory_copy(void *device, void *stream, core_memory to,
                               core_memory from, uint64_t size)
{
    (void)device;
    (void)stream;
    return copy_bytes(cpu_address(to), cpu_address(from), size);
}

typedef struct fill_context {
    char *to;
    uint64_t pattern; /* repeated to 8 bytes */
} fill_context;

/* Chunks begin at multiples of 8 bytes, so each begins with the pattern. */
static void fill_task(void *context, int64_t begin, int64_t end)
{
    const fill_context *fill = context;
    char *to = fill->to + begin;
    int64_t size = end - begin, k;

    for (k = 0; k + 8 <= size; k += 8)
        memcpy(to + k, &fill->pattern, 8);
    memcpy(to + k, &fill->pattern, (size_t)(size - k));
}

static core_status memory_fill(void *device, void *stream, core_memory to,
                               uint64_t size, uint64_t pattern,
                               uint32_t pattern_size)
{
    fill_context fill = {cpu_address(to), 0};
    uint32_t k;

    (void)device;
    (void)stream;
    if ((pattern_size != 1 && pattern_size != 2 && pattern_size != 4 &&
         pattern_size != 8) ||
        size % pattern_size != 0)
        return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                         "a pattern of %u bytes does not fill %llu bytes",
                         pattern_size, (unsigned long long)size);
    for (k = 0; k < 8; k += pattern_size)
        memcpy((char *)&fill.pattern + k, &pattern, pattern_size);
    cpu_parallel_for((int64_t)size, COPY_GRAIN, fill_task, &fill);
    return CORE_OK;
}

const core_memory_table cpu_memory_table = {
    .struct_size = sizeof(core_memory_table),
    .alloc = memory_alloc,
    .free = memory_free,
    .info = memory_info,
    .copy_from_host = memory_copy_from_host,
    .copy_to_host = memory_copy_to_host,
    .copy = memory_copy,
    .fill = memory_fill,
};
