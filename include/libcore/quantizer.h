/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* quantizer.h: quantization of tensors to 8-bit floating dtypes with scales.
 *
 *     current   data = x * scale, where scale = max / amax of x itself
 *     delayed   data = x * scale, where scale = max / 2^margin / (the largest,
 *               or the latest, amax of earlier calls); 1 at the first call
 *               (Micikevicius et al. 2022)
 *     block     32 elements along the last dimension share a scale, a power of
 *               two whose exponent is that of their amax minus that of the
 *               dtype's largest number; scales are stored as bytes, the
 *               exponent plus 127 (OCP Microscaling Formats 1.0, 2023: MXFP8)
 *
 * amax is the largest magnitude; max is 448 or 57344.  Values that are still
 * too large saturate.  If amax is 0, the scale does not change.  If max / amax
 * exceeds f32, the scale is the largest f32.
 *
 * The host waits for the device once per call, to check for values that cannot
 * be quantized.  With CORE_QUANTIZER_NO_WAIT nothing is checked, and the device
 * computes the scales and stores the history.  That flag is required on "meta",
 * where the state and the history are DATA_DEPENDENT.  Nothing here is recorded
 * by autograd.
 *
 * Threads.  Only one thread at a time may use a quantizer. */

#ifndef LIBCORE_QUANTIZER_H
#define LIBCORE_QUANTIZER_H

#include "float8.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A quantizer with its options and state.  Reference-counted. */
typedef struct core_quantizer core_quantizer;

/* How scales are chosen; see above. */
typedef enum core_scaling {
    CORE_SCALING_CURRENT = 1,
    CORE_SCALING_DELAYED = 2,
    CORE_SCALING_BLOCK = 3
} core_scaling;

/* Flags of a quantizer. */
enum {
    /* Round stochastically (CORE_FLOAT8_STOCHASTIC), with the default
     * generator. */
    CORE_QUANTIZER_STOCHASTIC = 1u << 0,
    /* Delayed: use the latest amax of the history, not the largest. */
    CORE_QUANTIZER_MOST_RECENT = 1u << 1,
    /* Round scales down to powers of two.  Block scales always are. */
    CORE_QUANTIZER_POWER_OF_TWO = 1u << 2,
    /* Do not wait for the device, except after core_quantizer_set_state or a
     * change of the device.  NaN and infinity are not errors:
     *
     *     current   NaN makes the whole tensor NaN; beside an infinity all
     *               other elements become 0; an amax of 0 has the scale 1
     *     delayed   NaN or infinity makes the whole tensor NaN, and its amax is
     *               stored as 0
     *     block     NaN or infinity makes its block NaN
     *
     * Gradients that overflowed thus reach core_grad_scaler_step, which skips
     * the step.  `saturated` stays 0.  Reading the state or the history waits.
     * Launches of a captured call do not add to the history. */
    CORE_QUANTIZER_NO_WAIT = 1u << 3
};

/* The size of a block, and the maximum length of a history. */
enum { CORE_QUANTIZER_BLOCK = 32, CORE_QUANTIZER_HISTORY = 65536 };

/* The options of a quantizer, which do not change. */
typedef struct core_quantizer_options {
    uint32_t struct_size;
    uint32_t scaling;        /* core_scaling */
    core_dtype dtype;        /* CORE_F8E4M3 or CORE_F8E5M2 */
    uint32_t flags;          /* CORE_QUANTIZER_… */
    uint32_t history_length; /* delayed: 1 to CORE_QUANTIZER_HISTORY */
    int32_t margin;          /* delayed: -64 to 64 */
} core_quantizer_options;
CORE_STATIC_ASSERT(sizeof(core_quantizer_options) == 24,
                   "core_quantizer_options");

/* The state of a quantizer, as a checkpoint stores it. */
typedef struct core_quantizer_state {
    uint32_t struct_size;
    uint32_t history_count; /* amaxes in the history; at most its length */
    uint64_t calls;         /* successful calls */
    uint64_t saturated;     /* successful calls in which values saturated */
    float scale;            /* delayed: of the next call; else of the last */
    float amax;             /* of the last call; with CORE_QUANTIZER_NO_WAIT
                               possibly infinite or NaN */
} core_quantizer_state;
CORE_STATIC_ASSERT(sizeof(core_quantizer_state) == 32, "core_quantizer_state");

/* Creates a quantizer.  The caller owns one reference.  options: copied.
 * INVALID_ARGUMENT or DTYPE for invalid options. */
core_status core_quantizer_create(const core_quantizer_options *options,
                                  core_quantizer **out_quantizer);

/* Adds a reference and returns quantizer.  Accepts NULL. */
core_quantizer *core_quantizer_retain(core_quantizer *quantizer);

/* Drops a reference.  Accepts NULL. */
void core_quantizer_release(core_quantizer *quantizer);

/* Quantizes a tensor of f32, bf16 or f16.  The caller owns both results.
 * *out_data has the sizes of the tensor.  *out_scales is for core_dequantize:
 * 0-dim f32, 1 / scale; with block scaling u8, of the tensor's sizes with the
 * last divided by 32.  DTYPE for other dtypes.  INVALID_ARGUMENT for NaN or
 * infinity, unless CORE_QUANTIZER_NO_WAIT.  SHAPE if, with block scaling, the
 * last size is not a multiple of 32.  On failure the state does not change. */
core_status core_quantizer_quantize(core_quantizer *quantizer,
                                    core_tensor *tensor, core_tensor **out_data,
                                    core_tensor **out_scales);

/* Computes the values of a quantized tensor, rounded to dtype: f64, f32, f16 or
 * bf16.  data and scales: from core_quantizer_quantize.  The caller owns one
 * reference to *out_tensor.  DTYPE for other dtypes. */
core_status core_dequantize(core_tensor *data, core_tensor *scales,
                            core_dtype dtype, core_tensor **out_tensor);

/* Returns the options of a quantizer, borrowed.  NULL for NULL. */
const core_quantizer_options *core_quantizer_get_options(
    const core_quantizer *quantizer);

/* Fills in the state of a quantizer.  The caller sets out_state->struct_size.
 * DATA_DEPENDENT after use on "meta". */
core_status core_quantizer_get_state(const core_quantizer *quantizer,
                                     core_quantizer_state *out_state);

/* Returns the history, history_count amaxes, latest first.  Borrowed until the
 * next call with the quantizer.  NULL, with the error record set, if it cannot
 * be read from the device. */
const float *core_quantizer_history(const core_quantizer *quantizer);

/* Sets the state and the history of a quantizer.  history: state->history_count
 * amaxes, latest first; copied.  INVALID_ARGUMENT, without effect, for an
 * invalid number. */
core_status core_quantizer_set_state(core_quantizer *quantizer,
                                     const core_quantizer_state *state,
                                     const float *history);

#ifdef __cplusplus
}
#endif

#endif
