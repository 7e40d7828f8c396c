/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The sources of a session's events: operators through the profiler's dispatch
 * layer, everything else through the observer (observe.h). */

#include "profiler/profiler_hooks.h"

#include "base/observe.h"
#include "base/thread.h"
#include "dispatch/dispatch.h"
#include "profiler/nan_check.h"
#include "profiler/profile.h"
#include "tensor/dtype.h"

#include <libcore/profiler.h>

static core_device *device_of(const core_value *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (values[i].tag == CORE_VALUE_TENSOR)
            return values[i].u.tensor->device;
        if (values[i].tag == CORE_VALUE_TENSOR_LIST && values[i].count &&
            values[i].u.tensors[0])
            return values[i].u.tensors[0]->device;
    }
    return NULL;
}

static void note_arguments(uint64_t token, const core_value *args,
                           uint32_t nargs)
{
    core__profile_part *part;
    core__profile_event *event = core__profile_lock_event(token, &part);

    if (!event)
        return;
    event->device = core__profile_device(part, device_of(args, nargs));
    event->bytes = core__profile_bytes(args, nargs);
    if (core__profile_flags() & CORE_PROFILE_SHAPES &&
        !core__profile_shapes(part, event, args, nargs))
        part->lost++;
    core__profile_unlock();
}

static void note_results(uint64_t token, const core_operator *op,
                         const core_value *args, uint32_t nargs,
                         const core_value *results, uint32_t nresults,
                         uint64_t sequence, uint64_t nodes)
{
    core__profile_part *part;
    core__profile_event *event = core__profile_lock_event(token, &part);

    if (!event)
        return;
    event->bytes += core__profile_bytes(results, nresults);
    if (!event->device)
        event->device =
            core__profile_device(part, device_of(results, nresults));
    event->sequence = sequence;
    event->nodes = (uint32_t)nodes;
    if (!event->inner_flop)
        event->flop = core__profile_flop(op, args, nargs, results, nresults);
    if (event->parent != CORE__PROFILE_NONE &&
        (event->flop || event->inner_flop))
        part->events[event->parent].inner_flop = true;
    core__profile_unlock();
}

static void end(uint64_t token)
{
    core__profile_event_end(token);
    core__profile_ranges_end(token);
}

static core_status redispatch(core_call *call, const core_value *args,
                              uint32_t nargs, core_value *results,
                              uint32_t nresults)
{
    return core__redispatch(
        call->op, core__keys_below(call->keys, CORE__FUNCTIONALITY_PROFILER),
        args, nargs, results, nresults);
}

static core_status redispatch_checked(core_call *call, const core_value *args,
                                      uint32_t nargs, core_value *results,
                                      uint32_t nresults)
{
    bool had_nan;

    CORE_TRY(core__nan_check_before(call->op, args, nargs, &had_nan));
    CORE_TRY(redispatch(call, args, nargs, results, nresults));
    return had_nan ? CORE_OK
                   : core__nan_check_after(call->op, args, nargs, results,
                                           nresults);
}

core_status core__profiler_layer(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults)
{
    core_operator *op = call->op;
    core__thread *self = core__thread_self();
    uint64_t sequence = self->sequence;
    uint64_t token = core__profile_event_begin(CORE_PROFILE_OPERATOR,
                                               core__operator_name(op),
                                               !(op->flags & CORE__OP_CUSTOM));
    core_status status;

    if (token) {
        core__profile_ranges_begin(token, core__operator_name(op));
        note_arguments(token, args, nargs);
    }
    status = core__nan_check_enabled()
                 ? redispatch_checked(call, args, nargs, results, nresults)
                 : redispatch(call, args, nargs, results, nresults);
    if (token) {
        if (status == CORE_OK)
            note_results(token, op, args, nargs, results, nresults, sequence,
                         self->sequence - sequence);
        end(token);
    }
    return status;
}

/* ---------------------------------------------------------- other events -- */

static uint64_t begin(core__observed_kind what, const char *name,
                      uint64_t sequence, core_device *device)
{
    static const core_profile_kind kinds[] = {
        [CORE__OBSERVED_NODE] = CORE_PROFILE_BACKWARD,
        [CORE__OBSERVED_WAIT] = CORE_PROFILE_WAIT,
        [CORE__OBSERVED_RANGE] = CORE_PROFILE_RANGE,
    };
    core__profile_event *event;
    core__profile_part *part;
    uint64_t token;

    if (what == CORE__OBSERVED_WAIT && core__profile_is_internal())
        return 0; /* the profiler's own */
    token = core__profile_event_begin(kinds[what], name, false);
    if (token)
        core__profile_ranges_begin(token, name);
    event = core__profile_lock_event(token, &part);
    if (!event)
        return token;
    event->sequence = sequence;
    event->device = core__profile_device(part, device);
    core__profile_unlock();
    return token;
}

static void changed(core_device *device, int64_t bytes)
{
    core__profile_part *part;
    core__profile_event *event;

    if (!(core__profile_flags() & CORE_PROFILE_MEMORY))
        return;
    event = core__profile_lock_open_event(&part);
    if (!event) /* outside of all events, for example a release */
        core__profile_lock_log(&part);
    if (!part)
        return;
    core__profile_memory_change_add(part, device, bytes);
    if (event)
        event->memory += bytes;
    core__profile_unlock();
}

static void fell_back(core_device *device)
{
    core__profile_part *part;
    core__profile_event *event = core__profile_lock_open_event(&part);

    if (!event)
        return;
    event->fallbacks++;
    event->device = core__profile_device(part, device);
    core__profile_unlock();
}

static const core__observer observer = {begin,
                                        end,
                                        changed,
                                        fell_back,
                                        core__profile_work_begin,
                                        core__profile_work_end};

void core__profiler_hooks_install(bool on)
{
    if (on) {
        core__profile_flop_prepare();
        atomic_store(&core__observer_latest, &observer);
        atomic_store(&core__observer_current, &observer);
    }
    core__dispatch_observe(on);
    if (!on)
        atomic_store(&core__observer_current, NULL);
}

core_range core_range_begin(const char *name)
{
    return core__observe_begin(CORE__OBSERVED_RANGE, name ? name : "", 0, NULL);
}

void core_range_end(core_range range)
{
    core__observe_end(range);
}
