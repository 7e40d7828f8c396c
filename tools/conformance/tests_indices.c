/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: indices out of range.  A kernel that finds one reports an error at
 * once or sets the error of its stream (core.stream_error).  Which calls need
 * that is what the CPU refuses. */

#include "claims.h"
#include "skipped_calls.h"

#include <stdio.h>
#include <string.h>

enum { FAR = 1000 }; /* beyond every size of the samples */

/* Makes the call and waits for it; the error of either. */
static core_status call_and_wait(const sample_call *call, core_device *device)
{
    prepared on;
    core_status status =
        sample_call_prepare(call, device, call->dtype, ARRANGED_ROWS, &on);

    if (status == CORE_OK)
        status = sample_call_run(call, &on);
    if (status == CORE_OK)
        status = core_device_synchronize(device);
    sample_call_done(&on);
    return status;
}

/* Returns the operand that has indices, or -1. */
static int32_t index_operand(const sample_call *call)
{
    for (uint32_t k = 0; k < call->noperands; k++)
        if (call->operands[k].numel > 0 &&
            (call->operands[k].kind == 'x' || call->operands[k].kind == 'q'))
            return (int32_t)k;
    return -1;
}

static bool is_claimed(const suite *self, const sample_call *call)
{
    reference wanted;
    core_status status = reference_shapes(call, &wanted);
    bool claims = (status == CORE_OK || status == CORE_ERROR_DATA_DEPENDENT) &&
                  claim_holds(self, call, &wanted);

    reference_free(&wanted);
    core_error_clear();
    return claims;
}

/* Makes one index of the call too large, then too small. */
static void check_call(suite *self, sample_call *call, const char *words,
                       uint32_t *ran, outcome *out)
{
    operand *index = &call->operands[index_operand(call)];
    const char *op = core_op_name(call->op);

    for (int sign = 1; sign >= -1 && out->verdict == VERDICT_PASS; sign -= 2) {
        core_status status;

        index->values[index->numel - 1] = sign * FAR;
        status = call_and_wait(call, self->host);
        core_error_clear();
        if (status == CORE_OK)
            continue; /* it may be ignored, as a target is */
        ++*ran;
        status = call_and_wait(call, self->device);
        if (status == CORE_ERROR_DEVICE_LOST) {
            expect_ok(out, status, op);
            return;
        }
        core_error_clear();
        expect(out, status != CORE_OK,
               "%s %s: the index %d, which is out of range, is not reported: "
               "neither the call fails nor the wait for its stream "
               "(core.stream_error)",
               op, words, sign * FAR);
        expect_ok(out, core_device_synchronize(self->device),
                  "after an index out of range, the next wait");
    }
}

/* What is said of two calls whose indices are out of range; empty: nothing. */
typedef struct report {
    char launch[1024]; /* of the second, behind a first that was accepted */
    char wait[1024];
} report;

static void keep_text(core_status status, char *text, size_t size)
{
    snprintf(text, size, "%s", status == CORE_OK ? "" : core_error_message());
}

/* Enqueues the call with one index out of range, and with another one, before
 * it waits.  It always waits: an error that is still stored must not reach what
 * comes next. */
static void call_twice(sample_call *call, core_device *device, report *out)
{
    operand *index = &call->operands[index_operand(call)];
    prepared on[2] = {{.nargs = 0}, {.nargs = 0}};
    core_status status = CORE_OK;
    int launched = 0;

    *out = (report){.wait = ""};
    for (int i = 0; i < 2 && status == CORE_OK; i++) {
        index->values[index->numel - 1] = FAR * (i + 1);
        status = sample_call_prepare(call, device, call->dtype, ARRANGED_ROWS,
                                     &on[i]);
    }
    for (; launched < 2 && status == CORE_OK; launched++)
        status = sample_call_run(call, &on[launched]);
    if (launched == 2)
        keep_text(status, out->launch, sizeof out->launch);
    keep_text(core_device_synchronize(device), out->wait, sizeof out->wait);
    core_error_clear();
    for (int i = 0; i < 2; i++)
        sample_call_done(&on[i]);
}

/* `text` is empty, or of the first call. */
static bool check_first(const char *text, const char *op, const char *words,
                        outcome *out)
{
    const char *at = strstr(text, "(call ");

    /* The number of the call is before the text. */
    at = at ? strchr(at, ')') : text;
    return expect(out, !at || !strstr(at, "2000"),
                  "%s %s: of two indices that are out of range, %d in a first "
                  "call and %d in a second, core.stream_error reports the "
                  "second: \"%s\"",
                  op, words, FAR, 2 * FAR, text);
}

/* Checks what a stream says about an index that a kernel found: the core names
 * the call whose number is call_id. */
static void check_text(suite *self, sample_call *call, const char *words,
                       outcome *out)
{
    const char *op = core_op_name(call->op);
    report said;

    if (out->verdict != VERDICT_PASS || self->synchronous)
        return;
    call_twice(call, self->device, &said);
    if (expect(out, !*said.wait || strstr(said.wait, "(call "),
               "%s %s: take of core.stream_error does not store the number of "
               "the call (core_call.id of the kernel that set the error) in "
               "call_id: \"%s\"",
               op, words, said.wait) &&
        check_first(said.launch, op, words, out))
        check_first(said.wait, op, words, out);
}

static bool reports_data(suite *self)
{
    const void *table;

    return self->synchronous ||
           core_device_interface(self->device, "core.stream_error", 1,
                                 &table) == CORE_OK;
}

static void bad_indices(suite *self, outcome *out, const test *one)
{
    static sample_call call;
    const sample *at;
    uint32_t ran = 0;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    if (!reports_data(self)) {
        core_error_clear();
        not_supported(out, "it has no core.stream_error, so an index out of "
                           "range is not reported");
        return;
    }
    for (size_t i = 0; out->verdict == VERDICT_PASS && (at = sample_at(i)); i++)
        if (sample_call_parse(&call, self, at, CORE_F32) &&
            index_operand(&call) >= 0 && is_claimed(self, &call)) {
            uint32_t before = ran;

            check_call(self, &call, at->words, &ran, out);
            if (ran > before)
                check_text(self, &call, at->words, out);
        }
    if (ran == 0 && out->verdict == VERDICT_PASS)
        not_supported(out, "no operator that takes indices is claimed");
}

bool suite_add_indices(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/bad-indices-are-reported", bad_indices, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
