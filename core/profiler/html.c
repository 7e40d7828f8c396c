/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The HTML report: one page with the recorded data as JSON and the script of
 * html_page.c, which draws it. */

#include "profiler/html_page.h"

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "profiler/profile.h"
#include "profiler/report_file.h"

#include <stdio.h>
#include <string.h>

/* Limits that keep a browser responsive: events drawn, rows of nested events,
 * and intervals in the memory curve (each has its peak and its last value). */
enum { DRAWN = 200000, DEEPEST = 250, INTERVALS = 10000 };

typedef struct writer {
    core__json json;
    core__report_file report;
    core_profiler *profiler;
    uint64_t shortest; /* shorter events are left out */
    uint64_t deeper;   /* events left out because they are nested too deeply */
} writer;

/* Escapes '<', which in JSON only occurs inside strings; a page could take it
 * for the end of the script. */
static bool put(void *context, const char *text, size_t size)
{
    writer *writer = context;

    while (size > 0 && writer->report.status == CORE_OK) {
        const char *less = memchr(text, '<', size);
        size_t plain = less ? (size_t)(less - text) : size;

        core__report_file_write(&writer->report, text, plain);
        if (less)
            core__report_file_write(&writer->report, "\\u003c", 6);
        plain += less != NULL;
        text += plain;
        size -= plain;
    }
    return writer->report.status == CORE_OK;
}

static size_t count_from(const core_profiler *profiler, uint64_t shortest)
{
    size_t count = 0;

    for (size_t p = 0; p < profiler->nparts; p++)
        for (uint32_t i = 0; i < profiler->parts[p].nevents; i++)
            count += core__profile_event_duration(
                         &profiler->parts[p].events[i]) >= shortest;
    for (size_t i = 0; i < profiler->nslices; i++)
        count +=
            profiler->slices[i].end - profiler->slices[i].begin >= shortest;
    return count;
}

static void write_box(writer *writer, const char *name, uint64_t begin,
                      uint64_t end, uint32_t depth, uint32_t kind)
{
    core__json *json = &writer->json;

    json->flat = true;
    core__json_array(json, NULL);
    core__json_text(json, NULL, name);
    core__json_number(json, NULL,
                      core__profile_microseconds(writer->profiler, begin));
    core__json_number(json, NULL, (double)(end - begin) / 1e3);
    core__json_unsigned(json, NULL, depth);
    core__json_unsigned(json, NULL, kind);
    core__json_end(json);
}

static void write_lane(writer *writer, const char *name)
{
    core__json_object(&writer->json, NULL);
    core__json_text(&writer->json, "name", name);
    core__json_array(&writer->json, "boxes");
}

/* The nesting depth of each event; parents come before their children. */
static core_status find_depths(const core__profile_part *part,
                               uint32_t **out_depths)
{
    uint32_t *depths =
        core__alloc((part->nevents + (size_t)1) * sizeof *depths);

    *out_depths = depths;
    if (!depths)
        return core__error_memory(part->nevents * sizeof *depths);
    for (uint32_t i = 0; i < part->nevents; i++) {
        uint32_t parent = part->events[i].parent;

        depths[i] = parent == CORE__PROFILE_NONE ? 0 : depths[parent] + 1;
    }
    return CORE_OK;
}

static core_status write_threads(writer *writer)
{
    uint32_t *depths;
    char name[64];

    for (size_t p = 0; p < writer->profiler->nparts; p++) {
        const core__profile_part *part = &writer->profiler->parts[p];

        CORE_TRY(find_depths(part, &depths));
        snprintf(name, sizeof name, "thread %u", part->thread);
        write_lane(writer, name);
        for (uint32_t i = 0; i < part->nevents; i++) {
            const core__profile_event *event = &part->events[i];

            if (depths[i] >= DEEPEST)
                writer->deeper++;
            else if (core__profile_event_duration(event) >= writer->shortest)
                write_box(writer, event->name, event->begin, event->end,
                          depths[i], event->kind);
        }
        core__json_end(&writer->json);
        core__json_end(&writer->json);
        core__free(depths);
    }
    return CORE_OK;
}

/* Writes one lane per stream, in the order of first use. */
static void write_streams(writer *writer)
{
    enum { KERNEL = 4, SEEN = 64 };
    const core_profiler *profiler = writer->profiler;
    const core__device_activity *seen[SEEN];
    size_t nseen = 0;
    char lane[64], name[112];

    for (size_t i = 0; i < profiler->nslices; i++) {
        const core__device_activity *slice = &profiler->slices[i];
        size_t at = 0;

        while (at < nseen && !core__device_activity_same_lane(seen[at], slice))
            at++;
        if (at < nseen || nseen == SEEN)
            continue;
        seen[nseen++] = slice;
        core__device_activity_lane_name(slice, lane, sizeof lane);
        snprintf(name, sizeof name, "%s %s", core_device_name(slice->device),
                 lane);
        write_lane(writer, name);
        for (size_t k = i; k < profiler->nslices; k++) {
            const core__device_activity *other = &profiler->slices[k];

            if (core__device_activity_same_lane(slice, other) &&
                other->end - other->begin >= writer->shortest)
                write_box(writer, other->name, other->begin, other->end, 0,
                          KERNEL);
        }
        core__json_end(&writer->json);
        core__json_end(&writer->json);
    }
}

static void write_point(writer *writer,
                        const core__memory_timeline_point *point)
{
    core__json *json = &writer->json;

    json->flat = true;
    core__json_array(json, NULL);
    core__json_text(json, NULL, core_device_name(point->device));
    core__json_number(
        json, NULL, core__profile_microseconds(writer->profiler, point->time));
    core__json_integer(json, NULL, point->bytes);
    core__json_end(json);
}

/* Writes the points of one device in time order: the peak and the last value of
 * each interval. */
static void write_memory_peaks(writer *writer,
                               const core__memory_timeline *curve,
                               const core_device *device)
{
    const core_profiler *profiler = writer->profiler;
    const core__memory_timeline_point *highest = NULL, *last = NULL;
    uint64_t width =
        (profiler->round_ended - profiler->round_began) / INTERVALS + 1;
    uint64_t previous = 0;

    for (size_t i = 0; i <= curve->count; i++) {
        const core__memory_timeline_point *point =
            i < curve->count ? &curve->points[i] : NULL;
        uint64_t at = point ? (point->time - profiler->round_began) / width : 0;

        if (point && point->device != device)
            continue;
        if (last && (!point || at != previous)) {
            if (highest != last)
                write_point(writer, highest);
            write_point(writer, last);
            highest = NULL;
        }
        if (point && (!highest || point->bytes > highest->bytes))
            highest = point;
        last = point;
        previous = at;
    }
}

static core_status write_memory(writer *writer)
{
    const core_device *seen[CORE__PROFILE_DEVICES];
    core__memory_timeline curve;
    size_t nseen = 0;

    CORE_TRY(core__memory_timeline_make(writer->profiler, &curve));
    for (size_t i = 0; i < curve.count; i++) {
        const core_device *device = curve.points[i].device;
        size_t at = 0;

        if (curve.count <= 2 * INTERVALS) {
            write_point(writer, &curve.points[i]);
            continue;
        }
        while (at < nseen && seen[at] != device)
            at++;
        if (at < nseen || nseen == CORE__PROFILE_DEVICES)
            continue;
        seen[nseen++] = device;
        write_memory_peaks(writer, &curve, device);
    }
    core__free(curve.points);
    return CORE_OK;
}

static void write_rows(writer *writer)
{
    core__json *json = &writer->json;
    const core__event_summary *rows = writer->profiler->rows;

    for (size_t i = 0; i < rows->count; i++) {
        const core_profile_row *row = &rows->rows[i];

        json->flat = true;
        core__json_array(json, NULL);
        core__json_text(json, NULL, row->name);
        core__json_unsigned(json, NULL, (uint64_t)row->kind);
        core__json_unsigned(json, NULL, row->calls);
        core__json_number(json, NULL, (double)row->cpu_self / 1e3);
        core__json_number(json, NULL, (double)row->cpu_total / 1e3);
        core__json_number(json, NULL, (double)row->device_self / 1e3);
        core__json_unsigned(json, NULL, row->bytes);
        core__json_unsigned(json, NULL, row->flop);
        core__json_integer(json, NULL, row->memory);
        core__json_unsigned(json, NULL, row->fallbacks);
        core__json_end(json);
    }
}

static core_status write_remarks(writer *writer)
{
    char *text;

    CORE_TRY(core__profile_remarks(writer->profiler, &text));
    core__json_text(&writer->json, "remarks", text);
    core__free(text);
    return CORE_OK;
}

static core_status write_data(writer *writer)
{
    core__json *json = &writer->json;
    const core_profiler *profiler = writer->profiler;

    core__json_begin(json, put, writer);
    core__json_object(json, NULL);
    core__json_number(
        json, "length",
        core__profile_microseconds(writer->profiler, profiler->round_ended));
    core__json_number(json, "shortest", (double)writer->shortest / 1e3);
    CORE_TRY(write_remarks(writer));
    core__json_array(json, "lanes");
    CORE_TRY(write_threads(writer));
    write_streams(writer);
    core__json_end(json);
    core__json_unsigned(json, "deeper", writer->deeper);
    core__json_array(json, "memory");
    CORE_TRY(write_memory(writer));
    core__json_end(json);
    core__json_array(json, "rows");
    write_rows(writer);
    core__json_end(json);
    core__json_end(json);
    if (!core__json_finish(json) && writer->report.status == CORE_OK)
        return core__error(CORE_ERROR_INTERNAL,
                           "the JSON data of the page is incomplete");
    return writer->report.status;
}

static core_status write_page(void *context)
{
    writer *writer = context;

    core__report_file_write(&writer->report, core__profile_page_head,
                            strlen(core__profile_page_head));
    CORE_TRY(write_data(writer));
    core__report_file_write(&writer->report, core__profile_page_tail,
                            strlen(core__profile_page_tail));
    return CORE_OK;
}

core_status core_profiler_save_html(core_profiler *profiler, const char *path)
{
    core_status status;
    writer *writer;

    CORE__NOT_NULL(profiler);
    CORE__NOT_NULL(path);
    CORE_TRY(core__event_summary_sorted(profiler, CORE_PROFILE_BY_SELF));
    writer = core__alloc_zero(sizeof *writer);
    if (!writer)
        return core__error_memory(sizeof *writer);
    writer->profiler = profiler;
    while (count_from(profiler, writer->shortest) > DRAWN)
        writer->shortest = writer->shortest ? writer->shortest * 2 : 1000;
    status = core__report_file_save(&writer->report, path, write_page, writer);
    core__free(writer);
    return status;
}
