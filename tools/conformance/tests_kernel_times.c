/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: the time of an event behind kernels is when they have ended.  A
 * device whose kernels run in another queue than its events may forget that:
 * then the kernels take no time, and a small copy behind them takes theirs.  A
 * copy may take longer than the kernels by itself, so it is also measured alone,
 * and more kernels are launched until their time is much longer. */

#include "call_gate.h"
#include "suite.h"

#include <math.h>
#include <stdlib.h>

enum {
    SIDE = 256,
    NUMEL = SIDE * SIDE,
    KERNELS = 6,
    KERNELS_MOST = 96,
    ROUNDS = 6,
    EVENTS = 3,
    LONGER = 3 /* than the copy alone */
};

typedef struct times {
    suite *self;
    outcome *out;
    core_stream *stream;
    core_event
        *events[EVENTS]; /* before, behind the kernels, behind the copy */
    core_tensor *operand, *to;
} times;

/* The least of some rounds, in milliseconds: a processor that is taken away
 * makes one of them slow. */
typedef struct durations {
    double kernels, copy, both;
} durations;

static bool make(times *t)
{
    static const int64_t sizes[2] = {SIDE, SIDE};
    core_device *device = t->self->device;
    float *zeros = calloc(NUMEL, sizeof *zeros);
    bool good = zeros != NULL;

    if (!good)
        harness_error(t->out, "no memory");
    good = good && expect_ok(t->out, core_stream_create(device, &t->stream),
                             "creating a stream");
    for (int i = 0; good && i < EVENTS; i++)
        good = expect_ok(
            t->out, core_event_create(device, CORE_EVENT_TIMING, &t->events[i]),
            "creating an event");
    good = good &&
           expect_ok(t->out,
                     core_tensor_from_data(zeros, CORE_F32, sizes, 2, device,
                                           &t->operand),
                     "making an operand") &&
           expect_ok(
               t->out,
               core_tensor_from_data(zeros, CORE_F32, sizes, 2, device, &t->to),
               "making a copy");
    free(zeros);
    return good;
}

/* Products, each of the one before; 0: the operand. */
static core_status multiply(const times *t, int kernels, core_tensor **out)
{
    core_tensor *now = core_tensor_retain(t->operand);
    core_status status = CORE_OK;

    for (int i = 0; i < kernels && status == CORE_OK; i++) {
        core_value args[2] = {suite_tensor_value(now),
                              suite_tensor_value(t->operand)};
        core_tensor *next = NULL;

        status = suite_call("mm", args, 2, &next);
        core_tensor_release(now);
        now = next;
    }
    *out = now;
    return status;
}

/* Enqueues products and a copy of the last one, with events around both. */
static core_status enqueue(times *t, int kernels, core_tensor **out_result)
{
    core_stream_guard guard;
    core_status status;

    CORE_TRY(core_stream_guard_enter(t->stream, &guard));
    status = core_event_record(t->events[0], t->stream);
    if (status == CORE_OK)
        status = multiply(t, kernels, out_result);
    if (status == CORE_OK)
        status = core_event_record(t->events[1], t->stream);
    if (status == CORE_OK)
        status = core_tensor_copy(t->to, *out_result, CORE_COPY_NON_BLOCKING);
    if (status == CORE_OK)
        status = core_event_record(t->events[2], t->stream);
    core_stream_guard_leave(&guard);
    return status;
}

/* All work is enqueued before the gate opens, so that the host's speed does not
 * matter. */
static core_status measure(times *t, int kernels, durations *out)
{
    core_tensor *result = NULL;
    core_status status;
    call_gate gate;

    if (!call_gate_close(&gate, t->self, t->stream, t->out))
        return CORE_ERROR_CANCELLED;
    status = enqueue(t, kernels, &result);
    call_gate_release(&gate);
    if (core_stream_synchronize(t->stream) != CORE_OK && status == CORE_OK)
        status = CORE_ERROR_STREAM;
    call_gate_destroy(&gate);
    core_tensor_release(result);
    CORE_TRY(status);
    CORE_TRY(core_event_elapsed(t->events[0], t->events[1], &out->kernels));
    CORE_TRY(core_event_elapsed(t->events[1], t->events[2], &out->copy));
    return core_event_elapsed(t->events[0], t->events[2], &out->both);
}

static core_status measure_least(times *t, int kernels, durations *out)
{
    durations now;

    CORE_TRY(measure(t, kernels, out));
    for (int i = 1; i < ROUNDS; i++) {
        CORE_TRY(measure(t, kernels, &now));
        out->kernels = fmin(out->kernels, now.kernels);
        out->copy = fmin(out->copy, now.copy);
        out->both = fmin(out->both, now.both);
    }
    return CORE_OK;
}

/* Whichever event is wrong, both together take the time of the kernels and of
 * the copy. */
static bool kernels_are_longer(const durations *behind, const durations *alone)
{
    return behind->both > (LONGER + 1) * alone->copy;
}

static void compare(times *t, int kernels, const durations *behind,
                    const durations *alone)
{
    if (behind->copy <= behind->kernels)
        return;
    if (!kernels_are_longer(behind, alone)) {
        not_supported(t->out,
                      "a copy of %d bytes takes %g ms, so that %d products of "
                      "matrices of %d x %d are not longer",
                      NUMEL * 4, alone->copy, kernels, SIDE, SIDE);
        return;
    }
    expect(t->out, behind->copy <= LONGER * alone->copy,
           "%d products of matrices of %d x %d take %g ms between two events, "
           "and a copy of the result behind them takes %g ms, alone %g ms: the "
           "time of an event behind kernels must be when they have ended "
           "(core.timing)",
           kernels, SIDE, SIDE, behind->kernels, behind->copy, alone->copy);
}

static void check(times *t)
{
    durations alone, behind;
    int kernels = KERNELS;
    core_status status = measure_least(t, 0, &alone);

    if (status == CORE_OK)
        status = measure_least(t, kernels, &behind);
    while (status == CORE_OK && kernels < KERNELS_MOST &&
           !kernels_are_longer(&behind, &alone)) {
        kernels *= 2;
        status = measure_least(t, kernels, &behind);
    }
    if (t->out->verdict != VERDICT_PASS)
        return;
    if (status == CORE_ERROR_NO_KERNEL) {
        core_error_clear();
        not_supported(t->out, "it has no kernel of mm in f32");
    } else if (status == CORE_ERROR_UNSUPPORTED) {
        core_error_clear();
        not_supported(t->out, "it has no core.timing");
    } else if (expect_ok(t->out, status, "measuring products"))
        compare(t, kernels, &behind, &alone);
}

static void times_include_kernels(suite *self, outcome *out, const test *one)
{
    times t = {.self = self, .out = out};

    (void)one;
    if (!suite_device(self, out))
        return;
    if (self->synchronous) {
        not_supported(out, "the device is synchronous");
        return;
    }
    if (expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                  "turning the fallback off") &&
        make(&t))
        check(&t);
    core_tensor_release(t.to);
    core_tensor_release(t.operand);
    for (int i = 0; i < EVENTS; i++)
        core_event_release(t.events[i]);
    core_stream_release(t.stream);
}

bool suite_add_kernel_times(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/times-include-kernels", times_include_kernels, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
