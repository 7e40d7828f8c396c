/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: kernels in a captured graph.  They run when the graph is launched,
 * not when it is captured, and read what their operands contain then. */

#include "claims.h"
#include "operators.h"
#include "oracle.h"

#include <stdio.h>
#include <string.h>

typedef struct graphs {
    suite *self;
    outcome *out;
    core_stream *stream;
    sample_call *call;
    reference wanted;
    prepared on;
    uint32_t ran;
} graphs;

/* A call that a kernel claims and whose results can be compared. */
static bool prepare(graphs *g, const sample *one)
{
    static sample_call call;

    g->call = &call;
    memset(&g->wanted, 0, sizeof g->wanted);
    memset(&g->on, 0, sizeof g->on);
    return sample_call_parse(&call, g->self, one, CORE_F32) &&
           sample_call_has_dtype(&call) && !oracle_random(one->op) &&
           oracle_defines(&call) &&
           reference_shapes(&call, &g->wanted) == CORE_OK &&
           claim_of(g->self, &call, &g->wanted) == CLAIM_KERNEL &&
           reference_values(&call, g->self, &g->wanted) == CORE_OK &&
           sample_call_prepare(&call, g->self->device, CORE_F32, ARRANGED_ROWS,
                               &g->on) == CORE_OK;
}

/* Writes the operands with their values turned by so many places. */
static bool write_operands(graphs *g, int64_t turned)
{
    bool good = true;

    for (uint32_t k = 0; good && k < g->call->noperands; k++)
        if (g->on.tensors[k] && g->call->operands[k].numel > 0 &&
            strchr("tup", g->call->operands[k].kind))
            good =
                expect_ok(g->out, sample_call_write(g->call, &g->on, k, turned),
                          "writing an operand");
    return good;
}

static void drop_results(prepared *on)
{
    for (size_t i = SAMPLE_RESULTS; i-- > 0;)
        core_value_release(&on->results[i]);
    memset(on->results, 0, sizeof on->results);
    on->nflat = 0;
}

/* A first call outside of the graph, which may compile.  Returns false if the
 * call cannot be made. */
static bool warm_up(graphs *g)
{
    core_stream_guard guard;
    core_status status;

    if (core_stream_guard_enter(g->stream, &guard) != CORE_OK)
        return false;
    status = sample_call_run(g->call, &g->on);
    core_stream_guard_leave(&guard);
    if (core_stream_synchronize(g->stream) != CORE_OK)
        status = CORE_ERROR_STREAM;
    drop_results(&g->on);
    return status == CORE_OK;
}

/* NULL: the call cannot be captured, as one that reads data on the host. */
static core_graph *capture(graphs *g)
{
    core_graph *graph = NULL;
    core_stream_guard guard;
    core_status status;

    if (core_stream_guard_enter(g->stream, &guard) != CORE_OK)
        return NULL;
    status = core_capture_begin(g->stream, NULL);
    if (status == CORE_OK) {
        status = sample_call_run(g->call, &g->on);
        if (core_capture_end(g->stream, &graph) != CORE_OK)
            graph = NULL;
    }
    core_stream_guard_leave(&guard);
    if (status != CORE_OK) {
        core_graph_release(graph);
        graph = NULL;
    }
    return graph;
}

static bool are_results(graphs *g, const char *op)
{
    for (uint32_t r = 0; r < g->on.nflat && r < g->wanted.nresults; r++)
        if (!operators_check_result(g->self, g->call, &g->wanted, r,
                                    g->on.flat[r], g->out)) {
            char text[TEST_DETAIL];

            snprintf(
                text, sizeof text,
                "%s %.80s: in a captured graph that was launched once, with "
                "operands that changed since the capture: %.300s",
                op, g->call->text, g->out->detail);
            snprintf(g->out->detail, sizeof g->out->detail, "%s", text);
            return false;
        }
    return true;
}

/* Returns whether a graph was launched. */
static bool check_one(graphs *g, const sample *one)
{
    core_graph *graph = NULL;
    bool launched = false;

    if (prepare(g, one) && write_operands(g, 1) && warm_up(g) &&
        (graph = capture(g)) != NULL && write_operands(g, 0) &&
        expect_ok(g->out, core_device_synchronize(g->self->device),
                  "synchronizing") &&
        expect_ok(g->out, core_graph_launch(graph, g->stream),
                  "launching a graph") &&
        expect_ok(g->out, core_stream_synchronize(g->stream),
                  "synchronizing")) {
        launched = true;
        are_results(g, one->op);
    }
    if (g->out->verdict == VERDICT_PASS)
        core_error_clear();
    sample_call_done(&g->on);
    core_graph_release(graph);
    reference_free(&g->wanted);
    return launched;
}

static bool has_captures(suite *self, outcome *out)
{
    const void *table;

    if (core_device_interface(self->device, "core.graph_capture", 1, &table) ==
        CORE_OK)
        return true;
    core_error_clear();
    not_supported(out, "it has no core.graph_capture");
    return false;
}

static void graphs_run_kernels(suite *self, outcome *out, const test *one)
{
    graphs g = {.self = self, .out = out};
    const char *done = "";
    const sample *at;

    (void)one;
    if (!suite_device(self, out) || !has_captures(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off") ||
        !expect_ok(out, core_stream_create(self->device, &g.stream),
                   "creating a stream"))
        return;
    for (size_t i = 0; out->verdict == VERDICT_PASS && (at = sample_at(i)); i++)
        if (strcmp(at->op, done) != 0 && check_one(&g, at)) {
            done = at->op;
            g.ran++;
        }
    if (g.ran == 0 && out->verdict == VERDICT_PASS)
        not_supported(out, "no call of f32 can be captured");
    core_stream_release(g.stream);
}

bool suite_add_graph_kernels(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/graphs-run-kernels", graphs_run_kernels, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
