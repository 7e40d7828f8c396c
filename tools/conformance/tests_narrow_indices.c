/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: indices of i32, which kernels receive as the program gave them
 * (plugin-guide.md).  Each operator that takes indices computes with them what it
 * does with those of i64. */

#include "claims.h"
#include "operators.h"
#include "skipped_calls.h"

#include <stdio.h>
#include <string.h>

/* Makes the indices i32; false: the call has none. */
static bool narrow(sample_call *call)
{
    bool any = false;

    for (uint32_t k = 0; k < call->noperands; k++)
        if (call->operands[k].kind == 'x' || call->operands[k].kind == 'q') {
            call->operands[k].dtype = CORE_I32;
            any = true;
        }
    return any;
}

/* The reference is that of i64; false: the core refuses i32, or there is none. */
static bool prepare(suite *self, sample_call *call, const sample *from,
                    reference *wanted)
{
    reference shapes = {0};
    bool takes;

    if (!sample_call_parse(call, self, from, CORE_F32) || !narrow(call))
        return false;
    takes = reference_shapes(call, &shapes) == CORE_OK;
    reference_free(&shapes);
    core_error_clear();
    return takes && sample_call_parse(call, self, from, CORE_F32) &&
           oracle_defines(call) && reference_shapes(call, wanted) == CORE_OK &&
           claim_holds(self, call, wanted) &&
           reference_values(call, self, wanted) == CORE_OK && narrow(call);
}

static void check(suite *self, const sample_call *call, const sample *from,
                  const reference *wanted, outcome *out)
{
    char text[TEST_DETAIL];

    if (operators_check(self, call, wanted, ARRANGED_ROWS, out) ||
        out->verdict != VERDICT_FAIL)
        return;
    snprintf(text, sizeof text, "%s %s, with indices of i32: %.400s", from->op,
             from->words, out->detail);
    snprintf(out->detail, sizeof out->detail, "%s", text);
}

static void indices_may_be_i32(suite *self, outcome *out, const test *one)
{
    static sample_call call;
    skipped_calls left = {.length = 0};
    size_t ran = 0;
    const sample *at;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t i = 0; out->verdict == VERDICT_PASS && (at = sample_at(i));
         i++) {
        reference wanted = {0};

        if (prepare(self, &call, at, &wanted)) {
            bool claims = claim_holds(self, &call, &wanted);

            if (claims)
                check(self, &call, at, &wanted, out);
            else
                skipped_calls_add(&left, at->op, CORE_DTYPE_NONE);
            ran += claims;
        }
        reference_free(&wanted);
        core_error_clear();
    }
    skipped_calls_report(&left, ran, out);
}

bool suite_add_narrow_indices(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/indices-may-be-i32", indices_may_be_i32, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
