/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Elementary f32 functions against libm in f64, for every 9973rd float. */

#include "support/cpu.h"

enum { N = 8192, STEP = 9973 };

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static const struct {
    const char *name;
    double (*exact)(double);
    double limit; /* units in the last place */
} functions[] = {
    {"exp", exp, 1},     {"exp2", exp2, 1},         {"expm1", expm1, 1.5},
    {"log", log, 1},     {"log2", log2, 2.5},       {"log10", log10, 2},
    {"log1p", log1p, 1}, {"sinh", sinh, 2},         {"cosh", cosh, 1.5},
    {"tanh", tanh, 1.5}, {"sigmoid", sigmoid, 2.5}, {"erf", erf, 1.5},
    {"erfc", erfc, 2},   {"sin", sin, 1},           {"cos", cos, 1},
    {"tan", tan, 1},     {"sqrt", sqrt, 0.5},       {"floor", floor, 0},
    {"ceil", ceil, 0},   {"trunc", trunc, 0},       {"round", rint, 0},
    {"atan", atan, 1},   {"asin", asin, 1},         {"acos", acos, 1},
};

enum { FUNCTIONS = sizeof(functions) / sizeof(functions[0]) };

/* Distance between got and want in units in the last place of want. */
static double distance(float got, double want)
{
    int exponent;

    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    /* A value that rounds to infinity may be infinity. */
    if (isinf(got) || isinf((float)want))
        return fabs(want) >= 0x1.ffffffp127 && !signbit(got) == !signbit(want)
                   ? 0
                   : INFINITY;
    frexp(want, &exponent);
    if (exponent < -125)
        exponent = -125;
    return fabs((double)got - want) / ldexp(1, exponent - 24);
}

static void check_function(int f, const float *in, const float *out)
{
    for (int k = 0; k < N; k++) {
        double want = functions[f].exact((double)in[k]);

        if (!(distance(out[k], want) <= functions[f].limit + 1e-6))
            ck_abort_msg("%s(%a) is %a, not %a", functions[f].name,
                         (double)in[k], (double)out[k], want);
    }
}

START_TEST(f32_functions_meet_their_error_bounds)
{
    static float in[N], out[N];
    uint64_t bits = 0;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    while (bits < UINT64_C(1) << 32) {
        for (int k = 0; k < N; k++, bits += STEP) {
            uint32_t low = (uint32_t)bits;

            memcpy(&in[k], &low, 4);
        }
        for (int f = 0; f < FUNCTIONS; f++) {
            test_loop t;

            loop_dense(&t, 1, N);
            loop_dense_operand(&t, out, CORE_F32);
            loop_dense_operand(&t, in, CORE_F32);
            ck_assert_int_eq(cpu_launch(functions[f].name, &t.loop, NULL, 0),
                             CORE_OK);
            check_function(f, in, out);
        }
    }
    cpu_close();
}
END_TEST

/* The floats at multiples of π/2, where the reduction cancels most. */
START_TEST(sines_of_small_remainders_meet_their_error_bounds)
{
    static const char *const names[] = {"sin", "cos", "tan"};
    static float in[N], out[N];

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int k = 0; k < N; k++) {
        in[k] = (float)((k / 2 * 77 + 1) * 1.5707963267948966);
        in[k] = k % 2 ? in[k] : -nextafterf(in[k], 0);
    }
    for (int f = 0; f < FUNCTIONS; f++)
        for (int n = 0; n < 3; n++) {
            test_loop t;

            if (strcmp(functions[f].name, names[n]) != 0)
                continue;
            loop_dense(&t, 1, N);
            loop_dense_operand(&t, out, CORE_F32);
            loop_dense_operand(&t, in, CORE_F32);
            ck_assert_int_eq(cpu_launch(names[n], &t.loop, NULL, 0), CORE_OK);
            check_function(f, in, out);
        }
    cpu_close();
}
END_TEST

/* x Φ(x): relative error where it is not small, otherwise absolute error. */
START_TEST(f32_gelu_meets_its_error_bound)
{
    static float in[N], out[N];
    core_value args[2] = {{0}, value_string("none")};
    test_loop t;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int begin = -N; begin < 63 * N; begin += N) {
        for (int k = 0; k < N; k++)
            in[k] = (float)(begin + k) * (16.0f / (64 * N)) - 8;
        loop_dense(&t, 1, N);
        loop_dense_operand(&t, out, CORE_F32);
        loop_dense_operand(&t, in, CORE_F32);
        ck_assert_int_eq(cpu_launch("gelu", &t.loop, args, 2), CORE_OK);
        for (int k = 0; k < N; k++) {
            double x = (double)in[k], want = x * 0.5 * erfc(-x / sqrt(2));

            if (in[k] < -1 ? !(fabs((double)out[k] - want) <= 5e-8)
                           : !(distance(out[k], want) <= 3))
                ck_abort_msg("gelu(%a) is %a, not %a", x, (double)out[k], want);
        }
    }
    cpu_close();
}
END_TEST

START_TEST(f32_powers_are_rounded_once)
{
    static const float special[] = {0,
                                    -0.f,
                                    1,
                                    -1,
                                    2,
                                    -2,
                                    .5f,
                                    -.5f,
                                    3,
                                    -3,
                                    NAN,
                                    INFINITY,
                                    -INFINITY,
                                    0x1p-149f,
                                    -0x1p-140f,
                                    0x1p127f,
                                    16777215,
                                    16777216,
                                    33554434,
                                    -16777215,
                                    1.5f,
                                    0x1.fffffep-1f,
                                    0x1.000002p0f};
    enum { SPECIAL = sizeof special / sizeof *special };
    static float x[N], y[N], out[N];
    uint32_t state = 7;
    test_loop t;

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int k = 0; k < N; k++) {
        float wide = k % 3 == 0 ? 30 : 2;

        x[k] = k < SPECIAL * SPECIAL ? special[k % SPECIAL]
                                     : expf(wide * random_float(&state));
        y[k] = k < SPECIAL * SPECIAL ? special[k / SPECIAL]
                                     : wide * random_float(&state);
    }
    loop_dense(&t, 1, N);
    loop_dense_operand(&t, out, CORE_F32);
    loop_dense_operand(&t, x, CORE_F32);
    loop_dense_operand(&t, y, CORE_F32);
    ck_assert_int_eq(cpu_launch("pow.Tensor_Tensor", &t.loop, NULL, 0),
                     CORE_OK);
    for (int k = 0; k < N; k++) {
        double want = pow((double)x[k], (double)y[k]);
        float nearest = (float)want;

        if (isnan(nearest) ? !isnan(out[k])
            : nearest == 0 || isinf(nearest)
                ? memcmp(&nearest, &out[k], 4) != 0
                : !(distance(out[k], want) <= 0.53))
            ck_abort_msg("pow(%a, %a) is %a, not %a", (double)x[k],
                         (double)y[k], (double)out[k], want);
    }
    cpu_close();
}
END_TEST
static double rest_of(double a, double b)
{
    return fmod(a, b);
}

/* With the sign of b. */
static double floor_rest_of(double a, double b)
{
    float rest = fmodf((float)a, (float)b);

    return (double)(rest != 0 && (b < 0) != (rest < 0) ? rest + (float)b
                                                       : rest);
}

static double floor_of_quotient(double a, double b)
{
    float x = (float)a, y = (float)b, rest = fmodf(x, y), whole, down;

    if (b == 0)
        return (double)(x / y);
    whole = (x - rest) / y;
    if (rest != 0 && (b < 0) != (rest < 0))
        whole -= 1;
    if (whole == 0)
        return (double)copysignf(0, x / y);
    down = floorf(whole);
    return (double)(whole - down > 0.5f ? down + 1 : down);
}

static const struct {
    const char *name;
    double (*exact)(double, double);
    double limit; /* 0: bit for bit, zeros with their sign */
} pairs[] = {
    {"atan2", atan2, 1.5},
    {"fmod.Tensor", rest_of, 0},
    {"remainder.Tensor", floor_rest_of, 0},
    {"floor_divide", floor_of_quotient, 0},
};

/* Special values with each other, quotients of every size, and whole ones. */
static void fill_pairs(float *x, float *y)
{
    static const float special[] = {
        0,         -0.f,     1,         -1,        1.5f,          -7,
        NAN,       INFINITY, 0x1p127f,  0x1p-149f, -INFINITY,     -0x1p-140f,
        -0x1p100f, 16777215, 0x1p-126f, 3,         0x1.fffffep-1f};
    enum { SPECIAL = sizeof special / sizeof *special };
    uint32_t state = 11;

    for (int k = 0; k < N; k++) {
        float wide = k % 3 == 0 ? 40 : 4;

        x[k] =
            copysignf(expf(wide * random_float(&state)), random_float(&state));
        y[k] =
            copysignf(expf(wide * random_float(&state)), random_float(&state));
        if (k % 5 == 0)
            x[k] = y[k] * (float)(k % 4096);
        if (k < SPECIAL * SPECIAL) {
            x[k] = special[k % SPECIAL];
            y[k] = special[k / SPECIAL];
        }
    }
}

/* With one row of elements, and in place of the second. */
START_TEST(f32_functions_of_two_numbers_match_libm)
{
    static float x[N], y[N], out[N];

    if (!cpu_open_isa(cpu_isas[_i % 3]))
        return;
    fill_pairs(x, y);
    for (size_t f = 0; f < sizeof pairs / sizeof *pairs; f++) {
        bool inside = _i >= 3;
        test_loop t;

        memcpy(out, y, sizeof y);
        loop_dense(&t, 1, N);
        loop_dense_operand(&t, out, CORE_F32);
        loop_dense_operand(&t, x, CORE_F32);
        loop_dense_operand(&t, inside ? out : y, CORE_F32);
        ck_assert_int_eq(cpu_launch(pairs[f].name, &t.loop, NULL, 0), CORE_OK);
        for (int k = 0; k < N; k++) {
            double want = pairs[f].exact((double)x[k], (double)y[k]);
            float nearest = (float)want;

            if (isnan(nearest) ? !isnan(out[k])
                : nearest == 0 || pairs[f].limit == 0
                    ? memcmp(&nearest, &out[k], 4) != 0
                    : !(distance(out[k], want) <= pairs[f].limit))
                ck_abort_msg("%s(%a, %a) is %a, not %a", pairs[f].name,
                             (double)x[k], (double)y[k], (double)out[k], want);
        }
    }
    cpu_close();
}
END_TEST

START_TEST(f32_special_values_match_libm)
{
    static const float special[] = {
        0.0f,  -0.0f,  INFINITY, -INFINITY, NAN,      -NAN,  1.0f,
        -1.0f, 1e-45f, -1e-45f,  88.8f,     -103.99f, 3e38f, -3e38f};
    enum { SPECIAL = sizeof(special) / sizeof(special[0]) };

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int f = 0; f < FUNCTIONS; f++)
        for (int k = 0; k < SPECIAL; k++) {
            float x = special[k], y;
            float want = (float)functions[f].exact((double)x);
            test_loop t;

            loop_dense(&t, 1, 1);
            loop_dense_operand(&t, &y, CORE_F32);
            loop_dense_operand(&t, &x, CORE_F32);
            ck_assert_int_eq(cpu_launch(functions[f].name, &t.loop, NULL, 0),
                             CORE_OK);
            if (isnan(want))
                ck_assert(isnan(y));
            else if (!(y == want || distance(y, (double)want) <= 2.5) ||
                     !signbit(y) != !signbit(want))
                ck_abort_msg("%s(%a) is %a, not %a", functions[f].name,
                             (double)x, (double)y, (double)want);
        }
    cpu_close();
}
END_TEST

int main(void)
{
    const suite_loop loops[] = {
        {f32_functions_meet_their_error_bounds, 0, 3},
        {sines_of_small_remainders_meet_their_error_bounds, 0, 3},
        {f32_gelu_meets_its_error_bound, 0, 3},
        {f32_powers_are_rounded_once, 0, 3},
        {f32_functions_of_two_numbers_match_libm, 0, 6},
        {f32_special_values_match_libm, 0, 3},
    };
    const test_suite suite = {
        .name = "cpu/cpu_vecmath",
        .seconds = 300,
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
