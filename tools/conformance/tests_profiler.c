/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: what a device tells of its work (core.profiler), and of the
 * formats that it would have (core.layout). */

#include "tests_features.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    BYTES = 1 << 14,
    LIMIT = 1000,
    STRIDE = 64,    /* core_activity of 0.5 */
    SKEW = 1000000, /* between a device's clock and its reading, in ns */
    BEFORE = 3001,  /* correlations: none of work is 0 */
    FIRST = 1001,
    SECOND,
    THREADS,
    ELSEWHERE,
    OTHERS,
    AFTER = 2001
};

typedef struct bench {
    raw *plugin;
    outcome *out;
    const core_profiler_interface *table;
    raw_block from, to;
    core_activity records[LIMIT];
    uint64_t count, dropped;
    int64_t begin, end; /* by the clock */
} bench;

static bool begins(bench *b, uint64_t limit)
{
    core_status status = b->table->start(b->plugin->device, limit);

    if (status == CORE_ERROR_REFUSED || status == CORE_ERROR_BUSY) {
        not_supported(b->out, "its profiler cannot begin here: %s",
                      raw_last_error()->text);
        return false;
    }
    return raw_ok(b->out, status, "beginning to record");
}

/* A copy on a stream, as `correlation`. */
static bool copies(bench *b, void *stream, uint64_t correlation)
{
    raw *plugin = b->plugin;
    core_status status;

    b->table->correlate(plugin->device, correlation);
    status = plugin->memory.copy(plugin->device, stream, b->to.memory,
                                 b->from.memory, BYTES);
    b->table->correlate(plugin->device, 0);
    return raw_ok(b->out, status, "a copy");
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
                "%llu records have %u bytes each and lie at %p",
                (unsigned long long)batch->count, batch->stride,
                (const void *)at) ||
        !expect(b->out, batch->count <= LIMIT - b->count,
                "there are more than %d records, which is all that were to be "
                "kept",
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

/* Everything that is there. */
static bool takes(bench *b)
{
    b->count = b->dropped = 0;
    for (int i = 0; i < 2 * LIMIT; i++) {
        core_activity_batch batch = {.struct_size = sizeof batch};

        if (!raw_ok(b->out, b->table->take(b->plugin->device, &batch),
                    "taking records"))
            return false;
        b->dropped += batch.dropped;
        if (batch.count == 0)
            return true;
        if (!keep_batch(b, &batch))
            return false;
    }
    return expect(b->out, false, "there is no end to its records");
}

static bool ends(bench *b)
{
    return raw_wait(b->plugin, b->out) &&
           raw_ok(b->out, b->table->stop(b->plugin->device),
                  "ending to record") &&
           takes(b);
}

/* The only record of a copy; NULL, and a failure, if it is not so. */
static const core_activity *record_of(bench *b, uint64_t correlation)
{
    const core_activity *found = NULL;
    uint32_t count = 0;

    for (uint64_t i = 0; i < b->count; i++)
        if (b->records[i].correlation == correlation) {
            found = &b->records[i];
            count++;
        }
    if (!expect(b->out, count == 1, "a copy has %u records", count))
        return NULL;
    expect(b->out, found->kind == CORE_ACTIVITY_COPY && found->bytes == BYTES,
           "a copy of %d bytes is recorded as kind %u of %llu", BYTES,
           found->kind, (unsigned long long)found->bytes);
    expect(b->out,
           found->begin >= b->begin - SKEW && found->end <= b->end + SKEW,
           "a copy between %lld and %lld ns of its clock is recorded from %lld "
           "to %lld",
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

/* Another thread's correlation is its own. */
static bool copies_beside_a_thread(bench *b)
{
    raw *plugin = b->plugin;
    pthread_t thread;
    core_status status;

    b->table->correlate(plugin->device, THREADS);
    if (pthread_create(&thread, NULL, correlate_elsewhere, b) != 0)
        return false;
    pthread_join(thread, NULL);
    status = plugin->memory.copy(plugin->device, plugin->stream, b->to.memory,
                                 b->from.memory, BYTES);
    b->table->correlate(plugin->device, 0);
    return raw_ok(b->out, status, "a copy");
}

static void work_is_recorded(bench *b, void *other)
{
    raw *plugin = b->plugin;
    const core_activity *first, *second, *others;

    if (!copies(b, plugin->stream, BEFORE) || !raw_wait(plugin, b->out) ||
        !begins(b, LIMIT))
        return;
    if (raw_ok(b->out, b->table->clock(plugin->device, &b->begin),
               "its clock") &&
        copies(b, plugin->stream, FIRST) && copies(b, plugin->stream, SECOND) &&
        copies_beside_a_thread(b) && raw_wait(plugin, b->out) && other)
        copies(b, other, OTHERS);
    if (other)
        raw_ok(b->out, plugin->streams.synchronize(plugin->device, other),
               "synchronizing another stream");
    raw_wait(plugin, b->out);
    raw_ok(b->out, b->table->clock(plugin->device, &b->end), "its clock");
    if (!ends(b) || b->out->verdict != VERDICT_PASS)
        return;
    expect(b->out, b->dropped == 0, "%llu records were dropped of a few",
           (unsigned long long)b->dropped);
    for (uint64_t i = 0; i < b->count; i++)
        expect(b->out, b->records[i].correlation != BEFORE,
               "work is recorded that was given before");
    first = record_of(b, FIRST);
    second = record_of(b, SECOND);
    if (!first || !second || !record_of(b, THREADS))
        return;
    expect(b->out, first->end <= second->begin,
           "of two copies on one stream the second begins %lld ns before the "
           "first has ended",
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

static void ends_are_ends(bench *b)
{
    if (!copies(b, b->plugin->stream, AFTER) || !raw_wait(b->plugin, b->out) ||
        !takes(b))
        return;
    expect(b->out, b->count == 0, "%llu records come after its end",
           (unsigned long long)b->count);
}

/* Of five copies two are kept, and the others are counted. */
static void room_is_bounded(bench *b)
{
    enum { COPIES = 5, KEPT = 2 };

    if (!begins(b, KEPT))
        return;
    for (int i = 0; i < COPIES; i++)
        copies(b, b->plugin->stream, FIRST);
    if (!ends(b))
        return;
    expect(b->out, b->count <= KEPT,
           "%llu records were kept; at most %d were "
           "to be",
           (unsigned long long)b->count, KEPT);
    expect(b->out, b->count + b->dropped == COPIES,
           "of %d copies %llu are recorded and %llu counted as dropped", COPIES,
           (unsigned long long)b->count, (unsigned long long)b->dropped);
}

static void clock_goes_on(bench *b)
{
    int64_t before = INT64_MIN, now = 0;

    if (!begins(b, LIMIT))
        return;
    for (int i = 0; i < 100; i++) {
        if (!raw_ok(b->out, b->table->clock(b->plugin->device, &now),
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
    b.plugin = raw_open(self, out);
    if (!b.plugin)
        return;
    b.table = raw_interface(b.plugin, "core.profiler");
    if (!b.table || b.plugin->synchronous) {
        not_supported(out, "it has no core.profiler, or no streams");
        return;
    }
    b.out = out;
    if (!raw_alloc(b.plugin, out, BYTES, &b.from) ||
        !raw_alloc(b.plugin, out, BYTES, &b.to))
        return;
    if (b.plugin->properties.max_streams != 1)
        raw_ok(out, b.plugin->streams.create(b.plugin->device, 0, &other),
               "creating a stream");
    work_is_recorded(&b, other);
    if (out->verdict == VERDICT_PASS)
        ends_are_ends(&b);
    if (out->verdict == VERDICT_PASS)
        room_is_bounded(&b);
    if (out->verdict == VERDICT_PASS)
        clock_goes_on(&b);
    if (other)
        b.plugin->streams.destroy(b.plugin->device, other);
    raw_free(b.plugin, &b.from);
    raw_free(b.plugin, &b.to);
}

/* ----------------------------------------------------------------- layout -- */

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
    raw *plugin = raw_open(self, out);
    const core_layout_interface *table =
        plugin ? raw_interface(plugin, "core.layout") : NULL;

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
                       "\"%s\" of %u dimensions would have the format %u",
                       operators[i], ndim, format);
                expect(out, format == again,
                       "\"%s\" of %u dimensions would have the format %u, and "
                       "then %u",
                       operators[i], ndim, format, again);
            }
}
