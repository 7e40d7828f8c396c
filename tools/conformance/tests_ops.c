/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: the matrix of operators and dtypes that the plugin claims,
 * determined first; then each of them compared with its reference.  A test is
 * named ops/OPERATOR/DTYPE. */

#include "claims.h"
#include "name_filter.h"
#include "operators.h"
#include "large_calls.h"
#include "resize.h"
#include "derived_calls.h"
#include "value_groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FEW = 500,
    SPECIAL = 2053,
    ROW_AT_ADDRESSES = 33,
    MOST_SMALL = 65, /* sizes up to one more than a vector loop's step */
    LARGEST_POWER = 65536,
    SMALLEST_POWER = 4096,
    MOST_RESULTS = 1 << 22, /* elements: a result can have their square */
};

static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_F16, CORE_BF16,
                                    CORE_I64, CORE_I32, CORE_I16, CORE_I8,
                                    CORE_U8,  CORE_BOOL};

/* -------------------------------------------------------------- a test -- */

/* The results of one operator's samples. */
typedef struct sample_counts {
    bool conditional; /* the kernel may refuse */
    bool own;         /* the suite computed a reference itself */
    bool large;       /* a call of many elements was possible */
    uint32_t ran, refused;
} sample_counts;

/* Tests whether a failure is a refusal by `supports`: then that call is not
 * claimed, but others may be. */
static bool was_refused(const suite *self, const sample_call *call,
                        sample_counts *all, outcome *out)
{
    if (!all->conditional ||
        !call_was_refused(self, core_op_name(call->op), out))
        return false;
    out->verdict = VERDICT_PASS;
    out->detail[0] = 0;
    all->refused++;
    return true;
}

static void prepend_detail(outcome *out, const char *what)
{
    char text[TEST_DETAIL];

    snprintf(text, sizeof text, "%s%.500s", what, out->detail);
    snprintf(out->detail, sizeof out->detail, "%s", text);
}

static bool run_values(suite *self, sample_call *call, sample_counts *all,
                       outcome *out)
{
    reference wanted;
    bool good = true;

    call->tied = true;
    if (reference_shapes(call, &wanted) != CORE_OK ||
        reference_values(call, self, &wanted) != CORE_OK)
        goto done;
    core_error_clear();
    good = operators_check(self, call, &wanted, ARRANGED_ROWS, out);
    if (good)
        all->ran++;
    else
        good = was_refused(self, call, all, out);
    if (!good && out->verdict == VERDICT_FAIL)
        prepend_detail(out, "special values: ");
done:
    reference_free(&wanted);
    return good;
}

/* Numbers whose exponentials overflow in f32, then those that do in f64 too, and
 * those that are 0 in f64. */
static bool run_exponents(suite *self, sample_call *call, sample_counts *all,
                          outcome *out)
{
    static const double more[] = {0, 700, -2000};
    bool good = true;

    sample_call_make_masked(call);
    for (size_t i = 0; good && i < sizeof more / sizeof *more; i++) {
        sample_call_add(call, more[i]);
        good = run_values(self, call, all, out);
    }
    return good;
}

/* In f32 and f64: the others are computed in f32. */
static bool run_groups(suite *self, sample_call *call, sample_counts *all,
                       outcome *out)
{
    bool good = true;

    for (size_t i = 0; good && i < VALUE_GROUPS; i++) {
        sample_call_make_values(call, value_groups[i], VALUE_GROUP);
        good = run_values(self, call, all, out);
    }
    return good;
}

static bool run_special(suite *self, sample_call *call, sample_counts *all,
                        outcome *out)
{
    const char *op = core_op_name(call->op);
    bool wide = call->dtype == CORE_F32 || call->dtype == CORE_F64;

    if (value_groups_serve(op) && wide && !run_groups(self, call, all, out))
        return false;
    if (value_groups_serve(op) && !oracle_knows_special(op))
        return true;
    if (oracle_normalizes(op))
        return run_exponents(self, call, all, out);
    sample_call_make_special(call);
    if (oracle_scales(op))
        sample_call_limit(call, 60000);
    return run_values(self, call, all, out);
}

/* `supports` returns the same for the same call: the core relies on that. */
static bool is_refused_again(suite *self, const sample_call *call,
                             const reference *wanted, arrangement how,
                             outcome *out)
{
    outcome again = {.verdict = VERDICT_PASS};
    bool runs = operators_check(self, call, wanted, how, &again);

    core_error_clear();
    return expect(out, !runs,
                  "`supports` of the kernel refuses the call, and accepts it "
                  "when it is made again");
}

/* Where results are written, and what the operands are. */
enum {
    RESULT_NEW = 1 << 0,
    RESULT_WINDOW = 1 << 1,
    RESULT_SPACED = 1 << 2, /* a window with gaps */
    RESULT_IN_PLACE = 1 << 3,
    RESULT_IN_PLACE_SPACED = 1 << 4,
    RESULT_AGAIN = 1 << 5, /* of operands that changed */
    RESULT_TAIL = 1 << 6,  /* with the memory behind it */
    RESULT_ALL = (1 << 7) - 1,
};

/* Runs some kinds of results, skipping refused calls. */
static bool run_results(suite *self, const sample_call *call,
                        const reference *wanted, uint32_t kinds,
                        sample_counts *all, outcome *out)
{
    static const char *const prefixes[] = {"",
                                           "into a part of a tensor: ",
                                           "into a tensor with gaps: ",
                                           "in place: ",
                                           "in place, with gaps: ",
                                           "with operands that changed since "
                                           "the last call: ",
                                           ""};
    bool good = true;

    for (int how = 0; good && how < 7; how++) {
        if (!(kinds >> how & 1))
            continue;
        core_error_clear();
        if (how == 0)
            good = operators_check(self, call, wanted, ARRANGED_ROWS, out);
        else if (how < 3)
            good = operators_check_out(self, call, wanted, how, out);
        else if (how < 5)
            good = operators_check_in_place(
                self, call, wanted,
                how == 3 ? ARRANGED_ROWS : ARRANGED(LAYOUT_SPACED, 0), out);
        else if (how == 5)
            good = operators_check_again(self, call, wanted, out);
        else if (!operators_has_out(call, wanted))
            good = operators_check_tails(self, call, wanted, out);
        if (good) /* few operators have all the others */
            all->ran += how == 0;
        else
            good = was_refused(self, call, all, out) &&
                   (how > 0 ||
                    is_refused_again(self, call, wanted, ARRANGED_ROWS, out));
        if (!good && out->verdict == VERDICT_FAIL)
            prepend_detail(out, prefixes[how]);
    }
    return good;
}

/* --------------------------------------------------------------- layouts -- */

/* Names the operands that are not row-major: "operand 1 transposed: ". */
static void prepend_layouts(const sample_call *call, arrangement how,
                            outcome *out)
{
    char text[300] = "";
    size_t used = 0;

    for (uint32_t k = 0; k < call->noperands; k++) {
        uint32_t at = how >> 4 * k & 15;

        if (at != LAYOUT_ROWS && used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used,
                                     "%soperand %u %s", used ? ", " : "", k,
                                     layout_names[at]);
    }
    if (used > 0 && used + 3 < sizeof text) {
        snprintf(text + used, sizeof text - used, ": ");
        prepend_detail(out, text);
    }
}

static bool run_arranged(suite *self, const sample_call *call,
                         const reference *wanted, arrangement how,
                         sample_counts *all, outcome *out)
{
    bool good;

    core_error_clear();
    good = operators_check(self, call, wanted, how, out);
    if (good)
        all->ran++;
    else
        good = was_refused(self, call, all, out) &&
               is_refused_again(self, call, wanted, how, out);
    if (!good && out->verdict == VERDICT_FAIL)
        prepend_layouts(call, how, out);
    return good;
}

/* The layouts of the operands, counted from the `turn`-th on. */
static arrangement in_turn(const sample_call *call, uint32_t turn)
{
    arrangement how = ARRANGED_ROWS;

    for (uint32_t k = 0; k < call->noperands; k++) {
        layout one = (layout)((k + turn) % LAYOUT_ONE_ROW);

        if (sample_call_allows(call, k, one))
            how |= ARRANGED(one, k);
    }
    return how;
}

/* The same call with an operand that repeats one row or column, which needs a
 * reference of its own. */
static bool run_repeated(suite *self, sample_call *call, uint32_t k, layout how,
                         sample_counts *all, outcome *out)
{
    operand *one = &call->operands[k];
    size_t bytes = (size_t)one->numel * sizeof *one->values;
    double *values = malloc(bytes + 1);
    reference wanted;
    core_status status;
    bool good = true;

    if (!values) {
        harness_error(out, "no memory");
        return false;
    }
    memcpy(values, one->values, bytes);
    sample_call_repeat(call, k, how);
    status = reference_shapes(call, &wanted);
    if ((status == CORE_OK || status == CORE_ERROR_DATA_DEPENDENT) &&
        reference_values(call, self, &wanted) == CORE_OK)
        good = run_arranged(self, call, &wanted, ARRANGED(how, k), all, out);
    reference_free(&wanted);
    memcpy(one->values, values, bytes);
    free(values);
    return good;
}

/* Every operand alone in every layout, and all in different ones. */
static bool run_layouts(suite *self, sample_call *call, const reference *wanted,
                        sample_counts *all, outcome *out)
{
    bool good = run_arranged(self, call, wanted, ARRANGED_STRIDED, all, out);

    for (uint32_t k = 0; good && k < call->noperands; k++)
        for (uint32_t at = 1; good && at < LAYOUTS; at++) {
            if (!sample_call_allows(call, k, (layout)at) ||
                (at >= LAYOUT_ONE_ROW && call->operands[k].numel > FEW))
                continue;
            if (at != LAYOUT_ONE_ROW && at != LAYOUT_ONE_COLUMN)
                good =
                    run_arranged(self, call, wanted, ARRANGED(at, k), all, out);
            else
                good = run_repeated(self, call, k, (layout)at, all, out);
        }
    for (uint32_t turn = 0; good && call->noperands > 1 &&
                            wanted->numel[0] < FEW && turn < LAYOUT_ONE_ROW;
         turn++)
        good = run_arranged(self, call, wanted, in_turn(call, turn), all, out);
    return good;
}

/* Each operand of many elements in turn repeats one row; in f32 and i32 only,
 * because each of these calls needs its own reference, which takes long. */
static bool run_many_repeated(suite *self, sample_call *call,
                              sample_counts *all, outcome *out)
{
    bool good = true;

    for (uint32_t k = 0; good && k < call->noperands; k++)
        if ((call->dtype == CORE_F32 || call->dtype == CORE_I32) &&
            call->operands[k].numel > FEW &&
            sample_call_allows(call, k, LAYOUT_ONE_ROW))
            good = run_repeated(self, call, k, LAYOUT_ONE_ROW, all, out);
    return good;
}

/* ------------------------------------------------------------- addresses -- */

/* Elements from the beginning of their memory: odd multiples of 2, 4, 8, 16, 32,
 * 64 and more, then what is left of 2 to 15 for operands, and of the remainders
 * of 16 for results. */
static const struct {
    int16_t operands, results;
} places[] = {{2, 68},  {3, 69},   {4, 72},  {8, 80},   {14, 70},
              {16, 96}, {32, 192}, {62, 74}, {64, 128}, {256, 256},
              {5, 81},  {6, 82},   {7, 71},  {9, 73},   {10, 75},
              {11, 76}, {12, 77},  {13, 78}, {15, 79}};

static bool run_shifted(suite *self, sample_call *call, const reference *wanted,
                        size_t place, sample_counts *all, outcome *out)
{
    arrangement how = ARRANGED_ROWS;
    char text[80] = "";
    bool good;

    for (uint32_t k = 0; k < call->noperands; k++)
        if (sample_call_allows(call, k, LAYOUT_OFFSET))
            how |= ARRANGED(LAYOUT_OFFSET, k);
    core_error_clear();
    call->shift = places[place].operands - 1;
    good = operators_check(self, call, wanted, how, out);
    all->ran += good;
    call->shift = places[place].results - OPERATORS_GUARD;
    if (!good)
        snprintf(text, sizeof text, "operands at an offset of %d elements: ",
                 places[place].operands);
    else if (!operators_check_out(self, call, wanted, 1, out))
        snprintf(text, sizeof text,
                 "into a tensor at an offset of %d elements: ",
                 places[place].results);
    call->shift = 0;
    good = !*text || was_refused(self, call, all, out);
    if (!good && out->verdict == VERDICT_FAIL)
        prepend_detail(out, text);
    return good;
}

/* Places operands, then results, at other addresses. */
static bool run_addresses(suite *self, sample_call *call,
                          const reference *wanted, sample_counts *all,
                          outcome *out)
{
    size_t count = self->quick ? 3 : sizeof places / sizeof *places;
    bool good = true;

    for (size_t i = 0; good && i < count; i++)
        good = run_shifted(self, call, wanted, i, all, out);
    return good;
}

/* --------------------------------------------------------------- samples -- */

/* What is done with a sample. */
typedef enum extent {
    EXTENT_ALL,     /* all layouts and results */
    EXTENT_LEVEL,   /* the same, of a call that need not be valid */
    EXTENT_SIZE,    /* row-major, also into a window of memory */
    EXTENT_LARGE,   /* all results without gaps, and transposed with gaps */
    EXTENT_TWINS,   /* one tensor as the first two operands */
    EXTENT_COLUMNS, /* row-major */
    EXTENT_PLACED,  /* operands and results at several addresses */
    EXTENT_VARIED,  /* row-major, into a window and transposed with gaps */
    EXTENT_SPECIAL, /* NaN, infinities and the like */
} extent;

/* Tests whether the order of elements that may be equal decides the result.  Of
 * equal elements argmax and argmin take the first. */
static bool depends_on_ties(sample_call *call, const reference *wanted)
{
    const char *op = core_op_name(call->op);
    bool few = !(call->dtype == CORE_F64 || call->dtype == CORE_F32 ||
                 call->dtype == CORE_I64 || call->dtype == CORE_I32);

    for (uint32_t k = 0; k < call->noperands; k++)
        call->tied |= few && call->operands[k].kind == 'u' &&
                      call->operands[k].numel > 64;
    return call->tied && wanted->nresults > 0 &&
           wanted->dtypes[0] == CORE_I64 && strcmp(op, "argmax") != 0 &&
           strcmp(op, "argmin") != 0;
}

static bool is_too_large(const reference *wanted)
{
    bool large = false;

    for (uint32_t r = 0; r < wanted->nresults; r++)
        large |= wanted->numel[r] > MOST_RESULTS;
    return large;
}

static bool run_extent(suite *self, sample_call *call, const reference *wanted,
                       extent what, sample_counts *all, outcome *out)
{
    switch (what) {
    case EXTENT_SPECIAL:
        return run_special(self, call, all, out);
    case EXTENT_ALL:
    case EXTENT_LEVEL:
        return run_results(self, call, wanted, RESULT_ALL, all, out) &&
               run_layouts(self, call, wanted, all, out);
    case EXTENT_SIZE:
        return run_results(self, call, wanted, RESULT_NEW | RESULT_WINDOW, all,
                           out);
    case EXTENT_LARGE:
        all->large |= large_call_has_many(call, wanted);
        return run_results(self, call, wanted,
                           RESULT_NEW | RESULT_WINDOW | RESULT_IN_PLACE |
                               RESULT_AGAIN | RESULT_TAIL,
                           all, out) &&
               run_arranged(self, call, wanted, ARRANGED_STRIDED, all, out) &&
               run_many_repeated(self, call, all, out);
    case EXTENT_PLACED:
        return run_addresses(self, call, wanted, all, out);
    case EXTENT_VARIED:
        return run_results(self, call, wanted, RESULT_NEW | RESULT_WINDOW, all,
                           out) &&
               run_arranged(self, call, wanted, ARRANGED_STRIDED, all, out);
    case EXTENT_COLUMNS:
        all->large |= large_call_has_many(call, wanted);
        return run_results(self, call, wanted, RESULT_NEW, all, out);
    default:
        return run_results(self, call, wanted, RESULT_NEW, all, out);
    }
}

static bool run_sample(suite *self, const sample *from, core_dtype dtype,
                       extent what, sample_counts *all, outcome *out)
{
    static sample_call call;
    reference wanted;
    bool good = true;

    memset(&wanted, 0, sizeof wanted);
    if (!sample_call_parse(&call, self, from, dtype)) {
        good = what != EXTENT_ALL;
        if (!good)
            harness_error(out, "malformed sample: %s", from->words);
        goto done;
    }
    if (what == EXTENT_TWINS && !sample_call_make_twins(&call))
        goto done;
    if (reference_shapes(&call, &wanted) != CORE_OK &&
        core_error_code() != CORE_ERROR_DATA_DEPENDENT)
        goto done; /* the operator does not take this dtype */
    if (!oracle_defines(&call) || depends_on_ties(&call, &wanted) ||
        is_too_large(&wanted) || claim_of(self, &call, &wanted) == CLAIM_NONE)
        goto done;
    if (reference_values(&call, self, &wanted) != CORE_OK) {
        if (what == EXTENT_ALL)
            harness_error(out, "there is no reference for \"%s %s\": %s",
                          from->op, from->words, core_error_message());
        goto done;
    }
    all->own |= wanted.own;
    good = run_extent(self, &call, &wanted, what, all, out);
done:
    reference_free(&wanted);
    if (!good && out->verdict == VERDICT_FAIL && what == EXTENT_TWINS)
        prepend_detail(out, "one tensor as both operands: ");
    if (!good && out->verdict == VERDICT_FAIL) {
        prepend_detail(out, ": ");
        prepend_detail(out, from->words);
    }
    return good;
}

/* Runs a sample with all sizes up to that of a vector. */
static bool run_sizes(suite *self, const sample *from, core_dtype dtype,
                      sample_counts *all, outcome *out)
{
    /* What kernels have faster loops for. */
    static const int64_t multiples[] = {64, 256, 1024, 128, 512};
    size_t count = self->quick ? 1 : sizeof multiples / sizeof *multiples;
    int64_t first, last;
    resized other;
    bool good = true;

    if (!sample_sizes(from, &first, &last))
        return true;
    for (int64_t size = 0; good && size <= MOST_SMALL; size += size > 16 ? 16
                                                               : self->quick
                                                                   ? 5
                                                                   : 1)
        if (size != last && sample_resize(from, last, size, &other))
            good =
                run_sample(self, &other.sample, dtype, EXTENT_SIZE, all, out);
    for (size_t i = 0; good && i < count; i++)
        if (multiples[i] != last &&
            sample_resize(from, last, multiples[i], &other))
            good =
                run_sample(self, &other.sample, dtype, EXTENT_SIZE, all, out);
    return good;
}

/* Runs a sample, with rows of 33 elements where that is possible, at several
 * addresses. */
static bool run_placed(suite *self, const sample *from, core_dtype dtype,
                       sample_counts *all, outcome *out)
{
    uint32_t before = all->ran + all->refused;
    int64_t first, last;
    resized other;

    if (!sample_sizes(from, &first, &last))
        return true;
    if (sample_resize(from, last, ROW_AT_ADDRESSES, &other) &&
        !run_sample(self, &other.sample, dtype, EXTENT_PLACED, all, out))
        return false;
    return all->ran + all->refused > before ||
           run_sample(self, from, dtype, EXTENT_PLACED, all, out);
}

/* Runs a sample with the largest power of two that is cheap: loops whose steps
 * are smaller powers leave no remainder. */
static bool run_power(suite *self, const sample *from, core_dtype dtype,
                      sample_counts *all, outcome *out)
{
    uint32_t before = all->ran;
    int64_t first, last;
    resized other;
    bool good = true;

    if (!sample_sizes(from, &first, &last))
        return true;
    for (int64_t size = LARGEST_POWER;
         good && all->ran == before && size >= SMALLEST_POWER; size /= 2)
        if (sample_resize(from, last, size, &other) &&
            sample_numel(&other.sample) <= LARGEST_POWER)
            good = run_sample(self, &other.sample, dtype, EXTENT_COLUMNS, all,
                              out);
    return good;
}

/* Runs a sample with long rows and many of them, then with many short ones. */
static bool run_large(suite *self, const sample *from, core_dtype dtype,
                      sample_counts *all, outcome *out)
{
    large_call calls[LARGE_CALLS];
    uint32_t count = large_calls(from, calls), before = all->ran;
    bool good = true;

    for (uint32_t i = 0; good && i < count; i++)
        if (!calls[i].otherwise || all->ran == before)
            good = run_sample(self, &calls[i].call.sample, dtype,
                              calls[i].columns ? EXTENT_COLUMNS : EXTENT_LARGE,
                              all, out);
    return good;
}

/* Runs the samples of an operator that are large themselves. */
static bool run_large_samples(suite *self, const char *op, core_dtype dtype,
                              sample_counts *all, outcome *out)
{
    const sample *at;
    bool good = true;

    for (size_t i = 0; good && (at = large_sample_at(i)); i++)
        if (strcmp(at->op, op) == 0)
            good = run_sample(self, at, dtype, EXTENT_LARGE, all, out);
    return good;
}

/* Runs a sample with all pairs of special values. */
static bool run_all_special(suite *self, const sample *from, core_dtype dtype,
                            sample_counts *all, outcome *out)
{
    int64_t first, last;
    resized other;

    if (!(oracle_knows_special(from->op) || oracle_orders(from->op) ||
          oracle_normalizes(from->op) || value_groups_serve(from->op)) ||
        !core_dtype_is_floating(dtype) || !sample_sizes(from, &first, &last) ||
        !sample_enlarge(from, last, SPECIAL, &other))
        return true;
    return run_sample(self, &other.sample, dtype, EXTENT_SPECIAL, all, out);
}

/* Runs a sample along each other dimension, and with other numbers. */
static bool run_varied(suite *self, const sample *from, core_dtype dtype,
                       sample_counts *all, outcome *out)
{
    resized other;
    bool good = true;

    for (int64_t dim = 0; good && dim < 4; dim++)
        if (sample_other_dim(from, dim, &other))
            good =
                run_sample(self, &other.sample, dtype, EXTENT_SIZE, all, out);
    if (good && sample_other_numbers(from, &other))
        good = run_sample(self, &other.sample, dtype, EXTENT_SIZE, all, out);
    return good;
}

/* --------------------------------------------------- argument patterns -- */

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
        if (!sample_call_parse_shapes(&call, self, at, dtype) ||
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

typedef struct varying {
    suite *self;
    core_dtype dtype;
    sample_counts *all;
    outcome *out;
} varying;

static bool run_variation(void *context, const sample *one)
{
    const varying *v = context;

    return run_sample(v->self, one, v->dtype, EXTENT_VARIED, v->all, v->out);
}

/* Runs what follows from a sample and the schema, for one dtype: the dtypes of a
 * kernel read their arguments in the same way. */
static bool run_variations(suite *self, const sample *from, core_dtype dtype,
                           sample_counts *all, outcome *out)
{
    varying context = {self, dtype, all, out};
    const sample *first;

    if (dtype != CORE_F32 &&
        claimed(self, from->op, CORE_F32, &first) != CLAIM_NONE)
        return true;
    return sample_vary(from, run_variation, &context);
}

/* Passes one tensor as the first two operands. */
static bool run_twins(suite *self, const sample *from, core_dtype dtype,
                      sample_counts *all, outcome *out)
{
    return run_sample(self, from, dtype, EXTENT_TWINS, all, out);
}

/* Runs a sample whose tensors are broadcast with tensors of one shape. */
static bool run_level(suite *self, const sample *from, core_dtype dtype,
                      sample_counts *all, outcome *out)
{
    resized other;

    return !sample_level(from, &other) ||
           (run_sample(self, &other.sample, dtype, EXTENT_LEVEL, all, out) &&
            run_all_special(self, &other.sample, dtype, all, out) &&
            run_twins(self, &other.sample, dtype, all, out) &&
            (self->quick || run_large(self, &other.sample, dtype, all, out)));
}

typedef bool (*with_sample)(suite *self, const sample *from, core_dtype dtype,
                            sample_counts *all, outcome *out);

/* Runs the first sample of an operator that has another size. */
static bool run_first(suite *self, const char *op, core_dtype dtype,
                      with_sample run, sample_counts *all, outcome *out)
{
    uint32_t before = all->ran + all->refused;
    const sample *at;
    bool good = true;

    for (size_t i = 0;
         good && all->ran + all->refused == before && (at = sample_at(i)); i++)
        if (strcmp(at->op, op) == 0)
            good = run(self, at, dtype, all, out);
    return good;
}

/* What a passed test compared with, and what it did not. */
static void describe(const sample_counts *all, bool complete, outcome *out)
{
    char refused[80] = "";

    if (all->refused > 0)
        snprintf(refused, sizeof refused, "; the kernel refuses %u of %u calls",
                 all->refused, all->refused + all->ran);
    snprintf(out->detail, sizeof out->detail, "reference: %s%s%s",
             all->own ? "the suite's own" : "cpu in f64", refused,
             complete ? "" : "; no call of many elements was possible");
}

/* Tests whether a sample is of another operator that uses the kernels. */
static bool uses_kernel(const suite *self, const sample *of, const char *kernel)
{
    return strcmp(of->op, kernel) != 0 &&
           strcmp(kernel_name_of(of->op), kernel) == 0 &&
           strcmp(claimed_kernel(self, of->op), kernel) == 0;
}

/* Runs the samples of the other operators that use the kernels: of add.Scalar,
 * and of sum.dim_IntList where it has no kernels itself.  Of those with as many
 * operands, which are other loops, with all sizes. */
static bool run_others(suite *self, const char *kernel, core_dtype dtype,
                       sample_counts *all, outcome *out)
{
    const sample *at, *before = NULL;
    bool good = true;

    for (size_t i = 0; good && (at = sample_at(i)); i++) {
        if (!uses_kernel(self, at, kernel))
            continue;
        good = run_sample(self, at, dtype, EXTENT_ALL, all, out) &&
               run_variations(self, at, dtype, all, out);
        if (good && (!before || strcmp(before->op, at->op) != 0) &&
            strchr(at->op, '.') && !strstr(at->op, "calar")) {
            good = run_first(self, at->op, dtype, run_sizes, all, out);
            if (good && !self->quick)
                good = run_first(self, at->op, dtype, run_large, all, out);
        }
        if (good && !self->quick &&
            (!before || strcmp(before->op, at->op) != 0))
            good = run_large_samples(self, at->op, dtype, all, out);
        if (!good) {
            prepend_detail(out, " ");
            prepend_detail(out, at->op);
        }
        before = at;
    }
    return good;
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
            good = run_sample(self, at, dtype, EXTENT_ALL, &all, out);
    if (good)
        good = run_first(self, first->op, dtype, run_sizes, &all, out);
    if (good)
        good = run_first(self, first->op, dtype, run_placed, &all, out);
    if (good)
        good = run_first(self, first->op, dtype, run_all_special, &all, out);
    if (good)
        good = run_first(self, first->op, dtype, run_level, &all, out);
    for (size_t i = 0; good && (at = sample_at(i)); i++)
        if (strcmp(at->op, first->op) == 0)
            good = run_varied(self, at, dtype, &all, out) &&
                   run_variations(self, at, dtype, &all, out);
    if (good)
        good = run_first(self, first->op, dtype, run_twins, &all, out);
    if (good && !self->quick)
        good = run_first(self, first->op, dtype, run_power, &all, out);
    if (good && !self->quick)
        good = run_first(self, first->op, dtype, run_large, &all, out) &&
               run_large_samples(self, first->op, dtype, &all, out);
    if (good)
        run_others(self, first->op, dtype, &all, out);
    if (out->verdict != VERDICT_PASS)
        return;
    if (all.ran == 0 && all.refused > 0)
        not_supported(out, "the kernel refuses every call of the suite");
    else if (all.ran == 0)
        harness_error(out, "no sample could be run");
    else
        describe(&all, self->quick || all.large, out);
}

/* ---------------------------------------------------------- the matrix -- */

/* Passes if it runs: the runner makes it fail if the process that lists the
 * matrix did not finish. */
static void listed_all(suite *self, outcome *out, const test *one)
{
    (void)one;
    suite_device(self, out);
}

static void unlisted_operator(suite *self, outcome *out, const test *one)
{
    char name[TEST_NAME] = "";

    (void)self;
    sscanf(one->name, "ops/%127[^/]", name);
    not_supported(out, "the suite has no sample of %s%s", name,
                  fused_steps_has(name) ? "; ops/rules/optimizer-steps calls it"
                  : distributions_have(name)
                      ? "; ops/rules/draws-are-distributed calls it"
                  : stochastic_rounding_has(name)
                      ? "; ops/rules/rounds-at-random calls it"
                  : attention_has(name)
                      ? "; ops/rules/attention-backward calls it"
                      : "");
}

/* A kernel that is never called cannot be tested, and makes nothing faster. */
static void composed(suite *self, outcome *out, const test *one)
{
    char name[TEST_NAME] = "";

    (void)self;
    sscanf(one->name, "ops/%127[^/]", name);
    expect(out, false,
           "kernels of %s are never called: the operator is composed of "
           "others, whose kernels compute it; remove them",
           name);
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
    char name[TEST_NAME] = "";
    const char *kernel;

    (void)self;
    sscanf(one->name, "ops/%127[^/]", name);
    kernel = kernel_name_of(name);
    if (strcmp(kernel, name) != 0)
        expect(out, false,
               "its kernel is never called: calls of %s use the kernels of %s",
               name, kernel);
    else
        expect(out, false,
               "no operator uses a kernel of this name: it is misspelt, "
               "belongs to a later libcore, or names a variant that uses "
               "another kernel");
}

/* Why no call can choose a kernel, whatever its operands are: NULL if some
 * can. */
static const char *why_unchosen(const suite *self, const core_kernel *kernel)
{
    static char text[200];
    uint64_t bytes = UINT64_C(1)
                     << ((kernel->demands & CORE_REQUIRE_ALIGNMENT) >>
                         CORE_REQUIRE_ALIGNMENT_SHIFT);

    if (bytes == 1 || bytes <= self->properties.base_alignment)
        return NULL;
    snprintf(text, sizeof text,
             "it requires memory aligned to %llu bytes; base_alignment of the "
             "device is %llu",
             (unsigned long long)bytes,
             (unsigned long long)self->properties.base_alignment);
    return text;
}

static void unchosen(suite *self, outcome *out, const test *one)
{
    const core_kernel *kernel;
    const char *why;

    if (suite_device(self, out) &&
        core_kernel_at(self->type, one->number, &kernel) == CORE_OK &&
        (why = why_unchosen(self, kernel)) != NULL)
        expect(out, false, "kernel %u of %.*s is never called: %s", one->number,
               (int)kernel->name.size, kernel->name.data, why);
}

/* Determining the claims takes a while, so others are skipped. */
static bool chosen(const suite *self, const char *op, const char *last,
                   char *name)
{
    snprintf(name, TEST_NAME, "ops/%.100s/%s", op, last);
    return name_filter_selects(self->filter, name);
}

static bool add_composed(suite *self, const char *op)
{
    test one = {.level = LEVEL_OPS, .run = composed};

    return !chosen(self, op, "composed", one.name) || suite_add(self, &one);
}

static bool add_operator(suite *self, const char *op)
{
    const sample *first = NULL;
    test one = {.level = LEVEL_OPS};
    bool unreached_too = chosen(self, op, "unreached", one.name);
    bool reached = false;

    /* Its calls are tested all the same: the device computes them. */
    if (is_composed(op) && !add_composed(self, op))
        return false;
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

/* Adds a test for each operator that has a kernel which no call can choose. */
static bool add_unchosen(suite *self)
{
    test one = {.level = LEVEL_OPS, .run = unchosen};
    core_string before = {0};
    const core_kernel *kernel;
    char name[101];

    for (uint32_t i = 0; core_kernel_at(self->type, i, &kernel) == CORE_OK;
         i++) {
        bool again = kernel->name.size == before.size &&
                     memcmp(kernel->name.data, before.data, before.size) == 0;

        if (again || kernel->name.size >= sizeof name ||
            !why_unchosen(self, kernel))
            continue;
        before = kernel->name;
        memcpy(name, before.data, before.size);
        name[before.size] = 0;
        one.number = i;
        if (chosen(self, name, "unchosen", one.name) && !suite_add(self, &one))
            return false;
    }
    return true;
}

bool suite_add_ops(suite *self)
{
    core_backend_information about = {.struct_size = sizeof about};
    test one = {.level = LEVEL_OPS, .run = listed_all};
    claimed_operators walk = {0};
    char name[TEST_NAME];

    if (chosen(self, "operators", "are-listed", one.name) &&
        !suite_add(self, &one))
        return false;
    for (uint32_t i = 0; core_backend_describe(i, &about) == CORE_OK; i++)
        if (strcmp(about.device_type, self->type) == 0 &&
            !add_unmatched(self, about.unmatched_kernels))
            return false;
    if (!add_unchosen(self))
        return false;
    while (claimed_operators_next(self, &walk, name, sizeof name))
        if (!add_operator(self, name))
            return false;
    return true;
}
