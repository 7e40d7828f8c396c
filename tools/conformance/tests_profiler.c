/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: records of the device's work (core.profiler), and preferred
 * memory formats (core.layout). */

#include "tests_features.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    BYTES = 1 << 14,
    LIMIT = 1000,
    STRIDE = 64,    /* core_activity of 0.5 */
    SKEW = 1000000, /* allowed error of readings of a device's clock, in ns */
    BEFORE = 3001,  /* correlations; 0 means no work */
    FIRST = 1001,
    SECOND,
    THREADS,
    ELSEWHERE,
    OTHERS,
    AFTER = 2001
};

typedef struct bench {
    plugin_tables *plugin;
    outcome *out;
    const core_profiler_interface *table;
    plugin_block from, to;
    core_activity records[LIMIT];
    uint64_t count, dropped;
    int64_t begin, end; /* of the device's clock */
} bench;

static bool begins(bench *b, uint64_t limit)
{
    core_status status = b->table->start(b->plugin->device, limit);

    if (status == CORE_ERROR_REFUSED || status == CORE_ERROR_BUSY) {
        not_supported(b->out, "its profiler is not available here: %s",
                      plugin_last_error()->text);
        return false;
    }
    return expect_plugin_ok(b->out, status, "beginning to record");
}

/* Makes a copy on a stream with a correlation. */
static bool copies(bench *b, void *stream, uint64_t correlation)
{
    plugin_tables *plugin = b->plugin;
    core_status status;

    b->table->correlate(plugin->device, correlation);
    status = plugin->memory.copy(plugin->device, stream, b->to.memory,
                                 b->from.memory, BYTES);
    b->table->correlate(plugin->device, 0);
    return expect_plugin_ok(b->out, status, "a copy");
}

static bool record_is_whole(bench *b, const core_activity *record)
{
    return expect(b->out, record->end >= record->begin,
                  "a record ends %lld ns before it begins",
                  (long long)(record->begin - record->end)) &&
           expect(b->out, record->name.data && record->name.size > 0,
                  "a record has no name");
}

static bool keep_batch(bench *b, const core_activity_batch *batch)
{
    const char *at = (const char *)batch->first;

    if (!expect(b->out, at && batch->stride >= STRIDE && batch->stride % 8 == 0,
                "%llu records of %u bytes each at %p",
                (unsigned long long)batch->count, batch->stride,
                (const void *)at) ||
        !expect(b->out, batch->count <= LIMIT - b->count,
                "there are more than %d records, the limit that was set",
                LIMIT))
        return false;
    for (uint64_t i = 0; i < batch->count; i++) {
        core_activity *record = &b->records[b->count++];

        memcpy(record, at + i * batch->stride, sizeof *record);
        if (!record_is_whole(b, record))
            return false;
    }
    return true;
}

/* Takes all records. */
static bool takes(bench *b)
{
    b->count = b->dropped = 0;
    for (int i = 0; i < 2 * LIMIT; i++) {
        core_activity_batch batch = {.struct_size = sizeof batch};

        if (!expect_plugin_ok(b->out, b->table->take(b->plugin->device, &batch),
                              "taking records"))
            return false;
        b->dropped += batch.dropped;
        if (batch.count == 0)
            return true;
        if (!keep_batch(b, &batch))
            return false;
    }
    return expect(b->out, false, "its records never end");
}

static bool ends(bench *b)
{
    return plugin_wait(b->plugin, b->out) &&
           expect_plugin_ok(b->out, b->table->stop(b->plugin->device),
                            "ending to record") &&
           takes(b);
}

/* Returns the only record of a copy; otherwise fails and returns NULL. */
static const core_activity *record_of(bench *b, uint64_t correlation)
{
    const core_activity *found = NULL;
    uint32_t count = 0;

    for (uint64_t i = 0; i < b->count; i++)
        if (b->records[i].correlation == correlation) {
            found = &b->records[i];
            count++;
        }
    if (!expect(b->out, count == 1,
                "of the %llu records that take returns, %u have the "
                "correlation %llu, which correlate set before a copy; "
                "expected 1",
                (unsigned long long)b->count, count,
                (unsigned long long)correlation))
        return NULL;
    expect(b->out, found->kind == CORE_ACTIVITY_COPY && found->bytes == BYTES,
           "a copy of %d bytes is recorded as kind %u of %llu bytes", BYTES,
           found->kind, (unsigned long long)found->bytes);
    expect(b->out,
           found->begin >= b->begin - SKEW && found->end <= b->end + SKEW,
           "a copy between %lld and %lld ns of the device's clock is recorded "
           "from %lld to %lld",
           (long long)b->begin, (long long)b->end, (long long)found->begin,
           (long long)found->end);
    return b->out->verdict == VERDICT_PASS ? found : NULL;
}

static void *correlate_elsewhere(void *context)
{
    bench *b = context;

    b->table->correlate(b->plugin->device, ELSEWHERE);
    return NULL;
}

/* A correlation belongs to one thread only. */
static bool copies_beside_a_thread(bench *b)
{
    plugin_tables *plugin = b->plugin;
    pthread_t thread;
    core_status status;

    b->table->correlate(plugin->device, THREADS);
    if (pthread_create(&thread, NULL, correlate_elsewhere, b) != 0)
        return false;
    pthread_join(thread, NULL);
    status = plugin->memory.copy(plugin->device, plugin->stream, b->to.memory,
                                 b->from.memory, BYTES);
    b->table->correlate(plugin->device, 0);
    return expect_plugin_ok(b->out, status, "a copy");
}

static void work_is_recorded(bench *b, void *other)
{
    plugin_tables *plugin = b->plugin;
    const core_activity *first, *second, *others;

    if (!copies(b, plugin->stream, BEFORE) || !plugin_wait(plugin, b->out) ||
        !begins(b, LIMIT))
        return;
    if (expect_plugin_ok(b->out, b->table->clock(plugin->device, &b->begin),
                         "its clock") &&
        copies(b, plugin->stream, FIRST) && copies(b, plugin->stream, SECOND) &&
        copies_beside_a_thread(b) && plugin_wait(plugin, b->out) && other)
        copies(b, other, OTHERS);
    if (other)
        expect_plugin_ok(b->out,
                         plugin->streams.synchronize(plugin->device, other),
                         "synchronizing another stream");
    plugin_wait(plugin, b->out);
    expect_plugin_ok(b->out, b->table->clock(plugin->device, &b->end),
                     "its clock");
    if (!ends(b) || b->out->verdict != VERDICT_PASS)
        return;
    expect(b->out, b->dropped == 0,
           "%llu records were dropped though there were only a few",
           (unsigned long long)b->dropped);
    for (uint64_t i = 0; i < b->count; i++)
        expect(b->out, b->records[i].correlation != BEFORE,
               "work from before the beginning is recorded");
    first = record_of(b, FIRST);
    second = record_of(b, SECOND);
    if (!first || !second || !record_of(b, THREADS))
        return;
    expect(b->out, first->end <= second->begin,
           "of two copies on one stream the second begins %lld ns before the "
           "first ends",
           (long long)(first->end - second->begin));
    expect(b->out, first->stream == second->stream,
           "two copies on one stream are recorded on the streams %llu and %llu",
           (unsigned long long)first->stream,
           (unsigned long long)second->stream);
    others = other ? record_of(b, OTHERS) : NULL;
    if (others)
        expect(b->out, others->stream != first->stream,
               "copies on two streams are recorded on one");
}

static void stops_recording(bench *b)
{
    if (!copies(b, b->plugin->stream, AFTER) ||
        !plugin_wait(b->plugin, b->out) || !takes(b))
        return;
    expect(b->out, b->count == 0, "%llu records arrive after its end",
           (unsigned long long)b->count);
}

/* Of five copies two are recorded, and the others are counted as dropped. */
static void capacity_is_bounded(bench *b)
{
    enum { COPIES = 5, KEPT = 2 };

    if (!begins(b, KEPT))
        return;
    for (int i = 0; i < COPIES; i++)
        copies(b, b->plugin->stream, FIRST);
    if (!ends(b))
        return;
    expect(b->out, b->count <= KEPT, "%llu records were kept, the limit is %d",
           (unsigned long long)b->count, KEPT);
    expect(b->out, b->count + b->dropped == COPIES,
           "of %d copies %llu are recorded and %llu counted as dropped", COPIES,
           (unsigned long long)b->count, (unsigned long long)b->dropped);
}

static void clock_advances(bench *b)
{
    int64_t before = INT64_MIN, now = 0;

    if (!begins(b, LIMIT))
        return;
    for (int i = 0; i < 100; i++) {
        if (!expect_plugin_ok(b->out, b->table->clock(b->plugin->device, &now),
                              "its clock") ||
            !expect(b->out, now >= before,
                    "its clock goes back from %lld to %lld ns",
                    (long long)before, (long long)now))
            break;
        before = now;
    }
    ends(b);
}

void features_profiler(suite *self, outcome *out, const test *one)
{
    static bench b;
    void *other = NULL;

    (void)one;
    b.plugin = plugin_tables_open(self, out);
    if (!b.plugin)
        return;
    b.table = plugin_interface(b.plugin, "core.profiler");
    if (!b.table || b.plugin->synchronous) {
        not_supported(out, "it has no core.profiler, or no streams");
        return;
    }
    b.out = out;
    if (!plugin_alloc(b.plugin, out, BYTES, &b.from) ||
        !plugin_alloc(b.plugin, out, BYTES, &b.to))
        return;
    if (b.plugin->properties.max_streams != 1)
        expect_plugin_ok(out,
                         b.plugin->streams.create(b.plugin->device, 0, &other),
                         "creating a stream");
    work_is_recorded(&b, other);
    if (out->verdict == VERDICT_PASS)
        stops_recording(&b);
    if (out->verdict == VERDICT_PASS)
        capacity_is_bounded(&b);
    if (out->verdict == VERDICT_PASS)
        clock_advances(&b);
    if (other)
        b.plugin->streams.destroy(b.plugin->device, other);
    plugin_free(b.plugin, &b.from);
    plugin_free(b.plugin, &b.to);
}

/* -------------------------------------------------------------- layout -- */

static bool fits(uint32_t format, uint32_t ndim)
{
    return format == CORE_FORMAT_CONTIGUOUS ||
           (format == CORE_FORMAT_CHANNELS_LAST && ndim == 4) ||
           (format == CORE_FORMAT_CHANNELS_LAST_3D && ndim == 5);
}

void features_layout(suite *self, outcome *out, const test *one)
{
    static const char *const operators[] = {"convolution", "add.Tensor", "mm",
                                            "no_such_operator", ""};
    static const core_dtype dtypes[] = {CORE_F32, CORE_F16, CORE_I64, 31};
    plugin_tables *plugin = plugin_tables_open(self, out);
    const core_layout_interface *table =
        plugin ? plugin_interface(plugin, "core.layout") : NULL;

    (void)one;
    if (!plugin)
        return;
    if (!table) {
        not_supported(out, "it has no core.layout");
        return;
    }
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++)
            for (uint32_t ndim = 0; ndim <= CORE_MAX_NDIM; ndim++) {
                core_string name = {operators[i], strlen(operators[i])};
                uint32_t format =
                    table->preferred(plugin->device, name, dtypes[k], ndim);
                uint32_t again =
                    table->preferred(plugin->device, name, dtypes[k], ndim);

                expect(out, fits(format, ndim),
                       "\"%s\" of %u dimensions: unknown format %u",
                       operators[i], ndim, format);
                expect(out, format == again,
                       "\"%s\" of %u dimensions: format %u, then %u",
                       operators[i], ndim, format, again);
            }
}
