/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: variances of numbers that are large and differ little.  The mean of
 * the squares less the square of the mean has lost all digits of f32. */

#include "sample_check.h"
#include "skipped_calls.h"

#include <stdio.h>
#include <string.h>

static const sample samples[] = {
    {"var.correction", "t:7,1031 l:1 i:1 b:0", 1000, 1001},
    {"var.correction", "t:1031,7 l:0 i:0 b:0", 1000, 1001},
    {"var.correction", "t:7,1031 n i:1 b:0", -1001, -1000},
    {"native_layer_norm", "t:7,1031 l:1031 n n f:1e-5", 1000, 1001},
    {"native_layer_norm", "t:257,64 l:64 n n f:1e-5", 1000, 1001},
    {"native_group_norm", "t:2,6,103 n n i:2 i:6 i:103 i:3 f:1e-5", 1000, 1001},
    {"native_batch_norm", "t:7,3,103 n n n n b:1 f:.1 f:1e-5", 1000, 1001},
};

/* The mean of a row that is summed one by one is off by .001, and normalized
 * results, which are divided by .289, by three times as much.  Where the variance
 * is a difference of squares they are off by more than this. */
static const double margin = .03;

/* Returns false if no kernel claims the call. */
static bool check(suite *self, const sample *one, outcome *out)
{
    char where[60];
    const sample_layout layout = {ARRANGED_ROWS, where, margin};
    bool claims;

    snprintf(where, sizeof where, ", of numbers from %g to %g", one->low,
             one->high);
    core_error_clear();
    claims = sample_check_layouts(self, one, CORE_F32, &layout, 1, out) > 0;
    if (out->verdict == VERDICT_FAIL && core_error_code() == CORE_OK) {
        size_t used = strlen(out->detail);

        snprintf(out->detail + used, sizeof out->detail - used,
                 " (a variance that is the mean of the squares less the square "
                 "of the mean has lost its digits)");
    }
    return claims;
}

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
        bool claims = check(self, &samples[i], out);

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
