/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: every kernel runs where its stream comes to it.  The operands of
 * many calls are written by copies that a gate holds up; a kernel that runs in
 * the launching thread, or on another stream, reads what they were before. */

#include "call_gate.h"
#include "claims.h"
#include "element_value.h"
#include "operators.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Calls behind one gate; calls that wait for the stream until no more are
 * tried. */
enum { TOGETHER = 24, MOST_WAITING = 4, REMARK = 400 };

typedef struct late_call {
    const sample *of;
    core_dtype dtype;
    prepared on, fresh;
    reference wanted;
    bool unmoved; /* no kernel copies its operands */
} late_call;

typedef struct order {
    suite *self;
    outcome *out;
    core_stream *stream;
    late_call calls[TOGETHER];
    uint32_t count;
    uint32_t ran, waiting, unseen;
    char names[REMARK]; /* of the calls that wait */
} order;

/* The static call is parsed again where it is needed: it is large. */
static bool parse(const order *o, const late_call *one, sample_call **out_call)
{
    static sample_call call;

    *out_call = &call;
    return sample_call_parse(&call, o->self, one->of, one->dtype);
}

static bool passed(order *o, const late_call *one, bool good, const char *what)
{
    char text[TEST_DETAIL];

    if (!good && o->out->verdict == VERDICT_FAIL) {
        snprintf(text, sizeof text, "%s of %s, %s: %s%.300s", one->of->op,
                 core_dtype_name(one->dtype), one->of->words, what,
                 o->out->detail);
        snprintf(o->out->detail, sizeof o->out->detail, "%s", text);
    }
    return good;
}

static bool clear(order *o, late_call *one, uint32_t noperands)
{
    bool good = true;

    for (uint32_t k = 0; good && k < noperands; k++) {
        core_tensor *memory = one->on.memory[k];
        size_t bytes = !memory ? 0
                               : (size_t)core_tensor_numel(memory) *
                                     core_dtype_size(core_tensor_dtype(memory));
        void *zero = calloc(1, bytes + 1);

        if (!zero)
            harness_error(o->out, "no memory");
        good =
            zero && (bytes == 0 ||
                     expect_ok(o->out, core_tensor_write(memory, zero, bytes),
                               "writing an operand"));
        free(zero);
    }
    return good;
}

/* Adds a call, if a kernel claims it and its results can be compared. */
static bool collect(order *o, const sample *from, core_dtype dtype)
{
    late_call *one = &o->calls[o->count];
    sample_call *call;

    memset(one, 0, sizeof *one);
    one->of = from;
    one->dtype = dtype;
    if (!parse(o, one, &call) || call->noperands == 0 ||
        reference_shapes(call, &one->wanted) != CORE_OK ||
        !claim_holds(o->self, call, &one->wanted) ||
        one->wanted.nresults == 0 || one->wanted.numel[0] == 0 ||
        oracle_random(from->op) || !oracle_defines(call) ||
        reference_values(call, o->self, &one->wanted) != CORE_OK) {
        reference_free(&one->wanted);
        core_error_clear();
        return false;
    }
    o->count++;
    return expect_ok(o->out,
                     sample_call_prepare(call, o->self->device, dtype,
                                         ARRANGED_ROWS, &one->fresh),
                     "making the operands") &&
           expect_ok(o->out,
                     sample_call_prepare(call, o->self->device, dtype,
                                         ARRANGED_ROWS, &one->on),
                     "making the operands") &&
           clear(o, one, call->noperands);
}

static bool enqueue(order *o, late_call *one)
{
    sample_call *call;
    bool good = parse(o, one, &call);

    for (uint32_t k = 0; good && k < call->noperands; k++) {
        core_status status = CORE_OK;

        if (one->on.memory[k])
            status = core_tensor_copy(one->on.memory[k], one->fresh.memory[k],
                                      CORE_COPY_NON_BLOCKING);
        one->unmoved |= status == CORE_ERROR_NO_KERNEL;
        good = one->unmoved || expect_ok(o->out, status, "copying an operand");
    }
    if (one->unmoved)
        core_error_clear();
    return good && (one->unmoved ||
                    passed(o, one,
                           expect_ok(o->out, sample_call_run(call, &one->on),
                                     "the call"),
                           ""));
}

/* Whether a failed call is wrong without work before it, too. */
static bool is_wrong_at_once(order *o, late_call *one, sample_call *call,
                             uint32_t result)
{
    outcome again = {.verdict = VERDICT_PASS};

    return o->out->verdict == VERDICT_FAIL &&
           core_stream_synchronize(o->stream) == CORE_OK &&
           sample_call_run(call, &one->fresh) == CORE_OK &&
           core_stream_synchronize(o->stream) == CORE_OK &&
           result < one->fresh.nflat &&
           !operators_check_result(o->self, call, &one->wanted, result,
                                   one->fresh.flat[result], &again);
}

static void compare(order *o, late_call *one)
{
    sample_call *call;

    if (!parse(o, one, &call))
        return;
    for (uint32_t r = 0; r < one->on.nflat && r < one->wanted.nresults; r++) {
        bool good = operators_check_result(o->self, call, &one->wanted, r,
                                           one->on.flat[r], o->out);

        if (!passed(o, one, good,
                    is_wrong_at_once(o, one, call, r)
                        ? "the order is not the cause, the call is also wrong "
                          "on an idle stream: "
                        : "behind copies that its stream has not reached, the "
                          "kernel does not wait for the stream of its call "
                          "(core_call.stream): "))
            return;
    }
}

static void add_waiting(order *o, const late_call *one)
{
    size_t length = strlen(o->names);

    o->waiting++;
    snprintf(o->names + length, sizeof o->names - length, "%s%s",
             length ? ", " : "", one->of->op);
}

/* Enqueues calls from `begin` on behind a gate, until one waits for the stream;
 * returns where to go on. */
static uint32_t run_behind_gate(order *o, uint32_t begin)
{
    core_stream_guard guard;
    uint32_t end = begin;
    call_gate gate;
    bool held;

    if (!expect_ok(o->out, core_device_synchronize(o->self->device),
                   "synchronizing") ||
        !expect_ok(o->out, core_stream_guard_enter(o->stream, &guard),
                   "entering a stream"))
        return o->count;
    held = call_gate_close(&gate, o->self, o->stream, o->out);
    while (held && end < o->count) {
        call_gate_begin_call(&gate);
        if (!enqueue(o, &o->calls[end]))
            break;
        held = call_gate_holds(&gate);
        end += held || gate.event;
        if (!held && !gate.event)
            add_waiting(o, &o->calls[end++]);
    }
    if (gate.event && !call_gate_holds(&gate))
        o->unseen += end - begin;
    call_gate_open(&gate);
    expect_ok(o->out, core_stream_synchronize(o->stream), "synchronizing");
    core_stream_guard_leave(&guard);
    call_gate_destroy(&gate);
    for (uint32_t i = begin; i < end && o->out->verdict == VERDICT_PASS; i++) {
        if (o->calls[i].unmoved)
            continue;
        compare(o, &o->calls[i]);
        o->ran++;
    }
    return o->out->verdict == VERDICT_PASS ? end : o->count;
}

static void run_all(order *o)
{
    for (uint32_t begin = 0; begin < o->count && o->waiting < MOST_WAITING;)
        begin = run_behind_gate(o, begin);
    for (uint32_t i = 0; i < o->count; i++) {
        sample_call_done(&o->calls[i].on);
        sample_call_done(&o->calls[i].fresh);
        reference_free(&o->calls[i].wanted);
    }
    o->count = 0;
}

/* A call of each operator: in f32, or else in the first dtype that it takes. */
static void run_each(order *o)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_I64, CORE_BOOL};
    const char *done = "";
    const sample *at;

    for (size_t i = 0; o->out->verdict == VERDICT_PASS &&
                       o->waiting < MOST_WAITING && (at = sample_at(i));
         i++)
        for (size_t d = 0;
             strcmp(at->op, done) != 0 && d < sizeof dtypes / sizeof *dtypes;
             d++) {
            uint32_t before = o->count;

            if (strcmp(at->op, "copy_") == 0) /* below */
                break;
            collect(o, at, dtypes[d]);
            if (o->count > before)
                done = at->op;
            if (o->count == TOGETHER)
                run_all(o);
        }
    run_all(o);
}

/* ---------------------------------------------------------------- copies -- */

/* The kernel of copy_ moves the operands above, so its own operand comes from
 * that of neg: gathered, and converted to each dtype. */
enum { ELEMENTS = 24 };

static core_status tensor_of(const order *o, core_dtype dtype, float value,
                             core_tensor **out)
{
    static const int64_t sizes[2] = {4, ELEMENTS / 4};
    float values[ELEMENTS];
    core_tensor *narrow;
    core_value args[2];
    core_status status;

    for (int i = 0; i < ELEMENTS; i++)
        values[i] = value * (float)(i + 1);
    CORE_TRY(core_tensor_from_data(values, CORE_F32, sizes, 2, o->self->device,
                                   dtype == CORE_F32 ? out : &narrow));
    if (dtype == CORE_F32)
        return CORE_OK;
    args[0] = suite_tensor_value(narrow);
    args[1] = (core_value){CORE_VALUE_DTYPE, 0, {.i = dtype}};
    status = suite_call("_to_copy", args, 2, out);
    core_tensor_release(narrow);
    return status;
}

static bool is_negated(const order *o, core_tensor *got)
{
    unsigned char bytes[ELEMENTS * 8];
    core_dtype dtype = core_tensor_dtype(got);
    size_t size = core_dtype_size(dtype);
    const char *name = core_dtype_name(dtype);

    if (!expect_ok(o->out, core_tensor_read(got, bytes, ELEMENTS * size),
                   "reading a result"))
        return false;
    for (size_t i = 0; i < ELEMENTS; i++) {
        double is = element_load(dtype, bytes + i * size), wanted = i + 1.;

        if (!expect(o->out, is == wanted,
                    "copy_ from f32 to %s, behind neg on a stream that is "
                    "blocked: the kernel of copy_ does not wait for the stream "
                    "of its call (core_call.stream): element %zu is %g, "
                    "expected %g",
                    name, i, is, wanted))
            return false;
    }
    return true;
}

/* neg.out and copy_ behind a gate. */
static bool copy_late(order *o, core_tensor *tensors[3])
{
    core_value negate[2], copy[2];
    core_stream_guard guard;
    core_status status = CORE_OK;
    core_tensor *same = NULL;
    call_gate gate;

    negate[0] = suite_tensor_value(tensors[0]);
    negate[1] = copy[1] = suite_tensor_value(tensors[1]);
    copy[0] = suite_tensor_value(tensors[2]);
    if (!expect_ok(o->out, core_device_synchronize(o->self->device),
                   "synchronizing") ||
        !expect_ok(o->out, core_stream_guard_enter(o->stream, &guard),
                   "entering a stream"))
        return false;
    if (call_gate_close(&gate, o->self, o->stream, o->out))
        status = suite_call("neg.out", negate, 2, &same);
    core_tensor_release(same);
    if (status == CORE_OK)
        status = suite_call("copy_", copy, 2, &same);
    core_tensor_release(same);
    call_gate_open(&gate);
    if (expect_ok(o->out, core_stream_synchronize(o->stream), "synchronizing"))
        call_gate_destroy(&gate);
    core_stream_guard_leave(&guard);
    if (status == CORE_ERROR_NO_KERNEL) {
        core_error_clear();
        return true;
    }
    o->ran++;
    return expect_ok(o->out, status, "neg.out and copy_") &&
           is_negated(o, tensors[2]);
}

static void run_copies(order *o)
{
    static const core_dtype dtypes[] = {CORE_F32, CORE_F64, CORE_F16, CORE_BF16,
                                        CORE_I32};

    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        core_tensor *tensors[3] = {NULL, NULL, NULL};
        core_status status = tensor_of(o, CORE_F32, -1, &tensors[0]);

        if (status == CORE_OK)
            status = tensor_of(o, CORE_F32, 100, &tensors[1]);
        if (status == CORE_OK)
            status = tensor_of(o, dtypes[d], 100, &tensors[2]);
        if (status == CORE_OK && o->out->verdict == VERDICT_PASS)
            copy_late(o, tensors);
        for (int i = 0; i < 3; i++)
            core_tensor_release(tensors[i]);
    }
    core_error_clear();
}

static void report(order *o)
{
    if (o->ran == 0)
        not_supported(o->out,
                      "none of the operators that this needs is claimed");
    else if (o->waiting > 0)
        snprintf(
            o->out->detail, sizeof o->out->detail,
            "%s that wait for the stream before they return: %s%s",
            o->waiting < MOST_WAITING ? "launches" : "among launches", o->names,
            o->waiting < MOST_WAITING ? "" : "; the others were not tried");
    else if (o->unseen > 0)
        snprintf(o->out->detail, sizeof o->out->detail,
                 "%u of %u calls were not tested: the device has no "
                 "core.host_callback, and long copies ended before",
                 o->unseen, o->ran);
}

static void kernels_run_in_stream_order(suite *self, outcome *out,
                                        const test *one)
{
    static order o;

    (void)one;
    memset(&o, 0, sizeof o);
    o.self = self;
    o.out = out;
    if (!suite_device(self, out))
        return;
    if (self->synchronous) {
        not_supported(out, "the device is synchronous");
        return;
    }
    if (!expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off") ||
        !expect_ok(out, core_stream_create(self->device, &o.stream),
                   "creating a stream"))
        return;
    run_copies(&o);
    run_each(&o);
    if (out->verdict == VERDICT_PASS)
        report(&o);
    core_stream_release(o.stream);
}

bool suite_add_stream_order(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/kernels-run-in-stream-order", kernels_run_in_stream_order,
         true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
