/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: streams and events, on the plugin's own tables.  Where the
 * device has host callbacks, a gate holds streams up, and nothing here depends
 * on time; elsewhere long copies stand for it, and prove less. */

#include "stream_gate.h"
#include "process_state.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BIG = 1 << 20 };

/* Three blocks and two streams; everything zero where it is not made. */
typedef struct bench {
    raw *plugin;
    raw_block a, b, c;
    void *first, *second;
    void *event;
    gate gate;
    bool gated;
    bool lent; /* first is the plugin's: the device has no more */
} bench;

static bool make_streams(bench *self, uint32_t streams, outcome *out)
{
    raw *plugin = self->plugin;

    if (self->lent)
        self->first = plugin->stream;
    else if (!raw_ok(out,
                     plugin->streams.create(plugin->device, 0, &self->first),
                     "creating a stream"))
        return false;
    return streams < 2 ||
           raw_ok(out, plugin->streams.create(plugin->device, 0, &self->second),
                  "creating a stream");
}

/* With so many streams.  A device that has just those gives the plugin's as
 * one of them. */
static bool bench_begin(bench *self, suite *of, uint32_t streams, outcome *out)
{
    raw *plugin;

    memset(self, 0, sizeof *self);
    gate_begin(&self->gate);
    plugin = self->plugin = raw_open(of, out);
    if (!plugin)
        return false;
    self->lent =
        !plugin->synchronous && plugin->properties.max_streams == streams;
    if (!self->lent && !raw_streams(plugin, streams, out))
        return false;
    self->gated = raw_interface(plugin, "core.host_callback") != NULL;
    return raw_alloc(plugin, out, BIG, &self->a) &&
           raw_alloc(plugin, out, BIG, &self->b) &&
           raw_alloc(plugin, out, BIG, &self->c) &&
           make_streams(self, streams, out) &&
           raw_ok(out, plugin->events.create(plugin->device, 0, &self->event),
                  "creating an event");
}

static void bench_end(bench *self)
{
    raw *plugin = self->plugin;

    gate_open(&self->gate);
    if (plugin && self->first)
        plugin->streams.synchronize(plugin->device, self->first);
    if (plugin && self->second)
        plugin->streams.synchronize(plugin->device, self->second);
    if (plugin && self->event)
        plugin->events.destroy(plugin->device, self->event);
    if (plugin && self->first && !self->lent)
        plugin->streams.destroy(plugin->device, self->first);
    if (plugin && self->second)
        plugin->streams.destroy(plugin->device, self->second);
    if (plugin) {
        raw_free(plugin, &self->a);
        raw_free(plugin, &self->b);
        raw_free(plugin, &self->c);
    }
    gate_end(&self->gate);
}

static core_status set(bench *self, void *stream, const raw_block *to,
                       const unsigned char *bytes)
{
    return self->plugin->memory.copy_from_host(self->plugin->device, stream,
                                               to->memory, bytes, BIG);
}

static core_status move(bench *self, void *stream, const raw_block *to,
                        const raw_block *from)
{
    return self->plugin->memory.copy(self->plugin->device, stream, to->memory,
                                     from->memory, BIG);
}

/* All bytes of a block are this one. */
static void holds(bench *self, outcome *out, const raw_block *block, int byte,
                  const char *what)
{
    unsigned char *got = malloc(BIG);

    if (!got) {
        harness_error(out, "no memory");
        return;
    }
    if (raw_read(self->plugin, out, got, block->memory, BIG))
        for (size_t i = 0; i < BIG; i++)
            if (!expect(out, got[i] == byte, "%s: byte %zu is %d, not %d", what,
                        i, got[i], byte))
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

/* What is read must be what was written before, not after. */
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
    if (!raw_ok(out, status, "copies on a stream") ||
        !raw_ok(out,
                bench.plugin->streams.synchronize(bench.plugin->device,
                                                  bench.first),
                "synchronizing"))
        goto done;
    holds(&bench, out, &bench.b, 1, "a copy before a change saw the change");
    holds(&bench, out, &bench.c, 2, "a copy after a change did not see it");
done:
    bench_end(&bench);
    free(ones);
    free(twos);
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
        if (!raw_ok(out, status, "copies on a stream") ||
            !raw_ok(out,
                    bench.plugin->streams.synchronize(bench.plugin->device,
                                                      bench.first),
                    "synchronizing") ||
            !raw_ok(
                out,
                bench.plugin->streams.query(bench.plugin->device, bench.first),
                "query after synchronize"))
            goto done;
        holds(&bench, out, &bench.c, round,
              "synchronize returns before the work is done");
    }
done:
    bench_end(&bench);
    free(ones);
}

/* Work that cannot be done yet is BUSY, and CORE_OK once it is done. */
static void query_tells(suite *self, outcome *out, const test *one)
{
    bench bench;
    raw *plugin;

    (void)one;
    if (!bench_begin(&bench, self, 1, out))
        goto done;
    plugin = bench.plugin;
    if (!bench.gated) {
        not_supported(out, "without host callbacks it cannot be seen");
        goto done;
    }
    if (!gate_close(&bench.gate, plugin, bench.first, out) ||
        !raw_ok(out,
                plugin->events.record(plugin->device, bench.event, bench.first),
                "recording an event"))
        goto done;
    expect(out,
           plugin->streams.query(plugin->device, bench.first) ==
               CORE_ERROR_BUSY,
           "a stream with work to do is not BUSY");
    expect(out,
           plugin->events.query(plugin->device, bench.event) == CORE_ERROR_BUSY,
           "an event behind work to do is not BUSY");
    gate_open(&bench.gate);
    raw_ok(out, plugin->events.synchronize(plugin->device, bench.event),
           "synchronizing the event");
    raw_ok(out, plugin->streams.synchronize(plugin->device, bench.first),
           "synchronizing the stream");
    raw_ok(out, plugin->events.query(plugin->device, bench.event),
           "query of an event that is done");
done:
    bench_end(&bench);
}

/* An event stands for the work of before, not for that which came later. */
static void event_snapshots(suite *self, outcome *out, const test *one)
{
    bench bench;
    raw *plugin;
    core_status status = CORE_ERROR_BUSY;

    (void)one;
    if (!bench_begin(&bench, self, 1, out))
        goto done;
    plugin = bench.plugin;
    if (!bench.gated) {
        not_supported(out, "without host callbacks it cannot be seen");
        goto done;
    }
    if (!raw_ok(out, move(&bench, bench.first, &bench.b, &bench.a), "copy") ||
        !raw_ok(out,
                plugin->events.record(plugin->device, bench.event, bench.first),
                "recording an event") ||
        !gate_close(&bench.gate, plugin, bench.first, out))
        goto done;
    /* The copy before it ends by itself. */
    for (int i = 0; i < 5000 && status == CORE_ERROR_BUSY; i++) {
        status = plugin->events.query(plugin->device, bench.event);
        if (status == CORE_ERROR_BUSY)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    expect(out, status == CORE_OK,
           "an event waits for work that came after it was recorded");
done:
    bench_end(&bench);
}

/* A stream waits for what the event stood for when it was told to, though the
 * event is recorded again elsewhere. */
static void earlier_waiters_keep(suite *self, outcome *out, const test *one)
{
    bench bench;
    raw *plugin;
    gate behind;
    uint32_t passed, dropped;

    (void)one;
    gate_begin(&behind);
    gate_open(&behind);
    if (!bench_begin(&bench, self, 2, out))
        goto done;
    plugin = bench.plugin;
    if (bench.lent) {
        not_supported(out, "it takes a third stream");
        goto done;
    }
    if (!bench.gated) {
        not_supported(out, "without host callbacks it cannot be seen");
        goto done;
    }
    if (!gate_close(&bench.gate, plugin, bench.first, out) ||
        !raw_ok(out,
                plugin->events.record(plugin->device, bench.event, bench.first),
                "recording an event") ||
        !raw_ok(out,
                plugin->streams.wait_event(plugin->device, bench.second,
                                           bench.event),
                "waiting for the event") ||
        !gate_close(&behind, plugin, bench.second, out) ||
        !raw_ok(
            out,
            plugin->events.record(plugin->device, bench.event, plugin->stream),
            "recording the event again") ||
        !raw_ok(out, plugin->events.synchronize(plugin->device, bench.event),
                "synchronizing the event"))
        goto done;
    /* Time for a wait that is none to be found out; one that is stays. */
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    gate_counts(&behind, &passed, &dropped);
    expect(out,
           passed == 0 && plugin->streams.query(plugin->device, bench.second) ==
                              CORE_ERROR_BUSY,
           "recording an event again frees those who wait for the former");
    gate_open(&bench.gate);
    expect(out, gate_wait(&behind, 1),
           "a stream still waits though its event has come");
done:
    bench_end(&bench);
    gate_end(&behind);
}

static void wait_event_holds(suite *self, outcome *out, const test *one)
{
    bench bench;
    raw *plugin;
    gate behind;
    uint32_t passed, dropped;

    (void)one;
    gate_begin(&behind);
    gate_open(&behind);
    if (!bench_begin(&bench, self, 2, out))
        goto done;
    plugin = bench.plugin;
    if (!bench.gated) {
        not_supported(out, "without host callbacks it cannot be seen");
        goto done;
    }
    if (!gate_close(&bench.gate, plugin, bench.first, out) ||
        !raw_ok(out,
                plugin->events.record(plugin->device, bench.event, bench.first),
                "recording an event") ||
        !raw_ok(out,
                plugin->streams.wait_event(plugin->device, bench.second,
                                           bench.event),
                "waiting for the event") ||
        !gate_close(&behind, plugin, bench.second, out))
        goto done;
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    gate_counts(&behind, &passed, &dropped);
    expect(out, passed == 0,
           "a stream does not wait for the event it was told "
           "to wait for");
    gate_open(&bench.gate);
    expect(out, gate_wait(&behind, 1),
           "a stream still waits though its event has come");
done:
    bench_end(&bench);
    gate_end(&behind);
}

/* Without a gate: data goes from one stream to the other. */
static void events_order_streams(suite *self, outcome *out, const test *one)
{
    bench bench;
    raw *plugin;
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
        if (!raw_ok(out, status, "two streams and an event"))
            break;
        holds(&bench, out, &bench.c, round,
              "a stream does not wait for its event");
    }
done:
    bench_end(&bench);
    free(bytes);
}

static void destroy_waits_for_nothing(suite *self, outcome *out,
                                      const test *one)
{
    bench bench;
    raw *plugin;
    uint32_t passed = 0, dropped = 0;

    (void)one;
    if (!bench_begin(&bench, self, 1, out))
        goto done;
    plugin = bench.plugin;
    if (!bench.gated) {
        not_supported(out, "without host callbacks it cannot be seen");
        goto done;
    }
    if (!gate_close(&bench.gate, plugin, bench.first, out) ||
        !raw_ok(out,
                plugin->events.record(plugin->device, bench.event, bench.first),
                "recording an event"))
        goto done;
    plugin->streams.destroy(plugin->device, bench.first);
    bench.first = NULL;
    if (bench.lent)
        plugin->stream = NULL;
    gate_open(&bench.gate);
    raw_ok(out, plugin->events.synchronize(plugin->device, bench.event),
           "an event of a stream that was destroyed");
    expect(out, gate_wait(&bench.gate, 1),
           "the work of a stream that was destroyed was not done");
    gate_counts(&bench.gate, &passed, &dropped);
    expect(out, passed == 1 && dropped == 0,
           "a callback ran %u times and was dropped %u times", passed, dropped);
done:
    bench_end(&bench);
    if (bench.plugin)
        raw_take_back(bench.plugin, out);
}

static bool come_and_go(raw *plugin, int rounds, outcome *out)
{
    for (int i = 0; i < rounds; i++) {
        void *stream = NULL, *event = NULL;

        if (!raw_ok(out, plugin->streams.create(plugin->device, 0, &stream),
                    "creating a stream") ||
            !raw_ok(out, plugin->events.create(plugin->device, 0, &event),
                    "creating an event") ||
            !raw_ok(out, plugin->events.record(plugin->device, event, stream),
                    "recording an event") ||
            !raw_ok(out, plugin->events.synchronize(plugin->device, event),
                    "synchronizing an event"))
            return false;
        plugin->events.destroy(plugin->device, event);
        plugin->streams.destroy(plugin->device, stream);
    }
    return true;
}

static void many_come_and_go(suite *self, outcome *out, const test *one)
{
    enum { ROUNDS = 100, TIMES = 4 };
    raw *plugin = raw_open(self, out);
    bool grows = true;

    (void)one;
    if (plugin && !raw_make_room(plugin, 1, out))
        return;
    for (int i = 0; plugin && grows && i < TIMES; i++) {
        uint64_t heap = manners_heap();

        if (!come_and_go(plugin, ROUNDS, out))
            break;
        grows = !manners_heap_below(heap + ROUNDS * 16);
    }
    if (plugin)
        raw_take_back(plugin, out);
    expect(out, !plugin || !grows,
           "every %d streams and events leave more on the host's heap", ROUNDS);
}

/* Every slot tells of objects, not of the thread that made them. */
static void unknown_flags_are_refused(suite *self, outcome *out,
                                      const test *one)
{
    raw *plugin = raw_open(self, out);
    void *event = NULL;
    core_status status;

    (void)one;
    if (plugin && plugin->synchronous) {
        not_supported(out, "the device is synchronous");
        return;
    }
    if (!plugin)
        return;
    raw_last_error()->count = 0;
    status = plugin->events.create(plugin->device, 1u << 30, &event);
    if (status == CORE_OK)
        plugin->events.destroy(plugin->device, event);
    raw_fails(out, status, CORE_ERROR_UNSUPPORTED,
              "creating an event with a flag that nobody knows");
}

bool suite_add_streams(suite *self)
{
    static const listed tests[] = {
        {"core/streams/work-is-in-order", work_is_in_order, true},
        {"core/streams/synchronize-waits", synchronize_waits, true},
        {"core/streams/destroy-waits-for-nothing", destroy_waits_for_nothing,
         true},
        {"core/streams/many-come-and-go", many_come_and_go, true},
        {"core/events/query-tells", query_tells, true},
        {"core/events/stand-for-what-was-before", event_snapshots, true},
        {"core/events/recording-again-frees-nobody", earlier_waiters_keep,
         true},
        {"core/events/hold-a-stream", wait_event_holds, true},
        {"core/events/order-two-streams", events_order_streams, true},
        {"core/events/unknown-flags-are-refused", unknown_flags_are_refused,
         true},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
