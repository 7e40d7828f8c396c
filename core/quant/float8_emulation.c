/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Conversions to and from float8 for devices without a kernel for them,
 * composed of integer operators that every device has; the results are
 * bit-identical to the kernels'. Nothing here waits or uploads data, so it can
 * be captured. */

#include "base/error.h"
#include "quant/quantizer.h"
#include "tensor/tensor.h"

#include <libcore/ops.h>

#include <math.h>

/* A float8 layout: mantissa bits, exponent bias, and the code for values beyond
 * the largest number. */
typedef struct layout {
    int bits;
    int bias;
    int overflow_code;
} layout;

static layout layout_of(core_dtype dtype)
{
    return dtype == CORE_F8E4M3 ? (layout){3, 7, 0x7f} : (layout){2, 15, 0x7c};
}

/* Intermediate tensors and the first error; after an error nothing is
 * computed. */
typedef struct scope {
    core_status status;
    size_t count;
    core_tensor *owned[48];
} scope;

static core_tensor *keep(scope *s, core_status status,
                         core_tensor *const *result)
{
    s->status = status;
    if (status == CORE_OK)
        s->owned[s->count++] = *result;
    return *result;
}

/* Calls an operator on x and further arguments. */
#define STEP(s, out, op, x, ...)                             \
    do {                                                     \
        core_tensor *made_ = NULL;                           \
        if ((s)->status == CORE_OK)                          \
            keep((s), op((x), __VA_ARGS__, &made_), &made_); \
        (out) = made_;                                       \
    } while (0)

static void end(scope *s)
{
    while (s->count > 0)
        core_tensor_release(s->owned[--s->count]);
}

/* The same memory viewed as another dtype of the same size. */
static core_tensor *relabel(scope *s, core_tensor *x, core_dtype dtype)
{
    core_tensor *y = NULL;

    if (s->status != CORE_OK)
        return NULL;
    return keep(s,
                core__tensor_alias(x, dtype, core_tensor_ndim(x), x->sizes,
                                   x->strides, x->offset, &y),
                &y);
}

static core_tensor *cast(scope *s, core_tensor *x, core_dtype dtype)
{
    core_tensor *y;

    STEP(s, y, core_to, x, dtype, NULL, false, false, -1);
    return y;
}

static core_tensor *int_scalar_op(scope *s,
                                  core_status (*op)(core_tensor *, core_scalar,
                                                    core_tensor **),
                                  core_tensor *x, int64_t number)
{
    core_tensor *y = NULL;

    if (s->status != CORE_OK)
        return NULL;
    return keep(s, op(x, core_int(number), &y), &y);
}

static core_tensor *float_scalar_op(
    scope *s, core_status (*op)(core_tensor *, core_scalar, core_tensor **),
    core_tensor *x, double by)
{
    core_tensor *y = NULL;

    if (s->status != CORE_OK)
        return NULL;
    return keep(s, op(x, core_float(by), &y), &y);
}

static core_tensor *unary(scope *s,
                          core_status (*op)(core_tensor *, core_tensor **),
                          core_tensor *x)
{
    core_tensor *y = NULL;

    if (s->status != CORE_OK)
        return NULL;
    return keep(s, op(x, &y), &y);
}

static core_tensor *where(scope *s, core_tensor *which, core_tensor *x,
                          core_tensor *other)
{
    core_tensor *y;

    STEP(s, y, core_where, which, x, other);
    return y;
}

static core_tensor *add_int(scope *s, core_tensor *x, int64_t number)
{
    core_tensor *y;

    STEP(s, y, core_add_scalar, x, core_int(number), core_int(1));
    return y;
}

static core_tensor *add(scope *s, core_tensor *x, core_tensor *other)
{
    core_tensor *y;

    STEP(s, y, core_add, x, other, core_int(1));
    return y;
}

/* ------------------------------------------------------------- to float8 -- */

/* Rounds values in the dtype's normal range to the nearest even: adds half a
 * unit in the last place less one (plus one if the last bit is odd) and cuts
 * the mantissa. */
static core_tensor *round_normals(scope *s, core_tensor *magnitude, layout l)
{
    const int cut = 23 - l.bits;
    core_tensor *odd, *code;

    odd = int_scalar_op(s, core_bitwise_right_shift_scalar, magnitude, cut);
    odd = int_scalar_op(s, core_bitwise_and_scalar, odd, 1);
    code = add_int(s, add(s, magnitude, odd), (1 << (cut - 1)) - 1);
    code = int_scalar_op(s, core_bitwise_right_shift_scalar, code, cut);
    return add_int(s, code, -((127 - l.bias) << l.bits));
}

/* Clamps from above. */
static core_tensor *clamp_max(scope *s, core_tensor *x, int64_t number)
{
    const core_scalar most = core_int(number);
    core_tensor *y = NULL;

    if (s->status != CORE_OK)
        return NULL;
    return keep(s, core_clamp(x, NULL, &most, &y), &y);
}

/* Scales to units of the dtype's least number, clamped to the normal range. */
static core_tensor *subnormal_units(scope *s, core_tensor *x, layout l)
{
    double scale = (double)(1 << (l.bias - 1)) * (1 << l.bits);
    core_tensor *y;

    y = float_scalar_op(s, core_mul_scalar, unary(s, core_abs, x), scale);
    return clamp_max(s, y, 1 << l.bits);
}

/* Rounds values in the subnormal range to a multiple of the dtype's least
 * number, ties to even. */
static core_tensor *round_subnormals(scope *s, core_tensor *x, layout l)
{
    return cast(s, unary(s, core_round, subnormal_units(s, x, l)), CORE_I32);
}

static core_tensor *magnitude_of(scope *s, core_tensor *bits)
{
    return int_scalar_op(s, core_bitwise_and_scalar, bits, 0x7fffffff);
}

/* Replaces codes of NaN and adds the sign. */
static core_tensor *set_nan_and_sign(scope *s, core_tensor *code,
                                     core_tensor *bits)
{
    core_tensor *large, *sign, *y;

    large = int_scalar_op(s, core_gt_scalar, magnitude_of(s, bits), 0x7f800000);
    STEP(s, y, core_masked_fill, code, large, core_int(0x7f));
    sign = int_scalar_op(s, core_bitwise_right_shift_scalar, bits, 24);
    return add(s, y, int_scalar_op(s, core_bitwise_and_scalar, sign, 0x80));
}

static core_tensor *encode(scope *s, core_tensor *x, layout l)
{
    core_tensor *bits = relabel(s, x, CORE_I32), *large, *code;
    core_tensor *magnitude = magnitude_of(s, bits);

    large = int_scalar_op(s, core_ge_scalar, magnitude,
                          (int64_t)(128 - l.bias) << 23);
    code = where(s, large, round_normals(s, magnitude, l),
                 round_subnormals(s, x, l));
    return set_nan_and_sign(s, clamp_max(s, code, l.overflow_code), bits);
}

/* Rounds f64 to f32 "to odd": an inexact result gets the last bit 1, so that a
 * second rounding gives the same result as rounding once. */
static core_tensor *round_to_odd(scope *s, core_tensor *x)
{
    core_tensor *y = cast(s, x, CORE_F32), *back = cast(s, y, CORE_F64);
    core_tensor *bits = relabel(s, y, CORE_I32), *further, *inexact, *less;

    STEP(s, further, core_gt, unary(s, core_abs, back), unary(s, core_abs, x));
    STEP(s, inexact, core_ne, back, x);
    STEP(s, less, core_sub, bits, cast(s, further, CORE_I32), core_int(1));
    less = int_scalar_op(s, core_bitwise_or_scalar, less, 1);
    return relabel(s, where(s, inexact, less, bits), CORE_F32);
}

/* Converts to f32 exactly, or as precisely as float8 can distinguish. */
static core_tensor *to_f32(scope *s, core_tensor *x)
{
    /* Beyond the range of float8, and exact in f32. */
    const core_scalar least = core_int(-(1 << 20)), most = core_int(1 << 20);
    core_tensor *y = NULL;

    switch (core_tensor_dtype(x)) {
    case CORE_F64:
        return round_to_odd(s, x);
    case CORE_I64:
    case CORE_I32:
        keep(s, core_clamp(x, &least, &most, &y), &y);
        return cast(s, y, CORE_F32);
    default:
        return cast(s, x, CORE_F32);
    }
}

static core_status scope_result(scope *s, core_tensor *y,
                                core_tensor **out_tensor)
{
    core_status status = s->status;

    *out_tensor = status == CORE_OK ? core_tensor_retain(y) : NULL;
    end(s);
    return status;
}

core_status core__float8_emulate_encode(core_tensor *tensor, core_dtype dtype,
                                        core_tensor **out_tensor)
{
    scope s = {CORE_OK, 0, {NULL}};
    core_tensor *y = encode(&s, to_f32(&s, tensor), layout_of(dtype));

    return scope_result(&s, relabel(&s, cast(&s, y, CORE_U8), dtype),
                        out_tensor);
}

/* --------------------------------------------------- stochastic rounding -- */

/* The truncated code and the truncated part as a fraction of 2^32: for normal
 * numbers, and for the others. */
static core_tensor *truncate_normals(scope *s, core_tensor *magnitude, layout l,
                                     core_tensor **out_share)
{
    const int cut = 23 - l.bits;
    core_tensor *rest, *code;

    rest = int_scalar_op(s, core_bitwise_and_scalar, magnitude, (1 << cut) - 1);
    *out_share = int_scalar_op(s, core_mul_scalar, cast(s, rest, CORE_I64),
                               INT64_C(1) << (32 - cut));
    code = int_scalar_op(s, core_bitwise_right_shift_scalar, magnitude, cut);
    return add_int(s, code, -((127 - l.bias) << l.bits));
}

static core_tensor *truncate_subnormals(scope *s, core_tensor *x, layout l,
                                        core_tensor **out_share)
{
    core_tensor *y = subnormal_units(s, x, l),
                *integer = unary(s, core_trunc, y), *rest;

    STEP(s, rest, core_sub, y, integer, core_int(1));
    *out_share =
        cast(s, float_scalar_op(s, core_mul_scalar, rest, 0x1p32), CORE_I64);
    return cast(s, integer, CORE_I32);
}

core_status core__float8_emulate_stochastic(core_tensor *tensor,
                                            core_dtype dtype, bool saturate,
                                            core_generator *generator,
                                            core_tensor **out_tensor)
{
    const int64_t range = INT64_C(1) << 32;
    const layout l = layout_of(dtype);
    scope s = {CORE_OK, 0, {NULL}};
    core_tensor *x = cast(&s, tensor, CORE_F32), *bits, *large, *code, *drawn;
    core_tensor *shares[2] = {NULL, NULL}, *magnitude, *up;
    int64_t most = dtype == CORE_F8E4M3 ? 0x7e : 0x7b;

    bits = relabel(&s, x, CORE_I32);
    magnitude = magnitude_of(&s, bits);
    large = int_scalar_op(&s, core_ge_scalar, magnitude,
                          (int64_t)(128 - l.bias) << 23);
    code = truncate_normals(&s, magnitude, l, &shares[0]);
    code = where(&s, large, code, truncate_subnormals(&s, x, l, &shares[1]));
    STEP(&s, drawn, core_empty_like, shares[0], CORE_I64, NULL,
         CORE_FORMAT_CONTIGUOUS);
    /* One 32-bit number per element, as the kernels draw them. */
    if (s.status == CORE_OK)
        s.status = core_random_from_(drawn, 0, &range, generator);
    STEP(&s, up, core_lt, drawn, where(&s, large, shares[0], shares[1]));
    code = add(&s, code, cast(&s, up, CORE_I32));
    code = set_nan_and_sign(&s, clamp_max(&s, code, saturate ? most : most + 1),
                            bits);
    return scope_result(&s, relabel(&s, cast(&s, code, CORE_U8), dtype),
                        out_tensor);
}

/* ----------------------------------------------------------- from float8 -- */

core_status core__float8_emulate_decode(core_tensor *data,
                                        core_tensor **out_tensor)
{
    const core_dtype dtype = core_tensor_dtype(data);
    const layout l = layout_of(dtype);
    scope s = {CORE_OK, 0, {NULL}};
    core_tensor *code, *size, *y, *z;

    code = cast(&s, relabel(&s, data, CORE_U8), CORE_I32);
    size = int_scalar_op(&s, core_bitwise_and_scalar, code, 0x7f);
    y = int_scalar_op(&s, core_mul_scalar, size, 1 << (23 - l.bits));
    y = relabel(&s, add_int(&s, y, (int64_t)(127 - l.bias) << 23), CORE_F32);
    /* An exponent of 0 means a multiple of the dtype's least number. */
    z = float_scalar_op(&s, core_mul_scalar, cast(&s, size, CORE_F32),
                        1 / ((double)(1 << (l.bias - 1)) * (1 << l.bits)));
    y = where(&s, int_scalar_op(&s, core_lt_scalar, size, 1 << l.bits), z, y);
    if (dtype == CORE_F8E5M2) {
        z = int_scalar_op(&s, core_eq_scalar, size, l.overflow_code);
        STEP(&s, y, core_masked_fill, y, z, core_float(INFINITY));
    }
    z = int_scalar_op(&s, core_gt_scalar, size,
                      dtype == CORE_F8E5M2 ? l.overflow_code : 0x7e);
    STEP(&s, y, core_masked_fill, y, z, core_float(NAN));
    z = int_scalar_op(&s, core_gt_scalar, code, 0x7f);
    return scope_result(&s, where(&s, z, unary(&s, core_neg, y), y),
                        out_tensor);
}
