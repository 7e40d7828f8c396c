/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "two_streams.h"

#include "call_gate.h"
#include "claims.h"
#include "operators.h"

#include <stdio.h>
#include <string.h>

bool ready_call_parse(const two_streams *b, const ready_call *one,
                      sample_call **out_call)
{
    static sample_call call;

    *out_call = &call;
    return sample_call_parse(&call, b->self, &one->of, CORE_F32);
}

void ready_call_done(ready_call *one)
{
    sample_call_done(&one->on);
    reference_free(&one->wanted);
}

bool ready_call_prepare(two_streams *b, const sample *from, double low,
                        double high, ready_call *one)
{
    sample_call *call;

    memset(one, 0, sizeof *one);
    one->of = (sample){from->op, from->words, low, high};
    if (!ready_call_parse(b, one, &call) ||
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

static bool passed(two_streams *b, const ready_call *one, bool good,
                   const char *what)
{
    char text[TEST_DETAIL];

    if (!good && b->out->verdict == VERDICT_FAIL) {
        snprintf(text, sizeof text, "%s %s: %s: %.250s", one->of.op,
                 one->of.words, what, b->out->detail);
        snprintf(b->out->detail, sizeof b->out->detail, "%s", text);
    }
    return good;
}

core_status ready_call_run(two_streams *b, ready_call *one, core_stream *stream,
                           prepared *on)
{
    core_stream_guard guard;
    sample_call *call;
    core_status status;

    if (!ready_call_parse(b, one, &call))
        return CORE_ERROR_INTERNAL;
    CORE_TRY(core_stream_guard_enter(stream, &guard));
    status = sample_call_run(call, on);
    core_stream_guard_leave(&guard);
    return status;
}

prepared ready_call_again(const prepared *on)
{
    prepared copy = *on;

    memset(copy.results, 0, sizeof copy.results);
    copy.nflat = 0;
    return copy;
}

void ready_call_drop(prepared *on)
{
    for (uint32_t i = 0; i < SAMPLE_RESULTS; i++) {
        core_value_release(&on->results[i]);
        on->results[i] = (core_value){0};
    }
}

bool ready_call_warm(two_streams *b, ready_call *one)
{
    bool good = true;

    for (int i = 0; good && i < STREAMS; i++) {
        prepared on = ready_call_again(&one->on);

        good = expect_ok(b->out, ready_call_run(b, one, b->streams[i], &on),
                         one->of.op);
        ready_call_drop(&on);
    }
    return good;
}

bool ready_call_holds(two_streams *b, ready_call *one, prepared *on,
                      const char *what)
{
    sample_call *call;
    bool good = ready_call_parse(b, one, &call);

    for (uint32_t r = 0; good && r < on->nflat && r < one->wanted.nresults; r++)
        good = passed(b, one,
                      operators_check_result(b->self, call, &one->wanted, r,
                                             on->flat[r], b->out),
                      what);
    return good;
}

bool two_streams_rest(two_streams *b)
{
    return expect_ok(b->out, core_device_synchronize(b->self->device),
                     "synchronizing");
}

bool two_streams_begin(two_streams *b, suite *self, outcome *out)
{
    *b = (two_streams){.self = self, .out = out};
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

/* The callback of a device that never comes to rest may still use them. */
static call_gate gates[STREAMS];

bool two_streams_close(two_streams *b)
{
    bool closed = two_streams_rest(b);

    for (b->ngates = 0; closed && b->ngates < STREAMS;) {
        core_stream *stream = b->streams[b->ngates];
        core_stream_guard guard;

        if (!expect_ok(b->out, core_stream_guard_enter(stream, &guard),
                       "entering a stream"))
            return false;
        closed = call_gate_close(&gates[b->ngates++], b->self, stream, b->out);
        core_stream_guard_leave(&guard);
    }
    b->copies = closed && gates[0].event;
    return closed;
}

void two_streams_begin_call(const two_streams *b)
{
    for (uint32_t k = 0; k < b->ngates; k++)
        call_gate_begin_call(&gates[k]);
}

void two_streams_call(two_streams *b, ready_call *one, int which,
                      prepared *out_on)
{
    two_streams_begin_call(b);
    *out_on = ready_call_again(&one->on);
    expect_ok(b->out, ready_call_run(b, one, b->streams[which], out_on),
              one->of.op);
}

bool two_streams_blocked(const two_streams *b)
{
    bool blocked = true;

    for (uint32_t k = 0; k < b->ngates; k++)
        blocked = call_gate_holds(&gates[k]) && blocked;
    return blocked;
}

void two_streams_open(two_streams *b)
{
    for (uint32_t k = 0; k < b->ngates; k++)
        call_gate_release(&gates[k]);
    if (two_streams_rest(b))
        for (uint32_t k = 0; k < b->ngates; k++)
            call_gate_destroy(&gates[k]);
    b->ngates = 0;
}

void two_streams_add_unseen(two_streams *b, bool copies, const char *op)
{
    size_t length = strlen(b->waiting);

    if (copies) {
        b->unseen++;
        return;
    }
    b->nwaiting++;
    snprintf(b->waiting + length, sizeof b->waiting - length, "%s%s",
             length ? ", " : "", op);
}

/* What a test that passed has not seen. */
static void report_unseen(const two_streams *b)
{
    size_t length = strlen(b->out->detail);
    char *to = b->out->detail + length;
    const char *before = length ? "; " : "";

    if (b->ran > 0 && b->unseen == b->ran)
        not_supported(b->out, "the device has no core.host_callback, and long "
                              "copies always ended before the calls were made");
    else if (b->nwaiting > 0)
        snprintf(to, sizeof b->out->detail - length,
                 "%s%s that wait for the stream before they return: %s%s",
                 before, b->stopped ? "among launches" : "launches", b->waiting,
                 b->stopped ? "; the others were not tried" : "");
    else if (b->unseen + b->untried > 0)
        snprintf(to, sizeof b->out->detail - length,
                 "%s%u of %u operators were not tested: the device has no "
                 "core.host_callback, and long copies ended before or took too "
                 "long",
                 before, b->unseen + b->untried, b->ran + b->untried);
}

void two_streams_end(two_streams *b)
{
    skipped_calls_report(&b->left, b->ran, b->out);
    if (b->out->verdict == VERDICT_PASS)
        report_unseen(b);
    for (int i = 0; i < STREAMS; i++)
        core_stream_release(b->streams[i]);
}
