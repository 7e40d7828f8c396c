/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: what waits for what, between streams, events and host callbacks.
 * A gate blocks a stream (stream_gate.h). */

#include "stream_gate.h"

#include "plugin_tables.h"
#include "process_state.h"

#include <stdlib.h>
#include <string.h>

enum { STREAMS = 3, BYTES = 4096 };

/* Streams, of which the first waits at a closed gate. */
typedef struct bench {
    plugin_tables *plugin;
    outcome *out;
    void *streams[STREAMS];
    void *event;
    plugin_block a, b;
    stream_gate gate;
    stream_gate behind; /* open; counts the streams that come to it */
} bench;

static bool make(bench *self, suite *of, uint32_t streams)
{
    plugin_tables *p = self->plugin = plugin_tables_open(of, self->out);

    if (!p || !plugin_has_streams(p, streams, self->out))
        return false;
    for (uint32_t i = 0; i < streams; i++)
        if (!expect_plugin_ok(
                self->out, p->streams.create(p->device, 0, &self->streams[i]),
                "creating a stream"))
            return false;
    return expect_plugin_ok(self->out,
                            p->events.create(p->device, 0, &self->event),
                            "creating an event") &&
           plugin_alloc(p, self->out, BYTES, &self->a) &&
           plugin_alloc(p, self->out, BYTES, &self->b);
}

static bool begin(bench *self, suite *of, uint32_t streams, outcome *out)
{
    memset(self, 0, sizeof *self);
    self->out = out;
    stream_gate_init(&self->gate);
    stream_gate_init(&self->behind);
    stream_gate_open(&self->behind);
    return make(self, of, streams);
}

static void end(bench *self)
{
    plugin_tables *p = self->plugin;

    stream_gate_open(&self->gate);
    for (int i = 0; p && i < STREAMS; i++)
        if (self->streams[i]) {
            p->streams.synchronize(p->device, self->streams[i]);
            p->streams.destroy(p->device, self->streams[i]);
        }
    if (p && self->event)
        p->events.destroy(p->device, self->event);
    if (p) {
        plugin_free(p, &self->a);
        plugin_free(p, &self->b);
    }
    stream_gate_destroy(&self->gate);
    stream_gate_destroy(&self->behind);
}

static bool close_gate(bench *self)
{
    return stream_gate_close(&self->gate, self->plugin, self->streams[0],
                             self->out);
}

static bool record(bench *self, void *stream)
{
    plugin_tables *p = self->plugin;

    return expect_plugin_ok(self->out,
                            p->events.record(p->device, self->event, stream),
                            "recording an event");
}

/* Makes a stream wait for the event, and counts when it goes on. */
static bool wait_behind(bench *self, void *stream)
{
    plugin_tables *p = self->plugin;

    return expect_plugin_ok(
               self->out, p->streams.wait_event(p->device, stream, self->event),
               "waiting for an event") &&
           stream_gate_close(&self->behind, p, stream, self->out);
}

/* A missing wait shows; then the gate opens, and all go on. */
static bool expect_held(bench *self, uint32_t streams, const char *what)
{
    bool observed;
    uint32_t passed =
        stream_gate_overtaken(&self->gate, &self->behind, &observed);

    expect(self->out, passed == 0, "%s: %u of %u streams did not wait", what,
           passed, streams);
    stream_gate_open(&self->gate);
    expect(self->out, stream_gate_wait(&self->behind, streams),
           "%s: a stream still waits though the event is complete", what);
    return observed;
}

/* Two streams, one of them twice. */
static bool wait_three_times(suite *self, outcome *out)
{
    bool observed = false;
    bench b;

    if (begin(&b, self, 3, out) && close_gate(&b) && record(&b, b.streams[0]) &&
        wait_behind(&b, b.streams[1]) && wait_behind(&b, b.streams[2]) &&
        wait_behind(&b, b.streams[1]))
        observed = expect_held(&b, 3, "two streams wait for one event");
    end(&b);
    return observed;
}

static void every_waiter_waits(suite *self, outcome *out, const test *one)
{
    (void)one;
    stream_gate_test(wait_three_times, self, out);
}

/* An event that was complete is pending again when it is recorded again. */
static bool wait_for_rerecorded(suite *self, outcome *out)
{
    bool observed = false;
    plugin_tables *p;
    bench b;

    if (!begin(&b, self, 2, out))
        goto done;
    p = b.plugin;
    if (!record(&b, b.streams[0]) ||
        !expect_plugin_ok(out, p->events.synchronize(p->device, b.event),
                          "synchronizing an event") ||
        !expect_plugin_ok(out, p->events.query(p->device, b.event),
                          "query of a complete event") ||
        !close_gate(&b) || !record(&b, b.streams[0]))
        goto done;
    expect(out,
           p->events.query(p->device, b.event) == CORE_ERROR_BUSY ||
               !stream_gate_holds(&b.gate),
           "an event that is recorded again behind pending work is not BUSY");
    if (wait_behind(&b, b.streams[1]))
        observed =
            expect_held(&b, 1, "an event is recorded again, then waited for");
done:
    end(&b);
    return observed;
}

static void waits_use_latest_record(suite *self, outcome *out, const test *one)
{
    (void)one;
    stream_gate_test(wait_for_rerecorded, self, out);
}

static bool wait_for_destroyed(suite *self, outcome *out)
{
    bool observed = false;
    bench b;

    if (begin(&b, self, 2, out) && close_gate(&b) && record(&b, b.streams[0]) &&
        wait_behind(&b, b.streams[1])) {
        b.plugin->events.destroy(b.plugin->device, b.event);
        b.event = NULL;
        observed = expect_held(
            &b, 1, "an event is destroyed while a stream waits for it");
    }
    end(&b);
    return observed;
}

static void destroyed_event_keeps_waiters(suite *self, outcome *out,
                                          const test *one)
{
    (void)one;
    stream_gate_test(wait_for_destroyed, self, out);
}

/* ------------------------------------------------------------- streams -- */

/* Drivers often make small copies in another way. */
static const uint64_t copy_sizes[] = {BYTES, 1, 4, 16, 64};
static uint64_t copied; /* one of them */

static bool all_are(bench *self, const plugin_block *block, int byte,
                    const char *what)
{
    unsigned char got[BYTES];

    if (!plugin_read(self->plugin, self->out, got, block->memory, copied))
        return false;
    for (uint64_t i = 0; i < copied; i++)
        if (!expect(self->out, got[i] == byte,
                    "%s, %llu bytes each: byte %llu is %d, expected %d", what,
                    (unsigned long long)copied, (unsigned long long)i, got[i],
                    byte))
            return false;
    return true;
}

/* On the blocked stream: a = 2; b = a; a = 3; a = 4 from the host. */
static bool enqueue_copies(bench *self, const unsigned char *fours)
{
    plugin_tables *p = self->plugin;
    void *on = self->streams[0];

    return expect_plugin_ok(
               self->out,
               p->memory.fill(p->device, on, self->a.memory, copied, 2, 1),
               "fill") &&
           expect_plugin_ok(self->out,
                            p->memory.copy(p->device, on, self->b.memory,
                                           self->a.memory, copied),
                            "copy") &&
           expect_plugin_ok(
               self->out,
               p->memory.fill(p->device, on, self->a.memory, copied, 3, 1),
               "fill") &&
           expect_plugin_ok(self->out,
                            p->memory.copy_from_host(
                                p->device, on, self->a.memory, fours, copied),
                            "copy_from_host");
}

/* Work that ran on another stream would not see what the stream did before, or
 * the stream would overwrite it. */
static bool copy_behind_gate(suite *self, outcome *out)
{
    unsigned char ones[BYTES], fours[BYTES];
    plugin_tables *p;
    bool held = false;
    bench b;

    memset(ones, 1, sizeof ones);
    memset(fours, 4, sizeof fours);
    if (!begin(&b, self, 1, out))
        goto done;
    p = b.plugin;
    if (!plugin_write(p, out, b.a.memory, ones, BYTES) ||
        !plugin_write(p, out, b.b.memory, ones, BYTES) || !close_gate(&b) ||
        !enqueue_copies(&b, fours))
        goto done;
    if (plugin_interface(p, "core.host_callback"))
        process_settle();
    held = stream_gate_holds(&b.gate);
    stream_gate_open(&b.gate);
    if (expect_plugin_ok(out, p->streams.synchronize(p->device, b.streams[0]),
                         "synchronizing") &&
        all_are(&b, &b.b, 2,
                "copy, behind a fill with 2 and before one with 3 on its "
                "stream"))
        all_are(&b, &b.a, 4,
                "copy_from_host of 4, behind a fill with 3 on its stream");
done:
    end(&b);
    return held;
}

static void copies_use_their_stream(suite *self, outcome *out, const test *one)
{
    (void)one;
    for (size_t i = 0; i < sizeof copy_sizes / sizeof *copy_sizes &&
                       out->verdict == VERDICT_PASS;
         i++) {
        copied = copy_sizes[i];
        stream_gate_test(copy_behind_gate, self, out);
    }
}

static void unknown_flags_are_refused(suite *self, outcome *out,
                                      const test *one)
{
    plugin_tables *plugin = plugin_tables_open(self, out);
    void *stream = NULL;
    core_status status;

    (void)one;
    if (!plugin || !plugin_reserve_streams(plugin, 1, out))
        return;
    plugin_last_error()->count = 0;
    status = plugin->streams.create(plugin->device, 1u << 30, &stream);
    if (status == CORE_OK)
        plugin->streams.destroy(plugin->device, stream);
    expect_plugin_error(out, status, CORE_ERROR_UNSUPPORTED,
                        "creating a stream with an undefined flag");
    plugin_restore_stream(plugin, out);
}

/* ----------------------------------------------------------- callbacks -- */

enum { CALLBACKS = 6 };

/* Callbacks note their number in the order in which they run. */
typedef struct notes {
    _Atomic uint32_t count;
    _Atomic uint32_t order[CALLBACKS];
} notes;

typedef struct numbered {
    notes *to;
    uint32_t number;
} numbered;

static void note(void *context)
{
    numbered *self = context;
    uint32_t at = atomic_fetch_add(&self->to->count, 1);

    if (at < CALLBACKS)
        atomic_store(&self->to->order[at], self->number);
}

static void callbacks_are_in_order(suite *self, outcome *out, const test *one)
{
    static notes seen;
    static numbered callbacks[CALLBACKS];
    const core_host_callback_interface *table;
    plugin_tables *p;
    bench b;

    (void)one;
    memset(&seen, 0, sizeof seen);
    if (!begin(&b, self, 1, out))
        goto done;
    p = b.plugin;
    table = plugin_interface(p, "core.host_callback");
    if (!table)
        not_supported(out, "it has no core.host_callback");
    if (!table || !close_gate(&b))
        goto done;
    for (uint32_t i = 0; i < CALLBACKS; i++) {
        callbacks[i] = (numbered){&seen, i};
        if (!expect_plugin_ok(out,
                              table->enqueue(p->device, b.streams[0], note,
                                             &callbacks[i], NULL),
                              "enqueuing a host callback"))
            goto done;
    }
    process_settle();
    expect(out, seen.count == 0,
           "a host callback ran before an earlier one of its stream returned");
    stream_gate_open(&b.gate);
    p->streams.synchronize(p->device, b.streams[0]);
    expect(out, seen.count == CALLBACKS,
           "of %d host callbacks %u ran before synchronize returned", CALLBACKS,
           seen.count);
    for (uint32_t i = 0; i < CALLBACKS; i++)
        expect(out, seen.order[i] == i,
               "of %d host callbacks, number %u ran at place %u", CALLBACKS,
               seen.order[i], i);
done:
    end(&b);
}

/* A wait for an event of the same stream changes nothing: the order is that of
 * the stream. */
static void own_event(suite *self, outcome *out, const test *one)
{
    plugin_tables *p = plugin_tables_open(self, out);
    void *event = NULL;

    (void)one;
    if (!p)
        return;
    if (p->synchronous) {
        not_supported(out, "it has no streams");
        return;
    }
    if (!expect_plugin_ok(out, p->events.create(p->device, 0, &event),
                          "creating an event"))
        return;
    if (expect_plugin_ok(out, p->events.record(p->device, event, p->stream),
                         "recording an event") &&
        expect_plugin_ok(
            out, p->streams.wait_event(p->device, p->stream, event),
            "a stream that waits for an event that it has recorded itself"))
        plugin_wait(p, out);
    p->events.destroy(p->device, event);
}

bool suite_add_waits(suite *self)
{
    static const listed tests[] = {
        {"core/streams/copies-use-their-stream", copies_use_their_stream, true},
        {"core/events/stream-waits-for-its-own-event", own_event, true},
        {"core/streams/unknown-flags-are-refused", unknown_flags_are_refused,
         true},
        {"core/events/every-waiter-waits", every_waiter_waits, true},
        {"core/events/waits-use-latest-record", waits_use_latest_record, true},
        {"core/events/destroyed-event-keeps-waiters",
         destroyed_event_keeps_waiters, true},
        {"core/features/callbacks-are-in-order", callbacks_are_in_order, true},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
