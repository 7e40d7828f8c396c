/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: fills and copies of more than 4 GiB, whose sizes 32 bits do not
 * hold.  The host's side of a copy is a small piece of memory that is mapped
 * again and again, so that only the device needs that much. */

#define _GNU_SOURCE /* memfd_create */

#include "plugin_tables.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE ((UINT64_C(4) << 30) + (1 << 20) + 8)
/* Not a divisor of 2^32: the last bytes have other places than the first. */
#define PIECE (UINT64_C(48) << 20)

/* Maps SIZE bytes, all of one piece that is filled; NULL: it cannot. */
static unsigned char *map_pieces(int byte)
{
    int file = memfd_create("conformance", MFD_CLOEXEC);
    unsigned char *all = MAP_FAILED, *at;
    bool good = file >= 0 && ftruncate(file, (off_t)PIECE) == 0;

    if (good)
        all = mmap(NULL, SIZE + PIECE, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    good = good && all != MAP_FAILED;
    for (uint64_t from = 0; good && from < SIZE; from += PIECE) {
        at = mmap(all + from, PIECE, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_FIXED, file, 0);
        good = at != MAP_FAILED;
    }
    if (file >= 0)
        close(file);
    if (good)
        memset(all, byte, PIECE);
    else if (all != MAP_FAILED)
        munmap(all, SIZE + PIECE);
    return good ? all : NULL;
}

static void unmap(unsigned char *all)
{
    if (all)
        munmap(all, SIZE + PIECE);
}

/* Where a block is looked at. */
static const uint64_t places[] = {0, 1 << 20, UINT64_C(2) << 30,
                                  (UINT64_C(4) << 30) - 4, SIZE - 8};
enum { PLACES = sizeof places / sizeof *places };

static bool is_filled(plugin_tables *p, const plugin_block *block, int byte,
                      const char *what, outcome *out)
{
    for (int i = 0; i < PLACES; i++) {
        unsigned char got[8];

        if (!plugin_read(p, out, got, plugin_block_at(block, places[i]), 8))
            return false;
        for (uint64_t k = 0; k < 8; k++)
            if (!expect(out, got[k] == byte,
                        "%s of %llu bytes, whose size 32 bits do not hold: "
                        "byte %llu is %#x, expected %#x",
                        what, (unsigned long long)SIZE,
                        (unsigned long long)(places[i] + k), got[k], byte))
                return false;
    }
    return true;
}

static bool fill_and_read(plugin_tables *p, const plugin_block *block,
                          unsigned char *host, outcome *out)
{
    if (!expect_plugin_ok(out,
                          p->memory.fill(p->device, p->stream, block->memory,
                                         SIZE, 0x5a5a5a5a, 4),
                          "fill") ||
        !plugin_wait(p, out) || !is_filled(p, block, 0x5a, "a fill", out) ||
        !plugin_read(p, out, host, block->memory, SIZE))
        return false;
    for (uint64_t i = 0; i < PIECE; i += 4096)
        if (!expect(out, host[i] == 0x5a,
                    "copy_to_host of %llu bytes, whose size 32 bits do not "
                    "hold: bytes are missing",
                    (unsigned long long)SIZE))
            return false;
    return true;
}

static void use_blocks(plugin_tables *p, plugin_block blocks[2],
                       unsigned char *host, outcome *out)
{
    if (!fill_and_read(p, &blocks[0], host, out))
        return;
    memset(host, 0xc3, PIECE);
    if (!plugin_write(p, out, blocks[0].memory, host, SIZE) ||
        !is_filled(p, &blocks[0], 0xc3, "copy_from_host", out))
        return;
    for (int i = 0; i < PLACES; i++)
        if (!plugin_write(p, out, plugin_block_at(&blocks[1], places[i]),
                          "\0\0\0\0\0\0\0", 8))
            return;
    if (expect_plugin_ok(out,
                         p->memory.copy(p->device, p->stream, blocks[1].memory,
                                        blocks[0].memory, SIZE),
                         "copy") &&
        plugin_wait(p, out))
        is_filled(p, &blocks[1], 0xc3, "copy", out);
}

/* Tests whether the device has memory of its own for two such blocks. */
static bool has_room(plugin_tables *p, outcome *out)
{
    const uint32_t host = CORE_DEVICE_UNIFIED | CORE_DEVICE_HOST_ACCESS;
    uint64_t left = 0, total = 0, largest = p->properties.largest_allocation;

    if (p->properties.flags & host)
        not_supported(out, "its memory is the host's");
    else if (!p->memory.info ||
             !expect_plugin_ok(out, p->memory.info(p->device, &left, &total),
                               "memory info") ||
             left < 2 * SIZE + SIZE / 4)
        not_supported(out, "it has less than %llu bytes of free memory",
                      (unsigned long long)(2 * SIZE + SIZE / 4));
    else if (largest > 0 && largest < SIZE)
        not_supported(out, "no allocation may have more than %llu bytes",
                      (unsigned long long)largest);
    return out->verdict == VERDICT_PASS;
}

static void huge_copies(suite *self, outcome *out, const test *one)
{
    plugin_tables *p = plugin_tables_open(self, out);
    plugin_block blocks[2] = {{{0}, 0}, {{0}, 0}};
    unsigned char *host;

    (void)one;
    if (!p)
        return;
    if (self->quick) {
        not_supported(out, "--quick leaves it out");
        return;
    }
    if (!has_room(p, out))
        return;
    host = map_pieces(0);
    if (!host)
        not_supported(out, "the host cannot map that many bytes");
    else if (plugin_alloc(p, out, SIZE, &blocks[0]) &&
             plugin_alloc(p, out, SIZE, &blocks[1]))
        use_blocks(p, blocks, host, out);
    plugin_free(p, &blocks[1]);
    plugin_free(p, &blocks[0]);
    unmap(host);
}

bool suite_add_huge_copies(suite *self)
{
    static const listed tests[] = {
        {"core/memory/copies-beyond-4-gib", huge_copies, true},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
