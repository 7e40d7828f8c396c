/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* One thread per stream, started with its first work.  It takes units of work
 * in order, waits for a random time, and runs each without the lock. */

#include "worker.h"

#include "capture.h"
#include "fault.h"
#include "profile.h"
#include "race.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

_Thread_local sim_work *sim_running;

static uint64_t streams_created;
static sim_stream *ended; /* their threads must be joined */
static pthread_cond_t some_ended = PTHREAD_COND_INITIALIZER;

/* ------------------------------------------------------------ creation -- */

static uint32_t count_streams(const sim_device *device, uint32_t kind)
{
    uint32_t count = 0;

    for (sim_stream *at = device->streams; at; at = at->next)
        count += !at->closing && at->kind == kind;
    return count;
}

/* 0: unlimited. */
static uint64_t limit_of(uint32_t kind)
{
    return kind == CORE_STREAM_COPY ? sim_set.copy_queues : sim_set.queues;
}

/* With the lock, which it releases temporarily. */
static void join_ended(void)
{
    while (ended) {
        sim_stream *stream = ended;

        ended = stream->next;
        pthread_mutex_unlock(&sim_lock);
        pthread_join(stream->thread, NULL);
        pthread_mutex_lock(&sim_lock);
        sim_stream_unref(stream);
    }
}

core_status sim_stream_create(sim_device *device, uint32_t kind,
                              int32_t priority, void **out_stream)
{
    core_status status = sim_usable(device);
    uint64_t limit = limit_of(kind);
    sim_stream *stream;
    bool capacity;

    *out_stream = NULL;
    if (status == CORE_OK)
        status = sim_fault(device, SIM_FAULT_STREAM);
    if (status != CORE_OK)
        return status;
    stream = calloc(1, sizeof *stream);
    if (!stream)
        return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                              "no host memory for a stream");
    stream->device = device;
    stream->holders = 1;
    stream->references = 1; /* the list's */
    stream->priority = priority;
    stream->kind = kind;
    stream->awaited = UINT64_MAX;
    pthread_cond_init(&stream->wake, NULL);
    pthread_cond_init(&stream->progress, NULL);
    pthread_mutex_lock(&sim_lock);
    join_ended(); /* a program may create any number of streams, one after the
                   * other */
    capacity = limit == 0 || count_streams(device, kind) < limit;
    if (capacity) {
        stream->id = ++streams_created;
        device->count.streams_created++;
        sim_stream_seed(stream);
        stream->next = device->streams;
        device->streams = stream;
        sim_clock_open(stream);
        *out_stream = stream;
    } else {
        sim_stream_unref(stream);
    }
    pthread_mutex_unlock(&sim_lock);
    sim_clock_log_full();
    if (!capacity)
        return core_sdk_error(sim_host, CORE_ERROR_UNSUPPORTED, "sim",
                              "%s has %llu streams, and all are in use",
                              device->name, (unsigned long long)limit);
    return CORE_OK;
}

void sim_stream_seed(sim_stream *stream)
{
    stream->random = (sim_set.seed ^ stream->id * 0x9e3779b97f4a7c15) | 1;
}

void sim_stream_unref(sim_stream *stream)
{
    if (--stream->references > 0)
        return;
    pthread_cond_destroy(&stream->wake);
    pthread_cond_destroy(&stream->progress);
    free(stream);
}

void sim_stream_leave(sim_stream *stream)
{
    sim_stream **at = &stream->device->streams;

    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    sim_capture_drop(stream);
    sim_clock_close(stream);
    sim_stream_unref(stream);
}

/* ------------------------------------------------------------- running -- */

/* xorshift64*: repeatable for a seed and the order in which streams are
 * created. */
static uint64_t draw(sim_stream *stream)
{
    uint64_t x = stream->random;

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    stream->random = x;
    return x * 0x2545f4914f6cdd1d;
}

static void delay(uint64_t random, uint64_t most_us)
{
    uint64_t us = random % (most_us + 1);
    struct timespec time = {(time_t)(us / 1000000),
                            (long)(us % 1000000) * 1000};

    /* Every other one has no delay. */
    if (us == 0 || random >> 63)
        return;
    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        ;
}

static const char *name_of(const sim_work *work, char *capacity, size_t size)
{
    core_string name;

    if (!work->op)
        return work->what;
    name = sim_host->operator_name(work->op);
    snprintf(capacity, size, "%.*s", (int)name.size, name.data);
    return capacity;
}

static bool is_about_data(core_status status)
{
    switch (status) {
    case CORE_ERROR_OUT_OF_MEMORY:
    case CORE_ERROR_STREAM:
    case CORE_ERROR_DEVICE_LOST:
    case CORE_ERROR_INTERNAL:
    case CORE_ERROR_BUSY:
    case CORE_ERROR_CANCELLED:
    case CORE_ERROR_IO:
        return false;
    default:
        return status < CORE_ERROR_VENDOR_FIRST;
    }
}

void sim_stream_failed(sim_stream *stream, const sim_work *work,
                       core_status status)
{
    core_error_info info = {.struct_size = sizeof info};
    sim_device *device = stream->device;
    char text[SIM_TEXT], name[128];
    bool data = sim_is_kernel(work) && is_about_data(status);

    if (sim_host->abi_minor >= 2 && sim_host->error_last)
        sim_host->error_last(&info);
    if (info.code != status)
        info.text = core_sdk_string("no message");
    if (data)
        snprintf(text, sizeof text, "%.*s", (int)info.text.size,
                 info.text.data);
    else
        snprintf(text, sizeof text, "%s, stream %llu: %s: %.*s", device->name,
                 (unsigned long long)stream->id,
                 name_of(work, name, sizeof name), (int)info.text.size,
                 info.text.data);
    pthread_mutex_lock(&sim_lock);
    if (data) {
        sim_stream_error_set(stream, status, work->call_id, text);
    } else if (status == CORE_ERROR_DEVICE_LOST) {
        sim_device_set_lost(device, text);
    } else if (stream->failure.code == CORE_OK) {
        stream->failure.code = CORE_ERROR_STREAM;
        stream->failure.call_id = work->call_id;
        memcpy(stream->failure.text, text, sizeof text);
    }
    pthread_mutex_unlock(&sim_lock);
}

/* The awaited work failed: the stream continues, and reports the failure. */
static void wait_failed(sim_stream *stream, const sim_marker *marker)
{
    char text[SIM_TEXT];

    snprintf(text, sizeof text, "waited for work that failed: %.300s",
             marker->failure.text);
    sim_stream_error_set(stream, CORE_ERROR_STREAM, 0, text);
}

/* A stream of this device that has precedence, because its priority is a
 * smaller number. */
static sim_stream *preceding_stream(const sim_stream *stream)
{
    sim_stream *at = stream->device->streams;

    while (at && !(at->priority < stream->priority && at->busy))
        at = at->next;
    return at;
}

/* Waits until no stream has precedence.  With the lock. */
static void wait_for_precedence(sim_stream *stream)
{
    while (stream->failure.code == CORE_OK) {
        sim_stream *first = preceding_stream(stream);

        if (stream->device->held) {
            pthread_cond_wait(&stream->device->released, &sim_lock);
        } else if (first) {
            first->references++;
            first->awaited = 0;
            pthread_cond_wait(&first->progress, &sim_lock);
            sim_stream_unref(first);
        } else {
            return;
        }
    }
}

void sim_stream_set_waiting(sim_stream *stream, bool waiting)
{
    pthread_mutex_lock(&sim_lock);
    stream->busy = !waiting;
    pthread_cond_broadcast(&stream->progress);
    pthread_mutex_unlock(&sim_lock);
}

/* With the lock; false if the work is dropped.  Dropped work still ends after
 * the work that it would have waited for: waiters of this stream may count on
 * both, and the other stream's work may be running. */
static bool prepare(sim_stream *stream, sim_work *work)
{
    sim_marker *marker = work->marker;

    if (marker && !work->records) {
        stream->busy = false;
        pthread_cond_broadcast(&stream->progress);
        sim_stream_await(marker->stream, marker->number);
        stream->busy = true;
        if (marker->failure.code != CORE_OK && stream->failure.code == CORE_OK)
            wait_failed(stream, marker);
    }
    if (stream->failure.code == CORE_OK)
        wait_for_precedence(stream);
    return stream->failure.code == CORE_OK;
}

/* With the lock. */
static void run(sim_stream *stream, sim_work *work)
{
    bool runs = prepare(stream, work);
    uint64_t random = draw(stream), most_us = sim_set.delay_us;
    int64_t begin = 0, end = 0; /* of work that was run */
    core_status status = CORE_OK;
    char name[128];

    sim_running = work;
    stream->running = true;
    pthread_mutex_unlock(&sim_lock);
    if (runs && most_us && !work->undelayed)
        delay(random, most_us);
    if (runs && work->conflict)
        status = core_sdk_error(sim_host, CORE_ERROR_STREAM, "sim", "%s",
                                work->conflict);
    else if (runs && work->fails)
        status = core_sdk_error(sim_host, CORE_ERROR_STREAM, "sim",
                                "injected failure");
    else if (runs && work->loses_device)
        status = core_sdk_error(sim_host, CORE_ERROR_DEVICE_LOST, "sim",
                                "the device was lost");
    else if (runs) {
        begin = work->session ? sim_profile_now() : 0;
        status = work->run(work);
        end = begin ? sim_profile_now() : 0;
    }
    if (status != CORE_OK)
        sim_stream_failed(stream, work, status);
    if (end && work->op)
        name_of(work, name, sizeof name);
    if (work->end)
        work->end(work);
    sim_running = NULL;
    pthread_mutex_lock(&sim_lock);
    stream->running = false;
    if (end && (sim_is_kernel(work) || work->size))
        sim_profile_ran(work, work->op ? name : work->what, begin, end);
    stream->done = work->number;
    if (stream->awaited <= stream->done) {
        stream->awaited = UINT64_MAX;
        pthread_mutex_unlock(&sim_lock); /* which waiters need */
        pthread_cond_broadcast(&stream->progress);
        pthread_mutex_lock(&sim_lock);
    }
    free(work->conflict);
    free(work);
}

static void *work_on(void *context)
{
    sim_stream *stream = context;

    pthread_mutex_lock(&sim_lock);
    for (;;) {
        sim_work *work = stream->first;

        if (work) {
            stream->first = work->next;
            if (!stream->first)
                stream->last = NULL;
            stream->busy = true;
            run(stream, work);
            continue;
        }
        if (stream->busy) {
            stream->busy = false;
            pthread_cond_broadcast(&stream->progress);
        }
        if (stream->closing)
            break;
        stream->idle = true;
        pthread_cond_wait(&stream->wake, &sim_lock);
        stream->idle = false;
    }
    stream->references++;
    sim_stream_leave(stream);
    stream->next = ended;
    ended = stream;
    pthread_cond_broadcast(&some_ended);
    pthread_mutex_unlock(&sim_lock);
    return NULL;
}

/* ---------------------------------------------------- starting, stopping -- */

void sim_streams_close(sim_device *device)
{
    sim_stream *next;

    pthread_mutex_lock(&sim_lock);
    device->held = false;
    pthread_cond_broadcast(&device->released);
    for (sim_stream *at = device->streams; at; at = next) {
        next = at->next;
        at->closing = true;
        at->holders = 0;
        pthread_cond_signal(&at->wake);
        if (!at->started)
            sim_stream_leave(at);
    }
    while (device->streams)
        pthread_cond_wait(&some_ended, &sim_lock);
    join_ended();
    pthread_mutex_unlock(&sim_lock);
}

/* Signals are for the program's own threads. */
static int start(sim_stream *stream)
{
    sigset_t all, before;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&stream->thread, NULL, work_on, stream);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

/* Appends a copy of *work; *out_wake: its worker sleeps. */
static core_status append(sim_stream *stream, const sim_work *work,
                          bool *out_wake)
{
    sim_device *device = stream->device;
    core_status status = sim_usable(device);
    sim_work *item;

    if (status == CORE_OK && stream->graph)
        return sim_capture_add(stream, work);
    if (status != CORE_OK)
        return status;
    item = malloc(sizeof *item);
    if (!item || (!stream->started && start(stream) != 0)) {
        free(item);
        return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                              "no host memory to queue work");
    }
    stream->started = true;
    *item = *work;
    item->next = NULL;
    item->stream = stream;
    item->number = ++stream->given;
    device->count.launches += sim_is_kernel(item);
    device->count.copies += !item->op && item->size > 0;
    device->count.callbacks += item->function != NULL;
    sim_clock_step(stream);
    item->time = stream->time;
    sim_profile_note(device, item);
    sim_race_note(stream, item);
    item->fails = sim_is_kernel(item) && sim_fault_due(device, SIM_FAULT_ASYNC);
    item->loses_device =
        !item->undelayed && sim_fault_due(device, SIM_FAULT_LOST);
    if (stream->last)
        stream->last->next = item;
    else
        stream->first = item;
    stream->last = item;
    if (stream->idle || item->number == 1)
        stream->busy = true;
    *out_wake = stream->idle;
    return CORE_OK;
}

core_status sim_enqueue_locked(sim_stream *stream, const sim_work *work)
{
    bool wake = false;
    core_status status = append(stream, work, &wake);

    if (wake)
        pthread_cond_signal(&stream->wake);
    return status;
}

/* The worker is woken without the lock, which it would wait for otherwise. */
core_status sim_enqueue(sim_stream *stream, const sim_work *work)
{
    bool wake = false;
    core_status status;

    pthread_mutex_lock(&sim_lock);
    status = append(stream, work, &wake);
    pthread_mutex_unlock(&sim_lock);
    if (wake)
        pthread_cond_signal(&stream->wake);
    return status;
}

/* ------------------------------------------------------------- waiting -- */

void sim_stream_await(sim_stream *stream, uint64_t number)
{
    /* The thread that runs a call instead of the worker does not wait for
     * itself. */
    if (stream->turn && pthread_equal(stream->turn_of, pthread_self()) &&
        number >= stream->turn)
        return;
    while (stream->done < number) {
        if (stream->awaited > number)
            stream->awaited = number;
        pthread_cond_wait(&stream->progress, &sim_lock);
    }
}

void sim_stream_await_running(sim_stream *stream)
{
    uint64_t number = stream->done;

    if (sim_running && sim_running->stream == stream)
        return;
    if (stream->turn && pthread_equal(stream->turn_of, pthread_self()))
        return;
    while (stream->running && stream->done == number) {
        stream->awaited = 0;
        pthread_cond_wait(&stream->progress, &sim_lock);
    }
}

static core_status run_turn(sim_work *work)
{
    sim_stream *stream = work->stream;

    pthread_mutex_lock(&sim_lock);
    stream->turn = work->number;
    stream->turn_of = work->caller; /* at once: others wait for the number */
    pthread_cond_broadcast(&stream->progress);
    while (stream->turn)
        pthread_cond_wait(&stream->progress, &sim_lock);
    pthread_mutex_unlock(&sim_lock);
    return CORE_OK;
}

core_status sim_stream_run_inline_begin(sim_stream *stream,
                                        const sim_work *call)
{
    sim_work work = *call;
    core_status status;
    uint64_t number;

    work.run = run_turn;
    work.end = NULL;
    work.turn = true;
    work.caller = pthread_self();
    pthread_mutex_lock(&sim_lock);
    status = sim_enqueue_locked(stream, &work);
    number = stream->given;
    while (status == CORE_OK && stream->turn != number) {
        if (stream->done >= number) { /* dropped: the stream failed */
            sim_failure failure = stream->failure;

            pthread_mutex_unlock(&sim_lock);
            return sim_stream_report(&failure, CORE_SEVERITY_STREAM_POISONED);
        }
        stream->awaited = 0;
        pthread_cond_wait(&stream->progress, &sim_lock);
    }
    pthread_mutex_unlock(&sim_lock);
    return status;
}

void sim_stream_run_inline_end(sim_stream *stream)
{
    pthread_mutex_lock(&sim_lock);
    stream->turn = 0;
    pthread_cond_broadcast(&stream->progress);
    pthread_mutex_unlock(&sim_lock);
}
