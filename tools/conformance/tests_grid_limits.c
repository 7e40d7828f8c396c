/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: more rows, columns or batches than the second and third dimension
 * of a launch have groups, 65,535 on most devices; all other sizes are small. */

#include "claims.h"
#include "operators.h"

#include <stdio.h>
#include <string.h>

static const sample samples[] = {
    {"bmm", "t:65537,1,2 t:65537,2,1", .5, 2},
    {"mm", "t:1,2 t:2,65537", .5, 2},
    {"mm", "t:65537,2 t:2,1", .5, 2},
    {"_log_softmax", "t:65537,2 i:1 b:0", -2, 2},
    {"_softmax", "t:65537,2 i:1 b:0", -2, 2},
    {"sum.dim_IntList", "t:65537,2 l:1", .5, 2},
    {"amax", "t:65537,2 l:1", .5, 2},
    {"native_layer_norm", "t:65537,2 l:2 n n f:1e-5", .5, 2},
    {"cumsum", "t:65537,2 i:1", .5, 2},
    {"embedding", "t:9,2 x:65537/9", .5, 2},
};

static void grid_limits(suite *self, outcome *out, const test *one)
{
    static sample_call call;
    uint32_t ran = 0;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        reference wanted;

        memset(&wanted, 0, sizeof wanted);
        if (sample_call_parse(&call, self, &samples[i], CORE_F32) &&
            reference_shapes(&call, &wanted) == CORE_OK &&
            claim_of(self, &call, &wanted) == CLAIM_KERNEL &&
            reference_values(&call, self, &wanted) == CORE_OK) {
            ran++;
            operators_check(self, &call, &wanted, ARRANGED_ROWS, out);
        }
        reference_free(&wanted);
        if (out->verdict != VERDICT_PASS) {
            char text[TEST_DETAIL];

            snprintf(text, sizeof text, "%s %s: %.400s", samples[i].op,
                     samples[i].words, out->detail);
            snprintf(out->detail, sizeof out->detail, "%s", text);
            return;
        }
    }
    if (ran == 0)
        not_supported(out, "none of the operators that this needs is claimed");
}

bool suite_add_grid_limits(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/more-than-65535-rows", grid_limits, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
