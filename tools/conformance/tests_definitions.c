/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Level ops: what operators compute where languages and libraries differ: signs
 * of remainders, quotients that are rounded, powers, shifts by too much, bounds
 * that exclude each other, numbers that replace NaN, integers that need a wider
 * sum. */

#include "number_case.h"

#include <math.h>
#include <string.h>

#define M(dtype) CORE_DTYPE_MASK(dtype)
#define WIDE_FLOATS (M(CORE_F64) | M(CORE_F32))
#define FLOATS (WIDE_FLOATS | M(CORE_F16) | M(CORE_BF16))
#define SIGNED (M(CORE_I64) | M(CORE_I32) | M(CORE_I16) | M(CORE_I8))
#define NUMBERS (FLOATS | SIGNED)

#define NAN_ (double)NAN
#define INF_ (double)INFINITY
/* A float that no integer is. */
#define F(value)           \
    {                      \
        TENSOR, (value), 0 \
    }
#define FN(value)          \
    {                      \
        NUMBER, (value), 0 \
    }
#define WHOLE(value)             \
    {                            \
        WHOLE_NUMBER, 0, (value) \
    }
#define DOWN               \
    {                      \
        ROUNDED_DOWN, 0, 0 \
    }
#define TO_0               \
    {                      \
        ROUNDED_TO_0, 0, 0 \
    }
#define NO_VALUE       \
    {                  \
        LEFT_OUT, 0, 0 \
    }
/* A result of floats, and one of integers. */
#define R(value) (double)(value), (int64_t)(value)

typedef struct definition {
    const char *name;
    uint32_t dtypes;
    number args[NUMBER_ARGUMENTS];
    double f;
    int64_t i;
} definition;

/* clang-format off */
static const definition exact[] = {
    /* The sign of a remainder is that of the divisor; fmod's, of the dividend. */
    {"fmod.Tensor", NUMBERS, {T(-7), T(3)}, R(-1)},
    {"fmod.Tensor", NUMBERS, {T(7), T(-3)}, R(1)},
    {"remainder.Tensor", NUMBERS, {T(-7), T(3)}, R(2)},
    {"remainder.Tensor", NUMBERS, {T(7), T(-3)}, R(-2)},
    {"remainder.Tensor", NUMBERS, {T(-6), T(3)}, R(0)},
    {"remainder.Tensor", NUMBERS, {T(-7), T(-3)}, R(-1)},
    {"remainder.Scalar", NUMBERS, {T(-7), N(3)}, R(2)},
    {"remainder.Scalar", NUMBERS, {T(7), N(-3)}, R(-2)},
    {"remainder.Scalar", NUMBERS, {T(-8), N(4)}, R(0)},
    {"remainder.Scalar", M(CORE_U8), {T(200), N(7)}, R(4)},
    {"fmod.Scalar", NUMBERS, {T(-7), N(3)}, R(-1)},
    {"fmod.Scalar", NUMBERS, {T(7), N(-4)}, R(3)},
    {"remainder.Tensor", M(CORE_U8), {T(200), T(7)}, R(4)},
    /* Quotients. */
    {"div.Scalar_mode", NUMBERS, {T(-7), N(2), DOWN}, R(-4)},
    {"div.Scalar_mode", NUMBERS, {T(7), N(-2), DOWN}, R(-4)},
    {"div.Scalar_mode", NUMBERS, {T(-7), N(2), TO_0}, R(-3)},
    {"div.Scalar_mode", M(CORE_U8), {T(200), N(7), DOWN}, R(28)},
    {"floor_divide", M(CORE_U8), {T(200), T(7)}, R(28)},
    {"floor_divide", NUMBERS, {T(-7), T(2)}, R(-4)},
    {"floor_divide", NUMBERS, {T(7), T(-2)}, R(-4)},
    {"floor_divide", NUMBERS, {T(-8), T(2)}, R(-4)},
    {"div.Tensor_mode", NUMBERS, {T(-7), T(2), DOWN}, R(-4)},
    {"div.Tensor_mode", NUMBERS, {T(7), T(-2), DOWN}, R(-4)},
    {"div.Tensor_mode", NUMBERS, {T(-7), T(2), TO_0}, R(-3)},
    {"div.Tensor_mode", NUMBERS, {T(7), T(-2), TO_0}, R(-3)},
    /* Powers. */
    {"pow.Tensor_Tensor", NUMBERS, {T(0), T(0)}, R(1)},
    {"pow.Tensor_Tensor", SIGNED, {T(2), T(-1)}, R(0)},
    {"pow.Tensor_Tensor", SIGNED, {T(1), T(-2)}, R(1)},
    {"pow.Tensor_Tensor", SIGNED, {T(-1), T(-3)}, R(-1)},
    {"pow.Tensor_Tensor", SIGNED, {T(-1), T(-4)}, R(1)},
    {"pow.Tensor_Tensor", FLOATS, {F(NAN_), T(0)}, 1, 0},
    {"pow.Tensor_Tensor", FLOATS, {T(1), F(NAN_)}, 1, 0},
    {"pow.Tensor_Tensor", FLOATS, {T(0), T(-1)}, INF_, 0},
    {"pow.Tensor_Tensor", FLOATS, {T(-8), F(.25)}, NAN_, 0},
    /* Shifts by as many bits as there are, and by more. */
    {"bitwise_left_shift.Tensor", SIGNED, {T(3), T(2)}, R(12)},
    {"bitwise_left_shift.Tensor", SIGNED, {T(1), T(64)}, R(0)},
    {"bitwise_left_shift.Tensor", M(CORE_I32), {T(1), T(33)}, R(0)},
    {"bitwise_right_shift.Tensor", SIGNED, {T(-8), T(1)}, R(-4)},
    {"bitwise_right_shift.Tensor", SIGNED, {T(-8), T(64)}, R(-1)},
    {"bitwise_right_shift.Tensor", M(CORE_I32), {T(-8), T(33)}, R(-1)},
    {"bitwise_left_shift.Tensor_Scalar", SIGNED, {T(1), N(64)}, R(0)},
    {"bitwise_left_shift.Tensor_Scalar", M(CORE_I32), {T(1), N(33)}, R(0)},
    {"bitwise_right_shift.Tensor_Scalar", SIGNED, {T(-8), N(1)}, R(-4)},
    {"bitwise_right_shift.Tensor_Scalar", SIGNED, {T(-8), N(64)}, R(-1)},
    {"bitwise_right_shift.Tensor", M(CORE_U8), {T(200), T(1)}, R(100)},
    {"bitwise_not", SIGNED, {T(0)}, R(-1)},
    {"bitwise_not", M(CORE_BOOL), {T(1)}, R(0)},
    /* The least integer has no absolute value. */
    {"abs", M(CORE_I64), {{TENSOR, 0, INT64_MIN}}, 0, INT64_MIN},
    {"abs", M(CORE_I32), {T(INT32_MIN)}, R(INT32_MIN)},
    {"abs", M(CORE_I8), {T(-128)}, R(-128)},
    {"sign", NUMBERS, {T(-3)}, R(-1)},
    {"gcd", SIGNED, {T(12), T(-18)}, R(6)},
    {"gcd", SIGNED, {T(0), T(0)}, R(0)},
    {"gcd", SIGNED, {T(0), T(-5)}, R(5)},
    {"lcm", SIGNED, {T(-4), T(6)}, R(12)},
    {"lcm", SIGNED, {T(0), T(5)}, R(0)},
    /* The upper bound is applied last. */
    {"clamp", NUMBERS, {T(0), N(2), N(-1)}, R(-1)},
    {"clamp.Tensor", NUMBERS, {T(0), T(2), T(-1)}, R(-1)},
    {"clamp", FLOATS, {F(NAN_), N(-1), N(1)}, NAN_, 0},
    {"clamp.Tensor", FLOATS, {T(0), F(NAN_), T(1)}, NAN_, 0},
    {"hardtanh", FLOATS, {F(NAN_), N(-1), N(1)}, NAN_, 0},
    /* What replaces NaN and infinities. */
    {"nan_to_num", FLOATS, {F(NAN_), N(1), N(2), N(3)}, 1, 0},
    {"nan_to_num", FLOATS, {F(INF_), N(1), N(2), N(3)}, 2, 0},
    {"nan_to_num", FLOATS, {F(-INF_), N(1), N(2), N(3)}, 3, 0},
    {"nan_to_num", FLOATS, {F(NAN_)}, 0, 0},
    {"nan_to_num", M(CORE_F32), {F(INF_)}, 3.4028234663852886e38, 0},
    /* Halves are rounded to even numbers. */
    {"round", FLOATS, {F(2.5)}, 2, 0},
    {"round", FLOATS, {F(-1.5)}, -2, 0},
    {"round.decimals", WIDE_FLOATS, {T(1250), WHOLE(-2)}, 1200, 0},
    {"round.decimals", FLOATS, {F(.625), WHOLE(0)}, 1, 0},
    {"frac", FLOATS, {F(-1.5)}, -.5, 0},
    {"trunc", FLOATS, {F(-1.5)}, -1, 0},
    /* A half and its neighbours are not what adding one half and rounding down
     * makes of them, and neither are odd numbers that have no fraction. */
    {"round", M(CORE_F32), {F(0x1.fffffep-2)}, 0, 0},
    {"round", M(CORE_F32), {T(8388609)}, R(8388609)},
    {"round", M(CORE_F32), {T(-8388611)}, R(-8388611)},
    {"round", M(CORE_F64), {F(0x1.fffffffffffffp-2)}, 0, 0},
    {"round", M(CORE_F64), {T(4503599627370497)}, R(4503599627370497)},
    /* Limits. */
    {"xlogy.Tensor", FLOATS, {T(0), T(0)}, 0, 0},
    {"xlogy.Tensor", FLOATS, {T(0), F(NAN_)}, NAN_, 0},
    {"logaddexp", FLOATS, {F(-INF_), F(-INF_)}, -INF_, 0},
    {"logaddexp", FLOATS, {F(INF_), F(INF_)}, INF_, 0},
    {"logsumexp", FLOATS, {F(-INF_), WHOLE(0)}, -INF_, 0},
    {"logcumsumexp", FLOATS, {F(-INF_), WHOLE(0)}, -INF_, 0},
    {"softmax.int", FLOATS, {F(-INF_), WHOLE(1)}, NAN_, 0},
    {"log_softmax.int", FLOATS, {F(-INF_), WHOLE(1)}, NAN_, 0},
    {"heaviside", FLOATS, {T(0), F(.5)}, .5, 0},
    {"heaviside", FLOATS, {T(-1), F(.5)}, 0, 0},
    {"heaviside", FLOATS, {T(2), F(.5)}, 1, 0},
    {"erfinv", WIDE_FLOATS, {T(-1)}, -INF_, 0},
    {"logit", FLOATS, {T(1), NO_VALUE}, INF_, 0},
    {"logit", FLOATS, {T(0), NO_VALUE}, -INF_, 0},
    {"elu", FLOATS, {F(-INF_)}, -1, 0},
    {"softplus", FLOATS, {T(1000)}, 1000, 0},
    {"lerp.Scalar", FLOATS, {T(1), T(3), N(1)}, 3, 0},
    {"lerp.Scalar", FLOATS, {T(1), T(3), N(0)}, 1, 0},
    /* NaN and infinities in sums and products. */
    {"sum", FLOATS, {F(NAN_)}, NAN_, 0},
    {"nansum", FLOATS, {F(NAN_)}, 0, 0},
    {"mean", FLOATS, {F(NAN_)}, NAN_, 0},
    {"prod", FLOATS, {F(NAN_)}, NAN_, 0},
    {"mm", FLOATS, {T(0), F(NAN_)}, NAN_, 0},
    {"mm", FLOATS, {F(INF_), T(0)}, NAN_, 0},
    {"any", FLOATS, {F(NAN_)}, 0, 1},
    {"all", FLOATS, {F(NAN_)}, 0, 1},
    {"count_nonzero", FLOATS, {F(NAN_)}, 0, 4},
    {"linalg_vector_norm", FLOATS, {T(-3), FN(INF_)}, 3, 0},
    {"linalg_vector_norm", FLOATS, {T(-3), FN(-INF_)}, 3, 0},
    {"linalg_vector_norm", FLOATS, {T(-3), N(0)}, 4, 0},
    /* Sums and products of integers are i64. */
    {"sum", M(CORE_I32), {T(INT32_MAX)}, R(INT64_C(4) * INT32_MAX)},
    {"sum", M(CORE_I16), {T(-32768)}, R(-131072)},
    {"sum", M(CORE_I8), {T(-128)}, R(-512)},
    {"sum", M(CORE_U8), {T(255)}, R(1020)},
    {"sum", M(CORE_BOOL), {T(1)}, R(4)},
    {"prod", M(CORE_I32), {T(-40000)}, R(INT64_C(2560000000000000000))},
    {"prod", M(CORE_U8), {T(200)}, R(1600000000)},
};
/* Where a device may round powers. */
static const definition rounded[] = {
    {"pow.Tensor_Tensor", NUMBERS, {T(-2), T(3)}, R(-8)},
    {"pow.Tensor_Tensor", NUMBERS, {T(-3), T(4)}, R(81)},
    {"pow.Tensor_Scalar", NUMBERS, {T(-3), N(3)}, R(-27)},
    {"pow.Tensor_Scalar", FLOATS, {T(4), N(-1)}, .25, 0},
    {"pow.Tensor_Scalar", FLOATS, {T(-2), N(-2)}, .25, 0},
    {"pow.Tensor_Scalar", FLOATS, {T(9), FN(.5)}, 3, 0},
    {"pow.Tensor_Scalar", FLOATS, {T(16), FN(-.5)}, .25, 0},
    /* Angles of many turns. */
    {"sin", WIDE_FLOATS, {T(10000)}, -0.30561438888825214, 0},
    {"cos", WIDE_FLOATS, {T(10000)}, -0.95215536825901479, 0},
    {"tan", WIDE_FLOATS, {T(1000)}, 1.4703241557027185, 0},
};
static const definition summed[] = {
    {"linalg_vector_norm", FLOATS, {T(-3), N(1)}, 12, 0},
};
/* clang-format on */

enum {
    EXACT = sizeof exact / sizeof *exact,
    ROUNDED = sizeof rounded / sizeof *rounded,
    SUMMED = sizeof summed / sizeof *summed,
    DTYPES = 8 /* of a definition */
};

/* Writes a case for each dtype of the definition; returns how many. */
static size_t expand(const definition *of, rounding how, number_case *to)
{
    size_t count = 0;

    for (core_dtype dtype = 0; dtype < CORE_DTYPE_LIMIT; dtype++) {
        if (!(of->dtypes & M(dtype)))
            continue;
        to[count] = (number_case){.name = of->name,
                                  .dtype = dtype,
                                  .f = of->f,
                                  .i = of->i,
                                  .how = how};
        memcpy(to[count++].args, of->args, sizeof of->args);
    }
    return count;
}

static void results_are_those_of_aten(suite *self, outcome *out,
                                      const test *one)
{
    static number_case cases[(EXACT + ROUNDED + SUMMED) * DTYPES];
    size_t count = 0;

    (void)one;
    for (size_t k = 0; k < EXACT; k++)
        count += expand(&exact[k], IS_EXACT, cases + count);
    for (size_t k = 0; k < ROUNDED; k++)
        count += expand(&rounded[k], IS_ROUNDED, cases + count);
    for (size_t k = 0; k < SUMMED; k++)
        count += expand(&summed[k], IS_SUMMED, cases + count);
    number_cases_check(self, cases, count, out);
}

bool suite_add_definitions(suite *self)
{
    static const listed tests[] = {
        {"ops/rules/results-are-those-of-aten", results_are_those_of_aten,
         true},
    };

    return suite_add_list(self, LEVEL_OPS, tests, sizeof tests / sizeof *tests);
}
