/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* Step 2: streams and events.  A stream is a queue and a thread; an event is
 * the mark that its last record left in a stream. */

#include "device.h"

#if STEP >= 2
#include <signal.h>
#include <time.h>

struct stream {
    job *first, **last;
    uint64_t given, done;
    bool ends;           /* ends when its work is done */
    core_status failure; /* it is poisoned */
    char reason[160];
    graph *capture;          /* step 7 */
    core_stream_error found; /* step 9: code is CORE_OK if there is none */
};

/* A place in a stream's work.  Recording an event again creates a new one, so
 * that waiters for the old one are not affected. */
typedef struct mark {
    uint32_t references;
    bool reached;
    core_status failure;
    stream *in;
    int64_t time_ns; /* step 9: when it was reached */
} mark;

typedef struct event {
    mark *newest;
} event;

/* One lock for everything: this code is to be read, not to be fast. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static core_status no_host_memory(void)
{
    return core_sdk_error(host, CORE_ERROR_OUT_OF_MEMORY, NAME,
                          "no host memory");
}

/* ----------------------------------------------------------- the queue -- */

/* Keeps this thread's message with the stream, for later waiters.  A message
 * with another code is that of an earlier error: this one has none. */
static void poison(stream *s, core_status status)
{
    core_error_info last = {.struct_size = sizeof last};

    host->error_last(&last);
    if (last.code != status)
        last.text = core_sdk_string("it returned an error without a message");
    s->failure = status;
    snprintf(s->reason, sizeof s->reason, "%.*s",
             (int)(last.text.size < 150 ? last.text.size : 150),
             last.text.data);
}

static core_status poisoned(const stream *s)
{
    if (s->failure == CORE_OK)
        return CORE_OK;
    return core_sdk_error_severe(host, s->failure,
                                 CORE_SEVERITY_STREAM_POISONED, NAME,
                                 "work on the stream failed: %s", s->reason);
}

/* The stream whose work this thread runs. */
static _Thread_local stream *running;

static void *run_jobs(void *context)
{
    stream *s = context;

    running = s;
    pthread_mutex_lock(&lock);
    for (;;) {
        job *next = s->first;
        bool runs;
        core_status status = CORE_OK;

        if (next == NULL && s->ends)
            break;
        if (next == NULL) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        s->first = next->next;
        if (s->first == NULL)
            s->last = &s->first;
        runs = s->failure == CORE_OK || next->always;
        pthread_mutex_unlock(&lock);
        if (runs)
            status = next->run(next->context);
        if (next->drop != NULL)
            next->drop(next->context);
        free(next);
        pthread_mutex_lock(&lock);
        if (status != CORE_OK && s->failure == CORE_OK)
            poison(s, status);
        s->done++;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    free(s);
    return NULL;
}

/* With the lock. */
static void append(stream *to, job *given)
{
    *to->last = given;
    to->last = &given->next;
    to->given++;
    pthread_cond_broadcast(&changed);
}

/* Several threads may submit to one stream at once, also while it captures. */
core_status stream_submit(stream *to, job work)
{
    job *given = malloc(sizeof *given);

    if (given == NULL) {
        if (work.drop != NULL)
            work.drop(work.context);
        return no_host_memory();
    }
    *given = work;
    given->next = NULL;
    pthread_mutex_lock(&lock);
#if STEP >= 7
    if (to->capture != NULL)
        graph_add(to->capture, given);
    else
#endif
        append(to, given);
    pthread_mutex_unlock(&lock);
    return CORE_OK;
}

/* --------------------------------------------------------------- streams -- */

static core_status create(void *device, uint32_t flags, void **out_stream)
{
    stream *created;
    sigset_t all, before;
    pthread_t thread;
    int failed;

    (void)device;
    *out_stream = NULL;
    if (flags != 0)
        return core_sdk_error(host, CORE_ERROR_UNSUPPORTED, NAME,
                              "stream create: flags are %#x; accepted: 0",
                              flags);
    created = calloc(1, sizeof *created);
    if (created == NULL)
        return no_host_memory();
    created->last = &created->first;
    /* Signals belong to the program: our thread blocks all. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&thread, NULL, run_jobs, created);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        free(created);
        return core_sdk_error(host, CORE_ERROR_INTERNAL, NAME,
                              "no thread for a stream (%d)", failed);
    }
    pthread_detach(thread);
    *out_stream = created;
    return CORE_OK;
}

/* Does not wait: the thread ends when the work is done. */
static void destroy(void *device, void *handle)
{
    stream *s = handle;

    (void)device;
    pthread_mutex_lock(&lock);
    s->ends = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static core_status query(void *device, void *handle)
{
    stream *s = handle;
    core_status status;

    (void)device;
    pthread_mutex_lock(&lock);
    status = poisoned(s);
    if (status == CORE_OK && s->done < s->given)
        status = CORE_ERROR_BUSY;
    pthread_mutex_unlock(&lock);
    return status;
}

static core_status synchronize(void *device, void *handle)
{
    stream *s = handle;
    core_status status;
    uint64_t until;

    (void)device;
    pthread_mutex_lock(&lock);
    until = s->given;
    while (s->done < until)
        pthread_cond_wait(&changed, &lock);
    status = poisoned(s);
    pthread_mutex_unlock(&lock);
    return status;
}

/* -------------------------------------------------------------- events -- */

static void mark_drop(void *context)
{
    mark *m = context;
    bool last;

    if (m == NULL)
        return;
    pthread_mutex_lock(&lock);
    last = --m->references == 0;
    pthread_mutex_unlock(&lock);
    if (last)
        free(m);
}

static core_status mark_reach(void *context)
{
    mark *m = context;
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&lock);
    m->reached = true;
    m->time_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    m->failure = m->in->failure;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return CORE_OK;
}

static core_status mark_wait(void *context)
{
    mark *m = context;

    pthread_mutex_lock(&lock);
    while (!m->reached)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return CORE_OK;
}

static mark *newest_of(event *e)
{
    mark *m;

    pthread_mutex_lock(&lock);
    m = e->newest;
    m->references++;
    pthread_mutex_unlock(&lock);
    return m;
}

static core_status wait_event(void *device, void *handle, void *awaited)
{
    (void)device;
    return stream_submit(handle, (job){.run = mark_wait,
                                       .drop = mark_drop,
                                       .context = newest_of(awaited)});
}

static core_status event_create(void *device, uint32_t flags, void **out_event)
{
    (void)device;
    *out_event = NULL;
    if (flags & ~(uint32_t)CORE_EVENT_TIMING)
        return core_sdk_error(host, CORE_ERROR_UNSUPPORTED, NAME,
                              "event create: flags are %#x; accepted: 0 or "
                              "CORE_EVENT_TIMING",
                              flags);
    *out_event = calloc(1, sizeof(event));
    return *out_event != NULL ? CORE_OK : no_host_memory();
}

static void event_destroy(void *device, void *handle)
{
    (void)device;
    mark_drop(((event *)handle)->newest);
    free(handle);
}

static core_status event_record(void *device, void *handle, void *on)
{
    mark *m = calloc(1, sizeof *m), *before;
    event *e = handle;

    (void)device;
    if (m == NULL)
        return no_host_memory();
    m->references = 2; /* the event's and the stream's */
    m->in = on;
    pthread_mutex_lock(&lock);
    before = e->newest;
    e->newest = m;
    pthread_mutex_unlock(&lock);
    mark_drop(before);
    return stream_submit(on, (job){.run = mark_reach,
                                   .drop = mark_drop,
                                   .context = m,
                                   .always = true});
}

static core_status event_status(const mark *m)
{
    if (!m->reached)
        return CORE_ERROR_BUSY;
    if (m->failure == CORE_OK)
        return CORE_OK;
    return core_sdk_error_severe(host, m->failure,
                                 CORE_SEVERITY_STREAM_POISONED, NAME,
                                 "work before the event failed");
}

static core_status event_query(void *device, void *handle)
{
    mark *m = newest_of(handle);
    core_status status;

    (void)device;
    pthread_mutex_lock(&lock);
    status = event_status(m);
    pthread_mutex_unlock(&lock);
    mark_drop(m);
    return status;
}

static core_status event_synchronize(void *device, void *handle)
{
    mark *m = newest_of(handle);
    core_status status;

    (void)device;
    mark_wait(m);
    status = event_status(m);
    mark_drop(m);
    return status;
}

#if STEP >= 7
/* Returns the graph that the stream filled until now, or NULL. */
graph *stream_set_capture(stream *of, graph *begun)
{
    graph *ended;

    pthread_mutex_lock(&lock);
    ended = of->capture;
    of->capture = begun;
    pthread_mutex_unlock(&lock);
    return ended;
}
#endif

#if STEP >= 9
/* Of an event that is complete. */
int64_t event_time(void *handle)
{
    mark *m = newest_of(handle);
    int64_t time_ns = m->time_ns;

    mark_drop(m);
    return time_ns;
}

/* Called by work that runs on a stream, when it finds bad data.  The stream
 * keeps the first error.  In a graph, call->stream would be the stream that was
 * captured; this is the one on which the work runs. */
void stream_error_set(uint64_t call_id, int64_t index)
{
    pthread_mutex_lock(&lock);
    if (running->found.code == CORE_OK)
        running->found = (core_stream_error){
            .code = CORE_ERROR_INDEX, .call_id = call_id, .index = index};
    pthread_mutex_unlock(&lock);
}

core_stream_error stream_error_clear(stream *of)
{
    core_stream_error found;

    pthread_mutex_lock(&lock);
    found = of->found;
    of->found.code = CORE_OK;
    pthread_mutex_unlock(&lock);
    return found;
}
#endif

const core_stream_table stream_table = {
    .struct_size = sizeof(core_stream_table),
    .create = create,
    .destroy = destroy,
    .query = query,
    .synchronize = synchronize,
    .wait_event = wait_event,
};

const core_event_table event_table = {
    .struct_size = sizeof(core_event_table),
    .create = event_create,
    .destroy = event_destroy,
    .record = event_record,
    .query = event_query,
    .synchronize = event_synchronize,
};
#endif
