/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Blocks of device memory.  A handle is an address in a range without access:
 * it tells blocks apart and faults for whoever takes it for a pointer.  New
 * memory is poisoned, and so is freed memory before it goes; a handle is not
 * given anew before all others were, and work that touches a freed block
 * fails. */

#include "sim.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { BLOCKS = 1 << 20, SPACING = 16, POISON = 0xa5 };

typedef struct block {
    char *data; /* NULL: free */
    uint64_t size;
    uint32_t next_free; /* index + 1 */
} block;

typedef struct memory {
    char *handles; /* BLOCKS * SPACING bytes without access */
    block *blocks;
    uint32_t used;
    uint32_t first_free; /* index + 1, the oldest */
    uint32_t last_free;
    uint64_t total;
    uint64_t taken;
} memory;

core_status sim_memory_open(sim_device *device)
{
    memory *of = calloc(1, sizeof *of);

    if (of) {
        of->total = UINT64_C(4) << 30;
        of->blocks = calloc(BLOCKS, sizeof *of->blocks);
        of->handles = mmap(NULL, (size_t)BLOCKS * SPACING, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (of->blocks && of->handles != MAP_FAILED) {
            device->memory = of;
            return CORE_OK;
        }
        if (of->handles != MAP_FAILED)
            munmap(of->handles, (size_t)BLOCKS * SPACING);
        free(of->blocks);
    }
    free(of);
    return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                          "no address space for handles");
}

void sim_memory_close(sim_device *device)
{
    memory *of = device->memory;

    for (uint32_t i = 0; i < of->used; i++)
        free(of->blocks[i].data);
    free(of->blocks);
    munmap(of->handles, (size_t)BLOCKS * SPACING);
    free(of);
    device->memory = NULL;
}

static core_status alloc(void *words, uint64_t size, core_memory *out_memory)
{
    sim_device *device = words;
    memory *of = device->memory;
    core_status status = sim_usable(device);
    uint32_t index = 0;
    uint64_t taken;
    char *data;

    out_memory->handle = NULL;
    out_memory->offset = 0;
    if (status != CORE_OK)
        return status;
    data = aligned_alloc(64, (size + 63) / 64 * 64);
    if (data)
        memset(data, POISON, size);
    pthread_mutex_lock(&sim_lock);
    taken = of->taken;
    if (data && taken + size <= of->total &&
        (of->first_free || of->used < BLOCKS)) {
        if (of->used < BLOCKS) {
            index = of->used++;
        } else {
            index = of->first_free - 1;
            of->first_free = of->blocks[index].next_free;
            if (!of->first_free)
                of->last_free = 0;
        }
        of->blocks[index].data = data;
        of->blocks[index].size = size;
        of->blocks[index].next_free = 0;
        of->taken += size;
        out_memory->handle = of->handles + (size_t)index * SPACING;
    } else {
        status = CORE_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&sim_lock);
    if (status == CORE_OK)
        return status;
    free(data);
    return core_sdk_error(sim_host, status, "sim",
                          "%llu bytes: the device has %llu, of which %llu "
                          "are in use",
                          (unsigned long long)size,
                          (unsigned long long)of->total,
                          (unsigned long long)taken);
}

static void release(void *words, core_memory freed, uint64_t size)
{
    sim_device *device = words;
    memory *of = device->memory;
    uint32_t index =
        (uint32_t)((uint64_t)((char *)freed.handle - of->handles) / SPACING);
    block *ending = &of->blocks[index];

    (void)size;
    pthread_mutex_lock(&sim_lock);
    memset(ending->data, (uint8_t)~POISON, ending->size);
    free(ending->data);
    of->taken -= ending->size;
    ending->data = NULL;
    if (of->last_free)
        of->blocks[of->last_free - 1].next_free = index + 1;
    else
        of->first_free = index + 1;
    of->last_free = index + 1;
    pthread_mutex_unlock(&sim_lock);
}

core_status sim_memory_resolve(sim_device *device, core_memory place,
                               uint64_t size, void **out_address)
{
    memory *of = device->memory;
    uint64_t distance = (uint64_t)((char *)place.handle - of->handles);
    uint64_t index = distance / SPACING;
    block found = {0};

    *out_address = NULL;
    pthread_mutex_lock(&sim_lock);
    if (index < of->used && distance % SPACING == 0)
        found = of->blocks[index];
    pthread_mutex_unlock(&sim_lock);
    if (index >= of->used || distance % SPACING != 0)
        return core_sdk_error(sim_host, CORE_ERROR_INTERNAL, "sim",
                              "%p is no memory of %s", place.handle,
                              device->name);
    if (!found.data)
        return core_sdk_error(sim_host, CORE_ERROR_STREAM, "sim",
                              "it touches block %llu of %s (%llu bytes), "
                              "which was freed",
                              (unsigned long long)index, device->name,
                              (unsigned long long)found.size);
    if (place.offset > found.size || size > found.size - place.offset)
        return core_sdk_error(sim_host, CORE_ERROR_STREAM, "sim",
                              "it touches %llu bytes at %llu of block %llu of "
                              "%s, which has %llu",
                              (unsigned long long)size,
                              (unsigned long long)place.offset,
                              (unsigned long long)index, device->name,
                              (unsigned long long)found.size);
    *out_address = found.data + place.offset;
    return CORE_OK;
}

static core_status info(void *words, uint64_t *out_free, uint64_t *out_total)
{
    sim_device *device = words;
    memory *of = device->memory;

    pthread_mutex_lock(&sim_lock);
    *out_free = of->total - of->taken;
    *out_total = of->total;
    pthread_mutex_unlock(&sim_lock);
    return CORE_OK;
}

/* -------------------------------------------------------------- copies -- */

static core_status run_from_host(sim_work *work)
{
    void *to;
    core_status status =
        sim_memory_resolve(work->stream->device, work->to, work->size, &to);

    if (status == CORE_OK)
        memcpy(to, work->host, work->size);
    return status;
}

static core_status run_to_host(sim_work *work)
{
    void *from;
    core_status status =
        sim_memory_resolve(work->stream->device, work->from, work->size, &from);

    if (status == CORE_OK)
        memcpy(work->host, from, work->size);
    return status;
}

static core_status run_copy(sim_work *work)
{
    void *to, *from;
    core_status status =
        sim_memory_resolve(work->stream->device, work->to, work->size, &to);

    if (status == CORE_OK)
        status = sim_memory_resolve(work->from_device, work->from, work->size,
                                    &from);
    if (status == CORE_OK)
        memmove(to, from, work->size);
    return status;
}

static core_status run_fill(sim_work *work)
{
    void *to;
    core_status status =
        sim_memory_resolve(work->stream->device, work->to, work->size, &to);

    for (uint64_t i = 0; status == CORE_OK && i < work->size;
         i += work->pattern_size)
        memcpy((char *)to + i, &work->pattern, work->pattern_size);
    return status;
}

static core_status copy_from_host(void *device, void *stream, core_memory to,
                                  const void *from, uint64_t size)
{
    sim_work work = {.run = run_from_host,
                     .what = "copy from the host",
                     .to = to,
                     .host = (void *)(uintptr_t)from,
                     .size = size};

    (void)device;
    return sim_enqueue(stream, &work);
}

static core_status copy_to_host(void *device, void *stream, void *to,
                                core_memory from, uint64_t size)
{
    sim_work work = {.run = run_to_host,
                     .what = "copy to the host",
                     .from = from,
                     .host = to,
                     .size = size};

    (void)device;
    return sim_enqueue(stream, &work);
}

static core_status copy(void *device, void *stream, core_memory to,
                        core_memory from, uint64_t size)
{
    sim_work work = {.run = run_copy,
                     .what = "copy",
                     .to = to,
                     .from = from,
                     .from_device = device,
                     .size = size};

    return sim_enqueue(stream, &work);
}

static core_status fill(void *device, void *stream, core_memory to,
                        uint64_t size, uint64_t pattern, uint32_t pattern_size)
{
    sim_work work = {.run = run_fill,
                     .what = "fill",
                     .to = to,
                     .size = size,
                     .pattern = pattern,
                     .pattern_size = pattern_size};

    (void)device;
    return sim_enqueue(stream, &work);
}

const core_memory_table sim_memory_table = {
    .struct_size = sizeof(core_memory_table),
    .alloc = alloc,
    .free = release,
    .info = info,
    .copy_from_host = copy_from_host,
    .copy_to_host = copy_to_host,
    .copy = copy,
    .fill = fill,
};
