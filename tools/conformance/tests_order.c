/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: order within one stream, which every device with streams
 * guarantees, and what queries of a device cost the host. */

#include "stream_gate.h"

#include "plugin_tables.h"
#include "process_state.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BYTES = 4096, MANY = (3 << 20) + 24, GUARD = 64 };

/* --------------------------------------------------------------- fills -- */

static bool all_are(outcome *out, const unsigned char *got, size_t size,
                    int byte, const char *what)
{
    for (size_t i = 0; i < size; i++)
        if (!expect(out, got[i] == byte, "%s: byte %zu is %d, expected %d",
                    what, i, got[i], byte))
            return false;
    return true;
}

/* A copy, a fill of its source, and another copy. */
static bool fill_between(plugin_tables *p, const plugin_block *b, outcome *out)
{
    return expect_plugin_ok(out,
                            p->memory.copy(p->device, p->stream, b[1].memory,
                                           b[0].memory, BYTES),
                            "copy") &&
           expect_plugin_ok(
               out,
               p->memory.fill(p->device, p->stream, b[0].memory, BYTES, 2, 1),
               "fill") &&
           expect_plugin_ok(out,
                            p->memory.copy(p->device, p->stream, b[2].memory,
                                           b[0].memory, BYTES),
                            "copy");
}

static bool fill_behind_gate(suite *self, outcome *out)
{
    plugin_tables *p = plugin_tables_open(self, out);
    plugin_block blocks[3] = {{{0}, 0}};
    unsigned char ones[BYTES], got[BYTES];
    stream_gate hold;
    bool held = false;

    if (!p)
        return false;
    memset(ones, 1, sizeof ones);
    stream_gate_init(&hold);
    for (int i = 0; i < 3; i++)
        if (!plugin_alloc(p, out, BYTES, &blocks[i]) ||
            !plugin_write(p, out, blocks[i].memory, ones, BYTES))
            goto done;
    if (!p->synchronous && !stream_gate_close(&hold, p, p->stream, out))
        goto done;
    fill_between(p, blocks, out);
    held = p->synchronous || stream_gate_holds(&hold);
    stream_gate_open(&hold);
    if (plugin_wait(p, out) &&
        plugin_read(p, out, got, blocks[1].memory, BYTES) &&
        all_are(out, got, BYTES, 1, "a copy before a fill saw the fill") &&
        plugin_read(p, out, got, blocks[2].memory, BYTES))
        all_are(out, got, BYTES, 2, "a copy after a fill did not see it");
done:
    stream_gate_open(&hold);
    plugin_wait(p, out);
    for (int i = 0; i < 3; i++)
        plugin_free(p, &blocks[i]);
    stream_gate_destroy(&hold);
    return held;
}

static void fills_in_order(suite *self, outcome *out, const test *one)
{
    (void)one;
    stream_gate_test(fill_behind_gate, self, out);
}

/* A pattern of `width` bytes, behind zeros and before them, from an odd multiple
 * of its size on: so much that more than one command may fill it. */
static bool fill_many(plugin_tables *p, const plugin_block *block,
                      unsigned char *got, uint32_t width, outcome *out)
{
    const uint64_t pattern = UINT64_C(0x8877665544332211);
    const size_t begin = GUARD + width, size = MANY - 2 * width;

    memset(got, 0, MANY + 2 * GUARD);
    if (!plugin_write(p, out, block->memory, got, MANY + 2 * GUARD) ||
        !expect_plugin_ok(out,
                          p->memory.fill(p->device, p->stream,
                                         plugin_block_at(block, begin), size,
                                         pattern, width),
                          "fill") ||
        !plugin_read(p, out, got, block->memory, MANY + 2 * GUARD))
        return false;
    for (size_t i = 0; i < size; i++)
        if (!expect(out,
                    got[begin + i] == (unsigned char)(pattern >> i % width * 8),
                    "a fill of %zu bytes, patterns of %u, from offset %zu on: "
                    "byte %zu is %#x",
                    size, width, begin, i, got[begin + i]))
            return false;
    all_are(out, got, begin, 0, "before a fill");
    all_are(out, got + begin + size, GUARD, 0, "behind a fill");
    return out->verdict == VERDICT_PASS;
}

static void large_fills_are_complete(suite *self, outcome *out, const test *one)
{
    plugin_tables *p = plugin_tables_open(self, out);
    plugin_block block = {{0}, 0};
    unsigned char *got = malloc(MANY + 2 * GUARD);
    bool good = p && got && plugin_alloc(p, out, MANY + 2 * GUARD, &block);

    (void)one;
    if (!got)
        harness_error(out, "no memory");
    for (uint32_t width = 1; good && width <= 8; width *= 2)
        good = fill_many(p, &block, got, width, out);
    if (p)
        plugin_free(p, &block);
    free(got);
}

/* --------------------------------------------------------- host memory -- */

/* Reading into host memory must not write outside it. */
static void reads_stay_in_bounds(suite *self, outcome *out, const test *one)
{
    static const uint32_t sizes[] = {1, 2, 3, 5, 7, 9, 13, 31, 63, 65, 1001};
    unsigned char wrote[1024], got[1024 + 2 * GUARD];
    plugin_tables *p = plugin_tables_open(self, out);
    plugin_block block = {{0}, 0};

    (void)one;
    if (!p || !plugin_alloc(p, out, sizeof wrote, &block))
        return;
    memset(wrote, 0x3c, sizeof wrote);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(got, 0xa5, sizeof got);
        if (!plugin_write(p, out, block.memory, wrote, sizeof wrote) ||
            !plugin_read(p, out, got + GUARD, block.memory, sizes[i]) ||
            !all_are(out, got, GUARD, 0xa5,
                     "before the destination of a read") ||
            !all_are(out, got + GUARD + sizes[i], GUARD, 0xa5,
                     "behind the destination of a read"))
            break;
    }
    plugin_free(p, &block);
}

/* -------------------------------------------------------------- asking -- */

static bool query_device(plugin_tables *p, outcome *out)
{
    static const char *const names[] = {"core.timing", "core.host_memory",
                                        "core.graph_capture", "core.nothing"};
    core_device_properties properties = {.struct_size = sizeof properties,
                                         .granularity = 1};
    core_device_information about = {.struct_size = sizeof about};
    core_string reason = {"", 0};
    uint32_t count;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        plugin_interface(p, names[i]);
    return expect_plugin_ok(
               out, p->backend.enumerate(p->backend.user, &count, &reason),
               "enumerate") &&
           expect_plugin_ok(
               out, p->backend.device_properties(p->device, &properties),
               "device_properties") &&
           (!p->backend.device_information ||
            expect_plugin_ok(out,
                             p->backend.device_information(p->device, &about),
                             "device_information")) &&
           (!p->backend.device_status ||
            expect_plugin_ok(out, p->backend.device_status(p->device),
                             "device_status"));
}

static bool reopen(plugin_tables *p, outcome *out)
{
    p->backend.device_close(p->backend.user, p->device);
    p->device = NULL;
    return expect_plugin_ok(
        out, p->backend.device_open(p->backend.user, p->index, &p->device),
        "reopening the device");
}

/* Memory allocated once may stay; a leak repeats. */
static void leaks_nothing(plugin_tables *p, outcome *out, uint32_t rounds,
                          bool (*act)(plugin_tables *, outcome *),
                          const char *what)
{
    enum { TIMES = 6 };
    bool heap_grows = true;
    uint32_t map_rests = 0;

    for (int i = 0; (heap_grows || map_rests < PROCESS_MAP_ROUNDS) && i < TIMES;
         i++) {
        uint64_t heap = process_heap(), mapped = process_mapped();

        for (uint32_t k = 0; k < rounds; k++)
            if (!act(p, out))
                return;
        heap_grows = !process_heap_below(heap + rounds * 16);
        map_rests += process_mapped_below(mapped + rounds * PROCESS_MAP_BYTES);
    }
    expect(out, !heap_grows, "every %u times, %s leaks on the host's heap",
           rounds, what);
    expect(out, map_rests >= PROCESS_MAP_ROUNDS,
           "every %u times, %s leaks mappings (mmap)", rounds, what);
}

/* A device's description of itself. */
typedef struct description {
    core_device_properties properties;
    char texts[6][256];
} description;

static void copy_text(char *to, size_t capacity, core_string text)
{
    memset(to, 0, capacity);
    if (text.data)
        memcpy(to, text.data, text.size < capacity ? text.size : capacity - 1);
}

static bool query_description(plugin_tables *p, description *got, outcome *out)
{
    core_device_information about = {.struct_size = sizeof about};

    memset(got, 0, sizeof *got);
    got->properties.struct_size = sizeof got->properties;
    got->properties.granularity = 1;
    if (!expect_plugin_ok(
            out, p->backend.device_properties(p->device, &got->properties),
            "device_properties"))
        return false;
    if (p->backend.device_information &&
        !expect_plugin_ok(out, p->backend.device_information(p->device, &about),
                          "device_information"))
        return false;
    copy_text(got->texts[0], sizeof *got->texts, about.name);
    copy_text(got->texts[1], sizeof *got->texts, about.stable_id);
    copy_text(got->texts[2], sizeof *got->texts, about.driver);
    copy_text(got->texts[3], sizeof *got->texts, about.runtime);
    copy_text(got->texts[4], sizeof *got->texts, about.firmware);
    copy_text(got->texts[5], sizeof *got->texts, about.features);
    return true;
}

static bool same(const description *first, const description *again,
                 const char *when, outcome *out)
{
    static const char *const names[] = {"name",    "stable id", "driver",
                                        "runtime", "firmware",  "features"};

    for (int i = 0; i < 6; i++)
        if (!expect(out, strcmp(first->texts[i], again->texts[i]) == 0,
                    "its %s was \"%s\" and is \"%s\" %s", names[i],
                    first->texts[i], again->texts[i], when))
            return false;
    return expect(out,
                  memcmp(&first->properties, &again->properties,
                         sizeof first->properties) == 0,
                  "its properties (device_properties) change %s: its memory "
                  "was %llu bytes and is %llu",
                  when, (unsigned long long)first->properties.total_memory,
                  (unsigned long long)again->properties.total_memory);
}

/* Callers may query once and keep the result, whatever happens meanwhile. */
static void information_is_stable(suite *self, outcome *out, const test *one)
{
    static description first, again;
    plugin_tables *p = plugin_tables_open(self, out);
    unsigned char bytes[BYTES] = {0};
    plugin_block block = {{0}, 0};

    (void)one;
    if (!p || !query_description(p, &first, out))
        return;
    for (int i = 0; i < 20; i++)
        if (!query_description(p, &again, out) ||
            !same(&first, &again, "when it is queried again", out))
            return;
    if (plugin_alloc(p, out, 1 << 20, &block) &&
        plugin_write(p, out, block.memory, bytes, BYTES) &&
        query_description(p, &again, out))
        same(&first, &again, "after some work", out);
    plugin_free(p, &block);
}

/* A reopened device must be the same. */
static void information_is_the_same(suite *self, outcome *out, const test *one)
{
    static description first, again;
    plugin_tables *p = plugin_tables_open(self, out);

    (void)one;
    if (!p || !query_description(p, &first, out))
        return;
    if (p->stream)
        p->streams.destroy(p->device, p->stream);
    p->stream = NULL;
    for (int i = 0; i < 5; i++)
        if (!reopen(p, out) || !query_description(p, &again, out) ||
            !same(&first, &again, "when it is reopened", out))
            return;
}

static void queries_do_not_leak(suite *self, outcome *out, const test *one)
{
    plugin_tables *p = plugin_tables_open(self, out);

    (void)one;
    if (p)
        leaks_nothing(p, out, 200, query_device, "querying the device");
}

static void opening_does_not_leak(suite *self, outcome *out, const test *one)
{
    plugin_tables *p = plugin_tables_open(self, out);

    (void)one;
    if (!p)
        return;
    if (p->stream)
        p->streams.destroy(p->device, p->stream);
    p->stream = NULL;
    leaks_nothing(p, out, 30, reopen, "opening and closing the device");
}

bool suite_add_order(suite *self)
{
    static const listed tests[] = {
        {"core/memory/large-fills-are-complete", large_fills_are_complete,
         true},
        {"core/memory/reads-stay-in-bounds", reads_stay_in_bounds, false},
        {"core/streams/fills-are-in-order", fills_in_order, true},
        {"core/device/queries-do-not-leak", queries_do_not_leak, false},
        {"core/device/information-is-stable", information_is_stable, false},
        {"core/reopen/information-is-stable", information_is_the_same, false},
        {"core/reopen/opening-does-not-leak", opening_does_not_leak, false},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
