/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* stream.c: a stream is a thread that executes work in order or, while it
 * captures, a list of that work. */

#include "work.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct graph {
    work *first, **last;
    int references;  /* of the owner, and of pending launches */
    int invalidated; /* the host waited for the capturing stream */
} graph;

typedef struct stream {
    context *device;
    work *first, **last;
    int busy;   /* its thread is executing */
    int closed; /* destroyed: its thread frees it */
    graph *capture;
} stream;

pthread_mutex_t gpu_emulated_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t gpu_emulated_changed = PTHREAD_COND_INITIALIZER;

context *gpu_emulated_device_of(const void *opaque)
{
    const stream *s = opaque;

    return s->device;
}

static void lock(void)
{
    pthread_mutex_lock(&gpu_emulated_lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&gpu_emulated_lock);
}

static void wait_for_change(void)
{
    pthread_cond_wait(&gpu_emulated_changed, &gpu_emulated_lock);
}

/* Whether this thread runs a host function. */
/* Static TLS: ThreadSanitizer does not see that the dynamic TLS of a library
 * opened later is freed after the thread ends. */
static _Thread_local int in_host_function
    __attribute__((tls_model("initial-exec")));

int gpu_emulated_in_host_function(void)
{
    if (in_host_function)
        fprintf(stderr, "gpuemu: a host function called the driver\n");
    return in_host_function;
}

void gpu_emulated_wait_idle(context *device)
{
    lock();
    while (device->pending > 0 && !device->lost)
        wait_for_change();
    unlock();
}

work *gpu_emulated_work(int (*run)(work *, context *), size_t extra)
{
    size_t size = (sizeof(work) + extra + 15) / 16 * 16;
    work *w = aligned_alloc(16, size);

    if (w == NULL)
        return NULL;
    memset(w, 0, size);
    w->run = run;
    return w;
}

/* Called under the lock, which is released while the work runs. */
static void execute(context *device, work *w)
{
    int lost = device->lost, code = 0;

    unlock();
    if (lost == 0)
        code = gpu_emulated_run(w, device, w->correlation, w->stream);
    lock();
    if (code != 0 && device->lost == 0)
        device->lost = code;
    if (w->end != NULL)
        w->end(w, device);
}

static void *stream_thread(void *opaque)
{
    stream *s = opaque;

    lock();
    for (;;) {
        work *w = s->first;

        if (w == NULL && s->closed)
            break;
        if (w == NULL) {
            wait_for_change();
            continue;
        }
        s->first = w->next;
        if (s->first == NULL)
            s->last = &s->first;
        s->busy = 1;
        execute(s->device, w);
        s->busy = 0;
        s->device->pending--;
        free(w);
        pthread_cond_broadcast(&gpu_emulated_changed);
    }
    unlock();
    free(s);
    return NULL;
}

int gpu_emulated_submit(void *device, void *opaque, work *w)
{
    context *c = device;
    stream *s = opaque;
    int code;

    if (w == NULL)
        return EMULATED_OUT_OF_MEMORY;
    w->correlation = gpu_emulated_correlation();
    w->stream = (uint64_t)(uintptr_t)s;
    lock();
    code = gpu_emulated_in_host_function() ? EMULATED_REFUSED : c->lost;
    if (code != 0) {
        if (w->end != NULL)
            w->end(w, c);
        free(w);
    } else if (s->capture != NULL) {
        *s->capture->last = w;
        s->capture->last = &w->next;
    } else {
        *s->last = w;
        s->last = &w->next;
        c->pending++;
        pthread_cond_broadcast(&gpu_emulated_changed);
    }
    unlock();
    return code;
}

int gpu_emulated_stream_create(void *device, int32_t priority,
                               void **out_stream)
{
    context *c = device;
    stream *s = calloc(1, sizeof *s);
    sigset_t all, before;
    pthread_attr_t detached;
    pthread_t thread;
    int failed;

    (void)priority;
    *out_stream = NULL;
    if (gpu_emulated_in_host_function()) {
        free(s);
        return EMULATED_REFUSED;
    }
    if (s == NULL || c->lost) {
        free(s);
        return c->lost ? c->lost : EMULATED_OUT_OF_MEMORY;
    }
    s->device = c;
    s->last = &s->first;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    failed = pthread_create(&thread, &detached, stream_thread, s);
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        free(s);
        return EMULATED_OUT_OF_MEMORY;
    }
    *out_stream = s;
    return 0;
}

int gpu_emulated_stream_destroy(void *device, void *opaque)
{
    stream *s = opaque;

    (void)device;
    if (gpu_emulated_in_host_function())
        return EMULATED_REFUSED;
    lock();
    s->closed = 1;
    pthread_cond_broadcast(&gpu_emulated_changed);
    unlock();
    return 0;
}

int gpu_emulated_stream_is_capturing(void *device, void *opaque,
                                     uint32_t *out_yes)
{
    stream *s = opaque;

    (void)device;
    if (gpu_emulated_in_host_function())
        return EMULATED_REFUSED;
    lock();
    *out_yes = s->capture != NULL;
    unlock();
    return 0;
}

unsigned gpu_emulated_captured_count(void *opaque)
{
    stream *s = opaque;
    unsigned count = 0;

    lock();
    for (work *w = s->capture != NULL ? s->capture->first : NULL; w != NULL;
         w = w->next)
        count++;
    unlock();
    return count;
}

/* Returns 0, or the error of waiting for a stream that captures; under the
 * lock. */
static int capture_error(stream *s)
{
    if (s->capture == NULL)
        return 0;
    s->capture->invalidated = 1;
    return EMULATED_CAPTURING;
}

int gpu_emulated_stream_query(void *device, void *opaque)
{
    context *c = device;
    stream *s = opaque;
    int code;

    if (gpu_emulated_in_host_function())
        return EMULATED_REFUSED;
    lock();
    code = c->lost ? c->lost : capture_error(s);
    if (code == 0 && (s->first != NULL || s->busy))
        code = GPU_BUSY;
    unlock();
    return code;
}

int gpu_emulated_stream_synchronize(void *device, void *opaque)
{
    context *c = device;
    stream *s = opaque;
    int code;

    if (gpu_emulated_in_host_function())
        return EMULATED_REFUSED;
    lock();
    code = capture_error(s);
    while (code == 0 && (s->first != NULL || s->busy))
        wait_for_change();
    if (c->lost != 0)
        code = c->lost;
    unlock();
    return code;
}

/* ------------------------------------------------------- kinds of work -- */

static int run_copy(work *w, context *device)
{
    (void)device;
    memmove(w->u.copy.to, w->u.copy.from, w->u.copy.size);
    return 0;
}

/* Held while a copy to pageable memory waits in the driver. */
static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER;

void gpu_emulated_wait_for_copies(void)
{
    pthread_mutex_lock(&driver);
    pthread_mutex_unlock(&driver);
}

static void wait_for_copy(context *c, stream *s)
{
    pthread_mutex_lock(&driver);
    lock();
    while (s->capture == NULL && !c->lost && (s->first != NULL || s->busy))
        wait_for_change();
    unlock();
    pthread_mutex_unlock(&driver);
}

int gpu_emulated_copy(void *device, void *on, void *to, const void *from,
                      uint64_t size, int direction)
{
    work *w = gpu_emulated_work(run_copy, 0);
    int code;

    if (w != NULL) {
        w->kind = GPU_ACTIVITY_COPY;
        w->name = direction == GPU_TO_DEVICE ? "copy from the host"
                  : direction == GPU_TO_HOST ? "copy to the host"
                                             : "copy";
        w->bytes = size;
        w->u.copy.to = to;
        w->u.copy.from = from;
        w->u.copy.size = size;
    }
    code = gpu_emulated_submit(device, on, w);
    if (code == 0 && direction == GPU_TO_HOST &&
        getenv("GPUEMU_PAGEABLE_WAITS") != NULL &&
        !gpu_emulated_is_pinned(device, to))
        wait_for_copy(device, on);
    return code;
}

static int run_fill(work *w, context *device)
{
    unsigned char *to = w->u.fill.to;

    (void)device;
    for (uint64_t k = 0; k < w->u.fill.count; k++)
        memcpy(to + k * w->u.fill.bytes, &w->u.fill.pattern, w->u.fill.bytes);
    return 0;
}

int gpu_emulated_fill(void *device, void *on, void *to, uint32_t pattern,
                      uint32_t bytes, uint64_t count)
{
    work *w;

    if ((uintptr_t)to % bytes != 0)
        return EMULATED_INVALID;
    w = gpu_emulated_work(run_fill, 0);
    if (w != NULL) {
        w->kind = GPU_ACTIVITY_FILL;
        w->name = "fill";
        w->bytes = bytes * count;
        w->u.fill.to = to;
        w->u.fill.pattern = pattern;
        w->u.fill.bytes = bytes;
        w->u.fill.count = count;
    }
    return gpu_emulated_submit(device, on, w);
}

static int run_call(work *w, context *device)
{
    (void)device;
    in_host_function = 1;
    w->u.call.function(w->u.call.argument);
    in_host_function = 0;
    return 0;
}

int gpu_emulated_stream_call(void *device, void *on, void (*function)(void *),
                             void *argument)
{
    work *w = gpu_emulated_work(run_call, 0);

    if (w != NULL) {
        w->u.call.function = function;
        w->u.call.argument = argument;
    }
    return gpu_emulated_submit(device, on, w);
}

/* Polls, since the host does not signal that it has written the number. */
static int run_gate(work *w, context *device)
{
    const struct timespec moment = {0, 20000};
    int lost = 0;

    while (!lost &&
           (int32_t)(__atomic_load_n(w->u.gate.number, __ATOMIC_SEQ_CST) -
                     w->u.gate.least) < 0) {
        nanosleep(&moment, NULL);
        lock();
        lost = device->lost;
        unlock();
    }
    return 0;
}

int gpu_emulated_stream_gate(void *device, void *on, uint32_t *number,
                             uint32_t least)
{
    work *w = gpu_emulated_work(run_gate, 0);

    if (w != NULL) {
        w->u.gate.number = number;
        w->u.gate.least = least;
    }
    return gpu_emulated_submit(device, on, w);
}

/* -------------------------------------------------------------- graphs -- */

/* Called under the lock. */
static void release_graph(graph *g)
{
    if (--g->references > 0)
        return;
    for (work *w = g->first, *next; w != NULL; w = next) {
        next = w->next;
        if (w->end != NULL)
            w->end(w, NULL);
        free(w);
    }
    free(g);
}

int gpu_emulated_graph_destroy(void *device, void *opaque)
{
    (void)device;
    if (gpu_emulated_in_host_function())
        return EMULATED_REFUSED;
    lock();
    release_graph(opaque);
    unlock();
    return 0;
}

int gpu_emulated_capture_begin(void *device, void *on)
{
    stream *s = on;
    graph *g = calloc(1, sizeof *g);

    (void)device;
    if (g == NULL)
        return EMULATED_OUT_OF_MEMORY;
    g->last = &g->first;
    g->references = 1;
    lock();
    s->capture = g;
    unlock();
    return 0;
}

int gpu_emulated_capture_end(void *device, void *on, void **out_graph)
{
    stream *s = on;
    graph *g;
    int code;

    (void)device;
    lock();
    g = s->capture;
    s->capture = NULL;
    code = g != NULL && g->invalidated ? EMULATED_INVALIDATED : 0;
    if (g != NULL && (out_graph == NULL || code != 0)) {
        release_graph(g);
        g = NULL;
    }
    if (out_graph != NULL)
        *out_graph = g;
    unlock();
    return code;
}

static int run_graph(work *w, context *device)
{
    graph *g = w->u.object;
    int code = 0;

    for (work *part = g->first; part != NULL && code == 0; part = part->next)
        code = gpu_emulated_run(part, device, w->correlation, w->stream);
    return code;
}

static void end_graph(work *w, context *device)
{
    (void)device;
    release_graph(w->u.object);
}

int gpu_emulated_graph_launch(void *device, void *opaque, void *on)
{
    work *w = gpu_emulated_work(run_graph, 0);
    graph *g = opaque;

    if (w == NULL)
        return EMULATED_OUT_OF_MEMORY;
    w->u.object = g;
    w->end = end_graph;
    lock();
    g->references++;
    unlock();
    return gpu_emulated_submit(device, on, w);
}
