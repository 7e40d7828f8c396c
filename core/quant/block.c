/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Block scaling: blocks of 32 elements share a power of two (OCP Microscaling
 * Formats 1.0). */

#include "base/error.h"
#include "base/memory.h"
#include "quant/quantizer.h"

#include <libcore/ops.h>

#include <math.h>

enum { BLOCK = CORE_QUANTIZER_BLOCK, BIAS = 127 };

/* Splits the last dimension into blocks; its size must be a multiple of
 * BLOCK. */
static core_status block_sizes(core_tensor *tensor, int64_t *sizes)
{
    uint32_t ndim = core_tensor_ndim(tensor);

    if (ndim == 0 || ndim >= CORE_MAX_NDIM ||
        core_tensor_size(tensor, -1) % BLOCK != 0)
        return core__error(CORE_ERROR_SHAPE,
                           "quantizer: the last dimension has size %lld; block "
                           "scaling needs a multiple of %d",
                           ndim ? (long long)core_tensor_size(tensor, -1) : 1LL,
                           BLOCK);
    for (uint32_t i = 0; i < ndim; i++)
        sizes[i] = core_tensor_size(tensor, i);
    sizes[ndim - 1] /= BLOCK;
    sizes[ndim] = BLOCK;
    return CORE_OK;
}

/* Reinterprets bits as f32. */
static core_status from_bits(core_tensor *bits, core_tensor **out_tensor)
{
    return core__quantizer_reinterpret(bits, CORE_F32, out_tensor);
}

/* Shared exponents of non-negative amaxes: the exponent field of the f32 less
 * the exponent of the dtype's largest number.  Amaxes that are too small get
 * the least exponent; those that are not finite get 255, which means NaN. */
static core_status exponents_of(core_dtype dtype, core_tensor *amaxes,
                                core_tensor **out_exponents)
{
    const core_scalar zero = core_int(0);
    int largest = dtype == CORE_F8E4M3 ? 8 : 15;
    core_tensor *bits = NULL, *own = NULL, *less = NULL, *within = NULL;
    core_tensor *is_nan = NULL;
    core_status status;

    status = core__quantizer_reinterpret(amaxes, CORE_I32, &bits);
    if (status == CORE_OK)
        status = core_bitwise_right_shift_scalar(bits, core_int(23), &own);
    if (status == CORE_OK)
        status = core_sub_scalar(own, core_int(largest), core_int(1), &less);
    if (status == CORE_OK)
        status = core_clamp(less, &zero, NULL, &within);
    if (status == CORE_OK)
        status = core_eq_scalar(own, core_int(255), &is_nan);
    if (status == CORE_OK)
        status = core_masked_fill(within, is_nan, core_int(255), out_exponents);
    core_tensor_release(bits);
    core_tensor_release(own);
    core_tensor_release(less);
    core_tensor_release(within);
    core_tensor_release(is_nan);
    return status;
}

/* 2^-exponent, by which elements are multiplied; NaN for 255. */
static core_status factors_of(core_tensor *exponents, core_tensor **out_factors)
{
    core_tensor *from = NULL, *bits = NULL, *number = NULL, *is_nan = NULL;
    core_status status;

    status =
        core_rsub_scalar(exponents, core_int(2 * BIAS), core_int(1), &from);
    if (status == CORE_OK)
        status = core_mul_scalar(from, core_int(1 << 23), &bits);
    if (status == CORE_OK)
        status = from_bits(bits, &number);
    if (status == CORE_OK)
        status = core_eq_scalar(exponents, core_int(255), &is_nan);
    if (status == CORE_OK)
        status = core_masked_fill(number, is_nan, core_float(NAN), out_factors);
    core_tensor_release(from);
    core_tensor_release(bits);
    core_tensor_release(number);
    core_tensor_release(is_nan);
    return status;
}

static core_status amax_of(core_tensor *amaxes, core_tensor **out_amax)
{
    if (core_tensor_numel(amaxes) == 0)
        return core_zeros(NULL, 0, CORE_F32, core_tensor_device(amaxes),
                          out_amax);
    return core_amax(amaxes, NULL, 0, false, out_amax);
}

/* What the scaling of a tensor needs; all tensors are owned. */
typedef struct blocks {
    core_tensor *values; /* the tensor with an extra dimension for the elements
                         * of a block */
    core_tensor *amaxes;
    core_tensor *exponents;
} blocks;

static void blocks_release(blocks *b)
{
    core_tensor_release(b->values);
    core_tensor_release(b->amaxes);
    core_tensor_release(b->exponents);
}

static core_status block_amaxes(core_tensor *tensor, blocks *out)
{
    uint32_t ndim = core_tensor_ndim(tensor);
    int64_t sizes[CORE_MAX_NDIM + 1];
    const int64_t last = -1;
    core_tensor *sized = NULL;
    core_status status;

    CORE_TRY(block_sizes(tensor, sizes));
    status = core_reshape(tensor, sizes, ndim + 1, &out->values);
    if (status == CORE_OK)
        status = core_abs(out->values, &sized);
    if (status == CORE_OK)
        status = core_amax(sized, &last, 1, false, &out->amaxes);
    core_tensor_release(sized);
    return status;
}

static core_status scale(const core_quantizer_options *options,
                         core_tensor *tensor, const blocks *b,
                         core_tensor **out_data)
{
    core_tensor *factors = NULL, *wide = NULL, *scaled = NULL, *reshaped = NULL;
    core_status status = factors_of(b->exponents, &factors);

    if (status == CORE_OK)
        status = core_unsqueeze(factors, -1, &wide);
    if (status == CORE_OK)
        status = core_mul(b->values, wide, &scaled);
    if (status == CORE_OK)
        status = core_reshape(scaled, core_tensor_sizes(tensor),
                              core_tensor_ndim(tensor), &reshaped);
    if (status == CORE_OK)
        status = core__quantizer_cast(options, reshaped, out_data);
    core_tensor_release(factors);
    core_tensor_release(wide);
    core_tensor_release(scaled);
    core_tensor_release(reshaped);
    return status;
}

core_status core__quantize_blocks(const core_quantizer_options *options,
                                  core_tensor *tensor, core_tensor **out_data,
                                  core_tensor **out_scales,
                                  core_tensor **out_amax)
{
    blocks b = {NULL, NULL, NULL};
    core_status status = block_amaxes(tensor, &b);

    if (status == CORE_OK)
        status = exponents_of(options->dtype, b.amaxes, &b.exponents);
    if (status == CORE_OK)
        status =
            core_to(b.exponents, CORE_U8, NULL, false, false, -1, out_scales);
    if (status == CORE_OK)
        status = amax_of(b.amaxes, out_amax);
    if (status == CORE_OK)
        status = scale(options, tensor, &b, out_data);
    blocks_release(&b);
    return status;
}

core_status core__quantize_blocks_error(core_tensor *tensor)
{
    blocks b = {NULL, NULL, NULL};
    core_status status = block_amaxes(tensor, &b);
    int64_t count = b.amaxes ? core_tensor_numel(b.amaxes) : 0;
    size_t size = (size_t)count * sizeof(float);
    float *amaxes = core__alloc(size + 1);

    if (status == CORE_OK && !amaxes)
        status = core__error_memory(size);
    if (status == CORE_OK)
        status = core_tensor_read(b.amaxes, amaxes, size);
    for (int64_t i = 0; status == CORE_OK && i < count; i++)
        if (!isfinite(amaxes[i]))
            status = core__error(CORE_ERROR_INVALID_ARGUMENT,
                                 "quantizer: block %lld has an element that is "
                                 "%s; all must be finite",
                                 (long long)i,
                                 isnan(amaxes[i]) ? "NaN" : "infinite");
    core__free(amaxes);
    blocks_release(&b);
    return status;
}

/* 2^exponent; the exponent 0 means 2^-127, which is subnormal. */
static core_status powers_of(core_tensor *scales, core_tensor **out_powers)
{
    core_tensor *exponents = NULL, *bits = NULL, *least = NULL, *all = NULL;
    core_tensor *number = NULL, *is_nan = NULL;
    core_status status;

    status = core_to(scales, CORE_I32, NULL, false, false, -1, &exponents);
    if (status == CORE_OK)
        status = core_mul_scalar(exponents, core_int(1 << 23), &bits);
    if (status == CORE_OK)
        status = core_eq_scalar(exponents, core_int(0), &least);
    if (status == CORE_OK)
        status = core_masked_fill(bits, least, core_int(1 << 22), &all);
    if (status == CORE_OK)
        status = from_bits(all, &number);
    if (status == CORE_OK)
        status = core_eq_scalar(exponents, core_int(255), &is_nan);
    if (status == CORE_OK)
        status = core_masked_fill(number, is_nan, core_float(NAN), out_powers);
    core_tensor_release(exponents);
    core_tensor_release(bits);
    core_tensor_release(least);
    core_tensor_release(all);
    core_tensor_release(number);
    core_tensor_release(is_nan);
    return status;
}

core_status core__dequantize_blocks(core_tensor *wide, core_tensor *scales,
                                    core_tensor **out_tensor)
{
    uint32_t ndim = core_tensor_ndim(wide);
    int64_t sizes[CORE_MAX_NDIM + 1];
    core_tensor *blocks = NULL, *powers = NULL, *expanded = NULL,
                *scaled = NULL;
    core_status status;

    CORE_TRY(block_sizes(wide, sizes));
    for (uint32_t i = 0; i < ndim; i++)
        if (core_tensor_ndim(scales) != ndim ||
            core_tensor_size(scales, i) != sizes[i])
            return core__error(
                CORE_ERROR_SHAPE,
                "core_dequantize: scales must have the sizes of data with one "
                "scale for every %d elements of the last dimension",
                BLOCK);
    status = core_reshape(wide, sizes, ndim + 1, &blocks);
    if (status == CORE_OK)
        status = powers_of(scales, &powers);
    if (status == CORE_OK)
        status = core_unsqueeze(powers, -1, &expanded);
    if (status == CORE_OK)
        status = core_mul(blocks, expanded, &scaled);
    if (status == CORE_OK)
        status =
            core_reshape(scaled, core_tensor_sizes(wide), ndim, out_tensor);
    core_tensor_release(blocks);
    core_tensor_release(powers);
    core_tensor_release(expanded);
    core_tensor_release(scaled);
    return status;
}
