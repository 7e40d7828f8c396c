/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: the device's functions from other threads than the one that opened
 * it. */

#include "stream_gate.h"

#include <pthread.h>
#include <string.h>

enum { BYTES = 1024 };

typedef struct visit {
    plugin_tables *plugin;
    outcome *out;
    plugin_block made; /* by the main thread */
    void *stream;      /* blocked by the main thread; NULL: none */
    void *event;
    stream_gate gate; /* that blocks it */
    bool observed;    /* while the gate held */
} visit;

/* Work that the main thread enqueued is pending for every thread. */
static void *query_from_here(void *context)
{
    visit *self = context;
    plugin_tables *p = self->plugin;
    bool stream_busy =
        p->streams.query(p->device, self->stream) == CORE_ERROR_BUSY;
    bool event_busy =
        p->events.query(p->device, self->event) == CORE_ERROR_BUSY;
    bool held = stream_gate_holds(&self->gate);

    expect(self->out, stream_busy || !held,
           "a stream with pending work is not BUSY in another thread than the "
           "one that created it");
    expect(self->out, event_busy || !held,
           "an event behind pending work is not BUSY in another thread than "
           "the one that recorded it");
    self->observed = held || (stream_busy && event_busy);
    return NULL;
}

static void *visit_device(void *context)
{
    visit *self = context;
    plugin_tables *p = self->plugin;
    unsigned char wrote[BYTES], got[BYTES] = {0};
    plugin_block own = {{0}, 0};
    void *stream = NULL;

    memset(wrote, 5, sizeof wrote);
    if (p->synchronous || p->properties.max_streams != 0 ||
        expect_plugin_ok(self->out, p->streams.create(p->device, 0, &stream),
                         "creating a stream in another thread")) {
        if (plugin_alloc(p, self->out, BYTES, &own) &&
            plugin_write(p, self->out, own.memory, wrote, BYTES) &&
            expect_plugin_ok(self->out,
                             p->memory.copy(p->device, p->stream,
                                            self->made.memory, own.memory,
                                            BYTES),
                             "copy in another thread") &&
            plugin_read(p, self->out, got, self->made.memory, BYTES))
            expect(self->out, memcmp(got, wrote, BYTES) == 0,
                   "copies in another thread than the one that opened the "
                   "device: byte 0 is %d, expected 5",
                   got[0]);
    }
    if (stream)
        p->streams.destroy(p->device, stream);
    plugin_free(p, &own);
    return NULL;
}

static void in_another_thread(void *(*run)(void *), visit *work)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, run, work) != 0)
        harness_error(work->out, "no thread");
    else
        pthread_join(thread, NULL);
}

/* Only queries: other functions may wait for a blocked stream. */
static bool query_in_thread(suite *self, outcome *out)
{
    plugin_tables *p = plugin_tables_open(self, out);
    visit work = {.plugin = p, .out = out};

    if (!p || !plugin_has_streams(p, 1, out))
        return false;
    stream_gate_init(&work.gate);
    if (expect_plugin_ok(out, p->streams.create(p->device, 0, &work.stream),
                         "creating a stream") &&
        expect_plugin_ok(out, p->events.create(p->device, 0, &work.event),
                         "creating an event") &&
        stream_gate_close(&work.gate, p, work.stream, out) &&
        expect_plugin_ok(out,
                         p->events.record(p->device, work.event, work.stream),
                         "recording an event"))
        in_another_thread(query_from_here, &work);
    stream_gate_open(&work.gate);
    if (work.stream) {
        p->streams.synchronize(p->device, work.stream);
        p->streams.destroy(p->device, work.stream);
    }
    if (work.event)
        p->events.destroy(p->device, work.event);
    stream_gate_destroy(&work.gate);
    return work.observed;
}

static void queries_work_in_any_thread(suite *self, outcome *out,
                                       const test *one)
{
    (void)one;
    stream_gate_test(query_in_thread, self, out);
}

static void any_thread(suite *self, outcome *out, const test *one)
{
    plugin_tables *p = plugin_tables_open(self, out);
    visit work = {.plugin = p, .out = out};

    (void)one;
    if (!p)
        return;
    if (plugin_alloc(p, out, BYTES, &work.made))
        in_another_thread(visit_device, &work);
    plugin_free(p, &work.made);
}

bool suite_add_any_thread(suite *self)
{
    static const listed tests[] = {
        {"core/device/works-in-any-thread", any_thread, false},
        {"core/events/queries-work-in-any-thread", queries_work_in_any_thread,
         true},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
