/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: a call of each operator on another device of the plugin.  Kernels,
 * tables and plans that were made for the first one must not be used there. */

#include "claims.h"
#include "oracle.h"
#include "sample_check.h"

#include <stdio.h>
#include <string.h>

/* Another device of this type; NULL: there is none. */
static core_device *other_device(const suite *self)
{
    core_device *found = NULL;
    char name[80];

    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s:%d", self->type, i);
        if (core_device_find(name, &found) == CORE_OK && found != self->device)
            return found;
    }
    core_error_clear();
    return NULL;
}

/* Tests whether a call of the sample can be compared. */
static bool can_check(suite *self, const sample *one)
{
    static sample_call call;
    reference wanted;
    bool good;

    memset(&wanted, 0, sizeof wanted);
    good = sample_call_parse(&call, self, one, CORE_F32) &&
           sample_call_has_dtype(&call) && !oracle_random(one->op) &&
           oracle_defines(&call) &&
           reference_shapes(&call, &wanted) == CORE_OK &&
           claim_of(self, &call, &wanted) != CLAIM_NONE &&
           reference_values(&call, self, &wanted) == CORE_OK;
    reference_free(&wanted);
    core_error_clear();
    return good;
}

/* First on the first device, so that what its kernels keep exists. */
static bool check_both(suite *self, suite *other, const sample *one,
                       outcome *out)
{
    return sample_check(self, one, CORE_F32, ARRANGED_ROWS, "", out) &&
           out->verdict == VERDICT_PASS &&
           sample_check(other, one, CORE_F32, ARRANGED_ROWS,
                        ", on a second device", out);
}

static void second_device_computes(suite *self, outcome *out, const test *one)
{
    const char *done = "";
    const sample *at;
    suite other;
    size_t ran = 0;

    (void)one;
    if (!suite_device(self, out))
        return;
    other = *self;
    other.device = other_device(self);
    if (!other.device) {
        not_supported(out, "there is only one device");
        return;
    }
    if (!expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t i = 0; out->verdict == VERDICT_PASS && (at = sample_at(i));
         i++) {
        if (strcmp(at->op, done) == 0 || !can_check(self, at))
            continue;
        done = at->op;
        ran += check_both(self, &other, at, out);
    }
    if (ran == 0 && out->verdict == VERDICT_PASS)
        not_supported(out, "no operator is claimed in f32");
}

bool suite_add_second_device(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/second-device-computes", second_device_computes, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
