/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: allocation, copies and fills, on the plugin's own table. */

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
    static const uint64_t sizes[] = {
        1,   2,   3,    7,    8,    63,    64,      65,           511,
        512, 513, 4095, 4096, 4097, 65537, 1 << 20, (2 << 20) + 1};
    raw *plugin = raw_open(self, out);

    (void)one;
    for (size_t i = 0; plugin && i < sizeof sizes / sizeof *sizes; i++) {
        raw_block block;
        uint64_t address;

        if (!raw_alloc(plugin, out, sizes[i], &block))
            return;
        address =
            (uint64_t)(uintptr_t)block.memory.handle + block.memory.offset;
        if (!(plugin->properties.flags & CORE_DEVICE_FLAT))
            address = block.memory.offset;
        expect(out, address % plugin->properties.base_alignment == 0,
               "%llu bytes lie at %#llx, which is not aligned to %llu",
               (unsigned long long)sizes[i], (unsigned long long)address,
               (unsigned long long)plugin->properties.base_alignment);
        raw_free(plugin, &block);
    }
}

static void blocks_are_apart(suite *self, outcome *out, const test *one)
{
    raw *plugin = raw_open(self, out);
    raw_block blocks[BLOCKS] = {{{0}, 0}};
    unsigned char wrote[BYTES], got[BYTES];

    (void)one;
    for (uint32_t i = 0; plugin && i < BLOCKS; i++) {
        pattern(self, "apart", i, wrote, sizeof wrote);
        if (!raw_alloc(plugin, out, 1 + i * 83, &blocks[i]) ||
            !raw_write(plugin, out, blocks[i].memory, wrote,
                       blocks[i].size < BYTES ? blocks[i].size : BYTES))
            goto done;
    }
    for (uint32_t i = 0; plugin && i < BLOCKS; i++) {
        uint64_t size = blocks[i].size < BYTES ? blocks[i].size : BYTES;

        pattern(self, "apart", i, wrote, sizeof wrote);
        if (!raw_read(plugin, out, got, blocks[i].memory, size))
            goto done;
        expect(out, memcmp(got, wrote, size) == 0,
               "block %u of %u has not kept what was written to it", i, BLOCKS);
    }
done:
    for (uint32_t i = 0; plugin && i < BLOCKS; i++)
        raw_free(plugin, &blocks[i]);
}

/* Every size and offset that differs in what a copy engine may align. */
static void copies_odd_sizes(suite *self, outcome *out, const test *one)
{
    static const uint32_t sizes[] = {1,  2,  3,  4,  5,  7,  8,   9,   15,  16,
                                     17, 31, 33, 63, 64, 65, 127, 255, 1000};
    raw *plugin = raw_open(self, out);
    raw_block a = {{0}, 0}, b = {{0}, 0};
    unsigned char zero[2048] = {0}, data[2048], got[2048];

    (void)one;
    if (!plugin || !raw_alloc(plugin, out, sizeof data, &a) ||
        !raw_alloc(plugin, out, sizeof data, &b))
        goto done;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint32_t size = sizes[i], from = (i * 7) % 13, to = 64 + (i * 5) % 11;

        pattern(self, "copies", i, data, sizeof data);
        if (!raw_write(plugin, out, b.memory, zero, sizeof zero) ||
            !raw_write(plugin, out, raw_at(&a, from), data, size) ||
            !raw_ok(out,
                    plugin->memory.copy(plugin->device, plugin->stream,
                                        raw_at(&b, to), raw_at(&a, from), size),
                    "copy") ||
            !raw_read(plugin, out, got, b.memory, sizeof got))
            goto done;
        expect(out, memcmp(got + to, data, size) == 0,
               "a copy of %u bytes from offset %u to %u is wrong", size, from,
               to);
        expect(out,
               memcmp(got, zero, to) == 0 &&
                   memcmp(got + to + size, zero, sizeof got - to - size) == 0,
               "a copy of %u bytes to offset %u writes beyond them", size, to);
    }
done:
    if (plugin) {
        raw_free(plugin, &a);
        raw_free(plugin, &b);
    }
}

/* More than a command may take at once, from and to odd places. */
static bool copy_many(raw *plugin, uint64_t size, outcome *out)
{
    enum { FROM = 5, TO = 11, ROOM = 64 };
    unsigned char *data = malloc(size), *got = calloc(1, size + ROOM);
    raw_block a = {{0}, 0}, b = {{0}, 0};
    bool good = false;

    for (uint64_t i = 0; data && i < size; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 13 | 1);
    if (!data || !got)
        harness_error(out, "no memory");
    else if (raw_alloc(plugin, out, size + ROOM, &a) &&
             raw_alloc(plugin, out, size + ROOM, &b) &&
             raw_write(plugin, out, b.memory, got, size + ROOM) &&
             raw_write(plugin, out, raw_at(&a, FROM), data, size) &&
             raw_ok(out,
                    plugin->memory.copy(plugin->device, plugin->stream,
                                        raw_at(&b, TO), raw_at(&a, FROM), size),
                    "copy") &&
             raw_read(plugin, out, got, b.memory, size + ROOM))
        good = expect(out, memcmp(got + TO, data, size) == 0,
                      "%llu bytes were copied to the device, on it and back, "
                      "and are others",
                      (unsigned long long)size) &&
               expect(out,
                      got[TO - 1] == 0 && got[TO + size] == 0 &&
                          got[TO + size + 1] == 0,
                      "a copy of %llu bytes writes beside them",
                      (unsigned long long)size);
    raw_free(plugin, &a);
    raw_free(plugin, &b);
    free(got);
    free(data);
    return good;
}

static void many_bytes(suite *self, outcome *out, const test *one)
{
    static const uint64_t sizes[] = {4097, 65537, (1 << 20) + 3, (9 << 20) + 1};
    raw *plugin = raw_open(self, out);

    (void)one;
    for (size_t i = 0; plugin && i < sizeof sizes / sizeof *sizes; i++)
        if (!copy_many(plugin, sizes[i], out))
            return;
}

static void fills(suite *self, outcome *out, const test *one)
{
    static const uint64_t value = 0x8877665544332211;
    raw *plugin = raw_open(self, out);
    raw_block block = {{0}, 0};
    unsigned char got[BYTES], poison[BYTES];

    (void)one;
    memset(poison, 0xdb, sizeof poison);
    if (plugin && !plugin->memory.fill) {
        not_supported(out, "it has no fill: the core copies instead");
        return;
    }
    if (!plugin || !raw_alloc(plugin, out, BYTES, &block))
        return;
    for (uint32_t width = 1; width <= 8; width *= 2) {
        uint32_t size = width * 37;

        if (!raw_write(plugin, out, block.memory, poison, BYTES) ||
            !raw_ok(out,
                    plugin->memory.fill(plugin->device, plugin->stream,
                                        raw_at(&block, GUARD), size, value,
                                        width),
                    "fill") ||
            !raw_read(plugin, out, got, block.memory, BYTES))
            break;
        for (uint32_t i = 0; i < size; i++)
            if (!expect(out,
                        got[GUARD + i] ==
                            (unsigned char)(value >> i % width * 8),
                        "a fill of %u-byte patterns: byte %u is %#x", width, i,
                        got[GUARD + i]))
                break;
        expect(out,
               memcmp(got, poison, GUARD) == 0 &&
                   memcmp(got + GUARD + size, poison, BYTES - GUARD - size) ==
                       0,
               "a fill of %u bytes writes beyond them", size);
    }
    raw_free(plugin, &block);
}

static void too_much_is_refused(suite *self, outcome *out, const test *one)
{
    raw *plugin = raw_open(self, out);
    core_memory memory = {0};
    raw_block block;

    (void)one;
    if (!plugin)
        return;
    raw_last_error()->count = 0;
    raw_fails(out,
              plugin->memory.alloc(plugin->device, UINT64_C(1) << 60, &memory),
              CORE_ERROR_OUT_OF_MEMORY, "allocating 2^60 bytes");
    if (raw_alloc(plugin, out, 4096, &block))
        raw_free(plugin, &block);
}

static void numbers_make_sense(suite *self, outcome *out, const test *one)
{
    raw *plugin = raw_open(self, out);
    uint64_t left = 0, total = 0;

    (void)one;
    if (plugin && !plugin->memory.info) {
        not_supported(out, "it does not tell how much memory there is");
        return;
    }
    if (!plugin ||
        !raw_ok(out, plugin->memory.info(plugin->device, &left, &total),
                "memory info"))
        return;
    expect(out, total > 0 && left <= total,
           "%llu bytes of %llu are said to be free", (unsigned long long)left,
           (unsigned long long)total);
}

enum { BLOCK = 65536 };

static bool use_blocks(raw *plugin, int rounds, outcome *out)
{
    unsigned char data[256] = {0};

    for (int i = 0; i < rounds; i++) {
        raw_block block;

        if (!raw_alloc(plugin, out, BLOCK + (uint64_t)i % 7 * 512, &block) ||
            !raw_write(plugin, out, block.memory, data, sizeof data) ||
            !raw_ok(out,
                    plugin->memory.copy(plugin->device, plugin->stream,
                                        raw_at(&block, 4096), block.memory,
                                        sizeof data),
                    "copy") ||
            !raw_read(plugin, out, data, block.memory, sizeof data))
            return false;
        raw_free(plugin, &block);
    }
    return true;
}

/* Blocks of many sizes, again and again: neither the device's memory nor the
 * host's heap grows each time.  They are large enough to fill whatever a plugin
 * keeps of freed memory. */
static void nothing_leaks(suite *self, outcome *out, const test *one)
{
    enum { ROUNDS = 1000, TIMES = 5 };
    raw *plugin = raw_open(self, out);
    bool heap_grows = true;
    uint32_t open = manners_descriptors(), open_after, map_rests = 0;
    room device = {0};

    (void)one;
    if (!plugin)
        return;
    for (int i = 0; room_unsure(&device) ||
                    ((heap_grows || map_rests < MANNERS_RESTS) && i < TIMES);
         i++) {
        uint64_t heap = manners_heap(), mapped = manners_mapped();

        room_begin(&device, plugin);
        if (!use_blocks(plugin, ROUNDS, out))
            return;
        heap_grows = heap_grows && !manners_heap_below(heap + ROUNDS * 8);
        map_rests += manners_mapped_below(mapped + ROUNDS * MANNERS_MAP);
        room_end(&device, plugin, (uint64_t)ROUNDS * BLOCK / 4);
    }
    open_after = manners_descriptors();
    expect(out, open_after < open + 100,
           "allocations and copies leave descriptors open: %u were, %u are",
           open, open_after);
    expect(out, !heap_grows,
           "every %d allocations and copies leave more on the host's heap",
           ROUNDS);
    expect(out, map_rests >= MANNERS_RESTS,
           "every %d allocations and copies leave more mapped (mmap)", ROUNDS);
    expect(out, device.rests,
           "every %d allocations, freed again, leave less of the device's "
           "memory",
           ROUNDS);
}

/* Bytes come back as they went: no arithmetic is done on them. */
static void bits_survive(suite *self, outcome *out, const test *one)
{
    static const uint64_t bits[] = {0x7ff0000000000001, 0xfff8dead0000beef,
                                    0x8000000000000000, 1,
                                    0x7f8000017fc0dead, 0x80000000ffffffff,
                                    0x7c01fe017f81ff81, 0x7ff0000000000000};
    raw *plugin = raw_open(self, out);
    raw_block a = {{0}, 0}, b = {{0}, 0};
    uint64_t got[8] = {0};

    (void)one;
    if (plugin && raw_alloc(plugin, out, sizeof bits, &a) &&
        raw_alloc(plugin, out, sizeof bits, &b) &&
        raw_write(plugin, out, a.memory, bits, sizeof bits) &&
        raw_ok(out,
               plugin->memory.copy(plugin->device, plugin->stream, b.memory,
                                   a.memory, sizeof bits),
               "copy") &&
        raw_read(plugin, out, got, b.memory, sizeof got))
        expect(out, memcmp(got, bits, sizeof bits) == 0,
               "payloads of NaN or signs of zero are lost in a copy");
    if (plugin) {
        raw_free(plugin, &a);
        raw_free(plugin, &b);
    }
}

/* The host writes, the device copies, and the host reads it at another place. */
static void host_sees(raw *plugin, outcome *out)
{
    enum { SIZE = 4096 };
    raw_block a = {{0}, 0}, b = {{0}, 0};
    unsigned char *from, *to;

    if (raw_alloc(plugin, out, SIZE, &a) && raw_alloc(plugin, out, SIZE, &b)) {
        from = (unsigned char *)a.memory.handle + a.memory.offset;
        to = (unsigned char *)b.memory.handle + b.memory.offset;
        for (int i = 0; i < SIZE; i++)
            from[i] = (unsigned char)(i * 7);
        memset(to, 0, SIZE);
        if (raw_ok(out,
                   plugin->memory.copy(plugin->device, plugin->stream, b.memory,
                                       a.memory, SIZE),
                   "copy") &&
            raw_wait(plugin, out))
            expect(out, memcmp(from, to, SIZE) == 0,
                   "the host does not see in memory what the device has there");
    }
    raw_free(plugin, &a);
    raw_free(plugin, &b);
}

/* What it says of its memory besides what its interfaces prove. */
static void kinds_are_true(suite *self, outcome *out, const test *one)
{
    raw *plugin = raw_open(self, out);
    uint64_t host =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

    (void)one;
    if (!plugin)
        return;
    if (plugin->properties.flags & CORE_DEVICE_UNIFIED)
        expect(out, plugin->properties.total_memory <= host,
               "%llu bytes are to be memory of the host, which has %llu",
               (unsigned long long)plugin->properties.total_memory,
               (unsigned long long)host);
    if (plugin->properties.flags & CORE_DEVICE_HOST_ACCESS)
        host_sees(plugin, out);
}

bool suite_add_memory(suite *self)
{
    static const listed tests[] = {
        {"core/memory/sizes-and-alignment", sizes_and_alignment, false},
        {"core/memory/blocks-are-apart", blocks_are_apart, false},
        {"core/memory/copies-of-odd-sizes", copies_odd_sizes, false},
        {"core/memory/many-bytes", many_bytes, false},
        {"core/memory/fills", fills, true},
        {"core/memory/too-much-is-refused", too_much_is_refused, false},
        {"core/memory/free-and-total", numbers_make_sense, true},
        {"core/memory/bits-survive", bits_survive, false},
        {"core/memory/nothing-leaks", nothing_leaks, false},
        {"core/memory/kinds-are-true", kinds_are_true, false},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
