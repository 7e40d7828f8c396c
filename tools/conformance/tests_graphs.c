/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level core: what a graph holds, and how long. */

#include "stream_gate.h"
#include "tests_features.h"

#include <string.h>

enum { BYTES = 4096 };

typedef struct bench {
    raw *plugin;
    const core_graph_capture_interface *table;
    raw_block a, b, c, d;
    unsigned char bytes[BYTES];
} bench;

static bool put(bench *self, outcome *out, const raw_block *to, int value)
{
    memset(self->bytes, value, BYTES);
    return raw_write(self->plugin, out, to->memory, self->bytes, BYTES);
}

static bool holds(bench *self, outcome *out, const raw_block *block, int value,
                  const char *what)
{
    if (!raw_read(self->plugin, out, self->bytes, block->memory, BYTES))
        return false;
    for (int i = 0; i < BYTES; i++)
        if (!expect(out, self->bytes[i] == value, "%s: byte %d is %d, not %d",
                    what, i, self->bytes[i], value))
            return false;
    return true;
}

static bool move(bench *self, void *stream, const raw_block *to,
                 const raw_block *from, outcome *out)
{
    raw *p = self->plugin;

    return raw_ok(
        out, p->memory.copy(p->device, stream, to->memory, from->memory, BYTES),
        "copy");
}

/* Four blocks: 1, 2, 3 and 4. */
static bool bench_begin(bench *self, suite *of, outcome *out)
{
    raw *plugin;

    memset(self, 0, sizeof *self);
    plugin = self->plugin = raw_open(of, out);
    if (!plugin)
        return false;
    self->table = raw_interface(plugin, "core.graph_capture");
    if (!self->table) {
        not_supported(out, "it has no core.graph_capture");
        return false;
    }
    return raw_alloc(plugin, out, BYTES, &self->a) &&
           raw_alloc(plugin, out, BYTES, &self->b) &&
           raw_alloc(plugin, out, BYTES, &self->c) &&
           raw_alloc(plugin, out, BYTES, &self->d) &&
           put(self, out, &self->a, 1) && put(self, out, &self->b, 2) &&
           put(self, out, &self->c, 3) && put(self, out, &self->d, 4);
}

static void bench_end(bench *self)
{
    if (!self->plugin)
        return;
    raw_free(self->plugin, &self->a);
    raw_free(self->plugin, &self->b);
    raw_free(self->plugin, &self->c);
    raw_free(self->plugin, &self->d);
}

/* A graph of two copies: b = a, c = b. */
static bool capture(bench *self, void **out_graph, outcome *out)
{
    raw *p = self->plugin;
    bool good;

    if (!raw_ok(out, self->table->begin(p->device, p->stream),
                "beginning a capture"))
        return false;
    good = move(self, p->stream, &self->b, &self->a, out) &&
           move(self, p->stream, &self->c, &self->b, out);
    return raw_ok(out, self->table->end(p->device, p->stream, out_graph),
                  "ending a capture") &&
           good;
}

/* It is destroyed while its launch has yet to come, or runs.  Another that is
 * captured at once may get the memory that it had. */
void features_graph_outlives(suite *self, outcome *out, const test *one)
{
    static bench b;
    void *graph = NULL, *other = NULL;
    gate hold;
    bool good;

    (void)one;
    gate_begin(&hold);
    if (!bench_begin(&b, self, out) || !capture(&b, &graph, out))
        goto done;
    if (raw_interface(b.plugin, "core.host_callback") &&
        !gate_close(&hold, b.plugin, b.plugin->stream, out))
        goto done;
    good =
        raw_ok(out, b.table->launch(b.plugin->device, graph, b.plugin->stream),
               "launching a graph");
    b.table->destroy(b.plugin->device, graph);
    graph = NULL;
    gate_open(&hold);
    if (!good || !raw_wait(b.plugin, out) ||
        !holds(&b, out, &b.b, 1,
               "a graph that was destroyed at work has not done it") ||
        !holds(&b, out, &b.c, 1,
               "a graph that was destroyed at work has not done it"))
        goto done;
    if (capture(&b, &other, out) && put(&b, out, &b.a, 9) &&
        raw_ok(out, b.table->launch(b.plugin->device, other, b.plugin->stream),
               "launching a graph"))
        holds(&b, out, &b.c, 9, "a graph, made after one was destroyed");
done:
    gate_open(&hold);
    if (b.plugin)
        raw_wait(b.plugin, out);
    if (graph)
        b.table->destroy(b.plugin->device, graph);
    if (other)
        b.table->destroy(b.plugin->device, other);
    bench_end(&b);
    gate_end(&hold);
}

/* While one stream is captured another gets d = c, which is done then and
 * there, and never again. */
void features_graph_is_its_own(suite *self, outcome *out, const test *one)
{
    static bench b;
    void *stream = NULL, *graph = NULL;
    raw *p;
    bool good;

    (void)one;
    if (!bench_begin(&b, self, out))
        goto done;
    p = b.plugin;
    if (!raw_streams(p, 1, out) ||
        !raw_ok(out, p->streams.create(p->device, 0, &stream),
                "creating a stream") ||
        !raw_ok(out, b.table->begin(p->device, p->stream),
                "beginning a capture"))
        goto done;
    good = move(&b, p->stream, &b.b, &b.a, out) &&
           move(&b, stream, &b.d, &b.c, out) &&
           raw_ok(out, p->streams.synchronize(p->device, stream),
                  "synchronizing another stream than is captured");
    if (!raw_ok(out, b.table->end(p->device, p->stream, &graph),
                "ending a capture") ||
        !good ||
        !holds(&b, out, &b.d, 3,
               "while a stream was captured another did not do its work") ||
        !holds(&b, out, &b.b, 2, "what is captured runs at once") ||
        !put(&b, out, &b.d, 5) ||
        !raw_ok(out, b.table->launch(p->device, graph, p->stream),
                "launching a graph"))
        goto done;
    if (holds(&b, out, &b.b, 1, "a launch does not do what was captured"))
        holds(&b, out, &b.d, 5,
              "a graph does the work of a stream that was not captured");
done:
    if (graph)
        b.table->destroy(b.plugin->device, graph);
    if (stream)
        b.plugin->streams.destroy(b.plugin->device, stream);
    bench_end(&b);
}
