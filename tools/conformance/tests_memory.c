/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: allocation, copies and fills on the plugin's own table. */

#include "process_state.h"
#include "plugin_tables.h"
#include "leak_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 48, BYTES = 4096, GUARD = 64 };

static void pattern(const suite *self, const char *purpose, uint64_t index,
                    unsigned char *to, size_t size)
{
    for (size_t i = 0; i < size; i++)
        to[i] = (unsigned char)suite_random(self, purpose, index * 100003 + i);
}

static void sizes_and_alignment(suite *self, outcome *out, const test *one)
{
    static const uint64_t sizes[] = {1,
                                     2,
                                     3,
                                     7,
                                     8,
                                     63,
                                     64,
                                     65,
                                     511,
                                     512,
                                     513,
                                     4095,
                                     4096,
                                     4097,
                                     65537,
                                     1 << 20,
                                     (2 << 20) + 1,
                                     (40 << 20) + 1,
                                     130 << 20};
    plugin_tables *plugin = plugin_tables_open(self, out);

    uint64_t most = 3 << 20; /* or a part of the device's memory */

    (void)one;
    if (plugin && plugin->properties.total_memory / 16 > most)
        most = plugin->properties.total_memory / 16;
    if (plugin && plugin->properties.largest_allocation > 0 &&
        plugin->properties.largest_allocation < most)
        most = plugin->properties.largest_allocation;
    for (size_t i = 0; plugin && i < sizeof sizes / sizeof *sizes; i++) {
        plugin_block block;
        uint64_t address;

        if (sizes[i] > most)
            break;
        if (!plugin_alloc(plugin, out, sizes[i], &block))
            return;
        address =
            (uint64_t)(uintptr_t)block.memory.handle + block.memory.offset;
        if (!(plugin->properties.flags & CORE_DEVICE_FLAT))
            address = block.memory.offset;
        expect(out, address % plugin->properties.base_alignment == 0,
               "%llu bytes at %#llx are not aligned to %llu",
               (unsigned long long)sizes[i], (unsigned long long)address,
               (unsigned long long)plugin->properties.base_alignment);
        plugin_free(plugin, &block);
    }
}

static void blocks_do_not_overlap(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);
    plugin_block blocks[BLOCKS] = {{{0}, 0}};
    unsigned char wrote[BYTES], got[BYTES];

    (void)one;
    for (uint32_t i = 0; plugin && i < BLOCKS; i++) {
        pattern(self, "apart", i, wrote, sizeof wrote);
        if (!plugin_alloc(plugin, out, 1 + i * 83, &blocks[i]) ||
            !plugin_write(plugin, out, blocks[i].memory, wrote,
                          blocks[i].size < BYTES ? blocks[i].size : BYTES))
            goto done;
    }
    for (uint32_t i = 0; plugin && i < BLOCKS; i++) {
        uint64_t size = blocks[i].size < BYTES ? blocks[i].size : BYTES;

        pattern(self, "apart", i, wrote, sizeof wrote);
        if (!plugin_read(plugin, out, got, blocks[i].memory, size))
            goto done;
        expect(out, memcmp(got, wrote, size) == 0,
               "block %u of %u does not keep its data", i, BLOCKS);
    }
done:
    for (uint32_t i = 0; plugin && i < BLOCKS; i++)
        plugin_free(plugin, &blocks[i]);
}

/* All sizes and offsets that a copy engine may treat differently. */
static void copies_odd_sizes(suite *self, outcome *out, const test *one)
{
    static const uint32_t sizes[] = {1,  2,  3,  4,  5,  7,  8,   9,   15,  16,
                                     17, 31, 33, 63, 64, 65, 127, 255, 1000};
    plugin_tables *plugin = plugin_tables_open(self, out);
    plugin_block a = {{0}, 0}, b = {{0}, 0};
    unsigned char zero[2048] = {0}, data[2048], got[2048];

    (void)one;
    if (!plugin || !plugin_alloc(plugin, out, sizeof data, &a) ||
        !plugin_alloc(plugin, out, sizeof data, &b))
        goto done;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint32_t size = sizes[i], from = (i * 7) % 13, to = 64 + (i * 5) % 11;

        pattern(self, "copies", i, data, sizeof data);
        if (!plugin_write(plugin, out, b.memory, zero, sizeof zero) ||
            !plugin_write(plugin, out, plugin_block_at(&a, from), data, size) ||
            !expect_plugin_ok(
                out,
                plugin->memory.copy(plugin->device, plugin->stream,
                                    plugin_block_at(&b, to),
                                    plugin_block_at(&a, from), size),
                "copy") ||
            !plugin_read(plugin, out, got, b.memory, sizeof got))
            goto done;
        expect(out, memcmp(got + to, data, size) == 0,
               "a copy of %u bytes from offset %u to %u is wrong", size, from,
               to);
        expect(out,
               memcmp(got, zero, to) == 0 &&
                   memcmp(got + to + size, zero, sizeof got - to - size) == 0,
               "a copy of %u bytes to offset %u writes outside them", size, to);
    }
done:
    if (plugin) {
        plugin_free(plugin, &a);
        plugin_free(plugin, &b);
    }
}

/* More than one command may copy, from and to unaligned addresses. */
static bool copy_many(plugin_tables *plugin, uint64_t size, outcome *out)
{
    enum { FROM = 5, TO = 11, BUFFER_SIZE = 64 };
    unsigned char *data = malloc(size), *got = calloc(1, size + BUFFER_SIZE);
    plugin_block a = {{0}, 0}, b = {{0}, 0};
    bool good = false;

    for (uint64_t i = 0; data && i < size; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 13 | 1);
    if (!data || !got)
        harness_error(out, "no memory");
    else if (plugin_alloc(plugin, out, size + BUFFER_SIZE, &a) &&
             plugin_alloc(plugin, out, size + BUFFER_SIZE, &b) &&
             plugin_write(plugin, out, b.memory, got, size + BUFFER_SIZE) &&
             plugin_write(plugin, out, plugin_block_at(&a, FROM), data, size) &&
             expect_plugin_ok(
                 out,
                 plugin->memory.copy(plugin->device, plugin->stream,
                                     plugin_block_at(&b, TO),
                                     plugin_block_at(&a, FROM), size),
                 "copy") &&
             plugin_read(plugin, out, got, b.memory, size + BUFFER_SIZE))
        good =
            expect(
                out, memcmp(got + TO, data, size) == 0,
                "%llu bytes differ after a copy to the device, on it and back",
                (unsigned long long)size) &&
            expect(out,
                   got[TO - 1] == 0 && got[TO + size] == 0 &&
                       got[TO + size + 1] == 0,
                   "a copy of %llu bytes writes outside them",
                   (unsigned long long)size);
    plugin_free(plugin, &a);
    plugin_free(plugin, &b);
    free(got);
    free(data);
    return good;
}

static void large_copies(suite *self, outcome *out, const test *one)
{
    static const uint64_t sizes[] = {4097, 65537, (1 << 20) + 3, (9 << 20) + 1};
    plugin_tables *plugin = plugin_tables_open(self, out);

    (void)one;
    for (size_t i = 0; plugin && i < sizeof sizes / sizeof *sizes; i++)
        if (!copy_many(plugin, sizes[i], out))
            return;
}

static bool fill_once(plugin_tables *plugin, const plugin_block *block,
                      uint32_t at, uint32_t width, outcome *out)
{
    static const uint64_t value = 0x8877665544332211;
    unsigned char got[BYTES], poison[BYTES];
    uint32_t size = width * 37;

    memset(poison, 0xdb, sizeof poison);
    if (!plugin_write(plugin, out, block->memory, poison, BYTES) ||
        !expect_plugin_ok(out,
                          plugin->memory.fill(plugin->device, plugin->stream,
                                              plugin_block_at(block, at), size,
                                              value, width),
                          "fill") ||
        !plugin_read(plugin, out, got, block->memory, BYTES))
        return false;
    for (uint32_t i = 0; i < size; i++)
        if (!expect(out, got[at + i] == (unsigned char)(value >> i % width * 8),
                    "a fill of %u-byte patterns from offset %u on: byte %u is "
                    "%#x",
                    width, at, i, got[at + i]))
            return false;
    return expect(out,
                  memcmp(got, poison, at) == 0 &&
                      memcmp(got + at + size, poison, BYTES - at - size) == 0,
                  "a fill of %u bytes from offset %u on writes outside them",
                  size, at);
}

static void fills(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);
    plugin_block block = {{0}, 0};

    (void)one;
    if (!plugin || !plugin_alloc(plugin, out, BYTES, &block))
        return;
    /* From each multiple of the pattern's size on. */
    for (uint32_t width = 1; width <= 8; width *= 2)
        for (uint32_t at = GUARD; at < GUARD + 16; at += width)
            if (!fill_once(plugin, &block, at, width, out))
                goto done;
done:
    plugin_free(plugin, &block);
}

static void oversized_allocation_fails(suite *self, outcome *out,
                                       const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);
    core_memory memory = {0};
    plugin_block block;

    (void)one;
    if (!plugin)
        return;
    plugin_last_error()->count = 0;
    expect_plugin_error(
        out, plugin->memory.alloc(plugin->device, UINT64_C(1) << 60, &memory),
        CORE_ERROR_OUT_OF_MEMORY, "allocating 2^60 bytes");
    if (plugin_alloc(plugin, out, 4096, &block))
        plugin_free(plugin, &block);
}

static void free_and_total(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);
    uint64_t left = 0, total = 0;

    (void)one;
    if (plugin && !plugin->memory.info) {
        not_supported(out, "it does not report its memory");
        return;
    }
    if (!plugin || !expect_plugin_ok(
                       out, plugin->memory.info(plugin->device, &left, &total),
                       "memory info"))
        return;
    expect(out, total > 0 && left <= total,
           "it reports %llu of %llu bytes as free", (unsigned long long)left,
           (unsigned long long)total);
}

enum { BLOCK = 65536 };

static bool use_blocks(plugin_tables *plugin, int rounds, outcome *out)
{
    unsigned char data[256] = {0};

    for (int i = 0; i < rounds; i++) {
        plugin_block block;

        if (!plugin_alloc(plugin, out, BLOCK + (uint64_t)i % 7 * 512, &block) ||
            !plugin_write(plugin, out, block.memory, data, sizeof data) ||
            !expect_plugin_ok(out,
                              plugin->memory.copy(plugin->device,
                                                  plugin->stream,
                                                  plugin_block_at(&block, 4096),
                                                  block.memory, sizeof data),
                              "copy") ||
            !plugin_read(plugin, out, data, block.memory, sizeof data))
            return false;
        plugin_free(plugin, &block);
    }
    return true;
}

/* Allocates blocks of many sizes again and again: neither the device's memory
 * nor the host's heap may grow each time.  They are large enough to fill any
 * cache of freed memory. */
static void no_leaks(suite *self, outcome *out, const test *one)
{
    enum { ROUNDS = 1000, TIMES = 5, FEWER = ROUNDS / 5 };
    plugin_tables *plugin = plugin_tables_open(self, out);
    bool heap_grows = true;
    uint32_t open = process_descriptors(), open_after, map_rests = 0;
    leak_check device = {0};

    (void)one;
    if (!plugin)
        return;
    for (int i = 0;; i++) {
        bool of_host =
            (heap_grows || map_rests < PROCESS_MAP_ROUNDS) && i < TIMES;
        uint64_t heap = process_heap(), mapped = process_mapped();
        /* Later only to see whether other processes took the memory. */
        int rounds = of_host ? ROUNDS : FEWER;

        if (!of_host && !leak_check_undecided(&device))
            break;

        leak_check_begin(&device, plugin);
        if (!use_blocks(plugin, rounds, out))
            return;
        if (of_host) {
            heap_grows = heap_grows && !process_heap_below(heap + ROUNDS * 8);
            map_rests +=
                process_mapped_below(mapped + ROUNDS * PROCESS_MAP_BYTES);
        }
        leak_check_end(&device, plugin, (uint64_t)rounds * BLOCK / 4);
    }
    open_after = process_descriptors();
    expect(out, open_after < open + 100,
           "allocations and copies leak descriptors: %u before, %u after", open,
           open_after);
    expect(out, !heap_grows,
           "every %d allocations and copies leak on the host's heap", ROUNDS);
    expect(out, map_rests >= PROCESS_MAP_ROUNDS,
           "every %d allocations and copies leak mappings (mmap)", ROUNDS);
    expect(out, device.recovered,
           "every %d allocations and frees reduce the device's free memory",
           ROUNDS);
}

/* Copies must preserve bits: no arithmetic on the data. */
static void copies_preserve_bits(suite *self, outcome *out, const test *one)
{
    static const uint64_t bits[] = {0x7ff0000000000001, 0xfff8dead0000beef,
                                    0x8000000000000000, 1,
                                    0x7f8000017fc0dead, 0x80000000ffffffff,
                                    0x7c01fe017f81ff81, 0x7ff0000000000000};
    plugin_tables *plugin = plugin_tables_open(self, out);
    plugin_block a = {{0}, 0}, b = {{0}, 0};
    uint64_t got[8] = {0};

    (void)one;
    if (plugin && plugin_alloc(plugin, out, sizeof bits, &a) &&
        plugin_alloc(plugin, out, sizeof bits, &b) &&
        plugin_write(plugin, out, a.memory, bits, sizeof bits) &&
        expect_plugin_ok(out,
                         plugin->memory.copy(plugin->device, plugin->stream,
                                             b.memory, a.memory, sizeof bits),
                         "copy") &&
        plugin_read(plugin, out, got, b.memory, sizeof got))
        for (int i = 0; i < 8; i++)
            if (!expect(out, got[i] == bits[i],
                        "to the device, on it, and back: the 8 bytes 0x%llx "
                        "became 0x%llx; copies move bytes, not numbers, and "
                        "keep NaN payloads and signs of zero",
                        (unsigned long long)bits[i],
                        (unsigned long long)got[i]))
                break;
    if (plugin) {
        plugin_free(plugin, &a);
        plugin_free(plugin, &b);
    }
}

/* The host writes, the device copies, and the host reads the copy. */
static void host_sees(plugin_tables *plugin, outcome *out)
{
    enum { SIZE = 4096 };
    plugin_block a = {{0}, 0}, b = {{0}, 0};
    unsigned char *from, *to;

    if (plugin_alloc(plugin, out, SIZE, &a) &&
        plugin_alloc(plugin, out, SIZE, &b)) {
        from = (unsigned char *)a.memory.handle + a.memory.offset;
        to = (unsigned char *)b.memory.handle + b.memory.offset;
        for (int i = 0; i < SIZE; i++)
            from[i] = (unsigned char)(i * 7);
        memset(to, 0, SIZE);
        if (expect_plugin_ok(out,
                             plugin->memory.copy(plugin->device, plugin->stream,
                                                 b.memory, a.memory, SIZE),
                             "copy") &&
            plugin_wait(plugin, out))
            expect(out, memcmp(from, to, SIZE) == 0,
                   "the host and the device see different data in memory of "
                   "the host");
    }
    plugin_free(plugin, &a);
    plugin_free(plugin, &b);
}

/* Claims about memory kinds that no interface proves. */
static void kinds_are_correct(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);
    uint64_t host =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    (void)one;
    if (!plugin)
        return;
    if (plugin->properties.flags & CORE_DEVICE_UNIFIED)
        expect(out, plugin->properties.total_memory <= host,
               "%llu bytes are reported as host memory, and the host has %llu",
               (unsigned long long)plugin->properties.total_memory,
               (unsigned long long)host);
    if (plugin->properties.flags & CORE_DEVICE_HOST_ACCESS)
        host_sees(plugin, out);
}

bool suite_add_memory(suite *self)
{
    static const listed tests[] = {
        {"core/memory/sizes-and-alignment", sizes_and_alignment, false},
        {"core/memory/blocks-do-not-overlap", blocks_do_not_overlap, false},
        {"core/memory/copies-of-odd-sizes", copies_odd_sizes, false},
        {"core/memory/large-copies", large_copies, false},
        {"core/memory/fills", fills, true},
        {"core/memory/oversized-allocation-fails", oversized_allocation_fails,
         false},
        {"core/memory/free-and-total", free_and_total, true},
        {"core/memory/copies-preserve-bits", copies_preserve_bits, false},
        {"core/memory/no-leaks", no_leaks, false},
        {"core/memory/kinds-are-correct", kinds_are_correct, false},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
