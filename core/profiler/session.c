/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A profiler session: its schedule and the rounds it records. */

#include "base/error.h"
#include "base/fork.h"
#include "base/memory.h"
#include "base/observe.h"
#include "profiler/profile.h"

#include <pthread.h>
#include <string.h>

enum { LIMIT = 4000000 };

/* Process-wide: the running session and the number of the newest round. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static core_profiler *running;
static uint32_t rounds;

void core__profile_session_fork(core__fork_phase at)
{
    core__fork_mutex(at, &lock);
    if (at == CORE__FORK_CHILD)
        running = NULL; /* its thread does not exist in the child process */
}

static core_status check_options(const core_profiler_options *options)
{
    const uint32_t flags =
        CORE_PROFILE_SHAPES | CORE_PROFILE_MEMORY | CORE_PROFILE_DEVICE;

    if (options->struct_size < sizeof *options)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_profiler_start: struct_size is %u; it must be "
                           "sizeof(core_profiler_options), %zu",
                           options->struct_size, sizeof *options);
    if (options->flags & ~flags)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "core_profiler_start: the flags are 0x%x; accepted: "
            "CORE_PROFILE_SHAPES, CORE_PROFILE_MEMORY and CORE_PROFILE_DEVICE",
            options->flags);
    if (options->active == 0 &&
        (options->wait || options->warmup || options->repeat))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_profiler_start: active is 0; a schedule must "
                           "record at least one step");
    return CORE_OK;
}

/* ---------------------------------------------------------------- rounds -- */

static void clear_session(core_profiler *profiler)
{
    core__event_summary_free(profiler);
    core__device_activity_free(profiler);
    core__profile_parts_free(profiler->parts, profiler->nparts);
    profiler->parts = NULL;
    profiler->nparts = 0;
    for (size_t i = 0; i < profiler->nclocks; i++) {
        core_event_release(profiler->clocks[i].base);
        core_device_release(profiler->clocks[i].device);
    }
    profiler->nclocks = 0;
}

static void round_begin(core_profiler *profiler, bool recorded)
{
    core__profile_round_settings rule = {profiler->options.flags,
                                         profiler->options.limit};

    pthread_mutex_lock(&lock);
    /* Never 0, and not reused soon: logs identify rounds by it. */
    rounds = rounds == UINT32_MAX ? 1 : rounds + 1;
    profiler->number = rounds;
    pthread_mutex_unlock(&lock);
    profiler->recorded = recorded;
    if (recorded)
        clear_session(profiler);
    core__profile_clocks_begin();
    core__profile_ranges_add_listeners();
    profiler->round_began = core__profile_now();
    core__profile_round_begin(profiler->number, &rule);
    core__profiler_hooks_install(true);
}

/* Ends recording; what was recorded is kept for reports, or discarded. */
static core_status round_end(core_profiler *profiler)
{
    core__profile_clock clocks[CORE__PROFILE_CLOCKS];
    core__profile_part *parts;
    size_t count, nclocks;
    uint64_t now = core__profile_now();
    core_status status;

    if (profiler->number == 0)
        return CORE_OK;
    core__profiler_hooks_install(false);
    core__profile_round_begin(0, NULL);
    status = core__profile_round_take(profiler->number, now, &parts, &count);
    nclocks = core__profile_clocks_take(clocks);
    profiler->number = 0;
    if (profiler->recorded) {
        profiler->round_ended = now;
        profiler->parts = parts;
        profiler->nparts = count;
        memcpy(profiler->clocks, clocks, nclocks * sizeof *clocks);
        profiler->nclocks = nclocks;
        core__device_activity_collect(profiler);
        return status;
    }
    core__profile_parts_free(parts, count);
    core__profile_clocks_end(clocks, nclocks);
    return status;
}

/* The phase of a step in the schedule. */
typedef enum phase { WAIT, WARMUP, ACTIVE, OVER } phase;

static phase phase_of(const core_profiler_options *options, uint64_t step)
{
    uint64_t round =
        (uint64_t)options->wait + options->warmup + options->active;

    if (options->active == 0)
        return ACTIVE;
    if (options->repeat && step / round >= options->repeat)
        return OVER;
    step %= round;
    return step < options->wait                     ? WAIT
           : step < options->wait + options->warmup ? WARMUP
                                                    : ACTIVE;
}

static bool round_is_over(const core_profiler_options *options, uint64_t step)
{
    return options->active &&
           (step + 1) % ((uint64_t)options->wait + options->warmup +
                         options->active) ==
               0 &&
           phase_of(options, step) == ACTIVE;
}

static core_status call_ready(core_profiler *profiler)
{
    return profiler->options.ready
               ? profiler->options.ready(profiler, profiler->options.user)
               : CORE_OK;
}

static void step_begin(core_profiler *profiler)
{
    if (profiler->number)
        profiler->step_range = core_range_begin("step");
}

/* ---------------------------------------------------------------- public -- */

core_status core_profiler_start(const core_profiler_options *options,
                                core_profiler **out_profiler)
{
    const core_profiler_options all = {
        .struct_size = sizeof all,
        .flags =
            CORE_PROFILE_SHAPES | CORE_PROFILE_MEMORY | CORE_PROFILE_DEVICE,
    };
    core_profiler *profiler;
    phase first;
    bool busy;

    CORE__NOT_NULL(out_profiler);
    *out_profiler = NULL;
    if (!options)
        options = &all;
    CORE_TRY(check_options(options));
    profiler = core__alloc_zero(sizeof *profiler);
    if (!profiler)
        return core__error_memory(sizeof *profiler);
    profiler->options = *options;
    if (!profiler->options.limit)
        profiler->options.limit = LIMIT;
    if (profiler->options.limit > UINT32_MAX / 2)
        profiler->options.limit = UINT32_MAX / 2; /* what the index types can
                                                   * address */
    profiler->owner = core__thread_self();
    profiler->running = true;
    pthread_mutex_lock(&lock);
    busy = running != NULL;
    if (!busy)
        running = profiler;
    pthread_mutex_unlock(&lock);
    if (busy) {
        core__free(profiler);
        return core__error(CORE_ERROR_BUSY,
                           "core_profiler_start: another session is running; "
                           "only one can run at a time");
    }
    profiler->begin_time = core__profile_now();
    first = phase_of(options, 0);
    if (first == WARMUP || first == ACTIVE)
        round_begin(profiler, first == ACTIVE);
    step_begin(profiler);
    *out_profiler = profiler;
    return CORE_OK;
}

static core_status check_owner(const core_profiler *profiler, const char *name)
{
    if (!profiler->running)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: the session has been stopped", name);
    if (profiler->owner != core__thread_self())
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: the session belongs to the thread that "
                           "started it",
                           name);
    return CORE_OK;
}

core_status core_profiler_step(core_profiler *profiler)
{
    const core_profiler_options *options;
    core_status status = CORE_OK;
    phase next;
    bool over;

    CORE__NOT_NULL(profiler);
    CORE_TRY(check_owner(profiler, "core_profiler_step"));
    options = &profiler->options;
    core_range_end(profiler->step_range);
    profiler->step_range = 0;
    over = round_is_over(options, profiler->step);
    profiler->step++;
    next = phase_of(options, profiler->step);
    if (over || (profiler->number && (next == WAIT || next == OVER ||
                                      profiler->recorded != (next == ACTIVE))))
        status = round_end(profiler);
    if (over && status == CORE_OK)
        status = call_ready(profiler);
    if (!profiler->running)
        return status; /* it was stopped there */
    if (!profiler->number && (next == WARMUP || next == ACTIVE))
        round_begin(profiler, next == ACTIVE);
    step_begin(profiler);
    return status;
}

static core_status stop(core_profiler *profiler)
{
    bool recorded = profiler->number && profiler->recorded;
    core_status status;

    core_range_end(profiler->step_range);
    status = round_end(profiler);
    profiler->running = false;
    pthread_mutex_lock(&lock);
    if (running == profiler)
        running = NULL;
    pthread_mutex_unlock(&lock);
    if (status == CORE_OK && recorded) {
        profiler->stopping = true;
        status = call_ready(profiler);
        profiler->stopping = false;
    }
    return status;
}

core_status core_profiler_stop(core_profiler *profiler)
{
    CORE__NOT_NULL(profiler);
    /* If `ready` calls it: the outer call stops the session. */
    if (profiler->stopping && profiler->owner == core__thread_self())
        return CORE_OK;
    CORE_TRY(check_owner(profiler, "core_profiler_stop"));
    return stop(profiler);
}

void core_profiler_release(core_profiler *profiler)
{
    if (!profiler)
        return;
    if (profiler->running) {
        core__error_record earlier;

        profiler->options.ready = NULL; /* no caller would receive its error */
        core__error_save(&earlier);
        (void)stop(profiler);
        core__error_restore(&earlier);
    }
    clear_session(profiler);
    core__free(profiler);
}
