/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The public quantizer: options, state, current and delayed scaling, and
 * dequantization. */

#include "base/error.h"
#include "base/memory.h"
#include "quant/quantizer.h"
#include "tensor/tensor.h"

#include <libcore/autograd.h>
#include <libcore/ops.h>

#include <float.h>
#include <math.h>
#include <string.h>

/* -------------------------------------------------------- options, state -- */

static core_status check_delayed(const core_quantizer_options *options)
{
    if (options->scaling != CORE_SCALING_DELAYED)
        return CORE_OK;
    if (options->history_length < 1 ||
        options->history_length > CORE_QUANTIZER_HISTORY)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "quantizer: history_length is %u; it must be from 1 to %d",
            options->history_length, CORE_QUANTIZER_HISTORY);
    if (options->margin < -64 || options->margin > 64)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "quantizer: margin is %d; it must be from -64 to 64",
                           options->margin);
    return CORE_OK;
}

static core_status check_options(const core_quantizer_options *options)
{
    const uint32_t known = CORE_QUANTIZER_STOCHASTIC |
                           CORE_QUANTIZER_MOST_RECENT |
                           CORE_QUANTIZER_POWER_OF_TWO | CORE_QUANTIZER_NO_WAIT;

    if (options->struct_size < sizeof *options)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_quantizer_options: struct_size is %u; it must be %zu",
            options->struct_size, sizeof *options);
    if (options->scaling < CORE_SCALING_CURRENT ||
        options->scaling > CORE_SCALING_BLOCK)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "quantizer: scaling is %u; accepted: CORE_SCALING_CURRENT, "
            "CORE_SCALING_DELAYED and CORE_SCALING_BLOCK",
            options->scaling);
    if (!core_float8_max(options->dtype))
        return core__error(
            CORE_ERROR_DTYPE,
            "quantizer: dtype is %s; it must be f8e4m3 or f8e5m2",
            core_dtype_name(options->dtype));
    if (options->flags & ~known)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "quantizer: the flags are 0x%x; accepted: "
                           "CORE_QUANTIZER_STOCHASTIC, _MOST_RECENT, "
                           "_POWER_OF_TWO and _NO_WAIT",
                           options->flags);
    return check_delayed(options);
}

core_status core_quantizer_create(const core_quantizer_options *options,
                                  core_quantizer **out_quantizer)
{
    core_quantizer *quantizer;
    size_t size, length = 0;

    CORE__NOT_NULL(out_quantizer);
    *out_quantizer = NULL;
    CORE__NOT_NULL(options);
    CORE_TRY(check_options(options));
    if (options->scaling == CORE_SCALING_DELAYED)
        length = options->history_length;
    size = sizeof *quantizer + length * sizeof(float);
    quantizer = core__alloc_zero(size);
    if (!quantizer)
        return core__error_memory(size);
    atomic_init(&quantizer->references, 1);
    quantizer->options = *options;
    quantizer->options.struct_size = sizeof *options;
    quantizer->options.history_length = (uint32_t)length;
    quantizer->state.struct_size = sizeof quantizer->state;
    quantizer->state.scale = 1;
    *out_quantizer = quantizer;
    return CORE_OK;
}

core_quantizer *core_quantizer_retain(core_quantizer *quantizer)
{
    if (quantizer)
        atomic_fetch_add(&quantizer->references, 1);
    return quantizer;
}

void core_quantizer_release(core_quantizer *quantizer)
{
    if (!quantizer || atomic_fetch_sub(&quantizer->references, 1) != 1)
        return;
    core__quantizer_device_state_release(&quantizer->device_state);
    core__free(quantizer);
}

const core_quantizer_options *core_quantizer_get_options(
    const core_quantizer *quantizer)
{
    return quantizer ? &quantizer->options : NULL;
}

/* Fetches state that is still on the device; a quantizer's const accessors need
 * it. */
static core_status read_device_state(const core_quantizer *quantizer)
{
    return quantizer->device_state.amax
               ? core__quantizer_read_state((core_quantizer *)quantizer)
               : CORE_OK;
}

const float *core_quantizer_history(const core_quantizer *quantizer)
{
    return quantizer && read_device_state(quantizer) == CORE_OK
               ? quantizer->history
               : NULL;
}

core_status core_quantizer_get_state(const core_quantizer *quantizer,
                                     core_quantizer_state *out_state)
{
    CORE__NOT_NULL(quantizer);
    CORE__NOT_NULL(out_state);
    if (out_state->struct_size < sizeof *out_state)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_quantizer_state: struct_size is %u; it must be %zu",
            out_state->struct_size, sizeof *out_state);
    CORE_TRY(read_device_state(quantizer));
    *out_state = quantizer->state;
    return CORE_OK;
}

core_status core_quantizer_set_state(core_quantizer *quantizer,
                                     const core_quantizer_state *state,
                                     const float *history)
{
    CORE__NOT_NULL(quantizer);
    CORE__NOT_NULL(state);
    if (state->struct_size < sizeof *state)
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "core_quantizer_state: struct_size is %u; it must be %zu",
            state->struct_size, sizeof *state);
    if (!(state->scale > 0) || !isfinite(state->scale))
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "quantizer: the scale is %g; it must be finite and above 0",
            (double)state->scale);
    /* With CORE_QUANTIZER_NO_WAIT an infinite or NaN amax is not an error. */
    if (state->amax < 0 ||
        (!isfinite(state->amax) &&
         !(quantizer->options.flags & CORE_QUANTIZER_NO_WAIT)))
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "quantizer: the amax is %g; it must be finite and 0 or more",
            (double)state->amax);
    if (state->history_count > quantizer->options.history_length)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "quantizer: history_count is %u; it must be at most "
                           "the history_length %u",
                           state->history_count,
                           quantizer->options.history_length);
    if (state->history_count > 0)
        CORE__NOT_NULL(history);
    for (uint32_t i = 0; i < state->history_count; i++)
        if (!(history[i] >= 0) || !isfinite(history[i]))
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "quantizer: amax %u of the history is %g; it "
                               "must be finite and 0 or more",
                               i, (double)history[i]);
    core__quantizer_device_state_release(&quantizer->device_state);
    quantizer->state = *state;
    quantizer->state.struct_size = sizeof *state;
    if (state->history_count > 0)
        memmove(quantizer->history, history,
                state->history_count * sizeof *history);
    return CORE_OK;
}

/* Restores the state after a failed call. */
void core__quantizer_mark_set(const core_quantizer *quantizer,
                              core__quantizer_mark *mark)
{
    uint32_t length = quantizer->options.history_length;

    mark->state = quantizer->state;
    mark->device_state =
        core__quantizer_device_state_retain(&quantizer->device_state);
    for (uint32_t i = 0; i < 2; i++)
        mark->oldest[i] = i < length ? quantizer->history[length - 1 - i] : 0;
}

void core__quantizer_mark_restore(core_quantizer *quantizer,
                                  const core__quantizer_mark *mark)
{
    uint32_t length = quantizer->options.history_length;
    uint64_t calls = quantizer->state.calls - mark->state.calls;
    uint32_t count = calls < length ? (uint32_t)calls : length;
    float *history = quantizer->history;

    if (quantizer->options.flags & CORE_QUANTIZER_NO_WAIT)
        count = 0; /* the host's history has not changed */
    memmove(history, history + count, (length - count) * sizeof *history);
    for (uint32_t i = 0; i < count && i < 2; i++)
        history[length - 1 - i] = mark->oldest[i];
    core__quantizer_device_state_release(&quantizer->device_state);
    quantizer->device_state =
        core__quantizer_device_state_retain(&mark->device_state);
    quantizer->state = mark->state;
}

void core__quantizer_mark_drop(core__quantizer_mark *mark)
{
    core__quantizer_device_state_release(&mark->device_state);
}

/* -------------------------------------------------------------- one scale -- */

float core__quantizer_scale_on_host(const core_quantizer *quantizer, float amax,
                                    float now)
{
    const core_quantizer_options *options = &quantizer->options;
    double scale = core_float8_max(options->dtype) / (double)amax;
    int exponent;

    if (amax == 0)
        return now;
    if (options->scaling == CORE_SCALING_DELAYED)
        scale = ldexp(scale, -options->margin);
    scale = fmin(fmax(scale, FLT_MIN), FLT_MAX);
    if (options->flags & CORE_QUANTIZER_POWER_OF_TWO) {
        frexp(scale, &exponent);
        scale = ldexp(1, exponent - 1);
    }
    return (float)scale;
}

static void history_push(core_quantizer *quantizer, float amax)
{
    core_quantizer_state *state = &quantizer->state;
    float *history = quantizer->history, largest = amax;

    if (state->history_count < quantizer->options.history_length)
        state->history_count++;
    memmove(history + 1, history, (state->history_count - 1) * sizeof *history);
    history[0] = amax;
    for (uint32_t i = 1; i < state->history_count; i++)
        largest = fmaxf(largest, history[i]);
    if (quantizer->options.flags & CORE_QUANTIZER_MOST_RECENT)
        largest = amax;
    state->scale =
        core__quantizer_scale_on_host(quantizer, largest, state->scale);
}

static core_status find_amax(core_tensor *tensor, float *out_amax)
{
    core_tensor *norm = NULL;
    double amax = 0;
    core_status status = CORE_OK;

    if (core_tensor_numel(tensor) > 0)
        status = core_linalg_vector_norm(tensor, core_float(INFINITY), NULL, 0,
                                         false, CORE_F32, &norm);
    if (status == CORE_OK && norm)
        status = core_tensor_item_float(norm, &amax);
    core_tensor_release(norm);
    if (status == CORE_OK && !isfinite(amax))
        status = core__error(CORE_ERROR_INVALID_ARGUMENT,
                             "quantizer: the tensor has an element that is %s; "
                             "all must be finite",
                             isnan(amax) ? "NaN" : "infinite");
    *out_amax = (float)amax;
    return status;
}

static core_status quantize_whole(core_quantizer *quantizer,
                                  core_tensor *tensor, core_tensor **out_data,
                                  core_tensor **out_scales)
{
    const core_quantizer_options *options = &quantizer->options;
    bool delayed = options->scaling == CORE_SCALING_DELAYED;
    core_quantizer_state *state = &quantizer->state;
    float amax, scale, inverse;
    core_tensor *scaled = NULL;
    core_status status;

    CORE_TRY(find_amax(tensor, &amax));
    scale = delayed
                ? state->scale
                : core__quantizer_scale_on_host(quantizer, amax, state->scale);
    inverse = 1 / scale;
    status = core_mul_scalar(tensor, core_float(scale), &scaled);
    if (status == CORE_OK)
        status = core__quantizer_cast(options, scaled, out_data);
    if (status == CORE_OK)
        status = core_tensor_from_data(&inverse, CORE_F32, NULL, 0,
                                       core_tensor_device(tensor), out_scales);
    core_tensor_release(scaled);
    if (status != CORE_OK)
        return status;
    state->saturated += (double)amax * scale > core_float8_max(options->dtype);
    state->scale = scale;
    state->amax = amax;
    if (delayed)
        history_push(quantizer, amax);
    return CORE_OK;
}

static core_status quantize_blocks(core_quantizer *quantizer,
                                   core_tensor *tensor, core_tensor **out_data,
                                   core_tensor **out_scales)
{
    core_tensor *amax = NULL;
    double number = 0;
    core_status status = core__quantize_blocks(&quantizer->options, tensor,
                                               out_data, out_scales, &amax);

    if (status == CORE_OK)
        status = core_tensor_item_float(amax, &number);
    if (status == CORE_OK && !isfinite(number))
        status = core__quantize_blocks_error(tensor);
    if (status == CORE_OK)
        quantizer->state.amax = (float)number;
    core_tensor_release(amax);
    return status;
}

core_status core__quantizer_cast(const core_quantizer_options *options,
                                 core_tensor *scaled, core_tensor **out_data)
{
    uint32_t flags = CORE_FLOAT8_SATURATE;

    if (options->flags & CORE_QUANTIZER_STOCHASTIC)
        flags |= CORE_FLOAT8_STOCHASTIC;
    return core_float8_cast(scaled, options->dtype, flags, NULL, out_data);
}

static core_status quantize(core_quantizer *quantizer, core_tensor *tensor,
                            core_tensor **out_data, core_tensor **out_scales)
{
    core_tensor *single = NULL;
    core_status status;

    CORE_TRY(core_to(tensor, CORE_F32, NULL, false, false, -1, &single));
    if (quantizer->options.flags & CORE_QUANTIZER_NO_WAIT)
        status = core__quantizer_quantize_async(quantizer, single, out_data,
                                                out_scales);
    else if (quantizer->options.scaling == CORE_SCALING_BLOCK)
        status = quantize_blocks(quantizer, single, out_data, out_scales);
    else
        status = quantize_whole(quantizer, single, out_data, out_scales);
    core_tensor_release(single);
    return status;
}

/* The host reads the amax, which "meta" cannot compute.  The amax of an empty
 * tensor is known without reading. */
static core_status check_numbers(const core_quantizer *quantizer,
                                 const core_tensor *tensor)
{
    const core_quantizer_options *options = &quantizer->options;

    if (!core__tensor_is_meta(tensor) ||
        options->flags & CORE_QUANTIZER_NO_WAIT ||
        (options->scaling != CORE_SCALING_BLOCK && tensor->numel == 0))
        return CORE_OK;
    return core__error(
        CORE_ERROR_DATA_DEPENDENT,
        "quantizer: the tensor is on \"%s\" and has no values to compute an "
        "amax from; CORE_QUANTIZER_NO_WAIT does not need them",
        core_device_name(tensor->device));
}

core_status core_quantizer_quantize(core_quantizer *quantizer,
                                    core_tensor *tensor, core_tensor **out_data,
                                    core_tensor **out_scales)
{
    core__quantizer_mark mark;
    core_dtype dtype;
    core_status status;
    bool before, second;

    CORE__NOT_NULL(out_data);
    *out_data = NULL;
    CORE__NOT_NULL(out_scales);
    *out_scales = NULL;
    CORE__NOT_NULL(quantizer);
    CORE__NOT_NULL(tensor);
    dtype = core_tensor_dtype(tensor);
    if (dtype != CORE_F32 && dtype != CORE_BF16 && dtype != CORE_F16)
        return core__error(
            CORE_ERROR_DTYPE,
            "quantizer: the tensor is %s; it must be f32, bf16 or f16",
            core_dtype_name(dtype));
    CORE_TRY(check_numbers(quantizer, tensor));
    CORE_TRY(core__checkpoint_scales_call(quantizer, &mark, &second));
    before = core_grad_mode_set(false);
    status = quantize(quantizer, tensor, out_data, out_scales);
    core_grad_mode_set(before);
    if (status == CORE_OK)
        quantizer->state.calls++;
    if (second) {
        core__quantizer_mark_restore(quantizer, &mark);
        core__quantizer_mark_drop(&mark);
    }
    if (status == CORE_OK)
        return CORE_OK;
    core_tensor_release(*out_data);
    core_tensor_release(*out_scales);
    *out_data = *out_scales = NULL;
    return status;
}

/* -------------------------------------------------------- dequantization -- */

static core_status dequantize(core_tensor *data, core_tensor *scales,
                              core_dtype dtype, core_tensor **out_tensor)
{
    core_tensor *wide = NULL, *number = NULL;
    core_status status;

    status = core_to_copy(data, CORE_F32, NULL, false, -1, &wide);
    if (status == CORE_OK && core_tensor_dtype(scales) == CORE_U8)
        status = core__dequantize_blocks(wide, scales, &number);
    else if (status == CORE_OK)
        status = core_mul(wide, scales, &number);
    if (status == CORE_OK)
        status = core_to(number, dtype, NULL, false, false, -1, out_tensor);
    core_tensor_release(wide);
    core_tensor_release(number);
    return status;
}

core_status core_dequantize(core_tensor *data, core_tensor *scales,
                            core_dtype dtype, core_tensor **out_tensor)
{
    core_status status;
    bool before;

    CORE__NOT_NULL(out_tensor);
    *out_tensor = NULL;
    CORE__NOT_NULL(data);
    CORE__NOT_NULL(scales);
    if (!core_float8_max(core_tensor_dtype(data)) ||
        !core_dtype_is_floating(dtype))
        return core__error(
            CORE_ERROR_DTYPE,
            "core_dequantize: the dtypes are %s and %s; the conversion must be "
            "from f8e4m3 or f8e5m2 to a floating dtype",
            core_dtype_name(core_tensor_dtype(data)), core_dtype_name(dtype));
    if (core_tensor_dtype(scales) != CORE_U8 &&
        (core_tensor_dtype(scales) != CORE_F32 ||
         core_tensor_ndim(scales) != 0))
        return core__error(CORE_ERROR_DTYPE,
                           "core_dequantize: scales are %s with %u dimensions; "
                           "they must be one f32 with 0 dimensions or u8",
                           core_dtype_name(core_tensor_dtype(scales)),
                           core_tensor_ndim(scales));
    before = core_grad_mode_set(false);
    status = dequantize(data, scales, dtype, out_tensor);
    core_grad_mode_set(before);
    return status;
}
