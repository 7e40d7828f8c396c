/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* When devices with streams really computed: an event on each side of every
 * launch, and one of each device at a time that the host knows. */

#include "base/fork.h"
#include "profiler/profile.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Marks a thread that makes events for the profiler itself. */
enum { HOOK = 2 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static core__profile_clock clocks[CORE__PROFILE_CLOCKS]; /* under the lock */
static size_t nclocks;

/* The profiler's own failures are nobody's error. */
typedef struct aside {
    bool had;
    core__error_record record;
} aside;

static void aside_begin(core__thread *self, aside *aside)
{
    aside->had = self->error.code != CORE_OK;
    if (aside->had)
        core__error_keep(&aside->record);
    self->hooks[HOOK] = self;
}

static void aside_end(core__thread *self, const aside *aside)
{
    self->hooks[HOOK] = NULL;
    if (aside->had)
        core__error_restore(&aside->record);
    else if (self->error.code != CORE_OK)
        core_error_clear();
}

bool core__profile_aside(void)
{
    return core__thread_self()->hooks[HOOK] != NULL;
}

static bool find_clock(core_device *device, bool *out_works)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < nclocks && !found; i++)
        if (clocks[i].device == device) {
            found = true;
            *out_works = clocks[i].base != NULL;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

static core_status read_clock(core_stream *stream, core__profile_clock *clock)
{
    double zero;

    CORE_TRY(
        core_event_create(stream->device, CORE_EVENT_TIMING, &clock->base));
    CORE_TRY(core_event_record(clock->base, stream));
    CORE_TRY(core_event_synchronize(clock->base));
    clock->host = core__profile_now();
    return core_event_elapsed(clock->base, clock->base, &zero);
}

/* The host waits, once a session and device. */
static bool make_clock(core_stream *stream)
{
    core__profile_clock clock = {.device = stream->device};
    bool works, kept = false;

    if (read_clock(stream, &clock) != CORE_OK) {
        core_event_release(clock.base);
        clock.base = NULL;
        snprintf(clock.why, sizeof clock.why, "%s", core_error_message());
    }
    works = clock.base != NULL;
    core_device_retain(clock.device);
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < nclocks; i++)
        kept |= clocks[i].device == clock.device;
    if (!kept && nclocks < CORE__PROFILE_CLOCKS)
        clocks[nclocks++] = clock;
    else
        kept = true;
    pthread_mutex_unlock(&lock);
    if (kept) {
        core_event_release(clock.base);
        core_device_release(clock.device);
    }
    return works;
}

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

void *core__profile_kernel_begin(core_stream *stream, const char *name)
{
    core__thread *self = core__thread_self();
    core__profile_kernel *kernel = NULL;
    core__profile_event *event;
    core__profile_part *part;
    core_event *first = NULL;
    uintptr_t token = 0;
    bool works = false;
    aside aside;

    if (!(core__profile_flags() & CORE_PROFILE_DEVICE) || stream->capture ||
        core__profile_aside())
        return NULL;
    aside_begin(self, &aside);
    if (!find_clock(stream->device, &works))
        works = make_clock(stream);
    if (works)
        mark(stream, &first);
    event = first ? core__profile_hold_open(&part) : NULL;
    if (event) {
        kernel = core__profile_kernel_new(part);
        if (kernel) {
            kernel->first = first;
            first = NULL;
            kernel->name = name;
            kernel->stream = core_stream_id(stream);
            kernel->parent = (uint32_t)(event - part->events);
            kernel->device = core__profile_device(part, stream->device);
            event->kernels++;
            token = part->nkernels;
        }
        core__profile_let_go();
    }
    core_event_release(first);
    aside_end(self, &aside);
    return (void *)token;
}

void core__profile_kernel_end(void *kernel, core_stream *stream)
{
    core__thread *self = core__thread_self();
    uintptr_t number = (uintptr_t)kernel;
    core__profile_part *part;
    core_event *last = NULL;
    aside aside;

    if (!number)
        return;
    aside_begin(self, &aside);
    mark(stream, &last);
    core__profile_hold_log(&part);
    if (part) {
        /* In a round that began since, this number may be nobody's yet. */
        if (number <= part->nkernels && !part->kernels[number - 1].last) {
            part->kernels[number - 1].last = last;
            last = NULL;
        }
        core__profile_let_go();
    }
    core_event_release(last);
    aside_end(self, &aside);
}

/* ------------------------------------------------------------- afterwards -- */

void core__profile_clocks_begin(void)
{
    pthread_mutex_lock(&lock);
    nclocks = 0;
    pthread_mutex_unlock(&lock);
}

size_t core__profile_clocks(core__profile_clock out[CORE__PROFILE_CLOCKS])
{
    size_t count;

    pthread_mutex_lock(&lock);
    count = nclocks;
    memcpy(out, clocks, count * sizeof *out);
    nclocks = 0;
    pthread_mutex_unlock(&lock);
    return count;
}

static void time_kernel(core__profile_part *part, core__profile_kernel *kernel,
                        const core__profile_clock *own, size_t count)
{
    const core__profile_clock *clock = NULL;
    double start, length;

    if (!kernel->last || !kernel->device)
        return;
    for (size_t i = 0; i < count; i++)
        if (own[i].device == part->devices[kernel->device - 1])
            clock = &own[i];
    if (!clock || !clock->base ||
        core_event_synchronize(kernel->last) != CORE_OK ||
        core_event_elapsed(clock->base, kernel->first, &start) != CORE_OK ||
        core_event_elapsed(kernel->first, kernel->last, &length) != CORE_OK)
        return;
    if (start < 0)
        start = 0;
    kernel->begin = clock->host + (uint64_t)(start * 1e6);
    kernel->end = kernel->begin + (length > 0 ? (uint64_t)(length * 1e6) : 0);
}

static void add_times(core__profile_part *part)
{
    for (uint32_t i = 0; i < part->nkernels; i++) {
        const core__profile_kernel *kernel = &part->kernels[i];
        uint64_t time = kernel->end - kernel->begin;

        part->events[kernel->parent].device_self += time;
        for (uint32_t at = kernel->parent; at != CORE__PROFILE_NONE;
             at = part->events[at].parent)
            part->events[at].device_total += time;
    }
}

void core__profile_resolve(core__profile_part *parts, size_t count,
                           const core__profile_clock *own, size_t nown)
{
    core__thread *self = core__thread_self();
    aside aside;

    aside_begin(self, &aside);
    for (size_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < parts[i].nkernels; k++)
            time_kernel(&parts[i], &parts[i].kernels[k], own, nown);
        add_times(&parts[i]);
    }
    aside_end(self, &aside);
}

void core__profile_clocks_fork(core__fork at)
{
    core__fork_mutex(at, &lock);
}
