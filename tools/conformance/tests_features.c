/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: optional interfaces.  Whatever a plugin advertises must work. */

#include "stream_gate.h"
#include "plugin_tables.h"
#include "tests_features.h"

#include <math.h>
#include <string.h>

/* Returns an interface, which must work if it exists. */
static const void *need(suite *self, outcome *out, const char *name,
                        plugin_tables **out_plugin)
{
    plugin_tables *plugin = *out_plugin = plugin_tables_open(self, out);
    const void *table;

    if (!plugin)
        return NULL;
    table = plugin_interface(plugin, name);
    if (!table)
        not_supported(out, "it has no %s", name);
    return table;
}

static void timing(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin;
    const core_timing_interface *table =
        need(self, out, "core.timing", &plugin);
    void *events[2] = {NULL, NULL};
    int64_t there = -1, back = 1;
    plugin_block block = {{0}, 0};
    static unsigned char data[1 << 16];

    (void)one;
    if (!table || plugin->synchronous)
        return;
    if (!plugin_alloc(plugin, out, sizeof data, &block))
        return;
    for (int i = 0; i < 2; i++) {
        if (!expect_plugin_ok(out,
                              plugin->events.create(plugin->device,
                                                    CORE_EVENT_TIMING,
                                                    &events[i]),
                              "creating an event for timing") ||
            !expect_plugin_ok(out,
                              plugin->events.record(plugin->device, events[i],
                                                    plugin->stream),
                              "recording it"))
            goto done;
        if (i == 0 && !expect_plugin_ok(out,
                                        plugin->memory.copy_from_host(
                                            plugin->device, plugin->stream,
                                            block.memory, data, sizeof data),
                                        "copy_from_host"))
            goto done;
    }
    if (!plugin_wait(plugin, out) ||
        !expect_plugin_ok(
            out, table->elapsed(plugin->device, events[0], events[1], &there),
            "elapsed") ||
        !expect_plugin_ok(
            out, table->elapsed(plugin->device, events[1], events[0], &back),
            "elapsed, in reverse order"))
        goto done;
    expect(out, there >= 0 && there < INT64_C(60000000000),
           "a copy took %lld ns", (long long)there);
    expect(out, back == -there,
           "elapsed from the first of two events to the second is %lld ns, "
           "and from the second to the first %lld, expected %lld",
           (long long)there, (long long)back, -(long long)there);
done:
    for (int i = 0; i < 2; i++)
        if (events[i])
            plugin->events.destroy(plugin->device, events[i]);
    plugin_free(plugin, &block);
}

static void callbacks(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin;
    stream_gate many;
    uint32_t passed, dropped;

    (void)one;
    if (!need(self, out, "core.host_callback", &plugin))
        return;
    stream_gate_init(&many);
    for (int i = 0; i < 100; i++)
        if (!stream_gate_close(&many, plugin, plugin->stream, out))
            break;
    stream_gate_open(&many);
    plugin_wait(plugin, out);
    stream_gate_counts(&many, &passed, &dropped);
    expect(out, passed == 100 && dropped == 0,
           "of 100 callbacks %u ran and %u were dropped when the stream was "
           "finished",
           passed, dropped);
    stream_gate_destroy(&many);
}

static void host_memory(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin;
    const core_host_memory_interface *table =
        need(self, out, "core.host_memory", &plugin);
    plugin_block block = {{0}, 0};
    void *data = NULL;

    (void)one;
    if (!table || !plugin_alloc(plugin, out, 4096, &block))
        return;
    if (expect_plugin_ok(out, table->alloc(plugin->device, 4096, &data),
                         "allocating host memory") &&
        expect(out, (uintptr_t)data % 64 == 0,
               "host memory is not aligned to 64 bytes")) {
        memset(data, 7, 4096);
        if (plugin_write(plugin, out, block.memory, data, 4096)) {
            memset(data, 0, 4096);
            plugin_read(plugin, out, data, block.memory, 4096);
        }
        for (int i = 0; i < 4096; i++)
            if (!expect(out, ((unsigned char *)data)[i] == 7,
                        "host memory returned different data"))
                break;
    }
    if (data)
        table->free(plugin->device, data, 4096);
    plugin_free(plugin, &block);
}

static void host_blocks_do_not_overlap(suite *self, outcome *out,
                                       const test *one)
{
    enum { SIZE = 5000, COUNT = 4 };
    plugin_tables *plugin;
    const core_host_memory_interface *table =
        need(self, out, "core.host_memory", &plugin);
    void *blocks[COUNT] = {NULL};

    (void)one;
    for (int i = 0; table && i < COUNT; i++)
        if (!expect_plugin_ok(out,
                              table->alloc(plugin->device, SIZE, &blocks[i]),
                              "allocating host memory"))
            goto done;
    for (int i = 0; table && i < COUNT; i++)
        for (int k = 0; k < i; k++) {
            uintptr_t a = (uintptr_t)blocks[i], b = (uintptr_t)blocks[k];

            if (!expect(out, a + SIZE <= b || b + SIZE <= a,
                        "of %d blocks of host memory of %d bytes, two overlap, "
                        "at %#llx and %#llx",
                        COUNT, SIZE, (unsigned long long)a,
                        (unsigned long long)b))
                return; /* freeing them may crash */
        }
done:
    for (int i = 0; table && i < COUNT; i++)
        if (blocks[i])
            table->free(plugin->device, blocks[i], SIZE);
}

static void adoption(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin;
    const core_stream_adopt_interface *table =
        need(self, out, "core.stream_adopt", &plugin);
    void *native = NULL, *adopted = NULL;

    (void)one;
    if (!table)
        return;
    if (!expect_plugin_ok(
            out, table->native(plugin->device, plugin->stream, &native),
            "the vendor's handle of a stream") ||
        !expect(out, native != NULL,
                "native of core.stream_adopt returns "
                "NULL as the vendor's handle of a stream") ||
        !expect_plugin_ok(out, table->adopt(plugin->device, native, &adopted),
                          "adopting a stream"))
        return;
    expect_plugin_ok(out, plugin->streams.synchronize(plugin->device, adopted),
                     "synchronizing an adopted stream");
    plugin->streams.destroy(plugin->device, adopted);
    plugin_wait(plugin, out); /* the foreign stream must still exist */
}

static void priorities(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin;
    const core_stream_priority_interface *table =
        need(self, out, "core.stream_priority", &plugin);
    int32_t least = 0, greatest = 0;

    (void)one;
    if (!table ||
        !expect_plugin_ok(out, table->range(plugin->device, &least, &greatest),
                          "the range of priorities"))
        return;
    if (!plugin_reserve_streams(plugin, 1, out))
        return;
    expect(out, greatest <= 0 && least >= 0 && greatest <= least,
           "the priorities %d to %d do not include 0", greatest, least);
    for (int32_t p = greatest; p <= least && p < greatest + 8; p++) {
        void *stream = NULL;

        if (!expect_plugin_ok(out, table->create(plugin->device, 0, p, &stream),
                              "creating a stream of a priority"))
            break;
        expect_plugin_ok(out,
                         plugin->streams.synchronize(plugin->device, stream),
                         "synchronizing it");
        plugin->streams.destroy(plugin->device, stream);
    }
    plugin_restore_stream(plugin, out);
}

static void virtual_memory(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin;
    const core_virtual_memory_interface *table =
        need(self, out, "core.virtual_memory", &plugin);
    unsigned char wrote[512], got[512] = {0};
    core_memory range = {0}, second;
    uint64_t step = 0;

    (void)one;
    if (!table ||
        !expect_plugin_ok(out, table->granularity(plugin->device, &step),
                          "the granularity") ||
        !expect(out, step > 0, "the granularity is 0") ||
        !expect_plugin_ok(out, table->reserve(plugin->device, 4 * step, &range),
                          "reserving addresses"))
        return;
    memset(wrote, 3, sizeof wrote);
    second = (core_memory){range.handle, range.offset + step};
    for (int round = 0; round < 3; round++) {
        if (!expect_plugin_ok(out,
                              table->map(plugin->device, range, step, 2 * step),
                              "mapping memory") ||
            !plugin_write(plugin, out, second, wrote, sizeof wrote) ||
            !plugin_read(plugin, out, got, second, sizeof got))
            break;
        expect(out, memcmp(wrote, got, sizeof got) == 0,
               "mapped memory does not keep its data");
        table->unmap(plugin->device, range, step, 2 * step);
    }
    table->release(plugin->device, range, 4 * step);
}

static void peers(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin;
    const core_peer_interface *table = need(self, out, "core.peer", &plugin);
    enum { FROM = 512, TO = 1024 }; /* offsets in the blocks */
    unsigned char wrote[FROM + 300], got[TO + 300] = {0};
    plugin_block near = {{0}, 0};
    core_memory far = {0};
    core_string reason;
    void *other = NULL, *stream = NULL;
    uint32_t count = 0, yes = 0;

    (void)one;
    if (!table)
        return;
    plugin->backend.enumerate(plugin->backend.user, &count, &reason);
    if (count < 2) {
        not_supported(out, "there is only one device");
        return;
    }
    if (!expect_plugin_ok(out,
                          plugin->backend.device_open(plugin->backend.user,
                                                      plugin->second, &other),
                          "opening a second device") ||
        !expect_plugin_ok(out, table->can_access(plugin->device, other, &yes),
                          "can_access") ||
        !yes || !plugin_alloc(plugin, out, 4096, &near))
        goto done;
    for (size_t i = 0; i < sizeof wrote; i++)
        wrote[i] = (unsigned char)(i * 7 + i / 256 + 9);
    if (!expect_plugin_ok(out, plugin->memory.alloc(other, near.size, &far),
                          "alloc"))
        goto done;
    if (!plugin->synchronous)
        expect_plugin_ok(out, plugin->streams.create(other, 0, &stream),
                         "creating a stream on a second device");
    if (plugin_write(plugin, out, near.memory, got, sizeof got) &&
        expect_plugin_ok(out,
                         plugin->memory.copy_from_host(other, stream, far,
                                                       wrote, sizeof wrote),
                         "copy to a second device") &&
        (!stream ||
         expect_plugin_ok(out, plugin->streams.synchronize(other, stream),
                          "synchronizing a second device")) &&
        expect_plugin_ok(
            out,
            table->copy(plugin->device, plugin->stream,
                        plugin_block_at(&near, TO), other,
                        (core_memory){far.handle, far.offset + FROM}, 300),
            "copy between devices") &&
        plugin_read(plugin, out, got, near.memory, sizeof got))
        for (int i = 0; i < TO + 300; i++)
            if (!expect(out, got[i] == (i < TO ? 0 : wrote[FROM + i - TO]),
                        "copy of core.peer of 300 bytes, from byte %d of a "
                        "block of another device to byte %d of one of its "
                        "own: byte %d is %d, expected %d",
                        FROM, TO, i, got[i], i < TO ? 0 : wrote[FROM + i - TO]))
                break;
    if (stream)
        plugin->streams.destroy(other, stream);
    plugin->memory.free(other, far, near.size);
done:
    plugin_free(plugin, &near);
    if (other)
        plugin->backend.device_close(plugin->backend.user, other);
}

/* Captured work must not run; each launch must run it. */
static void captures(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin;
    const core_graph_capture_interface *table =
        need(self, out, "core.graph_capture", &plugin);
    unsigned char zero[256] = {0}, ones[256], got[256];
    plugin_block a = {{0}, 0}, b = {{0}, 0};
    void *graph = NULL;

    (void)one;
    if (!table || !plugin_alloc(plugin, out, sizeof zero, &a) ||
        !plugin_alloc(plugin, out, sizeof zero, &b))
        return;
    memset(ones, 1, sizeof ones);
    if (!plugin_write(plugin, out, a.memory, ones, sizeof ones) ||
        !plugin_write(plugin, out, b.memory, zero, sizeof zero) ||
        !expect_plugin_ok(out, table->begin(plugin->device, plugin->stream),
                          "beginning a capture"))
        goto done;
    expect_plugin_ok(out,
                     plugin->memory.copy(plugin->device, plugin->stream,
                                         b.memory, a.memory, sizeof zero),
                     "a captured copy");
    if (!expect_plugin_ok(out,
                          table->end(plugin->device, plugin->stream, &graph),
                          "ending a capture") ||
        !plugin_read(plugin, out, got, b.memory, sizeof got))
        goto done;
    expect(out, got[0] == 0, "captured work runs at once");
    for (unsigned char value = 1; value < 4; value++) {
        memset(ones, value, sizeof ones);
        if (!plugin_write(plugin, out, a.memory, ones, sizeof ones) ||
            !expect_plugin_ok(
                out, table->launch(plugin->device, graph, plugin->stream),
                "launching a graph") ||
            !plugin_read(plugin, out, got, b.memory, sizeof got))
            break;
        expect(out, memcmp(got, ones, sizeof got) == 0,
               "launch %d of a graph has no effect", value);
    }
done:
    if (graph)
        table->destroy(plugin->device, graph);
    plugin_free(plugin, &a);
    plugin_free(plugin, &b);
}

static void stream_error(suite *self, outcome *out, const test *one)
{
    plugin_tables *plugin;
    const core_stream_error_interface *table =
        need(self, out, "core.stream_error", &plugin);
    core_stream_error word = {.struct_size = sizeof word, .code = 77};

    (void)one;
    if (!table || !plugin_wait(plugin, out))
        return;
    if (expect_plugin_ok(out,
                         table->take(plugin->device, plugin->stream, &word),
                         "taking the stream's error"))
        expect(out, word.code == CORE_OK,
               "take of core.stream_error returns %s for a stream without "
               "errors, expected CORE_OK",
               core_status_name(word.code));
}

/* Advertised tables must be complete. */
static void tables_are_complete(suite *self, outcome *out, const test *one)
{
    static const struct {
        const char *name;
        uint32_t slots;
    } tables[] = {
        {"core.timing", 1},
        {"core.host_callback", 1},
        {"core.host_memory", 2},
        {"core.stream_adopt", 2},
        {"core.stream_priority", 2},
        {"core.virtual_memory", 5},
        {"core.peer", 2},
        {"core.graph_capture", 4},
        {"core.device_reset", 1},
        {"core.stream_error", 1},
        {"core.numerics", 1},
        {"core.telemetry", 1},
        {"core.fork_safe", 0},
        {"core.allocator", 3},
        {"core.profiler", 5},
        {"core.layout", 1},
        {"core.ranges", 2},
        {"core.hotplug", 1},
        {"core.ipc", 3},
        {"core.codegen", 4},
    };
    plugin_tables *plugin = plugin_tables_open(self, out);

    (void)one;
    for (size_t i = 0; plugin && i < sizeof tables / sizeof *tables; i++) {
        const char *table = plugin_interface(plugin, tables[i].name);
        uint32_t size;

        if (!table)
            continue;
        memcpy(&size, table, sizeof size);
        if (!expect(out, size >= 8 + 8 * tables[i].slots,
                    "%s has %u bytes, expected %u", tables[i].name, size,
                    8 + 8 * tables[i].slots))
            continue;
        for (uint32_t k = 0; k < tables[i].slots; k++) {
            void *slot;

            memcpy(&slot, table + 8 + 8 * k, sizeof slot);
            expect(out, slot != NULL,
                   "function %u of %s, counted from 1 in backend.h, is NULL",
                   k + 1, tables[i].name);
        }
    }
}

/* The values must be possible, and the same each time. */
static void numerics(suite *self, outcome *out, const test *one)
{
    static const char *const functions[] = {"exp", "mm", "no_such_operator"};
    const uint32_t floats =
        CORE_DTYPE_MASK(CORE_F64) | CORE_DTYPE_MASK(CORE_F32) |
        CORE_DTYPE_MASK(CORE_F16) | CORE_DTYPE_MASK(CORE_BF16);
    plugin_tables *plugin;
    const core_numerics_interface *table =
        need(self, out, "core.numerics", &plugin);
    core_numerics first = {.struct_size = sizeof first}, again = first;

    (void)one;
    if (!table ||
        !expect_plugin_ok(out, table->get(plugin->device, &first),
                          "its numerics") ||
        !expect_plugin_ok(out, table->get(plugin->device, &again),
                          "its numerics"))
        return;
    expect(out, memcmp(&first, &again, sizeof first) == 0,
           "its numerics change between two queries");
    expect(out,
           first.product_bits == 0 ||
               (first.product_bits >= 2 && first.product_bits <= 24),
           "products keep %u bits of an f32, which has 24", first.product_bits);
    expect(out, first.max_ulp >= 0 && first.max_ulp < 1e6,
           "its largest error is %g units", first.max_ulp);
    expect(out, !((first.flushes_denormals | first.narrow_sums) & ~floats),
           "its masks %#x and %#x contain dtypes that are not floating-point",
           first.flushes_denormals, first.narrow_sums);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        core_string name = {functions[i], strlen(functions[i])};
        double ulp = table->struct_size >= sizeof *table && table->function_ulp
                         ? table->function_ulp(plugin->device, name, CORE_F32)
                         : 0;

        expect(out, ulp >= 0 && ulp < 1e6, "the error of %s is %g units",
               functions[i], ulp);
    }
}

static void telemetry(suite *self, outcome *out, const test *one)
{
    enum { MOST = 1000 };
    plugin_tables *plugin;
    const core_telemetry_interface *table =
        need(self, out, "core.telemetry", &plugin);
    core_measurement now = {.struct_size = sizeof now};
    core_status status = CORE_OK;
    uint32_t count = 0;

    (void)one;
    if (!table)
        return;
    for (; count < MOST && status == CORE_OK; count++) {
        now = (core_measurement){.struct_size = sizeof now};
        status = table->read(plugin->device, count, &now);
        if (status == CORE_OK)
            expect(out, now.key.data && now.key.size > 0 && isfinite(now.value),
                   "measurement %u has no name or is not a number", count);
    }
    expect(
        out, status == CORE_ERROR_NOT_FOUND,
        "after %u measurements telemetry returns %s, not CORE_ERROR_NOT_FOUND",
        count, core_status_name(status));
}

bool suite_add_features(suite *self)
{
    static const listed tests[] = {
        {"core/features/tables-are-complete", tables_are_complete, false},
        {"core/features/timing", timing, true},
        {"core/features/timing-matches-host-clock",
         features_timing_matches_host_clock, true},
        {"core/features/host-callback", callbacks, true},
        {"core/features/host-memory", host_memory, true},
        {"core/features/stream-adopt", adoption, true},
        {"core/features/stream-priority", priorities, true},
        {"core/features/virtual-memory", virtual_memory, true},
        {"core/features/peer", peers, true},
        {"core/features/host-memory-blocks-do-not-overlap",
         host_blocks_do_not_overlap, true},
        {"core/features/graph-capture", captures, true},
        {"core/features/destroyed-graph-completes",
         features_destroyed_graph_completes, true},
        {"core/features/capture-records-one-stream",
         features_capture_records_one_stream, true},
        {"core/features/graphs-are-separate", features_graphs_are_separate,
         true},
        {"core/features/pending-graph-launches-again",
         features_pending_graph_launches_again, true},
        {"core/features/graph-launch-is-in-order",
         features_graph_launch_is_in_order, true},
        {"core/features/graph-launches-on-its-stream",
         features_graph_launches_on_its_stream, true},
        {"core/features/capture-can-be-discarded",
         features_capture_can_be_discarded, true},
        {"core/features/stream-error", stream_error, true},
        {"core/features/allocator", features_allocator, true},
        {"core/features/allocator-keeps-order", features_allocator_keeps_order,
         true},
        {"core/features/numerics", numerics, true},
        {"core/features/telemetry", telemetry, true},
        {"core/features/profiler", features_profiler, true},
        {"core/features/layout", features_layout, true},
        {"core/features/hotplug", features_hotplug, true},
        {"core/features/copy-streams", features_copy_streams, true},
        {"core/copy-streams/refuse-kernels",
         features_copy_streams_refuse_kernels, true},
        {"core/ipc/processes-share-memory", features_ipc, true},
        {"core/exports/open-and-end", features_ipc_exports, true},
        {"core/features/registered-host-memory",
         features_registered_host_memory, true},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
