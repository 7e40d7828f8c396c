/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The forward of the fused Linear: checks of the arguments, the computation,
 * and the saved state for backward. */

#include "base/error.h"
#include "linear/linear.h"
#include "quant/quantizer.h"

#include <libcore/autocast.h>
#include <libcore/autograd.h>
#include <libcore/ops.h>

#include <string.h>

/* --------------------------------------------------------------- checking -- */

static core_status wrong_tensor(core_status code, const char *name,
                                const char *expected, core_tensor *tensor)
{
    return core__error(code,
                       "linear: %s is %s with %u dimensions; it must be %s",
                       name, core_dtype_name(core_tensor_dtype(tensor)),
                       core_tensor_ndim(tensor), expected);
}

static core_status same_device(const char *name, core_tensor *tensor,
                               core_tensor *input)
{
    const core_device *one = core_tensor_device(tensor);
    const core_device *other = core_tensor_device(input);

    if (one == other)
        return CORE_OK;
    return core__error(CORE_ERROR_DEVICE,
                       "linear: %s is on \"%s\" and the input on \"%s\"; they "
                       "must be on the same device",
                       name, core_device_name(one), core_device_name(other));
}

static core_status check_tensors(const core_linear_forward_args *args)
{
    core_tensor *input = args->input, *weight = args->weight;
    core_tensor *bias = args->bias;
    core_dtype dtype = core_tensor_dtype(input);

    if (core_tensor_ndim(weight) != 2)
        return wrong_tensor(CORE_ERROR_SHAPE, "weight", "[out, in]", weight);
    if (core_tensor_ndim(input) < 1)
        return wrong_tensor(CORE_ERROR_SHAPE, "input", "[..., in]", input);
    if (core_tensor_size(input, -1) != core_tensor_size(weight, 1))
        return core__error(
            CORE_ERROR_SHAPE,
            "linear: the input has %lld features; the weight is for %lld",
            (long long)core_tensor_size(input, -1),
            (long long)core_tensor_size(weight, 1));
    if (!core_dtype_is_floating(dtype))
        return wrong_tensor(CORE_ERROR_DTYPE, "input", "floating", input);
    if (core_tensor_dtype(weight) != dtype)
        return wrong_tensor(CORE_ERROR_DTYPE, "weight", "of the input's dtype",
                            weight);
    CORE_TRY(same_device("weight", weight, input));
    if (!bias)
        return CORE_OK;
    if (core_tensor_ndim(bias) != 1 ||
        core_tensor_size(bias, 0) != core_tensor_size(weight, 0))
        return wrong_tensor(CORE_ERROR_SHAPE, "bias", "[out]", bias);
    if (core_tensor_dtype(bias) != dtype)
        return wrong_tensor(CORE_ERROR_DTYPE, "bias", "of the input's dtype",
                            bias);
    return same_device("bias", bias, input);
}

static core_status check_main_grad(const core_linear_forward_args *args)
{
    core_tensor *main_grad = args->main_grad, *weight = args->weight;

    if (!main_grad && args->flags & CORE_LINEAR_ACCUMULATE)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "linear: the flag CORE_LINEAR_ACCUMULATE is set and "
                           "main_grad is NULL; the flag needs one");
    if (!main_grad)
        return CORE_OK;
    if (core_tensor_ndim(main_grad) != 2 ||
        core_tensor_size(main_grad, 0) != core_tensor_size(weight, 0) ||
        core_tensor_size(main_grad, 1) != core_tensor_size(weight, 1))
        return wrong_tensor(CORE_ERROR_SHAPE, "main_grad",
                            "of the weight's sizes", main_grad);
    if (!core_dtype_is_floating(core_tensor_dtype(main_grad)) ||
        core_float8_max(core_tensor_dtype(main_grad)))
        return wrong_tensor(CORE_ERROR_DTYPE, "main_grad",
                            "floating with at least 16 bits", main_grad);
    CORE_TRY(same_device("main_grad", main_grad, args->input));
    if (!core_tensor_is_contiguous(main_grad, CORE_FORMAT_CONTIGUOUS) ||
        core_tensor_requires_grad(main_grad))
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "linear: main_grad must be contiguous and must not require grad");
    return CORE_OK;
}

/* Checked here, since backward would find out too late. */
static core_status check_blocks(const core_linear_forward_args *args)
{
    int64_t features = core_tensor_size(args->weight, 0);

    if (!args->grad_quantizer ||
        core_quantizer_get_options(args->grad_quantizer)->scaling !=
            CORE_SCALING_BLOCK ||
        features % CORE_QUANTIZER_BLOCK == 0)
        return CORE_OK;
    return core__error(CORE_ERROR_SHAPE,
                       "linear: there are %lld output features; block scaling "
                       "of the gradient needs a multiple of %d",
                       (long long)features, CORE_QUANTIZER_BLOCK);
}

static core_status check_modes(const core_linear_forward_args *args)
{
    if (args->flags & ~(uint32_t)CORE_LINEAR_ACCUMULATE)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "linear: the flags are 0x%x; accepted: 0 or CORE_LINEAR_ACCUMULATE",
            args->flags);
    if (args->activation > CORE_LINEAR_GELU)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "linear: activation is %u; accepted: CORE_LINEAR_NO_ACTIVATION, "
            "CORE_LINEAR_RELU and CORE_LINEAR_GELU",
            args->activation);
    if (args->microbatch > CORE_LINEAR_LATER_MICROBATCH)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "linear: microbatch is %u; accepted: CORE_LINEAR_WHOLE_BATCH, "
            "CORE_LINEAR_FIRST_MICROBATCH and CORE_LINEAR_LATER_MICROBATCH",
            args->microbatch);
    return CORE_OK;
}

core_status core__linear_check(const core_linear_forward_args *args)
{
    if (args->struct_size < sizeof *args)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_linear_forward_args: struct_size is %u; it must be %zu",
            args->struct_size, sizeof *args);
    if (!args->input || !args->weight)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "linear: the argument %s is NULL",
                           args->input ? "weight" : "input");
    CORE_TRY(check_modes(args));
    if (!args->input_quantizer != !args->weight_quantizer ||
        (args->grad_quantizer && !args->input_quantizer))
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "linear: input_quantizer and weight_quantizer must be given "
            "together, and grad_quantizer only with them");
    if (args->microbatch && !(args->workspace && args->weight_quantizer))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "linear: microbatch is set; it needs a workspace "
                           "and a weight_quantizer");
    CORE_TRY(check_tensors(args));
    CORE_TRY(check_blocks(args));
    return check_main_grad(args);
}

/* ---------------------------------------------------------------- forward -- */

/* A recorded result must not be a view, but without bias the linear operator
 * returns a view of a matrix product; here the product is written into one. */
static core_status multiply(core_tensor *x, core_tensor *w, core_tensor *b,
                            core_tensor **out_product)
{
    const int64_t input[2] = {core__linear_row_count(x),
                              core_tensor_size(w, 1)};
    const int64_t output[2] = {input[0], core_tensor_size(w, 0)};
    core_tensor *rows = NULL, *turned = NULL, *view = NULL;
    uint32_t ndim = core_tensor_ndim(x);
    int64_t sizes[CORE_MAX_NDIM];
    core_status status;

    if (b || core_tensor_numel(x) == 0)
        return core_linear(x, w, b, out_product);
    if (ndim == 2) {
        CORE_TRY(core_t(w, &turned));
        status = core_mm(x, turned, out_product);
        core_tensor_release(turned);
        return status;
    }
    memcpy(sizes, core_tensor_sizes(x), ndim * sizeof *sizes);
    sizes[ndim - 1] = output[1];
    status = core_empty(sizes, ndim, core_tensor_dtype(x),
                        core_tensor_device(x), -1, out_product);
    if (status == CORE_OK)
        status = core_view_sizes(*out_product, output, 2, &view);
    if (status == CORE_OK)
        status = core_reshape(x, input, 2, &rows);
    if (status == CORE_OK)
        status = core_t(w, &turned);
    if (status == CORE_OK)
        status = core_mm_out(rows, turned, view);
    core_tensor_release(rows);
    core_tensor_release(turned);
    core_tensor_release(view);
    return status;
}

static core_status multiply_wide(const core_linear_forward_args *args,
                                 const core_linear_intermediates *intermediates,
                                 core_tensor **out_product)
{
    core_tensor *x = NULL, *w = NULL, *b = NULL, *y = NULL;
    core_status status;

    status = core_dequantize(intermediates->input_data,
                             intermediates->input_scales, CORE_F32, &x);
    if (status == CORE_OK)
        status = core_dequantize(intermediates->weight_data,
                                 intermediates->weight_scales, CORE_F32, &w);
    if (status == CORE_OK && args->bias)
        status = core_to(args->bias, CORE_F32, NULL, false, false, -1, &b);
    if (status == CORE_OK)
        status = multiply(x, w, b, &y);
    if (status == CORE_OK)
        status = core_to(y, core_tensor_dtype(args->input), NULL, false, false,
                         -1, out_product);
    core_tensor_release(x);
    core_tensor_release(w);
    core_tensor_release(b);
    core_tensor_release(y);
    return status;
}

static core_status multiply_quantized(const core_linear_forward_args *args,
                                      core_linear_intermediates *intermediates,
                                      core_tensor **out_product)
{
    CORE_TRY(core_quantizer_quantize(args->input_quantizer, args->input,
                                     &intermediates->input_data,
                                     &intermediates->input_scales));
    CORE_TRY(core__linear_quantized_weight(args, &intermediates->weight_data,
                                           &intermediates->weight_scales));
    CORE_TRY(core__linear_quantized_forward(args, intermediates, out_product));
    return *out_product ? CORE_OK
                        : multiply_wide(args, intermediates, out_product);
}

static bool any_requires_grad(const core_linear_forward_args *args)
{
    return args->input_requires_grad || args->weight_requires_grad ||
           args->bias_requires_grad;
}

static core_status activate(const core_linear_forward_args *args,
                            core_tensor *product,
                            core_linear_intermediates *intermediates,
                            core_tensor **out_output)
{
    core_tensor *saved = NULL;
    core_status status = CORE_OK;

    if (args->activation == CORE_LINEAR_RELU) {
        status = core_relu(product, out_output);
        saved = *out_output;
    } else if (args->activation == CORE_LINEAR_GELU) {
        status = core_gelu(product, "none", out_output);
        saved = product;
    } else {
        *out_output = core_tensor_retain(product);
    }
    if (status == CORE_OK && saved && any_requires_grad(args))
        intermediates->activated = core_tensor_retain(saved);
    return status;
}

/* Releases what no gradient needs. */
static void drop_unneeded(const core_linear_forward_args *args,
                          core_linear_intermediates *intermediates)
{
    if (!args->weight_requires_grad) {
        core_tensor_release(intermediates->input_data);
        core_tensor_release(intermediates->input_scales);
        intermediates->input_data = intermediates->input_scales = NULL;
    }
    if (!args->input_requires_grad) {
        core_tensor_release(intermediates->weight_data);
        core_tensor_release(intermediates->weight_scales);
        intermediates->weight_data = intermediates->weight_scales = NULL;
    }
}

static core_status compute(const core_linear_forward_args *args,
                           core_linear_intermediates *intermediates,
                           core_tensor **out_output)
{
    core_tensor *product = NULL;
    core_status status;

    if (args->input_quantizer)
        status = multiply_quantized(args, intermediates, &product);
    else
        status = multiply(args->input, args->weight, args->bias, &product);
    if (status == CORE_OK)
        status = activate(args, product, intermediates, out_output);
    core_tensor_release(product);
    return status;
}

core_status core__linear_autocast_disable(core_tensor *tensor,
                                          uint64_t *out_region)
{
    core_device *device = core_tensor_device(tensor);

    *out_region = 0;
    if (!core_autocast_dtype(device))
        return CORE_OK;
    return core_autocast_begin(device, CORE_DTYPE_NONE, CORE_AUTOCAST_OFF,
                               out_region);
}

void core__linear_autocast_restore(uint64_t region)
{
    if (region)
        core_autocast_end(region);
}

core_status core__linear_compute(const core_linear_forward_args *args,
                                 core_tensor **out_output,
                                 core_linear_intermediates *out_intermediates)
{
    core_status status;
    uint64_t region;
    bool before;

    *out_intermediates =
        (core_linear_intermediates){.struct_size = sizeof *out_intermediates};
    CORE_TRY(core__linear_autocast_disable(args->input, &region));
    before = core_grad_mode_set(false);
    status = compute(args, out_intermediates, out_output);
    core_grad_mode_set(before);
    core__linear_autocast_restore(region);
    if (status == CORE_OK && args->microbatch == CORE_LINEAR_FIRST_MICROBATCH)
        core__linear_workspace_fill(args, out_intermediates);
    if (status == CORE_OK)
        drop_unneeded(args, out_intermediates);
    else
        core_linear_intermediates_release(out_intermediates);
    return status;
}

core_status core_linear_forward(const core_linear_forward_args *args,
                                core_tensor **out_output,
                                core_linear_intermediates *out_intermediates)
{
    core__linear_mark mark;
    core_status status;

    CORE__NOT_NULL(out_output);
    *out_output = NULL;
    CORE__NOT_NULL(out_intermediates);
    *out_intermediates =
        (core_linear_intermediates){.struct_size = sizeof *out_intermediates};
    CORE__NOT_NULL(args);
    CORE_TRY(core__linear_check(args));
    if (!args->input_quantizer)
        return core__linear_compute(args, out_output, out_intermediates);
    core__linear_mark_set(args, &mark);
    status = core__linear_compute(args, out_output, out_intermediates);
    core__linear_mark_end(args, &mark, status == CORE_OK);
    return status;
}

void core_linear_intermediates_release(core_linear_intermediates *intermediates)
{
    if (!intermediates)
        return;
    core_tensor_release(intermediates->input_data);
    core_tensor_release(intermediates->input_scales);
    core_tensor_release(intermediates->weight_data);
    core_tensor_release(intermediates->weight_scales);
    core_tensor_release(intermediates->activated);
    *intermediates =
        (core_linear_intermediates){.struct_size = sizeof *intermediates};
}

/* ------------------------------------------------------------------ setup -- */

core_status core_linear_setup(const core_linear_forward_args *forward,
                              const core_linear_intermediates *intermediates,
                              core_linear_backward_args *out_backward)
{
    CORE__NOT_NULL(out_backward);
    *out_backward =
        (core_linear_backward_args){.struct_size = sizeof *out_backward};
    CORE__NOT_NULL(forward);
    CORE__NOT_NULL(intermediates);
    CORE_TRY(core__linear_check(forward));
    core__linear_setup(forward, intermediates, out_backward);
    return CORE_OK;
}

void core__linear_setup(const core_linear_forward_args *forward,
                        const core_linear_intermediates *intermediates,
                        core_linear_backward_args *b)
{
    b->struct_size = sizeof *b;
    b->flags = forward->flags;
    b->activation = forward->activation;
    b->dtype = core_tensor_dtype(forward->input);
    b->input_requires_grad = forward->input_requires_grad;
    b->weight_requires_grad = forward->weight_requires_grad;
    b->bias_requires_grad = forward->bias && forward->bias_requires_grad;
    if (b->weight_requires_grad && !forward->input_quantizer)
        b->input = core_tensor_retain(forward->input);
    if (b->input_requires_grad && !forward->input_quantizer)
        b->weight = core_tensor_retain(forward->weight);
    b->input_data = core__linear_retain(intermediates->input_data);
    b->input_scales = core__linear_retain(intermediates->input_scales);
    b->weight_data = core__linear_retain(intermediates->weight_data);
    b->weight_scales = core__linear_retain(intermediates->weight_scales);
    b->activated = core__linear_retain(intermediates->activated);
    b->grad_quantizer = core_quantizer_retain(forward->grad_quantizer);
    if (b->weight_requires_grad) {
        b->main_grad = core__linear_retain(forward->main_grad);
        b->wgrad_queue = core__linear_wgrad_queue_retain(forward->wgrad_queue);
        if (b->wgrad_queue)
            b->leaf = core_tensor_retain(forward->weight);
    }
}

void core_linear_backward_release(core_linear_backward_args *args)
{
    if (!args)
        return;
    core_tensor_release(args->input);
    core_tensor_release(args->weight);
    core_tensor_release(args->input_data);
    core_tensor_release(args->input_scales);
    core_tensor_release(args->weight_data);
    core_tensor_release(args->weight_scales);
    core_tensor_release(args->activated);
    core_tensor_release(args->main_grad);
    core_tensor_release(args->leaf);
    core_quantizer_release(args->grad_quantizer);
    core_linear_wgrad_queue_release(args->wgrad_queue);
    *args = (core_linear_backward_args){.struct_size = sizeof *args};
}
