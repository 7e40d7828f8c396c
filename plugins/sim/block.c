/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Names of blocks: handles a few bytes apart, or addresses.  Both are in an
 * inaccessible range; a name is reused only after all others were used. */

#include "block.h"

#include <stdlib.h>
#include <sys/mman.h>

static uint64_t pages_of(uint64_t size)
{
    uint64_t pages = (size + sim_set.tail + SIM_PAGE - 1) / SIM_PAGE;

    return pages ? pages : 1;
}

static char *addresses(uint64_t bytes)
{
    return mmap(NULL, bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

/* Flat: reserves as many addresses as possible.  If the address space is
 * limited, reserves an eighth of the limit, since the process itself needs
 * some. */
static void open_handles(sim_memory *of)
{
    uint64_t bytes = SIM_FLAT_BYTES;

    if (!sim_set.flat)
        bytes = (uint64_t)SIM_BLOCKS * SIM_SPACING;
    of->handles = addresses(bytes);
    while (of->handles == MAP_FAILED && bytes > SIM_FLAT_LEAST) {
        bytes /= 2;
        of->handles = addresses(bytes);
    }
    if (of->handles != MAP_FAILED && bytes < SIM_FLAT_BYTES && sim_set.flat) {
        munmap(of->handles + bytes / 8, bytes - bytes / 8);
        bytes /= 8;
    }
    of->handle_bytes = bytes;
}

static sim_block *block_of(const sim_memory *of, uint32_t name)
{
    return &of->chunks[(name - 1) / SIM_CHUNK][(name - 1) % SIM_CHUNK];
}

/* A block whose name was never used; NULL without host memory. */
static sim_block *fresh(sim_memory *of)
{
    sim_block **chunk = &of->chunks[of->used / SIM_CHUNK];
    sim_block *block;

    if (!*chunk)
        *chunk = calloc(SIM_CHUNK, sizeof **chunk);
    if (!*chunk)
        return NULL;
    block = &(*chunk)[of->used % SIM_CHUNK];
    block->name = ++of->used;
    return block;
}

static void free_kept_data(sim_block *block)
{
    if (block->retained)
        block->data = block->retained;
    if (block->data)
        sim_block_free_data(block);
}

static void drop(sim_memory *of)
{
    for (uint32_t name = 1; name <= of->used; name++)
        free_kept_data(block_of(of, name));
    sim_pinned_free(of->pinned);
    for (uint32_t i = 0; of->chunks && i < SIM_BLOCKS / SIM_CHUNK; i++)
        free(of->chunks[i]);
    if (of->handles != MAP_FAILED)
        munmap(of->handles, of->handle_bytes);
    free(of->pages);
    free(of->chunks);
    free(of);
}

void sim_memory_close(sim_device *device)
{
    if (device->memory)
        drop(device->memory);
    device->memory = NULL;
}

core_status sim_memory_open(sim_device *device)
{
    sim_memory *of = calloc(1, sizeof *of);

    if (of) {
        open_handles(of);
        of->chunks = calloc(SIM_BLOCKS / SIM_CHUNK, sizeof *of->chunks);
        of->pages = calloc(sim_set.flat ? of->handle_bytes / SIM_PAGE : 1,
                           sizeof *of->pages);
        if (of->chunks && of->pages && of->handles != MAP_FAILED) {
            sim_memory_close(device);
            device->memory = of;
            return CORE_OK;
        }
        drop(of);
    }
    return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                          "no address space for the names of blocks");
}

/* ----------------------------------------------------------- addresses -- */

/* Finds `count` consecutive free pages, continuing where the last search ended;
 * false if there are none. */
static bool take_pages(sim_memory *of, uint64_t count, uint64_t *out_page)
{
    uint64_t limit = of->handle_bytes / SIM_PAGE;
    uint64_t page = of->next_page, searched = 0, run = 0;

    while (searched < limit + count) {
        if (page + (count - run) > limit) {
            searched += limit - page;
            page = run = 0;
            continue;
        }
        if (of->pages[page]) {
            const sim_block *in = block_of(of, of->pages[page]);
            uint64_t behind = in->address / SIM_PAGE + pages_of(in->size);

            searched += behind - page;
            page = behind;
            run = 0;
            continue;
        }
        page++;
        searched++;
        if (++run == count) {
            *out_page = page - count;
            of->next_page = page;
            return true;
        }
    }
    return false;
}

static void set_pages(sim_memory *of, const sim_block *block, uint32_t value)
{
    uint64_t first = block->address / SIM_PAGE;

    for (uint64_t i = 0; i < pages_of(block->size); i++)
        of->pages[first + i] = value;
}

/* ---------------------------------------------------------------- blocks -- */

/* A freed block keeps its pages, so that later uses of it are detected, until
 * the pages are needed.  Takes those of the block that was freed first; false
 * if no freed block has any. */
static bool drop_oldest_pages(sim_memory *of)
{
    sim_block *oldest = NULL;

    for (uint32_t name = of->first_free; name; name = oldest->next_free) {
        oldest = block_of(of, name);
        if (!oldest->fenced)
            continue;
        set_pages(of, oldest, 0);
        oldest->fenced = false;
        return true;
    }
    return false;
}

static sim_block *reuse(sim_memory *of)
{
    sim_block *block = block_of(of, of->first_free);

    if (sim_set.flat && block->fenced)
        set_pages(of, block, 0);
    of->first_free = block->next_free;
    if (!of->first_free)
        of->last_free = 0;
    return block;
}

/* Appends to the list of free names. */
static void set_free(sim_memory *of, sim_block *block)
{
    block->next_free = 0;
    if (of->last_free)
        block_of(of, of->last_free)->next_free = block->name;
    else
        of->first_free = block->name;
    of->last_free = block->name;
}

/* A block with a new name, or the least recently freed one: the names of
 * recently freed blocks are kept, so that uses after free are detected. */
static sim_block *unnamed(sim_memory *of)
{
    if (of->first_free && (!block_of(of, of->first_free)->fenced ||
                           of->used - of->live > SIM_KEPT))
        return reuse(of);
    if (of->used < SIM_BLOCKS)
        return fresh(of);
    return of->first_free ? reuse(of) : NULL;
}

sim_block *sim_block_create(sim_device *device, uint64_t size, char *data,
                            core_memory *out_memory)
{
    sim_memory *of = device->memory;
    sim_block *block;
    uint64_t page = 0;
    uint32_t name;

    while (sim_set.flat && !take_pages(of, pages_of(size), &page))
        if (!drop_oldest_pages(of))
            return NULL;
    block = unnamed(of);
    if (!block)
        return NULL;
    name = block->name;
    memset(block, 0, sizeof *block);
    block->name = name;
    block->data = data;
    block->size = size;
    block->serial = ++of->created;
    block->address = page * SIM_PAGE;
    if (sim_set.flat)
        set_pages(of, block, name);
    of->live++;
    out_memory->handle =
        of->handles +
        (sim_set.flat ? block->address : (uint64_t)(name - 1) * SIM_SPACING);
    out_memory->offset = 0;
    return block;
}

void sim_block_destroy(sim_device *device, sim_block *block)
{
    sim_memory *of = device->memory;

    block->data = NULL;
    block->fenced = true;
    set_free(of, block);
    of->live--;
}

sim_block *sim_block_find(sim_device *device, core_memory memory,
                          uint64_t *out_offset)
{
    sim_memory *of = device->memory;
    uint64_t distance = (uint64_t)((char *)memory.handle - of->handles);
    sim_block *block;
    uint32_t index;

    *out_offset = memory.offset;
    if ((char *)memory.handle < of->handles || distance >= of->handle_bytes)
        return NULL;
    if (!sim_set.flat) {
        index = (uint32_t)(distance / SIM_SPACING);
        return index < of->used && distance % SIM_SPACING == 0
                   ? block_of(of, index + 1)
                   : NULL;
    }
    distance += memory.offset;
    if (distance >= of->handle_bytes || !of->pages[distance / SIM_PAGE])
        return NULL;
    block = block_of(of, of->pages[distance / SIM_PAGE]);
    *out_offset = distance - block->address;
    return block;
}

static bool is_mapped(const sim_block *block, uint64_t offset, uint64_t size)
{
    uint64_t granule = sim_granule();

    for (uint64_t i = offset / granule; i <= (offset + size - 1) / granule; i++)
        if (!block->mapped[i])
            return false;
    return true;
}

void sim_block_check(const sim_device *device, const sim_block *block,
                     core_memory memory, uint64_t offset, uint64_t size,
                     char *text, size_t capacity)
{
    const char *what = NULL;

    text[0] = '\0';
    if (!block) {
        snprintf(
            text, capacity, "access to %p + %llu, which is not memory of %s",
            memory.handle, (unsigned long long)memory.offset, device->name);
        return;
    }
    if (!block->data)
        what = "which was freed";
    else if (offset > block->size || size > block->size - offset)
        what = "which ends before";
    else if (block->mapped && size > 0 && !is_mapped(block, offset, size))
        what = "which has no memory mapped there";
    if (what)
        snprintf(
            text, capacity,
            "access to bytes [%llu, %llu) of block %llu of %s (%llu bytes), %s",
            (unsigned long long)offset, (unsigned long long)(offset + size),
            (unsigned long long)block->serial, device->name,
            (unsigned long long)block->size, what);
}
