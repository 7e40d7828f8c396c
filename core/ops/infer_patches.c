/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Inference for im2col and col2im, fractional pooling, and frexp. */

#include "ops/functions.h"
#include "ops/shape.h"

/* The parameters of windows, and the number of positions where they fit. */
typedef struct windows {
    int64_t kernel[2], dilation[2], padding[2], stride[2], places;
} windows;

static core_status fill(const core_operator *op, const char *name,
                        const core_value *value, int64_t least, int64_t *out)
{
    CORE_TRY(core__ints_fill(op, name, value, 2, 1, out));
    for (int i = 0; i < 2; i++) {
        CORE_TRY(core__size_operand_check(op, name, out[i]));
        if (out[i] < least)
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                                  "%s is %lld; it must be at least %lld", name,
                                  (long long)out[i], (long long)least);
    }
    return CORE_OK;
}

/* args: kernel_size, dilation, padding, stride, for an image of these sizes */
static core_status windows_of(const core_operator *op, const core_value *args,
                              const int64_t *sizes, windows *out)
{
    CORE_TRY(fill(op, "kernel_size", &args[0], 1, out->kernel));
    CORE_TRY(fill(op, "dilation", &args[1], 1, out->dilation));
    CORE_TRY(fill(op, "padding", &args[2], 0, out->padding));
    CORE_TRY(fill(op, "stride", &args[3], 1, out->stride));
    out->places = 1;
    for (int i = 0; i < 2; i++) {
        int64_t room;

        CORE_TRY(core__size_operand_check(op, "the image's size", sizes[i]));
        if (__builtin_mul_overflow(out->dilation[i], out->kernel[i] - 1, &room))
            room = INT64_MAX / 2;
        room = sizes[i] + 2 * out->padding[i] -
               (room < INT64_MAX / 2 ? room : INT64_MAX / 2) - 1;
        if (room < 0)
            return core__op_error(CORE_ERROR_SHAPE, op,
                                  "the window does not fit spatial dimension "
                                  "%d of size %lld with its padding",
                                  i, (long long)sizes[i]);
        if (__builtin_mul_overflow(out->places, room / out->stride[i] + 1,
                                   &out->places))
            return core__op_error(
                CORE_ERROR_SHAPE, op,
                "the window has more positions than can be addressed");
    }
    return CORE_OK;
}

static core_status check_rank(const core_operator *op, const core_tensor *self,
                              uint32_t least, const char *what)
{
    if (self->ndim == least || self->ndim == least + 1)
        return CORE_OK;
    return core__op_error(CORE_ERROR_SHAPE, op,
                          "self must be %s, with or without a batch, with %u "
                          "or %u dimensions, not %u",
                          what, least, least + 1, self->ndim);
}

/* The number of rows: one per plane and window element. */
static core_status count_rows(const core_operator *op, const windows *w,
                              int64_t planes, int64_t *out_rows)
{
    int64_t window;

    if (!__builtin_mul_overflow(w->kernel[0], w->kernel[1], &window) &&
        !__builtin_mul_overflow(window, planes, out_rows))
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_SHAPE, op,
        "kernel_size has more elements than can be addressed");
}

/* im2col(self, kernel_size, dilation, padding, stride) */
CORE__INFER(im2col)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    core__result_spec *result = &infer->results[0];
    uint32_t n = self->ndim;
    windows w;

    CORE_TRY(check_rank(infer->op, self, 3, "an image"));
    CORE_TRY(windows_of(infer->op, &infer->args[1], self->sizes + n - 2, &w));
    core__result_like(result, self);
    result->has_strides = false;
    result->ndim = n - 1;
    CORE_TRY(
        count_rows(infer->op, &w, self->sizes[n - 3], &result->sizes[n - 3]));
    result->sizes[n - 2] = w.places;
    return core__sizes_check(infer->op, n - 1, result->sizes);
}

/* col2im(self, output_size, kernel_size, dilation, padding, stride) */
CORE__INFER(col2im)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    core__result_spec *result = &infer->results[0];
    uint32_t n = self->ndim;
    int64_t sizes[2];
    int64_t rows = 1;
    windows w;

    CORE_TRY(check_rank(infer->op, self, 2, "columns"));
    CORE_TRY(fill(infer->op, "output_size", &infer->args[1], 1, sizes));
    CORE_TRY(windows_of(infer->op, &infer->args[2], sizes, &w));
    CORE_TRY(count_rows(infer->op, &w, 1, &rows));
    if (self->sizes[n - 2] % rows != 0 || self->sizes[n - 1] != w.places)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "self is %lld by %lld; its rows must be a "
                              "multiple of %lld, its columns %lld",
                              (long long)self->sizes[n - 2],
                              (long long)self->sizes[n - 1], (long long)rows,
                              (long long)w.places);
    core__result_like(result, self);
    result->has_strides = false;
    result->ndim = n + 1;
    result->sizes[n - 2] = self->sizes[n - 2] / rows;
    result->sizes[n - 1] = sizes[0];
    result->sizes[n] = sizes[1];
    return core__sizes_check(infer->op, n + 1, result->sizes);
}

/* fractional_max_pool<n>d(self, kernel_size, output_size, random_samples) */
CORE__INFER(fractional_pool)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core_tensor *samples = core__arg_tensor(infer->args, 3);
    uint32_t n = infer->op->data->name[19] == '2' ? 2 : 3;
    core__result_spec *result = &infer->results[0];
    int64_t kernel[3], out[3], wanted[3];

    CORE_TRY(check_rank(infer->op, self, n + 1, "an image"));
    if (!core__dtype_is_floating(self->dtype) || samples->dtype != self->dtype)
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "self and random_samples must have the same "
                              "floating dtype, not %s and %s",
                              core__dtype_name(self->dtype),
                              core__dtype_name(samples->dtype));
    CORE_TRY(core__ints_fill(infer->op, "kernel_size", &infer->args[1], n, 1,
                             kernel));
    CORE_TRY(
        core__ints_fill(infer->op, "output_size", &infer->args[2], n, 1, out));
    core__result_like(result, self);
    for (uint32_t i = 0; i < n; i++) {
        int64_t size = self->sizes[self->ndim - n + i];

        if (kernel[i] < 1 || out[i] < 1 || kernel[i] > size || out[i] > size ||
            out[i] + kernel[i] - 1 > size)
            return core__op_error(
                CORE_ERROR_SHAPE, infer->op,
                "%lld windows of %lld do not fit into a dimension of size %lld",
                (long long)out[i], (long long)kernel[i], (long long)size);
        result->sizes[self->ndim - n + i] = out[i];
    }
    wanted[0] = self->ndim == n + 2 ? self->sizes[0] : 1;
    if (samples->ndim == 3 && samples->sizes[0] > wanted[0])
        wanted[0] = samples->sizes[0]; /* those of more images are not read */
    wanted[1] = self->sizes[self->ndim - n - 1];
    wanted[2] = n;
    CORE_TRY(core__sizes_check_equal(infer->op, "random_samples", samples, 3,
                                     wanted));
    result->has_strides = false;
    infer->results[1] = *result;
    infer->results[1].dtype = CORE_I64;
    return CORE_OK;
}

/* frexp.Tensor(self) -> (mantissa, exponent) */
CORE__INFER(frexp)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);

    if (!core__dtype_is_floating(self->dtype))
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "self must have a floating dtype, not %s",
                              core__dtype_name(self->dtype));
    core__result_like(&infer->results[0], self);
    infer->results[1] = infer->results[0];
    infer->results[1].dtype = CORE_I32;
    return CORE_OK;
}
