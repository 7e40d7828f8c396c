/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "oracle.h"

#include "element_value.h"
#include "value_groups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef long double wide;

/* Computes one element from up to three operands. */
typedef wide (*element)(wide a, wide b, wide c);

#define ELEMENT(name, expression)                 \
    static wide do_##name(wide a, wide b, wide c) \
    {                                             \
        (void)a;                                  \
        (void)b;                                  \
        (void)c;                                  \
        return expression;                        \
    }

static wide larger(wide a, wide b)
{
    return isnan(a) || isnan(b) ? (wide)NAN : a > b ? a : b;
}

static wide smaller(wide a, wide b)
{
    return isnan(a) || isnan(b) ? (wide)NAN : a < b ? a : b;
}

ELEMENT(abs, fabsl(a))
ELEMENT(neg, -a)
ELEMENT(exp, expl(a))
ELEMENT(exp2, exp2l(a))
ELEMENT(expm1, expm1l(a))
ELEMENT(log, logl(a))
ELEMENT(log2, log2l(a))
ELEMENT(log10, log10l(a))
ELEMENT(log1p, log1pl(a))
ELEMENT(sin, sinl(a))
ELEMENT(cos, cosl(a))
ELEMENT(tan, tanl(a))
ELEMENT(asin, asinl(a))
ELEMENT(acos, acosl(a))
ELEMENT(atan, atanl(a))
ELEMENT(sinh, sinhl(a))
ELEMENT(cosh, coshl(a))
ELEMENT(tanh, tanhl(a))
ELEMENT(asinh, asinhl(a))
ELEMENT(acosh, acoshl(a))
ELEMENT(atanh, atanhl(a))
ELEMENT(erf, erfl(a))
ELEMENT(erfc, erfcl(a))
ELEMENT(sqrt, sqrtl(a))
ELEMENT(rsqrt, 1 / sqrtl(a))
ELEMENT(reciprocal, 1 / a)
ELEMENT(sigmoid, 1 / (1 + expl(-a)))
ELEMENT(relu, isnan(a) ? a : a > 0 ? a : 0)
ELEMENT(ceil, ceill(a))
ELEMENT(floor, floorl(a))
ELEMENT(trunc, truncl(a))
ELEMENT(round, nearbyintl(a))
ELEMENT(silu, a / (1 + expl(-a)))
ELEMENT(deg2rad, a * 0.017453292519943295769L)
ELEMENT(rad2deg, a * 57.29577951308232087680L)
ELEMENT(isnan, isnan(a) ? 1 : 0)
ELEMENT(isinf, isinf(a) ? 1 : 0)
ELEMENT(isposinf, isinf(a) && a > 0 ? 1 : 0)
ELEMENT(isneginf, isinf(a) && a < 0 ? 1 : 0)
ELEMENT(signbit, signbit(a) ? 1 : 0)
ELEMENT(sign, isnan(a) ? 0 : (wide)((a > 0) - (a < 0)))
ELEMENT(add, a + b)
ELEMENT(sub, a - b)
ELEMENT(rsub, b - a)
ELEMENT(mul, a *b)
ELEMENT(div, a / b)
ELEMENT(maximum, larger(a, b))
ELEMENT(minimum, smaller(a, b))
ELEMENT(fmax, fmaxl(a, b))
ELEMENT(fmin, fminl(a, b))
ELEMENT(fmod, fmodl(a, b))
ELEMENT(atan2, atan2l(a, b))
ELEMENT(hypot, hypotl(a, b))
ELEMENT(pow, powl(a, b))
ELEMENT(copysign, copysignl(a, b))
ELEMENT(eq, a == b)
ELEMENT(ne, a != b)
ELEMENT(lt, a < b)
ELEMENT(le, a <= b)
ELEMENT(gt, a > b)
ELEMENT(ge, a >= b)
ELEMENT(and, a != 0 && b != 0)
ELEMENT(or, a != 0 || b != 0)
ELEMENT(xor, (a != 0) != (b != 0))
ELEMENT(not, a == 0)
ELEMENT(band, (wide)((int64_t)a &(int64_t)b))
ELEMENT(bor, (wide)((int64_t)a | (int64_t)b))
ELEMENT(bxor, (wide)((int64_t)a ^ (int64_t)b))
ELEMENT(where, a != 0 ? b : c)

enum {
    RELATIVE = 1, /* correct to a few units of each result */
    EXACT = 2,
    SPECIAL = 4,      /* also for NaN, infinities and zeros */
    ALPHA = 8,        /* b is multiplied by the argument that follows */
    ALPHA_FIRST = 16, /* a is */
    ZEROS = 32,       /* signs of zeros are defined */
};

static const struct {
    const char *name;
    element function;
    uint32_t operands;
    uint32_t flags;
} elements[] = {
    {"abs", do_abs, 1, EXACT | SPECIAL | ZEROS},
    {"neg", do_neg, 1, EXACT | SPECIAL | ZEROS},
    {"exp", do_exp, 1, RELATIVE | SPECIAL},
    {"exp2", do_exp2, 1, RELATIVE | SPECIAL},
    {"expm1", do_expm1, 1, RELATIVE | SPECIAL},
    {"log", do_log, 1, RELATIVE | SPECIAL},
    {"log2", do_log2, 1, RELATIVE | SPECIAL},
    {"log10", do_log10, 1, RELATIVE | SPECIAL},
    {"log1p", do_log1p, 1, RELATIVE | SPECIAL},
    {"sin", do_sin, 1, RELATIVE},
    {"cos", do_cos, 1, 0},
    {"tan", do_tan, 1, RELATIVE},
    {"asin", do_asin, 1, RELATIVE},
    {"acos", do_acos, 1, RELATIVE},
    {"atan", do_atan, 1, RELATIVE | SPECIAL},
    {"sinh", do_sinh, 1, RELATIVE},
    {"cosh", do_cosh, 1, RELATIVE},
    {"tanh", do_tanh, 1, RELATIVE | SPECIAL},
    {"asinh", do_asinh, 1, RELATIVE},
    {"acosh", do_acosh, 1, RELATIVE},
    {"atanh", do_atanh, 1, RELATIVE},
    {"erf", do_erf, 1, RELATIVE | SPECIAL},
    {"erfc", do_erfc, 1, RELATIVE},
    {"sqrt", do_sqrt, 1, RELATIVE | SPECIAL | ZEROS},
    {"rsqrt", do_rsqrt, 1, RELATIVE | SPECIAL},
    {"reciprocal", do_reciprocal, 1, RELATIVE | SPECIAL | ZEROS},
    {"sigmoid", do_sigmoid, 1, RELATIVE | SPECIAL},
    {"relu", do_relu, 1, EXACT | SPECIAL},
    {"ceil", do_ceil, 1, EXACT | SPECIAL | ZEROS},
    {"floor", do_floor, 1, EXACT | SPECIAL | ZEROS},
    {"trunc", do_trunc, 1, EXACT | SPECIAL | ZEROS},
    {"round", do_round, 1, EXACT | SPECIAL | ZEROS},
    {"silu", do_silu, 1, RELATIVE},
    {"deg2rad", do_deg2rad, 1, RELATIVE},
    {"rad2deg", do_rad2deg, 1, RELATIVE},
    {"isnan", do_isnan, 1, EXACT | SPECIAL},
    {"isinf", do_isinf, 1, EXACT | SPECIAL},
    {"isposinf", do_isposinf, 1, EXACT | SPECIAL},
    {"isneginf", do_isneginf, 1, EXACT | SPECIAL},
    {"signbit", do_signbit, 1, EXACT | SPECIAL},
    {"sign", do_sign, 1, EXACT | SPECIAL},
    {"add.Tensor", do_add, 2, ALPHA | SPECIAL | ZEROS},
    {"sub.Tensor", do_sub, 2, ALPHA | SPECIAL | ZEROS},
    {"rsub.Tensor", do_rsub, 2, ALPHA_FIRST},
    {"mul.Tensor", do_mul, 2, RELATIVE | SPECIAL | ZEROS},
    {"div.Tensor", do_div, 2, RELATIVE | SPECIAL | ZEROS},
    {"maximum", do_maximum, 2, EXACT | SPECIAL},
    {"minimum", do_minimum, 2, EXACT | SPECIAL},
    {"fmax", do_fmax, 2, EXACT | SPECIAL},
    {"fmin", do_fmin, 2, EXACT | SPECIAL},
    {"fmod.Tensor", do_fmod, 2, SPECIAL},
    {"atan2", do_atan2, 2, RELATIVE | SPECIAL | ZEROS},
    {"hypot", do_hypot, 2, RELATIVE | SPECIAL},
    {"pow.Tensor_Tensor", do_pow, 2, RELATIVE},
    {"copysign.Tensor", do_copysign, 2, EXACT | SPECIAL | ZEROS},
    {"eq.Tensor", do_eq, 2, EXACT | SPECIAL},
    {"ne.Tensor", do_ne, 2, EXACT | SPECIAL},
    {"lt.Tensor", do_lt, 2, EXACT | SPECIAL},
    {"le.Tensor", do_le, 2, EXACT | SPECIAL},
    {"gt.Tensor", do_gt, 2, EXACT | SPECIAL},
    {"ge.Tensor", do_ge, 2, EXACT | SPECIAL},
    {"logical_and", do_and, 2, EXACT | SPECIAL},
    {"logical_or", do_or, 2, EXACT | SPECIAL},
    {"logical_xor", do_xor, 2, EXACT | SPECIAL},
    {"logical_not", do_not, 1, EXACT | SPECIAL},
    {"bitwise_and.Tensor", do_band, 2, EXACT},
    {"bitwise_or.Tensor", do_bor, 2, EXACT},
    {"bitwise_xor.Tensor", do_bxor, 2, EXACT},
    {"where.self", do_where, 3, EXACT | SPECIAL},
};

enum { ELEMENTS = sizeof elements / sizeof *elements };

static int find_element(const char *op)
{
    for (int i = 0; i < ELEMENTS; i++)
        if (strcmp(elements[i].name, op) == 0)
            return i;
    return -1;
}

bool oracle_is_element_wise(const char *op)
{
    return find_element(op) >= 0 || value_groups_serve(op);
}

bool oracle_knows_special(const char *op)
{
    int i = find_element(op);

    return i >= 0 && (elements[i].flags & SPECIAL);
}

/* ---------------------------------------------------------- broadcasting -- */

/* The operand's value for (row-major) element i of the result. */
static wide broadcast(const operand *one, const reference *of, int64_t i)
{
    int64_t at = 0, step = 1;

    for (uint32_t d = 0; d < of->ndim[0]; d++) {
        uint32_t back = of->ndim[0] - 1 - d;
        int64_t place = i % of->sizes[0][back];

        i /= of->sizes[0][back];
        if (d >= one->ndim)
            continue;
        if (one->sizes[one->ndim - 1 - d] != 1)
            at += place * step;
        step *= one->sizes[one->ndim - 1 - d];
    }
    return (wide)one->values[at];
}

static bool element_values(const sample_call *call, reference *out)
{
    int which = find_element(core_op_name(call->op));
    wide alpha = 1;

    if (which < 0 || call->noperands != elements[which].operands ||
        out->nresults != 1)
        return false;
    if ((elements[which].flags & (ALPHA | ALPHA_FIRST)) && call->count > 2)
        alpha = call->values[2].tag == CORE_VALUE_FLOAT
                    ? (wide)call->values[2].u.f
                    : (wide)call->values[2].u.i;
    for (int64_t i = 0; i < out->numel[0]; i++) {
        wide x[3] = {0, 0, 0};

        for (uint32_t k = 0; k < call->noperands; k++)
            x[k] = broadcast(&call->operands[k], out, i);
        x[0] *= elements[which].flags & ALPHA_FIRST ? alpha : 1;
        x[1] *= elements[which].flags & ALPHA ? alpha : 1;
        out->values[0][i] = (double)elements[which].function(x[0], x[1], x[2]);
    }
    out->exact = (elements[which].flags & EXACT) != 0;
    out->relative = (elements[which].flags & RELATIVE) != 0;
    out->zeros = (elements[which].flags & ZEROS) != 0;
    return true;
}

/* ---------------------------------------------------- sums and products -- */

static bool all_values(const sample_call *call, reference *out)
{
    static const char *const names[] = {"sum",  "mean",          "prod", "max",
                                        "min",  "any",           "all",  "amax",
                                        "amin", "count_nonzero", NULL};
    const char *op = core_op_name(call->op);
    const operand *x = &call->operands[0];
    wide sum = 0, product = 1, most = -(wide)INFINITY, least = (wide)INFINITY;
    wide nonzero = 0;
    int which = 0;

    while (names[which] && strcmp(names[which], op) != 0)
        which++;
    if (!names[which] || call->noperands != 1 || call->count != 1 ||
        out->numel[0] != 1 || out->nresults != 1 ||
        (which == 2 && !core_dtype_is_floating(x->dtype))) /* it may wrap */
        return false;
    for (int64_t i = 0; i < x->numel; i++) {
        wide value = (wide)x->values[i];

        sum += value;
        product *= value;
        most = larger(most, value);
        least = smaller(least, value);
        nonzero += value != 0;
    }
    out->values[0][0] = (double)(which == 0   ? sum
                                 : which == 1 ? sum / (wide)x->numel
                                 : which == 2 ? product
                                 : which == 3 || which == 7 ? most
                                 : which == 4 || which == 8 ? least
                                 : which == 5               ? nonzero > 0
                                 : which == 6 ? nonzero == (wide)x->numel
                                              : nonzero);
    out->exact = which >= 3;
    return true;
}

/* mm, bmm: [b,] n × k, [b,] k × m. */
static bool product_values(const sample_call *call, reference *out)
{
    const char *op = core_op_name(call->op);
    const operand *a = &call->operands[0], *b = &call->operands[1];
    int64_t n, k, m;

    if ((strcmp(op, "mm") != 0 && strcmp(op, "bmm") != 0) ||
        call->noperands != 2)
        return false;
    n = a->sizes[a->ndim - 2];
    k = a->sizes[a->ndim - 1];
    m = b->sizes[b->ndim - 1];
    for (int64_t i = 0; i < out->numel[0]; i++) {
        int64_t batch = i / (n * m), row = i / m % n, column = i % m;
        wide sum = 0;

        for (int64_t j = 0; j < k; j++)
            sum += (wide)a->values[batch * n * k + row * k + j] *
                   (wide)b->values[batch * k * m + j * m + column];
        out->values[0][i] = (double)sum;
    }
    return true;
}

/* --------------------------------------------------------------- moves -- */

/* cat, index_select, flip of a vector and the like are defined by their source
 * element; these are the ones with a short rule. */
static bool cat_values(const sample_call *call, reference *out)
{
    int64_t dim, outer = 1, inner = 1, wrote = 0;

    if (strcmp(core_op_name(call->op), "cat") != 0 || call->count != 2 ||
        call->values[1].tag != CORE_VALUE_INT)
        return false;
    dim = call->values[1].u.i;
    dim += dim < 0 ? (int64_t)out->ndim[0] : 0;
    for (uint32_t d = 0; d < out->ndim[0]; d++)
        if (d < dim)
            outer *= out->sizes[0][d];
        else if (d > dim)
            inner *= out->sizes[0][d];
    for (uint32_t k = 0; k < call->noperands; k++) {
        const operand *one = &call->operands[k];
        int64_t length = one->ndim == out->ndim[0] ? one->sizes[dim] : 0;

        for (int64_t o = 0; o < outer; o++)
            for (int64_t i = 0; i < length * inner; i++)
                out->values[0][(o * out->sizes[0][dim] + wrote) * inner + i] =
                    one->values[o * length * inner + i];
        wrote += length;
    }
    return true;
}

static bool select_values(const sample_call *call, reference *out)
{
    const operand *x = &call->operands[0], *index = &call->operands[1];
    int64_t dim, outer = 1, inner = 1;

    if (strcmp(core_op_name(call->op), "index_select") != 0 || x->ndim == 0)
        return false;
    dim = call->values[1].u.i;
    dim += dim < 0 ? (int64_t)x->ndim : 0;
    for (uint32_t d = 0; d < x->ndim; d++)
        if (d < dim)
            outer *= x->sizes[d];
        else if (d > dim)
            inner *= x->sizes[d];
    for (int64_t o = 0; o < outer; o++)
        for (int64_t j = 0; j < index->numel; j++)
            for (int64_t i = 0; i < inner; i++)
                out->values[0][(o * index->numel + j) * inner + i] =
                    x->values[(o * x->sizes[dim] + (int64_t)index->values[j]) *
                                  inner +
                              i];
    return true;
}

static bool copied_values(const sample_call *call, reference *out)
{
    if (strcmp(core_op_name(call->op), "copy_") != 0 || call->noperands != 2)
        return false;
    for (int64_t i = 0; i < out->numel[0]; i++)
        out->values[0][i] = (double)broadcast(&call->operands[1], out, i);
    return true;
}

/* The largest number that is represented. */
static double largest_of(core_dtype dtype)
{
    bool is_signed = dtype != CORE_U8 && dtype != CORE_BOOL;

    if (core_dtype_is_floating(dtype))
        return dtype_largest(dtype);
    return ldexp(1, 8 * (int)core_dtype_size(dtype) - is_signed) - 1;
}

/* Tests whether arguments that are numbers are beyond those of the dtype. */
static bool exceeds(const sample_call *call)
{
    for (uint32_t i = 0; i < call->count; i++)
        if (call->values[i].tag == CORE_VALUE_INT &&
            (double)call->values[i].u.i > largest_of(call->dtype))
            return true;
    return false;
}

bool oracle_defines(const sample_call *call)
{
    int which = find_element(core_op_name(call->op));

    if (strncmp(core_op_name(call->op), "arange", 6) == 0 && exceeds(call))
        return false;
    /* Integers are scaled by integers only. */
    return which < 0 || !(elements[which].flags & (ALPHA | ALPHA_FIRST)) ||
           call->count <= 2 || core_dtype_is_floating(call->dtype) ||
           call->values[2].tag == CORE_VALUE_INT;
}

bool oracle_moves(const char *op)
{
    static const char *const names[] = {"copy_",
                                        "cat",
                                        "gather",
                                        "index_select",
                                        "flip",
                                        "roll",
                                        "take",
                                        "tril",
                                        "triu",
                                        "where.self",
                                        "index.Tensor",
                                        "embedding",
                                        "index_copy",
                                        "masked_select",
                                        "scatter.src",
                                        "constant_pad_nd",
                                        "neg",
                                        "abs",
                                        "zero_",
                                        "fill_.Scalar",
                                        "masked_fill.Scalar",
                                        "masked_fill.Tensor",
                                        "reflection_pad1d",
                                        "reflection_pad2d",
                                        "reflection_pad3d",
                                        "replication_pad1d",
                                        "replication_pad2d",
                                        "replication_pad3d",
                                        "upsample_nearest1d",
                                        "upsample_nearest2d",
                                        "upsample_nearest3d",
                                        "masked_scatter",
                                        "sort",
                                        "sort.stable",
                                        "topk",
                                        "kthvalue",
                                        "max.dim",
                                        "min.dim",
                                        "amax",
                                        "amin",
                                        "cummax",
                                        "cummin",
                                        "median",
                                        "median.dim",
                                        "nanmedian",
                                        "nanmedian.dim",
                                        "index_fill.int_Tensor",
                                        "index_fill.int_Scalar",
                                        "scatter.value",
                                        "argmax",
                                        "argmin",
                                        "nonzero"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(op, names[i]) == 0)
            return true;
    return false;
}

bool oracle_random(const char *op)
{
    static const char *const names[] = {
        "uniform_",     "normal_",        "bernoulli",  "bernoulli_.float",
        "random_.from", "native_dropout", "multinomial"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(op, names[i]) == 0)
            return true;
    return false;
}

bool oracle_scales(const char *op)
{
    int i = find_element(op);

    return i >= 0 && (elements[i].flags & (ALPHA | ALPHA_FIRST));
}

bool oracle_orders(const char *op)
{
    static const char *const names[] = {
        "amax",      "amin",     "max",          "min",    "max.dim",
        "min.dim",   "aminmax",  "cummax",       "cummin", "sort",
        "topk",      "kthvalue", "median",       "clamp",  "median.dim",
        "nanmedian", "maximum",  "nanmedian.dim"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(op, names[i]) == 0)
            return true;
    return false;
}

bool oracle_normalizes(const char *op)
{
    static const char *const names[] = {
        "_softmax",  "_log_softmax", "logsumexp",    "_logsumexp",
        "logaddexp", "logcumsumexp", "_safe_softmax"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(op, names[i]) == 0)
            return true;
    return false;
}

bool oracle_factors(const char *op)
{
    static const char *const begins[] = {"linalg_lu",
                                         "linalg_ldl",
                                         "linalg_inv",
                                         "linalg_solve",
                                         "linalg_qr",
                                         "linalg_chol",
                                         "linalg_eig",
                                         "linalg_lstsq",
                                         "linalg_householder",
                                         "linalg_matrix_exp",
                                         "linalg_pinv",
                                         "_linalg",
                                         "cholesky",
                                         "triangular_solve",
                                         "lu_",
                                         "geqrf",
                                         "ormqr"};

    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(op, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

bool oracle_values(const sample_call *call, reference *inout)
{
    if (inout->nresults == 0)
        return false;
    if (element_values(call, inout) || all_values(call, inout) ||
        product_values(call, inout))
        return true;
    if (cat_values(call, inout) || select_values(call, inout) ||
        copied_values(call, inout)) {
        inout->exact = true;
        return true;
    }
    return false;
}
