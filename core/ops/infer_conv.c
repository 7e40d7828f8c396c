/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Inference for convolution, pooling and resampling. */

#include "dispatch/preferred_layout.h"
#include "dispatch/structured.h"
#include "ops/functions.h"
#include "ops/infer.h"
#include "ops/shape.h"
#include "tensor/layout.h"

#include <math.h>
#include <string.h>

/* Makes the result channels-last if the input is. */
static void follow_channels_last(core__result_spec *result,
                                 const core_tensor *input,
                                 const core_tensor *other)
{
    if (result->ndim != 4 && result->ndim != 5)
        return;
    if (!core__layout_is_channels_last(input) &&
        !(other && core__layout_is_channels_last(other)))
        return;
    result->has_strides = true;
    core__layout_channels_last(result->ndim, result->sizes, result->strides);
}

/* Uses the device's preferred layout if the program's inputs do not decide. */
static void follow_device_preference(core__result_spec *result,
                                     const core_operator *op,
                                     const core_tensor *input)
{
    if (result->has_strides || !core__layout_is_by_device() ||
        core__device_preferred_format(input->device, op, input->dtype,
                                      input->ndim) == CORE_FORMAT_CONTIGUOUS)
        return;
    result->has_strides = true;
    core__layout_channels_last(result->ndim, result->sizes, result->strides);
}

/* --------------------------------------------------------- convolution -- */

typedef struct geometry {
    uint32_t spatial;
    int64_t stride[3];
    int64_t padding[3];
    int64_t dilation[3];
    int64_t output_padding[3];
    bool transposed;
    int64_t groups;
} geometry;

/* args: stride, padding, dilation, transposed, output_padding, groups */
static core_status read_geometry(const core_operator *op,
                                 const core_value *args, geometry *g)
{
    CORE_TRY(core__ints_fill(op, "stride", &args[0], g->spatial, 1, g->stride));
    CORE_TRY(
        core__ints_fill(op, "padding", &args[1], g->spatial, 0, g->padding));
    CORE_TRY(
        core__ints_fill(op, "dilation", &args[2], g->spatial, 1, g->dilation));
    g->transposed = args[3].u.i != 0;
    CORE_TRY(core__ints_fill(op, "output_padding", &args[4], g->spatial, 0,
                             g->output_padding));
    g->groups = args[5].u.i;
    for (uint32_t i = 0; i < g->spatial; i++)
        if (g->stride[i] <= 0 || g->dilation[i] <= 0 || g->padding[i] < 0 ||
            g->output_padding[i] < 0)
            return core__op_error(
                CORE_ERROR_INVALID_ARGUMENT, op,
                "in spatial dimension %u stride is %lld, dilation %lld, "
                "padding %lld and output_padding %lld; the first two must be "
                "above 0, the others 0 or more",
                i, (long long)g->stride[i], (long long)g->dilation[i],
                (long long)g->padding[i], (long long)g->output_padding[i]);
    for (uint32_t i = 0; i < g->spatial && g->transposed; i++)
        if (g->output_padding[i] >= g->stride[i] &&
            g->output_padding[i] >= g->dilation[i])
            return core__op_error(
                CORE_ERROR_INVALID_ARGUMENT, op,
                "output_padding is %lld, stride %lld and dilation %lld; "
                "output_padding must be less than one of the others",
                (long long)g->output_padding[i], (long long)g->stride[i],
                (long long)g->dilation[i]);
    if (g->groups <= 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "groups is %lld; it must be above 0",
                              (long long)g->groups);
    return core__size_operand_check(op, "groups", g->groups);
}

static const char *name_of_input(const core_operator *op)
{
    return core__argument_name(op, 0);
}

/* input may lack a batch, but not weight. */
static core_status check_channels(const core_operator *op,
                                  const core_tensor *input,
                                  const core_tensor *weight,
                                  const core_tensor *bias, const geometry *g)
{
    int64_t channels = input->sizes[input->ndim - 1 - g->spatial];
    int64_t all;
    int64_t in;
    int64_t out;

    if (__builtin_mul_overflow(weight->sizes[1], g->groups, &all))
        return core__op_shapes_error(
            op, name_of_input(op), input, "weight", weight,
            "groups is %lld and weight has %lld channels in "
            "each, which is too many",
            (long long)g->groups, (long long)weight->sizes[1]);
    in = g->transposed ? weight->sizes[0] : all;
    out = g->transposed ? all : weight->sizes[0];

    if (input->dtype != weight->dtype || (bias && bias->dtype != input->dtype))
        return core__op_error(
            CORE_ERROR_DTYPE, op,
            "%s is %s, weight %s and bias %s; they must have the same dtype",
            name_of_input(op), core__dtype_name(input->dtype),
            core__dtype_name(weight->dtype),
            bias ? core__dtype_name(bias->dtype) : "absent");
    if (channels != in || weight->sizes[0] % g->groups != 0)
        return core__op_shapes_error(
            op, name_of_input(op), input, "weight", weight,
            "%s has %lld channels; weight in %lld groups needs %lld",
            name_of_input(op), (long long)channels, (long long)g->groups,
            (long long)in);
    if (bias && (bias->ndim != 1 || bias->sizes[0] != out))
        return core__op_shapes_error(op, "weight", weight, "bias", bias,
                                     "bias must have sizes [%lld]",
                                     (long long)out);
    return CORE_OK;
}

static core_status output_size(const core_operator *op, const geometry *g,
                               const core_tensor *input,
                               const core_tensor *weight, uint32_t i,
                               int64_t *out)
{
    int64_t size = input->sizes[input->ndim - g->spatial + i];
    int64_t kernel = weight->sizes[2 + i];
    int64_t reach;
    int64_t span;

    if (__builtin_mul_overflow(g->dilation[i], kernel - 1, &reach) ||
        __builtin_mul_overflow(g->stride[i], size - 1, &span) ||
        reach >= CORE__NUMEL_MAX || span >= CORE__NUMEL_MAX)
        return core__op_shapes_error(
            op, name_of_input(op), input, "weight", weight,
            "stride %lld and dilation %lld are too large "
            "for a size of %lld and a kernel of %lld",
            (long long)g->stride[i], (long long)g->dilation[i], (long long)size,
            (long long)kernel);
    reach++;
    if (g->transposed)
        *out = span - 2 * g->padding[i] + reach + g->output_padding[i];
    else if (size + 2 * g->padding[i] >= reach)
        *out = (size + 2 * g->padding[i] - reach) / g->stride[i] + 1;
    else
        *out = 0;
    if (*out > 0)
        return CORE_OK;
    return core__op_shapes_error(
        op, name_of_input(op), input, "weight", weight,
        "a kernel of %lld (dilated: %lld) does not fit a "
        "size of %lld padded by %lld",
        (long long)kernel, (long long)reach, (long long)size,
        (long long)g->padding[i]);
}

/* args: as read_geometry's */
static core_status convolved(const core_operator *op, const core_tensor *input,
                             const core_tensor *weight, const core_tensor *bias,
                             const core_value *args, core__result_spec *result)
{
    geometry g;

    if (input->ndim < 3 || input->ndim > 5 || weight->ndim != input->ndim)
        return core__op_shapes_error(
            op, "input", input, "weight", weight,
            "both must have the same number of dimensions, 3, 4 or 5");
    g.spatial = input->ndim - 2;
    CORE_TRY(read_geometry(op, args, &g));
    CORE_TRY(check_channels(op, input, weight, bias, &g));
    core__result_like(result, input);
    result->sizes[1] =
        g.transposed ? weight->sizes[1] * g.groups : weight->sizes[0];
    for (uint32_t i = 0; i < g.spatial; i++)
        CORE_TRY(output_size(op, &g, input, weight, i, &result->sizes[2 + i]));
    return core__sizes_check(op, result->ndim, result->sizes);
}

core_status core__convolution_check(const core_operator *op,
                                    const core__convolution *c)
{
    const uint32_t spatial = c->weight->ndim - 2;
    const core_value args[] = {
        {CORE_VALUE_INT_LIST, spatial, {.ints = c->stride}},
        {CORE_VALUE_INT_LIST, spatial, {.ints = c->padding}},
        {CORE_VALUE_INT_LIST, spatial, {.ints = c->dilation}},
        {CORE_VALUE_BOOL, 0, {.i = c->transposed}},
        {CORE_VALUE_INT_LIST, spatial, {.ints = c->output_padding}},
        {CORE_VALUE_INT, 0, {.i = c->groups}}};
    geometry g = {.spatial = spatial};
    int64_t size;

    CORE_TRY(read_geometry(op, args, &g));
    CORE_TRY(check_channels(op, c->input, c->weight, c->bias, &g));
    for (uint32_t i = 0; i < g.spatial; i++)
        CORE_TRY(output_size(op, &g, c->input, c->weight, i, &size));
    return CORE_OK;
}

/* convolution(input, weight, bias, stride, padding, dilation, transposed,
 * output_padding, groups) */
CORE__INFER(convolution)
{
    const core_tensor *input = core__arg_tensor(infer->args, 0);
    const core_tensor *weight = core__arg_tensor(infer->args, 1);
    const core_tensor *bias = core__arg_tensor(infer->args, 2);
    core__result_spec *result = &infer->results[0];

    CORE_TRY(
        convolved(infer->op, input, weight, bias, &infer->args[3], result));
    follow_channels_last(result, input, weight);
    follow_device_preference(result, infer->op, input);
    return CORE_OK;
}

/* convolution_backward(grad_output, input, weight, bias_sizes, …,
 * output_mask) */
CORE__INFER(convolution_backward)
{
    const core_tensor *grad = core__arg_tensor(infer->args, 0);
    const core_tensor *input = core__arg_tensor(infer->args, 1);
    const core_tensor *weight = core__arg_tensor(infer->args, 2);
    core__result_spec forward;
    char have[256];
    char want[256];

    if (grad->ndim != input->ndim || grad->ndim < 3)
        return core__op_shapes_error(
            infer->op, "grad_output", grad, "input", input,
            "both must have the same number of dimensions, 3, 4 or 5");
    CORE_TRY(
        convolved(infer->op, input, weight, NULL, &infer->args[4], &forward));
    if (memcmp(forward.sizes, grad->sizes, grad->ndim * sizeof(int64_t)) != 0)
        return core__op_error(
            CORE_ERROR_SHAPE, infer->op,
            "grad_output has sizes %s; it must have those of the result, %s",
            core__sizes_text(grad->ndim, grad->sizes, have, sizeof have),
            core__sizes_text(grad->ndim, forward.sizes, want, sizeof want));
    core__result_like(&infer->results[0], input);
    follow_channels_last(&infer->results[0], input, weight);
    core__result_like(&infer->results[1], weight);
    follow_channels_last(&infer->results[1], weight, NULL);
    core__result_set(&infer->results[2], grad->dtype, 1, &grad->sizes[1]);
    return core__results_mask(infer, &infer->args[10], 3);
}

/* ------------------------------------------------------------- pooling -- */

static core_status check_planes(const core_operator *op,
                                const core_tensor *self, uint32_t spatial)
{
    if (self->ndim != spatial + 1 && self->ndim != spatial + 2)
        return core__op_error(
            CORE_ERROR_SHAPE, op,
            "self must have %u dimensions, or %u with a batch, not %u",
            spatial + 1, spatial + 2, self->ndim);
    for (uint32_t i = self->ndim - spatial; i < self->ndim; i++)
        if (self->sizes[i] == 0)
            return core__op_error(
                CORE_ERROR_SHAPE, op,
                "dimension %u of self has size 0; only the batch may be empty",
                i);
    return CORE_OK;
}

/* The number of spatial dimensions: the digit in "…pool2d…". */
static uint32_t spatial_of(const core_operator *op)
{
    const char *digit = strpbrk(op->data->name, "123");

    return digit ? (uint32_t)(*digit - '0') : 2;
}

/* All numbers are below CORE__SIZE_OPERAND_MAX and the size below CORE__NUMEL_MAX;
 * only the product of dilation and kernel may be larger and is clamped, since
 * no size is as large. */
static int64_t windows(int64_t size, int64_t kernel, int64_t stride,
                       int64_t padding, int64_t dilation, bool ceil_mode)
{
    int64_t room;
    int64_t count;
    int64_t reach;

    if (__builtin_mul_overflow(dilation, kernel - 1, &reach) ||
        reach > 2 * CORE__NUMEL_MAX)
        return 0;
    room = size + 2 * padding - reach - 1;

    if (room < 0 && !ceil_mode)
        return 0;
    room += ceil_mode ? stride - 1 : 0;
    count = (room < 0 ? -1 : room / stride) + 1;
    /* The last window must begin within the input or the padding before it. */
    if (ceil_mode && (count - 1) * stride >= size + padding)
        count--;
    return count;
}

/* args: self, kernel_size, stride, padding, [dilation,] ceil_mode … */
static core_status pooled(core__inference *infer, bool dilated)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    uint32_t n = spatial_of(infer->op);
    core__result_spec *result = &infer->results[0];
    bool ceil_mode = infer->args[dilated ? 5 : 4].u.i != 0;
    int64_t kernel[3];
    int64_t stride[3];
    int64_t padding[3];
    int64_t dilation[3] = {1, 1, 1};
    size_t strides;

    CORE_TRY(check_planes(infer->op, self, n));
    CORE_TRY(core__ints_fill(infer->op, "kernel_size", &infer->args[1], n, 1,
                             kernel));
    core__ints_of(&infer->args[2], &strides);
    memcpy(stride, kernel, sizeof stride);
    if (strides > 0)
        CORE_TRY(core__ints_fill(infer->op, "stride", &infer->args[2], n, 1,
                                 stride));
    CORE_TRY(
        core__ints_fill(infer->op, "padding", &infer->args[3], n, 0, padding));
    if (dilated)
        CORE_TRY(core__ints_fill(infer->op, "dilation", &infer->args[4], n, 1,
                                 dilation));
    CORE_TRY(core__sizes_check(infer->op, n, kernel));
    core__result_like(result, self);
    for (uint32_t i = 0; i < n; i++) {
        int64_t *size = &result->sizes[self->ndim - n + i];

        if (kernel[i] <= 0 || stride[i] <= 0 || dilation[i] <= 0 ||
            padding[i] < 0 || 2 * padding[i] > kernel[i])
            return core__op_error(
                CORE_ERROR_INVALID_ARGUMENT, infer->op,
                "kernel_size is %lld, stride %lld, padding %lld and dilation "
                "%lld; padding must be from 0 to half the kernel size, the "
                "others above 0",
                (long long)kernel[i], (long long)stride[i],
                (long long)padding[i], (long long)dilation[i]);
        *size = windows(*size, kernel[i], stride[i], padding[i], dilation[i],
                        ceil_mode);
        if (*size <= 0)
            return core__op_error(
                CORE_ERROR_SHAPE, infer->op,
                "a window of %lld does not fit self padded by %lld",
                (long long)kernel[i], (long long)padding[i]);
    }
    CORE_TRY(core__sizes_check(infer->op, result->ndim, result->sizes));
    follow_channels_last(result, self, NULL);
    return CORE_OK;
}

static void indices_like_values(core__inference *infer)
{
    infer->results[1] = infer->results[0];
    infer->results[1].dtype = CORE_I64;
}

CORE__INFER(max_pool)
{
    CORE_TRY(pooled(infer, true));
    indices_like_values(infer);
    return CORE_OK;
}

/* args: self, kernel_size, stride, padding, ceil_mode, count_include_pad,
 * divisor_override */
CORE__INFER(avg_pool)
{
    const core_value *divisor = &infer->args[6];

    if (infer->nargs > 6 && divisor->tag == CORE_VALUE_INT && divisor->u.i == 0)
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, infer->op,
            "divisor_override is 0; it must be another number or none");
    return pooled(infer, false);
}

CORE__INFER(adaptive_pool)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    uint32_t n = spatial_of(infer->op);
    core__result_spec *result = &infer->results[0];
    int64_t sizes[3];

    CORE_TRY(check_planes(infer->op, self, n));
    CORE_TRY(core__ints_fill(infer->op, "output_size", &infer->args[1], n, 1,
                             sizes));
    core__result_like(result, self);
    for (uint32_t i = 0; i < n; i++) {
        if (sizes[i] < 0)
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                                  "output_size is %lld; it must be 0 or more",
                                  (long long)sizes[i]);
        result->sizes[self->ndim - n + i] = sizes[i];
    }
    CORE_TRY(core__sizes_check(infer->op, result->ndim, result->sizes));
    follow_channels_last(result, self, NULL);
    return CORE_OK;
}

CORE__INFER(adaptive_max_pool)
{
    CORE_TRY(core__infer_adaptive_pool(infer));
    indices_like_values(infer);
    return CORE_OK;
}

/* ---------------------------------------------------- pooling backward -- */

/* (grad_output, self, …): the forward's arguments begin at self. */
static core_status pooled_backward(core__inference *infer,
                                   core_status (*forward)(core__inference *),
                                   const core_tensor *indices)
{
    const core_tensor *grad = core__arg_tensor(infer->args, 0);
    const core_tensor *self = core__arg_tensor(infer->args, 1);
    core__inference inner = *infer;
    const core__result_spec *wanted = &inner.results[0];

    inner.args++;
    inner.nargs--;
    CORE_TRY(forward(&inner));
    CORE_TRY(core__sizes_check_equal(infer->op, "grad_output", grad,
                                     wanted->ndim, wanted->sizes));
    CORE_TRY(core__sizes_check_equal(infer->op, "indices", indices,
                                     wanted->ndim, wanted->sizes));
    if (indices && indices->dtype != CORE_I64)
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "indices must be i64, not %s",
                              core__dtype_name(indices->dtype));
    core__result_like(&infer->results[0], self);
    infer->results[0].dtype = grad->dtype;
    follow_channels_last(&infer->results[0], self, NULL);
    return CORE_OK;
}

CORE__INFER(max_pool_backward)
{
    return pooled_backward(infer, core__infer_max_pool,
                           core__arg_tensor(infer->args, 7));
}

CORE__INFER(avg_pool_backward)
{
    return pooled_backward(infer, core__infer_avg_pool, NULL);
}

/* The result of an adaptive forward may have any sizes in the spatial
 * dimensions. */
static core_status adapted(core__inference *infer)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    const core_tensor *grad = core__arg_tensor(infer->args - 1, 0);
    uint32_t n = spatial_of(infer->op);

    CORE_TRY(check_planes(infer->op, self, n));
    core__result_like(&infer->results[0], self);
    for (uint32_t i = self->ndim - n; i < self->ndim && i < grad->ndim; i++)
        infer->results[0].sizes[i] = grad->sizes[i];
    return CORE_OK;
}

CORE__INFER(adaptive_pool_backward)
{
    return pooled_backward(infer, adapted, NULL);
}

CORE__INFER(adaptive_max_pool_backward)
{
    return pooled_backward(infer, adapted, core__arg_tensor(infer->args, 2));
}

/* ---------------------------------------------------------- resampling -- */

/* Bounds scaled positions to valid index values: sizes are below 2^40 as
 * well. */
#define SCALE_MOST 0x1p20

core_status core__scales_check(const core_operator *op,
                               const core_value *scales, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (scales[i].tag == CORE_VALUE_FLOAT &&
            !(scales[i].u.f >= 1 / SCALE_MOST && scales[i].u.f <= SCALE_MOST))
            return core__op_error(
                CORE_ERROR_INVALID_ARGUMENT, op,
                "a scale factor is %g; it must be from %g to %g", scales[i].u.f,
                1 / SCALE_MOST, SCALE_MOST);
    return CORE_OK;
}

/* upsample…(self, output_size, …) */
CORE__INFER(upsample)
{
    const core_tensor *self = core__arg_tensor(infer->args, 0);
    uint32_t n = spatial_of(infer->op);
    core__result_spec *result = &infer->results[0];
    int64_t sizes[3];

    if (self->ndim != n + 2)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "self must have %u dimensions, not %u", n + 2,
                              self->ndim);
    CORE_TRY(check_planes(infer->op, self, n));
    CORE_TRY(core__ints_fill(infer->op, "output_size", &infer->args[1], n, 1,
                             sizes));
    core__result_like(result, self);
    for (uint32_t i = 0; i < n; i++) {
        if (sizes[i] <= 0)
            return core__op_error(CORE_ERROR_SHAPE, infer->op,
                                  "output_size is %lld; it must be above 0",
                                  (long long)sizes[i]);
        result->sizes[2 + i] = sizes[i];
    }
    CORE_TRY(core__scales_check(infer->op, infer->args + 2, infer->nargs - 2));
    CORE_TRY(core__sizes_check(infer->op, result->ndim, result->sizes));
    follow_channels_last(result, self, NULL);
    return CORE_OK;
}

/* upsample…_backward(grad_output, output_size, input_size, …) */
CORE__INFER(upsample_backward)
{
    const core_tensor *grad = core__arg_tensor(infer->args, 0);
    uint32_t n = spatial_of(infer->op);
    core__result_spec *result = &infer->results[0];
    size_t count;
    const int64_t *sizes = core__ints_of(&infer->args[2], &count);
    int64_t enlarged[5];

    if (count != n + 2)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "input_size has %zu entries; it must have %u",
                              count, n + 2);
    memcpy(enlarged, sizes, 2 * sizeof *sizes);
    CORE_TRY(core__ints_fill(infer->op, "output_size", &infer->args[1], n, 1,
                             enlarged + 2));
    CORE_TRY(core__sizes_check(infer->op, count, sizes));
    for (uint32_t i = 2; i < n + 2; i++)
        if (sizes[i] == 0)
            return core__op_error(
                CORE_ERROR_SHAPE, infer->op,
                "dimension %u of input_size is 0; it must be above 0", i);
    CORE_TRY(core__sizes_check_equal(infer->op, "grad_output", grad, n + 2,
                                     enlarged));
    CORE_TRY(core__scales_check(infer->op, infer->args + 3, infer->nargs - 3));
    core__result_set(result, grad->dtype, grad->ndim, sizes);
    follow_channels_last(result, grad, NULL);
    return CORE_OK;
}

/* grid_sampler_2d(input [N, C, H, W], grid [N, h, w, 2], …), and
 * grid_sampler_3d with a depth */
CORE__INFER(grid_sampler)
{
    const core_tensor *input = core__arg_tensor(infer->args, 0);
    const core_tensor *grid = core__arg_tensor(infer->args, 1);
    int64_t mode = infer->args[2].u.i;
    int64_t padding = infer->args[3].u.i;
    int64_t sizes[5];
    uint32_t n = spatial_of(infer->op);

    if (input->ndim != n + 2 || grid->ndim != n + 2 ||
        input->sizes[0] != grid->sizes[0] || grid->sizes[n + 1] != n)
        return core__op_shapes_error(
            infer->op, "input", input, "grid", grid,
            n == 2 ? "they must be [N, C, H, W] and [N, h, w, 2]"
                   : "they must be [N, C, D, H, W] and [N, d, h, w, 3]");
    if (input->dtype != grid->dtype)
        return core__op_error(
            CORE_ERROR_DTYPE, infer->op,
            "input is %s and grid %s; they must have the same floating dtype",
            core__dtype_name(input->dtype), core__dtype_name(grid->dtype));
    if (mode < 0 || mode > 2 || padding < 0 || padding > 2)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "interpolation_mode is %lld and padding_mode "
                              "%lld; both must be 0, 1 or 2",
                              (long long)mode, (long long)padding);
    memcpy(sizes, input->sizes, 2 * sizeof *sizes);
    for (uint32_t i = 0; i < n; i++) {
        sizes[2 + i] = grid->sizes[1 + i];
        if (input->sizes[2 + i] == 0)
            return core__op_error(
                CORE_ERROR_SHAPE, infer->op,
                "input has size 0 in dimension %u; its images must not be "
                "empty",
                2 + i);
    }
    core__result_set(&infer->results[0], input->dtype, n + 2, sizes);
    return CORE_OK;
}

/* grid_sampler_…_backward(grad_output, input, grid, …, output_mask) */
CORE__INFER(grid_sampler_backward)
{
    core__inference inner = *infer;

    inner.args++;
    CORE_TRY(core__infer_grid_sampler(&inner));
    CORE_TRY(core__sizes_check_equal(
        infer->op, "grad_output", core__arg_tensor(infer->args, 0),
        inner.results[0].ndim, inner.results[0].sizes));
    core__result_like(&infer->results[0], core__arg_tensor(infer->args, 1));
    core__result_like(&infer->results[1], core__arg_tensor(infer->args, 2));
    return core__results_mask(infer, &infer->args[6], 2);
}
