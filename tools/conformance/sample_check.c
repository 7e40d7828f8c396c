/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "sample_check.h"

#include "claims.h"

#include <stdio.h>
#include <string.h>

static void prepend(const sample *one, const char *where, outcome *out)
{
    char text[TEST_DETAIL];

    snprintf(text, sizeof text, "%s %s%s: %.400s", one->op, one->words, where,
             out->detail);
    snprintf(out->detail, sizeof out->detail, "%s", text);
}

/* Tests whether `supports` of a kernel that computes the call of row-major
 * operands refuses it with these. */
static bool refuses_layout(suite *self, const sample_call *call,
                           const reference *wanted, arrangement how,
                           outcome *out)
{
    if (how == ARRANGED_ROWS ||
        claim_of(self, call, wanted) != CLAIM_CONDITIONAL ||
        !call_was_refused(self, core_op_name(call->op), out))
        return false;
    out->verdict = VERDICT_PASS;
    out->detail[0] = 0;
    core_error_clear();
    return true;
}

static uint32_t check_layouts(suite *self, sample_call *call, const sample *one,
                              const sample_layout *layouts, uint32_t count,
                              outcome *out)
{
    const char *where = "";
    reference wanted;
    bool claims = false;
    uint32_t ran = 0;

    memset(&wanted, 0, sizeof wanted);
    if (reference_shapes(call, &wanted) != CORE_OK)
        harness_error(out, "malformed sample: %s", core_error_message());
    else
        claims = claim_holds(self, call, &wanted);
    if (claims && reference_values(call, self, &wanted) != CORE_OK)
        harness_error(out, "the CPU cannot compute the expected result: %s",
                      core_error_message());
    for (uint32_t i = 0; claims && out->verdict == VERDICT_PASS && i < count;
         i++) {
        where = layouts[i].where;
        wanted.margin = layouts[i].margin;
        operators_check(self, call, &wanted, layouts[i].how, out);
        ran += !refuses_layout(self, call, &wanted, layouts[i].how, out);
    }
    reference_free(&wanted);
    if (out->verdict != VERDICT_PASS)
        prepend(one, where, out);
    return ran;
}

static bool parse(suite *self, sample_call *call, const sample *one,
                  core_dtype dtype, outcome *out)
{
    if (sample_call_parse(call, self, one, dtype))
        return true;
    harness_error(out, "malformed sample: %s %s", one->op, one->words);
    return false;
}

uint32_t sample_check_layouts(suite *self, const sample *one, core_dtype dtype,
                              const sample_layout *layouts, uint32_t count,
                              outcome *out)
{
    static sample_call call;

    return parse(self, &call, one, dtype, out)
               ? check_layouts(self, &call, one, layouts, count, out)
               : 0;
}

bool sample_check_repeated(suite *self, const sample *one, core_dtype dtype,
                           uint32_t operand, layout how, const char *where,
                           outcome *out)
{
    static sample_call call;
    const sample_layout layout = {ARRANGED(how, operand), where, 0};

    if (!parse(self, &call, one, dtype, out))
        return false;
    sample_call_repeat(&call, operand, how);
    return check_layouts(self, &call, one, &layout, 1, out) > 0;
}

bool sample_check(suite *self, const sample *one, core_dtype dtype,
                  arrangement how, const char *where, outcome *out)
{
    const sample_layout layout = {how, where, 0};

    return sample_check_layouts(self, one, dtype, &layout, 1, out) > 0;
}
