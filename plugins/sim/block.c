/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Names of blocks: handles a few bytes apart, or addresses.  Both lie in a
 * range that nobody can read, and none is given anew before all others
 * were. */

#include "block.h"

#include <stdlib.h>
#include <sys/mman.h>

static uint64_t pages_of(uint64_t size)
{
    uint64_t pages = (size + sim_set.tail + SIM_PAGE - 1) / SIM_PAGE;

    return pages ? pages : 1;
}

/* As many addresses as there are to be had. */
static void open_handles(sim_memory *of)
{
    of->handle_bytes =
        sim_set.flat ? SIM_FLAT_BYTES : (uint64_t)SIM_BLOCKS * SIM_SPACING;
    for (;;) {
        of->handles = mmap(NULL, of->handle_bytes, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (of->handles != MAP_FAILED || !sim_set.flat ||
            of->handle_bytes <= sim_set.bytes)
            return;
        of->handle_bytes /= 2;
    }
}

core_status sim_memory_open(sim_device *device)
{
    sim_memory *of = calloc(1, sizeof *of);

    if (of) {
        open_handles(of);
        of->blocks = calloc(SIM_BLOCKS, sizeof *of->blocks);
        of->pages = calloc(sim_set.flat ? of->handle_bytes / SIM_PAGE : 1,
                           sizeof *of->pages);
        device->memory = of;
        if (of->blocks && of->pages && of->handles != MAP_FAILED)
            return CORE_OK;
        sim_memory_close(device);
    }
    return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                          "no address space for the names of blocks");
}

void sim_memory_close(sim_device *device)
{
    sim_memory *of = device->memory;

    for (uint32_t i = 0; i < of->used; i++)
        if (of->blocks[i].data)
            sim_block_free_data(&of->blocks[i]);
    if (of->handles != MAP_FAILED)
        munmap(of->handles, of->handle_bytes);
    free(of->pages);
    free(of->blocks);
    free(of);
    device->memory = NULL;
}

/* -------------------------------------------------------------- addresses -- */

/* So many free pages in a row, the search going on where the last ended; false
 * if there are none. */
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
            const sim_block *in = &of->blocks[of->pages[page] - 1];
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

/* A freed block keeps its pages, so that who uses it is recognised, until they
 * are wanted. */
static void forget_oldest(sim_memory *of)
{
    sim_block *oldest = &of->blocks[of->first_free - 1];

    if (oldest->fenced)
        set_pages(of, oldest, 0);
    oldest->fenced = false;
}

/* ---------------------------------------------------------------- blocks -- */

static sim_block *reuse(sim_memory *of)
{
    sim_block *block = &of->blocks[of->first_free - 1];

    if (sim_set.flat)
        forget_oldest(of);
    of->first_free = block->next_free;
    if (!of->first_free)
        of->last_free = 0;
    return block;
}

sim_block *sim_block_make(sim_device *device, uint64_t size, char *data,
                          core_memory *out_memory)
{
    sim_memory *of = device->memory;
    sim_block *block = NULL;
    uint64_t page = 0;
    uint32_t index;

    if (of->used < SIM_BLOCKS)
        block = &of->blocks[of->used];
    else if (of->first_free)
        block = reuse(of);
    if (!block)
        return NULL;
    while (sim_set.flat && !take_pages(of, pages_of(size), &page)) {
        if (!of->first_free)
            return NULL;
        block = reuse(of);
    }
    index = (uint32_t)(block - of->blocks);
    if (index == of->used)
        of->used++;
    memset(block, 0, sizeof *block);
    block->data = data;
    block->size = size;
    block->serial = ++of->made;
    block->address = page * SIM_PAGE;
    if (sim_set.flat)
        set_pages(of, block, index + 1);
    of->live++;
    out_memory->handle =
        of->handles +
        (sim_set.flat ? block->address : (uint64_t)index * SIM_SPACING);
    out_memory->offset = 0;
    return block;
}

void sim_block_unmake(sim_device *device, sim_block *block)
{
    sim_memory *of = device->memory;
    uint32_t name = (uint32_t)(block - of->blocks) + 1;

    block->data = NULL;
    block->fenced = true;
    block->next_free = 0;
    if (of->last_free)
        of->blocks[of->last_free - 1].next_free = name;
    else
        of->first_free = name;
    of->last_free = name;
    of->live--;
}

sim_block *sim_block_find(sim_device *device, core_memory memory,
                          uint64_t *out_offset)
{
    sim_memory *of = device->memory;
    uint64_t distance = (uint64_t)((char *)memory.handle - of->handles);
    uint32_t index;

    *out_offset = memory.offset;
    if ((char *)memory.handle < of->handles || distance >= of->handle_bytes)
        return NULL;
    if (!sim_set.flat) {
        index = (uint32_t)(distance / SIM_SPACING);
        return index < of->used && distance % SIM_SPACING == 0
                   ? &of->blocks[index]
                   : NULL;
    }
    distance += memory.offset;
    if (distance >= of->handle_bytes || !of->pages[distance / SIM_PAGE])
        return NULL;
    index = of->pages[distance / SIM_PAGE] - 1;
    *out_offset = distance - of->blocks[index].address;
    return &of->blocks[index];
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
                     char *text, size_t room)
{
    const char *what = NULL;

    text[0] = '\0';
    if (!block) {
        snprintf(text, room, "it touches %p + %llu, which is no memory of %s",
                 memory.handle, (unsigned long long)memory.offset,
                 device->name);
        return;
    }
    if (!block->data)
        what = "which was freed";
    else if (offset > block->size || size > block->size - offset)
        what = "which ends before";
    else if (block->mapped && size > 0 && !is_mapped(block, offset, size))
        what = "which has no memory mapped there";
    if (what)
        snprintf(text, room,
                 "it touches bytes [%llu, %llu) of block %llu of %s (%llu "
                 "bytes), %s",
                 (unsigned long long)offset,
                 (unsigned long long)(offset + size),
                 (unsigned long long)block->serial, device->name,
                 (unsigned long long)block->size, what);
}
