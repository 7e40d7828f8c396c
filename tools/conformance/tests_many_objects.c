/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: more blocks, events and queued work than a table of 1024 has room
 * for, and copies of many bytes from and to any address. */

#include "plugin_tables.h"
#include "stream_gate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 1100, EVENTS = 1100, FILLS = 3000, SMALL = 4 };

/* --------------------------------------------------------------- blocks -- */

static void number_of(uint32_t i, unsigned char bytes[SMALL])
{
    i = i * 2654435761u + 1;
    memcpy(bytes, &i, SMALL);
}

typedef struct many_blocks {
    plugin_tables *plugin;
    outcome *out;
    plugin_block blocks[BLOCKS];
    uint32_t count;
} many_blocks;

/* How many blocks are at most half of the device's memory. */
static uint32_t most_blocks(const plugin_tables *p)
{
    uint64_t step = p->properties.granularity;
    uint64_t fit =
        p->properties.total_memory / 2 / (step > SMALL ? step : SMALL);

    return p->properties.total_memory > 0 && fit < BLOCKS ? (uint32_t)fit
                                                          : BLOCKS;
}

/* Tests whether other programs use most of the memory. */
static bool is_full(plugin_tables *p)
{
    uint64_t left, total;

    return p->memory.info &&
           p->memory.info(p->device, &left, &total) == CORE_OK &&
           left < total / 8;
}

static bool alloc_all(many_blocks *m)
{
    uint32_t most = most_blocks(m->plugin);
    outcome failed = {.verdict = VERDICT_PASS};

    while (m->count < most &&
           plugin_alloc(m->plugin, &failed, SMALL, &m->blocks[m->count]))
        m->count++;
    if (failed.verdict != VERDICT_PASS &&
        (m->count == 0 || !is_full(m->plugin))) {
        *m->out = failed;
        return false;
    }
    if (m->count < BLOCKS)
        snprintf(m->out->detail, sizeof m->out->detail,
                 "%u blocks were allocated, not %d: no more fit into %s of its "
                 "memory",
                 m->count, (int)BLOCKS,
                 m->count < most ? "what is left" : "half");
    return true;
}

static bool write_all(many_blocks *m)
{
    static unsigned char numbers[BLOCKS][SMALL]; /* until the copies are done */
    plugin_tables *p = m->plugin;

    for (uint32_t i = 0; i < m->count; i++) {
        number_of(i, numbers[i]);
        if (!expect_plugin_ok(m->out,
                              p->memory.copy_from_host(p->device, p->stream,
                                                       m->blocks[i].memory,
                                                       numbers[i], SMALL),
                              "copy_from_host"))
            return false;
    }
    return plugin_wait(p, m->out);
}

static bool read_all(many_blocks *m)
{
    static unsigned char numbers[BLOCKS][SMALL];
    plugin_tables *p = m->plugin;
    unsigned char wanted[SMALL];

    for (uint32_t i = 0; i < m->count; i++)
        if (!expect_plugin_ok(
                m->out,
                p->memory.copy_to_host(p->device, p->stream, numbers[i],
                                       m->blocks[i].memory, SMALL),
                "copy_to_host"))
            return false;
    if (!plugin_wait(p, m->out))
        return false;
    for (uint32_t i = 0; i < m->count; i++) {
        number_of(i, wanted);
        if (!expect(m->out, memcmp(numbers[i], wanted, SMALL) == 0,
                    "of %u blocks that exist at once, block %u of %d bytes "
                    "does not keep its data",
                    m->count, i, (int)SMALL))
            return false;
    }
    return true;
}

static void blocks_keep_data(suite *self, outcome *out, const test *one)
{
    static many_blocks m;
    plugin_tables *p = plugin_tables_open(self, out);

    (void)one;
    if (!p)
        return;
    memset(&m, 0, sizeof m);
    m.plugin = p;
    m.out = out;
    if (alloc_all(&m) && write_all(&m))
        read_all(&m);
    plugin_wait(p, out);
    for (uint32_t i = 0; i < m.count; i++)
        plugin_free(p, &m.blocks[i]);
}

/* --------------------------------------------------------------- queues -- */

/* Each fills a byte of its own; the queue may be full meanwhile. */
static void many_fills(suite *self, outcome *out, const test *one)
{
    plugin_tables *p = plugin_tables_open(self, out);
    unsigned char got[FILLS] = {0};
    plugin_block block = {{0}, 0};
    bool good = p && plugin_alloc(p, out, FILLS, &block) &&
                plugin_write(p, out, block.memory, got, FILLS);

    (void)one;
    for (uint32_t i = 0; good && i < FILLS; i++)
        good = expect_plugin_ok(out,
                                p->memory.fill(p->device, p->stream,
                                               plugin_block_at(&block, i), 1,
                                               i % 251 + 1, 1),
                                "fill");
    good = good && plugin_read(p, out, got, block.memory, FILLS);
    for (uint32_t i = 0; good && i < FILLS; i++)
        good =
            expect(out, got[i] == i % 251 + 1,
                   "of %d fills of a byte that were enqueued at once, number "
                   "%u had no effect: its byte is %d, expected %u",
                   (int)FILLS, i, got[i], i % 251 + 1);
    if (p)
        plugin_wait(p, out);
    if (p)
        plugin_free(p, &block);
}

/* --------------------------------------------------------------- events -- */

typedef struct bench {
    plugin_tables *plugin;
    outcome *out;
    stream_gate gate;
    void *streams[2]; /* the first is blocked */
    void *events[EVENTS];
    uint32_t nevents;
} bench;

/* Every third event is recorded on the stream that is not blocked.  Tables whose
 * size is a power of two have others at the same place. */
static bool is_free(uint32_t event)
{
    return event % 3 == 0;
}

/* A record may wait while a queue has no room, which opens the gate. */
static bool record_all(bench *b)
{
    plugin_tables *p = b->plugin;

    for (; b->nevents < EVENTS; b->nevents++) {
        void **event = &b->events[b->nevents];

        stream_gate_begin_call(&b->gate);

        if (!expect_plugin_ok(b->out, p->events.create(p->device, 0, event),
                              "creating an event") ||
            !expect_plugin_ok(b->out,
                              p->events.record(p->device, *event,
                                               b->streams[is_free(b->nevents)]),
                              "recording an event"))
            return false;
    }
    return expect_plugin_ok(b->out,
                            p->streams.synchronize(p->device, b->streams[1]),
                            "synchronizing a stream");
}

/* early: the first that is complete although its stream is blocked, or EVENTS;
 * late: the first that is not, although its stream is at rest. */
static void look(const bench *b, uint32_t *early, uint32_t *late)
{
    plugin_tables *p = b->plugin;

    *early = *late = EVENTS;
    for (uint32_t i = EVENTS; i-- > 0;) {
        bool complete = p->events.query(p->device, b->events[i]) == CORE_OK;

        if (complete && !is_free(i))
            *early = i;
        if (!complete && is_free(i))
            *late = i;
    }
}

static void finish(bench *b)
{
    plugin_tables *p = b->plugin;

    stream_gate_open(&b->gate);
    for (int i = 0; i < 2; i++)
        if (b->streams[i])
            p->streams.synchronize(p->device, b->streams[i]);
    for (uint32_t i = 0; i < b->nevents; i++)
        p->events.destroy(p->device, b->events[i]);
    stream_gate_destroy(&b->gate);
    for (int i = 0; i < 2; i++)
        if (b->streams[i])
            p->streams.destroy(p->device, b->streams[i]);
}

/* Returns whether it has seen anything. */
static bool check_all(bench *b)
{
    uint32_t early, late;
    bool held;

    look(b, &early, &late);
    held = stream_gate_holds(&b->gate);
    if (held)
        expect(b->out, early == EVENTS,
               "of %d events that exist at once, number %u is complete, "
               "although the stream that it is recorded on is blocked",
               (int)EVENTS, early);
    expect(b->out, late == EVENTS,
           "of %d events that exist at once, number %u is not complete, "
           "although the stream that it is recorded on is at rest",
           (int)EVENTS, late);
    if (!stream_gate_expired(&b->gate) || b->out->verdict != VERDICT_PASS)
        return held;
    snprintf(b->out->detail, sizeof b->out->detail,
             "it was not tested whether %d events of a blocked stream are "
             "complete: one of their records waits for the stream",
             (int)EVENTS);
    return true;
}

static bool record_many(suite *self, outcome *out)
{
    static bench b;
    plugin_tables *p = plugin_tables_open(self, out);
    bool seen = false, good = p && plugin_has_streams(p, 2, out);

    if (!good)
        return false;
    memset(&b, 0, sizeof b);
    b.plugin = p;
    b.out = out;
    stream_gate_init(&b.gate);
    b.gate.patience = 2;
    for (int i = 0; good && i < 2; i++)
        good = expect_plugin_ok(out,
                                p->streams.create(p->device, 0, &b.streams[i]),
                                "creating a stream");
    if (good && stream_gate_close(&b.gate, p, b.streams[0], out) &&
        record_all(&b))
        seen = check_all(&b);
    finish(&b);
    return seen;
}

static void many_events(suite *self, outcome *out, const test *one)
{
    (void)one;
    stream_gate_test(record_many, self, out);
}

/* -------------------------------------------------------- large unaligned -- */

enum { LARGE = 300007, AROUND = 16 };

static bool copy_unaligned(plugin_tables *p, const plugin_block *block,
                           unsigned char *from, unsigned char *to,
                           uint32_t at_host, uint32_t at_device, outcome *out)
{
    core_memory memory = plugin_block_at(block, AROUND + at_device);

    memset(to, 0, LARGE + 2 * AROUND);
    if (!plugin_write(p, out, memory, from + at_host, LARGE) ||
        !plugin_read(p, out, to + at_host, memory, LARGE))
        return false;
    for (size_t i = 0; i < LARGE; i++)
        if (!expect(out, to[at_host + i] == from[at_host + i],
                    "%d bytes from a host address that is %u more than a "
                    "multiple of 16 to an offset that is %u more, and back: "
                    "byte %zu is %d, expected %d",
                    (int)LARGE, at_host, at_device, i, to[at_host + i],
                    from[at_host + i]))
            return false;
    for (size_t i = 0; i < AROUND; i++)
        if (!expect(out,
                    to[at_host + LARGE + i] == 0 &&
                        (i >= at_host || to[i] == 0),
                    "a read of %d bytes to a host address that is %u more than "
                    "a multiple of 16 writes outside them",
                    (int)LARGE, at_host))
            return false;
    return true;
}

/* Copies that an engine splits have other parts at other addresses. */
static void large_unaligned_copies(suite *self, outcome *out, const test *one)
{
    static const uint32_t places[][2] = {
        {0, 1}, {1, 0}, {8, 4}, {3, 7}, {15, 2}};
    plugin_tables *p = plugin_tables_open(self, out);
    unsigned char *from = aligned_alloc(64, 1 << 19);
    unsigned char *to = aligned_alloc(64, 1 << 19);
    plugin_block block = {{0}, 0};
    bool good =
        p && from && to && plugin_alloc(p, out, LARGE + 2 * AROUND, &block);

    (void)one;
    if (!from || !to)
        harness_error(out, "no memory");
    for (size_t i = 0; good && i < LARGE + 2 * AROUND; i++)
        from[i] = (unsigned char)(i * 7 % 253 + 1);
    for (size_t i = 0; good && i < sizeof places / sizeof *places; i++)
        good = copy_unaligned(p, &block, from, to, places[i][0], places[i][1],
                              out);
    if (p)
        plugin_free(p, &block);
    free(to);
    free(from);
}

bool suite_add_many_objects(suite *self)
{
    static const listed tests[] = {
        {"core/memory/many-blocks", blocks_keep_data, false},
        {"core/memory/large-unaligned-copies", large_unaligned_copies, false},
        {"core/device/many-fills-are-queued", many_fills, false},
        {"core/device/many-events", many_events, true},
    };

    return suite_add_list(self, LEVEL_CORE, tests,
                          sizeof tests / sizeof *tests);
}
