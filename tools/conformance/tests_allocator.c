/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: memory that a device keeps itself (core.allocator). */

#include "stream_gate.h"
#include "leak_check.h"
#include "tests_features.h"

#include <string.h>

enum { BYTES = 1 << 16, BLOCKS = 1000 };

typedef struct bench {
    raw *plugin;
    outcome *out;
    const core_allocator_interface *table;
    uint64_t size; /* BYTES, as the core rounds it */
    void *other;   /* a second stream */
    unsigned char bytes[BYTES];
} bench;

static bool take(bench *b, void *stream, core_memory *memory)
{
    *memory = (core_memory){0};
    return raw_ok(b->out,
                  b->table->alloc(b->plugin->device, stream, b->size, memory),
                  "allocating memory that the device keeps");
}

static bool all_are(bench *b, core_memory memory, unsigned char value)
{
    if (!raw_read(b->plugin, b->out, b->bytes, memory, BYTES))
        return false;
    for (int i = 0; i < BYTES; i++)
        if (b->bytes[i] != value)
            return false;
    return true;
}

static bool put(bench *b, core_memory memory, unsigned char value)
{
    memset(b->bytes, value, BYTES);
    return raw_write(b->plugin, b->out, memory, b->bytes, BYTES);
}

static void blocks_are_apart(bench *b)
{
    void *stream = b->plugin->stream;
    core_memory one, two;

    if (!take(b, stream, &one))
        return;
    if (take(b, NULL, &two)) {
        if (put(b, one, 1) && put(b, two, 2))
            expect(b->out, all_are(b, one, 1) && all_are(b, two, 2),
                   "two blocks of its allocator are not apart");
        b->table->free(b->plugin->device, NULL, two, b->size);
    }
    b->table->free(b->plugin->device, stream, one, b->size);
}

/* What is freed while its stream has work on it stays until that is done,
 * whoever wants memory meanwhile. */
static void order_is_kept(bench *b)
{
    raw *plugin = b->plugin;
    raw_block copy = {{0}, 0};
    core_memory freed, wanted = {0};
    gate held;

    if (!raw_alloc(plugin, b->out, BYTES, &copy) ||
        !take(b, plugin->stream, &freed) || !put(b, freed, 1))
        return;
    gate_begin(&held);
    if (raw_interface(plugin, "core.host_callback"))
        gate_close(&held, plugin, plugin->stream, b->out);
    raw_ok(b->out,
           plugin->memory.copy(plugin->device, plugin->stream, copy.memory,
                               freed, BYTES),
           "a copy");
    b->table->free(plugin->device, plugin->stream, freed, b->size);
    memset(b->bytes, 2, BYTES);
    if (take(b, b->other, &wanted)) {
        raw_ok(b->out,
               plugin->memory.copy_from_host(plugin->device, b->other, wanted,
                                             b->bytes, BYTES),
               "a copy on another stream");
        raw_ok(b->out, plugin->streams.synchronize(plugin->device, b->other),
               "synchronizing another stream");
    }
    gate_open(&held);
    expect(b->out, all_are(b, copy.memory, 1),
           "memory was freed behind a copy from it, and was gone before the "
           "copy was made");
    if (wanted.handle || wanted.offset)
        b->table->free(plugin->device, b->other, wanted, b->size);
    raw_wait(plugin, b->out);
    gate_end(&held);
    raw_free(plugin, &copy);
}

static void much_is_refused(bench *b)
{
    core_memory memory = {0};
    uint64_t size = UINT64_C(1) << 55;

    raw_fails(
        b->out,
        b->table->alloc(b->plugin->device, b->plugin->stream, size, &memory),
        CORE_ERROR_OUT_OF_MEMORY, "allocating 2^55 bytes");
}

static bool come_and_go(bench *b)
{
    raw *plugin = b->plugin;

    for (int i = 0; i < BLOCKS; i++) {
        core_memory memory;

        if (!take(b, plugin->stream, &memory))
            return false;
        b->table->free(plugin->device, plugin->stream, memory, b->size);
    }
    return raw_wait(plugin, b->out) &&
           raw_ok(b->out, b->table->trim(plugin->device), "trim");
}

/* So many blocks would be more than the device has. */
static void freed_comes_back(bench *b)
{
    room device = {0};

    while (room_unsure(&device)) {
        if (!raw_wait(b->plugin, b->out) ||
            !raw_ok(b->out, b->table->trim(b->plugin->device), "trim"))
            return;
        room_begin(&device, b->plugin);
        if (!come_and_go(b))
            return;
        room_end(&device, b->plugin, BLOCKS / 10 * b->size);
    }
    expect(b->out, device.rests,
           "every %d blocks that come and go leave less of the device's memory",
           BLOCKS);
}

void features_allocator(suite *self, outcome *out, const test *one)
{
    static bench b;
    uint64_t step;
    bool alone;

    (void)one;
    b.plugin = raw_open(self, out);
    if (!b.plugin)
        return;
    b.table = raw_interface(b.plugin, "core.allocator");
    if (!b.table || b.plugin->synchronous) {
        not_supported(out, "it has no core.allocator, or no streams to order "
                           "memory by");
        return;
    }
    b.out = out;
    step = b.plugin->properties.granularity;
    step = step > 1 ? step : 1;
    b.size = (BYTES + step - 1) / step * step;
    alone = b.plugin->properties.max_streams == 1;
    if (!alone &&
        !raw_ok(out, b.plugin->streams.create(b.plugin->device, 0, &b.other),
                "creating a stream"))
        return;
    blocks_are_apart(&b);
    if (out->verdict == VERDICT_PASS && !alone)
        order_is_kept(&b);
    if (out->verdict == VERDICT_PASS)
        much_is_refused(&b);
    if (out->verdict == VERDICT_PASS)
        freed_comes_back(&b);
    if (!alone)
        b.plugin->streams.destroy(b.plugin->device, b.other);
}
