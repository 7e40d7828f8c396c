/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: the matrix of operators and dtypes that the plugin claims,
 * determined first; then each of them compared with its reference.  A test is
 * named ops/OPERATOR/DTYPE. */

#include "claims.h"
#include "operators.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDE = 2053 };

static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_F16, CORE_BF16,
                                    CORE_I64, CORE_I32, CORE_I16, CORE_I8,
                                    CORE_U8,  CORE_BOOL};

/* -------------------------------------------------------------- a test -- */

/* The results of one operator's samples. */
typedef struct sample_counts {
    bool conditional; /* the kernel may refuse */
    bool own;         /* the suite computed a reference itself */
    uint32_t ran, refused;
} sample_counts;

/* Tests whether a failure is a refusal by `supports`: then that call is not
 * claimed, but others may be.  A copy that the core needs and no kernel makes
 * is not a refusal. */
static bool was_refused(sample_counts *all, outcome *out)
{
    if (!all->conditional || out->verdict != VERDICT_FAIL ||
        core_error_code() != CORE_ERROR_NO_KERNEL ||
        strstr(core_error_message(), ": copy_: "))
        return false;
    out->verdict = VERDICT_PASS;
    out->detail[0] = 0;
    all->refused++;
    return true;
}

static bool run_special(suite *self, sample_call *call, sample_counts *all,
                        outcome *out)
{
    reference wanted;
    bool good = true;

    sample_call_make_special(call);
    if (reference_shapes(call, &wanted) != CORE_OK ||
        reference_values(call, self, &wanted) != CORE_OK)
        goto done;
    core_error_clear();
    good = operators_check(self, call, &wanted, ARRANGED_ROWS, out) ||
           was_refused(all, out);
done:
    reference_free(&wanted);
    return good;
}

static void prepend_detail(outcome *out, const char *what)
{
    char text[TEST_DETAIL];

    snprintf(text, sizeof text, "%s%.500s", what, out->detail);
    snprintf(out->detail, sizeof out->detail, "%s", text);
}

/* Runs all arrangements of operands and results, skipping refused calls. */
static bool run_arranged(suite *self, const sample_call *call,
                         const reference *wanted, sample_counts *all,
                         outcome *out)
{
    static const char *const arrangement_prefixes[] = {
        "",
        "operands with gaps: ",
        "into a part of a tensor: ",
        "into a tensor with gaps: ",
        "in place: ",
        ""};
    bool good = true;

    for (int how = 0; good && how < 6; how++) {
        core_error_clear();
        if (how < 2)
            good = operators_check(self, call, wanted,
                                   how ? ARRANGED_STRIDED : ARRANGED_ROWS, out);
        else if (how < 4)
            good = operators_check_out(self, call, wanted, how - 1, out);
        else if (how == 4)
            good = operators_check_in_place(self, call, wanted, out);
        else if (!operators_has_out(call, wanted))
            good = operators_check_tails(self, call, wanted, out);
        if (good) /* few operators have all the others */
            all->ran += how < 2;
        else
            good = was_refused(all, out);
        if (!good && out->verdict == VERDICT_FAIL)
            prepend_detail(out, arrangement_prefixes[how]);
    }
    return good;
}

static bool run_sample(suite *self, const sample *from, core_dtype dtype,
                       sample_counts *all, outcome *out)
{
    static sample_call call;
    reference wanted;
    bool good = false;

    memset(&wanted, 0, sizeof wanted);
    if (!sample_call_parse(&call, self, from, dtype)) {
        harness_error(out, "malformed sample: %s", from->words);
        goto done;
    }
    if (reference_shapes(&call, &wanted) != CORE_OK &&
        core_error_code() != CORE_ERROR_DATA_DEPENDENT) {
        good = true; /* the operator does not take this dtype */
        goto done;
    }
    if (!oracle_defines(&call) ||
        claim_of(self, &call, &wanted) == CLAIM_NONE) {
        good = true;
        goto done;
    }
    if (reference_values(&call, self, &wanted) != CORE_OK) {
        good = true;
        harness_error(out, "there is no reference for \"%s %s\": %s", from->op,
                      from->words, core_error_message());
        goto done;
    }
    all->own |= wanted.own;
    good = run_arranged(self, &call, &wanted, all, out);
    if (good && oracle_knows_special(from->op) && core_dtype_is_floating(dtype))
        good = run_special(self, &call, all, out);
done:
    reference_free(&wanted);
    if (!good && out->verdict == VERDICT_FAIL) {
        prepend_detail(out, ": ");
        prepend_detail(out, from->words);
    }
    return good;
}

/* The same call with rows of WIDE elements, more than a work group or a vector
 * loop has.  False: no row has the same length in all of its tensors. */
static bool widen(const sample *from, char *text, size_t capacity, sample *out)
{
    const char *at = from->words;
    int64_t row = 0;
    size_t size = 0;

    while (*at) {
        size_t word = strcspn(at, " "), tail = word;
        int64_t last;

        while (tail > 0 && at[tail - 1] >= '0' && at[tail - 1] <= '9')
            tail--;
        last = tail < word ? strtoll(at + tail, NULL, 10) : 0;
        if (at[0] == 't' && word > 1 && at[1] == ':') {
            if (last == 0 || (row > 1 && last > 1 && last != row))
                return false;
            row = last > row ? last : row;
        } else if (strchr("uhvpxqmy[", at[0]))
            return false;
        if (at[0] == 't' && last > 1)
            size += (size_t)snprintf(text + size, capacity - size, "%.*s%d",
                                     (int)tail, at, WIDE);
        else
            size += (size_t)snprintf(text + size, capacity - size, "%.*s",
                                     (int)word, at);
        at += word;
        if (*at == ' ')
            size += (size_t)snprintf(text + size, capacity - size, " "), at++;
    }
    *out = *from;
    out->words = text;
    return row > 1;
}

/* Runs the first sample of an element-wise operator that can be widened. */
static bool run_wide(suite *self, const char *op, core_dtype dtype,
                     sample_counts *all, outcome *out)
{
    const sample *at;
    sample wide;
    char text[200];

    for (size_t i = 0; oracle_knows_special(op) && (at = sample_at(i)); i++)
        if (strcmp(at->op, op) == 0 && widen(at, text, sizeof text, &wide))
            return run_sample(self, &wide, dtype, all, out);
    return true;
}

static void run_operator(suite *self, outcome *out, const test *one)
{
    const sample *first = one->data;
    core_dtype dtype = (core_dtype)one->number;
    sample_counts all = {.conditional = one->optional};
    bool good = true;
    const sample *at;

    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t i = 0; good && (at = sample_at(i)); i++)
        if (strcmp(at->op, first->op) == 0)
            good = run_sample(self, at, dtype, &all, out);
    if (good)
        good = run_wide(self, first->op, dtype, &all, out);
    if (out->verdict != VERDICT_PASS)
        return;
    if (all.ran == 0 && all.refused > 0)
        not_supported(out, "the kernel refuses every call of the suite");
    else if (all.ran == 0)
        harness_error(out, "no sample could be run");
    else if (all.refused > 0)
        snprintf(out->detail, sizeof out->detail,
                 "reference: %s; the kernel refuses %u of %u calls",
                 all.own ? "the suite's own" : "cpu in f64", all.refused,
                 all.refused + all.ran);
    else
        snprintf(out->detail, sizeof out->detail, "reference: %s",
                 all.own ? "the suite's own" : "cpu in f64");
}

/* ---------------------------------------------------------- the matrix -- */

/* Tests whether any sample of the operator is claimed for a dtype. */
static claim claimed(suite *self, const char *op, core_dtype dtype,
                     const sample **out_first)
{
    static sample_call call;
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
        if (!sample_call_parse(&call, self, at, dtype) ||
            (!sample_call_has_dtype(&call) && dtype != CORE_I64))
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

/* Passes if it runs: the runner makes it fail if the process that lists the
 * matrix did not finish. */
static void listed_all(suite *self, outcome *out, const test *one)
{
    (void)one;
    suite_device(self, out);
}

static void unlisted_operator(suite *self, outcome *out, const test *one)
{
    (void)self;
    (void)one;
    not_supported(out, "the suite has no sample of this operator");
}

static void unreached(suite *self, outcome *out, const test *one)
{
    (void)self;
    (void)one;
    expect(out, false,
           "none of its kernels accepts a call of the suite: no call has the "
           "dtypes of a signature");
}

static void unmatched(suite *self, outcome *out, const test *one)
{
    (void)self;
    (void)one;
    expect(out, false,
           "no operator uses a kernel of this name: it is misspelt, belongs to "
           "a later libcore, or names a variant that uses another kernel");
}

/* Determining the claims takes a while, so others are skipped. */
static bool chosen(const suite *self, const char *op, const char *last,
                   char *name)
{
    snprintf(name, TEST_NAME, "ops/%.100s/%s", op, last);
    return !self->filter || fnmatch(self->filter, name, 0) == 0;
}

static bool add_operator(suite *self, const char *op)
{
    const sample *first = NULL;
    test one = {.level = LEVEL_OPS};
    bool unreached_too = chosen(self, op, "unreached", one.name);
    bool reached = false;

    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        bool wanted = chosen(self, op, core_dtype_name(dtypes[d]), one.name);
        claim what = CLAIM_NONE;

        if (wanted || unreached_too)
            what = claimed(self, op, dtypes[d], &first);
        reached |= what != CLAIM_NONE;
        if (what == CLAIM_NONE || !wanted)
            continue;
        one.run = run_operator;
        one.data = first;
        one.number = dtypes[d];
        one.optional = what == CLAIM_CONDITIONAL;
        if (!suite_add(self, &one))
            return false;
    }
    if (reached)
        return true;
    chosen(self, op, first ? "unreached" : "unknown", one.name);
    one.run = first ? unreached : unlisted_operator;
    one.optional = !first;
    return suite_add(self, &one);
}

/* Adds a test for each kernel that no call would use; names are separated by ",
 * ". */
static bool add_unmatched(suite *self, const char *names)
{
    test one = {.level = LEVEL_OPS, .run = unmatched};
    char name[101];

    while (*names) {
        size_t size = strcspn(names, ",");
        size_t used = size < sizeof name ? size : sizeof name - 1;

        for (size_t i = 0; i < used; i++)
            name[i] = names[i] > ' ' && names[i] < 0x7f ? names[i] : '?';
        name[used] = 0;
        if (chosen(self, name, "unreached", one.name) && !suite_add(self, &one))
            return false;
        names += size;
        names += strspn(names, ", ");
    }
    return true;
}

bool suite_add_ops(suite *self)
{
    core_backend_information about = {.struct_size = sizeof about};
    test one = {.level = LEVEL_OPS, .run = listed_all};
    char name[TEST_NAME];

    if (chosen(self, "operators", "are-listed", one.name) &&
        !suite_add(self, &one))
        return false;
    for (uint32_t i = 0; core_backend_describe(i, &about) == CORE_OK; i++)
        if (strcmp(about.device_type, self->type) == 0 &&
            !add_unmatched(self, about.unmatched_kernels))
            return false;
    for (size_t i = 0; claimed_operator(self, i, name, sizeof name); i++)
        if (!add_operator(self, name))
            return false;
    return true;
}
