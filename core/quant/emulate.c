/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Conversions between f32 and eight bits where a device has no kernel for them:
 * by operators on integers that any device has, and by the same bits. */

#include "base/error.h"
#include "quant/quantizer.h"
#include "tensor/float8.h"
#include "tensor/tensor.h"

#include <libcore/ops.h>

/* Of the dtype: bits of the mantissa, bias of the exponent, and the code of
 * what is too large. */
typedef struct layout {
    int bits;
    int bias;
    int beyond;
} layout;

/* Tensors on the way, and the first error; after it nothing is done. */
typedef struct scope {
    core_status status;
    size_t count;
    core_tensor *kept[32];
} scope;

static core_tensor *keep(scope *s, core_status status,
                         core_tensor *const *result)
{
    s->status = status;
    if (status == CORE_OK)
        s->kept[s->count++] = *result;
    return *result;
}

/* An operator of x and what follows. */
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
        core_tensor_release(s->kept[--s->count]);
}

/* The same memory read as another dtype of the same size. */
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

static core_tensor *to(scope *s, core_tensor *x, core_dtype dtype)
{
    core_tensor *y;

    STEP(s, y, core_to, x, dtype, NULL, false, false, -1);
    return y;
}

static core_tensor *with(scope *s,
                         core_status (*op)(core_tensor *, core_scalar,
                                           core_tensor **),
                         core_tensor *x, int64_t number)
{
    core_tensor *y = NULL;

    if (s->status != CORE_OK)
        return NULL;
    return keep(s, op(x, core_int(number), &y), &y);
}

static core_tensor *plus(scope *s, core_tensor *x, int64_t number)
{
    core_tensor *y;

    STEP(s, y, core_add_scalar, x, core_int(number), core_int(1));
    return y;
}

static core_tensor *sum(scope *s, core_tensor *x, core_tensor *other)
{
    core_tensor *y;

    STEP(s, y, core_add, x, other, core_int(1));
    return y;
}

/* ------------------------------------------------------------- to eight -- */

/* Numbers as large as the dtype's least normal one: the mantissa is cut where
 * the sum of half a unit, less one unless the last bit is odd, has carried. */
static core_tensor *of_normals(scope *s, core_tensor *magnitude, layout l)
{
    const int cut = 23 - l.bits;
    core_tensor *odd, *code;

    odd = with(s, core_bitwise_right_shift_scalar, magnitude, cut);
    odd = with(s, core_bitwise_and_scalar, odd, 1);
    code = plus(s, sum(s, magnitude, odd), (1 << (cut - 1)) - 1);
    code = with(s, core_bitwise_right_shift_scalar, code, cut);
    return plus(s, code, -((127 - l.bias) << l.bits));
}

/* And below: so many of its least numbers, to the nearest even. */
static core_tensor *of_others(scope *s, core_tensor *x, layout l)
{
    const core_scalar most = core_int(1 << l.bits);
    core_tensor *y = NULL, *z;

    if (s->status == CORE_OK)
        keep(s, core_abs(x, &y), &y);
    STEP(s, z, core_mul_scalar, y,
         core_float((double)(1 << (l.bias - 1)) * (1 << l.bits)));
    y = NULL;
    if (s->status == CORE_OK)
        keep(s, core_clamp(z, NULL, &most, &y), &y);
    z = NULL;
    if (s->status == CORE_OK)
        keep(s, core_round(y, &z), &z);
    return to(s, z, CORE_I32);
}

static core_tensor *codes_of(scope *s, core_tensor *x, layout l)
{
    core_tensor *bits, *magnitude, *sign, *large, *normal, *other, *code = NULL;
    const core_scalar most = core_int(l.beyond);
    core_tensor *number = NULL, *cut = NULL;

    bits = relabel(s, x, CORE_I32);
    magnitude = with(s, core_bitwise_and_scalar, bits, 0x7fffffff);
    sign = with(s, core_bitwise_right_shift_scalar, bits, 24);
    sign = with(s, core_bitwise_and_scalar, sign, 0x80);
    normal = of_normals(s, magnitude, l);
    other = of_others(s, x, l);
    large = with(s, core_ge_scalar, magnitude, (int64_t)(128 - l.bias) << 23);
    STEP(s, code, core_where, large, normal, other);
    if (s->status == CORE_OK)
        keep(s, core_clamp(code, NULL, &most, &cut), &cut);
    /* No number is beyond infinity. */
    large = with(s, core_gt_scalar, magnitude, 0x7f800000);
    STEP(s, number, core_masked_fill, cut, large, core_int(0x7f));
    return sum(s, number, sign);
}

core_status core__float8_emulate_narrow(core_tensor *tensor, core_dtype dtype,
                                        core_tensor **out_tensor)
{
    const layout l =
        dtype == CORE_F8E4M3 ? (layout){3, 7, 0x7f} : (layout){2, 15, 0x7c};
    scope s = {CORE_OK, 0, {NULL}};
    core_tensor *y;

    *out_tensor = NULL;
    if (core_tensor_dtype(tensor) != CORE_F32)
        STEP(&s, tensor, core_to, tensor, CORE_F32, NULL, false, false, -1);
    y = relabel(&s, to(&s, codes_of(&s, tensor, l), CORE_U8), dtype);
    if (s.status == CORE_OK)
        *out_tensor = core_tensor_retain(y);
    end(&s);
    return s.status;
}

/* ----------------------------------------------------------- from eight -- */

core_status core__float8_emulate_widen(core_tensor *data,
                                       core_tensor **out_tensor)
{
    const int64_t codes = 256, numel = core_tensor_numel(data);
    scope s = {CORE_OK, 0, {NULL}};
    core_tensor *table = NULL, *y, *z;
    float numbers[256];

    *out_tensor = NULL;
    for (int i = 0; i < codes; i++)
        numbers[i] = (float)core__f8_to_f64(data->dtype, (uint8_t)i);
    y = to(&s, relabel(&s, data, CORE_U8), CORE_I64);
    STEP(&s, z, core_reshape, y, &numel, 1);
    if (s.status == CORE_OK)
        keep(&s,
             core_tensor_from_data(numbers, CORE_F32, &codes, 1,
                                   core_tensor_device(data), &table),
             &table);
    STEP(&s, y, core_index_select, table, 0, z);
    STEP(&s, z, core_reshape, y, data->sizes, data->ndim);
    if (s.status == CORE_OK)
        *out_tensor = core_tensor_retain(z);
    end(&s);
    return s.status;
}
