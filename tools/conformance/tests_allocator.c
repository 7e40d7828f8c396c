/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: memory that a device manages itself (core.allocator). */

#include "stream_gate.h"
#include "leak_check.h"
#include "tests_features.h"

#include <string.h>

enum { BYTES = 1 << 16, BLOCKS = 1000 };

typedef struct bench {
    plugin_tables *plugin;
    outcome *out;
    const core_allocator_interface *table;
    uint64_t size; /* BYTES, rounded up as the core does it */
    void *other;   /* a second stream */
    unsigned char bytes[BYTES];
} bench;

static bool take(bench *b, void *stream, core_memory *memory)
{
    *memory = (core_memory){0};
    return expect_plugin_ok(
        b->out, b->table->alloc(b->plugin->device, stream, b->size, memory),
        "allocating memory from the device's allocator");
}

static bool all_are(bench *b, core_memory memory, unsigned char value)
{
    if (!plugin_read(b->plugin, b->out, b->bytes, memory, BYTES))
        return false;
    for (int i = 0; i < BYTES; i++)
        if (b->bytes[i] != value)
            return false;
    return true;
}

static bool put(bench *b, core_memory memory, unsigned char value)
{
    memset(b->bytes, value, BYTES);
    return plugin_write(b->plugin, b->out, memory, b->bytes, BYTES);
}

static void blocks_do_not_overlap(bench *b)
{
    void *stream = b->plugin->stream;
    core_memory one, two;

    if (!take(b, stream, &one))
        return;
    if (take(b, NULL, &two)) {
        if (put(b, one, 1) && put(b, two, 2))
            expect(b->out, all_are(b, one, 1) && all_are(b, two, 2),
                   "two blocks of its allocator overlap");
        b->table->free(b->plugin->device, NULL, two, b->size);
    }
    b->table->free(b->plugin->device, stream, one, b->size);
}

/* A block that is freed while its stream has pending work must not be reused
 * before that is done. */
static bool reuse_behind_gate(bench *b, stream_gate *gate)
{
    plugin_tables *plugin = b->plugin;
    plugin_block copy = {{0}, 0};
    core_memory freed, wanted = {0};
    bool held;

    if (!plugin_alloc(plugin, b->out, BYTES, &copy) ||
        !take(b, plugin->stream, &freed) || !put(b, freed, 1))
        return false;
    if (!stream_gate_close(gate, plugin, plugin->stream, b->out)) {
        b->table->free(plugin->device, plugin->stream, freed, b->size);
        plugin_free(plugin, &copy);
        return false;
    }
    expect_plugin_ok(b->out,
                     plugin->memory.copy(plugin->device, plugin->stream,
                                         copy.memory, freed, BYTES),
                     "a copy");
    b->table->free(plugin->device, plugin->stream, freed, b->size);
    memset(b->bytes, 2, BYTES);
    if (take(b, b->other, &wanted)) {
        expect_plugin_ok(b->out,
                         plugin->memory.copy_from_host(plugin->device, b->other,
                                                       wanted, b->bytes, BYTES),
                         "a copy on another stream");
        expect_plugin_ok(b->out,
                         plugin->streams.synchronize(plugin->device, b->other),
                         "synchronizing another stream");
    }
    held = stream_gate_holds(gate);
    stream_gate_open(gate);
    expect(b->out, all_are(b, copy.memory, 1),
           "memory freed after a copy from it was reused before the copy was "
           "done");
    if (wanted.handle || wanted.offset)
        b->table->free(plugin->device, b->other, wanted, b->size);
    plugin_wait(plugin, b->out);
    plugin_free(plugin, &copy);
    return held;
}

static void oversized_is_refused(bench *b)
{
    core_memory memory = {0};
    uint64_t size = UINT64_C(1) << 55;

    expect_plugin_error(
        b->out,
        b->table->alloc(b->plugin->device, b->plugin->stream, size, &memory),
        CORE_ERROR_OUT_OF_MEMORY, "allocating 2^55 bytes");
}

static bool allocate_and_free(bench *b)
{
    plugin_tables *plugin = b->plugin;

    for (int i = 0; i < BLOCKS; i++) {
        core_memory memory;

        if (!take(b, plugin->stream, &memory))
            return false;
        b->table->free(plugin->device, plugin->stream, memory, b->size);
    }
    return plugin_wait(plugin, b->out) &&
           expect_plugin_ok(b->out, b->table->trim(plugin->device), "trim");
}

/* Together these blocks exceed the device's memory. */
static void freed_is_reused(bench *b)
{
    leak_check device = {0};

    while (leak_check_undecided(&device)) {
        if (!plugin_wait(b->plugin, b->out) ||
            !expect_plugin_ok(b->out, b->table->trim(b->plugin->device),
                              "trim"))
            return;
        leak_check_begin(&device, b->plugin);
        if (!allocate_and_free(b))
            return;
        leak_check_end(&device, b->plugin, BLOCKS / 10 * b->size);
    }
    expect(b->out, device.recovered,
           "every %d allocations and frees reduce the device's free memory",
           BLOCKS);
}

static bool bench_begin(bench *b, suite *self, outcome *out)
{
    uint64_t step;

    b->out = out;
    b->plugin = plugin_tables_open(self, out);
    if (!b->plugin)
        return false;
    b->table = plugin_interface(b->plugin, "core.allocator");
    if (!b->table || b->plugin->synchronous) {
        not_supported(out, "it has no core.allocator, or no streams");
        return false;
    }
    step = b->plugin->properties.granularity;
    step = step > 1 ? step : 1;
    b->size = (BYTES + step - 1) / step * step;
    return true;
}

void features_allocator(suite *self, outcome *out, const test *one)
{
    static bench b;

    (void)one;
    if (!bench_begin(&b, self, out))
        return;
    blocks_do_not_overlap(&b);
    if (out->verdict == VERDICT_PASS)
        oversized_is_refused(&b);
    if (out->verdict == VERDICT_PASS)
        freed_is_reused(&b);
}

static bool reuse_on_another_stream(suite *self, outcome *out)
{
    static bench b;
    stream_gate gate;
    bool observed = false;

    if (!bench_begin(&b, self, out) || !plugin_has_streams(b.plugin, 1, out) ||
        !expect_plugin_ok(
            out, b.plugin->streams.create(b.plugin->device, 0, &b.other),
            "creating a stream"))
        return false;
    stream_gate_init(&gate);
    observed = reuse_behind_gate(&b, &gate);
    stream_gate_destroy(&gate);
    b.plugin->streams.destroy(b.plugin->device, b.other);
    return observed;
}

void features_allocator_keeps_order(suite *self, outcome *out, const test *one)
{
    (void)one;
    stream_gate_test(reuse_on_another_stream, self, out);
}
