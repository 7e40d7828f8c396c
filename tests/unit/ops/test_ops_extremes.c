/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Arguments at the ends of their ranges: every element-wise operator ends for
 * all of them, and finite arguments do not give infinite or undefined
 * results where the right ones are finite. */

/* An element-wise operator has 2000 elements here, some of which take 1e5
 * steps. */
#define SUITE_SECONDS 600

#include "support/crash_guard.h"

#include "dispatch/operator.h"
#include "tensor/dtype.h"

#include <libcore/random.h>

#include <float.h>

static core_device *cpu;

/* ------------------------------------------ all element-wise operators -- */

static const double everywhere[] = {
    0,
    -0.0,
    4.9e-324,
    -4.9e-324,
    1e-310,
    DBL_MIN,
    -DBL_MIN,
    1e-300,
    1e-16,
    -1e-8,
    .1,
    .5,
    -.5,
    1 - 0x1p-53,
    1,
    1 + 0x1p-52,
    -1,
    -1 - 0x1p-52,
    1.0000001,
    1.5,
    -1.5,
    2,
    3,
    3.14159,
    10,
    -10.5,
    30,
    64,
    65,
    301,
    745,
    1e5,
    100001,
    -1000000.5,
    1e8,
    3e9,
    -2251799813685247.75,
    -4503599627370495.5,
    9007199254740993,
    1e19,
    1e100,
    2.1e205,
    1e300,
    -1e300,
    DBL_MAX,
    -DBL_MAX,
    INFINITY,
    -INFINITY,
    NAN,
};
enum { EVERYWHERE = sizeof everywhere / sizeof *everywhere };

/* All values, as a column or a row. */
static core_tensor *values_of(core_dtype dtype, bool row)
{
    const int64_t sizes[2] = {row ? 1 : EVERYWHERE, row ? EVERYWHERE : 1};
    core_tensor *x;

    OK(core_tensor_from_data(everywhere, CORE_F64, sizes, 2, cpu, &x));
    keep(x);
    return dtype == CORE_F64 ? x : CALL(to_copy, x, dtype, NULL, false, -1);
}

static core_value value_for(const core__schema_argument *argument,
                            core_tensor *const *tensors, uint32_t *place,
                            uint32_t round)
{
    static const int64_t whole[] = {0, 1, 3, INT64_MAX, INT64_MIN};
    static const double reals[] = {1, .5, 0, DBL_MAX, -4.9e-324};

    switch (argument->tag) {
    case CORE_VALUE_TENSOR:
        return core_pack_tensor(tensors[(*place)++ % 2]);
    case CORE_VALUE_INT:
        return core_int(whole[round]);
    case CORE_VALUE_FLOAT:
        return core_float(reals[round]);
    case CORE_VALUE_BOOL:
        return core_bool(round % 2);
    default:
        return core_pack_none();
    }
}

static void sweep(core_operator *op, core_dtype dtype, uint32_t rounds)
{
    core_tensor *tensors[2] = {values_of(dtype, false), values_of(dtype, true)};
    const core__schema *schema;

    OK(core__schema_of(op, &schema));
    for (uint32_t round = 0; round < rounds; round++) {
        core_value values[CORE__SCHEMA_ARGUMENTS];
        uint32_t place = 0;

        for (uint32_t i = 0; i < schema->narguments; i++)
            values[i] =
                value_for(&schema->arguments[i], tensors, &place, round);
        snprintf(hostile_name, sizeof hostile_name,
                 "%s of %s does not end (round %u)\n", core_op_name(op),
                 core_dtype_name(dtype), round);
        hostile_run(op, values, schema->narguments);
    }
}

START_TEST(elementwise_operators_end_for_every_argument)
{
    uint32_t special = 0;

    signal(SIGALRM, hostile_signal);
    OK(core_device_find("cpu", &cpu));
    for (uint32_t i = 0; core_op_at(i); i++) {
        core_operator *op = core_op_at(i);

        if (op->family != CORE__FAMILY_ELEMENTWISE || op->variant != 0)
            continue;
        special += strstr(core_op_name(op), "special_") != NULL;
        sweep(op, CORE_F64, op->nargs > op->data->operands ? 5 : 1);
        sweep(op, CORE_F32, 1);
        drop_all();
    }
    ck_assert_uint_gt(special, 30);
}
END_TEST

/* ---------------------------------------------------- special functions -- */

#define K0 "special_scaled_modified_bessel_k0"
#define K1 "special_scaled_modified_bessel_k1"
#define ZETA "special_zeta"
#define CHEBYSHEV "special_chebyshev_polynomial_"
#define HERMITE "special_hermite_polynomial_h"

typedef struct point {
    const char *op;
    double x, n, right;
} point;

static double computed(const point *p)
{
    core_value results[8] = {0}, args[2];
    core_operator *op;
    const core__schema *schema;
    double got;

    OK(core_op_find(p->op, &op));
    OK(core__schema_of(op, &schema));
    for (uint32_t i = 0; i < schema->narguments; i++)
        args[i] = core_pack_tensor(
            CALL(full, NULL, 0, core_float(i ? p->n : p->x), CORE_F64, cpu));
    alarm(HOSTILE_SECONDS);
    OK(core_op_call(op, args, schema->narguments, results, 8));
    alarm(0);
    OK(core_tensor_read(results[0].u.tensor, &got, sizeof got));
    core_value_release(&results[0]);
    return got;
}

START_TEST(special_functions_far_out_have_known_values)
{
    static const point points[] = {
        {"special_airy_ai", 2e205, 0, 0},
        {"special_airy_ai", 2.1e205, 0, 0},
        {"special_airy_ai", 1e300, 0, 0},
        {"special_airy_ai", DBL_MAX, 0, 0},
        {"special_airy_ai", -1e300, 0, 0},
        {"special_airy_ai", 100, 0, 2.6344821520881845e-291},
        {K0, 1e300, 0, 1.2533141373155002e-150},
        {K1, DBL_MAX, 0, 9.347643879329245e-155},
        /* the terms of both signs cancel, but for those beyond 1e6 */
        {ZETA, 3, -1000000.5, 4.99999000001375e-13},
        {ZETA, 2, -1000000.5, 9.8696034010903586},
        {ZETA, 2, -4503599627370495.5, 9.8696044010893584},
        {ZETA, 2, -2251799813685247.75, 19.739208802178717},
        {CHEBYSHEV "t", 1 + 0x1p-52, 1e9, 709646186.47713029},
        {CHEBYSHEV "t", -1 - 0x1p-52, 1e9, 709646186.47713029},
        {CHEBYSHEV "u", 1 + 0x1p-52, 1e9, 33674935446164031.0},
        {CHEBYSHEV "u", 1 + 0x1p-52, 3e10, 8.6574695220285117e+281},
        {CHEBYSHEV "t", -1 - 0x1p-52, 1e12 + 1, -INFINITY},
        {CHEBYSHEV "t", 1.00000001, 2e5, 960888253216.97039},
        {CHEBYSHEV "v", 1.0000001, 100001, 1.3228202868663902e+19},
        {CHEBYSHEV "w", 1.0000001, 100001, 5.9158323130668137e+22},
        {CHEBYSHEV "v", -1.0000001, 100001, -5.9158323130668137e+22},
        {HERMITE, 0, 1000001, 0},
        {HERMITE "e", 0, 1000001, 0},
    };

    signal(SIGALRM, hostile_signal);
    OK(core_device_find("cpu", &cpu));
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        double got, right = points[i].right;

        snprintf(hostile_name, sizeof hostile_name, "%s does not end\n",
                 points[i].op);
        got = computed(&points[i]);
        ck_assert_msg(got == right || fabs(got - right) <= 1e-10 * fabs(right),
                      "%s(%.17g, %.17g) is %.17g, not %.17g", points[i].op,
                      points[i].x, points[i].n, got, right);
        drop_all();
    }
}
END_TEST

/* ------------------------------------------------------- random numbers -- */

/* Fills a tensor of 2000 elements.  Returns false if the call is refused; else
 * all are from low to high, or, from a normal distribution, numbers. */
static bool fills(bool normal, core_dtype dtype, double a, double b)
{
    const int64_t size = 2000;
    core_tensor *x = CALL(empty, &size, 1, dtype, cpu, -1);
    static double values[2000];
    core_status status =
        normal ? core_normal_(x, a, b, NULL) : core_uniform_(x, a, b, NULL);

    if (status != CORE_OK) {
        ck_assert_int_eq(status, CORE_ERROR_INVALID_ARGUMENT);
        return false;
    }
    x = CALL(to_copy, x, CORE_F64, NULL, false, -1);
    OK(core_tensor_read(x, values, sizeof values));
    for (int i = 0; i < 2000; i++)
        ck_assert_msg(
            normal ? !isnan(values[i]) : values[i] >= a && values[i] <= b,
            "%s from %g to %g: %g", core_dtype_name(dtype), a, b, values[i]);
    return true;
}

START_TEST(random_numbers_stay_in_range_at_limits_of_dtypes)
{
    OK(core_device_find("cpu", &cpu));
    ck_assert(!fills(false, CORE_F32, -3e38, 3e38));
    ck_assert(!fills(false, CORE_F64, -1.7e308, 1.7e308));
    ck_assert(!fills(false, CORE_F64, -DBL_MAX, DBL_MAX));
    ck_assert(!fills(false, CORE_F16, 0, 1e6));
    ck_assert(!fills(false, CORE_F16, -40000, 40000));
    ck_assert(!fills(false, CORE_F32, 0, 1e39));
    ck_assert(!fills(false, CORE_F32, -1e39, 0));
    ck_assert(!fills(false, CORE_BF16, -3e38, 3e38));
    ck_assert(fills(false, CORE_F32, 0, (double)FLT_MAX));
    ck_assert(fills(false, CORE_F32, -(double)FLT_MAX, 0));
    ck_assert(fills(false, CORE_F32, -1.7e38, 1.7e38));
    ck_assert(fills(false, CORE_F64, 0, DBL_MAX));
    ck_assert(fills(false, CORE_F16, 0, 65504));
    ck_assert(fills(false, CORE_F16, -32752, 32752));
    ck_assert(fills(false, CORE_BF16, 0, 0x1.fep127));
    ck_assert(!fills(true, CORE_F16, 1e6, 1));
    ck_assert(!fills(true, CORE_F16, 0, 1e6));
    ck_assert(!fills(true, CORE_F32, -1e39, 1));
    ck_assert(!fills(true, CORE_BF16, 0, 1e39));
    ck_assert(fills(true, CORE_F64, 1e308, 1e300));
    drop_all();
}
END_TEST

/* A bound in the dtype's range: at its ends, near 0, or anywhere. */
static double any_bound(double largest)
{
    switch (below(4)) {
    case 0:
        return chance(50) ? largest : -largest;
    case 1:
        return ldexp((double)below(2000) - 1000, -(int)below(1000));
    case 2:
        return largest * ((double)below(2001) / 1000 - 1);
    default:
        return (double)below(2000) - 1000;
    }
}

/* Calls of uniform_ and linspace that succeed have finite results between their
 * bounds, whatever these are. */
START_TEST(numbers_between_any_bounds_are_between_them)
{
    static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_F16,
                                        CORE_BF16};
    static const double largest[] = {DBL_MAX, FLT_MAX, 65504, 0x1.fep127};
    double got[64];

    OK(core_device_find("cpu", &cpu));
    for (uint64_t i = 0; i < 4000; i++) {
        const int64_t size = 64;
        core_tensor *x, *ends[2];
        double a, b, end[2];
        int k = (int)(i % 4);

        random_begin(1, i, 0);
        a = any_bound(largest[k]);
        b = any_bound(largest[k]);
        for (int e = 0; e < 2; e++) { /* as the dtype rounds them */
            ends[e] = CALL(full, NULL, 0, core_float(e ? b : a), CORE_F64, cpu);
            ends[e] = CALL(to_copy, ends[e], dtypes[k], NULL, false, -1);
            ends[e] = CALL(to_copy, ends[e], CORE_F64, NULL, false, -1);
            OK(core_tensor_read(ends[e], &end[e], sizeof end[e]));
        }
        if (chance(50)) {
            x = CALL(linspace, core_float(a), core_float(b), size, dtypes[k],
                     cpu);
        } else {
            x = CALL(zeros, &size, 1, dtypes[k], cpu);
            if (core_uniform_(x, a, b, NULL) != CORE_OK)
                continue;
        }
        x = CALL(to_copy, x, CORE_F64, NULL, false, -1);
        OK(core_tensor_read(x, got, sizeof got));
        for (int e = 0; e < size; e++)
            ck_assert_msg(isfinite(got[e]) && got[e] >= fmin(end[0], end[1]) &&
                              got[e] <= fmax(end[0], end[1]),
                          "case %d: %s from %.17g to %.17g: %.17g", (int)i,
                          core_dtype_name(dtypes[k]), a, b, got[e]);
        drop_all();
    }
}
END_TEST

/* ------------------------------------------- parameters of distributions -- */

/* With this seed one of the first 1024 uniform numbers in f32 is 0. */
enum { SEED_OF_ZERO = 42591, DRAWN = 1024 };

typedef struct distribution {
    const char *op;
    double parameters[2];
    char result; /* 'f': finite; 'n': not NaN; 'r': refused; 0: finite, not
                    negative */
    double most; /* of dtypes that hold this; negative: of those that do not;
                    0: of all */
} distribution;

static core_status draw(const distribution *d, core_dtype dtype,
                        core_tensor **out)
{
    const int64_t size = DRAWN;
    core_value args[4], results[2] = {{0}};
    const core__schema *schema;
    core_operator *op;
    core_status status;
    uint32_t place = 0;

    *out = CALL(zeros, &size, 1, dtype, cpu);
    OK(core_op_find(d->op, &op));
    OK(core__schema_of(op, &schema));
    for (uint32_t i = 0; i < schema->narguments; i++) {
        const core__schema_argument *argument = &schema->arguments[i];

        args[i] = core_pack_none();
        if (argument->tag == CORE_VALUE_TENSOR && argument->mutated)
            args[i] = core_pack_tensor(*out);
        else if (argument->tag == CORE_VALUE_TENSOR)
            args[i] = core_pack_tensor(CALL(full, &size, 1,
                                            core_float(d->parameters[place++]),
                                            dtype, cpu));
        else if (argument->tag == CORE_VALUE_FLOAT)
            args[i] = core_float(d->parameters[place++]);
        else if (argument->tag == CORE_VALUE_INT)
            args[i] = core_int((int64_t)d->parameters[place++]);
    }
    core_seed(SEED_OF_ZERO);
    alarm(HOSTILE_SECONDS);
    status = core_op_call(op, args, schema->narguments, results, 2);
    alarm(0);
    if (status == CORE_OK)
        *out = keep(results[0].u.tensor);
    return status;
}

static void draws(const distribution *d, core_dtype dtype)
{
    static double values[DRAWN];
    core_tensor *x;
    core_status status = draw(d, dtype, &x);

    if (d->result == 'r') {
        ck_assert_msg(status == CORE_ERROR_INVALID_ARGUMENT, "%s of %s: %d: %s",
                      d->op, core_dtype_name(dtype), status,
                      core_error_message());
        return;
    }
    ck_assert_msg(status == CORE_OK, "%s of %s: %s", d->op,
                  core_dtype_name(dtype), core_error_message());
    x = CALL(to_copy, x, CORE_F64, NULL, false, -1);
    OK(core_tensor_read(x, values, sizeof values));
    for (int i = 0; i < DRAWN; i++)
        ck_assert_msg(
            !isnan(values[i]) && (d->result == 'n' || isfinite(values[i])) &&
                (d->result != 0 || values[i] >= 0),
            "%s(%g, %g) of %s, element %d: %g", d->op, d->parameters[0],
            d->parameters[1], core_dtype_name(dtype), i, values[i]);
}

static const distribution distributions[] = {
    {"cauchy_", {0, 1}, 'n', 0},
    {"cauchy_", {0, 1e-300}, 'f', 0},
    {"cauchy_", {1e30, 1e30}, 'n', 1e31},
    {"cauchy_", {1e300, 1}, 'r', -1e39},
    {"cauchy_", {0, 1e300}, 'r', -1e39},
    {"cauchy_", {0, 1e300}, 'n', 1e300},
    {"cauchy_", {0, 1e-3}, 'f', 1e30},
    {"log_normal_", {0, 1}, 'f', 0},
    {"log_normal_", {0, 1e-300}, 'f', 0},
    {"log_normal_", {700, 1e-3}, 'f', 1e300},
    {"log_normal_", {200, 1}, 'n', 0},
    {"log_normal_", {-1e30, 1e30}, 'n', 0},
    {"log_normal_", {-1e300, 1e300}, 'r', -1e39},
    {"log_normal_", {-1e300, 1e300}, 'n', 1e300},
    {"exponential_", {1, 0}, 'f', 0},
    {"exponential_", {1e300, 0}, 'f', 0},
    {"exponential_", {INFINITY, 0}, 'f', 0},
    {"exponential_", {1e-300, 0}, 'n', 0},
    {"exponential_", {1e-300, 0}, 'f', 1e300},
    {"exponential_", {4.9e-324, 0}, 'n', 0},
    {"geometric_", {.5, 0}, 'f', 0},
    {"geometric_", {1e-40, 0}, 'n', 0},
    {"geometric_", {1e-40, 0}, 'f', 1e300},
    {"geometric_", {1e-300, 0}, 'f', 1e300},
    {"geometric_", {4.9e-324, 0}, 'n', 0},
    {"geometric_", {.9999999999999999, 0}, 'f', 0},
    {"normal.Tensor_float", {0, 1e300}, 'r', -1e39},
    {"normal.float_Tensor", {1e300, 0}, 'r', -1e39},
    {"normal.Tensor_float", {0, 1e300}, 'f', 1e300},
    {"normal.Tensor_Tensor", {0, 1e300}, 'f', 1e300},
    {"random_", {0, 0}, 0, 0},
    {"random_.to", {2000, 0}, 0, 0},
    {"random_.from", {0, 9e18}, 0, 1e30},
    {"random_.from", {0, 1e6}, 'r', -1e5},
    {"poisson", {0, 0}, 0, 0},
    {"poisson", {1e-300, 0}, 0, 0},
    {"poisson", {1e4, 0}, 0, 0},
    {"poisson", {1e30, 0}, 0, 1e30},
    {"poisson", {1e300, 0}, 0, 1e300},
    {"poisson", {DBL_MAX, 0}, 0, 1e300},
    {"poisson", {INFINITY, 0}, 'n', 0},
    {"binomial", {1e4, .5}, 0, 0},
    {"binomial", {1e30, 1e-30}, 0, 1e31},
    {"binomial", {1e300, .5}, 0, 1e300},
    {"binomial", {1e300, 1e-300}, 0, 1e300},
    {"binomial", {DBL_MAX, .5}, 0, 1e300},
    {"binomial", {DBL_MAX, 1}, 0, 1e300},
    {"_standard_gamma", {1e-300, 0}, 'f', 0},
    {"_standard_gamma", {4.9e-324, 0}, 'f', 0},
    {"_standard_gamma", {1e4, 0}, 'f', 0},
    {"_standard_gamma", {1e30, 0}, 'f', 1e31},
    {"_standard_gamma", {1e300, 0}, 'f', 1e300},
    {"_standard_gamma", {DBL_MAX, 0}, 'f', 1e300},
    {"_sample_dirichlet", {1e-300, 0}, 'f', 0},
    {"_sample_dirichlet", {1e-6, 0}, 'f', 0},
    {"_sample_dirichlet", {10, 0}, 'f', 0},
    {"_sample_dirichlet", {1e300, 0}, 'f', 1e300},
    {"_sample_dirichlet", {DBL_MAX, 0}, 'f', 1e300},
};

/* An infinite number is drawn only where the distribution's are larger than the
 * dtype's. */
START_TEST(random_numbers_of_extreme_parameters_are_numbers)
{
    static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_BF16,
                                        CORE_F16};

    signal(SIGALRM, hostile_signal);
    OK(core_device_find("cpu", &cpu));
    for (size_t i = 0; i < sizeof distributions / sizeof *distributions; i++)
        for (int k = 0; k < 4; k++) {
            const distribution *d = &distributions[i];

            if (d->most > 0 && core__dtype_largest(dtypes[k]) < d->most)
                continue;
            if (d->most < 0 && core__dtype_largest(dtypes[k]) > -d->most)
                continue;
            snprintf(hostile_name, sizeof hostile_name,
                     "%s(%g, %g) of %s does not end\n", d->op, d->parameters[0],
                     d->parameters[1], core_dtype_name(dtypes[k]));
            draws(d, dtypes[k]);
            drop_all();
        }
}
END_TEST

START_TEST(dirichlet_samples_of_huge_shapes_sum_to_one)
{
    const int64_t four = 4;
    core_tensor *x;
    double total;

    OK(core_device_find("cpu", &cpu));
    x = CALL(full, &four, 1, core_float(DBL_MAX), CORE_F64, cpu);
    x = CALL(sum, CALL(sample_dirichlet, x, NULL), CORE_F64);
    OK(core_tensor_read(x, &total, sizeof total));
    ck_assert_double_eq_tol(total, 1, 1e-12);
    drop_all();
}
END_TEST

static core_tensor *from_doubles(const double *values, int64_t count,
                                 core_dtype dtype)
{
    core_tensor *x;

    OK(core_tensor_from_data(values, CORE_F64, &count, 1, cpu, &x));
    keep(x);
    return CALL(to_copy, x, dtype, NULL, false, -1);
}

START_TEST(multinomial_never_draws_weight_of_zero)
{
    /* The clocks of such small weights overflow. */
    static const double tiny[] = {0, 0, 1e-310, 0}, huge[] = {1e308, 1e308};
    core_tensor *x;
    int64_t got;

    OK(core_device_find("cpu", &cpu));
    for (int i = 0; i < 50; i++) {
        x = from_doubles(tiny, 4, CORE_F64);
        OK(core_tensor_read(CALL(multinomial, x, 1, i % 2, NULL), &got, 8));
        ck_assert_int_eq(got, 2);
    }
    FAILS(core_multinomial(from_doubles(huge, 2, CORE_F64), 1, true, NULL, &x),
          CORE_ERROR_INVALID_ARGUMENT, "add up to inf");
    drop_all();
}
END_TEST

START_TEST(scatter_of_a_fraction_makes_a_bool_true)
{
    static const double zero[1] = {0};
    const core_scalar half = core_float(.5);
    core_tensor *self, *index;
    unsigned char got;

    OK(core_device_find("cpu", &cpu));
    self = from_doubles(zero, 1, CORE_BOOL);
    index = from_doubles(zero, 1, CORE_I64);
    OK(core_tensor_read(CALL(scatter_value, self, 0, index, half), &got, 1));
    ck_assert_int_eq(got, 1);
    drop_all();
}
END_TEST

/* Otherwise the result would be memory that nothing was written to. */
START_TEST(multinomial_without_categories_fails)
{
    static const double none[1] = {0};
    core_tensor *x;

    OK(core_device_find("cpu", &cpu));
    FAILS(core_multinomial(from_doubles(none, 0, CORE_F64), 4, true, NULL, &x),
          CORE_ERROR_INVALID_ARGUMENT, "no categories");
    drop_all();
}
END_TEST

/* -------------------------------------------------- numbers to indices -- */

static void counts_are(core_tensor *counts, const int *wanted, int bins)
{
    double got[16];

    counts = CALL(to_copy, counts, CORE_F64, NULL, false, -1);
    ck_assert_int_eq(core_tensor_numel(counts), bins);
    OK(core_tensor_read(counts, got, (size_t)bins * sizeof *got));
    for (int i = 0; i < bins; i++)
        ck_assert_msg(got[i] == wanted[i], "bin %d has %g, not %d", i, got[i],
                      wanted[i]);
}

static void histograms(core_dtype dtype, double scale)
{
    static const int three[10] = {[2] = 1, [5] = 1, [9] = 1};
    static const int ends[10] = {[0] = 1, [5] = 1, [9] = 1};
    const double x[] = {scale, .5 * scale, .25 * scale};
    const double wide[] = {-3 * scale, 3 * scale, 0};
    const double range[] = {0, scale}, all[] = {-3 * scale, 3 * scale};
    core_tensor *values = from_doubles(x, 3, dtype), *edges, *counts;
    double got[11];

    counts_are(CALL(histc, values, 10, core_float(0), core_float(scale)), three,
               10);
    OK(core_histogram_bin_ct(values, 10, range, 2, NULL, false, &counts,
                             &edges));
    counts_are(keep(counts), three, 10);
    core_tensor_release(edges);
    values = from_doubles(wide, 3, dtype);
    counts_are(CALL(histc, values, 10, core_float(0), core_float(0)), ends, 10);
    OK(core_histogram_bin_ct(values, 10, all, 2, NULL, false, &counts, &edges));
    counts_are(keep(counts), ends, 10);
    keep(edges);
    edges = CALL(to_copy, edges, CORE_F64, NULL, false, -1);
    OK(core_tensor_read(edges, got, sizeof got));
    for (int i = 0; i < 11; i++)
        ck_assert_double_eq_tol(got[i] / scale, -3 + .6 * i, 1e-2);
    drop_all();
}

START_TEST(histograms_near_limit_of_dtype_have_right_bins)
{
    static const double same[] = {1e30, 1e30}, three[] = {1e38, 5e37, 2e37};
    static const int bins[10] = {[2] = 1, [5] = 1, [9] = 1};
    core_tensor *x, *out;

    OK(core_device_find("cpu", &cpu));
    x = from_doubles(three, 3, CORE_F32);
    counts_are(CALL(histc, x, 10, core_float(0), core_float(1e38)), bins, 10);
    histograms(CORE_F32, 1e38);
    histograms(CORE_F64, 5e307);
    histograms(CORE_BF16, 0x1p126);
    /* No wider range can be stored: everything is in the last bin. */
    x = from_doubles(same, 2, CORE_F32);
    counts_are(CALL(histc, x, 3, core_float(0), core_float(0)),
               (const int[]){0, 0, 2}, 3);
    FAILS(core_histc(x, 3, core_float(0), core_float(1e39), &out),
          CORE_ERROR_INVALID_ARGUMENT, "finite in f32");
    drop_all();
}
END_TEST

/* A number among integers is not rounded to a double. */
START_TEST(integers_beyond_doubles_are_scattered_exactly)
{
    const int64_t one = 1, large = (INT64_C(1) << 53) + 1;
    core_tensor *x, *index;
    int64_t got;

    OK(core_device_find("cpu", &cpu));
    x = CALL(zeros, &one, 1, CORE_I64, cpu);
    index = CALL(zeros, &one, 1, CORE_I64, cpu);
    x = CALL(scatter_value_reduce, x, 0, index, core_int(large), "add");
    OK(core_tensor_read(x, &got, sizeof got));
    ck_assert_int_eq(got, large);
    drop_all();
}
END_TEST

START_TEST(linspace_over_more_than_largest_number_is_finite)
{
    double got[5];

    OK(core_device_find("cpu", &cpu));
    OK(core_tensor_read(CALL(linspace, core_float(-1.6e308),
                             core_float(1.6e308), 5, CORE_F64, cpu),
                        got, sizeof got));
    for (int i = 0; i < 5; i++)
        ck_assert_double_eq_tol(got[i], .8e308 * (i - 2), 1e293);
    drop_all();
}
END_TEST

START_TEST(resampling_with_extreme_scale_stays_at_border)
{
    const int64_t sizes[3] = {1, 1, 4}, wanted = 7;
    core_tensor *x, *y;
    double got[7], scale = 0x1p-20;

    OK(core_device_find("cpu", &cpu));
    x = CALL(reshape, CALL(arange, core_int(4), CORE_F64, cpu), sizes, 3);
    for (int k = 0; k < 2; k++) {
        y = k ? CALL(upsample_nearest1d, x, &wanted, 1, &scale)
              : CALL(upsample_linear1d, x, &wanted, 1, false, &scale);
        OK(core_tensor_read(y, got, sizeof got));
        for (int i = 1; i < 7; i++)
            ck_assert_double_eq(got[i], 3);
    }
    drop_all();
}
END_TEST

/* ------------------------------------------------------------- no channels -- */

START_TEST(convolution_without_channels_has_empty_gradients)
{
    static const core_dtype dtypes[] = {CORE_F64, CORE_F32, CORE_BF16};
    const int64_t two[] = {2, 2}, none[] = {0, 0}, wide[] = {4, 1};
    const int64_t one[] = {1, 1};
    const int64_t x_sizes[] = {1, 2, 3, 3}, w_sizes[] = {2, 0, 2, 2};
    const uint8_t mask[] = {1, 1, 0};

    OK(core_device_find("cpu", &cpu));
    for (int i = 0; i < 6; i++) {
        bool transposed = i % 2 == 0;
        core_tensor *x =
            CALL(ones, transposed ? x_sizes : w_sizes, 4, dtypes[i / 2], cpu);
        core_tensor *w = CALL(ones, w_sizes, 4, dtypes[i / 2], cpu);
        core_tensor *y, *grads[3];

        y = CALL(convolution, x, w, NULL, two, 2, none, 2,
                 transposed ? wide : one, 2, transposed, none, 2, 1);
        OK(core_convolution_backward(
            y, x, w, NULL, 0, two, 2, none, 2, transposed ? wide : one, 2,
            transposed, none, 2, 1, mask, 3, &grads[0], &grads[1], &grads[2]));
        ck_assert_int_eq(core_tensor_numel(grads[1]), 0);
        core_tensor_release(grads[0]);
        core_tensor_release(grads[1]);
        drop_all();
    }
}
END_TEST

/* ---------------------------------------------------- wrong out tensors -- */

static core_tensor *wrong_out;

static void refused(const char *what, core_status status)
{
    ck_assert_msg(status == CORE_ERROR_SHAPE, "%s: %s: %s", what,
                  core_status_name(status), core_error_message());
    ck_assert_msg(strstr(core_error_message(), "[3]") != NULL, "%s: %s", what,
                  core_error_message());
}

#define REFUSED(call) refused(#call, call)

/* Each result would have 2^40 elements or more: they are not made. */
START_TEST(out_of_wrong_size_is_refused_before_anything_is_computed)
{
    const int64_t three = 3, large = INT64_C(1) << 40, first = 0;
    const int64_t square[2] = {1 << 20, 1 << 20};
    uint64_t before, after;
    core_tensor *x, *one;

    OK(core_device_find("cpu", &cpu));
    wrong_out = CALL(zeros, &three, 1, CORE_F32, cpu);
    REFUSED(core_arange_out(core_int(large), wrong_out));
    REFUSED(core_eye_m_out(1 << 20, 1 << 20, wrong_out));
    REFUSED(core_linspace_out(core_int(0), core_int(1), large, wrong_out));
    REFUSED(core_logspace_out(core_int(0), core_int(1), large, 10, wrong_out));
    REFUSED(core_zeros_out(square, 2, wrong_out));
    REFUSED(core_full_out(square, 2, core_int(1), wrong_out));
    core_seed(5);
    core_generator_state(NULL, NULL, &before);
    REFUSED(core_rand_out(square, 2, NULL, wrong_out));
    REFUSED(core_randperm_out(large, NULL, wrong_out));
    core_generator_state(NULL, NULL, &after);
    ck_assert_uint_eq(before, after);
    one = CALL(ones, NULL, 0, CORE_F32, cpu);
    x = CALL(expand, one, square, 1, false);
    REFUSED(core_outer_out(x, x, wrong_out));
    REFUSED(core_repeat_out(x, square, 1, wrong_out));
    REFUSED(core_repeat_out(one, &large, 1, wrong_out));
    x = CALL(expand, one, square, 2, false);
    REFUSED(core_sum_dim_out(x, &first, 1, false, CORE_F64, wrong_out));
    drop_all();
}
END_TEST

SUITE("ops/ops_extremes", elementwise_operators_end_for_every_argument,
      special_functions_far_out_have_known_values,
      random_numbers_stay_in_range_at_limits_of_dtypes,
      numbers_between_any_bounds_are_between_them,
      random_numbers_of_extreme_parameters_are_numbers,
      dirichlet_samples_of_huge_shapes_sum_to_one,
      multinomial_never_draws_weight_of_zero,
      multinomial_without_categories_fails,
      scatter_of_a_fraction_makes_a_bool_true,
      histograms_near_limit_of_dtype_have_right_bins,
      integers_beyond_doubles_are_scattered_exactly,
      linspace_over_more_than_largest_number_is_finite,
      resampling_with_extreme_scale_stays_at_border,
      convolution_without_channels_has_empty_gradients,
      out_of_wrong_size_is_refused_before_anything_is_computed)
