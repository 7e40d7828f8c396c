/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: the ends of blocks, what is free while they exist and after, and
 * the host's side of copies. */

#include "process_state.h"
#include "stream_gate.h"
#include "plugin_tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---------------------------------------------------------------- ends -- */

enum { BLOCKS = 5, END = 64 };

/* The number of a block, at its beginning and at its end. */
static bool mark(plugin_tables *p, const plugin_block *block, int number,
                 outcome *out)
{
    unsigned char bytes[END];

    memset(bytes, number + 1, sizeof bytes);
    return plugin_write(p, out, block->memory, bytes, END) &&
           plugin_write(p, out, plugin_block_at(block, block->size - END),
                        bytes, END);
}

static bool has_mark(plugin_tables *p, const plugin_block *block, int number,
                     uint64_t offset, outcome *out)
{
    unsigned char bytes[END];

    if (!plugin_read(p, out, bytes, plugin_block_at(block, offset), END))
        return false;
    for (int i = 0; i < END; i++)
        if (!expect(out, bytes[i] == number + 1,
                    "alloc: block %d of %d, of %llu bytes: byte %llu is %d, "
                    "expected %d, after the ends of all blocks were written",
                    number, BLOCKS, (unsigned long long)block->size,
                    (unsigned long long)(offset + (uint64_t)i), bytes[i],
                    number + 1))
            return false;
    return true;
}

static void blocks_keep_their_ends(suite *self, outcome *out, const test *one)
{
    static const uint64_t sizes[BLOCKS] = {1 << 16, 3 << 16, (1 << 20) + 1,
                                           1 << 18, (1 << 16) + 4096};
    plugin_tables *p = plugin_tables_open(self, out);
    plugin_block blocks[BLOCKS] = {{{0}, 0}};

    (void)one;
    if (!p)
        return;
    for (int i = 0; i < BLOCKS; i++)
        if (!plugin_alloc(p, out, sizes[i], &blocks[i]) ||
            !mark(p, &blocks[i], i, out))
            goto done;
    for (int i = 0; i < BLOCKS; i++)
        if (!has_mark(p, &blocks[i], i, 0, out) ||
            !has_mark(p, &blocks[i], i, blocks[i].size - END, out))
            break;
done:
    for (int i = 0; i < BLOCKS; i++)
        plugin_free(p, &blocks[i]);
}

/* ---------------------------------------------------------------- free -- */

enum { ROUNDS = 4, MOST_BLOCKS = 10000 };

/* Memory that the device or the process has less of. */
typedef struct usage {
    uint64_t device; /* in use; 0: not reported */
    uint64_t process;
} usage;

static usage used(plugin_tables *p)
{
    usage now = {0, process_heap() + process_mapped()};
    uint64_t left = 0, total = 0;

    if (p->memory.info && p->memory.info(p->device, &left, &total) == CORE_OK &&
        left <= total)
        now.device = total - left;
    return now;
}

/* Freed memory may be kept for later, but not again and again. */
static bool free_returns(plugin_tables *p, uint32_t count, uint64_t size,
                         int rounds, outcome *out)
{
    const uint64_t limit = count * size / 2;
    bool device = true, process = true;

    for (int i = 0; (device || process) && i < rounds; i++) {
        usage before = used(p), after;

        for (uint32_t k = 0; k < count; k++) {
            plugin_block block;

            if (!plugin_alloc(p, out, size, &block))
                return false;
            plugin_free(p, &block);
        }
        after = used(p);
        device = device && after.device > before.device + limit;
        process = process && after.process > before.process + limit;
    }
    return expect(out, !(device || process),
                  "free does not return memory: %d times %u blocks of %llu "
                  "bytes were allocated and freed, one after the other, and "
                  "each time %s use grew by more than half of that",
                  rounds, count, (unsigned long long)size,
                  device ? "the device's memory in" : "the process's memory");
}

/* Allocates and frees blocks one after the other until they are `limit` bytes
 * or alloc fails twice, a pause apart.  Returns how many they were. */
static uint64_t take_and_return(plugin_tables *p, uint64_t size, uint64_t limit)
{
    static const struct timespec pause = {0, 100000000};
    uint64_t count = 0;
    bool failed = false;

    while (count * size < limit && count < MOST_BLOCKS) {
        plugin_block block = {{0}, size};

        if (p->memory.alloc(p->device, size, &block.memory) == CORE_OK) {
            plugin_free(p, &block);
            count++;
            failed = false;
        } else if (failed) {
            break;
        } else {
            failed = true;
            nanosleep(&pause, NULL);
        }
    }
    return count;
}

/* A device that does not report its use has more blocks than fit, one after the
 * other.  Where other programs use its memory, smaller blocks fit, and again as
 * many bytes of them; where freed memory is lost they use up what is left. */
static void exceed_memory(plugin_tables *p, outcome *out)
{
    enum { HALVINGS = 6 };
    const uint64_t total = p->properties.total_memory,
                   largest = p->properties.largest_allocation,
                   limit = total + total / 4;
    uint64_t size = total / 8, count = 0, first = 0, of_first = 0;

    size = largest > 0 && size > largest ? largest : size;
    for (int i = 0; size > 0 && i <= HALVINGS; i++, size /= 2) {
        count = take_and_return(p, size, limit);
        if (count * size >= limit)
            return;
        if (count == MOST_BLOCKS)
            break;
        if (count > 0 && of_first == 0) {
            first = size;
            of_first = count;
        }
    }
    if (count < MOST_BLOCKS && of_first > 0)
        expect(out, false,
               "free does not return memory: %llu blocks of %llu bytes were "
               "allocated and freed, one after the other, and then alloc fails "
               "on a device of %llu bytes, also of smaller blocks and after a "
               "pause",
               (unsigned long long)of_first, (unsigned long long)first,
               (unsigned long long)total);
    else
        snprintf(out->detail, sizeof out->detail,
                 "it was not tested whether free returns the device's memory, "
                 "of which it has no `info`: %llu blocks could be allocated "
                 "one after the other, fewer than fit at once",
                 (unsigned long long)count);
}

/* Blocks of several sizes, of which a device may sub-allocate some, and large
 * ones, for which devices often have another way.  If
 * none is returned they are a quarter of the device's memory. */
static void free_returns_memory(suite *self, outcome *out, const test *one)
{
    enum { SMALL = 1 << 16, LARGE = 72 << 20, MANY = 1000, FEW = 4 };
    static const uint64_t smaller[] = {512, 8192};
    plugin_tables *p = plugin_tables_open(self, out);
    uint64_t size = LARGE, most, largest;

    (void)one;
    if (!p || !free_returns(p, MANY, SMALL, ROUNDS, out))
        return;
    for (int i = 0; i < 2; i++)
        if (!free_returns(p, 16 * MANY, smaller[i], ROUNDS, out))
            return;
    most = p->properties.total_memory / (4 * ROUNDS * FEW);
    largest = p->properties.largest_allocation;
    size = most > 0 && size > most ? most : size;
    size = largest > 0 && size > largest ? largest : size;
    if (!free_returns(p, FEW, size, ROUNDS, out) || p->memory.info)
        return;
    if (p->properties.total_memory > 0)
        exceed_memory(p, out);
    else
        snprintf(out->detail, sizeof out->detail,
                 "only the process's memory was looked at: it has neither "
                 "`info` nor total_memory");
}

/* Blocks of every power of two from 256 bytes to 64 MiB, and of what is between
 * two: an allocator of size classes may lose those of one.  What another program
 * allocates meanwhile does not grow in each of many rounds. */
static void every_size_is_returned(suite *self, outcome *out, const test *one)
{
    enum { LEAST = 8, MOST = 26, BYTES = 2 << 20, MORE = 3 * ROUNDS };
    plugin_tables *p = plugin_tables_open(self, out);
    uint64_t most, largest;

    (void)one;
    if (!p)
        return;
    most = p->properties.total_memory / 64; /* of which 32 may be lost */
    largest = p->properties.largest_allocation;
    for (int k = 2 * LEAST; k <= 2 * MOST && out->verdict == VERDICT_PASS;
         k++) {
        uint64_t size = UINT64_C(1) << k / 2;
        outcome first = {.verdict = VERDICT_PASS};
        uint32_t count;

        size += k % 2 * size / 2;
        count = size < BYTES / 2 ? (uint32_t)(BYTES / size) : 2;
        if ((most > 0 && size > most) || (largest > 0 && size > largest)) {
            snprintf(out->detail, sizeof out->detail,
                     "blocks of %llu bytes and more were not tested: that is "
                     "more than a 64th of the device's memory, or than its "
                     "largest block",
                     (unsigned long long)size);
            return;
        }
        if (!free_returns(p, count, size, ROUNDS, &first))
            free_returns(p, count, size, MORE, out);
    }
}

/* Memory that other processes free at the same time may hide an allocation, so
 * one try that shows it is enough. */
static void info_follows(suite *self, outcome *out, const test *one)
{
    enum { TRIES = 8 };
    const uint32_t host = CORE_DEVICE_UNIFIED | CORE_DEVICE_HOST_ACCESS;
    plugin_tables *p = plugin_tables_open(self, out);
    uint64_t before = 0, after = 0, total = 0, size = 0;
    bool follows = false;

    (void)one;
    if (!p)
        return;
    if (!p->memory.info || (p->properties.flags & host)) {
        not_supported(out, "it does not report memory of its own");
        return;
    }
    for (int i = 0; i < TRIES && !follows; i++) {
        plugin_block block;

        if (!expect_plugin_ok(out, p->memory.info(p->device, &before, &total),
                              "memory info"))
            return;
        size = plugin_visible_size(p, before);
        if (size == 0 || !plugin_alloc(p, out, size, &block))
            return;
        p->memory.info(p->device, &after, &total);
        follows = after + size / 2 <= before;
        plugin_free(p, &block);
    }
    expect(out, follows,
           "info reports %llu free bytes before an allocation of %llu bytes "
           "and %llu after it",
           (unsigned long long)before, (unsigned long long)size,
           (unsigned long long)after);
}

/* Both describe the same memory; some of it may be reserved. */
static void totals_agree(suite *self, outcome *out, const test *one)
{
    plugin_tables *p = plugin_tables_open(self, out);
    uint64_t left = 0, total = 0, again = 0, stated;

    (void)one;
    if (!p)
        return;
    stated = p->properties.total_memory;
    if (!p->memory.info || stated == 0) {
        not_supported(out, "it does not report its memory twice");
        return;
    }
    if (!expect_plugin_ok(out, p->memory.info(p->device, &left, &total),
                          "memory info") ||
        !expect_plugin_ok(out, p->memory.info(p->device, &left, &again),
                          "memory info"))
        return;
    expect(out, total == again,
           "info reports a total of %llu bytes, then of %llu",
           (unsigned long long)total, (unsigned long long)again);
    expect(out, total <= stated + stated / 8 && stated <= total + total / 8,
           "info reports a total of %llu bytes, device_properties one of %llu",
           (unsigned long long)total, (unsigned long long)stated);
}

/* ---------------------------------------------------------- host memory -- */

enum { BYTES = 256 };

static void any_host_pointer(suite *self, outcome *out, const test *one)
{
    plugin_tables *p = plugin_tables_open(self, out);
    unsigned char from[BYTES + 16], to[BYTES + 16];
    plugin_block block = {{0}, 0};

    (void)one;
    if (!p || !plugin_alloc(p, out, BYTES, &block))
        return;
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (unsigned char)(i + 1);
    for (uint32_t offset = 0; offset < 16; offset++) {
        uint32_t size = BYTES - offset;

        memset(to, 0, sizeof to);
        if (!plugin_write(p, out, block.memory, from + offset, size) ||
            !plugin_read(p, out, to + offset, block.memory, size) ||
            !expect(out, memcmp(to + offset, from + offset, size) == 0,
                    "%u bytes from a host address that is %u more than a "
                    "multiple of 16, to the device and back: byte 0 is %d, "
                    "expected %d",
                    size, (uint32_t)((uintptr_t)(from + offset) % 16),
                    to[offset], from[offset]))
            break;
    }
    plugin_free(p, &block);
}

/* With HOST_STABLE the host may change its memory when the call returns. */
static bool change_behind_gate(suite *self, outcome *out)
{
    plugin_tables *p = plugin_tables_open(self, out);
    unsigned char ones[BYTES], got[BYTES];
    plugin_block block = {{0}, 0};
    bool gated, held = false;
    stream_gate gate;

    if (!p)
        return false;
    gated = !p->synchronous && (p->properties.flags & CORE_DEVICE_HOST_STABLE);
    stream_gate_init(&gate);
    memset(ones, 1, sizeof ones);
    if (!plugin_alloc(p, out, BYTES, &block) ||
        (gated && !stream_gate_close(&gate, p, p->stream, out)) ||
        !expect_plugin_ok(out,
                          p->memory.copy_from_host(p->device, p->stream,
                                                   block.memory, ones, BYTES),
                          "copy_from_host"))
        goto done;
    if (p->properties.flags & CORE_DEVICE_HOST_STABLE)
        memset(ones, 2, sizeof ones);
    held = !gated || stream_gate_holds(&gate);
    stream_gate_open(&gate);
    if (plugin_wait(p, out) && plugin_read(p, out, got, block.memory, BYTES))
        expect(out, got[0] == 1 && got[BYTES - 1] == 1,
               "it declares CORE_DEVICE_HOST_STABLE, and copy_from_host reads "
               "the host's memory after it has returned: byte 0 is %d, "
               "expected 1",
               got[0]);
done:
    stream_gate_open(&gate);
    plugin_wait(p, out);
    plugin_free(p, &block);
    stream_gate_destroy(&gate);
    return held;
}

static void host_memory_is_stable(suite *self, outcome *out, const test *one)
{
    (void)one;
    stream_gate_test(change_behind_gate, self, out);
}

bool suite_add_blocks(suite *self)
{
    static const listed tests[] = {
        {"core/memory/blocks-keep-their-ends", blocks_keep_their_ends, false},
        {"core/memory/free-returns-memory", free_returns_memory, false},
        {"core/memory/every-size-is-returned", every_size_is_returned, false},
        {"core/memory/info-follows-allocations", info_follows, true},
        {"core/memory/totals-agree", totals_agree, true},
        {"core/memory/host-pointers-of-any-alignment", any_host_pointer, false},
        {"core/memory/host-memory-is-stable", host_memory_is_stable, true},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
