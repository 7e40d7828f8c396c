/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "stream_gate.h"

#include "process_state.h"

#include <time.h>

static void pause_a_moment(void)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

void stream_gate_init(stream_gate *self)
{
    *self = (stream_gate){.open = false, .latest = suite_seconds()};
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->changed, NULL);
}

static void wait_for_change(stream_gate *self)
{
    struct timespec until;

    if (self->patience <= 0) {
        pthread_cond_wait(&self->changed, &self->lock);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&self->changed, &self->lock, &until);
    self->expired =
        !self->open && suite_seconds() - self->latest > self->patience;
}

static void pass(void *context)
{
    stream_gate *self = context;

    pthread_mutex_lock(&self->lock);
    while (!self->open && !self->expired)
        wait_for_change(self);
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

/* How many copies block a stream for a while, found once per run, and the
 * shortest time that they took after they had been enqueued.  too_fast: they are
 * done when the calls return. */
static gate_measure work;

static bool is_known(void)
{
    if (work.copies == 0)
        work = *slot_watch_gate();
    return work.copies > 0;
}

static bool enqueue_copies(stream_gate *self, void *stream, uint32_t copies,
                           uint64_t size, outcome *out)
{
    plugin_tables *p = self->plugin;

    self->closed = suite_seconds();
    for (uint32_t i = 0; i < copies; i++)
        if (!expect_plugin_ok(out,
                              p->memory.copy(p->device, stream, self->to.memory,
                                             self->from.memory, size),
                              "copy"))
            return false;
    return true;
}

/* Stores the time from the end of enqueuing until the stream has come to rest,
 * and that of enqueuing. */
static bool measure(stream_gate *self, void *stream, uint32_t copies,
                    double *out_seconds, double *out_host, outcome *out)
{
    plugin_tables *p = self->plugin;
    double enqueued;

    if (!enqueue_copies(self, stream, copies, self->from.size, out))
        return false;
    enqueued = suite_seconds();
    if (!expect_plugin_ok(out, p->streams.synchronize(p->device, stream),
                          "synchronizing"))
        return false;
    *out_seconds = suite_seconds() - enqueued;
    *out_host = enqueued - self->closed;
    return true;
}

/* Checks that the stream executes the copies that are enqueued on it: on another
 * they would still run when it has read one byte, unless this thread was kept
 * from running meanwhile. */
static bool copies_use_stream(stream_gate *self, void *stream, uint32_t copies,
                              outcome *out)
{
    plugin_tables *p = self->plugin;
    uint64_t last = self->from.size - 1;
    unsigned char before = 0, after = 1, got = 0;
    core_status status;

    if (!plugin_write(p, out, plugin_block_at(&self->to, last), &before, 1) ||
        !plugin_write(p, out, plugin_block_at(&self->from, last), &after, 1) ||
        !enqueue_copies(self, stream, copies, last, out))
        return false;
    status = p->memory.copy(p->device, stream, plugin_block_at(&self->to, last),
                            plugin_block_at(&self->from, last), 1);
    if (status == CORE_OK)
        status = p->memory.copy_to_host(p->device, stream, &got,
                                        plugin_block_at(&self->to, last), 1);
    if (status == CORE_OK)
        status = p->streams.synchronize(p->device, stream);
    if (!expect_plugin_ok(out, status, "copying and reading a byte"))
        return false;
    if (expect(out, got == after,
               "a copy was not done when the stream that it was enqueued on "
               "had read its last byte and synchronize had returned"))
        return true;
    /* It may still run: the blocks are never freed. */
    self->from.size = self->to.size = 0;
    return false;
}

static bool calibrate(stream_gate *self, void *stream, outcome *out)
{
    const double enough = .2, least = .02, patience = 1;
    double seconds = 0, host = 0, again, before;
    uint32_t copies = 1;

    if (!copies_use_stream(self, stream, 4, out))
        return false;
    for (; copies < MOST_COPIES; copies *= 2) {
        before = seconds;
        if (!measure(self, stream, copies, &seconds, &host, out))
            return false;
        if (seconds >= enough || host > patience)
            break;
        /* A pause in synchronize takes as long for many copies as for few. */
        if (before >= least && seconds < before * 1.3 &&
            !copies_use_stream(self, stream, copies, out))
            return false;
    }
    for (int i = 0; i < 2 && seconds >= least; i++) {
        if (!measure(self, stream, copies, &again, &host, out))
            return false;
        seconds = again < seconds ? again : seconds;
    }
    /* What a device without host callbacks does wrong must not pass for speed: on
     * a busy machine the first check may have seen nothing. */
    for (uint32_t many = 8; many <= 64 && seconds < least; many *= 2)
        if (!copies_use_stream(self, stream, many, out))
            return false;
    work.too_fast = seconds < least;
    work.copies = copies;
    work.seconds = seconds;
    *slot_watch_gate() = work;
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
    if (expect_plugin_ok(out, p->events.record(p->device, *event, stream),
                         "recording an event")) {
        self->nevents++;
        return true;
    }
    p->events.destroy(p->device, *event);
    return false;
}

/* How many copies take that many seconds, or block a stream for a while. */
static uint32_t copies_for(double seconds)
{
    double times = seconds / work.seconds;

    return times > 1 ? (uint32_t)(work.copies * (times + 1)) : work.copies;
}

static bool block_with_copies(stream_gate *self, void *stream, outcome *out)
{
    uint64_t size = self->plugin->properties.total_memory / 16;
    uint64_t largest = self->plugin->properties.largest_allocation;
    bool ready;

    size = size == 0 || size > BLOCK ? BLOCK : size;
    size = largest > 0 && size > largest ? largest : size;
    if (self->from.size > 0) {
        harness_error(out, "a gate is closed twice");
        return false;
    }
    ready = (is_known() && work.too_fast) ||
            (plugin_alloc(self->plugin, out, size, &self->from) &&
             plugin_alloc(self->plugin, out, size, &self->to) &&
             (is_known() || calibrate(self, stream, out)));
    if (work.too_fast)
        not_supported(out, "the device has no core.host_callback, and its "
                           "copies are done when the call returns");
    return ready && !work.too_fast &&
           enqueue_copies(self, stream, copies_for(self->least),
                          self->from.size, out) &&
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

    if (plugin->synchronous) {
        not_supported(out, "the device is synchronous");
        return false;
    }
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

void stream_gate_begin_call(stream_gate *self)
{
    pthread_mutex_lock(&self->lock);
    self->latest = suite_seconds();
    pthread_mutex_unlock(&self->lock);
}

bool stream_gate_expired(stream_gate *self)
{
    bool expired;

    pthread_mutex_lock(&self->lock);
    expired = self->expired;
    pthread_mutex_unlock(&self->lock);
    return expired;
}

bool stream_gate_holds(stream_gate *self)
{
    bool open;

    /* Copies do not become ten times as fast. */
    if (self->plugin)
        return suite_seconds() - self->closed < work.seconds / 10 ||
               complete_events(self) == 0;
    pthread_mutex_lock(&self->lock);
    open = self->open || self->expired;
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

uint32_t stream_gate_overtaken(stream_gate *self, stream_gate *behind,
                               bool *out_observed)
{
    enum { LOOKS = 5 };
    uint32_t passed, dropped, looks = 0;

    *out_observed = true;
    if (!self->plugin) {
        process_settle();
        stream_gate_counts(behind, &passed, &dropped);
        return passed;
    }
    /* Only if the gate still blocks afterwards was it overtaken. */
    for (;; looks++) {
        pause_a_moment();
        stream_gate_counts(behind, &passed, &dropped);
        if (!stream_gate_holds(self))
            break;
        if (passed > 0)
            return passed;
    }
    *out_observed = looks >= LOOKS;
    return 0;
}

bool stream_gate_wait(stream_gate *self, uint32_t count)
{
    struct timespec end;
    bool reached;
    double begin = suite_seconds();

    if (self->plugin) {
        while (complete_events(self) < count && suite_seconds() - begin < 20)
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

/* -------------------------------------------------------- repeated checks -- */

bool stream_gate_repeat(gated_check *check, suite *self, outcome *out)
{
    bool observed = false;

    for (int i = 0; !observed && i < STREAM_GATE_TRIES; i++)
        observed = check(self, out) || out->verdict != VERDICT_PASS;
    return observed;
}

void stream_gate_test(gated_check *check, suite *self, outcome *out)
{
    if (!stream_gate_repeat(check, self, out))
        not_supported(out, "the device has no core.host_callback, and long "
                           "copies ended before the test had looked");
}
