/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: synchronize of a stream and of an event returns after the work, not
 * after a pause.  The work outlasts what the call takes if there is none. */

#include "stream_gate.h"

#include <pthread.h>
#include <time.h>

typedef struct waiting {
    plugin_tables *plugin;
    void *event; /* NULL: the stream is waited for */
    core_status status;
    pthread_mutex_t lock;
    bool returned;
} waiting;

static void *wait_for_work(void *context)
{
    waiting *self = context;
    plugin_tables *p = self->plugin;
    core_status status = self->event
                             ? p->events.synchronize(p->device, self->event)
                             : p->streams.synchronize(p->device, p->stream);

    pthread_mutex_lock(&self->lock);
    self->status = status;
    self->returned = true;
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

static bool has_returned(waiting *self)
{
    bool returned;

    pthread_mutex_lock(&self->lock);
    returned = self->returned;
    pthread_mutex_unlock(&self->lock);
    return returned;
}

/* Stores what the call takes, in seconds, if there is nothing to wait for: the
 * longer of two calls. */
static bool measure_idle(waiting *self, double *out_seconds, outcome *out)
{
    *out_seconds = 0;
    for (int i = 0; i < 2; i++) {
        double begin = suite_seconds(), seconds;

        self->returned = false;
        wait_for_work(self);
        if (!expect_plugin_ok(out, self->status, "synchronizing"))
            return false;
        seconds = suite_seconds() - begin;
        *out_seconds = seconds > *out_seconds ? seconds : *out_seconds;
    }
    self->returned = false;
    return true;
}

/* A host callback blocks the stream until the call has returned, or for a time in
 * which a pause would have ended. */
static void wait_beside(waiting *self, stream_gate *gate, double seconds,
                        outcome *out)
{
    double begin = suite_seconds();
    pthread_t thread;
    bool early = false;

    if (pthread_create(&thread, NULL, wait_for_work, self) != 0) {
        harness_error(out, "a thread cannot be started");
        return;
    }
    while (!early && suite_seconds() - begin < seconds) {
        nanosleep(&(struct timespec){0, 2000000}, NULL);
        early = has_returned(self);
    }
    stream_gate_open(gate);
    pthread_join(thread, NULL);
    expect(out, !early, "synchronizing %s returns before its work is done",
           self->event ? "an event" : "a stream");
    expect_plugin_ok(out, self->status, "synchronizing");
}

static bool behind_gate(suite *self, bool of_event, outcome *out)
{
    const double shortest = .3;
    plugin_tables *p = plugin_tables_open(self, out);
    waiting work = {.plugin = p};
    stream_gate gate;
    double idle = 0;
    bool held = false;

    if (!p)
        return false;
    if (p->synchronous) {
        not_supported(out, "the device is synchronous");
        return false;
    }
    pthread_mutex_init(&work.lock, NULL);
    stream_gate_init(&gate);
    if (of_event &&
        (!expect_plugin_ok(out, p->events.create(p->device, 0, &work.event),
                           "creating an event") ||
         !expect_plugin_ok(out,
                           p->events.record(p->device, work.event, p->stream),
                           "recording an event")))
        goto done;
    if (!measure_idle(&work, &idle, out))
        goto done;
    gate.least = 3 * idle;
    if (!stream_gate_close(&gate, p, p->stream, out) ||
        (of_event &&
         !expect_plugin_ok(out,
                           p->events.record(p->device, work.event, p->stream),
                           "recording an event")))
        goto done;
    held = stream_gate_holds(&gate);
    if (plugin_interface(p, "core.host_callback")) {
        wait_beside(&work, &gate, gate.least > shortest ? gate.least : shortest,
                    out);
        goto done;
    }
    /* Long copies end by themselves, later than that. */
    wait_for_work(&work);
    expect(out, !stream_gate_holds(&gate),
           "synchronizing %s returns before its work is done",
           of_event ? "an event" : "a stream");
    expect_plugin_ok(out, work.status, "synchronizing");
done:
    stream_gate_open(&gate);
    plugin_wait(p, out);
    if (work.event)
        p->events.destroy(p->device, work.event);
    stream_gate_destroy(&gate);
    pthread_mutex_destroy(&work.lock);
    return held;
}

static bool stream_behind_gate(suite *self, outcome *out)
{
    return behind_gate(self, false, out);
}

static bool event_behind_gate(suite *self, outcome *out)
{
    return behind_gate(self, true, out);
}

static void stream_waits(suite *self, outcome *out, const test *one)
{
    (void)one;
    stream_gate_test(stream_behind_gate, self, out);
}

static void event_waits(suite *self, outcome *out, const test *one)
{
    (void)one;
    stream_gate_test(event_behind_gate, self, out);
}

bool suite_add_synchronize(suite *self)
{
    static const listed tests[] = {
        {"core/streams/synchronize-does-not-pause", stream_waits, true},
        {"core/events/synchronize-waits", event_waits, true},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
