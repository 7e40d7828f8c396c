/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "stream_gate.h"

#include <time.h>

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

bool stream_gate_close(stream_gate *self, plugin_tables *plugin, void *stream,
                       outcome *out)
{
    const core_host_callback_interface *callbacks =
        plugin_interface(plugin, "core.host_callback");

    if (!callbacks)
        return false;
    return expect_plugin_ok(
        out, callbacks->enqueue(plugin->device, stream, pass, self, drop),
        "enqueuing a host callback");
}

void stream_gate_open(stream_gate *self)
{
    pthread_mutex_lock(&self->lock);
    self->open = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

void stream_gate_counts(stream_gate *self, uint32_t *out_passed,
                        uint32_t *out_dropped)
{
    pthread_mutex_lock(&self->lock);
    *out_passed = self->passed;
    *out_dropped = self->dropped;
    pthread_mutex_unlock(&self->lock);
}

bool stream_gate_wait(stream_gate *self, uint32_t count)
{
    struct timespec end;
    bool reached;

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
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->lock);
}
