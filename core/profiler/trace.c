/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The trace in Trace Event format (Chromium's "Trace Event Format" document):
 * complete events "X", flow events "s" and "f", counters "C", metadata "M";
 * times in microseconds since the round began. */

#include "profiler/profile.h"
#include "profiler/report_file.h"

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "tensor/dtype.h"

#include <stdio.h>
#include <string.h>

/* Process ids in the trace: the program, then one per device. */
enum { HOST = 1, DEVICE = 100 };

typedef struct writer {
    core__json json;
    core__report_file report;
    const core_profiler *profiler;
} writer;

static bool put(void *context, const char *text, size_t size)
{
    writer *writer = context;

    core__report_file_write(&writer->report, text, size);
    return writer->report.status == CORE_OK;
}

static void begin(writer *writer, const char *phase, const char *name,
                  uint64_t time, int64_t process, uint64_t thread)
{
    core__json *json = &writer->json;

    json->flat = true;
    core__json_object(json, NULL);
    core__json_text(json, "ph", phase);
    core__json_text(json, "name", name);
    core__json_number(json, "ts",
                      core__profile_microseconds(writer->profiler, time));
    core__json_integer(json, "pid", process);
    core__json_unsigned(json, "tid", thread);
}

static void write_name(writer *writer, const char *what, int64_t process,
                       uint64_t thread, const char *name)
{
    core__json *json = &writer->json;

    json->flat = true;
    core__json_object(json, NULL);
    core__json_text(json, "ph", "M");
    core__json_text(json, "name", what);
    core__json_integer(json, "pid", process);
    core__json_unsigned(json, "tid", thread);
    core__json_object(json, "args");
    core__json_text(
        json, strcmp(what, "process_labels") == 0 ? "labels" : "name", name);
    core__json_end(json);
    core__json_end(json);
}

/* "f32[2,3] i64[2]" */
static void write_shapes(core__json *json, const core__profile_part *part,
                         uint32_t at)
{
    char text[512];
    size_t length = 0;
    int64_t tensors = part->numbers[at++];

    for (int64_t i = 0; i < tensors && length < sizeof text - 64; i++) {
        core_dtype dtype = (core_dtype)part->numbers[at++];
        int64_t ndim = part->numbers[at++];

        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s[",
                                   length ? " " : "", core__dtype_name(dtype));
        for (int64_t d = 0; d < ndim; d++, at++)
            if (length < sizeof text - 64)
                length += (size_t)snprintf(text + length, sizeof text - length,
                                           "%s%lld", d ? "," : "",
                                           (long long)part->numbers[at]);
        length += (size_t)snprintf(text + length, sizeof text - length, "]");
    }
    text[length] = 0;
    core__json_text(json, "shapes", text);
}

static const char *category(const core__profile_event *event)
{
    static const char *const names[] = {"operator", "backward", "range",
                                        "wait"};

    return names[event->kind];
}

static void write_event(writer *writer, const core__profile_part *part,
                        const core__profile_event *event)
{
    core__json *json = &writer->json;

    begin(writer, "X", event->name, event->begin, HOST, part->thread);
    core__json_number(json, "dur", (double)(event->end - event->begin) / 1e3);
    core__json_text(json, "cat", category(event));
    core__json_object(json, "args");
    if (event->device)
        core__json_text(json, "device",
                        core_device_name(part->devices[event->device - 1]));
    if (event->shapes)
        write_shapes(json, part, event->shapes);
    if (event->bytes)
        core__json_unsigned(json, "bytes", event->bytes);
    if (event->flop)
        core__json_unsigned(json, "flop", event->flop);
    if (event->memory)
        core__json_integer(json, "memory", event->memory);
    if (event->fallbacks)
        core__json_unsigned(json, "fallbacks", event->fallbacks);
    if (event->kind == CORE_PROFILE_BACKWARD)
        core__json_unsigned(json, "sequence", event->sequence);
    core__json_end(json);
    core__json_end(json);
}

static void write_arrow(writer *writer, uint64_t number, const char *name,
                        bool end, uint64_t time, int64_t process,
                        uint64_t thread)
{
    core__json *json = &writer->json;

    begin(writer, end ? "f" : "s", name, time, process, thread);
    core__json_text(json, "cat", name);
    core__json_unsigned(json, "id", number);
    if (end)
        core__json_text(json, "bp", "e");
    core__json_end(json);
}

/* The index of a device across all parts: its first position. */
static int64_t device_number(const writer *writer, const core_device *device)
{
    int64_t number = DEVICE;

    for (size_t p = 0; p < writer->profiler->nparts; p++)
        for (uint32_t i = 0; i < writer->profiler->parts[p].ndevices; i++) {
            const core_device *other = writer->profiler->parts[p].devices[i];

            if (other == device)
                return number + (int64_t)(p * CORE__PROFILE_DEVICES + i);
        }
    return number;
}

static const char *slice_category(const core__device_activity *slice)
{
    return slice->kind == CORE_ACTIVITY_KERNEL ? "kernel"
           : slice->kind == CORE_ACTIVITY_COPY ? "copy"
           : slice->kind == CORE_ACTIVITY_FILL ? "fill"
                                               : "device";
}

static void write_slice(writer *writer, const core__device_activity *slice,
                        uint64_t *arrows)
{
    const core__profile_work *work =
        core__device_activity_work(writer->profiler, slice);
    int64_t process = device_number(writer, slice->device);
    core__json *json = &writer->json;
    const core__profile_part *part;

    begin(writer, "X", slice->name, slice->begin, process, slice->lane);
    core__json_number(json, "dur", (double)(slice->end - slice->begin) / 1e3);
    core__json_text(json, "cat", slice_category(slice));
    if (slice->bytes) {
        core__json_object(json, "args");
        core__json_unsigned(json, "bytes", slice->bytes);
        core__json_end(json);
    }
    core__json_end(json);
    if (!work || work->parent == CORE__PROFILE_NONE)
        return;
    part = &writer->profiler->parts[slice->part];
    write_arrow(writer, ++*arrows, "launch", false,
                part->events[work->parent].begin, HOST, part->thread);
    write_arrow(writer, *arrows, "launch", true, slice->begin, process,
                slice->lane);
}

static void write_slices(writer *writer, uint64_t *arrows)
{
    enum { SEEN = 256 };
    const core_profiler *profiler = writer->profiler;
    const core__device_activity *seen[SEEN];
    size_t nseen = 0, at;
    char name[64];

    for (size_t i = 0; i < profiler->nslices; i++) {
        const core__device_activity *slice = &profiler->slices[i];

        for (at = 0; at < nseen; at++)
            if (core__device_activity_same_lane(seen[at], slice))
                break;
        if (at == nseen && nseen < SEEN) {
            seen[nseen++] = slice;
            core__device_activity_lane_name(slice, name, sizeof name);
            write_name(writer, "thread_name",
                       device_number(writer, slice->device), slice->lane, name);
        }
        write_slice(writer, slice, arrows);
    }
}

/* Labels each device with the source of its times. */
static void write_labels(writer *writer)
{
    for (size_t i = 0; i < writer->profiler->nclocks; i++) {
        const core__profile_clock *clock = &writer->profiler->clocks[i];

        write_name(writer, "process_labels",
                   device_number(writer, clock->device), 0,
                   clock->records ? "recorded by its plugin"
                   : clock->base  ? "events around each launch"
                                  : "no times");
    }
}

static core_status write_memory(writer *writer)
{
    core__memory_timeline curve;
    char name[80];

    CORE_TRY(core__memory_timeline_make(writer->profiler, &curve));
    for (size_t i = 0; i < curve.count; i++) {
        snprintf(name, sizeof name, "memory %s",
                 core_device_name(curve.points[i].device));
        begin(writer, "C", name, curve.points[i].time, HOST, 0);
        core__json_object(&writer->json, "args");
        core__json_integer(&writer->json, "bytes", curve.points[i].bytes);
        core__json_end(&writer->json);
        core__json_end(&writer->json);
    }
    core__free(curve.points);
    return CORE_OK;
}

static core_status write_links(writer *writer, uint64_t *arrows)
{
    const core__profile_part *parts = writer->profiler->parts;
    core__node_correlation *links;
    size_t count;

    CORE_TRY(core__node_correlations_make(writer->profiler, &links, &count));
    for (size_t i = 0; i < count; i++) {
        const core__node_correlation *link = &links[i];

        write_arrow(writer, ++*arrows, "backward", false,
                    parts[link->from_part].events[link->from].begin, HOST,
                    parts[link->from_part].thread);
        write_arrow(writer, *arrows, "backward", true,
                    parts[link->to_part].events[link->to].begin, HOST,
                    parts[link->to_part].thread);
    }
    core__free(links);
    return CORE_OK;
}

static core_status write_all(void *context)
{
    writer *writer = context;
    const core_profiler *profiler = writer->profiler;
    core__json *json = &writer->json;
    uint64_t arrows = 0;
    char name[32];

    core__json_begin(json, put, writer);
    core__json_object(json, NULL);
    core__json_text(json, "displayTimeUnit", "ns");
    core__json_array(json, "traceEvents");
    write_name(writer, "process_name", HOST, 0, "libcore");
    for (size_t p = 0; p < profiler->nparts; p++) {
        const core__profile_part *part = &profiler->parts[p];

        snprintf(name, sizeof name, "thread %u", part->thread);
        write_name(writer, "thread_name", HOST, part->thread, name);
        for (uint32_t i = 0; i < part->nevents; i++)
            write_event(writer, part, &part->events[i]);
        for (uint32_t i = 0; i < part->ndevices; i++)
            if (device_number(writer, part->devices[i]) ==
                DEVICE + (int64_t)(p * CORE__PROFILE_DEVICES + i))
                write_name(writer, "process_name",
                           device_number(writer, part->devices[i]), 0,
                           core_device_name(part->devices[i]));
    }
    write_labels(writer);
    write_slices(writer, &arrows);
    CORE_TRY(write_links(writer, &arrows));
    CORE_TRY(write_memory(writer));
    core__json_end(json);
    core__json_end(json);
    if (!core__json_finish(json) && writer->report.status == CORE_OK)
        return core__error(CORE_ERROR_INTERNAL,
                           "the JSON of the trace is incomplete");
    return writer->report.status;
}

core_status core_profiler_save_trace(core_profiler *profiler, const char *path)
{
    writer *writer;
    core_status status;

    CORE__NOT_NULL(profiler);
    CORE__NOT_NULL(path);
    CORE_TRY(core__event_summary_sorted(profiler, CORE_PROFILE_BY_SELF));
    writer = core__alloc_zero(sizeof *writer);
    if (!writer)
        return core__error_memory(sizeof *writer);
    writer->profiler = profiler;
    status = core__report_file_save(&writer->report, path, write_all, writer);
    core__free(writer);
    return status;
}
