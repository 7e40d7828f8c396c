/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: contents and lifetime of graphs. */

#include "process_state.h"
#include "stream_gate.h"
#include "tests_features.h"

#include <string.h>

enum { BYTES = 4096 };

typedef struct bench {
    plugin_tables *plugin;
    const core_graph_capture_interface *table;
    plugin_block a, b, c, d;
    unsigned char bytes[BYTES];
} bench;

static bool put(bench *self, outcome *out, const plugin_block *to, int value)
{
    memset(self->bytes, value, BYTES);
    return plugin_write(self->plugin, out, to->memory, self->bytes, BYTES);
}

static bool holds(bench *self, outcome *out, const plugin_block *block,
                  int value, const char *what)
{
    if (!plugin_read(self->plugin, out, self->bytes, block->memory, BYTES))
        return false;
    for (int i = 0; i < BYTES; i++)
        if (!expect(out, self->bytes[i] == value,
                    "%s: byte %d is %d, expected %d", what, i, self->bytes[i],
                    value))
            return false;
    return true;
}

static bool move(bench *self, void *stream, const plugin_block *to,
                 const plugin_block *from, outcome *out)
{
    plugin_tables *p = self->plugin;

    return expect_plugin_ok(
        out, p->memory.copy(p->device, stream, to->memory, from->memory, BYTES),
        "copy");
}

/* Four blocks: 1, 2, 3 and 4. */
static bool bench_begin(bench *self, suite *of, outcome *out)
{
    plugin_tables *plugin;

    memset(self, 0, sizeof *self);
    plugin = self->plugin = plugin_tables_open(of, out);
    if (!plugin)
        return false;
    self->table = plugin_interface(plugin, "core.graph_capture");
    if (!self->table) {
        not_supported(out, "it has no core.graph_capture");
        return false;
    }
    return plugin_alloc(plugin, out, BYTES, &self->a) &&
           plugin_alloc(plugin, out, BYTES, &self->b) &&
           plugin_alloc(plugin, out, BYTES, &self->c) &&
           plugin_alloc(plugin, out, BYTES, &self->d) &&
           put(self, out, &self->a, 1) && put(self, out, &self->b, 2) &&
           put(self, out, &self->c, 3) && put(self, out, &self->d, 4);
}

static void bench_end(bench *self)
{
    if (!self->plugin)
        return;
    plugin_free(self->plugin, &self->a);
    plugin_free(self->plugin, &self->b);
    plugin_free(self->plugin, &self->c);
    plugin_free(self->plugin, &self->d);
}

/* Ends what worked behind a gate; graph and stream may be NULL. */
static void bench_end_gated(bench *self, stream_gate *hold, void *graph,
                            void *stream, outcome *out)
{
    plugin_tables *p = self->plugin;

    stream_gate_open(hold);
    if (p)
        plugin_wait(p, out);
    if (graph)
        self->table->destroy(p->device, graph);
    if (stream)
        p->streams.destroy(p->device, stream);
    bench_end(self);
    stream_gate_destroy(hold);
}

/* A graph of two copies: b = a, c = b. */
static bool capture(bench *self, void **out_graph, outcome *out)
{
    plugin_tables *p = self->plugin;
    bool good;

    if (!expect_plugin_ok(out, self->table->begin(p->device, p->stream),
                          "beginning a capture"))
        return false;
    good = move(self, p->stream, &self->b, &self->a, out) &&
           move(self, p->stream, &self->c, &self->b, out);
    return expect_plugin_ok(out,
                            self->table->end(p->device, p->stream, out_graph),
                            "ending a capture") &&
           good;
}

/* The graph is destroyed while its launch is pending or running.  Another one,
 * captured right away, may reuse its memory. */
static bool destroy_during_launch(suite *self, outcome *out)
{
    static bench b;
    void *graph = NULL;
    stream_gate hold;
    bool good, held = false;

    stream_gate_init(&hold);
    if (!bench_begin(&b, self, out) || !capture(&b, &graph, out) ||
        !stream_gate_close(&hold, b.plugin, b.plugin->stream, out))
        goto done;
    good = expect_plugin_ok(
        out, b.table->launch(b.plugin->device, graph, b.plugin->stream),
        "launching a graph");
    b.table->destroy(b.plugin->device, graph);
    graph = NULL;
    held = stream_gate_holds(&hold);
    stream_gate_open(&hold);
    if (!good || !plugin_wait(b.plugin, out) ||
        !holds(&b, out, &b.b, 1,
               "a graph that was destroyed during its launch did not complete "
               "it") ||
        !holds(
            &b, out, &b.c, 1,
            "a graph that was destroyed during its launch did not complete it"))
        goto done;
    if (capture(&b, &graph, out) && put(&b, out, &b.a, 9) &&
        expect_plugin_ok(
            out, b.table->launch(b.plugin->device, graph, b.plugin->stream),
            "launching a graph"))
        holds(&b, out, &b.c, 9, "a graph created after one was destroyed");
done:
    bench_end_gated(&b, &hold, graph, NULL, out);
    return held;
}

void features_destroyed_graph_completes(suite *self, outcome *out,
                                        const test *one)
{
    (void)one;
    stream_gate_test(destroy_during_launch, self, out);
}

/* While one stream is captured another executes d = c, at once and only
 * once. */
void features_capture_records_one_stream(suite *self, outcome *out,
                                         const test *one)
{
    static bench b;
    void *stream = NULL, *graph = NULL;
    plugin_tables *p;
    bool good;

    (void)one;
    if (!bench_begin(&b, self, out))
        goto done;
    p = b.plugin;
    if (!plugin_has_streams(p, 1, out) ||
        !expect_plugin_ok(out, p->streams.create(p->device, 0, &stream),
                          "creating a stream") ||
        !expect_plugin_ok(out, b.table->begin(p->device, p->stream),
                          "beginning a capture"))
        goto done;
    good = move(&b, p->stream, &b.b, &b.a, out) &&
           move(&b, stream, &b.d, &b.c, out) &&
           expect_plugin_ok(out, p->streams.synchronize(p->device, stream),
                            "synchronizing a stream that is not captured");
    if (!expect_plugin_ok(out, b.table->end(p->device, p->stream, &graph),
                          "ending a capture") ||
        !good ||
        !holds(&b, out, &b.d, 3,
               "while a stream was captured another one did not execute its "
               "work") ||
        !holds(&b, out, &b.b, 2, "captured work runs at once") ||
        !put(&b, out, &b.d, 5) ||
        !expect_plugin_ok(out, b.table->launch(p->device, graph, p->stream),
                          "launching a graph"))
        goto done;
    if (holds(&b, out, &b.b, 1, "a launch does not do what was captured"))
        holds(&b, out, &b.d, 5,
              "a graph contains the work of a stream that was not captured");
done:
    if (graph)
        b.table->destroy(b.plugin->device, graph);
    if (stream)
        b.plugin->streams.destroy(b.plugin->device, stream);
    bench_end(&b);
}

/* --------------------------------------------------------- several graphs -- */

/* Captures to = from as one graph. */
static bool capture_copy(bench *self, const plugin_block *to,
                         const plugin_block *from, void **out_graph,
                         outcome *out)
{
    plugin_tables *p = self->plugin;
    bool good;

    if (!expect_plugin_ok(out, self->table->begin(p->device, p->stream),
                          "beginning a capture"))
        return false;
    good = move(self, p->stream, to, from, out);
    return expect_plugin_ok(out,
                            self->table->end(p->device, p->stream, out_graph),
                            "ending a capture") &&
           good;
}

static bool launch(bench *self, void *graph, void *stream, outcome *out)
{
    plugin_tables *p = self->plugin;

    return expect_plugin_ok(out, self->table->launch(p->device, graph, stream),
                            "launching a graph");
}

/* Graphs b = a and d = c exist at the same time. */
void features_graphs_are_separate(suite *self, outcome *out, const test *one)
{
    static bench b;
    void *first = NULL, *second = NULL;

    (void)one;
    if (bench_begin(&b, self, out) &&
        capture_copy(&b, &b.b, &b.a, &first, out) &&
        capture_copy(&b, &b.d, &b.c, &second, out) &&
        launch(&b, first, b.plugin->stream, out) &&
        holds(&b, out, &b.b, 1, "the launch of the first of two graphs") &&
        holds(&b, out, &b.d, 4,
              "the launch of the first of two graphs runs the second") &&
        launch(&b, second, b.plugin->stream, out))
        holds(&b, out, &b.d, 3, "the launch of the second of two graphs");
    if (first)
        b.table->destroy(b.plugin->device, first);
    if (second)
        b.table->destroy(b.plugin->device, second);
    bench_end(&b);
}

/* The stream that was captured is blocked; the graph runs on another. */
static bool launch_beside_gate(suite *self, outcome *out)
{
    static bench b;
    void *graph = NULL, *stream = NULL;
    bool held = false;
    stream_gate hold;
    plugin_tables *p;

    stream_gate_init(&hold);
    if (!bench_begin(&b, self, out) || !plugin_has_streams(b.plugin, 1, out) ||
        !capture_copy(&b, &b.b, &b.a, &graph, out))
        goto done;
    p = b.plugin;
    if (!expect_plugin_ok(out, p->streams.create(p->device, 0, &stream),
                          "creating a stream") ||
        !stream_gate_close(&hold, p, p->stream, out))
        goto done;
    if (launch(&b, graph, stream, out) &&
        expect_plugin_ok(
            out,
            p->memory.copy(p->device, stream, b.d.memory, b.b.memory, BYTES),
            "copy") &&
        expect_plugin_ok(out, p->streams.synchronize(p->device, stream),
                         "synchronizing")) {
        held = stream_gate_holds(&hold);
        stream_gate_open(&hold);
        holds(&b, out, &b.d, 1,
              "work behind the launch of a graph on a stream, while the stream "
              "that was captured is blocked");
    }
done:
    bench_end_gated(&b, &hold, graph, stream, out);
    return held;
}

void features_graph_launches_on_its_stream(suite *self, outcome *out,
                                           const test *one)
{
    (void)one;
    stream_gate_test(launch_beside_gate, self, out);
}

/* a = c, a graph of b = a, and d = b on a stream that is blocked. */
static bool launch_behind_gate(suite *self, outcome *out)
{
    static bench b;
    void *graph = NULL;
    bool held = false;
    stream_gate hold;
    plugin_tables *p;

    stream_gate_init(&hold);
    if (!bench_begin(&b, self, out) ||
        !capture_copy(&b, &b.b, &b.a, &graph, out))
        goto done;
    p = b.plugin;
    if (!stream_gate_close(&hold, p, p->stream, out))
        goto done;
    if (move(&b, p->stream, &b.a, &b.c, out) &&
        launch(&b, graph, p->stream, out) &&
        move(&b, p->stream, &b.d, &b.b, out)) {
        /* A graph that does not wait has run. */
        if (!hold.plugin)
            process_settle();
        held = stream_gate_holds(&hold);
        stream_gate_open(&hold);
        if (plugin_wait(p, out) &&
            holds(&b, out, &b.b, 3,
                  "the launch of a graph does not wait for the copy before it "
                  "on its stream"))
            holds(&b, out, &b.d, 3,
                  "a copy behind the launch of a graph does not wait for it");
    }
done:
    bench_end_gated(&b, &hold, graph, NULL, out);
    return held;
}

void features_graph_launch_is_in_order(suite *self, outcome *out,
                                       const test *one)
{
    (void)one;
    stream_gate_test(launch_behind_gate, self, out);
}

/* A graph of b = a is launched, and again while the first launch is pending. */
static bool launch_twice_behind_gate(suite *self, outcome *out)
{
    static bench b;
    void *graph = NULL;
    bool held = false;
    stream_gate hold;
    plugin_tables *p;

    stream_gate_init(&hold);
    if (!bench_begin(&b, self, out) ||
        !capture_copy(&b, &b.b, &b.a, &graph, out))
        goto done;
    p = b.plugin;
    if (!stream_gate_close(&hold, p, p->stream, out))
        goto done;
    if (launch(&b, graph, p->stream, out) &&
        move(&b, p->stream, &b.d, &b.b, out) &&
        move(&b, p->stream, &b.a, &b.c, out) &&
        launch(&b, graph, p->stream, out)) {
        held = stream_gate_holds(&hold);
        stream_gate_open(&hold);
        if (plugin_wait(p, out) &&
            holds(&b, out, &b.d, 1, "the first of two launches of a graph"))
            holds(&b, out, &b.b, 3,
                  "a graph that is launched again while a launch of it is "
                  "pending");
    }
done:
    bench_end_gated(&b, &hold, graph, NULL, out);
    return held;
}

void features_pending_graph_launches_again(suite *self, outcome *out,
                                           const test *one)
{
    (void)one;
    stream_gate_test(launch_twice_behind_gate, self, out);
}

/* Work that runs though it was captured has run. */
static bool settle(void)
{
    process_settle();
    return true;
}

/* b = a and a fill of d are captured and discarded. */
void features_capture_can_be_discarded(suite *self, outcome *out,
                                       const test *one)
{
    static bench b;
    plugin_tables *p;
    bool good;

    (void)one;
    if (!bench_begin(&b, self, out))
        goto done;
    p = b.plugin;
    if (!expect_plugin_ok(out, b.table->begin(p->device, p->stream),
                          "beginning a capture"))
        goto done;
    good =
        move(&b, p->stream, &b.b, &b.a, out) &&
        expect_plugin_ok(
            out, p->memory.fill(p->device, p->stream, b.d.memory, BYTES, 9, 1),
            "fill");
    if (expect_plugin_ok(out, b.table->end(p->device, p->stream, NULL),
                         "ending a capture without a graph") &&
        good && settle() &&
        holds(&b, out, &b.b, 2, "a captured copy that was discarded") &&
        holds(&b, out, &b.d, 4, "a captured fill that was discarded") &&
        move(&b, p->stream, &b.c, &b.a, out))
        holds(&b, out, &b.c, 1,
              "a copy on a stream whose capture was discarded");
done:
    bench_end(&b);
}
