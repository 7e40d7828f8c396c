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

bool sample_check_layouts(suite *self, const sample *one, core_dtype dtype,
                          const sample_layout *layouts, size_t count,
                          outcome *out)
{
    static sample_call call;
    const char *where = "";
    reference wanted;
    bool claims = false;

    memset(&wanted, 0, sizeof wanted);
    if (!sample_call_parse(&call, self, one, dtype) ||
        reference_shapes(&call, &wanted) != CORE_OK)
        harness_error(out, "malformed sample: %s", core_error_message());
    else
        claims = claim_holds(self, &call, &wanted);
    if (claims && reference_values(&call, self, &wanted) != CORE_OK)
        harness_error(out, "the CPU cannot compute the expected result: %s",
                      core_error_message());
    for (size_t i = 0; claims && out->verdict == VERDICT_PASS && i < count;
         i++) {
        where = layouts[i].where;
        operators_check(self, &call, &wanted, layouts[i].how, out);
    }
    reference_free(&wanted);
    if (out->verdict != VERDICT_PASS)
        prepend(one, where, out);
    return claims;
}

bool sample_check(suite *self, const sample *one, core_dtype dtype,
                  arrangement how, const char *where, outcome *out)
{
    const sample_layout layout = {how, where};

    return sample_check_layouts(self, one, dtype, &layout, 1, out);
}
