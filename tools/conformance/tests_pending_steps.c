/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: fused optimizer steps that have not run yet when the call returns.
 * They run in the order of their stream, each has its own table of the tensors'
 * addresses, and in a captured graph they read their numbers when it is
 * launched. */

#include "fused_step.h"
#include "two_streams.h"

#include <libcore/capture.h>

enum { TURNED = 5, ELEMENTS = 1031 };

static const step with = {
    "with momentum and dampening", .05, 0, -1, false, .9, .25, false};

/* A step, its reference, and another one with other values. */
typedef struct pending {
    two_streams *streams;
    fused test;
    lists device, host, other;
} pending;

static pending pending_of(two_streams *b, size_t which)
{
    return (pending){.streams = b,
                     .test = {.self = b->self,
                              .out = b->out,
                              .which = which,
                              .dtype = CORE_F32,
                              .count = FUSED_FEW,
                              .large = ELEMENTS,
                              .rate = .1}};
}

static bool make(const pending *p, core_device *device, core_dtype dtype,
                 int64_t turned, int64_t gradient, lists *out)
{
    fused test = p->test;

    test.turned = turned;
    test.gradient = gradient;
    return expect_ok(p->test.out, fused_make(&test, &with, device, dtype, out),
                     "making the operands");
}

static core_status run_on(const pending *p, int stream, lists *on)
{
    core_stream_guard guard;
    core_status status;

    CORE_TRY(core_stream_guard_enter(p->streams->streams[stream], &guard));
    status = fused_run(&p->test, &with, on);
    core_stream_guard_leave(&guard);
    return status;
}

/* Makes a first step, which may compile its kernel, on each stream.  false: no
 * kernel is claimed, or the outcome says what failed. */
static bool warm(pending *p)
{
    core_status status = run_on(p, 0, &p->other);

    if (status == CORE_ERROR_NO_KERNEL) {
        skipped_calls_add(&p->streams->left, fused_names[p->test.which],
                          CORE_DTYPE_NONE);
        core_error_clear();
        return false;
    }
    return expect_ok(p->test.out, status, fused_names[p->test.which]) &&
           expect_ok(p->test.out, run_on(p, 1, &p->other),
                     fused_names[p->test.which]) &&
           two_streams_rest(p->streams);
}

static void release(pending *p)
{
    fused_release(&p->other);
    fused_release(&p->host);
    fused_release(&p->device);
}

/* What the step has changed; the gradients are those of the test. */
static bool holds(pending *p, const char *when)
{
    bool good = true;

    for (uint32_t list = 0; good && list < fused_lists(&p->test); list++)
        if (list != 1)
            good =
                fused_holds(&p->test, &with, list, &p->device, &p->host, when);
    return good;
}

/* Copies tensors of the other step, on the current stream. */
static bool copy_gradients(pending *p, uint32_t list)
{
    bool good = true;

    for (uint32_t k = 0; good && k < p->test.count; k++)
        good = expect_ok(p->test.out,
                         core_tensor_copy(p->device.tensors[1][k],
                                          p->other.tensors[list][k],
                                          CORE_COPY_NON_BLOCKING),
                         "copying a gradient");
    return good;
}

/* -------------------------------------------------------- order of work -- */

/* The gradients are copied before the step, and overwritten after it. */
static bool enqueue(pending *p, call_gate *gate)
{
    const char *name = fused_names[p->test.which];
    bool good = copy_gradients(p, 1);

    call_gate_begin_call(gate);
    good = good &&
           expect_ok(p->test.out, fused_run(&p->test, &with, &p->device), name);
    call_gate_begin_call(gate);
    good = good && copy_gradients(p, 0);
    if (good && !call_gate_holds(gate))
        two_streams_add_unseen(p->streams, gate->event != NULL, name);
    return good;
}

static void run_behind_gate(pending *p)
{
    call_gate gate;
    core_stream_guard guard;
    bool good = true;

    if (!expect_ok(p->test.out,
                   core_stream_guard_enter(p->streams->streams[0], &guard),
                   "entering a stream"))
        return;
    good = call_gate_close(&gate, p->streams->self, p->streams->streams[0],
                           p->test.out) &&
           enqueue(p, &gate);
    call_gate_open(&gate);
    core_stream_guard_leave(&guard);
    if (!two_streams_rest(p->streams))
        return;
    call_gate_destroy(&gate);
    if (good)
        holds(p, ": it does not run after the copies before it, and before "
                 "those behind it, on its stream (core_call.stream)");
    p->streams->ran++;
}

static void check_order(two_streams *b, size_t which)
{
    static pending p;

    p = pending_of(b, which);
    if (make(&p, b->self->device, CORE_F32, 0, 0, &p.device) &&
        make(&p, b->self->host, CORE_F64, 0, TURNED, &p.host) &&
        make(&p, b->self->device, CORE_F32, 0, TURNED, &p.other) && warm(&p) &&
        expect_ok(b->out, fused_run(&p.test, &with, &p.host), "the reference"))
        run_behind_gate(&p);
    release(&p);
}

static void steps_are_in_order(suite *self, outcome *out, const test *one)
{
    two_streams b;

    (void)one;
    if (two_streams_begin(&b, self, out))
        for (size_t i = 0; i < FUSED_STEPS && out->verdict == VERDICT_PASS; i++)
            check_order(&b, i);
    two_streams_end(&b);
}

/* ----------------------------------------------------------- two at once -- */

static void run_two(pending both[STREAMS])
{
    two_streams *b = both[0].streams;
    const char *name = fused_names[both[0].test.which];
    bool good = two_streams_close(b);

    for (int i = 0; good && i < STREAMS; i++) {
        two_streams_begin_call(b);
        good = expect_ok(b->out, run_on(&both[i], i, &both[i].device), name);
    }
    if (good && !two_streams_blocked(b))
        two_streams_add_unseen(b, b->copies, name);
    two_streams_open(b);
    for (int i = 0; good && i < STREAMS && b->out->verdict == VERDICT_PASS; i++)
        good = holds(&both[i],
                     i == 0 ? ", while another step was enqueued on a second "
                              "stream: the steps share memory, such as a table "
                              "of addresses"
                            : " on a second stream, while the first was "
                              "blocked: the steps share memory, such as a "
                              "table of addresses");
    b->ran++;
}

static void check_two(two_streams *b, size_t which)
{
    static pending both[STREAMS];
    bool good = true;

    for (int i = 0; i < STREAMS; i++)
        both[i] = pending_of(b, which);
    for (int i = 0; good && i < STREAMS; i++)
        good =
            make(&both[i], b->self->device, CORE_F32, i * TURNED, 0,
                 &both[i].device) &&
            make(&both[i], b->self->host, CORE_F64, i * TURNED, 0,
                 &both[i].host) &&
            make(&both[i], b->self->device, CORE_F32, i, 0, &both[i].other) &&
            (i > 0 || warm(&both[0])) &&
            expect_ok(b->out, fused_run(&both[i].test, &with, &both[i].host),
                      "the reference");
    if (good)
        run_two(both);
    for (int i = 0; i < STREAMS; i++)
        release(&both[i]);
}

static void steps_are_separate(suite *self, outcome *out, const test *one)
{
    two_streams b;

    (void)one;
    if (two_streams_begin(&b, self, out))
        for (size_t i = 0; i < FUSED_STEPS && out->verdict == VERDICT_PASS; i++)
            check_two(&b, i);
    two_streams_end(&b);
}

/* -------------------------------------------------------------- captures -- */

/* NULL: it cannot be captured, or the outcome says what failed. */
static core_graph *capture(pending *p)
{
    core_stream *stream = p->streams->streams[0];
    core_graph *graph = NULL;
    core_status status;

    if (!expect_ok(p->test.out, core_capture_begin(stream, NULL),
                   "beginning a capture"))
        return NULL;
    status = run_on(p, 0, &p->device);
    if (core_capture_end(stream, &graph) != CORE_OK)
        graph = NULL;
    if (status != CORE_OK && status != CORE_ERROR_UNSUPPORTED)
        expect_ok(p->test.out, status, fused_names[p->test.which]);
    if (status == CORE_OK && graph)
        return graph;
    core_graph_release(graph);
    core_error_clear();
    return NULL;
}

static bool launch_with(pending *p, core_graph *graph, double rate)
{
    double numbers[FUSED_NUMBERS];
    size_t size;

    p->test.rate = rate;
    size = (size_t)fused_numbers(&p->test, &with, numbers) * sizeof *numbers;
    return expect_ok(p->test.out,
                     core_tensor_write(p->device.numbers, numbers, size),
                     "writing numbers") &&
           expect_ok(p->test.out,
                     core_tensor_write(p->host.numbers, numbers, size),
                     "writing numbers of the reference") &&
           two_streams_rest(p->streams) &&
           expect_ok(p->test.out,
                     core_graph_launch(graph, p->streams->streams[0]),
                     "launching a graph") &&
           two_streams_rest(p->streams) &&
           expect_ok(p->test.out, fused_run(&p->test, &with, &p->host),
                     "the reference");
}

static void launch_twice(pending *p, core_graph *graph)
{
    if (launch_with(p, graph, .3) &&
        holds(p, " in the first launch of a graph, with numbers that changed "
                 "since the capture") &&
        launch_with(p, graph, .02))
        holds(p, " in the second launch of a graph, with numbers that changed "
                 "since the first");
    p->streams->ran++;
}

static void check_capture(two_streams *b, size_t which)
{
    static pending p;
    core_graph *graph = NULL;

    p = pending_of(b, which);
    if (make(&p, b->self->device, CORE_F32, 0, 0, &p.device) &&
        make(&p, b->self->host, CORE_F64, 0, 0, &p.host) &&
        make(&p, b->self->device, CORE_F32, 0, TURNED, &p.other) && warm(&p)) {
        graph = capture(&p);
        if (graph)
            launch_twice(&p, graph);
        else if (b->out->verdict == VERDICT_PASS)
            skipped_calls_add(&b->left, fused_names[which], CORE_DTYPE_NONE);
    }
    core_graph_release(graph);
    release(&p);
}

static void captured_steps(suite *self, outcome *out, const test *one)
{
    const void *table;
    two_streams b;

    (void)one;
    if (!two_streams_begin(&b, self, out))
        return;
    if (core_device_interface(self->device, "core.graph_capture", 1, &table) !=
        CORE_OK)
        not_supported(out, "it has no core.graph_capture");
    for (size_t i = FUSED_ON_DEVICE;
         i < FUSED_STEPS && out->verdict == VERDICT_PASS; i++)
        check_capture(&b, i);
    two_streams_end(&b);
}

bool suite_add_pending_steps(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/steps-run-in-stream-order", steps_are_in_order, true},
        {"ops/rules/steps-are-separate", steps_are_separate, true},
        {"ops/rules/captured-steps-read-their-numbers", captured_steps, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
