/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "sample_check.h"

#include "claims.h"

#include <stdio.h>
#include <string.h>

bool sample_check(suite *self, const sample *one, core_dtype dtype,
                  arrangement how, const char *where, outcome *out)
{
    static sample_call call;
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
    if (claims && out->verdict == VERDICT_PASS)
        operators_check(self, &call, &wanted, how, out);
    reference_free(&wanted);
    if (out->verdict != VERDICT_PASS) {
        char text[TEST_DETAIL];

        snprintf(text, sizeof text, "%s %s%s: %.400s", one->op, one->words,
                 where, out->detail);
        snprintf(out->detail, sizeof out->detail, "%s", text);
    }
    return claims;
}
