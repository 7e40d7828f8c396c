/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: streams and events on the plugin's own tables.  A gate blocks
 * streams (stream_gate.h). */

#include "stream_gate.h"

#include "process_state.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BIG = 1 << 20 };

/* Three blocks and two streams; zero where not created. */
typedef struct bench {
    plugin_tables *plugin;
    plugin_block a, b, c;
    void *first, *second;
    void *event;
    stream_gate gate;
    bool is_plugins; /* first is the plugin's stream: the device has no more */
} bench;

static bool make_streams(bench *self, uint32_t streams, outcome *out)
{
    plugin_tables *plugin = self->plugin;

    if (self->is_plugins)
        self->first = plugin->stream;
    else if (!expect_plugin_ok(
                 out, plugin->streams.create(plugin->device, 0, &self->first),
                 "creating a stream"))
        return false;
    return streams < 2 ||
           expect_plugin_ok(
               out, plugin->streams.create(plugin->device, 0, &self->second),
               "creating a stream");
}

/* Prepares so many streams.  If the device has no more than that, the plugin's
 * stream is one of them. */
static bool bench_begin(bench *self, suite *of, uint32_t streams, outcome *out)
{
    plugin_tables *plugin;

    memset(self, 0, sizeof *self);
    stream_gate_init(&self->gate);
    plugin = self->plugin = plugin_tables_open(of, out);
    if (!plugin)
        return false;
    self->is_plugins =
        !plugin->synchronous && plugin->properties.max_streams == streams;
    if (!self->is_plugins && !plugin_has_streams(plugin, streams, out))
        return false;
    return plugin_alloc(plugin, out, BIG, &self->a) &&
           plugin_alloc(plugin, out, BIG, &self->b) &&
           plugin_alloc(plugin, out, BIG, &self->c) &&
           make_streams(self, streams, out) &&
           expect_plugin_ok(
               out, plugin->events.create(plugin->device, 0, &self->event),
               "creating an event");
}

/* Prepares a stream that waits at the closed gate, with the event recorded
 * behind it. */
static bool bench_begin_gated(bench *self, suite *of, outcome *out)
{
    plugin_tables *plugin;

    if (!bench_begin(self, of, 1, out))
        return false;
    plugin = self->plugin;
    return stream_gate_close(&self->gate, plugin, self->first, out) &&
           expect_plugin_ok(
               out,
               plugin->events.record(plugin->device, self->event, self->first),
               "recording an event");
}

static void bench_end(bench *self)
{
    plugin_tables *plugin = self->plugin;

    stream_gate_open(&self->gate);
    if (plugin && self->first)
        plugin->streams.synchronize(plugin->device, self->first);
    if (plugin && self->second)
        plugin->streams.synchronize(plugin->device, self->second);
    if (plugin && self->event)
        plugin->events.destroy(plugin->device, self->event);
    if (plugin && self->first && !self->is_plugins)
        plugin->streams.destroy(plugin->device, self->first);
    if (plugin && self->second)
        plugin->streams.destroy(plugin->device, self->second);
    if (plugin) {
        plugin_free(plugin, &self->a);
        plugin_free(plugin, &self->b);
        plugin_free(plugin, &self->c);
    }
    stream_gate_destroy(&self->gate);
}

static core_status set(bench *self, void *stream, const plugin_block *to,
                       const unsigned char *bytes)
{
    return self->plugin->memory.copy_from_host(self->plugin->device, stream,
                                               to->memory, bytes, BIG);
}

static core_status move(bench *self, void *stream, const plugin_block *to,
                        const plugin_block *from)
{
    return self->plugin->memory.copy(self->plugin->device, stream, to->memory,
                                     from->memory, BIG);
}

/* Checks that all bytes of a block have this value. */
static void holds(bench *self, outcome *out, const plugin_block *block,
                  int byte, const char *what)
{
    unsigned char *got = malloc(BIG);

    if (!got) {
        harness_error(out, "no memory");
        return;
    }
    if (plugin_read(self->plugin, out, got, block->memory, BIG))
        for (size_t i = 0; i < BIG; i++)
            if (!expect(out, got[i] == byte, "%s: byte %zu is %d, expected %d",
                        what, i, got[i], byte))
                break;
    free(got);
}

static unsigned char *bytes_of(int byte, outcome *out)
{
    unsigned char *bytes = malloc(BIG);

    if (bytes)
        memset(bytes, byte, BIG);
    else
        harness_error(out, "no memory");
    return bytes;
}

/* A read must return the data of earlier writes only. */
static void work_is_in_order(suite *self, outcome *out, const test *one)
{
    bench bench;
    unsigned char *ones = bytes_of(1, out), *twos = bytes_of(2, out);
    core_status status = CORE_OK;

    (void)one;
    if (!bench_begin(&bench, self, 1, out) || !ones || !twos)
        goto done;
    for (int round = 0; round < 20 && status == CORE_OK; round++) {
        status = set(&bench, bench.first, &bench.a, ones);
        if (status == CORE_OK)
            status = move(&bench, bench.first, &bench.b, &bench.a);
        if (status == CORE_OK)
            status = set(&bench, bench.first, &bench.a, twos);
        if (status == CORE_OK)
            status = move(&bench, bench.first, &bench.c, &bench.a);
    }
    if (!expect_plugin_ok(out, status, "copies on a stream") ||
        !expect_plugin_ok(out,
                          bench.plugin->streams.synchronize(
                              bench.plugin->device, bench.first),
                          "synchronizing"))
        goto done;
    holds(&bench, out, &bench.b, 1, "a copy before a change saw the change");
    holds(&bench, out, &bench.c, 2, "a copy after a change did not see it");
done:
    bench_end(&bench);
    free(ones);
    free(twos);
}

static bool is_idle(const bench *of, outcome *out)
{
    plugin_tables *p = of->plugin;
    core_status status = p->streams.query(p->device, of->first);

    return expect(out, status != CORE_ERROR_BUSY,
                  "synchronize of a stream returns before the work is done: "
                  "query of the stream is BUSY") &&
           expect_plugin_ok(out, status, "query after synchronize");
}

static void synchronize_waits(suite *self, outcome *out, const test *one)
{
    bench bench;
    unsigned char *ones = bytes_of(1, out);
    core_status status;

    (void)one;
    if (!bench_begin(&bench, self, 1, out) || !ones)
        goto done;
    for (int round = 0; round < 20; round++) {
        memset(ones, round, BIG);
        status = set(&bench, bench.first, &bench.a, ones);
        for (int i = 0; i < 4 && status == CORE_OK; i++)
            status = move(&bench, bench.first, i % 2 ? &bench.c : &bench.b,
                          i % 2 ? &bench.b : &bench.a);
        if (!expect_plugin_ok(out, status, "copies on a stream") ||
            !expect_plugin_ok(out,
                              bench.plugin->streams.synchronize(
                                  bench.plugin->device, bench.first),
                              "synchronizing") ||
            !is_idle(&bench, out))
            goto done;
        holds(&bench, out, &bench.c, round,
              "synchronize returns before the work is done");
    }
done:
    bench_end(&bench);
    free(ones);
}

/* Pending work is BUSY, and CORE_OK once it is done. */
static bool query_while_pending(suite *self, outcome *out)
{
    bench bench;
    plugin_tables *plugin;
    bool stream_busy, event_busy, held = false;

    if (!bench_begin_gated(&bench, self, out))
        goto done;
    plugin = bench.plugin;
    stream_busy =
        plugin->streams.query(plugin->device, bench.first) == CORE_ERROR_BUSY;
    event_busy =
        plugin->events.query(plugin->device, bench.event) == CORE_ERROR_BUSY;
    held = stream_gate_holds(&bench.gate);
    expect(out, stream_busy || !held, "a stream with pending work is not BUSY");
    expect(out, event_busy || !held,
           "an event behind pending work is not BUSY");
    held = held || (stream_busy && event_busy);
    stream_gate_open(&bench.gate);
    expect_plugin_ok(out,
                     plugin->events.synchronize(plugin->device, bench.event),
                     "synchronizing the event");
    expect_plugin_ok(out,
                     plugin->streams.synchronize(plugin->device, bench.first),
                     "synchronizing the stream");
    expect_plugin_ok(out, plugin->events.query(plugin->device, bench.event),
                     "query of a completed event");
done:
    bench_end(&bench);
    return held;
}

static void query_reports_completion(suite *self, outcome *out, const test *one)
{
    (void)one;
    stream_gate_test(query_while_pending, self, out);
}

/* Returns false if the event was not seen to complete before work that was
 * enqueued after it. */
static bool event_before_gate(suite *self, outcome *out)
{
    bench bench;
    plugin_tables *plugin;
    core_status status = CORE_ERROR_BUSY;
    bool held = true;

    if (!bench_begin(&bench, self, 1, out))
        goto done;
    plugin = bench.plugin;
    if (!expect_plugin_ok(out, move(&bench, bench.first, &bench.b, &bench.a),
                          "copy") ||
        !expect_plugin_ok(
            out,
            plugin->events.record(plugin->device, bench.event, bench.first),
            "recording an event") ||
        !stream_gate_close(&bench.gate, plugin, bench.first, out))
        goto done;
    /* The copy before it completes by itself. */
    for (int i = 0; i < 5000 && status == CORE_ERROR_BUSY && held; i++) {
        status = plugin->events.query(plugin->device, bench.event);
        held = stream_gate_holds(&bench.gate);
        if (status == CORE_ERROR_BUSY)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    expect(out, status == CORE_OK || !held,
           "an event waits for work that was enqueued after it was recorded");
done:
    bench_end(&bench);
    return held;
}

/* An event covers the work before it, not the work after it. */
static void event_snapshots_at_record(suite *self, outcome *out,
                                      const test *one)
{
    (void)one;
    expect(
        out, stream_gate_repeat(event_before_gate, self, out),
        "%d times an event was complete only when the work was done that was "
        "enqueued after it was recorded",
        STREAM_GATE_TRIES);
}

/* A stream waits for what the event covered at the time of the wait, even if
 * the event is recorded again elsewhere. */
static bool wait_and_rerecord(suite *self, outcome *out)
{
    bench bench;
    plugin_tables *plugin;
    stream_gate behind;
    bool observed = false;

    stream_gate_init(&behind);
    stream_gate_open(&behind);
    if (!bench_begin(&bench, self, 2, out))
        goto done;
    plugin = bench.plugin;
    if (bench.is_plugins) {
        not_supported(out, "this needs a third stream");
        goto done;
    }
    if (!stream_gate_close(&bench.gate, plugin, bench.first, out) ||
        !expect_plugin_ok(
            out,
            plugin->events.record(plugin->device, bench.event, bench.first),
            "recording an event") ||
        !expect_plugin_ok(out,
                          plugin->streams.wait_event(plugin->device,
                                                     bench.second, bench.event),
                          "waiting for the event") ||
        !stream_gate_close(&behind, plugin, bench.second, out) ||
        !expect_plugin_ok(
            out,
            plugin->events.record(plugin->device, bench.event, plugin->stream),
            "recording the event again") ||
        !expect_plugin_ok(
            out, plugin->events.synchronize(plugin->device, bench.event),
            "synchronizing the event"))
        goto done;
    /* A missing wait shows; a real one lasts longer. */
    expect(out,
           stream_gate_overtaken(&bench.gate, &behind, &observed) == 0 &&
               (plugin->streams.query(plugin->device, bench.second) ==
                    CORE_ERROR_BUSY ||
                !stream_gate_holds(&bench.gate)),
           "recording an event again releases the streams that wait for its "
           "earlier record");
    stream_gate_open(&bench.gate);
    expect(out, stream_gate_wait(&behind, 1),
           "a stream still waits though its event is complete");
done:
    bench_end(&bench);
    stream_gate_destroy(&behind);
    return observed;
}

static void rerecord_keeps_earlier_waits(suite *self, outcome *out,
                                         const test *one)
{
    (void)one;
    stream_gate_test(wait_and_rerecord, self, out);
}

/* Returns false if the work before the event was done when wait_event
 * returned. */
static bool wait_returns_at_once(suite *self, outcome *out)
{
    bench bench;
    plugin_tables *plugin;
    bool held = true;

    if (bench_begin(&bench, self, 2, out)) {
        plugin = bench.plugin;
        if (stream_gate_close(&bench.gate, plugin, bench.first, out) &&
            expect_plugin_ok(
                out,
                plugin->events.record(plugin->device, bench.event, bench.first),
                "recording an event") &&
            expect_plugin_ok(out,
                             plugin->streams.wait_event(
                                 plugin->device, bench.second, bench.event),
                             "waiting for the event"))
            held = stream_gate_holds(&bench.gate);
    }
    bench_end(&bench);
    return held;
}

static bool wait_behind_gate(suite *self, outcome *out)
{
    bench bench;
    plugin_tables *plugin;
    stream_gate behind;
    bool observed = false;

    stream_gate_init(&behind);
    stream_gate_open(&behind);
    if (!bench_begin(&bench, self, 2, out))
        goto done;
    plugin = bench.plugin;
    if (!stream_gate_close(&bench.gate, plugin, bench.first, out) ||
        !expect_plugin_ok(
            out,
            plugin->events.record(plugin->device, bench.event, bench.first),
            "recording an event") ||
        !expect_plugin_ok(out,
                          plugin->streams.wait_event(plugin->device,
                                                     bench.second, bench.event),
                          "waiting for the event") ||
        !stream_gate_close(&behind, plugin, bench.second, out))
        goto done;
    expect(out, stream_gate_overtaken(&bench.gate, &behind, &observed) == 0,
           "a stream does not wait for the event");
    stream_gate_open(&bench.gate);
    expect(out, stream_gate_wait(&behind, 1),
           "a stream still waits though its event is complete");
done:
    bench_end(&bench);
    stream_gate_destroy(&behind);
    return observed;
}

static void wait_blocks_stream(suite *self, outcome *out, const test *one)
{
    (void)one;
    if (!stream_gate_repeat(wait_behind_gate, self, out) &&
        expect(out, stream_gate_repeat(wait_returns_at_once, self, out),
               "%d times the work before an event was done when wait_event "
               "returned: it must not block the host",
               STREAM_GATE_TRIES))
        stream_gate_test(wait_behind_gate, self, out);
}

/* Without a gate: data pass from one stream to the other. */
static void events_order_streams(suite *self, outcome *out, const test *one)
{
    bench bench;
    plugin_tables *plugin;
    unsigned char *bytes = bytes_of(0, out);
    core_status status = CORE_OK;

    (void)one;
    if (!bench_begin(&bench, self, 2, out) || !bytes)
        goto done;
    plugin = bench.plugin;
    for (int round = 1; round <= 20 && out->verdict == VERDICT_PASS; round++) {
        memset(bytes, round, BIG);
        status = set(&bench, bench.first, &bench.a, bytes);
        if (status == CORE_OK)
            status = move(&bench, bench.first, &bench.b, &bench.a);
        if (status == CORE_OK)
            status =
                plugin->events.record(plugin->device, bench.event, bench.first);
        if (status == CORE_OK)
            status = plugin->streams.wait_event(plugin->device, bench.second,
                                                bench.event);
        if (status == CORE_OK)
            status = move(&bench, bench.second, &bench.c, &bench.b);
        if (status == CORE_OK)
            status = plugin->streams.synchronize(plugin->device, bench.second);
        if (!expect_plugin_ok(out, status, "two streams and an event"))
            break;
        holds(&bench, out, &bench.c, round,
              "a stream does not wait for its event");
    }
done:
    bench_end(&bench);
    free(bytes);
}

/* Work behind the gate, and the event behind it. */
static bool enqueue_last(bench *self, outcome *out)
{
    plugin_tables *p = self->plugin;

    return expect_plugin_ok(out,
                            p->memory.fill(p->device, self->first,
                                           self->b.memory, BIG, 5, 1),
                            "fill") &&
           expect_plugin_ok(out, move(self, self->first, &self->c, &self->b),
                            "copy") &&
           expect_plugin_ok(
               out, p->events.record(p->device, self->event, self->first),
               "recording an event again");
}

/* Returns false if the work was done when destroy returned. */
static bool destroy_while_busy(suite *self, outcome *out)
{
    bench bench;
    plugin_tables *plugin;
    uint32_t passed = 0, dropped = 0;
    bool held = true;

    if (!bench_begin_gated(&bench, self, out))
        goto done;
    plugin = bench.plugin;
    if (!enqueue_last(&bench, out))
        goto done;
    plugin->streams.destroy(plugin->device, bench.first);
    held = stream_gate_holds(&bench.gate);
    bench.first = NULL;
    if (bench.is_plugins)
        plugin->stream = NULL;
    stream_gate_open(&bench.gate);
    expect_plugin_ok(out,
                     plugin->events.synchronize(plugin->device, bench.event),
                     "an event of a stream that was destroyed");
    expect(out, stream_gate_wait(&bench.gate, 1),
           "the work of a destroyed stream was not done");
    stream_gate_counts(&bench.gate, &passed, &dropped);
    expect(out, passed == 1 && dropped == 0,
           "a callback ran %u times and was dropped %u times", passed, dropped);
    if (plugin_restore_stream(plugin, out))
        holds(&bench, out, &bench.c, 5,
              "a copy that was enqueued before its stream was destroyed");
done:
    bench_end(&bench);
    if (bench.plugin)
        plugin_restore_stream(bench.plugin, out);
    return held;
}

static void destroy_does_not_wait(suite *self, outcome *out, const test *one)
{
    (void)one;
    expect(out, stream_gate_repeat(destroy_while_busy, self, out),
           "%d times the work of a stream was done when destroy returned",
           STREAM_GATE_TRIES);
}

static bool create_and_destroy(plugin_tables *plugin, int rounds, outcome *out)
{
    for (int i = 0; i < rounds; i++) {
        void *stream = NULL, *event = NULL;

        if (!expect_plugin_ok(
                out, plugin->streams.create(plugin->device, 0, &stream),
                "creating a stream") ||
            !expect_plugin_ok(out,
                              plugin->events.create(plugin->device, 0, &event),
                              "creating an event") ||
            !expect_plugin_ok(
                out, plugin->events.record(plugin->device, event, stream),
                "recording an event") ||
            !expect_plugin_ok(out,
                              plugin->events.synchronize(plugin->device, event),
                              "synchronizing an event"))
            return false;
        plugin->events.destroy(plugin->device, event);
        plugin->streams.destroy(plugin->device, stream);
    }
    return true;
}

static void create_and_destroy_many(suite *self, outcome *out, const test *one)
{
    enum { ROUNDS = 100, TIMES = 4 };
    plugin_tables *plugin = plugin_tables_open(self, out);
    bool grows = true;

    (void)one;
    if (plugin && !plugin_reserve_streams(plugin, 1, out))
        return;
    for (int i = 0; plugin && grows && i < TIMES; i++) {
        uint64_t heap = process_heap();

        if (!create_and_destroy(plugin, ROUNDS, out))
            break;
        grows = !process_heap_below(heap + ROUNDS * 16);
    }
    if (plugin)
        plugin_restore_stream(plugin, out);
    expect(out, !plugin || !grows,
           "every %d streams and events leak on the host's heap", ROUNDS);
}

static void unknown_flags_are_refused(suite *self, outcome *out,
                                      const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);
    void *event = NULL;
    core_status status;

    (void)one;
    if (plugin && plugin->synchronous) {
        not_supported(out, "the device is synchronous");
        return;
    }
    if (!plugin)
        return;
    plugin_last_error()->count = 0;
    status = plugin->events.create(plugin->device, 1u << 30, &event);
    if (status == CORE_OK)
        plugin->events.destroy(plugin->device, event);
    expect_plugin_error(out, status, CORE_ERROR_UNSUPPORTED,
                        "creating an event with an undefined flag");
}

bool suite_add_streams(suite *self)
{
    static const listed tests[] = {
        /* First: all other tests wait by it. */
        {"core/streams/synchronize-waits", synchronize_waits, true},
        {"core/streams/work-is-in-order", work_is_in_order, true},
        {"core/streams/destroy-does-not-wait", destroy_does_not_wait, true},
        {"core/streams/create-and-destroy-many", create_and_destroy_many, true},
        {"core/events/query-reports-completion", query_reports_completion,
         true},
        {"core/events/event-snapshots-at-record", event_snapshots_at_record,
         true},
        {"core/events/rerecord-keeps-earlier-waits",
         rerecord_keeps_earlier_waits, true},
        {"core/events/wait-blocks-stream", wait_blocks_stream, true},
        {"core/events/order-two-streams", events_order_streams, true},
        {"core/events/unknown-flags-are-refused", unknown_flags_are_refused,
         true},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
