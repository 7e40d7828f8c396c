/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: variances of numbers that are large and differ little.  The mean of
 * the squares less the square of the mean has lost all digits of f32. */

#include "sample_check.h"
#include "skipped_calls.h"

static const sample samples[] = {
    {"var.correction", "t:7,1031 l:1 i:1 b:0", 1000, 1001},
    {"var.correction", "t:1031,7 l:0 i:0 b:0", 1000, 1001},
    {"var.correction", "t:7,1031 n i:1 b:0", -1001, -1000},
    {"native_layer_norm", "t:7,1031 l:1031 n n f:1e-5", 1000, 1001},
    {"native_layer_norm", "t:257,64 l:64 n n f:1e-5", 1000, 1001},
    {"native_group_norm", "t:2,6,103 n n i:2 i:6 i:103 i:3 f:1e-5", 1000, 1001},
    {"native_batch_norm", "t:7,3,103 n n n n b:1 f:.1 f:1e-5", 1000, 1001},
};

static void variances_of_large_numbers(suite *self, outcome *out,
                                       const test *one)
{
    skipped_calls left = {.length = 0};
    size_t ran = 0;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        bool claims = sample_check(self, &samples[i], CORE_F32, ARRANGED_ROWS,
                                   ", of numbers from 1000 to 1001", out);

        ran += claims;
        if (out->verdict != VERDICT_PASS)
            return;
        if (!claims)
            skipped_calls_add(&left, samples[i].op, CORE_DTYPE_NONE);
    }
    skipped_calls_report(&left, ran, out);
}

bool suite_add_variances(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/variances-of-large-numbers", variances_of_large_numbers,
         true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
