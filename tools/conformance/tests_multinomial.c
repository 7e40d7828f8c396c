/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: `multinomial` of more categories and samples than a work group has
 * threads.  The draws are defined (plugin-guide.md, Random numbers), and the
 * samples of ops/multinomial must have those of the CPU.  But devices may add
 * weights in another order or in f32, and a draw next to one of so many
 * boundaries then becomes the neighbour; so what is tested is the distribution of
 * the draws and their independence.  The bounds are exceeded by a correct kernel
 * in less than one of 10^9 runs. */

#include "number_calls.h"

#include <libcore/random.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 2031, ROWS = 2 };

/* Weights that depend on the row, larger ones for the first categories, and 0 for
 * every 13th. */
static double weight_of(int64_t row, int64_t category)
{
    return (double)((category * 7 + row * 5) % 13 * (category < 32 ? 8 : 1));
}

typedef struct choosing {
    number_calls *calls;
    int64_t rows, categories, samples;
    bool replacement;
    core_tensor *weights;
} choosing;

static bool make(choosing *c)
{
    const int64_t sizes[] = {c->rows, c->categories};
    double *values = malloc((size_t)(c->rows * c->categories) * sizeof *values);

    if (!values) {
        harness_error(c->calls->out, "no memory");
        return false;
    }
    for (int64_t r = 0; r < c->rows; r++)
        for (int64_t k = 0; k < c->categories; k++)
            values[r * c->categories + k] = weight_of(r, k);
    c->weights = number_calls_make(c->calls, sizes, 2, values);
    free(values);
    return c->weights != NULL;
}

/* NULL: no kernel draws, or the outcome says what failed. */
static double *draw(const choosing *c)
{
    const core_value args[] = {suite_tensor_value(c->weights),
                               core_int(c->samples), core_bool(c->replacement)};
    int64_t count = 0;

    return number_calls_read(c->calls, "multinomial", args, 3, 0, &count);
}

static const char *kind(const choosing *c)
{
    return c->replacement ? "with replacement" : "without replacement";
}

/* Every sample is a category whose weight is above 0. */
static bool are_categories(const choosing *c, const double *draws)
{
    bool good = true;

    for (int64_t i = 0; good && i < c->rows * c->samples; i++) {
        int64_t row = i / c->samples;
        bool inside = draws[i] >= 0 && draws[i] < (double)c->categories;

        good = expect(c->calls->out,
                      inside && weight_of(row, (int64_t)draws[i]) > 0,
                      "multinomial of %lld categories, %s: sample %lld of row "
                      "%lld is %g, %s",
                      (long long)c->categories, kind(c),
                      (long long)(i % c->samples), (long long)row, draws[i],
                      inside ? "whose weight is 0" : "which is out of range");
    }
    return good;
}

/* Of `count` draws that are `step` apart, the shares up to each category; row:
 * whose weights they have, or -1: those of all rows in turn. */
static bool are_distributed(const choosing *c, const double *draws,
                            int64_t count, int64_t step, int64_t row)
{
    double *shares = calloc((size_t)c->categories, 2 * sizeof *shares);
    double *wanted = shares ? shares + c->categories : NULL;
    double most = sqrt(log(2e12) / (2. * (double)count)), is = 0, want = 0;
    bool good = shares != NULL;

    if (!good)
        harness_error(c->calls->out, "no memory");
    for (int64_t i = 0; good && i < count; i++)
        shares[(int64_t)draws[i * step]] += 1. / (double)count;
    for (int64_t r = 0; good && r < (row < 0 ? c->rows : 1); r++) {
        double sum = 0;

        for (int64_t k = 0; k < c->categories; k++)
            sum += weight_of(row < 0 ? r : row, k);
        for (int64_t k = 0; k < c->categories; k++)
            wanted[k] += weight_of(row < 0 ? r : row, k) / sum /
                         (double)(row < 0 ? c->rows : 1);
    }
    for (int64_t k = 0; good && k < c->categories; k++) {
        is += shares[k];
        want += wanted[k];
        good = expect(c->calls->out, fabs(is - want) <= most,
                      "multinomial of %lld categories, %s: of %lld draws %.0f "
                      "are at most %lld, expected about %.0f",
                      (long long)c->categories, kind(c), (long long)count,
                      is * (double)count, (long long)k, want * (double)count);
    }
    free(shares);
    return good;
}

/* Of so many categories chance makes two draws equal in one of 362. */
static bool are_independent(const choosing *c, const double *a, const double *b,
                            int64_t count, const char *what)
{
    int64_t equal = 0;

    for (int64_t i = 0; i < count; i++)
        equal += a[i] == b[i];
    return expect(c->calls->out, (double)equal < .02 * (double)count + 20,
                  "multinomial of %lld categories, %s: of %lld draws %lld are "
                  "those of %s",
                  (long long)c->categories, kind(c), (long long)count,
                  (long long)equal, what);
}

/* Of few rows and many samples. */
static bool repeat(number_calls *calls)
{
    choosing c = {calls, ROWS, 1009, 50021, true, NULL};
    double *draws = NULL, *more = NULL;
    bool good = make(&c);

    core_seed(SEED);
    draws = good ? draw(&c) : NULL;
    more = draws ? draw(&c) : NULL;
    good = calls->out->verdict == VERDICT_PASS;
    if (draws && more) {
        good = are_categories(&c, draws) &&
               are_independent(&c, draws, draws + 1, c.samples - 1,
                               "the sample after") &&
               are_independent(&c, draws, draws + 100, c.samples - 100,
                               "100 samples after") &&
               are_independent(&c, draws, draws + c.samples, c.samples,
                               "the next row") &&
               are_independent(&c, draws, more, c.samples, "the next call");
        for (int64_t r = 0; good && r < ROWS; r++)
            good = are_distributed(&c, draws + r * c.samples, c.samples, 1, r);
    }
    free(more);
    free(draws);
    core_tensor_release(c.weights);
    return good;
}

/* No sample of a row is another one's. */
static bool are_distinct(const choosing *c, const double *draws)
{
    int64_t *seen = calloc((size_t)c->categories, sizeof *seen);
    bool good = seen != NULL;

    if (!good)
        harness_error(c->calls->out, "no memory");
    for (int64_t i = 0; good && i < c->rows * c->samples; i++) {
        int64_t *at = &seen[(int64_t)draws[i]], row = i / c->samples;

        good = expect(c->calls->out, *at != row + 1,
                      "multinomial of %lld categories, %s: sample %lld of row "
                      "%lld, %g, is an earlier one of the row, too",
                      (long long)c->categories, kind(c),
                      (long long)(i % c->samples), (long long)row, draws[i]);
        *at = row + 1;
    }
    free(seen);
    return good;
}

/* One sample of each of many rows has the weights' distribution. */
static bool choose_one(choosing c)
{
    double *draws;
    bool good;

    c.samples = 1;
    draws = draw(&c);
    good = c.calls->out->verdict == VERDICT_PASS;
    if (draws)
        good = are_categories(&c, draws) &&
               are_distributed(&c, draws, c.rows, 1, -1);
    free(draws);
    return good;
}

/* Several samples of a row without replacement are not those of a simple
 * distribution, so that of these nothing but the set is checked. */
static bool choose(number_calls *calls)
{
    choosing c = {calls, 2999, 131, 113, false, NULL};
    double *draws = NULL;
    bool good = make(&c);

    core_seed(SEED);
    draws = good ? draw(&c) : NULL;
    good = calls->out->verdict == VERDICT_PASS;
    if (draws)
        good = are_categories(&c, draws) && are_distinct(&c, draws) &&
               choose_one(c);
    free(draws);
    core_tensor_release(c.weights);
    return good;
}

static void many_categories(suite *self, outcome *out, const test *one)
{
    number_calls calls;

    (void)one;
    if (number_calls_begin(&calls, self, out) && repeat(&calls) &&
        choose(&calls))
        number_calls_end(&calls);
}

bool suite_add_multinomial(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/multinomial-of-many-categories", many_categories, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
