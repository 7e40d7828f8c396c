/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: `poisson`, `binomial` and `_standard_gamma`.  Which number a draw
 * becomes differs between devices, so what is tested is the mean, the variance,
 * the distribution and the independence of many draws.  The bounds are of seven
 * standard deviations or wider (eight for the variance, whose tail is heavier;
 * for the distribution the inequality of Dvoretzky, Kiefer and Wolfowitz): a
 * correct kernel exceeds one of them in less than one of 10^9 runs. */

#include "claims.h"
#include "element_value.h"
#include "skipped_calls.h"
#include "suite.h"

#include <libcore/random.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DRAWS = 16384, /* of each parameter */
    MOST_PARAMETERS = 6,
    MOST = MOST_PARAMETERS * DRAWS, /* more than 65,536 */
    SEED = 2029,
};

/* Two tensors of parameters of which the elements of one call have all.  Every
 * tested dtype represents the draws of the first `narrow`. */
typedef struct family {
    const char *name;
    uint32_t operands, count, narrow;
    double parameters[MOST_PARAMETERS][2];
    bool whole;
    double (*mean)(const double *parameter);
    double (*variance)(const double *parameter);
    double (*kurtosis)(const double *parameter);        /* the excess */
    double (*below)(const double *parameter, double x); /* P(X <= x) */
} family;

/* -------------------------------------------------------------- formulas -- */

static double first_parameter(const double *p)
{
    return p[0];
}

static double poisson_kurtosis(const double *p)
{
    return 1 / p[0];
}

static double binomial_mean(const double *p)
{
    return p[0] * p[1];
}

static double binomial_variance(const double *p)
{
    return p[0] * p[1] * (1 - p[1]);
}

static double binomial_kurtosis(const double *p)
{
    return (1 - 6 * p[1] * (1 - p[1])) / binomial_variance(p);
}

static double gamma_kurtosis(const double *p)
{
    return 6 / p[0];
}

static double poisson_below(const double *p, double x)
{
    double sum = 0;

    for (double k = 0; k <= x; k++)
        sum += exp(k * log(p[0]) - p[0] - lgamma(k + 1));
    return sum;
}

static double binomial_below(const double *p, double x)
{
    double sum = 0;

    for (double k = 0; k <= x && k <= p[0]; k++)
        sum += exp(lgamma(p[0] + 1) - lgamma(k + 1) - lgamma(p[0] - k + 1) +
                   k * log(p[1]) + (p[0] - k) * log1p(-p[1]));
    return sum;
}

/* The series of the regularized incomplete gamma function, which converges for
 * every x that is tested. */
static double gamma_below(const double *p, double x)
{
    double a = p[0], term = 1 / a, sum = term;

    if (x <= 0)
        return 0;
    for (int k = 1; k < 10000 && term > sum * 1e-14; k++) {
        term *= x / (a + k);
        sum += term;
    }
    return sum * exp(a * log(x) - x - lgamma(a));
}

static const family families[] = {
    {"poisson",
     1,
     6,
     5,
     {{.25, 0}, {1, 0}, {7.5, 0}, {12, 0}, {40, 0}, {1000, 0}},
     true,
     first_parameter,
     first_parameter,
     poisson_kurtosis,
     poisson_below},
    {"binomial",
     2,
     6,
     5,
     {{1, .25}, {20, .125}, {20, .875}, {64, .5}, {200, .25}, {1280, .75}},
     true,
     binomial_mean,
     binomial_variance,
     binomial_kurtosis,
     binomial_below},
    {"_standard_gamma",
     1,
     5,
     5,
     {{.25, 0}, {.75, 0}, {1, 0}, {3.5, 0}, {40, 0}},
     false,
     first_parameter,
     first_parameter,
     gamma_kurtosis,
     gamma_below},
};

/* ----------------------------------------------------------------- calls -- */

typedef struct drawing {
    suite *self;
    outcome *out;
    const family *of;
    core_dtype dtype;
    uint32_t count; /* of parameters */
    core_tensor *operands[2];
    double *calls[2]; /* the draws of two calls */
} drawing;

static bool make(drawing *d)
{
    int64_t numel = (int64_t)d->count * DRAWS;
    size_t each = core_dtype_size(d->dtype);
    unsigned char *bytes = malloc((size_t)numel * each);
    bool good = bytes != NULL;

    if (!good)
        harness_error(d->out, "no memory");
    for (uint32_t k = 0; good && k < d->of->operands; k++) {
        for (int64_t i = 0; i < numel; i++)
            element_store(d->dtype, d->of->parameters[i % d->count][k],
                          bytes + (size_t)i * each);
        good =
            expect_ok(d->out,
                      core_tensor_from_data(bytes, d->dtype, &numel, 1,
                                            d->self->device, &d->operands[k]),
                      "making an operand");
    }
    free(bytes);
    return good;
}

static core_status draw(drawing *d, double *draws)
{
    core_value args[2] = {suite_tensor_value(d->operands[0]),
                          suite_tensor_value(d->operands[1])};
    size_t numel = (size_t)d->count * DRAWS, each = core_dtype_size(d->dtype);
    core_tensor *result = NULL;
    core_status status =
        suite_call(d->of->name, args, d->of->operands, &result);

    if (status == CORE_OK)
        status = suite_read(result, draws, numel * each);
    core_tensor_release(result);
    /* From the last on: doubles are at least as wide. */
    for (size_t i = numel; status == CORE_OK && i-- > 0;)
        draws[i] =
            element_load(d->dtype, (const unsigned char *)draws + i * each);
    return status;
}

/* ---------------------------------------------------------------- checks -- */

static const char *describe(const drawing *d, uint32_t which, char text[100])
{
    const double *p = d->of->parameters[which];

    if (d->of->operands == 2)
        snprintf(text, 100, "%s(%g, %g) of %s", d->of->name, p[0], p[1],
                 core_dtype_name(d->dtype));
    else
        snprintf(text, 100, "%s(%g) of %s", d->of->name, p[0],
                 core_dtype_name(d->dtype));
    return text;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static bool in_range(const drawing *d, uint32_t which, const double *x)
{
    const double *p = d->of->parameters[which];
    char text[100];

    for (int i = 0; i < DRAWS; i++)
        if (!expect(d->out,
                    x[i] >= 0 && (d->of->operands < 2 || x[i] <= p[0]) &&
                        (!d->of->whole || x[i] == floor(x[i])),
                    "%s: a draw is %g, which is not in the range of the "
                    "distribution",
                    describe(d, which, text), x[i]))
            return false;
    return true;
}

static bool check_moments(const drawing *d, uint32_t which, const double *x)
{
    const double *p = d->of->parameters[which];
    double mean = d->of->mean(p), variance = d->of->variance(p);
    double rounding = dtype_epsilon(d->dtype) * (d->of->whole ? 0 : 1);
    double sum = 0, squares = 0;
    char text[100];

    for (int i = 0; i < DRAWS; i++) {
        sum += x[i];
        squares += (x[i] - mean) * (x[i] - mean);
    }
    return expect(d->out,
                  fabs(sum / DRAWS - mean) <=
                      7 * sqrt(variance / DRAWS) + rounding * mean,
                  "%s: the mean of %d draws is %g, expected about %g",
                  describe(d, which, text), (int)DRAWS, sum / DRAWS, mean) &&
           expect(d->out,
                  fabs(squares / DRAWS - variance) <=
                      8 * variance * sqrt((2 + d->of->kurtosis(p)) / DRAWS) +
                          2 * rounding * (variance + mean * mean),
                  "%s: the variance of %d draws is %g, expected about %g",
                  describe(d, which, text), (int)DRAWS, squares / DRAWS,
                  variance);
}

/* The shares of draws up to 32 of them; x is sorted.  A draw may be rounded. */
static bool check_distribution(const drawing *d, uint32_t which,
                               const double *x)
{
    enum { LOOKS = 32 };
    const double *p = d->of->parameters[which];
    double most = sqrt(log(2e12) / (2. * DRAWS));
    double rounding = d->of->whole ? 0 : dtype_epsilon(d->dtype);
    /* Below it draws may be 0. */
    bool flushes = !d->of->whole && d->self->numerics.flushes_denormals &
                                        CORE_DTYPE_MASK(d->dtype);
    double least = flushes ? dtype_min_normal(d->dtype) : 0;
    char text[100];

    for (int k = 1; k < LOOKS; k++) {
        double at = x[k * DRAWS / LOOKS];
        double low = d->of->below(p, at * (1 - rounding));
        double high =
            d->of->below(p, (at > least ? at : least) * (1 + rounding));
        double share;
        int count = 0;

        while (count < DRAWS && x[count] <= at)
            count++;
        share = (double)count / DRAWS;
        if (!expect(d->out, share >= low - most && share <= high + most,
                    "%s: of %d draws %d are at most %g, expected about %.0f",
                    describe(d, which, text), (int)DRAWS, count, at,
                    high * DRAWS))
            return false;
    }
    return true;
}

/* Products of deviations from the mean, which are 0 on average: of the element
 * after with the same parameter, and of the same element of the next call. */
static bool check_independence(const drawing *d, uint32_t which,
                               const double *x, const double *other)
{
    const double *p = d->of->parameters[which];
    double mean = d->of->mean(p), next = 0, call = 0;
    double most = 8 * d->of->variance(p) / sqrt(DRAWS - 1.);
    char text[100];

    for (int i = 0; i < DRAWS - 1; i++) {
        next += (x[i] - mean) * (x[i + 1] - mean);
        call += (x[i] - mean) * (other[i] - mean);
    }
    return expect(d->out, fabs(next / (DRAWS - 1)) <= most,
                  "%s: a draw depends on the one before: the covariance of %d "
                  "of them is %g",
                  describe(d, which, text), (int)DRAWS, next / (DRAWS - 1)) &&
           expect(d->out, fabs(call / (DRAWS - 1)) <= most,
                  "%s: a call draws what the one before has drawn: their "
                  "covariance is %g",
                  describe(d, which, text), call / (DRAWS - 1));
}

/* The draws of one parameter, which is that of every count-th element. */
static bool check_parameter(const drawing *d, uint32_t which)
{
    static double x[DRAWS], other[DRAWS];

    for (int i = 0; i < DRAWS; i++) {
        x[i] = d->calls[0][(uint32_t)i * d->count + which];
        other[i] = d->calls[1][(uint32_t)i * d->count + which];
    }
    if (!in_range(d, which, x) || !check_moments(d, which, x) ||
        !check_independence(d, which, x, other))
        return false;
    qsort(x, DRAWS, sizeof *x, compare);
    return check_distribution(d, which, x);
}

/* Returns false if a check fails; a call without a kernel is left out. */
static bool check_family(drawing *d, skipped_calls *left, uint32_t *ran)
{
    core_status status = CORE_OK;
    bool good = make(d);

    core_seed(SEED);
    for (int call = 0; good && status == CORE_OK && call < 2; call++)
        status = draw(d, d->calls[call]);
    for (int k = 0; k < 2; k++) {
        core_tensor_release(d->operands[k]);
        d->operands[k] = NULL;
    }
    if (!good)
        return false;
    if (call_is_left(d->self, status, d->of->name)) {
        core_error_clear();
        skipped_calls_add(left, d->of->name, d->dtype);
        return true;
    }
    good = expect_ok(d->out, status, d->of->name);
    ++*ran;
    for (uint32_t k = 0; good && k < d->count; k++)
        good = check_parameter(d, k);
    return good;
}

static void draws_are_distributed(suite *self, outcome *out, const test *one)
{
    static const core_dtype floats[] = {CORE_F32, CORE_F64, CORE_F16,
                                        CORE_BF16};
    static double draws[2][MOST];
    skipped_calls left = {.length = 0};
    uint32_t ran = 0;
    bool good = true;

    (void)one;
    if (!suite_device(self, out) ||
        !expect_ok(out, core_setting_set("LIBCORE_FALLBACK", "error"),
                   "turning the fallback off"))
        return;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (size_t k = 0; good && k < sizeof floats / sizeof *floats; k++) {
            drawing d = {self, out, &families[f], floats[k], 0, {0}, {0}};

            d.count = k < 2 ? d.of->count : d.of->narrow;
            d.calls[0] = draws[0];
            d.calls[1] = draws[1];
            good = check_family(&d, &left, &ran);
        }
    if (good)
        skipped_calls_report(&left, ran, out);
}

bool distributions_have(const char *op)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].name, op) == 0)
            return true;
    return false;
}

bool suite_add_distributions(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/draws-are-distributed", draws_are_distributed, true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
