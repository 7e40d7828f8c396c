/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Device times.  If a device's plugin records its activity, each launch is
 * correlated with a record by a number; otherwise timing events before and
 * after each launch are used, with one event per device whose host time is
 * known. */

#include "base/fork.h"
#include "profiler/profile.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The thread hook that marks a thread creating events for the profiler
 * itself. */

/* A flag in work tokens: the plugin records the work; the other bits are its
 * number. */
#define RECORDED ((uintptr_t)1 << 63)

typedef enum clock_kind { NO_CLOCK, BY_EVENTS, BY_RECORDS } clock_kind;

/* Not held while a plugin is called (base/fork.h). */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t started = PTHREAD_COND_INITIALIZER;
static core__profile_clock clocks[CORE__PROFILE_CLOCKS]; /* protected by the
                                                          * lock */
static size_t nclocks;
static size_t starting; /* clocks that threads are making; protected likewise */
static bool taken = true;            /* by the round that ended; protected by
                                      * the lock */
static _Thread_local uint64_t given; /* the id of the work this thread is
                                      * launching */

void core__profile_error_guard_begin(core__profile_error_guard *guard)
{
    core__thread *self = core__thread_self();

    guard->had = self->error.code != CORE_OK;
    if (guard->had)
        core__error_save(&guard->record);
    self->profile_excluded = true;
}

void core__profile_error_guard_end(const core__profile_error_guard *guard)
{
    core__thread *self = core__thread_self();

    self->profile_excluded = false;
    if (guard->had)
        core__error_restore(&guard->record);
    else if (self->error.code != CORE_OK)
        core_error_clear();
}

bool core__profile_is_internal(void)
{
    return core__thread_self()->profile_excluded;
}

static clock_kind kind_of(const core__profile_clock *clock)
{
    return clock->records ? BY_RECORDS : clock->base ? BY_EVENTS : NO_CLOCK;
}

/* Waits with the plugin's function only, so that no error of the stream is
 * consumed. */
static core_status read_clock(core_stream *stream, core__profile_clock *clock)
{
    core_device *device = stream->device;
    int64_t zero;

    if (!device->interfaces.timing.elapsed)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "the plugin implements neither core.profiler nor core.timing");
    CORE_TRY(core_event_create(device, CORE_EVENT_TIMING, &clock->base));
    CORE_TRY(core_event_record(clock->base, stream));
    CORE_TRY(
        device->backend->events.synchronize(device->impl, clock->base->impl));
    clock->host = core__profile_now();
    return device->interfaces.timing.elapsed(device->impl, clock->base->impl,
                                             clock->base->impl, &zero);
}

static void make_clock(core_stream *stream, core__profile_clock *clock)
{
    char refused[sizeof clock->reason];

    if (core__profile_records_start(clock))
        return;
    memcpy(refused, clock->reason, sizeof refused);
    if (read_clock(stream, clock) == CORE_OK)
        return;
    core_event_release(clock->base);
    clock->base = NULL;
    snprintf(clock->reason, sizeof clock->reason, "%.70s%s%.80s", refused,
             *refused ? "; " : "", core_error_message());
}

/* With the lock; NULL: the device has none. */
static core__profile_clock *find_clock(const core_device *device)
{
    for (size_t i = 0; i < nclocks; i++)
        if (clocks[i].device == device)
            return &clocks[i];
    return NULL;
}

/* Makes the clock of a device that has none, with the lock, which is released
 * while the plugin is called.  The clock stays where it is meanwhile. */
static core__profile_clock *add_clock(core_stream *stream)
{
    core__profile_clock *clock = &clocks[nclocks++], own;

    own = (core__profile_clock){.device = core_device_retain(stream->device),
                                .generation = stream->generation};
    *clock = own;
    clock->starting = true;
    starting++;
    pthread_mutex_unlock(&lock);
    make_clock(stream, &own);
    pthread_mutex_lock(&lock);
    *clock = own;
    starting--;
    pthread_cond_broadcast(&started);
    return clock;
}

/* The clock of the stream's device, created once per session: a second thread
 * waits until the plugin has started recording. */
static clock_kind clock_of(core_stream *stream)
{
    core__profile_clock *clock;
    clock_kind kind = NO_CLOCK;

    pthread_mutex_lock(&lock);
    while ((clock = find_clock(stream->device)) && clock->starting)
        pthread_cond_wait(&started, &lock);
    /* A launch that saw an open round which ended meanwhile must not start a
     * plugin, since nothing would stop it. */
    if (!clock && !taken && nclocks < CORE__PROFILE_CLOCKS)
        clock = add_clock(stream);
    if (clock)
        kind = kind_of(clock);
    pthread_mutex_unlock(&lock);
    return kind;
}

/* ------------------------------------------------------------------- work -- */

static core_status mark(core_stream *stream, core_event **out_event)
{
    core_status status =
        core_event_create(stream->device, CORE_EVENT_TIMING, out_event);

    if (status == CORE_OK)
        status = core_event_record(*out_event, stream);
    if (status != CORE_OK) {
        core_event_release(*out_event);
        *out_event = NULL;
    }
    return status;
}

/* Adds work to the log and returns its number, or 0 if there is no memory.
 * Takes *first over and sets it to NULL. */
static uintptr_t add_work(core_stream *stream, const char *name, uint64_t id,
                          core__work_kind kind, core_event **first)
{
    core__profile_part *part;
    core__profile_event *event = core__profile_lock_open_event(&part);
    core__profile_work *work;
    uintptr_t number = 0;

    if (!event)
        core__profile_lock_log(&part);
    if (!part)
        return 0;
    work = core__profile_work_add(part);
    if (work) {
        work->first = *first;
        *first = NULL;
        work->name = name;
        work->id = id;
        work->outer = given;
        work->stream = core_stream_id(stream);
        work->parent =
            event ? (uint32_t)(event - part->events) : CORE__PROFILE_NONE;
        work->device = core__profile_device(part, stream->device);
        if (event && kind == CORE__WORK_KERNEL)
            event->kernels++;
        number = part->nworks;
    }
    core__profile_unlock();
    return number;
}

static void correlate(core_stream *stream, uint64_t id)
{
    core_device *device = stream->device;

    given = id;
    if (core__device_has_generation(device, stream->generation))
        device->interfaces.profiler.correlate(device->impl, id);
}

void *core__profile_work_begin(core_stream *stream, const char *name,
                               uint64_t id, core__work_kind kind)
{
    core__profile_error_guard guard;
    core_event *first = NULL;
    uintptr_t token = 0;
    clock_kind clock;

    if (!(core__profile_flags() & CORE_PROFILE_DEVICE) || stream->capture ||
        core__profile_is_internal())
        return NULL;
    core__profile_error_guard_begin(&guard);
    clock = clock_of(stream);
    if (clock == BY_EVENTS && kind != CORE__WORK_COPY &&
        mark(stream, &first) == CORE_OK)
        token = add_work(stream, name, id, kind, &first);
    if (clock == BY_RECORDS)
        token = add_work(stream, name, id, kind, &first);
    if (clock == BY_RECORDS && token) {
        correlate(stream, id);
        token |= RECORDED;
    }
    core_event_release(first);
    core__profile_error_guard_end(&guard);
    return (void *)token;
}

/* The work of a number; NULL if a new round began since and has no such
 * number. */
static core__profile_work *lock_work(uintptr_t number,
                                     core__profile_part **out_part)
{
    core__profile_lock_log(out_part);
    if (!*out_part)
        return NULL;
    return number <= (*out_part)->nworks ? &(*out_part)->works[number - 1]
                                         : NULL;
}

void core__profile_work_end(void *token, core_stream *stream)
{
    uintptr_t number = (uintptr_t)token & ~RECORDED;
    bool recorded = (uintptr_t)token & RECORDED;
    core__profile_error_guard guard;
    core__profile_work *work;
    core__profile_part *part;
    core_event *last = NULL;
    uint64_t outer = 0;

    core__profile_error_guard_begin(&guard);
    if (!recorded)
        mark(stream, &last);
    work = lock_work(number, &part);
    if (work && recorded && work->id == given)
        outer = work->outer;
    if (work && !recorded && work->first && !work->last) {
        work->last = last;
        last = NULL;
    }
    if (part)
        core__profile_unlock();
    if (recorded)
        correlate(stream, outer);
    core_event_release(last);
    core__profile_error_guard_end(&guard);
}

/* ------------------------------------------------------------- afterwards -- */

void core__profile_clocks_begin(void)
{
    pthread_mutex_lock(&lock);
    nclocks = 0;
    taken = false;
    pthread_mutex_unlock(&lock);
}

size_t core__profile_clocks_take(core__profile_clock out[CORE__PROFILE_CLOCKS])
{
    size_t count;

    pthread_mutex_lock(&lock);
    taken = true;
    while (starting > 0)
        pthread_cond_wait(&started, &lock);
    count = nclocks;
    memcpy(out, clocks, count * sizeof *out);
    nclocks = 0;
    pthread_mutex_unlock(&lock);
    return count;
}

/* The threads that were making clocks do not exist in the child, which cannot
 * use the devices. */
void core__profile_clocks_fork(core__fork_phase at)
{
    if (at == CORE__FORK_CHILD) {
        pthread_cond_init(&started, NULL);
        starting = 0;
        for (size_t i = 0; i < nclocks; i++)
            clocks[i].starting = false;
    }
    core__fork_mutex(at, &lock);
}
