/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The backward of the fused Linear: gradients of input, weight and bias, also
 * quantized or into a main gradient. */

#include "autograd/engine/engine.h"
#include "base/error.h"
#include "linear/linear.h"
#include "quant/quantizer.h"

#include <libcore/autograd.h>
#include <libcore/ops.h>

#include <string.h>

/* -------------------------------------------------- the weight's gradient -- */

/* Calls no operator if the dtype is already right. */
static core_status cast(core_tensor *tensor, core_dtype dtype,
                        core_tensor **out_tensor)
{
    if (core_tensor_dtype(tensor) != dtype)
        return core_to(tensor, dtype, NULL, false, false, -1, out_tensor);
    *out_tensor = core_tensor_retain(tensor);
    return CORE_OK;
}

static core_status put(const core__linear_weight_gradient *dw,
                       core_tensor *product)
{
    bool before = core_grad_mode_set(false);
    core_status status = dw->flags & CORE_LINEAR_ACCUMULATE
                             ? core_add_(dw->main_grad, product, core_int(1))
                             : core_copy_(dw->main_grad, product, false);

    core_grad_mode_set(before);
    return status;
}

/* If the main gradient is narrower than the factors, the product is computed
 * first and then added to it. */
static core_status into_narrow(const core__linear_weight_gradient *dw,
                               core_tensor *a, core_tensor *b)
{
    core_tensor *product = NULL;
    core_status status = core_mm(a, b, &product);

    if (status == CORE_OK)
        status = put(dw, product);
    core_tensor_release(product);
    return status;
}

/* In the main gradient's dtype, so that no precision is lost on the way. */
static core_status into_main(const core__linear_weight_gradient *dw,
                             core_tensor *turned, core_tensor *rows)
{
    core_dtype dtype = core_tensor_dtype(dw->main_grad);
    core_dtype wide = core_dtype_promote(dtype, core_tensor_dtype(turned));
    core_tensor *a = NULL, *b = NULL;
    bool before = core_grad_mode_set(false);
    core_status status;

    status = core_to(turned, wide, NULL, false, false, -1, &a);
    if (status == CORE_OK)
        status = core_to(rows, wide, NULL, false, false, -1, &b);
    if (status == CORE_OK && wide != dtype)
        status = into_narrow(dw, a, b);
    else if (status == CORE_OK && dw->flags & CORE_LINEAR_ACCUMULATE)
        status = core_addmm_(dw->main_grad, a, b, core_float(1), core_float(1));
    else if (status == CORE_OK)
        status = core_mm_out(a, b, dw->main_grad);
    core_tensor_release(a);
    core_tensor_release(b);
    core_grad_mode_set(before);
    return status;
}

/* The factors of a float8 product; owned. */
static core_status dw_factors(core_tensor *grad, core_tensor *input,
                              core__linear_quantized_factor *a,
                              core__linear_quantized_factor *b)
{
    core_status status = core_t(grad, &a->data);

    return status == CORE_OK ? core__linear_as_matrix(input, &b->data) : status;
}

static core_status dw_quantized(const core__linear_weight_gradient *dw,
                                core_tensor **out_gradient)
{
    core__linear_quantized_factor a = {NULL, dw->grad_scales};
    core__linear_quantized_factor b = {NULL, dw->input_scales};
    core_dtype dtype = dw->main_grad ? CORE_F32 : dw->dtype;
    core_tensor *product = NULL;
    core_status status = dw_factors(dw->grad, dw->input_data, &a, &b);

    if (status == CORE_OK)
        status = core_scaled_mm(a.data, b.data, a.scales, b.scales, NULL, NULL,
                                dtype, false, &product);
    if (status == CORE_OK && dw->main_grad)
        status = put(dw, product);
    else if (status == CORE_OK)
        *out_gradient = core_tensor_retain(product);
    core_tensor_release(a.data);
    core_tensor_release(b.data);
    core_tensor_release(product);
    return status;
}

static core_status dw_wide(const core__linear_weight_gradient *dw,
                           core_tensor **out_gradient)
{
    core_tensor *input = NULL, *rows = NULL, *turned = NULL, *product = NULL;
    core_status status = CORE_OK;

    *out_gradient = NULL;
    if (dw->input)
        input = core_tensor_retain(dw->input);
    else
        status =
            core_dequantize(dw->input_data, dw->input_scales, CORE_F32, &input);
    if (status == CORE_OK)
        status = core__linear_as_matrix(input, &rows);
    if (status == CORE_OK)
        status = core_t(dw->grad, &turned);
    if (status == CORE_OK && dw->main_grad)
        status = into_main(dw, turned, rows);
    else if (status == CORE_OK)
        status = core_mm(turned, rows, &product);
    if (status == CORE_OK && product)
        status = cast(product, dw->dtype, out_gradient);
    core_tensor_release(input);
    core_tensor_release(rows);
    core_tensor_release(turned);
    core_tensor_release(product);
    return status;
}

core_status core__linear_weight_gradient_compute(
    const core__linear_weight_gradient *dw, core_tensor **out_gradient)
{
    *out_gradient = NULL;
    /* The gradient goes no further, so the end of backward does not wait for
     * it. */
    if (dw->main_grad)
        CORE_TRY(core__task_note_write(core_tensor_device(dw->main_grad)));
    return dw->grad_scales ? dw_quantized(dw, out_gradient)
                           : dw_wide(dw, out_gradient);
}

void core__linear_weight_gradient_release(core__linear_weight_gradient *dw)
{
    core_tensor_release(dw->grad);
    core_tensor_release(dw->grad_scales);
    core_tensor_release(dw->input);
    core_tensor_release(dw->input_data);
    core_tensor_release(dw->input_scales);
    core_tensor_release(dw->main_grad);
    core_tensor_release(dw->leaf);
}

/* The incoming gradient in the forms that the products need. */
typedef struct prepared {
    core_tensor *wide;          /* NULL: not needed yet */
    core_tensor *data, *scales; /* NULL: not quantized */
} prepared;

static core_status widen(prepared *grad)
{
    if (grad->wide)
        return CORE_OK;
    return core_dequantize(grad->data, grad->scales, CORE_F32, &grad->wide);
}

/* An f64 main gradient does not accept products rounded to f32. */
static core_status accepts_quantized(const core_linear_backward_args *args,
                                     const prepared *grad, bool *out_takes)
{
    core__linear_quantized_factor a = {NULL, grad->scales};
    core__linear_quantized_factor b = {NULL, args->input_scales};
    core_tensor *to = args->main_grad;
    core_status status;

    *out_takes = false;
    if (!grad->data || !args->input_data ||
        (to && core_tensor_dtype(to) == CORE_F64))
        return CORE_OK;
    status = dw_factors(grad->data, args->input_data, &a, &b);
    if (status == CORE_OK)
        *out_takes = core__linear_quantized_supported(
            &a, &b, NULL, to ? CORE_F32 : args->dtype);
    core_tensor_release(a.data);
    core_tensor_release(b.data);
    return status;
}

static core_status weight_gradient(const core_linear_backward_args *args,
                                   prepared *grad, core_tensor **out_gradient)
{
    core__linear_weight_gradient dw = {.input = args->input,
                                       .input_data = args->input_data,
                                       .input_scales = args->input_scales,
                                       .main_grad = args->main_grad,
                                       .leaf = args->leaf,
                                       .dtype = args->dtype,
                                       .flags = args->flags};
    bool eight;

    CORE_TRY(accepts_quantized(args, grad, &eight));
    if (!eight)
        CORE_TRY(widen(grad));
    dw.grad = eight ? grad->data : grad->wide;
    dw.grad_scales = eight ? grad->scales : NULL;
    if (!args->wgrad_queue)
        return core__linear_weight_gradient_compute(&dw, out_gradient);
    dw.grad_version = core_tensor_version(dw.grad);
    dw.input_version = args->input ? core_tensor_version(args->input) : 0;
    core__linear_retain(dw.grad);
    core__linear_retain(dw.grad_scales);
    core__linear_retain(dw.input);
    core__linear_retain(dw.input_data);
    core__linear_retain(dw.input_scales);
    core__linear_retain(dw.main_grad);
    core__linear_retain(dw.leaf);
    return core__linear_wgrad_queue_push(args->wgrad_queue, &dw);
}

/* --------------------------------------------------- the other gradients -- */

static core_status before_activation(const core_linear_backward_args *args,
                                     core_tensor **out_grad)
{
    if (args->activation == CORE_LINEAR_RELU)
        return core_threshold_backward(args->grad_output, args->activated,
                                       core_float(0), out_grad);
    if (args->activation == CORE_LINEAR_GELU)
        return core_gelu_backward(args->grad_output, args->activated, "none",
                                  out_grad);
    *out_grad = core_tensor_retain(args->grad_output);
    return CORE_OK;
}

/* Converts the gradient to the forms that the products need. */
static core_status prepare(const core_linear_backward_args *args,
                           core_tensor *grad, prepared *out)
{
    if (!args->input_data && !args->weight_data) {
        out->wide = core_tensor_retain(grad);
        return CORE_OK;
    }
    if (!args->grad_quantizer)
        return core_to(grad, CORE_F32, NULL, false, false, -1, &out->wide);
    return core_quantizer_quantize(args->grad_quantizer, grad, &out->data,
                                   &out->scales);
}

static core_status input_wide(const core_linear_backward_args *args,
                              prepared *grad, core_tensor **out_rows)
{
    core_tensor *weight = NULL, *product = NULL;
    core_status status = widen(grad);

    if (status == CORE_OK && args->weight)
        weight = core_tensor_retain(args->weight);
    else if (status == CORE_OK)
        status = core_dequantize(args->weight_data, args->weight_scales,
                                 CORE_F32, &weight);
    if (status == CORE_OK)
        status = core_mm(grad->wide, weight, &product);
    if (status == CORE_OK)
        status = cast(product, args->dtype, out_rows);
    core_tensor_release(weight);
    core_tensor_release(product);
    return status;
}

static core_status input_quantized(const core_linear_backward_args *args,
                                   const prepared *grad, core_tensor **out_rows)
{
    const core__linear_quantized_factor a = {grad->data, grad->scales};
    const core__linear_quantized_factor b = {args->weight_data,
                                             args->weight_scales};

    *out_rows = NULL;
    if (!a.data || !b.data)
        return CORE_OK;
    return core__linear_quantized_matmul(&a, &b, NULL, args->dtype, out_rows);
}

static core_status input_gradient(const core_linear_backward_args *args,
                                  prepared *grad, core_tensor **out_gradient)
{
    uint32_t ndim = core_tensor_ndim(args->grad_output);
    int64_t sizes[CORE_MAX_NDIM];
    core_tensor *rows = NULL;
    core_status status = input_quantized(args, grad, &rows);

    if (status == CORE_OK && !rows)
        status = input_wide(args, grad, &rows);
    if (status == CORE_OK && ndim == 2) {
        *out_gradient = core_tensor_retain(rows);
    } else if (status == CORE_OK) {
        memcpy(sizes, core_tensor_sizes(args->grad_output),
               ndim * sizeof *sizes);
        sizes[ndim - 1] = core_tensor_size(rows, 1);
        status = core_reshape(rows, sizes, ndim, out_gradient);
    }
    core_tensor_release(rows);
    return status;
}

static core_status gradients(const core_linear_backward_args *args,
                             core_tensor *grad, core_tensor **out_grad_input,
                             core_tensor **out_grad_weight,
                             core_tensor **out_grad_bias)
{
    const int64_t first = 0;
    prepared ready = {NULL, NULL, NULL};
    core_tensor *rows = NULL;
    core_status status = core__linear_as_matrix(grad, &rows);

    if (status == CORE_OK && args->bias_requires_grad)
        status = core_sum_dim(rows, &first, 1, false, CORE_DTYPE_NONE,
                              out_grad_bias);
    if (status == CORE_OK &&
        (args->input_requires_grad || args->weight_requires_grad))
        status = prepare(args, rows, &ready);
    if (status == CORE_OK && args->input_requires_grad)
        status = input_gradient(args, &ready, out_grad_input);
    if (status == CORE_OK && args->weight_requires_grad)
        status = weight_gradient(args, &ready, out_grad_weight);
    core_tensor_release(rows);
    core_tensor_release(ready.wide);
    core_tensor_release(ready.data);
    core_tensor_release(ready.scales);
    return status;
}

static core_status check(const core_linear_backward_args *args)
{
    bool weight = args->weight || (args->weight_data && args->weight_scales);
    bool input = args->input || (args->input_data && args->input_scales);

    if (args->struct_size < sizeof *args)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_linear_backward_args: struct_size is %u; it must be %zu",
            args->struct_size, sizeof *args);
    if (!args->grad_output)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "linear: the argument grad_output is NULL");
    if ((args->input_requires_grad && !weight) ||
        (args->weight_requires_grad && !input) ||
        (args->activation && !args->activated) ||
        (args->wgrad_queue && !args->leaf && !args->main_grad))
        return core__error(CORE_ERROR_AUTOGRAD,
                           "linear: the saved state that backward needs was "
                           "not saved or is already released");
    if (core_tensor_ndim(args->grad_output) < 1)
        return core__error(
            CORE_ERROR_SHAPE,
            "linear: grad_output has no dimensions; it must be [..., out]");
    if (core_tensor_dtype(args->grad_output) != args->dtype)
        return core__error(
            CORE_ERROR_DTYPE,
            "linear: grad_output is %s and the output %s; they must have the "
            "same dtype",
            core_dtype_name(core_tensor_dtype(args->grad_output)),
            core_dtype_name(args->dtype));
    return CORE_OK;
}

core_status core_linear_backward(const core_linear_backward_args *args,
                                 core_tensor **out_grad_input,
                                 core_tensor **out_grad_weight,
                                 core_tensor **out_grad_bias)
{
    core__quantizer_mark mark;
    core_tensor *grad = NULL;
    core_status status;
    uint64_t region;

    CORE__NOT_NULL(out_grad_input);
    *out_grad_input = NULL;
    CORE__NOT_NULL(out_grad_weight);
    *out_grad_weight = NULL;
    CORE__NOT_NULL(out_grad_bias);
    *out_grad_bias = NULL;
    CORE__NOT_NULL(args);
    CORE_TRY(check(args));
    CORE_TRY(core__linear_autocast_disable(args->grad_output, &region));
    if (args->grad_quantizer)
        core__quantizer_mark_set(args->grad_quantizer, &mark);
    status = before_activation(args, &grad);
    if (status == CORE_OK)
        status = gradients(args, grad, out_grad_input, out_grad_weight,
                           out_grad_bias);
    core_tensor_release(grad);
    if (status != CORE_OK && args->grad_quantizer)
        core__quantizer_mark_restore(args->grad_quantizer, &mark);
    if (args->grad_quantizer)
        core__quantizer_mark_drop(&mark);
    core__linear_autocast_restore(region);
    if (status == CORE_OK)
        return CORE_OK;
    core_tensor_release(*out_grad_input);
    core_tensor_release(*out_grad_weight);
    core_tensor_release(*out_grad_bias);
    *out_grad_input = *out_grad_weight = *out_grad_bias = NULL;
    return status;
}
