/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: the matrix of operators and dtypes that the plugin claims, taken
 * first; then each of them against its reference.  A test is named
 * ops/OPERATOR/DTYPE. */

#include "claims.h"
#include "operators.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_F16, CORE_BF16,
                                    CORE_I64, CORE_I32, CORE_I16, CORE_I8,
                                    CORE_U8,  CORE_BOOL};

/* ----------------------------------------------------------------- a test -- */

static bool run_special(suite *self, words *call, outcome *out)
{
    reference wanted;
    bool good = true;

    words_make_special(call);
    if (reference_shapes(call, &wanted) != CORE_OK ||
        reference_values(call, self, &wanted) != CORE_OK)
        goto done;
    good = operators_check(self, call, &wanted, ARRANGED_ROWS, out);
done:
    reference_free(&wanted);
    return good;
}

static bool run_sample(suite *self, const sample *from, core_dtype dtype,
                       outcome *out, bool *out_ran, bool *out_own)
{
    static words call;
    reference wanted;
    bool good = false;

    memset(&wanted, 0, sizeof wanted);
    if (!words_parse(&call, self, from, dtype)) {
        harness_error(out, "a sample that cannot be read: %s", from->words);
        goto done;
    }
    if (reference_shapes(&call, &wanted) != CORE_OK &&
        core_error_code() != CORE_ERROR_DATA_DEPENDENT) {
        good = true; /* the operator is not for this dtype, so */
        goto done;
    }
    if (!oracle_defines(&call) ||
        claim_of(self, &call, &wanted) == CLAIM_NONE) {
        good = true;
        goto done;
    }
    if (reference_values(&call, self, &wanted) != CORE_OK) {
        good = true;
        harness_error(out, "there is no reference of \"%s %s\": %s", from->op,
                      from->words, core_error_message());
        goto done;
    }
    *out_ran = true;
    *out_own |= wanted.own;
    good = operators_check(self, &call, &wanted, ARRANGED_ROWS, out) &&
           operators_check(self, &call, &wanted, ARRANGED_STRIDED, out) &&
           operators_check_out(self, &call, &wanted, 1, out) &&
           operators_check_out(self, &call, &wanted, 2, out);
    if (good && oracle_knows_special(from->op) && core_dtype_is_floating(dtype))
        good = run_special(self, &call, out);
done:
    reference_free(&wanted);
    if (!good && out->verdict == VERDICT_FAIL) {
        char text[TEST_DETAIL];

        snprintf(text, sizeof text, "%s: %.500s", from->words, out->detail);
        snprintf(out->detail, sizeof out->detail, "%s", text);
    }
    return good;
}

static void run_operator(suite *self, outcome *out, const test *one)
{
    const sample *first = one->data;
    bool ran = false, own = false;
    const sample *at;

    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t i = 0; (at = sample_at(i)); i++)
        if (strcmp(at->op, first->op) == 0 &&
            !run_sample(self, at, (core_dtype)one->number, out, &ran, &own))
            break;
    if (out->verdict == VERDICT_FAIL && one->optional &&
        core_error_code() == CORE_ERROR_NO_KERNEL) {
        out->verdict = VERDICT_PASS;
        not_supported(out, "the kernel refuses the call");
    }
    if (out->verdict == VERDICT_PASS && !ran)
        harness_error(out, "no sample could be run");
    if (out->verdict == VERDICT_PASS && ran)
        snprintf(out->detail, sizeof out->detail, "reference: %s",
                 own ? "the suite's own" : "cpu in f64");
}

/* ------------------------------------------------------------- the matrix -- */

/* Whether any sample of the operator is claimed for a dtype. */
static claim claimed(suite *self, const char *op, core_dtype dtype,
                     const sample **out_first)
{
    static words call;
    claim best = CLAIM_NONE;
    const sample *at;

    *out_first = NULL;
    for (size_t i = 0; best != CLAIM_KERNEL && (at = sample_at(i)); i++) {
        reference wanted;
        core_status status;
        claim this;

        if (strcmp(at->op, op) != 0)
            continue;
        if (!*out_first)
            *out_first = at;
        if (!words_parse(&call, self, at, dtype) ||
            (!words_depend(&call) && dtype != CORE_I64))
            continue;
        status = reference_shapes(&call, &wanted);
        if (status == CORE_OK || status == CORE_ERROR_DATA_DEPENDENT) {
            this = claim_of(self, &call, &wanted);
            best = this > best ? this : best;
        }
        reference_free(&wanted);
    }
    return best;
}

static void no_sample(suite *self, outcome *out, const test *one)
{
    (void)self;
    (void)one;
    not_supported(out, "the suite has no sample of this operator");
}

static bool add_operator(suite *self, const char *op)
{
    const sample *first = NULL;
    size_t before = self->count;
    test one = {.level = LEVEL_OPS};

    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        claim what;

        snprintf(one.name, sizeof one.name, "ops/%.100s/%s", op,
                 core_dtype_name(dtypes[d]));
        if (self->filter && fnmatch(self->filter, one.name, 0) != 0)
            continue; /* to find out takes a while */
        what = claimed(self, op, dtypes[d], &first);
        if (what == CLAIM_NONE)
            continue;
        one.run = run_operator;
        one.data = first;
        one.number = dtypes[d];
        one.optional = what == CLAIM_CONDITIONAL;
        if (!suite_add(self, &one))
            return false;
    }
    if (self->count > before || first)
        return true;
    snprintf(one.name, sizeof one.name, "ops/%.100s/unknown", op);
    one.run = no_sample;
    one.optional = true;
    return suite_add(self, &one);
}

bool suite_add_ops(suite *self)
{
    char name[TEST_NAME];

    for (size_t i = 0; claimed_operator(self, i, name, sizeof name); i++)
        if (!add_operator(self, name))
            return false;
    return true;
}
