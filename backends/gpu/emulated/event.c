/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* event.c: an event refers to the mark of its latest record; a waiter keeps a
 * reference to the mark that was current when it started to wait. */

#include "work.h"

#include <stdlib.h>
#include <time.h>

typedef struct mark {
    int references, done;
    int sleeping; /* of a GPU_EVENT_SLEEPING */
    int64_t at;   /* nanoseconds */
} mark;

typedef struct event {
    held held; /* first */
    int kind;
    mark *newest;
} event;

/* These are called under the lock. */
static void release(mark *m)
{
    if (m != NULL && --m->references == 0)
        free(m);
}

static void end_mark(work *w, context *device)
{
    mark *m = w->u.object;
    struct timespec time;

    device->sleeping -= m->sleeping;
    clock_gettime(CLOCK_MONOTONIC, &time);
    m->at = time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
    m->done = 1;
    release(m);
}

static void end_wait(work *w, context *device)
{
    (void)device;
    release(w->u.object);
}

static int run_mark(work *w, context *device)
{
    (void)w;
    (void)device;
    return 0;
}

static int run_wait(work *w, context *device)
{
    mark *m = w->u.object;

    pthread_mutex_lock(&gpu_emulated_lock);
    while (!m->done && !device->lost)
        pthread_cond_wait(&gpu_emulated_changed, &gpu_emulated_lock);
    pthread_mutex_unlock(&gpu_emulated_lock);
    return 0;
}

int gpu_emulated_event_create(void *device, int kind, void **out_event)
{
    context *c = device;
    event *e;

    *out_event = NULL;
    if (gpu_emulated_in_host_function())
        return EMULATED_REFUSED;
    e = calloc(1, sizeof *e);
    if (e == NULL)
        return EMULATED_OUT_OF_MEMORY;
    e->kind = kind;
    gpu_emulated_wait_for_copies();
    pthread_mutex_lock(&gpu_emulated_lock);
    gpu_emulated_list_add(&c->events, &e->held);
    pthread_mutex_unlock(&gpu_emulated_lock);
    *out_event = e;
    return 0;
}

void gpu_emulated_events_free(context *c)
{
    while (c->events != NULL) {
        event *e = (event *)(void *)c->events;

        gpu_emulated_list_remove(&e->held);
        release(e->newest);
        free(e);
    }
}

int gpu_emulated_event_destroy(void *device, void *opaque)
{
    event *e = opaque;

    (void)device;
    if (gpu_emulated_in_host_function())
        return EMULATED_REFUSED;
    gpu_emulated_wait_for_copies();
    pthread_mutex_lock(&gpu_emulated_lock);
    gpu_emulated_list_remove(&e->held);
    release(e->newest);
    pthread_mutex_unlock(&gpu_emulated_lock);
    free(e);
    return 0;
}

int gpu_emulated_event_record(void *device, void *opaque, void *on)
{
    context *c = device;
    event *e = opaque;
    mark *m = calloc(1, sizeof *m);
    work *w = gpu_emulated_work(run_mark, 0);
    const char *most = getenv("GPUEMU_SLEEPING");

    if (m == NULL || w == NULL) {
        free(m);
        free(w);
        return EMULATED_OUT_OF_MEMORY;
    }
    m->references = 2; /* the event's and the work's */
    w->u.object = m;
    w->end = end_mark;
    m->sleeping = e->kind == GPU_EVENT_SLEEPING;
    pthread_mutex_lock(&gpu_emulated_lock);
    while (m->sleeping && most != NULL && c->sleeping >= atoi(most) && !c->lost)
        pthread_cond_wait(&gpu_emulated_changed, &gpu_emulated_lock);
    c->sleeping += m->sleeping;
    release(e->newest);
    e->newest = m;
    pthread_mutex_unlock(&gpu_emulated_lock);
    return gpu_emulated_submit(device, on, w);
}

int gpu_emulated_stream_wait(void *device, void *on, void *opaque)
{
    event *e = opaque;
    work *w = gpu_emulated_work(run_wait, 0);

    if (w == NULL)
        return EMULATED_OUT_OF_MEMORY;
    w->end = end_wait;
    pthread_mutex_lock(&gpu_emulated_lock);
    w->u.object = e->newest;
    e->newest->references++;
    pthread_mutex_unlock(&gpu_emulated_lock);
    return gpu_emulated_submit(device, on, w);
}

int gpu_emulated_event_query(void *device, void *opaque)
{
    context *c = device;
    event *e = opaque;
    int code;

    if (gpu_emulated_in_host_function())
        return EMULATED_REFUSED;
    pthread_mutex_lock(&gpu_emulated_lock);
    code = c->lost ? c->lost : e->newest->done ? 0 : GPU_BUSY;
    pthread_mutex_unlock(&gpu_emulated_lock);
    return code;
}

int gpu_emulated_event_synchronize(void *device, void *opaque)
{
    context *c = device;
    event *e = opaque;
    int code;

    if (gpu_emulated_in_host_function())
        return EMULATED_REFUSED;
    pthread_mutex_lock(&gpu_emulated_lock);
    while (!e->newest->done && !c->lost)
        if (e->kind == GPU_EVENT_SLEEPING || getenv("GPUEMU_SPIN") == NULL) {
            pthread_cond_wait(&gpu_emulated_changed, &gpu_emulated_lock);
        } else {
            pthread_mutex_unlock(&gpu_emulated_lock);
            pthread_mutex_lock(&gpu_emulated_lock);
        }
    code = c->lost;
    pthread_mutex_unlock(&gpu_emulated_lock);
    return code;
}

int gpu_emulated_event_elapsed(void *device, void *start, void *end,
                               int64_t *out_nanoseconds)
{
    event *from = start, *to = end;

    (void)device;
    pthread_mutex_lock(&gpu_emulated_lock);
    *out_nanoseconds = to->newest->at - from->newest->at;
    pthread_mutex_unlock(&gpu_emulated_lock);
    return 0;
}
