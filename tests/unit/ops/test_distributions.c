/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Operators that draw from distributions: ranges, means and variances,
 * gradients, refusals. */

#include "support/ops.h"

#include <libcore/device.h>
#include <libcore/random.h>

#include <math.h>

static bool equal(core_tensor *a, core_tensor *b)
{
    bool same;

    OK(core_equal(a, b, &same));
    return same;
}

/* With this seed one of the uniform numbers, which include 0, is 0. */
enum { SEED_OF_ZERO = 42591, DRAWN = 1024 };

START_TEST(exponential_numbers_are_above_zero)
{
    const int64_t n = DRAWN;
    float drawn[DRAWN];
    core_tensor *x = CALL(zeros, &n, 1, CORE_F32, NULL);
    int zeros = 0;

    core_seed(SEED_OF_ZERO);
    OK(core_uniform_(x, 0, 1, NULL));
    OK(core_tensor_read(x, drawn, sizeof drawn));
    for (int i = 0; i < DRAWN; i++)
        zeros += drawn[i] == 0;
    ck_assert_int_eq(zeros, 1);
    core_seed(SEED_OF_ZERO);
    OK(core_exponential_(x, 1, NULL));
    OK(core_tensor_read(x, drawn, sizeof drawn));
    for (int i = 0; i < DRAWN; i++)
        ck_assert_float_gt(drawn[i], 0);
}
END_TEST

/* ------------------------------------------------------------- samples -- */

enum { SAMPLES = 40000 };

/* The samples' mean and variance; all are whole numbers if `whole`. */
static void moments(core_tensor *x, bool whole, double *mean, double *variance)
{
    double *values = malloc(SAMPLES * sizeof *values), sum = 0, squares = 0;

    ck_assert_ptr_nonnull(values);
    ck_assert_int_eq(core_tensor_numel(x), SAMPLES);
    OK(core_tensor_read(x, values, SAMPLES * sizeof *values));
    for (int i = 0; i < SAMPLES; i++) {
        sum += values[i];
        ck_assert(values[i] >= 0);
        ck_assert(!whole || values[i] == floor(values[i]));
    }
    *mean = sum / SAMPLES;
    for (int i = 0; i < SAMPLES; i++)
        squares += (values[i] - *mean) * (values[i] - *mean);
    *variance = squares / (SAMPLES - 1);
    free(values);
}

/* Compares within five standard errors; kurtosis: the excess. */
static void check_moments(core_tensor *x, bool whole, double mean,
                          double variance, double kurtosis)
{
    double m, v;

    moments(x, whole, &m, &v);
    ck_assert_msg(fabs(m - mean) <= 5 * sqrt(variance / SAMPLES),
                  "mean %g, not %g", m, mean);
    ck_assert_msg(fabs(v - variance) <=
                      5 * variance * sqrt((2 + kurtosis) / SAMPLES),
                  "variance %g, not %g", v, variance);
}

static core_tensor *constant(double value)
{
    const int64_t n = SAMPLES;

    return CALL(expand, SCALAR(value), &n, 1, false);
}

/* Below 10 by search, else by rejection. */
START_TEST(poisson_samples_have_mean_and_variance_of_the_rate)
{
    static const double rates[] = {.01, 1, 9.9, 10, 37.5, 1e6};

    core_seed(11);
    for (int i = 0; i < 6; i++)
        check_moments(CALL(poisson, constant(rates[i]), NULL), true, rates[i],
                      rates[i], 1 / rates[i]);
}
END_TEST

START_TEST(binomial_samples_have_mean_n_p_and_variance_n_p_q)
{
    static const double cases[][2] = {{1, .3},   {20, .2},    {20, .95},
                                      {100, .5}, {1e5, .001}, {1000, .7}};

    core_seed(12);
    for (int i = 0; i < 6; i++) {
        double n = cases[i][0], p = cases[i][1], v = n * p * (1 - p);

        check_moments(CALL(binomial, constant(n), constant(p), NULL), true,
                      n * p, v, (1 - 6 * p * (1 - p)) / v);
    }
}
END_TEST

START_TEST(binomial_samples_at_limits_are_certain)
{
    core_tensor *n = VECTOR(6, 3, 3, -1, 0, 3.5, NAN);
    core_tensor *p = VECTOR(6, 0, 1, .5, .5, 1, .5);
    double x[6];

    OK(core_tensor_read(CALL(binomial, n, p, NULL), x, sizeof x));
    ck_assert_double_eq(x[0], 0);
    ck_assert_double_eq(x[1], 3);
    ck_assert_double_eq(x[2], 0);
    ck_assert_double_eq(x[3], 0);
    ck_assert_double_eq(x[4], 3);
    ck_assert(isnan(x[5]));
}
END_TEST

START_TEST(gamma_samples_have_mean_and_variance_of_the_shape)
{
    static const double shapes[] = {.05, .5, 1, 2.5, 30, 1e4};

    core_seed(13);
    for (int i = 0; i < 6; i++)
        check_moments(CALL(standard_gamma, constant(shapes[i]), NULL), false,
                      shapes[i], shapes[i], 6 / shapes[i]);
}
END_TEST

/* Element 0 of each row is beta distributed, with a and total - a. */
START_TEST(dirichlet_samples_have_known_moments_and_sum_to_one)
{
    const double a = 1.5, total = 1.5 + .5 + 4, m = a / total;
    core_tensor *x = VECTOR(3, 1.5, .5, 4), *first, *sums;

    x = CALL(expand, x, (int64_t[]){SAMPLES, 3}, 2, false);
    core_seed(14);
    x = CALL(sample_dirichlet, x, NULL);
    first = CALL(contiguous, CALL(select, x, 1, 0), -1);
    check_moments(first, false, m, m * (1 - m) / (total + 1), 1);
    sums = CALL(sum_dim, x, (int64_t[]){1}, 1, false, CORE_DTYPE_NONE);
    HOLDS(CALL(amax, sums, NULL, 0, false), 1, 1);
    HOLDS(CALL(amin, sums, NULL, 0, false), 1, 1);
}
END_TEST

START_TEST(samples_of_smallest_shapes_are_above_zero)
{
    core_tensor *x =
        CALL(to, VECTOR(2, 0, 1e-5), CORE_F32, NULL, false, false, -1);
    float values[2];

    OK(core_tensor_read(CALL(standard_gamma, x, NULL), values, sizeof values));
    ck_assert_float_gt(values[0], 0);
    ck_assert_float_gt(values[1], 0);
}
END_TEST

/* An element is a function of seed and place. */
START_TEST(samples_do_not_depend_on_the_number_of_elements)
{
    core_tensor *all, *some;

    core_seed(15);
    all = CALL(poisson, constant(30), NULL);
    core_seed(15);
    some = CALL(poisson, VECTOR(3, 30, 30, 30), NULL);
    ck_assert(
        equal(CALL(slice, all, 0, &(int64_t){0}, &(int64_t){3}, 1), some));
}
END_TEST

/* ----------------------------------------------------------- gradients -- */

/* The parameter moves a sample so that its quantile stays: F(x, a) is constant,
 * where F is the regularized incomplete gamma function. */
START_TEST(gamma_gradient_keeps_the_quantile)
{
    static const double cases[][2] = {{.1, 1e-3}, {.5, .2}, {.5, 3},   {1, 1},
                                      {3, 8},     {10, 4},  {100, 130}};

    for (int i = 0; i < 7; i++) {
        double a = cases[i][0], x = cases[i][1], h = 1e-4 * a, slope, q[2];
        double quantile;
        core_tensor *at = CALL(standard_gamma_grad, SCALAR(a), SCALAR(x));

        OK(core_tensor_read(at, &slope, sizeof slope));
        OK(core_tensor_read(CALL(igamma, SCALAR(a), SCALAR(x)), &quantile,
                            sizeof quantile));
        for (int k = 0; k < 2; k++) {
            double moved = k ? h : -h;

            OK(core_tensor_read(
                CALL(igamma, SCALAR(a + moved), SCALAR(x + moved * slope)),
                &q[k], sizeof q[k]));
        }
        ck_assert_double_eq_tol(q[0], q[1], 1e-7);
        ck_assert_double_eq_tol(q[0], quantile, 1e-6);
    }
}
END_TEST

/* With total - a = 1 the quantile of x is x^a: dx/da is -x log(x) / a. */
START_TEST(dirichlet_gradient_keeps_the_quantile)
{
    static const double cases[][2] = {
        {.3, .5}, {.9, .5}, {.01, .2}, {.6, 40}, {.99, 3}};

    for (int i = 0; i < 5; i++) {
        double x = cases[i][0], a = cases[i][1], slope;

        OK(core_tensor_read(
            CALL(dirichlet_grad, SCALAR(x), SCALAR(a), SCALAR(a + 1)), &slope,
            sizeof slope));
        ck_assert_double_eq_tol(slope * (1 - x) / (-x * log(x) / a), 1, 1e-9);
        /* The other component, 1 - x, moves as little: its quantile is
         * 1 - (1 - x)^b of a = 1 and b. */
        OK(core_tensor_read(
            CALL(dirichlet_grad, SCALAR(x), SCALAR(1), SCALAR(1 + a)), &slope,
            sizeof slope));
        ck_assert_double_gt(slope, 0);
    }
}
END_TEST

START_TEST(gradient_of_gamma_samples_is_that_of_the_quantile)
{
    core_tensor *a = leaf(VECTOR(3, .5, 2, 30)), *x, *slope;

    core_seed(16);
    x = CALL(standard_gamma, a, NULL);
    backward(sum(x));
    slope = CALL(standard_gamma_grad, CALL(detach, a), CALL(detach, x));
    ck_assert(equal(core_tensor_grad(a), slope));
    a = leaf(VECTOR(2, 3, 20));
    backward(sum(CALL(poisson, a, NULL)));
    HOLDS(core_tensor_grad(a), 2, 0, 0);
}
END_TEST

/* ------------------------------------------------------------ refusals -- */

START_TEST(samplers_refuse_negative_parameters_and_integers)
{
    core_tensor *negative = VECTOR(2, 1, -1), *nan = VECTOR(1, NAN), *out;
    core_tensor *whole = typed(CORE_I64, 0, NULL, (double[]){1});

    FAILS(core_poisson(negative, NULL, &out), CORE_ERROR_INVALID_ARGUMENT,
          "poisson", "-1");
    FAILS(core_poisson(nan, NULL, &out), CORE_ERROR_INVALID_ARGUMENT, "nan");
    FAILS(core_standard_gamma(negative, NULL, &out),
          CORE_ERROR_INVALID_ARGUMENT, "_standard_gamma", "-1");
    FAILS(core_poisson(whole, NULL, &out), CORE_ERROR_DTYPE, "i64");
    FAILS(core_standard_gamma(whole, NULL, &out), CORE_ERROR_DTYPE, "i64");
    FAILS(core_binomial(whole, SCALAR(.5), NULL, &out), CORE_ERROR_DTYPE,
          "i64");
    FAILS(core_binomial(SCALAR(2), VECTOR(2, .5, .5), NULL, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "out");
    FAILS(core_dirichlet_grad(negative, VECTOR(3, 1, 1, 1), SCALAR(4), &out),
          CORE_ERROR_SHAPE, "_dirichlet_grad");
    out = NULL;
    FAILS(core_backward(&(core_tensor *){sum(
                            CALL(binomial, leaf(SCALAR(4)), SCALAR(.5), NULL))},
                        1, NULL, 0),
          CORE_ERROR_UNSUPPORTED, "binomial");
}
END_TEST

START_TEST(normal_samples_are_constant_in_mean_and_std)
{
    core_tensor *mean = leaf(VECTOR(2, 1, 2)), *std = leaf(VECTOR(2, 1, 2));

    ck_assert(
        !core_tensor_requires_grad(CALL(normal_tensor_float, mean, 1, NULL)));
    ck_assert(
        !core_tensor_requires_grad(CALL(normal_float_tensor, 1, std, NULL)));
    ck_assert(!core_tensor_requires_grad(
        CALL(normal_tensor_tensor, mean, std, NULL)));
}
END_TEST

SUITE("ops/distributions", exponential_numbers_are_above_zero,
      poisson_samples_have_mean_and_variance_of_the_rate,
      binomial_samples_have_mean_n_p_and_variance_n_p_q,
      binomial_samples_at_limits_are_certain,
      gamma_samples_have_mean_and_variance_of_the_shape,
      dirichlet_samples_have_known_moments_and_sum_to_one,
      samples_of_smallest_shapes_are_above_zero,
      samples_do_not_depend_on_the_number_of_elements,
      gamma_gradient_keeps_the_quantile, dirichlet_gradient_keeps_the_quantile,
      gradient_of_gamma_samples_is_that_of_the_quantile,
      normal_samples_are_constant_in_mean_and_std,
      samplers_refuse_negative_parameters_and_integers)
