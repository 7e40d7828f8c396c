/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Elementary f64 functions against libm in long double. */

#include "support/cpu.h"

enum { N = 4096, ROUNDS = 48 };

static long double sigmoid(long double x)
{
    return 1 / (1 + expl(-x));
}

static long double gelu(long double x)
{
    return 0.5L * x * (1 + erfl(x * 0.70710678118654752440L));
}

static const struct {
    const char *name;
    long double (*exact)(long double);
    double low, high; /* range of most of the arguments */
    double limit;     /* units in the last place */
} functions[] = {
    {"exp", expl, -746, 710, 1},      {"expm1", expm1l, -40, 710, 2},
    {"log", logl, 0, 4, 1},           {"tanh", tanhl, -20, 20, 3},
    {"sigmoid", sigmoid, -45, 45, 3}, {"erf", erfl, -6.5, 6.5, 1.5},
    {"gelu", gelu, 0, 9, 3},
};

enum { FUNCTIONS = sizeof(functions) / sizeof(functions[0]) };

/* Distance between got and want in units in the last place of want. */
static double distance(double got, long double want)
{
    int exponent;

    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (isinf(got) || isinf((double)want))
        return got == (double)want ? 0 : INFINITY;
    frexpl(want, &exponent);
    if (exponent < -1021)
        exponent = -1021;
    return (double)(fabsl((long double)got - want) / ldexpl(1, exponent - 53));
}

static uint64_t state = 1;

static double draw(double low, double high)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(state >> 11) * 0x1p-53;
}

static void compute(const char *name, double *out, double *in, int64_t n)
{
    core_value none = {CORE_VALUE_STRING, 4, {.string = "none"}};
    core_value args[2] = {{0}, none};
    test_loop t;

    loop_dense(&t, 1, n);
    loop_dense_operand(&t, out, CORE_F64);
    loop_dense_operand(&t, in, CORE_F64);
    ck_assert_int_eq(cpu_launch(name, &t.loop, args, 2), CORE_OK);
}

static void check(int f, int64_t n, const double *in, const double *out,
                  double limit)
{
    for (int64_t k = 0; k < n; k++) {
        long double want = functions[f].exact((long double)in[k]);

        if (!(distance(out[k], want) <= limit))
            ck_abort_msg("%s(%a) is %a, not %La: %g", functions[f].name, in[k],
                         out[k], want, distance(out[k], want));
    }
}

START_TEST(f64_functions_meet_their_error_bounds)
{
    static double in[N], out[N];

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int f = 0; f < FUNCTIONS; f++)
        for (int round = 0; round < ROUNDS; round++) {
            for (int k = 0; k < N; k++) {
                double sign = functions[f].low < 0 && k & 4 ? -1 : 1;

                /* Every fourth argument has magnitude 2^-60 to 2^4. */
                in[k] = k & 3 ? draw(functions[f].low, functions[f].high)
                              : ldexp(sign * draw(1, 2), (int)draw(-60, 4));
            }
            compute(functions[f].name, out, in, N);
            check(f, N, in, out, functions[f].limit);
        }
    cpu_close();
}
END_TEST

START_TEST(f64_special_values_match_libm)
{
    static const double special[] = {
        0.0,       -0.0,       INFINITY, -INFINITY, NAN,      1.0,     -1.0,
        0x1p-1074, -0x1p-1074, 1e-310,   0x1p-1022, 709.7827, 709.79,  -708.4,
        -745.1,    -745.2,     1e300,    -1e300,    0x1p-30,  -0x1p-30};
    enum { SPECIAL = sizeof(special) / sizeof(special[0]) };
    double in[SPECIAL], out[SPECIAL];

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int f = 0; f < FUNCTIONS; f++) {
        if (strcmp(functions[f].name, "gelu") == 0)
            continue; /* x Φ(x) is NaN at -infinity as well */
        memcpy(in, special, sizeof(in));
        compute(functions[f].name, out, in, SPECIAL);
        check(f, SPECIAL, in, out, functions[f].limit);
        for (int k = 0; k < SPECIAL; k++)
            if (!isnan(out[k]))
                ck_assert_int_eq(
                    !signbit(out[k]),
                    !signbit((double)functions[f].exact((long double)in[k])));
    }
    cpu_close();
}
END_TEST

/* The bits of an element do not depend on its position in a vector. */
START_TEST(single_element_has_bits_of_vector_element)
{
    static double in[N], out[N];

    if (!cpu_open_isa(cpu_isas[_i]))
        return;
    for (int f = 0; f < FUNCTIONS; f++) {
        for (int k = 0; k < N; k++)
            in[k] = draw(functions[f].low, functions[f].high);
        compute(functions[f].name, out, in, N);
        for (int k = 0; k < N; k += 37) {
            double lone;

            compute(functions[f].name, &lone, &in[k], 1);
            ck_assert_mem_eq(&lone, &out[k], sizeof(lone));
        }
    }
    cpu_close();
}
END_TEST

int main(void)
{
    const suite_loop loops[] = {
        {f64_functions_meet_their_error_bounds, 0, 3},
        {f64_special_values_match_libm, 0, 3},
        {single_element_has_bits_of_vector_element, 0, 3},
    };
    const test_suite suite = {
        .name = "cpu/cpu_vecmath64",
        .seconds = 300,
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
