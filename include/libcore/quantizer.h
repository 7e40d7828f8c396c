/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* quantizer.h: tensors as values of eight bits and the scales they need.
 *
 *     current   data = x * scale, scale = max / amax of x itself
 *     delayed   the same, with the scale that the amaxes of earlier calls gave:
 *               max / 2^margin / (the largest, or the newest, of the history);
 *               1 before there is any (Micikevicius et al. 2022)
 *     block     32 elements of the last dimension share a power of two, whose
 *               exponent is that of their amax less that of the dtype's largest
 *               number; scales are bytes, the exponent plus 127 (OCP
 *               Microscaling Formats 1.0, 2023: MXFP8)
 *
 * amax is the largest magnitude; max is 448 or 57344.  What is still too large
 * saturates.  An amax of 0 leaves the scale as it is; one for which max / amax
 * is more than f32 has gives the largest f32.
 *
 * The host waits for the device once a call, to refuse what cannot be quantized.
 * With CORE_QUANTIZER_NO_WAIT nothing is refused, and the device computes scales
 * and keeps the history.  On "meta", where there are no numbers, that is the only
 * way, and afterwards there is no state to tell (DATA_DEPENDENT errors).
 * Nothing here is recorded by autograd.
 *
 * Threads: one at a time per quantizer. */

#ifndef LIBCORE_QUANTIZER_H
#define LIBCORE_QUANTIZER_H

#include "float8.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct core_quantizer core_quantizer;

typedef enum core_scaling {
    CORE_SCALING_CURRENT = 1,
    CORE_SCALING_DELAYED = 2,
    CORE_SCALING_BLOCK = 3
} core_scaling;

enum {
    /* Rounded by chance, with the default generator's numbers. */
    CORE_QUANTIZER_STOCHASTIC = 1u << 0,
    /* Delayed: the newest amax alone counts, not the largest kept. */
    CORE_QUANTIZER_MOST_RECENT = 1u << 1,
    /* Scales are rounded down to powers of two; block scales always are. */
    CORE_QUANTIZER_POWER_OF_TWO = 1u << 2,
    /* The host waits for nothing, but where a state was set or the last call was
     * on another device.  NaN and infinity are not refused.  Current: a NaN makes
     * all of the tensor NaN, beside an infinity all else becomes 0, an amax of 0
     * has the scale 1.  Delayed: either makes all of it NaN, and the amax is kept
     * as 0.  Block: one with either becomes NaN.  So gradients that were scaled
     * too far reach core_grad_scaler_step, which leaves the step out.
     * `saturated` stays 0; asking for state or history waits.  What a captured
     * call adds to the history is not added again by launches. */
    CORE_QUANTIZER_NO_WAIT = 1u << 3
};

enum { CORE_QUANTIZER_BLOCK = 32, CORE_QUANTIZER_HISTORY = 65536 };

typedef struct core_quantizer_options {
    uint32_t struct_size;
    uint32_t scaling; /* core_scaling */
    core_dtype dtype; /* CORE_F8E4M3 or CORE_F8E5M2 */
    uint32_t flags;
    uint32_t history_length; /* of delayed: 1 … CORE_QUANTIZER_HISTORY */
    int32_t margin;          /* of delayed: -64 … 64 */
} core_quantizer_options;
CORE_STATIC_ASSERT(sizeof(core_quantizer_options) == 24,
                   "core_quantizer_options");

/* What changes by use. */
typedef struct core_quantizer_state {
    uint32_t struct_size;
    uint32_t history_count; /* amaxes that there are; at most the length */
    uint64_t calls;         /* that went well */
    uint64_t saturated;     /* of them, those in which amax was too large */
    float scale;            /* of the next call where delayed, else the last */
    float amax;             /* of the last call; with CORE_QUANTIZER_NO_WAIT it
                               may be infinite or NaN */
} core_quantizer_state;
CORE_STATIC_ASSERT(sizeof(core_quantizer_state) == 32, "core_quantizer_state");

/* INVALID_ARGUMENT, DTYPE: options that cannot be. */
core_status core_quantizer_create(const core_quantizer_options *options,
                                  core_quantizer **out_quantizer);
/* Returns quantizer. */
core_quantizer *core_quantizer_retain(core_quantizer *quantizer);
/* Takes NULL. */
void core_quantizer_release(core_quantizer *quantizer);

/* tensor: f32, bf16 or f16.  *out_data has its sizes; *out_scales is what
 * core_dequantize multiplies with: 0-dim f32, 1 / scale; of block scaling u8,
 * of tensor's sizes but the last, which is a 32th.  INVALID_ARGUMENT for NaN or
 * infinity among the elements, SHAPE where block scaling finds a last dimension
 * that 32 does not divide; the state is then as before. */
core_status core_quantizer_quantize(core_quantizer *quantizer,
                                    core_tensor *tensor, core_tensor **out_data,
                                    core_tensor **out_scales);
/* The numbers that these stand for, rounded to dtype: f32, bf16, f16, f64. */
core_status core_dequantize(core_tensor *data, core_tensor *scales,
                            core_dtype dtype, core_tensor **out_tensor);

const core_quantizer_options *core_quantizer_get_options(
    const core_quantizer *quantizer);
/* struct_size is the caller's. */
core_status core_quantizer_get_state(const core_quantizer *quantizer,
                                     core_quantizer_state *out_state);
/* The amaxes that are kept, newest first; borrowed until the next call.  NULL,
 * with an error, where the device cannot tell them. */
const float *core_quantizer_history(const core_quantizer *quantizer);
/* history: state->history_count amaxes, newest first.  INVALID_ARGUMENT for
 * what cannot be; nothing changes then. */
core_status core_quantizer_set_state(core_quantizer *quantizer,
                                     const core_quantizer_state *state,
                                     const float *history);

#ifdef __cplusplus
}
#endif

#endif
