/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: what a kernel keeps or shares between calls.  A packed weight is
 * used on another stream only after it was made, and neither made nor used
 * while a graph is captured; calls on two streams at once have separate
 * workspaces. */

#include "call_gate.h"
#include "claims.h"
#include "skipped_calls.h"
#include "operators.h"

#include <libcore/capture.h>

#include <stdio.h>
#include <string.h>

enum {
    ROUNDS = 12,
    FEW_ROUNDS = 4,
    STREAMS = 2,
    USES = 3 /* as many as a kernel may want before it keeps a weight */
};

typedef struct bench {
    suite *self;
    outcome *out;
    core_stream *streams[STREAMS];
    uint32_t ran;
    skipped_calls left; /* no kernel computes these */
} bench;

/* A call with its operands and its reference. */
typedef struct ready_call {
    sample of;
    prepared on;
    reference wanted;
} ready_call;

static bool parse(const bench *b, const ready_call *one, sample_call **out_call)
{
    static sample_call call;

    *out_call = &call;
    return sample_call_parse(&call, b->self, &one->of, CORE_F32);
}

static void done_with(ready_call *one)
{
    sample_call_done(&one->on);
    reference_free(&one->wanted);
}

/* Prepares a call whose values are in that interval, if a kernel claims it. */
static bool prepare(bench *b, const sample *from, double low, double high,
                    ready_call *one)
{
    sample_call *call;

    memset(one, 0, sizeof *one);
    one->of = (sample){from->op, from->words, low, high};
    if (!parse(b, one, &call) ||
        reference_shapes(call, &one->wanted) != CORE_OK ||
        !claim_holds(b->self, call, &one->wanted)) {
        skipped_calls_add(&b->left, from->op, CORE_DTYPE_NONE);
        core_error_clear();
        return false;
    }
    if (reference_values(call, b->self, &one->wanted) != CORE_OK) {
        harness_error(b->out, "there is no reference for \"%s %s\": %s",
                      from->op, from->words, core_error_message());
        return false;
    }
    return expect_ok(b->out,
                     sample_call_prepare(call, b->self->device, CORE_F32,
                                         ARRANGED_ROWS, &one->on),
                     "making the operands");
}

static bool passed(bench *b, const ready_call *one, bool good, const char *what)
{
    char text[TEST_DETAIL];

    if (!good && b->out->verdict == VERDICT_FAIL) {
        snprintf(text, sizeof text, "%s %s: %s: %.250s", one->of.op,
                 one->of.words, what, b->out->detail);
        snprintf(b->out->detail, sizeof b->out->detail, "%s", text);
    }
    return good;
}

static core_status run_on(bench *b, ready_call *one, core_stream *stream,
                          prepared *on)
{
    core_stream_guard guard;
    sample_call *call;
    core_status status;

    if (!parse(b, one, &call))
        return CORE_ERROR_INTERNAL;
    CORE_TRY(core_stream_guard_enter(stream, &guard));
    status = sample_call_run(call, on);
    core_stream_guard_leave(&guard);
    return status;
}

/* The same operands, for results of another call. */
static prepared again(const prepared *on)
{
    prepared copy = *on;

    memset(copy.results, 0, sizeof copy.results);
    copy.nflat = 0;
    return copy;
}

static void drop_results(prepared *on)
{
    for (uint32_t i = 0; i < SAMPLE_RESULTS; i++) {
        core_value_release(&on->results[i]);
        on->results[i] = (core_value){0};
    }
}

static bool holds(bench *b, ready_call *one, prepared *on, const char *what)
{
    sample_call *call;
    bool good = parse(b, one, &call);

    for (uint32_t r = 0; good && r < on->nflat && r < one->wanted.nresults; r++)
        good = passed(b, one,
                      operators_check_result(b->self, call, &one->wanted, r,
                                             on->flat[r], b->out),
                      what);
    return good;
}

static bool come_to_rest(bench *b)
{
    return expect_ok(b->out, core_device_synchronize(b->self->device),
                     "synchronizing");
}

static bool begin(bench *b, suite *self, outcome *out)
{
    *b = (bench){.self = self, .out = out};
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return false;
    if (self->synchronous) {
        not_supported(out, "the device is synchronous");
        return false;
    }
    if (self->properties.max_streams == 1) {
        not_supported(out, "the device has one stream");
        return false;
    }
    for (int i = 0; i < STREAMS; i++)
        if (!expect_ok(out, core_stream_create(self->device, &b->streams[i]),
                       "creating a stream"))
            return false;
    return true;
}

static void end(bench *b)
{
    skipped_calls_report(&b->left, b->ran, b->out);
    for (int i = 0; i < STREAMS; i++)
        core_stream_release(b->streams[i]);
}

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

/* Calls it on the first stream, and drops the results. */
static bool use(bench *b, ready_call *one, int times)
{
    bool good = true;

    for (int i = 0; good && i < times; i++) {
        prepared on = again(&one->on);

        good =
            expect_ok(b->out, run_on(b, one, b->streams[0], &on), one->of.op);
        drop_results(&on);
    }
    return good;
}

/* The first stream is blocked: what it has to pack is not packed yet. */
static void use_on_two_streams(bench *b, ready_call *one)
{
    prepared second = again(&one->on);
    call_gate gate;
    core_stream_guard guard;

    if (!come_to_rest(b) ||
        !expect_ok(b->out, core_stream_guard_enter(b->streams[0], &guard),
                   "entering a stream"))
        return;
    if (call_gate_close(&gate, b->self, b->streams[0], b->out) &&
        use(b, one, USES - 1) &&
        expect_ok(b->out, run_on(b, one, b->streams[0], &one->on),
                  one->of.op)) {
        call_gate_begin_call(&gate);
        expect_ok(b->out, run_on(b, one, b->streams[1], &second), one->of.op);
    }
    call_gate_open(&gate);
    core_stream_guard_leave(&guard);
    if (come_to_rest(b))
        call_gate_destroy(&gate);
    if (b->out->verdict == VERDICT_PASS &&
        holds(b, one, &one->on, "on a stream that was blocked"))
        holds(b, one, &second,
              "on a second stream, while the first that used the same operands "
              "is blocked: what a kernel keeps of an operand (a packed weight) "
              "is ready on the stream that made it alone");
    drop_results(&second);
    b->ran++;
}

static void packed_weights_are_ready(suite *self, outcome *out, const test *one)
{
    bench b;

    (void)one;
    if (begin(&b, self, out))
        for (size_t i = 0; out->verdict == VERDICT_PASS &&
                           i < sizeof weighted / sizeof *weighted;
             i++) {
            ready_call call;

            if (prepare(&b, &weighted[i], .5, 2, &call))
                use_on_two_streams(&b, &call);
            done_with(&call);
        }
    end(&b);
}

/* -------------------------------------------------------------- captures -- */

/* Captures the call on the first stream; NULL: it cannot be captured, or the
 * outcome says what failed. */
static core_graph *capture(bench *b, ready_call *one)
{
    core_graph *graph = NULL;
    core_status status;

    if (!expect_ok(b->out, core_capture_begin(b->streams[0], NULL),
                   "beginning a capture"))
        return NULL;
    status = run_on(b, one, b->streams[0], &one->on);
    if (core_capture_end(b->streams[0], &graph) != CORE_OK)
        graph = NULL;
    if (status != CORE_OK && status != CORE_ERROR_UNSUPPORTED)
        expect_ok(b->out, status, one->of.op);
    if (status != CORE_OK || !graph)
        drop_results(&one->on);
    return graph;
}

/* After the capture, before a launch of the graph. */
static bool call_after_capture(bench *b, ready_call *one)
{
    prepared eager = again(&one->on);
    bool good =
        expect_ok(b->out, run_on(b, one, b->streams[0], &eager), one->of.op) &&
        come_to_rest(b) &&
        holds(b, one, &eager,
              "after its capture, before a launch of the graph: what a kernel "
              "keeps of an operand (a packed weight) must not be made while "
              "capturing (CORE_CALL_CAPTURING), because the graph makes it");

    drop_results(&eager);
    return good;
}

/* With the operands of another call, written into the same tensors. */
static bool launch_with(bench *b, ready_call *one, ready_call *other,
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
    return come_to_rest(b) &&
           expect_ok(b->out, core_graph_launch(graph, b->streams[0]),
                     "launching a graph") &&
           come_to_rest(b) &&
           holds(b, other, &results,
                 "in a graph, with operands that changed since the capture: "
                 "what a kernel keeps of an operand (a packed weight) must not "
                 "be used while capturing (CORE_CALL_CAPTURING)");
}

/* uses: of the operands, before the capture. */
static void capture_one(bench *b, const sample *of, int uses)
{
    ready_call warm, one, other;
    core_graph *graph = NULL;

    memset(&one, 0, sizeof one);
    memset(&other, 0, sizeof other);
    if (prepare(b, of, -1, 1, &warm) && prepare(b, of, .5, 2, &one) &&
        prepare(b, of, -2, -.5, &other) && use(b, &warm, 1) &&
        use(b, &one, uses) && come_to_rest(b)) {
        graph = capture(b, &one);
        if (graph && call_after_capture(b, &one))
            launch_with(b, &one, &other, graph);
        b->ran += graph != NULL;
    }
    core_graph_release(graph);
    done_with(&other);
    done_with(&one);
    done_with(&warm);
}

static void captures_pack_nothing(suite *self, outcome *out, const test *one)
{
    const void *table;
    bench b;

    (void)one;
    if (!begin(&b, self, out))
        return;
    if (core_device_interface(self->device, "core.graph_capture", 1, &table) !=
        CORE_OK)
        not_supported(out, "it has no core.graph_capture");
    for (size_t i = 0; i < sizeof weighted / sizeof *weighted; i++)
        for (int uses = 0; uses <= USES && out->verdict == VERDICT_PASS; uses++)
            capture_one(&b, &weighted[i], uses);
    end(&b);
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
static void run_at_once(bench *b, ready_call calls[STREAMS], int count,
                        const char *what)
{
    static prepared rounds[STREAMS][ROUNDS];
    call_gate gates[STREAMS];
    bool closed = come_to_rest(b);

    memset(rounds, 0, sizeof rounds);
    for (int i = 0; i < STREAMS && closed; i++) {
        core_stream_guard guard;

        closed =
            expect_ok(b->out, core_stream_guard_enter(b->streams[i], &guard),
                      "entering a stream");
        if (!closed)
            return;
        closed = call_gate_close(&gates[i], b->self, b->streams[i], b->out);
        core_stream_guard_leave(&guard);
    }
    for (int r = 0; r < count && closed; r++)
        for (int i = 0; i < STREAMS && b->out->verdict == VERDICT_PASS; i++) {
            for (int k = 0; k < STREAMS; k++)
                call_gate_begin_call(&gates[k]);
            rounds[i][r] = again(&calls[i].on);
            expect_ok(b->out,
                      run_on(b, &calls[i], b->streams[i], &rounds[i][r]),
                      calls[i].of.op);
        }
    for (int i = 0; i < STREAMS; i++)
        call_gate_release(&gates[i]);
    come_to_rest(b);
    for (int i = 0; i < STREAMS; i++)
        call_gate_destroy(&gates[i]);
    for (int i = 0; i < STREAMS; i++)
        for (int r = 0; r < count; r++) {
            if (b->out->verdict == VERDICT_PASS)
                holds(b, &calls[i], &rounds[i][r], what);
            drop_results(&rounds[i][r]);
        }
    b->ran++;
}

static void workspaces_are_separate(suite *self, outcome *out, const test *one)
{
    bench b;

    (void)one;
    if (begin(&b, self, out))
        for (size_t i = 0;
             out->verdict == VERDICT_PASS && i < sizeof worked / sizeof *worked;
             i++) {
            ready_call calls[STREAMS];

            memset(calls, 0, sizeof calls);
            if (prepare(&b, &worked[i], .5, 1, &calls[0]) &&
                prepare(&b, &worked[i], 1, 2, &calls[1]))
                run_at_once(&b, calls, ROUNDS,
                            "on two streams at once: the calls share memory, "
                            "such as a workspace");
            for (int k = 0; k < STREAMS; k++)
                done_with(&calls[k]);
        }
    end(&b);
}

/* -------------------------------------------------------------- contexts -- */

/* Tests whether the call is element-wise, or walks along a dimension: of one
 * result as large as the largest operand. */
static bool is_even(const sample_call *call, const reference *wanted)
{
    int64_t most = 0;

    for (uint32_t k = 0; k < call->noperands; k++) {
        if (!strchr("tupm", call->operands[k].kind))
            return false;
        if (call->operands[k].numel > most)
            most = call->operands[k].numel;
    }
    return call->noperands > 0 && wanted->nresults == 1 &&
           wanted->numel[0] == most;
}

/* Tests whether a call is one of these, is claimed, and has one right result. */
static bool is_chosen(const bench *b, const sample *from)
{
    static sample_call call;
    reference shapes = {0};
    bool chosen = sample_call_parse_shapes(&call, b->self, from, CORE_F32) &&
                  reference_shapes(&call, &shapes) == CORE_OK &&
                  is_even(&call, &shapes) && oracle_defines(&call) &&
                  claim_of(b->self, &call, &shapes) != CLAIM_NONE;

    reference_free(&shapes);
    core_error_clear();
    return chosen;
}

/* The first sample of an operator, with the numbers of the upper and of the
 * lower part of its interval. */
static void share_contexts(bench *b, const sample *from)
{
    const double part = (from->high - from->low) / 8;
    ready_call calls[STREAMS];

    memset(calls, 0, sizeof calls);
    if (prepare(b, from, from->low, from->high - part, &calls[0]) &&
        prepare(b, from, from->low + part, from->high, &calls[1]))
        run_at_once(b, calls, FEW_ROUNDS,
                    "on two streams at once: the calls share memory, such as "
                    "what the kernel keeps of its arguments until it runs");
    for (int k = 0; k < STREAMS; k++)
        done_with(&calls[k]);
}

static void contexts_are_separate(suite *self, outcome *out, const test *one)
{
    const char *last = "";
    const sample *at;
    bench b;

    (void)one;
    if (begin(&b, self, out))
        for (size_t i = 0; out->verdict == VERDICT_PASS && (at = sample_at(i));
             i++) {
            if (strcmp(at->op, last) == 0 || !is_chosen(&b, at))
                continue;
            last = at->op;
            share_contexts(&b, at);
        }
    b.left.count = 0;
    end(&b);
}

bool suite_add_two_streams(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/packed-weights-are-ready", packed_weights_are_ready, true},
        {"ops/rules/captures-pack-nothing", captures_pack_nothing, true},
        {"ops/rules/workspaces-are-separate", workspaces_are_separate, true},
        {"ops/rules/contexts-are-separate", contexts_are_separate, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
