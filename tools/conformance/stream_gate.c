/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "stream_gate.h"

#include "process_state.h"

#include <time.h>

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void pause_a_moment(void)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

void stream_gate_init(stream_gate *self)
{
    *self = (stream_gate){.open = false};
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->changed, NULL);
}

static void pass(void *context)
{
    stream_gate *self = context;

    pthread_mutex_lock(&self->lock);
    while (!self->open)
        pthread_cond_wait(&self->changed, &self->lock);
    self->passed++;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

static void drop(void *context)
{
    stream_gate *self = context;

    pthread_mutex_lock(&self->lock);
    self->dropped++;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

/* ------------------------------------------------------------ long copies -- */

enum { BLOCK = 64 << 20, MOST_COPIES = 1 << 14 };

/* How many copies block a stream for a while, found once per process, and the
 * shortest time that they took after they had been enqueued. */
static struct {
    uint32_t copies;
    double seconds;
} work;

static bool enqueue_copies(stream_gate *self, void *stream, uint32_t copies,
                           outcome *out)
{
    plugin_tables *p = self->plugin;

    for (uint32_t i = 0; i < copies; i++)
        if (!expect_plugin_ok(out,
                              p->memory.copy(p->device, stream, self->to.memory,
                                             self->from.memory,
                                             self->from.size),
                              "copy"))
            return false;
    self->closed = now();
    return true;
}

/* Stores the time from the end of enqueuing until the stream has come to rest,
 * and that of enqueuing. */
static bool measure(stream_gate *self, void *stream, uint32_t copies,
                    double *out_seconds, double *out_host, outcome *out)
{
    plugin_tables *p = self->plugin;
    double begin = now();

    if (!enqueue_copies(self, stream, copies, out) ||
        !expect_plugin_ok(out, p->streams.synchronize(p->device, stream),
                          "synchronizing"))
        return false;
    *out_seconds = now() - self->closed;
    *out_host = self->closed - begin;
    return true;
}

static bool calibrate(stream_gate *self, void *stream, outcome *out)
{
    const double enough = .2, least = .02, patience = 1;
    double seconds = 0, host = 0, again;
    uint32_t copies = 1;

    for (; copies < MOST_COPIES; copies *= 2) {
        if (!measure(self, stream, copies, &seconds, &host, out))
            return false;
        if (seconds >= enough || host > patience)
            break;
    }
    for (int i = 0; i < 2; i++) {
        if (!measure(self, stream, copies, &again, &host, out))
            return false;
        seconds = again < seconds ? again : seconds;
    }
    if (seconds < least) {
        not_supported(out, "the device has no core.host_callback, and its "
                           "copies are done when the call returns");
        return false;
    }
    work.copies = copies;
    work.seconds = seconds;
    return true;
}

/* Records an event; the stream has passed it when it is complete. */
static bool mark(stream_gate *self, void *stream, outcome *out)
{
    plugin_tables *p = self->plugin;
    void **event = &self->events[self->nevents];

    if (self->nevents == STREAM_GATE_EVENTS) {
        harness_error(out, "a gate has too few events");
        return false;
    }
    if (!expect_plugin_ok(out, p->events.create(p->device, 0, event),
                          "creating an event"))
        return false;
    self->nevents++;
    return expect_plugin_ok(out, p->events.record(p->device, *event, stream),
                            "recording an event");
}

static bool block_with_copies(stream_gate *self, void *stream, outcome *out)
{
    uint64_t size = self->plugin->properties.total_memory / 16;
    uint64_t largest = self->plugin->properties.largest_allocation;

    size = size == 0 || size > BLOCK ? BLOCK : size;
    size = largest > 0 && size > largest ? largest : size;
    if (self->from.size > 0)
        harness_error(out, "a gate is closed twice");
    return self->from.size == 0 &&
           plugin_alloc(self->plugin, out, size, &self->from) &&
           plugin_alloc(self->plugin, out, size, &self->to) &&
           (work.copies > 0 || calibrate(self, stream, out)) &&
           enqueue_copies(self, stream, work.copies, out) &&
           mark(self, stream, out);
}

static uint32_t complete_events(const stream_gate *self)
{
    plugin_tables *p = self->plugin;
    uint32_t count = 0;

    for (uint32_t i = 0; i < self->nevents; i++)
        count += p->events.query(p->device, self->events[i]) == CORE_OK;
    return count;
}

static void free_copies(stream_gate *self)
{
    plugin_tables *p = self->plugin;

    for (uint32_t i = 0; i < self->nevents; i++) {
        p->events.synchronize(p->device, self->events[i]);
        p->events.destroy(p->device, self->events[i]);
    }
    plugin_free(p, &self->from);
    plugin_free(p, &self->to);
}

/* ---------------------------------------------------------------- the gate -- */

bool stream_gate_close(stream_gate *self, plugin_tables *plugin, void *stream,
                       outcome *out)
{
    const core_host_callback_interface *callbacks =
        plugin_interface(plugin, "core.host_callback");

    if (callbacks)
        return expect_plugin_ok(
            out, callbacks->enqueue(plugin->device, stream, pass, self, drop),
            "enqueuing a host callback");
    self->plugin = plugin;
    return self->open ? mark(self, stream, out)
                      : block_with_copies(self, stream, out);
}

void stream_gate_open(stream_gate *self)
{
    pthread_mutex_lock(&self->lock);
    self->open = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

bool stream_gate_holds(stream_gate *self)
{
    bool open;

    /* Copies do not become ten times as fast. */
    if (self->plugin)
        return now() - self->closed < work.seconds / 10 ||
               complete_events(self) == 0;
    pthread_mutex_lock(&self->lock);
    open = self->open;
    pthread_mutex_unlock(&self->lock);
    return !open;
}

void stream_gate_counts(stream_gate *self, uint32_t *out_passed,
                        uint32_t *out_dropped)
{
    pthread_mutex_lock(&self->lock);
    *out_passed = self->plugin ? complete_events(self) : self->passed;
    *out_dropped = self->dropped;
    pthread_mutex_unlock(&self->lock);
}

uint32_t stream_gate_overtaken(stream_gate *self, stream_gate *behind)
{
    uint32_t passed, dropped;

    if (!self->plugin) {
        process_settle();
        stream_gate_counts(behind, &passed, &dropped);
        return passed;
    }
    /* Only if the gate still blocks afterwards was it overtaken. */
    do {
        pause_a_moment();
        stream_gate_counts(behind, &passed, &dropped);
        if (passed > 0 && stream_gate_holds(self))
            return passed;
    } while (stream_gate_holds(self));
    return 0;
}

bool stream_gate_wait(stream_gate *self, uint32_t count)
{
    struct timespec end;
    bool reached;
    double begin = now();

    if (self->plugin) {
        while (complete_events(self) < count && now() - begin < 20)
            pause_a_moment();
        return complete_events(self) >= count;
    }
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 20;
    pthread_mutex_lock(&self->lock);
    while (self->passed + self->dropped < count &&
           pthread_cond_timedwait(&self->changed, &self->lock, &end) == 0)
        ;
    reached = self->passed + self->dropped >= count;
    pthread_mutex_unlock(&self->lock);
    return reached;
}

void stream_gate_destroy(stream_gate *self)
{
    if (self->plugin)
        free_copies(self);
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->lock);
}
