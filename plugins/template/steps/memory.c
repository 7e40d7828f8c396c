/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* Step 1: memory behind opaque handles, and copies.  Step 2 moves the copies to
 * streams, step 6 hands out parts of larger blocks. */

#include "device.h"

char *address(core_memory memory)
{
    if (memory.handle == NULL) /* of a tensor without elements */
        return NULL;
    return ((block *)memory.handle)->data + memory.offset;
}

static block *block_make(uint64_t size)
{
    block *created = calloc(1, sizeof *created);

    if (created != NULL)
        created->data = aligned_alloc(64, (size + 63) / 64 * 64);
    if (created == NULL || created->data == NULL) {
        free(created);
        return NULL;
    }
    created->size = size;
    return created;
}

static core_status no_memory(uint64_t size)
{
    return core_sdk_error(host, CORE_ERROR_OUT_OF_MEMORY, NAME,
                          "no memory for %llu bytes", (unsigned long long)size);
}

#if STEP < 6
static core_status device_alloc(void *device, uint64_t size,
                                core_memory *out_memory)
{
    (void)device;
    out_memory->handle = block_make(size);
    out_memory->offset = 0;
    return out_memory->handle != NULL ? CORE_OK : no_memory(size);
}

static void device_free(void *device, core_memory memory, uint64_t size)
{
    (void)device;
    (void)size;
    free(((block *)memory.handle)->data);
    free(memory.handle);
}
#else
/* Parts of slabs: the handle is the slab, with an offset.  A freed part serves
 * the next request of its size class. */
enum { SLAB = 1 << 20, CLASSES = 15 }; /* 64 bytes to 1 MiB */

typedef struct part {
    struct part *next;
    core_memory memory;
} part;

static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;
static part *parts[CLASSES];
static block *slab;
static uint64_t slab_used;

static int class_of(uint64_t size)
{
    int class = 0;

    while (class < CLASSES && (UINT64_C(64) << class) < size)
        class ++;
    return class;
}

static core_status part_take(int class, core_memory *out_memory)
{
    part *free_one = parts[class];
    uint64_t size = UINT64_C(64) << class;

    if (free_one != NULL) {
        *out_memory = free_one->memory;
        parts[class] = free_one->next;
        free(free_one);
        return CORE_OK;
    }
    if (slab == NULL || slab_used + size > SLAB) {
        slab = block_make(SLAB); /* the rest of the old one stays unused */
        slab_used = 0;
        if (slab == NULL)
            return no_memory(SLAB);
    }
    out_memory->handle = slab;
    out_memory->offset = slab_used;
    slab_used += size;
    return CORE_OK;
}

static core_status device_alloc(void *device, uint64_t size,
                                core_memory *out_memory)
{
    int class = class_of(size);
    core_status status;

    (void)device;
    if (class == CLASSES) {
        out_memory->handle = block_make(size);
        out_memory->offset = 0;
        return out_memory->handle != NULL ? CORE_OK : no_memory(size);
    }
    pthread_mutex_lock(&heap_lock);
    status = part_take(class, out_memory);
    pthread_mutex_unlock(&heap_lock);
    return status;
}

static void device_free(void *device, core_memory memory, uint64_t size)
{
    int class = class_of(size);
    part *back;

    (void)device;
    if (class == CLASSES) {
        free(((block *)memory.handle)->data);
        free(memory.handle);
        return;
    }
    back = malloc(sizeof *back);
    if (back == NULL)
        return; /* the memory is leaked, nothing else */
    back->memory = memory;
    pthread_mutex_lock(&heap_lock);
    back->next = parts[class];
    parts[class] = back;
    pthread_mutex_unlock(&heap_lock);
}

/* core.allocator: a freed block is returned when its stream reaches the
 * free. */
typedef struct leaving {
    core_memory memory;
    uint64_t size;
} leaving;

static core_status leave(void *context)
{
    leaving *freed = context;

    device_free(NULL, freed->memory, freed->size);
    return CORE_OK;
}

static core_status own_alloc(void *device, void *on, uint64_t size,
                             core_memory *out_memory)
{
    (void)on; /* a returned block has passed its stream, so that any stream may
               * use it */
    return device_alloc(device, size, out_memory);
}

/* The stream never captures, or each launch of the graph would free again. */
static void own_free(void *device, void *on, core_memory memory, uint64_t size)
{
    leaving *freed;

    if (on == NULL) {
        device_free(device, memory, size);
        return;
    }
    freed = malloc(sizeof *freed);
    if (freed == NULL)
        return; /* the memory is leaked, nothing else */
    *freed = (leaving){memory, size};
    stream_submit(
        on,
        (job){.run = leave, .drop = free, .context = freed, .always = true});
}

static core_status own_trim(void *device)
{
    (void)device; /* slabs are kept */
    return CORE_OK;
}

const core_allocator_interface own_memory = {
    .struct_size = sizeof(core_allocator_interface),
    .alloc = own_alloc,
    .free = own_free,
    .trim = own_trim,
};
#endif

/* ----------------------------------------------------- copies and fills -- */

typedef struct transfer {
    char *to;
    const char *from; /* NULL: a fill */
    uint64_t size, pattern;
    uint32_t pattern_size;
} transfer;

static core_status transfer_run(void *context)
{
    const transfer *work = context;

    if (work->from != NULL)
        memmove(work->to, work->from, work->size);
    else
        for (uint64_t i = 0; i < work->size; i++)
            work->to[i] = (char)(work->pattern >> i % work->pattern_size * 8);
    return CORE_OK;
}

/* At once without a stream, otherwise when the stream reaches it. */
static core_status transfer_submit(void *on, transfer now)
{
#if STEP >= 2
    transfer *later = malloc(sizeof *later);

    if (later == NULL)
        return no_memory(sizeof *later);
    *later = now;
    return stream_submit(
        on, (job){.run = transfer_run, .drop = free, .context = later});
#else
    (void)on;
    return transfer_run(&now);
#endif
}

static core_status copy_from_host(void *device, void *on, core_memory to,
                                  const void *from, uint64_t size)
{
    (void)device;
    return transfer_submit(
        on, (transfer){.to = address(to), .from = from, .size = size});
}

static core_status copy_to_host(void *device, void *on, void *to,
                                core_memory from, uint64_t size)
{
    (void)device;
    return transfer_submit(
        on, (transfer){.to = to, .from = address(from), .size = size});
}

static core_status copy(void *device, void *on, core_memory to,
                        core_memory from, uint64_t size)
{
    (void)device;
    return transfer_submit(
        on, (transfer){.to = address(to), .from = address(from), .size = size});
}

static core_status fill(void *device, void *on, core_memory to, uint64_t size,
                        uint64_t pattern, uint32_t pattern_size)
{
    (void)device;
    return transfer_submit(on, (transfer){.to = address(to),
                                          .size = size,
                                          .pattern = pattern,
                                          .pattern_size = pattern_size});
}

const core_memory_table memory_table = {
    .struct_size = sizeof(core_memory_table),
    .alloc = device_alloc,
    .free = device_free,
    .copy_from_host = copy_from_host,
    .copy_to_host = copy_to_host,
    .copy = copy,
    .fill = fill,
};
