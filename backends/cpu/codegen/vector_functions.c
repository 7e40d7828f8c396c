/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Functions of expressions/vecmath.h and functions.h, as vector code: the same
 * operations on f32 in the same order, so the same bits.  A function there and
 * its counterpart here are changed together; test_cpu_native compares them. */

#include <string.h>

#include "vector_code.h"

typedef vector_code code;
typedef vector_value value;

#define FLOAT(x) vector_float(c, x)
#define BITS(x) vector_bits(c, x)
#define ADD(a, b) vector_2(c, VECTOR_ADD, a, b)
#define SUB(a, b) vector_2(c, VECTOR_SUB, a, b)
#define MUL(a, b) vector_2(c, VECTOR_MUL, a, b)
#define DIV(a, b) vector_2(c, VECTOR_DIV, a, b)
#define FMA(x, y, z) vector_3(c, VECTOR_FMA, x, y, z)
#define AND(a, b) vector_2(c, VECTOR_AND, a, b)
#define OR(a, b) vector_2(c, VECTOR_OR, a, b)
#define XOR(a, b) vector_2(c, VECTOR_XOR, a, b)
#define INT_ADD(a, b) vector_2(c, VECTOR_INT_ADD, a, b)
#define INT_SUB(a, b) vector_2(c, VECTOR_INT_SUB, a, b)
#define LEFT(a, n) vector_shift(c, VECTOR_SHIFT_LEFT, a, n)
#define RIGHT(a, n) vector_shift(c, VECTOR_SHIFT_RIGHT, a, n)
#define COMPARE(a, relation, b) vector_compare(c, VECTOR_##relation, a, b)
#define SELECT(m, a, b) vector_3(c, VECTOR_SELECT, m, a, b)

static const uint32_t sign = UINT32_C(1) << 31;

static value absolute(code *c, value x)
{
    return AND(x, BITS(~sign));
}

static value negative(code *c, value x)
{
    return XOR(x, BITS(sign));
}

static value copy_sign(code *c, value x, value from)
{
    return OR(absolute(c, x), AND(from, BITS(sign)));
}

/* A polynomial by Horner's rule, from the highest coefficient on. */
static value horner(code *c, value x, const float *coefficients, int count)
{
    value q = FLOAT(coefficients[0]);

    for (int k = 1; k < count; k++)
        q = FMA(q, x, FLOAT(coefficients[k]));
    return q;
}
#define HORNER(x, ...)                         \
    horner(c, x, (const float[]){__VA_ARGS__}, \
           (int)(sizeof((const float[]){__VA_ARGS__}) / sizeof(float)))

/* -------------------------------------------------------- exponentials -- */

#define LN2_HIGH 0x1.62e4p-1f
#define LN2_LOW 0x1.7f7d1cp-20f
#define ROUNDER 0x1.8p23f

static value at_most(code *c, value x, float most)
{
    return vector_2(c, VECTOR_INT_MIN, x, FLOAT(most));
}

static value at_least(code *c, value x, float least)
{
    return vector_2(c, VECTOR_UNSIGNED_MIN, x, FLOAT(least));
}

static value expm1_small(code *c, value r)
{
    value s = MUL(r, r);
    value low = FMA(r, FLOAT(0x1.555478p-5f), FLOAT(0x1.555556p-3f));
    value middle = FMA(r, FLOAT(0x1.6d9e3ep-10f), FLOAT(0x1.11107ap-7f));

    middle = FMA(s, FLOAT(0x1.a1bd5cp-13f), middle);
    low = FMA(middle, s, low);
    return FMA(FMA(low, r, FLOAT(0.5f)), s, r);
}

static value reduce_exp(code *c, value x, int more, value *bits)
{
    value rounder = FLOAT(ROUNDER + (float)more);
    value shifted = FMA(x, FLOAT(0x1.715476p0f), rounder);
    value whole = SUB(shifted, rounder);
    value r = FMA(whole, FLOAT(-LN2_HIGH), x);

    *bits = shifted;
    return FMA(whole, FLOAT(-LN2_LOW), r);
}

static value scale(code *c, value small, value bits)
{
    value first = RIGHT(bits, 1);
    value half = LEFT(first, 23);
    value rest = LEFT(INT_SUB(bits, first), 23);

    return MUL(FMA(small, half, half), rest);
}

/* x if it is NaN. */
static value keep_nan(code *c, value x, value result)
{
    return SELECT(COMPARE(x, UNORDERED, x), x, result);
}

static value exp_shifted(code *c, value x, int shift)
{
    value bits, r;

    r = reduce_exp(c, at_least(c, at_most(c, x, 90), -104), 254 + shift, &bits);
    return keep_nan(c, x, scale(c, expm1_small(c, r), bits));
}

static value exponential(code *c, value x)
{
    return exp_shifted(c, x, 0);
}

static value exp_normal(code *c, value x)
{
    value bits, r = reduce_exp(c, x, 127, &bits);
    value power = LEFT(bits, 23);

    return FMA(expm1_small(c, r), power, power);
}

static value exp2_of(code *c, value x)
{
    value rounder = FLOAT(ROUNDER + 254);
    value bounded = at_least(c, at_most(c, x, 129), -151);
    value shifted = ADD(bounded, rounder);
    value r = MUL(SUB(bounded, SUB(shifted, rounder)), FLOAT(0x1.62e43p-1f));

    return keep_nan(c, x, scale(c, expm1_small(c, r), shifted));
}

static value expm1_of(code *c, value x)
{
    value bits, r, n, half, sum;

    r = reduce_exp(c, at_least(c, at_most(c, x, 90), -20), 0, &bits);
    r = expm1_small(c, r);
    n = INT_SUB(bits, BITS(0x4b400000));
    n = INT_SUB(vector_2(c, VECTOR_INT_MIN, n, BITS(128)), BITS(1));
    half = LEFT(INT_ADD(n, BITS(127)), 23);
    sum = FMA(half, r, SUB(half, FLOAT(0.5f)));
    sum = ADD(sum, sum);
    sum = SELECT(COMPARE(x, GT, FLOAT(88.8f)), FLOAT(__builtin_inff()), sum);
    return SELECT(COMPARE(absolute(c, x), GE, FLOAT(0x1p-26f)), sum, x);
}

static value sinh_of(code *c, value x)
{
    value a = absolute(c, x), e = exp_shifted(c, a, -1);
    value t = expm1_of(c, at_most(c, a, 2));
    value small = MUL(FLOAT(0.5f), ADD(t, DIV(t, ADD(t, FLOAT(1)))));
    value big = SUB(e, DIV(FLOAT(0.25f), e));

    return copy_sign(c, SELECT(COMPARE(a, LT, FLOAT(1)), small, big), x);
}

static value cosh_of(code *c, value x)
{
    value e = exp_shifted(c, absolute(c, x), -1);

    return ADD(e, DIV(FLOAT(0.25f), e));
}

static value tanh_of(code *c, value x)
{
    value a = absolute(c, x), s = MUL(x, x), bounded = at_most(c, a, 10);
    value q = HORNER(s, -0x1.76abf6p-8f, 0x1.5256cep-6f, -0x1.b84448p-5f,
                     0x1.110768p-3f, -0x1.555534p-2f);
    value small = FMA(MUL(q, s), x, x);
    value power = exp_normal(c, ADD(bounded, bounded));
    value big = SUB(FLOAT(1), DIV(FLOAT(2), ADD(power, FLOAT(1))));

    return copy_sign(c, SELECT(COMPARE(a, GE, FLOAT(0.625f)), big, small), x);
}

static value sigmoid_of(code *c, value x)
{
    value e = exponential(c, negative(c, absolute(c, x)));
    value above = SELECT(COMPARE(x, LT, FLOAT(0)), e, FLOAT(1));

    return DIV(above, ADD(FLOAT(1), e));
}

/* ---------------------------------------------------------- logarithms -- */

static value split_log(code *c, value x, value *e)
{
    value tiny = COMPARE(x, LT, FLOAT(0x1p-126f));
    value bits = SELECT(tiny, MUL(x, FLOAT(0x1p23f)), x);
    value n = vector_shift(c, VECTOR_SHIFT_SIGN,
                           INT_SUB(bits, BITS(UINT32_C(0x3f2aaaab))), 23);

    *e = SUB(vector_1(c, VECTOR_FLOAT_OF_INT, n),
             SELECT(tiny, FLOAT(23), FLOAT(0)));
    return SUB(INT_SUB(bits, LEFT(n, 23)), FLOAT(1));
}

static value log_tail(code *c, value f)
{
    value s = MUL(f, f);
    value q = HORNER(f, -0x1.08051ep-3f, 0x1.1e66e2p-3f, -0x1.f3116ap-4f,
                     0x1.1ed70ep-3f, -0x1.559dcap-3f, 0x1.99d028p-3f,
                     -0x1.fffefp-3f, 0x1.555506p-2f);

    return FMA(MUL(q, f), s, MUL(FLOAT(-0.5f), s));
}

static value log_special(code *c, value x, value result)
{
    result = SELECT(COMPARE(x, GT, FLOAT(0x1.fffffep127f)), x, result);
    result = SELECT(COMPARE(x, EQ, FLOAT(0)), FLOAT(-__builtin_inff()), result);
    result =
        SELECT(COMPARE(x, LT, FLOAT(0)), FLOAT(__builtin_nanf("")), result);
    return SELECT(COMPARE(x, UNORDERED, x), FLOAT(__builtin_nanf("")), result);
}

static value log_of(code *c, value x)
{
    value e, f = split_log(c, x, &e);
    value tail = FMA(e, FLOAT(LN2_LOW), log_tail(c, f));

    return log_special(c, x, FMA(e, FLOAT(LN2_HIGH), ADD(tail, f)));
}

static value log2_of(code *c, value x)
{
    value e, f = split_log(c, x, &e);
    value l = ADD(log_tail(c, f), f);

    return log_special(c, x, ADD(FMA(l, FLOAT(0x1.c551d8p-2f), l), e));
}

static value log10_of(code *c, value x)
{
    value e, f = split_log(c, x, &e);
    value l = ADD(log_tail(c, f), f);
    value low = FMA(l, FLOAT(0x1.bcb7b2p-2f), MUL(e, FLOAT(0x1.3509f8p-18f)));

    return log_special(c, x, FMA(e, FLOAT(0x1.344p-2f), low));
}

static value log1p_of(code *c, value x)
{
    value u = ADD(FLOAT(1), x);
    value rest = DIV(SUB(x, SUB(u, FLOAT(1))), u);
    value e, f = split_log(c, u, &e);
    value tail = FMA(e, FLOAT(LN2_LOW), ADD(log_tail(c, f), rest));
    value l = FMA(e, FLOAT(LN2_HIGH), ADD(tail, f));

    return SELECT(COMPARE(x, EQ, FLOAT(0)), x, log_special(c, u, l));
}

/* --------------------------------------------------------------- errors -- */

static value erf_of(code *c, value x)
{
    value a = absolute(c, x), s = MUL(x, x), t = at_most(c, a, 4);
    value p = HORNER(s, 0x1.496a28p-14f, -0x1.a3f6fcp-11f, 0x1.5405b2p-8f,
                     -0x1.b7f90cp-6f, 0x1.ce2cf8p-4f, -0x1.81273ep-2f,
                     0x1.06eba8p-3f);
    value q =
        HORNER(t, -0x1.87b378p-13f, 0x1.82e8cp-9f, -0x1.66181cp-6f,
               0x1.a67e88p-4f, 0x1.46b432p-1f, 0x1.208b1ap0f, 0x1.5cd7bep-12f);
    value small = FMA(p, x, x);
    value big = SUB(FLOAT(1), exp_normal(c, negative(c, q)));

    return SELECT(COMPARE(a, GE, FLOAT(1)), copy_sign(c, big, x), small);
}

static value half_power(code *c, value x, int extra)
{
    value rounder = FLOAT(ROUNDER + (float)(127 - extra));
    value shifted = SUB(rounder, x);
    value r = ADD(SUB(shifted, rounder), x), s = MUL(r, r);
    value power = LEFT(shifted, 23);
    value low = FMA(r, FLOAT(0x1.ebfbe2p-3f), FLOAT(-0x1.62e432p-1f));
    value middle = FMA(r, FLOAT(0x1.3b270ep-7f), FLOAT(-0x1.c6ae72p-5f));
    value high = FMA(r, FLOAT(0x1.470c02p-13f), FLOAT(-0x1.5f72aap-10f));

    middle = FMA(high, s, middle);
    low = FMA(middle, s, low);
    return FMA(MUL(power, r), low, power);
}

static value normal_area(code *c, value x)
{
    value t = at_most(c, absolute(c, x), 11.135f), s = MUL(t, t);
    value s2 = MUL(s, s);
    value a = FMA(t, FLOAT(0x1.d63de8p-2f), FLOAT(0x1.26aec6p0f));
    value b = FMA(t, FLOAT(-0x1.c69580p-8f), FLOAT(0x1.ad9356p-5f));
    value d = FMA(t, FLOAT(0x1.2ecbbep-12f), FLOAT(-0x1.d24434p-17f));
    value e = FMA(t, FLOAT(0x1.851296p-17f), FLOAT(-0x1.4e39f6p-14f));
    value f = FMA(t, FLOAT(0x1.0d5f9p-25f), FLOAT(-0x1.eed2e4p-21f));
    value area;

    a = FMA(b, s, a);
    d = FMA(e, s, d);
    d = FMA(f, s2, d);
    area = half_power(c, MUL(FMA(d, s2, a), t), 1);
    return SELECT(COMPARE(x, LT, FLOAT(0)), area, SUB(FLOAT(1), area));
}

static value gelu_of(code *c, value x)
{
    return MUL(x, normal_area(c, x));
}

static value gelu_tanh_of(code *c, value x)
{
    value w =
        MUL(x, FMA(MUL(x, x), FLOAT(0x1.a5a7dp-4f), FLOAT(0x1.26aec2p1f)));

    w = at_least(c, at_most(c, w, 126), -128.25f);
    return DIV(x, ADD(FLOAT(1), half_power(c, w, 0)));
}

static value gelu_slope(code *c, value x)
{
    value area = normal_area(c, x);
    value square = MUL(MUL(FLOAT(-0.5f), x), x);
    value density =
        MUL(FLOAT((float)0.3989422804014327), exponential(c, square));

    return ADD(area, MUL(x, density));
}

static value gelu_tanh_slope(code *c, value x)
{
    value factor = FLOAT((float)0.7978845608028654), half = FLOAT(0.5f);
    value cube = MUL(MUL(MUL(FLOAT((float)0.044715), x), x), x);
    value t = tanh_of(c, MUL(factor, ADD(x, cube)));
    value square = MUL(MUL(FLOAT((float)0.134145), x), x);
    value inner = MUL(factor, ADD(FLOAT(1), square));
    value left = MUL(half, ADD(FLOAT(1), t));
    value right = MUL(MUL(half, x), SUB(FLOAT(1), MUL(t, t)));

    return ADD(left, MUL(right, inner));
}

vector_value vector_round_bf16(vector_code *c, vector_value x)
{
    value last = AND(RIGHT(x, 16), BITS(1));
    value rounded = INT_ADD(INT_ADD(x, BITS(0x7fff)), last);
    value nan = OR(x, BITS(0x400000));

    return AND(SELECT(COMPARE(x, UNORDERED, x), nan, rounded),
               BITS(UINT32_C(0xffff0000)));
}

vector_function *vector_function_of(const char *name)
{
    static const struct {
        const char *name;
        vector_function *function;
    } functions[] = {
        {"erf", erf_of},
        {"exp", exponential},
        {"exp2", exp2_of},
        {"expm1", expm1_of},
        {"cosh", cosh_of},
        {"gelu", gelu_of},
        {"gelu_tanh", gelu_tanh_of},
        /* Their product with the other argument is the operator. */
        {"gelu_backward", gelu_slope},
        {"gelu_backward_tanh", gelu_tanh_slope},
        {"log", log_of},
        {"log10", log10_of},
        {"log1p", log1p_of},
        {"log2", log2_of},
        {"sigmoid", sigmoid_of},
        {"sinh", sinh_of},
        {"tanh", tanh_of},
    };

    for (uint32_t k = 0; k < sizeof functions / sizeof *functions; k++)
        if (strcmp(functions[k].name, name) == 0)
            return functions[k].function;
    return NULL;
}
