/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Transposed convolutions, and convolutions under the names of ATen's portable
 * implementations. */

#include "ops/expression.h"
#include "ops/infer.h"
#include "ops/shape.h"

#include <string.h>

typedef struct options {
    uint32_t spatial;
    int64_t stride[3], padding[3], dilation[3], output_padding[3];
    bool transposed;
} options;

static core_status options_of(const core_operator *op, const core_value *args,
                              bool transposed, options *out)
{
    bool dilated = strstr(op->data->name, "dilated") != NULL;
    uint32_t n = strstr(op->data->name, "3d") ? 3 : 2;

    *out = (options){.spatial = n, .transposed = transposed};
    CORE_TRY(core__ints_fill(op, "stride", &args[4], n, 1, out->stride));
    CORE_TRY(core__ints_fill(op, "padding", &args[5], n, 0, out->padding));
    for (uint32_t i = 0; i < n; i++)
        out->dilation[i] = 1;
    if (transposed)
        CORE_TRY(core__ints_fill(op, "output_padding", &args[6], n, 0,
                                 out->output_padding));
    if (transposed || dilated)
        CORE_TRY(core__ints_fill(op, "dilation", &args[transposed ? 7 : 6], n,
                                 1, out->dilation));
    return CORE_OK;
}

/* kernel_size repeats the last sizes of weight, so it must equal them. */
static core_status check_kernel(const core_operator *op,
                                const core_tensor *weight,
                                const core_value *kernel, uint32_t spatial)
{
    int64_t sizes[5];

    CORE_TRY(core__ints_fill(op, "kernel_size", kernel, spatial, 1, sizes + 2));
    for (uint32_t i = 0; i < 2; i++)
        sizes[i] = i < weight->ndim ? weight->sizes[i] : 1;
    return core__sizes_check_equal(op, "weight", weight, spatial + 2, sizes);
}

/* (self, weight, kernel_size, bias, …): self may lack a batch. */
static core_status convolved(core__scope *scope, const core_operator *op,
                             const core_value *args, bool transposed,
                             core_value *result)
{
    core_tensor *self = args[0].u.tensor;
    core_tensor *weight = args[1].u.tensor;
    options o;
    bool batched;
    core_tensor *x = self;

    CORE_TRY(options_of(op, args, transposed, &o));
    CORE_TRY(check_kernel(op, weight, &args[2], o.spatial));
    batched = self->ndim == o.spatial + 2;
    if (!batched && self->ndim != o.spatial + 1)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "self has %u dimensions; it must have %u, or %u "
                              "without a batch",
                              self->ndim, o.spatial + 2, o.spatial + 1);
    if (!batched)
        x = core__x_unsqueeze(scope, x, 0);
    x = CORE__DO(scope, core_convolution, x, weight, core__tensor_of(&args[3]),
                 o.stride, o.spatial, o.padding, o.spatial, o.dilation,
                 o.spatial, transposed, o.output_padding, o.spatial, 1);
    if (core__unlikely(scope->status != CORE_OK))
        core__scope_replace_error(
            scope, core__convolution_check(
                       op, &(core__convolution){
                               self, weight, core__tensor_of(&args[3]),
                               o.stride, o.padding, o.dilation,
                               o.output_padding, transposed, 1}));
    if (!batched)
        x = CORE__DO(scope, core_squeeze_dim, x, 0);
    return core__scope_result(scope, x, result);
}

/* conv_transpose1d, conv_transpose2d.input and conv_transpose3d.input(input,
 * weight, bias, stride, padding, output_padding, groups, dilation): the input
 * may lack a batch. */
CORE__COMPOSITE(conv_transpose)
{
    core_tensor *input = args[0].u.tensor, *weight = args[1].u.tensor;
    uint32_t n =
        (uint32_t)(call->op->data->name[sizeof "conv_transpose" - 1] - '0');
    bool batched = input->ndim == n + 2;
    int64_t stride[3], padding[3], output_padding[3], dilation[3];
    core_tensor *out;

    if (weight->ndim != n + 2 || (!batched && input->ndim != n + 1))
        return core__op_shapes_error(
            call->op, "input", input, "weight", weight,
            "input must have %u dimensions (%u without a batch) and weight %u",
            n + 2, n + 1, n + 2);
    CORE_TRY(core__ints_fill(call->op, "stride", &args[3], n, 1, stride));
    CORE_TRY(core__ints_fill(call->op, "padding", &args[4], n, 0, padding));
    CORE_TRY(core__ints_fill(call->op, "output_padding", &args[5], n, 0,
                             output_padding));
    CORE_TRY(core__ints_fill(call->op, "dilation", &args[7], n, 1, dilation));
    if (!batched)
        input = core__x_unsqueeze(scope, input, 0);
    out = CORE__DO(scope, core_convolution, input, weight,
                   core__tensor_of(&args[2]), stride, n, padding, n, dilation,
                   n, true, output_padding, n, core__arg_int(args, 6, 1));
    if (core__unlikely(scope->status != CORE_OK) && input != args[0].u.tensor)
        core__scope_replace_error(
            scope, core__convolution_check(
                       call->op,
                       &(core__convolution){args[0].u.tensor, weight,
                                            core__tensor_of(&args[2]), stride,
                                            padding, dilation, output_padding,
                                            true, core__arg_int(args, 6, 1)}));
    if (!batched)
        out = CORE__DO(scope, core_squeeze_dim, out, 0);
    return core__scope_result(scope, out, &results[0]);
}

/* _slow_conv2d_forward, slow_conv3d_forward, slow_conv_dilated2d and _3d */
CORE__COMPOSITE(slow_conv)
{
    return convolved(scope, call->op, args, false, &results[0]);
}

/* slow_conv_transpose2d and _3d */
CORE__COMPOSITE(slow_conv_transpose)
{
    return convolved(scope, call->op, args, true, &results[0]);
}

static core_status slow_backward(const core_operator *op,
                                 const core_value *args, const uint8_t *mask,
                                 size_t count, core_value *results)
{
    core_tensor *self = args[1].u.tensor, *weight = args[2].u.tensor;
    core_tensor *out[3] = {NULL, NULL, NULL};
    static const int64_t ones[2] = {1, 1}, none[2];
    int64_t stride[2], padding[2];

    CORE_TRY(core__ints_fill(op, "stride", &args[4], 2, 1, stride));
    CORE_TRY(core__ints_fill(op, "padding", &args[5], 2, 0, padding));
    CORE_TRY(check_kernel(op, weight, &args[3], 2));
    CORE_TRY(core_convolution_backward(
        args[0].u.tensor, self, weight, weight->sizes, 1, stride, 2, padding, 2,
        ones, 2, false, none, 2, 1, mask, count, &out[0], &out[1], &out[2]));
    for (int i = 0; i < 3; i++)
        core__result_tensor(&results[i], out[i]);
    return CORE_OK;
}

/* _slow_conv2d_backward.output_mask(grad_output, self, weight, kernel_size,
 * stride, padding, output_mask) */
CORE__COMPOSITE(slow_conv_backward)
{
    return slow_backward(call->op, args, args[6].u.bools, args[6].count,
                         results);
}

/* The same with all gradients. */
CORE__COMPOSITE(slow_conv_backward_all)
{
    static const uint8_t all[3] = {1, 1, 1};

    return slow_backward(call->op, args, all, 3, results);
}
