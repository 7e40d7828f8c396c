/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: softmax, means, variances, norms and normalizations of long rows of
 * f16 and bf16.  Their sums are not numbers of these dtypes: those of f16 and bf16
 * stay at 2048 and 256 if ones are added, squares and sums are infinite in f16. */

#include "number_calls.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2, SIZE = 8192, NUMEL = ROWS * SIZE };

static const int64_t last_dim[] = {1}, row_size[] = {SIZE};

#define LIST(of)                \
    {                           \
        CORE_VALUE_INT_LIST, 1, \
        {                       \
            .ints = of          \
        }                       \
    }
#define INT(value)         \
    {                      \
        CORE_VALUE_INT, 0, \
        {                  \
            .i = (value)   \
        }                  \
    }
#define FLOAT(value)         \
    {                        \
        CORE_VALUE_FLOAT, 0, \
        {                    \
            .f = (value)     \
        }                    \
    }
#define BOOL(value)         \
    {                       \
        CORE_VALUE_BOOL, 0, \
        {                   \
            .i = (value)    \
        }                   \
    }
#define NONE                \
    {                       \
        CORE_VALUE_NONE, 0, \
        {                   \
            .i = 0          \
        }                   \
    }

/* Rows of `low` and `high` in turn. */
static const struct {
    const char *name;
    uint32_t ndim; /* 2, or 3 with one dimension before */
    double low, high;
    core_value args[8]; /* behind the tensor */
    uint32_t nargs;
    double even, odd; /* the results where low and high are */
} cases[] = {
    {"_softmax", 2, 0, 0, {INT(1), BOOL(0)}, 2, 0x1p-13, 0x1p-13},
    {"_log_softmax",
     2,
     0,
     0,
     {INT(1), BOOL(0)},
     2,
     -9.010913347279288,
     -9.010913347279288},
    {"logsumexp",
     2,
     0,
     0,
     {LIST(last_dim)},
     1,
     9.010913347279288,
     9.010913347279288},
    {"mean.dim", 2, 100, 100, {LIST(last_dim)}, 1, 100, 100},
    {"mean", 2, 100, 100, {NONE}, 0, 100, 100},
    {"linalg_vector_norm",
     2,
     16,
     16,
     {FLOAT(2), LIST(last_dim)},
     2,
     1448.1546878700494,
     1448.1546878700494},
    {"var.correction", 2, 127, 129, {LIST(last_dim), INT(0), BOOL(0)}, 3, 1, 1},
    {"native_layer_norm",
     2,
     127,
     129,
     {LIST(row_size), NONE, NONE, FLOAT(1e-5)},
     4,
     -1,
     1},
    {"native_group_norm",
     3,
     127,
     129,
     {NONE, NONE, INT(1), INT(ROWS), INT(SIZE), INT(ROWS), FLOAT(1e-5)},
     7,
     -1,
     1},
    {"native_batch_norm",
     3,
     127,
     129,
     {NONE, NONE, NONE, NONE, BOOL(1), FLOAT(.1), FLOAT(1e-5)},
     7,
     -1,
     1},
};

static bool holds(const number_calls *c, size_t which, const double *got,
                  int64_t count)
{
    bool good = true;

    for (int64_t i = 0; good && i < count; i++) {
        double want = i % 2 ? cases[which].odd : cases[which].even;

        good = expect(c->out, fabs(got[i] - want) <= .02 * fabs(want),
                      "%s of rows of %d numbers of %s, %g and %g: element %lld "
                      "is %g, expected about %g; sums that are not computed in "
                      "f32 must be declared (narrow_sums of core.numerics)",
                      cases[which].name, (int)SIZE, core_dtype_name(c->dtype),
                      cases[which].low, cases[which].high, (long long)i, got[i],
                      want);
    }
    return good;
}

static bool check(number_calls *c, size_t which)
{
    static double values[NUMEL];
    const int64_t sizes[] = {1, ROWS, SIZE};
    core_value args[9] = {{0}};
    core_tensor *on;
    int64_t count = 0;
    double *got;
    bool good;

    for (int64_t i = 0; i < NUMEL; i++)
        values[i] = i % 2 ? cases[which].high : cases[which].low;
    on = number_calls_make(c, sizes + 3 - cases[which].ndim, cases[which].ndim,
                           values);
    if (!on)
        return false;
    args[0] = suite_tensor_value(on);
    memcpy(args + 1, cases[which].args, sizeof cases[which].args);
    got = number_calls_read(c, cases[which].name, args, 1 + cases[which].nargs,
                            0, &count);
    good = !got || holds(c, which, got, count);
    free(got);
    core_tensor_release(on);
    return good && c->out->verdict == VERDICT_PASS;
}

static void rows_are_computed_in_f32(suite *self, outcome *out, const test *one)
{
    static const core_dtype halves[] = {CORE_F16, CORE_BF16};
    const uint32_t both =
        CORE_DTYPE_MASK(CORE_F16) | CORE_DTYPE_MASK(CORE_BF16);
    number_calls c;
    bool good = number_calls_begin(&c, self, out);

    (void)one;
    for (size_t d = 0; d < sizeof halves / sizeof *halves; d++) {
        c.dtype = halves[d];
        for (size_t i = 0; good && i < sizeof cases / sizeof *cases; i++)
            if (!(self->numerics.narrow_sums & CORE_DTYPE_MASK(halves[d])))
                good = check(&c, i);
    }
    if (good && (self->numerics.narrow_sums & both) == both)
        not_supported(out,
                      "narrow_sums of core.numerics declares f16 and bf16");
    else if (good)
        number_calls_end(&c);
}

bool suite_add_narrow_rows(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/long-rows-of-halves", rows_are_computed_in_f32, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
