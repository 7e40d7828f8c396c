/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "call_gate.h"

#include "process_state.h"

#include <errno.h>
#include <time.h>

/* A call that takes longer than that, in seconds, waits for the stream. */
static const double PATIENCE = 2;

static bool is_late(const call_gate *self)
{
    return suite_seconds() - self->latest > PATIENCE;
}

static void wait_until_open(void *context)
{
    call_gate *self = context;
    struct timespec until;

    pthread_mutex_lock(&self->lock);
    while (!self->open && !self->expired) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&self->changed, &self->lock, &until);
        self->expired = !self->open && is_late(self);
    }
    self->left = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

static void leave(void *context)
{
    call_gate *self = context;

    pthread_mutex_lock(&self->lock);
    self->left = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

/* Copies that take long, where there are no host callbacks. */
static bool enqueue_copies(call_gate *self, suite *of, core_stream *stream,
                           outcome *out)
{
    enum { COPIES = 16 };
    int64_t size = 64 << 20;
    uint64_t most = of->properties.total_memory / 16;
    uint64_t largest = of->properties.largest_allocation;

    if (most > 0 && most < (uint64_t)size)
        size = (int64_t)most;
    if (largest > 0 && largest < (uint64_t)size)
        size = (int64_t)largest;
    for (int i = 0; i < 2; i++)
        if (!expect_ok(out,
                       core_empty(&size, 1, CORE_U8, of->device,
                                  CORE_FORMAT_CONTIGUOUS, &self->big[i]),
                       "allocating memory"))
            return false;
    for (int i = 0; i < COPIES; i++)
        if (!expect_ok(out,
                       core_tensor_copy(self->big[0], self->big[1],
                                        CORE_COPY_NON_BLOCKING),
                       "copying"))
            return false;
    return expect_ok(out, core_event_create(of->device, 0, &self->event),
                     "creating an event") &&
           expect_ok(out, core_event_record(self->event, stream),
                     "recording an event");
}

bool call_gate_close(call_gate *self, suite *of, core_stream *stream,
                     outcome *out)
{
    core_status status;

    *self = (call_gate){.open = false, .latest = suite_seconds()};
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->changed, NULL);
    status = core_stream_callback(stream, wait_until_open, self, leave);
    if (status == CORE_OK)
        return true;
    self->left = true;
    return status == CORE_ERROR_UNSUPPORTED
               ? enqueue_copies(self, of, stream, out)
               : expect_ok(out, status, "enqueuing a host callback");
}

void call_gate_begin_call(call_gate *self)
{
    pthread_mutex_lock(&self->lock);
    self->latest = suite_seconds();
    pthread_mutex_unlock(&self->lock);
}

bool call_gate_holds(call_gate *self)
{
    bool holds;

    if (self->event)
        return core_event_query(self->event) == CORE_ERROR_BUSY;
    pthread_mutex_lock(&self->lock);
    holds = !self->open && !self->expired && !self->left;
    pthread_mutex_unlock(&self->lock);
    return holds;
}

void call_gate_release(call_gate *self)
{
    pthread_mutex_lock(&self->lock);
    self->open = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

void call_gate_open(call_gate *self)
{
    if (!self->event && call_gate_holds(self)) {
        call_gate_begin_call(self);
        process_settle();
    }
    call_gate_release(self);
}

void call_gate_destroy(call_gate *self)
{
    pthread_mutex_lock(&self->lock);
    while (!self->left)
        pthread_cond_wait(&self->changed, &self->lock);
    pthread_mutex_unlock(&self->lock);
    core_event_release(self->event);
    core_tensor_release(self->big[1]);
    core_tensor_release(self->big[0]);
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->lock);
}
