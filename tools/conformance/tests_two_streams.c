/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: what a kernel keeps or shares between calls.  A packed weight is
 * used on another stream only after it was made, and neither made nor used
 * while a graph is captured; calls on two streams at once have separate
 * workspaces. */

#include "two_streams.h"

#include <libcore/capture.h>

#include <string.h>

enum {
    ROUNDS = 12,
    USES = 3 /* as many as a kernel may want before it keeps a weight */
};

/* -------------------------------------------------------- packed weights -- */

/* The matrices of mm and addmm are large enough to be kept packed. */
static const sample weighted[] = {
    {"mm", "t:8,40 t:40,36", 0, 0},
    {"addmm", "t:36 t:8,40 t:40,36 f:1 f:1", 0, 0},
    {"bmm", "t:2,8,16 t:2,16,12", 0, 0},
    {"baddbmm", "t:2,8,12 t:2,8,16 t:2,16,12 f:1 f:1", 0, 0},
    {"mv", "t:8,16 t:16", 0, 0},
    {"convolution", "t:2,8,6,6 t:8,8,3,3 n l:1,1 l:0,0 l:1,1 b:0 l:0,0 i:1", 0,
     0},
};

/* Calls it on the first stream, which the gate blocks if there is one, and drops
 * the results. */
static bool use(two_streams *b, ready_call *one, int times, call_gate *gate)
{
    bool good = true;

    for (int i = 0; good && i < times; i++) {
        prepared on = ready_call_again(&one->on);

        if (gate)
            call_gate_begin_call(gate);
        good = expect_ok(b->out, ready_call_run(b, one, b->streams[0], &on),
                         one->of.op);
        ready_call_drop(&on);
    }
    return good;
}

static bool use_last(two_streams *b, ready_call *one, call_gate *gate)
{
    call_gate_begin_call(gate);
    return expect_ok(b->out, ready_call_run(b, one, b->streams[0], &one->on),
                     one->of.op);
}

/* The first stream is blocked: what it has to pack is not packed yet. */
static void use_on_two_streams(two_streams *b, ready_call *one)
{
    prepared second = ready_call_again(&one->on);
    call_gate gate;
    core_stream_guard guard;

    if (!two_streams_rest(b) ||
        !expect_ok(b->out, core_stream_guard_enter(b->streams[0], &guard),
                   "entering a stream"))
        return;
    if (call_gate_close(&gate, b->self, b->streams[0], b->out) &&
        use(b, one, USES - 1, &gate) && use_last(b, one, &gate)) {
        call_gate_begin_call(&gate);
        expect_ok(b->out, ready_call_run(b, one, b->streams[1], &second),
                  one->of.op);
        if (!call_gate_holds(&gate) && b->out->verdict == VERDICT_PASS)
            two_streams_add_unseen(b, gate.event != NULL, one->of.op);
    }
    call_gate_open(&gate);
    core_stream_guard_leave(&guard);
    if (two_streams_rest(b))
        call_gate_destroy(&gate);
    if (b->out->verdict == VERDICT_PASS &&
        ready_call_holds(b, one, &one->on, "on a stream that was blocked"))
        ready_call_holds(
            b, one, &second,
            "on a second stream, while the first that used the same operands "
            "is blocked: what a kernel keeps of an operand (a packed weight) "
            "is ready on the stream that made it alone");
    ready_call_drop(&second);
    b->ran++;
}

static void packed_weights_are_ready(suite *self, outcome *out, const test *one)
{
    two_streams b;

    (void)one;
    if (two_streams_begin(&b, self, out))
        for (size_t i = 0; out->verdict == VERDICT_PASS &&
                           i < sizeof weighted / sizeof *weighted;
             i++) {
            ready_call other, call;

            memset(&call, 0, sizeof call);
            if (ready_call_prepare(&b, &weighted[i], -1, 1, &other) &&
                ready_call_prepare(&b, &weighted[i], .5, 2, &call) &&
                ready_call_warm(&b, &other))
                use_on_two_streams(&b, &call);
            ready_call_done(&call);
            ready_call_done(&other);
        }
    two_streams_end(&b);
}

/* -------------------------------------------------------------- captures -- */

/* Captures the call on the first stream; NULL: it cannot be captured, or the
 * outcome says what failed. */
static core_graph *capture(two_streams *b, ready_call *one)
{
    core_graph *graph = NULL;
    core_status status;

    if (!expect_ok(b->out, core_capture_begin(b->streams[0], NULL),
                   "beginning a capture"))
        return NULL;
    status = ready_call_run(b, one, b->streams[0], &one->on);
    if (core_capture_end(b->streams[0], &graph) != CORE_OK)
        graph = NULL;
    if (status != CORE_OK && status != CORE_ERROR_UNSUPPORTED)
        expect_ok(b->out, status, one->of.op);
    if (status != CORE_OK || !graph)
        ready_call_drop(&one->on);
    return graph;
}

/* After the capture, before a launch of the graph. */
static bool call_after_capture(two_streams *b, ready_call *one)
{
    prepared eager = ready_call_again(&one->on);
    bool good =
        expect_ok(b->out, ready_call_run(b, one, b->streams[0], &eager),
                  one->of.op) &&
        two_streams_rest(b) &&
        ready_call_holds(
            b, one, &eager,
            "after its capture, before a launch of the graph: what a kernel "
            "keeps of an operand (a packed weight) must not be made while "
            "capturing (CORE_CALL_CAPTURING), because the graph makes it");

    ready_call_drop(&eager);
    return good;
}

/* With the operands of another call, written into the same tensors. */
static bool launch_with(two_streams *b, ready_call *one, ready_call *other,
                        core_graph *graph)
{
    prepared results = one->on;

    for (uint32_t k = 0; k < SAMPLE_TENSORS; k++)
        if (one->on.memory[k] &&
            !expect_ok(
                b->out,
                core_tensor_copy(one->on.memory[k], other->on.memory[k], 0),
                "copying an operand"))
            return false;
    return two_streams_rest(b) &&
           expect_ok(b->out, core_graph_launch(graph, b->streams[0]),
                     "launching a graph") &&
           two_streams_rest(b) &&
           ready_call_holds(
               b, other, &results,
               "in a graph, with operands that changed since the capture: "
               "what a kernel keeps of an operand (a packed weight) must not "
               "be used while capturing (CORE_CALL_CAPTURING)");
}

/* uses: of the operands, before the capture. */
static void capture_one(two_streams *b, const sample *of, int uses)
{
    ready_call warm, one, other;
    core_graph *graph = NULL;

    memset(&one, 0, sizeof one);
    memset(&other, 0, sizeof other);
    if (ready_call_prepare(b, of, -1, 1, &warm) &&
        ready_call_prepare(b, of, .5, 2, &one) &&
        ready_call_prepare(b, of, -2, -.5, &other) && use(b, &warm, 1, NULL) &&
        use(b, &one, uses, NULL) && two_streams_rest(b)) {
        graph = capture(b, &one);
        if (graph && call_after_capture(b, &one))
            launch_with(b, &one, &other, graph);
        b->ran += graph != NULL;
    }
    core_graph_release(graph);
    ready_call_done(&other);
    ready_call_done(&one);
    ready_call_done(&warm);
}

static void captures_pack_nothing(suite *self, outcome *out, const test *one)
{
    const void *table;
    two_streams b;

    (void)one;
    if (!two_streams_begin(&b, self, out))
        return;
    if (core_device_interface(self->device, "core.graph_capture", 1, &table) !=
        CORE_OK)
        not_supported(out, "it has no core.graph_capture");
    for (size_t i = 0; i < sizeof weighted / sizeof *weighted; i++)
        for (int uses = 0; uses <= USES && out->verdict == VERDICT_PASS; uses++)
            capture_one(&b, &weighted[i], uses);
    two_streams_end(&b);
}

/* ------------------------------------------------------------ workspaces -- */

static const sample worked[] = {
    {"mm", "t:4,8192 t:8192,3", 0, 0},
    {"mm", "t:33,65 t:65,17", 0, 0},
    {"addmm", "t:3 t:4,4096 t:4096,3 f:1 f:1", 0, 0},
    {"bmm", "t:3,8,64 t:3,64,8", 0, 0},
    {"convolution", "t:2,8,6,6 t:8,8,3,3 n l:1,1 l:0,0 l:1,1 b:0 l:0,0 i:1", 0,
     0},
    {"sum", "t:65000", 0, 0},
    {"sum.dim_IntList", "t:7,4096 l:1", 0, 0},
    {"_softmax", "t:7,3000 i:1 b:0", 0, 0},
    {"native_layer_norm", "t:7,1031 l:1031 n n f:.01", 0, 0},
    {"cumsum", "t:3,2000 i:1", 0, 0},
    {"sort", "u:2,3000 i:1", 0, 0},
    {"argmax", "u:65000", 0, 0},
};

/* Both streams begin at once, when their gates open. */
static void run_at_once(two_streams *b, ready_call calls[STREAMS])
{
    static prepared rounds[STREAMS][ROUNDS];
    bool closed = two_streams_close(b);

    memset(rounds, 0, sizeof rounds);
    for (int r = 0; r < ROUNDS && closed; r++)
        for (int i = 0; i < STREAMS && b->out->verdict == VERDICT_PASS; i++)
            two_streams_call(b, &calls[i], i, &rounds[i][r]);
    if (closed && b->out->verdict == VERDICT_PASS && !two_streams_blocked(b))
        two_streams_add_unseen(b, b->copies, calls[0].of.op);
    two_streams_open(b);
    for (int i = 0; i < STREAMS; i++)
        for (int r = 0; r < ROUNDS; r++) {
            if (b->out->verdict == VERDICT_PASS)
                ready_call_holds(b, &calls[i], &rounds[i][r],
                                 "on two streams at once: the calls share "
                                 "memory, such as a workspace");
            ready_call_drop(&rounds[i][r]);
        }
    b->ran++;
}

static void workspaces_are_separate(suite *self, outcome *out, const test *one)
{
    two_streams b;

    (void)one;
    if (two_streams_begin(&b, self, out))
        for (size_t i = 0;
             out->verdict == VERDICT_PASS && i < sizeof worked / sizeof *worked;
             i++) {
            ready_call calls[STREAMS];

            memset(calls, 0, sizeof calls);
            if (ready_call_prepare(&b, &worked[i], .5, 1, &calls[0]) &&
                ready_call_prepare(&b, &worked[i], 1, 2, &calls[1]) &&
                ready_call_warm(&b, &calls[0]))
                run_at_once(&b, calls);
            for (int k = 0; k < STREAMS; k++)
                ready_call_done(&calls[k]);
        }
    two_streams_end(&b);
}

bool suite_add_two_streams(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/packed-weights-are-ready", packed_weights_are_ready, true},
        {"ops/rules/captures-pack-nothing", captures_pack_nothing, true},
        {"ops/rules/workspaces-are-separate", workspaces_are_separate, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
