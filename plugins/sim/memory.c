/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Blocks of device memory.  A handle is an address in a range without access:
 * it tells blocks apart and faults for whoever takes it for a pointer.  New
 * memory is poisoned, and so is freed memory before it goes. */

#include "sim.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { BLOCKS = 1 << 20, SPACING = 16, POISON = 0xa5 };

typedef struct block {
    char *data; /* NULL: free */
    uint64_t size;
    uint32_t next_free;
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *handles; /* BLOCKS * SPACING bytes without access */
static block *blocks;
static uint32_t used;
static uint32_t first_free; /* index + 1 */
static uint64_t total = UINT64_C(4) << 30;
static uint64_t taken;

int sim_memory_open(void)
{
    handles = mmap(NULL, (size_t)BLOCKS * SPACING, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (handles == MAP_FAILED)
        return -1;
    blocks = calloc(BLOCKS, sizeof *blocks);
    if (!blocks) {
        munmap(handles, (size_t)BLOCKS * SPACING);
        return -1;
    }
    return 0;
}

void sim_memory_close(void)
{
    for (uint32_t i = 0; i < used; i++)
        free(blocks[i].data);
    free(blocks);
    munmap(handles, (size_t)BLOCKS * SPACING);
    used = first_free = 0;
    taken = 0;
}

static block *block_of(core_memory memory)
{
    uint64_t distance = (uint64_t)((char *)memory.handle - handles);

    return &blocks[distance / SPACING];
}

static core_status alloc(void *device, uint64_t size, core_memory *out_memory)
{
    core_status status = CORE_OK;
    uint32_t index = 0;
    char *data;

    (void)device;
    out_memory->handle = NULL;
    out_memory->offset = 0;
    data = aligned_alloc(64, (size + 63) / 64 * 64);
    pthread_mutex_lock(&lock);
    if (data && taken + size <= total && (first_free || used < BLOCKS)) {
        index = first_free ? first_free - 1 : used++;
        first_free = blocks[index].next_free;
        blocks[index].data = data;
        blocks[index].size = size;
        blocks[index].next_free = 0;
        taken += size;
        memset(data, POISON, size);
        out_memory->handle = handles + (size_t)index * SPACING;
    } else {
        status = CORE_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&lock);
    if (status != CORE_OK) {
        free(data);
        return core_sdk_error(sim_host, status, "sim",
                              "%llu bytes: the device has %llu, of which %llu "
                              "are in use",
                              (unsigned long long)size,
                              (unsigned long long)total,
                              (unsigned long long)taken);
    }
    return CORE_OK;
}

void sim_memory_end(core_memory memory)
{
    block *ending = block_of(memory);

    pthread_mutex_lock(&lock);
    memset(ending->data, ~POISON, ending->size);
    free(ending->data);
    taken -= ending->size;
    ending->data = NULL;
    ending->next_free = first_free;
    first_free = (uint32_t)(ending - blocks) + 1;
    pthread_mutex_unlock(&lock);
}

void *sim_memory_address(core_memory memory)
{
    return block_of(memory)->data + memory.offset;
}

static core_status run_free(sim_work *work)
{
    sim_memory_end(work->to);
    return CORE_OK;
}

/* Ordered like all else: what was given to the stream before may use it. */
static void release(void *device, core_memory memory, uint64_t size)
{
    sim_work work = {.run = run_free, .to = memory};

    (void)device;
    (void)size;
    if (sim_enqueue(&work) != CORE_OK) {
        /* No memory to defer with: wait, then it can go at once. */
        sim_stream_table.synchronize(NULL, NULL);
        sim_memory_end(memory);
    }
}

static core_status info(void *device, uint64_t *out_free, uint64_t *out_total)
{
    (void)device;
    pthread_mutex_lock(&lock);
    *out_free = total - taken;
    *out_total = total;
    pthread_mutex_unlock(&lock);
    return CORE_OK;
}

/* -------------------------------------------------------------- copies -- */

static core_status run_from_host(sim_work *work)
{
    memcpy(sim_memory_address(work->to), work->host, work->size);
    return CORE_OK;
}

static core_status run_to_host(sim_work *work)
{
    memcpy(work->host, sim_memory_address(work->from), work->size);
    return CORE_OK;
}

static core_status run_copy(sim_work *work)
{
    memmove(sim_memory_address(work->to), sim_memory_address(work->from),
            work->size);
    return CORE_OK;
}

static core_status run_fill(sim_work *work)
{
    char *to = sim_memory_address(work->to);

    for (uint64_t i = 0; i < work->size; i += work->pattern_size)
        memcpy(to + i, &work->pattern, work->pattern_size);
    return CORE_OK;
}

static core_status copy_from_host(void *device, void *stream, core_memory to,
                                  const void *from, uint64_t size)
{
    sim_work work = {.run = run_from_host,
                     .to = to,
                     .host = (void *)(uintptr_t)from,
                     .size = size};

    (void)device;
    (void)stream;
    return sim_enqueue(&work);
}

static core_status copy_to_host(void *device, void *stream, void *to,
                                core_memory from, uint64_t size)
{
    sim_work work = {
        .run = run_to_host, .from = from, .host = to, .size = size};

    (void)device;
    (void)stream;
    return sim_enqueue(&work);
}

static core_status copy(void *device, void *stream, core_memory to,
                        core_memory from, uint64_t size)
{
    sim_work work = {.run = run_copy, .to = to, .from = from, .size = size};

    (void)device;
    (void)stream;
    return sim_enqueue(&work);
}

static core_status fill(void *device, void *stream, core_memory to,
                        uint64_t size, uint64_t pattern, uint32_t pattern_size)
{
    sim_work work = {.run = run_fill,
                     .to = to,
                     .size = size,
                     .pattern = pattern,
                     .pattern_size = pattern_size};

    (void)device;
    (void)stream;
    return sim_enqueue(&work);
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
