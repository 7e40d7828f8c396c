/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Resampling of images with a filter that is widened where the image shrinks,
 * so that no pixel is skipped (Heckbert, "Fundamentals of texture mapping and
 * image warping", 1989).  The filter is separable, and each dimension is a
 * product with a matrix of weights. */

#include "ops/expression.h"
#include "ops/shape.h"
#include "tensor/dtype.h"

#include <math.h>
#include <string.h>

typedef struct filter {
    const char *name; /* the part of the operator's name that selects it */
    double support;   /* it is 0 beyond this distance */
    core_tensor *(*weights)(core__scope *s, core_tensor *distance);
} filter;

/* 1 - |x| */
static core_tensor *triangle(core__scope *s, core_tensor *x)
{
    return core__x_relu(s, core__x_rsub_scalar(s, 1, core__x_abs(s, x)));
}

/* Cubic convolution with a = -1/2 (R. Keys, 1981): a polynomial on [0, 1] and
 * one on [1, 2] */
static core_tensor *cubic(core__scope *s, core_tensor *x)
{
    core_tensor *near, *far;

    x = core__x_abs(s, x);
    near = core__x_add_scalar(s, core__x_mul_scalar(s, x, 1.5), -2.5);
    near = core__x_mul(s, core__x_mul(s, near, x), x);
    near = core__x_add_scalar(s, near, 1);
    far = core__x_add_scalar(s, core__x_mul_scalar(s, x, -0.5), 2.5);
    far = core__x_add_scalar(s, core__x_mul(s, far, x), -4);
    far = core__x_add_scalar(s, core__x_mul(s, far, x), 2);
    far = core__x_zero_where(s, far,
                             CORE__DO(s, core_ge_scalar, x, core_float(2)));
    return core__x_where(s, core__x_lt_scalar(s, x, 1), near, far);
}

/* sinc(x) sinc(x / 3) */
static core_tensor *lanczos(core__scope *s, core_tensor *x)
{
    core_tensor *wide = CORE__DO(s, core_sinc, core__x_div_scalar(s, x, 3));
    core_tensor *beyond =
        CORE__DO(s, core_ge_scalar, core__x_abs(s, x), core_float(3));

    return core__x_zero_where(
        s, core__x_mul(s, CORE__DO(s, core_sinc, x), wide), beyond);
}

static const filter filters[] = {
    {"bilinear", 1, triangle},
    {"bicubic", 2, cubic},
    {"lanczos", 3, lanczos},
};

static const filter *filter_of(const core_operator *op)
{
    const filter *found = &filters[0];

    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
        if (strstr(op->data->name, filters[i].name))
            found = &filters[i];
    return found;
}

/* Input elements per output element. */
static double ratio_of(int64_t in, int64_t out, bool align,
                       const core_value *scale)
{
    if (align)
        return out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
    return scale->tag == CORE_VALUE_FLOAT && scale->u.f > 0
               ? 1 / scale->u.f
               : (double)in / (double)out;
}

/* The weights of `in` elements for each of `out` elements: [out, in].  The
 * filter covers the elements whose centres, rounded, are within its support;
 * the weights of each row add up to 1. */
static core_status matrix_of(const filter *f, core_tensor *like,
                             core_dtype dtype, int64_t in, int64_t out,
                             double ratio, core_tensor **result)
{
    core__scope scope, *s = &scope;
    double widen = ratio > 1 ? ratio : 1;
    core_device *device = core_tensor_device(like);
    core_tensor *from, *to, *centre, *at, *w, *outside, *total;

    core__scope_begin(s);
    centre = CORE__DO(s, core_arange, core_int(out), dtype, device);
    centre = core__x_mul_scalar(s, core__x_add_scalar(s, centre, .5), ratio);
    centre = core__x_unsqueeze(s, centre, 1);
    at = CORE__DO(s, core_arange, core_int(in), dtype, device);
    from = core__x_add_scalar(s, centre, .5 - f->support * widen);
    from = CORE__DO(s, core_trunc, from);
    to = core__x_add_scalar(s, centre, .5 + f->support * widen);
    to = CORE__DO(s, core_trunc, to);
    outside =
        core__x_logical_or(s, core__x_lt(s, at, from), core__x_ge(s, at, to));
    w = core__x_sub(s, core__x_add_scalar(s, at, .5), centre);
    w = f->weights(s, core__x_mul_scalar(s, w, 1 / widen));
    w = core__x_zero_where(s, w, outside);
    total = core__x_sum_dim(s, w, (const int64_t[]){1}, 1, true);
    /* A row without weights remains 0. */
    total = CORE__DO(s, core_masked_fill, total, core__x_eq_scalar(s, total, 0),
                     core_int(1));
    w = core__x_div(s, w, total);
    return core__scope_finish(s, w, result);
}

/* The matrices of both dimensions, from the sizes of the smaller or larger
 * image: in and out are [height, width]. */
static void matrices_of(core__scope *s, const core_operator *op,
                        core_tensor *like, core_dtype dtype, const int64_t *in,
                        const int64_t *out, bool align,
                        const core_value *scales, core_tensor **matrices)
{
    for (int i = 0; i < 2; i++)
        matrices[i] =
            CORE__DO(s, matrix_of, filter_of(op), like, dtype, in[i], out[i],
                     ratio_of(in[i], out[i], align, &scales[i]));
}

static core_status check_sizes(const core_operator *op, const core_tensor *x,
                               const core_value *output, int64_t *out)
{
    if (x->ndim != 4 ||
        (!core__dtype_is_floating(x->dtype) && x->dtype != CORE_U8))
        return core__op_error(
            CORE_ERROR_SHAPE, op,
            "the image has %u dimensions and dtype %s; it must have 4, and a "
            "floating dtype or u8",
            x->ndim, core__dtype_name(x->dtype));
    CORE_TRY(core__ints_fill(op, "output_size", output, 2, 1, out));
    if (out[0] <= 0 || out[1] <= 0)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "output_size is %lld by %lld; both must be above "
                              "0",
                              (long long)out[0], (long long)out[1]);
    return CORE_OK;
}

static core_dtype compute_dtype(const core_tensor *x)
{
    return x->dtype == CORE_F64 || x->dtype == CORE_U8 ? CORE_F64 : CORE_F32;
}

/* The largest power of 2, up to 2^22, whose product with all weights is below
 * 2^15 */
static core_tensor *unit_of(core__scope *s, core_tensor *weights)
{
    core_tensor *x = CORE__DO(s, core_max, weights);
    core_scalar most = core_float(22);

    x = core__x_mul_scalar(s, core__x_reciprocal(s, x), 32767.5);
    x = CORE__DO(s, core_ceil, CORE__DO(s, core_log2, x));
    x = CORE__DO(s, core_clamp, core__x_add_scalar(s, x, -1), NULL, &most);
    return CORE__DO(s, core_pow_of_scalar, core_float(2), x);
}

/* x rounded, halves away from 0 */
static core_tensor *rounded(core__scope *s, core_tensor *x)
{
    core_tensor *size = core__x_add_scalar(s, core__x_abs(s, x), .5);

    size = CORE__DO(s, core_floor, size);
    return core__x_mul(s, core__x_sign(s, x), size);
}

/* One dimension of an image of bytes, as PyTorch and Pillow resample it: with
 * whole weights, and a result that is rounded to a byte.  A dimension that keeps
 * its size is not resampled, whatever the scale factor. */
static core_tensor *byte_product(core__scope *s, core_tensor *image,
                                 core_tensor *weights, bool rows)
{
    core_tensor *unit = unit_of(s, weights), *x;
    core_scalar low = core_float(0), high = core_float(255);

    weights = rounded(s, core__x_mul(s, weights, unit));
    x = rows ? core__x_matmul(s, image, core__x_adjoint(s, weights))
             : core__x_matmul(s, weights, image);
    x = core__x_add_scalar(s, core__x_div(s, x, unit), .5);
    return CORE__DO(s, core_clamp, CORE__DO(s, core_floor, x), &low, &high);
}

/* _upsample_…2d_aa(self, output_size, align_corners, scales_h, scales_w) */
CORE__COMPOSITE(upsample_aa)
{
    core_tensor *self = args[0].u.tensor;
    core_dtype dtype = compute_dtype(self);
    core_tensor *m[2];
    core_tensor *x;
    int64_t out[2];

    CORE_TRY(check_sizes(call->op, self, &args[1], out));
    CORE_TRY(core__scales_check(call->op, &args[3], 2));
    if (self->sizes[2] == 0 || self->sizes[3] == 0)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "self has images of %lld by %lld; they must not "
                              "be empty",
                              (long long)self->sizes[2],
                              (long long)self->sizes[3]);
    matrices_of(scope, call->op, self, dtype, self->sizes + 2, out,
                core__arg_bool(args, 2, false), &args[3], m);
    x = core__x_cast(scope, self, dtype);
    if (self->dtype == CORE_U8) {
        if (out[1] != self->sizes[3])
            x = byte_product(scope, x, m[1], true);
        if (out[0] != self->sizes[2])
            x = byte_product(scope, x, m[0], false);
    } else {
        x = core__x_matmul(scope, x, core__x_adjoint(scope, m[1]));
        x = core__x_matmul(scope, m[0], x);
    }
    return core__scope_result(scope, core__x_cast(scope, x, self->dtype),
                              &results[0]);
}

/* _upsample_…2d_aa_backward(grad_output, output_size, input_size,
 * align_corners, scales_h, scales_w) */
CORE__COMPOSITE(upsample_aa_backward)
{
    core_tensor *grad = args[0].u.tensor;
    core_dtype dtype = compute_dtype(grad);
    size_t count;
    const int64_t *in = core__ints_of(&args[2], &count);
    core_tensor *m[2];
    core_tensor *x;
    int64_t out[2];
    int64_t enlarged[4];

    CORE_TRY(check_sizes(call->op, grad, &args[1], out));
    if (grad->dtype == CORE_U8)
        return core__op_error(CORE_ERROR_DTYPE, call->op,
                              "grad_output is u8; it must have a floating "
                              "dtype");
    CORE_TRY(core__scales_check(call->op, &args[4], 2));
    if (count != 4 || in[2] <= 0 || in[3] <= 0)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "input_size has %zu entries; it must have 4, the "
                              "last two above 0",
                              count);
    CORE_TRY(core__sizes_check(call->op, count, in));
    memcpy(enlarged, in, 2 * sizeof *in);
    memcpy(enlarged + 2, out, sizeof out);
    CORE_TRY(
        core__sizes_check_equal(call->op, "grad_output", grad, 4, enlarged));
    matrices_of(scope, call->op, grad, dtype, in + 2, out,
                core__arg_bool(args, 3, false), &args[4], m);
    x = core__x_cast(scope, grad, dtype);
    x = core__x_matmul(scope, core__x_adjoint(scope, m[0]), x);
    x = core__x_matmul(scope, x, m[1]);
    return core__scope_result(scope, core__x_cast(scope, x, grad->dtype),
                              &results[0]);
}
