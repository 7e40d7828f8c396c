/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The data of blocks in host memory.  That of large blocks are private mappings
 * of a file which has the poison, so that only the pages that are used take
 * memory and time: of most segments of 20 MiB a test uses a few.  They end
 * directly before a page that cannot be accessed, and begin less than two pages
 * behind one. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif
#include "block.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(begin, size) ((void)(begin), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(begin, size) ((void)(begin), (void)(size))
#endif

/* Blocks of these sizes are mapped, in parts of the file's size.  A process may
 * have 65,530 mappings. */
#define LEAST (UINT64_C(1) << 20)
#define MOST (UINT64_C(64) << 30)

static uint64_t part_of(uint64_t size)
{
    return size <= UINT64_C(64) << 20 ? 1 << 17 : 1 << 24;
}

uint64_t sim_data_bytes(uint64_t size)
{
    uint64_t all = size + sim_set.tail + SIM_CANARY;

    return (all + sim_set.alignment - 1) / sim_set.alignment *
           sim_set.alignment;
}

static uint64_t page_size(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static bool is_mapped(uint64_t size)
{
    return size >= LEAST && size <= MOST && sim_set.alignment <= page_size();
}

/* The accessible pages of a mapped block. */
static uint64_t mapped_bytes(uint64_t size)
{
    uint64_t page = page_size();

    return (sim_data_bytes(size) + page - 1) / page * page;
}

/* Returns a file of so many bytes with that value, or -1. */
static int poison_file(uint64_t size, int value)
{
    char bytes[1 << 12];
    int file = memfd_create("sim", MFD_CLOEXEC);
    bool written = file >= 0;

    memset(bytes, value, sizeof bytes);
    for (size_t i = 0; written && i < size / sizeof bytes; i++)
        written = write(file, bytes, sizeof bytes) == sizeof bytes;
    if (written || file < 0)
        return file;
    close(file);
    return -1;
}

static bool map_parts(int file, char *begin, uint64_t size)
{
    const uint64_t part = part_of(size);

    for (uint64_t at = 0; at < size; at += part)
        if (mmap(begin + at, size - at < part ? size - at : part,
                 PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file,
                 0) == MAP_FAILED)
            return false;
    return true;
}

/* The process may have no descriptors or mappings left. */
static bool map_and_fill(char *begin, uint64_t size, int value)
{
    if (mmap(begin, size, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
        return false;
    memset(begin, value, size);
    return true;
}

static bool map_poison(char *begin, uint64_t size, int value)
{
    int file = poison_file(part_of(size), value);
    bool mapped = file >= 0 && map_parts(file, begin, size);

    if (file >= 0)
        close(file);
    return mapped || map_and_fill(begin, size, value);
}

/* The bytes before the data. */
static uint64_t unused_bytes(uint64_t size)
{
    return mapped_bytes(size) - sim_data_bytes(size);
}

static char *map_data(uint64_t size)
{
    uint64_t page = page_size(), bytes = mapped_bytes(size);
    char *all = mmap(NULL, bytes + 2 * page, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (all == MAP_FAILED)
        return NULL;
    if (map_poison(all + page, bytes, SIM_POISON)) {
        ASAN_POISON_MEMORY_REGION(all + page, unused_bytes(size));
        return all + page + unused_bytes(size);
    }
    munmap(all, bytes + 2 * page);
    return NULL;
}

char *sim_data_create(uint64_t size)
{
    char *data;

    if (is_mapped(size))
        return map_data(size);
    data = aligned_alloc(sim_set.alignment, sim_data_bytes(size));
    if (data)
        memset(data, SIM_POISON, sim_data_bytes(size));
    return data;
}

#ifdef __SANITIZE_THREAD__

/* Sets which of `count` pages from begin on something has accessed, perhaps also
 * others; false if that cannot be known. */
static bool find_accessed(const char *begin, size_t count, uint64_t *entries)
{
    const size_t bytes = count * sizeof *entries;
    int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    off_t at = (off_t)((uintptr_t)begin / page_size() * sizeof *entries);
    bool known = file >= 0 && pread(file, entries, bytes, at) == (ssize_t)bytes;

    if (file >= 0)
        close(file);
    return known;
}

/* The thread sanitizer detects races of earlier and later accesses with the bytes
 * that are written here.  Pages that nothing has accessed may only be accessed
 * later, which is a crash. */
static bool poison_pages(char *begin, uint64_t size)
{
    const uint64_t page = page_size(), in_memory = UINT64_C(3) << 62;
    const size_t count = size / page;
    uint64_t *entries = malloc(count * sizeof *entries);
    bool known = entries && find_accessed(begin, count, entries);

    for (size_t i = 0, end; known && i < count; i = end) {
        bool accessed = (entries[i] & in_memory) != 0;

        for (end = i + 1; end < count; end++)
            if (((entries[end] & in_memory) != 0) != accessed)
                break;
        if (accessed)
            memset(begin + i * page, SIM_POISON_FREED, (end - i) * page);
        else
            mprotect(begin + i * page, (end - i) * page, PROT_NONE);
    }
    free(entries);
    return known;
}

#else

static bool poison_pages(char *begin, uint64_t size)
{
    return map_poison(begin, size, SIM_POISON_FREED);
}

#endif

void sim_data_poison_freed(char *data, uint64_t size)
{
    char *begin;
    bool mapped;

    if (!is_mapped(size)) {
        memset(data, SIM_POISON_FREED, size);
        return;
    }
    begin = data - unused_bytes(size);
    ASAN_UNPOISON_MEMORY_REGION(begin, unused_bytes(size));
    mapped = poison_pages(begin, mapped_bytes(size));
    ASAN_POISON_MEMORY_REGION(begin, unused_bytes(size));
    if (!mapped)
        memset(data, SIM_POISON_FREED, size);
}

void sim_data_free(char *data, uint64_t size)
{
    char *begin;

    if (!data || !is_mapped(size)) {
        free(data);
        return;
    }
    begin = data - unused_bytes(size);
    ASAN_UNPOISON_MEMORY_REGION(begin, unused_bytes(size));
    munmap(begin - page_size(), mapped_bytes(size) + 2 * page_size());
}
