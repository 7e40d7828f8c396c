/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Blocks of 32 that share a power of two (OCP Microscaling Formats 1.0). */

#include "base/error.h"
#include "base/memory.h"
#include "quant/quantizer.h"

#include <libcore/ops.h>

#include <math.h>

enum { BLOCK = CORE_QUANTIZER_BLOCK, BIAS = 127 };

/* Sizes with the last dimension as blocks; which it must divide into. */
static core_status split(core_tensor *tensor, int64_t *sizes)
{
    uint32_t ndim = core_tensor_ndim(tensor);

    if (ndim == 0 || ndim >= CORE_MAX_NDIM ||
        core_tensor_size(tensor, -1) % BLOCK != 0)
        return core__error(CORE_ERROR_SHAPE,
                           "quantizer: block scaling wants a last dimension "
                           "that %d divides; it is %lld",
                           BLOCK,
                           ndim ? (long long)core_tensor_size(tensor, -1) : 1);
    for (uint32_t i = 0; i < ndim; i++)
        sizes[i] = core_tensor_size(tensor, i);
    sizes[ndim - 1] /= BLOCK;
    sizes[ndim] = BLOCK;
    return CORE_OK;
}

/* Shared exponents from amaxes, and what to multiply with. */
static core_status scales_of(core_dtype dtype, const float *amaxes,
                             int64_t count, uint8_t *scales, float *factors,
                             float *out_amax)
{
    int largest = dtype == CORE_F8E4M3 ? 8 : 15;

    *out_amax = 0;
    for (int64_t i = 0; i < count; i++) {
        int exponent = -BIAS;

        if (!isfinite(amaxes[i]))
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "quantizer: block %lld has an element that is "
                               "%s",
                               (long long)i,
                               isnan(amaxes[i]) ? "no number" : "infinite");
        if (amaxes[i] > 0)
            exponent = ilogbf(amaxes[i]) - largest;
        if (exponent < -BIAS)
            exponent = -BIAS;
        scales[i] = (uint8_t)(exponent + BIAS);
        factors[i] = ldexpf(1, -exponent);
        *out_amax = fmaxf(*out_amax, amaxes[i]);
    }
    return CORE_OK;
}

/* Reads the blocks' amaxes and uploads both. */
static core_status make_scales(const core_quantizer_options *options,
                               core_tensor *amaxes, uint32_t ndim,
                               const int64_t *sizes, core_tensor **out_scales,
                               core_tensor **out_factors, float *out_amax)
{
    core_device *device = core_tensor_device(amaxes);
    int64_t count = core_tensor_numel(amaxes);
    size_t room = (size_t)count * (2 * sizeof(float) + 1) + 1;
    float *values = core__alloc(room), *factors;
    uint8_t *scales;
    core_status status;

    if (!values)
        return core__error_memory(room);
    factors = values + count;
    scales = (uint8_t *)(factors + count);
    status = core_tensor_read(amaxes, values, (size_t)count * sizeof *values);
    if (status == CORE_OK)
        status =
            scales_of(options->dtype, values, count, scales, factors, out_amax);
    if (status == CORE_OK)
        status = core_tensor_from_data(scales, CORE_U8, sizes, ndim, device,
                                       out_scales);
    if (status == CORE_OK)
        status = core_tensor_from_data(factors, CORE_F32, sizes, ndim, device,
                                       out_factors);
    core__free(values);
    return status;
}

core_status core__quantize_blocks(const core_quantizer_options *options,
                                  core_tensor *tensor, core_tensor **out_data,
                                  core_tensor **out_scales, float *out_amax)
{
    uint32_t ndim = core_tensor_ndim(tensor);
    int64_t sizes[CORE_MAX_NDIM + 1];
    const int64_t last = -1;
    core_tensor *blocks = NULL, *sized = NULL, *amaxes = NULL, *factors = NULL;
    core_tensor *wide = NULL, *scaled = NULL, *whole = NULL;
    core_status status;

    CORE_TRY(split(tensor, sizes));
    status = core_reshape(tensor, sizes, ndim + 1, &blocks);
    if (status == CORE_OK)
        status = core_abs(blocks, &sized);
    if (status == CORE_OK)
        status = core_amax(sized, &last, 1, false, &amaxes);
    if (status == CORE_OK)
        status = make_scales(options, amaxes, ndim, sizes, out_scales, &factors,
                             out_amax);
    if (status == CORE_OK)
        status = core_unsqueeze(factors, -1, &wide);
    if (status == CORE_OK)
        status = core_mul(blocks, wide, &scaled);
    if (status == CORE_OK)
        status = core_reshape(scaled, core_tensor_sizes(tensor), ndim, &whole);
    if (status == CORE_OK)
        status = core__quantizer_cast(options, whole, out_data);
    core_tensor_release(blocks);
    core_tensor_release(sized);
    core_tensor_release(amaxes);
    core_tensor_release(factors);
    core_tensor_release(wide);
    core_tensor_release(scaled);
    core_tensor_release(whole);
    return status;
}

/* Powers of two by the exponents' bytes: exact, by ldexp of the host. */
static core_status powers_of(core_tensor *scales, core_tensor **out_powers)
{
    int64_t count = core_tensor_numel(scales);
    size_t room = (size_t)count * (sizeof(float) + 1) + 1;
    float *powers = core__alloc(room);
    uint8_t *codes;
    core_status status;

    if (!powers)
        return core__error_memory(room);
    codes = (uint8_t *)(powers + count);
    status = core_tensor_read(scales, codes, (size_t)count);
    for (int64_t i = 0; status == CORE_OK && i < count; i++)
        powers[i] = codes[i] == 255 ? NAN : ldexpf(1, codes[i] - BIAS);
    if (status == CORE_OK)
        status = core_tensor_from_data(
            powers, CORE_F32, core_tensor_sizes(scales),
            core_tensor_ndim(scales), core_tensor_device(scales), out_powers);
    core__free(powers);
    return status;
}

core_status core__dequantize_blocks(core_tensor *wide, core_tensor *scales,
                                    core_tensor **out_tensor)
{
    uint32_t ndim = core_tensor_ndim(wide);
    int64_t sizes[CORE_MAX_NDIM + 1];
    core_tensor *blocks = NULL, *powers = NULL, *apart = NULL, *scaled = NULL;
    core_status status;

    CORE_TRY(split(wide, sizes));
    for (uint32_t i = 0; i < ndim; i++)
        if (core_tensor_ndim(scales) != ndim ||
            core_tensor_size(scales, i) != sizes[i])
            return core__error(CORE_ERROR_SHAPE,
                               "core_dequantize: the scales are not one for "
                               "each %d elements of the data",
                               BLOCK);
    status = core_reshape(wide, sizes, ndim + 1, &blocks);
    if (status == CORE_OK)
        status = powers_of(scales, &powers);
    if (status == CORE_OK)
        status = core_unsqueeze(powers, -1, &apart);
    if (status == CORE_OK)
        status = core_mul(blocks, apart, &scaled);
    if (status == CORE_OK)
        status =
            core_reshape(scaled, core_tensor_sizes(wide), ndim, out_tensor);
    core_tensor_release(blocks);
    core_tensor_release(powers);
    core_tensor_release(apart);
    core_tensor_release(scaled);
    return status;
}
