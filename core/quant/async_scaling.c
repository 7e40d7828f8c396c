/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Quantization that does not wait for the device (CORE_QUANTIZER_NO_WAIT):
 * amax, scale and history are computed and kept on the device until the host
 * asks for the state. */

#include "base/error.h"
#include "quant/quantizer.h"
#include "tensor/tensor.h"

#include <libcore/memory.h>
#include <libcore/ops.h>

#include <float.h>
#include <math.h>

core__quantizer_device_state core__quantizer_device_state_retain(
    const core__quantizer_device_state *of)
{
    if (of->amax)
        core_tensor_retain(of->amax);
    if (of->scale)
        core_tensor_retain(of->scale);
    if (of->history)
        core_tensor_retain(of->history);
    if (of->stream)
        core_stream_retain(of->stream);
    return *of;
}

void core__quantizer_device_state_release(
    core__quantizer_device_state *device_state)
{
    core_tensor_release(device_state->amax);
    core_tensor_release(device_state->scale);
    core_tensor_release(device_state->history);
    core_stream_release(device_state->stream);
    *device_state = (core__quantizer_device_state){0};
}

core_status core__quantizer_reinterpret(core_tensor *tensor, core_dtype dtype,
                                        core_tensor **out_tensor)
{
    return core__tensor_alias(tensor, dtype, tensor->ndim, tensor->sizes,
                              tensor->strides, tensor->offset, out_tensor);
}

core_status core__quantizer_use_stream(core_quantizer *quantizer,
                                       core_device *device)
{
    core__quantizer_device_state *device_state = &quantizer->device_state;
    core_stream *here;

    CORE_TRY(core_stream_current(device, &here));
    if (device_state->stream == here)
        return CORE_OK;
    if (device_state->stream) {
        core_tensor *const all[] = {device_state->amax, device_state->scale,
                                    device_state->history};

        CORE_TRY(core_stream_wait_stream(here, device_state->stream));
        for (int i = 0; i < 3; i++)
            if (all[i] && core_tensor_device(all[i]) == device)
                CORE_TRY(core_tensor_record_stream(all[i], here));
    }
    core_stream_release(device_state->stream);
    device_state->stream = core_stream_retain(here);
    return CORE_OK;
}

/* Rounds a scale down to a power of two by clearing its mantissa. */
static core_status power_of_two(core_tensor *scale, core_tensor **out_scale)
{
    core_tensor *bits = NULL, *exponents = NULL;
    core_status status;

    status = core__quantizer_reinterpret(scale, CORE_I32, &bits);
    if (status == CORE_OK)
        status =
            core_bitwise_and_scalar(bits, core_int(0x7f800000), &exponents);
    if (status == CORE_OK)
        status = core__quantizer_reinterpret(exponents, CORE_F32, out_scale);
    core_tensor_release(bits);
    core_tensor_release(exponents);
    return status;
}

core_status core__quantizer_scale_on_device(
    const core_quantizer_options *options, core_tensor *amax,
    core_tensor *empty, core_tensor **out_scale)
{
    const core_scalar least = core_float(FLT_MIN), most = core_float(FLT_MAX);
    core_tensor *max = NULL, *quotient = NULL, *within = NULL, *none = NULL;
    core_tensor *number = NULL;
    double numerator = core_float8_max(options->dtype);
    core_status status;

    if (options->scaling == CORE_SCALING_DELAYED)
        numerator = ldexp(numerator, -options->margin);
    status = core_full(NULL, 0, core_float(numerator), CORE_F32,
                       core_tensor_device(amax), &max);
    if (status == CORE_OK)
        status = core_div(max, amax, &quotient);
    if (status == CORE_OK)
        status = core_clamp(quotient, &least, &most, &within);
    if (status == CORE_OK && options->flags & CORE_QUANTIZER_POWER_OF_TWO)
        status = power_of_two(within, &number);
    else if (status == CORE_OK)
        number = core_tensor_retain(within);
    if (status == CORE_OK)
        status = core_eq_scalar(amax, core_float(0), &none);
    if (status == CORE_OK)
        status = core_where(none, empty, number, out_scale);
    core_tensor_release(max);
    core_tensor_release(quotient);
    core_tensor_release(within);
    core_tensor_release(none);
    core_tensor_release(number);
    return status;
}

static core_status amax_of(core_tensor *tensor, core_tensor **out_amax)
{
    if (core_tensor_numel(tensor) == 0)
        return core_zeros(NULL, 0, CORE_F32, core_tensor_device(tensor),
                          out_amax);
    return core_linalg_vector_norm(tensor, core_float(INFINITY), NULL, 0, false,
                                   CORE_F32, out_amax);
}

static core_status scale_and_cast(const core_quantizer *quantizer,
                                  core_tensor *tensor, core_tensor *scale,
                                  core_tensor **out_data,
                                  core_tensor **out_scales)
{
    core_tensor *product = NULL;
    core_status status = core_mul(tensor, scale, &product);

    if (status == CORE_OK)
        status = core__quantizer_cast(&quantizer->options, product, out_data);
    if (status == CORE_OK)
        status = core_reciprocal(scale, out_scales);
    core_tensor_release(product);
    return status;
}

static core_status quantize_current(core_quantizer *quantizer,
                                    core_tensor *tensor, core_tensor *amax,
                                    core_tensor **out_data,
                                    core_tensor **out_scales)
{
    core_tensor *one = NULL, *scale = NULL;
    core_status status;

    status = core_ones(NULL, 0, CORE_F32, core_tensor_device(tensor), &one);
    if (status == CORE_OK)
        status = core__quantizer_scale_on_device(&quantizer->options, amax, one,
                                                 &scale);
    if (status == CORE_OK)
        status = scale_and_cast(quantizer, tensor, scale, out_data, out_scales);
    core_tensor_release(one);
    core_tensor_release(scale);
    return status;
}

/* --------------------------------------------------------------- delayed -- */

/* State that calls on "meta" left cannot be used on another device. */
static core_status check_known(const core_tensor *of, const core_device *wanted)
{
    if (!core__tensor_is_meta(of) || core_tensor_device(of) == wanted)
        return CORE_OK;
    return core__error(
        CORE_ERROR_DATA_DEPENDENT,
        "quantizer: its last call was on \"%s\", which has no values, so its "
        "state is unknown; set one with core_quantizer_set_state",
        core_device_name(core_tensor_device(of)));
}

/* Copies scale and history to the tensor's device, from the device state or, if
 * there is none, from the host's. */
static core_status state_to_device(core_quantizer *quantizer,
                                   core_device *device,
                                   core__quantizer_device_state *out)
{
    const int64_t length = quantizer->options.history_length;
    const core_quantizer_state *state = &quantizer->state;
    const core__quantizer_device_state *device_state = &quantizer->device_state;

    if (device_state->scale) {
        CORE_TRY(check_known(device_state->scale, device));
        CORE_TRY(core_to(device_state->scale, CORE_DTYPE_NONE, device, false,
                         false, -1, &out->scale));
        return core_to(device_state->history, CORE_DTYPE_NONE, device, false,
                       false, -1, &out->history);
    }
    CORE_TRY(core_full(NULL, 0, core_float((double)state->scale), CORE_F32,
                       device, &out->scale));
    for (uint32_t i = state->history_count; i < length; i++)
        quantizer->history[i] = 0;
    if (state->history_count == 0)
        return core_zeros(&length, 1, CORE_F32, device, &out->history);
    return core_tensor_from_data(quantizer->history, CORE_F32, &length, 1,
                                 device, &out->history);
}

/* Prepends an amax to the history.  One that is not finite is stored as 0,
 * since it says nothing about the next tensor. */
static core_status history_push(const core_quantizer *quantizer,
                                core_tensor *amax,
                                const core__quantizer_device_state *was,
                                core__quantizer_device_state *now)
{
    const int64_t one = 1, length = quantizer->options.history_length;
    core_tensor *finite = NULL, *zero = NULL, *clean = NULL, *first = NULL;
    core_tensor *rest = NULL, *largest = NULL;
    core_status status = core_isfinite(amax, &finite);

    if (status == CORE_OK)
        status = core_zeros_like(amax, CORE_DTYPE_NONE, NULL, -1, &zero);
    if (status == CORE_OK)
        status = core_where(finite, amax, zero, &clean);
    if (status == CORE_OK)
        status = core_reshape(clean, &one, 1, &first);
    if (status == CORE_OK)
        status = core_narrow(was->history, 0, 0, length - 1, &rest);
    if (status == CORE_OK)
        status = core_cat((core_tensor *[]){first, rest}, 2, 0, &now->history);
    if (status == CORE_OK &&
        quantizer->options.flags & CORE_QUANTIZER_MOST_RECENT)
        largest = core_tensor_retain(clean);
    else if (status == CORE_OK)
        status = core_amax(now->history, NULL, 0, false, &largest);
    if (status == CORE_OK)
        status = core__quantizer_scale_on_device(&quantizer->options, largest,
                                                 was->scale, &now->scale);
    core_tensor_release(finite);
    core_tensor_release(zero);
    core_tensor_release(clean);
    core_tensor_release(first);
    core_tensor_release(rest);
    core_tensor_release(largest);
    return status;
}

static core_status quantize_delayed(core_quantizer *quantizer,
                                    core_tensor *tensor, core_tensor *amax,
                                    core_tensor **out_data,
                                    core_tensor **out_scales,
                                    core__quantizer_device_state *now)
{
    core__quantizer_device_state was = {0};
    core_tensor *nan_mask = NULL, *scale = NULL;
    core_status status =
        state_to_device(quantizer, core_tensor_device(tensor), &was);

    /* 0 * amax is NaN where the amax is not finite, so the scale becomes NaN
     * too. */
    if (status == CORE_OK)
        status = core_mul_scalar(amax, core_float(0), &nan_mask);
    if (status == CORE_OK)
        status = core_add(was.scale, nan_mask, core_int(1), &scale);
    if (status == CORE_OK)
        status = scale_and_cast(quantizer, tensor, scale, out_data, out_scales);
    if (status == CORE_OK)
        status = history_push(quantizer, amax, &was, now);
    core_tensor_release(nan_mask);
    core_tensor_release(scale);
    core__quantizer_device_state_release(&was);
    return status;
}

/* ------------------------------------------------------------------- use -- */

core_status core__quantizer_quantize_async(core_quantizer *quantizer,
                                           core_tensor *tensor,
                                           core_tensor **out_data,
                                           core_tensor **out_scales)
{
    const core_quantizer_options *options = &quantizer->options;
    core__quantizer_device_state now = {0};
    core_status status;

    CORE_TRY(core__quantizer_use_stream(quantizer, core_tensor_device(tensor)));
    if (options->scaling == CORE_SCALING_BLOCK)
        status = core__quantize_blocks(options, tensor, out_data, out_scales,
                                       &now.amax);
    else
        status = amax_of(tensor, &now.amax);
    if (status == CORE_OK && options->scaling == CORE_SCALING_CURRENT)
        status =
            quantize_current(quantizer, tensor, now.amax, out_data, out_scales);
    else if (status == CORE_OK && options->scaling == CORE_SCALING_DELAYED)
        status = quantize_delayed(quantizer, tensor, now.amax, out_data,
                                  out_scales, &now);
    if (status != CORE_OK) {
        core__quantizer_device_state_release(&now);
        return status;
    }
    now.stream = core_stream_retain(quantizer->device_state.stream);
    core__quantizer_device_state_release(&quantizer->device_state);
    quantizer->device_state = now;
    if (quantizer->state.history_count < options->history_length)
        quantizer->state.history_count++;
    return CORE_OK;
}

core_status core__quantizer_read_state(core_quantizer *quantizer)
{
    const core_quantizer_options *options = &quantizer->options;
    core__quantizer_device_state *device_state = &quantizer->device_state;
    core_quantizer_state *state = &quantizer->state;
    double amax, scale;

    CORE_TRY(check_known(device_state->amax, NULL));
    CORE_TRY(core__quantizer_use_stream(
        quantizer, core_tensor_device(device_state->amax)));
    CORE_TRY(core_tensor_item_float(device_state->amax, &amax));
    if (options->scaling == CORE_SCALING_DELAYED) {
        CORE_TRY(core_tensor_item_float(device_state->scale, &scale));
        CORE_TRY(core_tensor_read(device_state->history, quantizer->history,
                                  options->history_length *
                                      sizeof *quantizer->history));
        state->scale = (float)scale;
    } else if (options->scaling == CORE_SCALING_CURRENT) {
        state->scale = core__quantizer_scale_on_host(quantizer, (float)amax, 1);
    }
    state->amax = (float)amax;
    /* Scale and history stay on the device for the next call. */
    core_tensor_release(device_state->amax);
    device_state->amax = NULL;
    return CORE_OK;
}
