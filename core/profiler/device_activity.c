/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Device activity after a round: collects it from the plugins' records and from
 * events, and adds device times to the host events. */

#include "base/error.h"
#include "base/memory.h"
#include "profiler/profile.h"

#include <stdio.h>
#include <string.h>

/* Maps a plugin's stream numbers to the core's streams. */
enum { LANES = 256 };

typedef struct lane {
    uint64_t number;
    const core_device *device;
    uint64_t stream; /* CORE__PROFILE_LANE: unknown */
} lane;

typedef struct lanes {
    lane list[LANES];
    size_t count;
} lanes;

static core__device_activity *slice_new(core_profiler *profiler)
{
    if (profiler->nslices == profiler->slices_capacity) {
        size_t capacity =
            profiler->slices_capacity ? profiler->slices_capacity * 2 : 256;
        core__device_activity *grown =
            core__realloc(profiler->slices, capacity * sizeof *grown);

        if (!grown)
            return NULL;
        profiler->slices = grown;
        profiler->slices_capacity = capacity;
    }
    profiler->slices[profiler->nslices] = (core__device_activity){
        .part = CORE__PROFILE_NONE, .work = CORE__PROFILE_NONE};
    return &profiler->slices[profiler->nslices++];
}

void core__device_activity_free(core_profiler *profiler)
{
    core__free(profiler->slices);
    if (profiler->names)
        core__profile_parts_free(profiler->names, 1);
    profiler->slices = NULL;
    profiler->names = NULL;
    profiler->nslices = profiler->slices_capacity = 0;
}

const core__profile_work *core__device_activity_work(
    const core_profiler *profiler, const core__device_activity *slice)
{
    return slice->part == CORE__PROFILE_NONE
               ? NULL
               : &profiler->parts[slice->part].works[slice->work];
}

void core__device_activity_lane_name(const core__device_activity *slice,
                                     char *text, size_t size)
{
    if (slice->lane < CORE__PROFILE_LANE)
        snprintf(text, size, "stream %llu", (unsigned long long)slice->lane);
    else
        snprintf(text, size, "%s's own %llu", core_device_type(slice->device),
                 (unsigned long long)(slice->lane - CORE__PROFILE_LANE));
}

/* --------------------------------------------------------------- records -- */

/* Ids grow within a part. */
static bool find_work(const core_profiler *profiler, uint64_t id,
                      core__device_activity *slice)
{
    for (size_t p = 0; id && p < profiler->nparts; p++) {
        const core__profile_part *part = &profiler->parts[p];
        uint32_t low = 0, high = part->nworks;

        while (low < high) {
            uint32_t middle = low + (high - low) / 2;

            if (part->works[middle].id < id)
                low = middle + 1;
            else
                high = middle;
        }
        if (low == part->nworks || part->works[low].id != id)
            continue;
        slice->part = (uint32_t)p;
        slice->work = low;
        return true;
    }
    return false;
}

/* The first number seen for work on a core stream is mapped to that stream; all
 * other numbers are the plugin's internal streams. */
static uint64_t lane_of(lanes *lanes, const core__profile_work *work,
                        const core_device *device, uint64_t number)
{
    bool taken = !work;
    lane *found = NULL;

    for (size_t i = 0; i < lanes->count; i++) {
        lane *at = &lanes->list[i];

        if (at->device != device)
            continue;
        if (at->number == number)
            found = at;
        taken |= work && at->stream == work->stream;
    }
    if (!found && lanes->count < LANES) {
        found = &lanes->list[lanes->count++];
        *found = (lane){number, device, CORE__PROFILE_LANE};
    }
    if (found && found->stream == CORE__PROFILE_LANE && !taken)
        found->stream = work->stream;
    return found && found->stream != CORE__PROFILE_LANE
               ? found->stream
               : CORE__PROFILE_LANE + (number & (CORE__PROFILE_LANE - 1));
}

/* Maps a device time to host time by linear interpolation between the readings
 * at the beginning and the end. */
static uint64_t host_time(const core__profile_clock *clock, int64_t device_time)
{
    double elapsed = (double)(clock->device_time_end - clock->device_time);
    double ratio =
        elapsed > 0 ? (double)(clock->host_end - clock->host) / elapsed : 1;
    double offset = (double)(device_time - clock->device_time) * ratio;

    return clock->host + (uint64_t)(int64_t)offset;
}

static const char *copy_text(core_profiler *profiler, core_string text)
{
    char name[256];
    size_t size = (size_t)text.size;

    if (!text.data || text.size == 0)
        return "(without a name)";
    if (text.size >= sizeof name) { /* cut at a whole character */
        size = sizeof name - 1;
        while (size > 0 && ((unsigned char)text.data[size] & 0xc0) == 0x80)
            size--;
    }
    memcpy(name, text.data, size);
    name[size] = 0;
    if (!profiler->names)
        profiler->names = core__alloc_zero(sizeof *profiler->names);
    return profiler->names ? core__profile_copy_name(profiler->names, name)
                           : "(no memory for the name)";
}

static bool add_record(core_profiler *profiler, core__profile_clock *clock,
                       lanes *lanes, const core_activity *activity)
{
    core__device_activity *slice = slice_new(profiler);
    const core__profile_work *work;

    if (!slice)
        return false;
    find_work(profiler, activity->correlation, slice);
    work = core__device_activity_work(profiler, slice);
    slice->device = clock->device;
    slice->kind = activity->kind;
    slice->bytes = activity->bytes;
    slice->begin = host_time(clock, activity->begin);
    slice->end = host_time(clock, activity->end);
    if (slice->end < slice->begin)
        slice->end = slice->begin;
    slice->lane = lane_of(lanes, work, clock->device, activity->stream);
    slice->name = copy_text(profiler, activity->name);
    return true;
}

/* Adds one batch of records.  The plugin's struct may be larger or smaller than
 * the core's. */
static void add_batch(core_profiler *profiler, core__profile_clock *clock,
                      lanes *lanes, const core_activity_batch *batch)
{
    const char *at = (const char *)batch->first;

    for (uint64_t i = 0; i < batch->count; i++, at += batch->stride) {
        core_activity one = {0};

        memcpy(&one, at,
               batch->stride < sizeof one ? batch->stride : sizeof one);
        if (!add_record(profiler, clock, lanes, &one))
            clock->dropped++;
    }
    clock->count += batch->count;
    clock->dropped += batch->dropped;
}

enum { STRIDE_0_5 = 64 };

static void take_records(core_profiler *profiler, core__profile_clock *clock,
                         lanes *lanes)
{
    const core_profiler_interface *table = &clock->device->interfaces.profiler;
    core_status status;

    for (;;) {
        core_activity_batch batch = {.struct_size = sizeof batch};

        core_error_clear();
        status = table->take(clock->device->impl, &batch);
        if (status == CORE_OK && batch.count == 0) {
            clock->dropped += batch.dropped;
            return;
        }
        if (status == CORE_OK && (batch.stride < STRIDE_0_5 || !batch.first))
            status =
                core__error(CORE_ERROR_INCOMPATIBLE,
                            "the plugin returned records of %u bytes at %p",
                            batch.stride, (const void *)batch.first);
        else if (status == CORE_OK &&
                 batch.count > profiler->options.limit - clock->count)
            status = core__error(
                CORE_ERROR_INTERNAL,
                "the plugin returned more records than its limit of %llu",
                (unsigned long long)profiler->options.limit);
        if (status != CORE_OK)
            break;
        add_batch(profiler, clock, lanes, &batch);
    }
    snprintf(clock->reason, sizeof clock->reason,
             "the rest could not be had: %s",
             core_error_code() == status ? core_error_message()
                                         : core_status_name(status));
}

/* ---------------------------------------------------------------- events -- */

static bool elapsed(const core__profile_clock *clock, const core_event *from,
                    const core_event *to, int64_t *out)
{
    core_device *device = clock->device;

    return device->interfaces.timing.elapsed(device->impl, from->impl, to->impl,
                                             out) == CORE_OK;
}

static void add_timed(core_profiler *profiler, const core__profile_clock *clock,
                      uint32_t p, uint32_t w)
{
    const core__profile_part *part = &profiler->parts[p];
    const core__profile_work *work = &part->works[w];
    core__device_activity *slice;
    int64_t start, length;

    if (!work->first || !work->last || !work->device ||
        part->devices[work->device - 1] != clock->device ||
        !elapsed(clock, clock->base, work->first, &start) ||
        !elapsed(clock, work->first, work->last, &length))
        return;
    slice = slice_new(profiler);
    if (!slice)
        return;
    slice->kind = CORE_ACTIVITY_KERNEL;
    slice->device = clock->device;
    slice->name = work->name;
    slice->lane = work->stream;
    slice->part = p;
    slice->work = w;
    slice->begin = clock->host + (uint64_t)start;
    slice->end = slice->begin + (uint64_t)(length > 0 ? length : 0);
}

static void add_events(core_profiler *profiler,
                       const core__profile_clock *clock)
{
    for (uint32_t p = 0; p < profiler->nparts; p++)
        for (uint32_t w = 0; w < profiler->parts[p].nworks; w++)
            add_timed(profiler, clock, p, w);
}

/* ------------------------------------------------------------------- both -- */

/* Adds the device time of each event to its parents; children come later in the
 * log. */
static void add_totals(core__profile_part *part)
{
    for (uint32_t i = part->nevents; i-- > 0;) {
        core__profile_event *event = &part->events[i];

        event->device_total += event->device_self;
        if (event->parent != CORE__PROFILE_NONE)
            part->events[event->parent].device_total += event->device_total;
    }
}

/* Charges device time to the event that launched the work. */
static void add_times(core_profiler *profiler)
{
    for (size_t i = 0; i < profiler->nslices; i++) {
        const core__device_activity *slice = &profiler->slices[i];
        const core__profile_work *work =
            core__device_activity_work(profiler, slice);

        if (work && work->parent != CORE__PROFILE_NONE)
            profiler->parts[slice->part].events[work->parent].device_self +=
                slice->end - slice->begin;
    }
    for (size_t p = 0; p < profiler->nparts; p++)
        add_totals(&profiler->parts[p]);
}

void core__device_activity_collect(core_profiler *profiler)
{
    core__profile_error_guard guard;
    lanes *lanes;

    core__profile_error_guard_begin(&guard);
    lanes = core__alloc_zero(sizeof *lanes);
    for (size_t i = 0; i < profiler->nclocks; i++) {
        core__profile_clock *clock = &profiler->clocks[i];

        core__profile_records_stop(clock);
        if (clock->records && lanes)
            take_records(profiler, clock, lanes);
        else if (clock->base && core__device_has_generation(
                                    clock->device, clock->generation)) {
            core__queues_drain(clock->device);
            add_events(profiler, clock);
        }
    }
    core__free(lanes);
    add_times(profiler);
    core__profile_error_guard_end(&guard);
}

void core__profile_clocks_end(core__profile_clock *clocks, size_t count)
{
    core__profile_error_guard guard;

    core__profile_error_guard_begin(&guard);
    for (size_t i = 0; i < count; i++) {
        core__profile_records_stop(&clocks[i]);
        core_event_release(clocks[i].base);
        core_device_release(clocks[i].device);
    }
    core__profile_error_guard_end(&guard);
}
