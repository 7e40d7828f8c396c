/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* quantizer.h: internals shared by the scaling methods.  Grad mode is off in
 * all calls. */

#ifndef CORE_QUANT_QUANTIZER_H
#define CORE_QUANT_QUANTIZER_H

#include <libcore/quantizer.h>
#include <libcore/stream.h>

#include <stdatomic.h>

/* State that a quantizer with CORE_QUANTIZER_NO_WAIT keeps on the device and
 * the host has not read yet: 0-dim f32 tensors except `history`.  NULL: the host's
 * state is current. */
typedef struct core__quantizer_device_state {
    core_tensor *amax;    /* of the last call */
    core_tensor *scale;   /* delayed scaling: for the next call */
    core_tensor *history; /* delayed scaling: the history, padded with zeros */
    core_stream *stream;  /* the stream that computed them */
} core__quantizer_device_state;

struct core_quantizer {
    atomic_uint references;
    core_quantizer_options options;
    core_quantizer_state state;
    core__quantizer_device_state device_state;
    float history[]; /* newest first; history_length entries */
};

/* Quantizes without waiting for the device.  tensor: f32. */
core_status core__quantizer_quantize_async(core_quantizer *quantizer,
                                           core_tensor *tensor,
                                           core_tensor **out_data,
                                           core_tensor **out_scales);
/* Reads the device state into the host's; waits. */
core_status core__quantizer_read_state(core_quantizer *quantizer);
/* Makes the device state usable on the device's current stream, which may
 * differ from the last call's. */
core_status core__quantizer_use_stream(core_quantizer *quantizer,
                                       core_device *device);
/* Retain and release the references of a device state. */
core__quantizer_device_state core__quantizer_device_state_retain(
    const core__quantizer_device_state *of);
void core__quantizer_device_state_release(
    core__quantizer_device_state *device_state);

/* What two calls can change in a quantizer; owns references. */
typedef struct core__quantizer_mark {
    core_quantizer_state state;
    core__quantizer_device_state device_state;
    float oldest[2]; /* the two entries that leave the history, the last one
                      * first */
} core__quantizer_mark;

void core__quantizer_mark_set(const core_quantizer *quantizer,
                              core__quantizer_mark *mark);
/* Restores the marked state. */
void core__quantizer_mark_restore(core_quantizer *quantizer,
                                  const core__quantizer_mark *mark);
void core__quantizer_mark_drop(core__quantizer_mark *mark);

/* Called before each quantization.  In the second run of a checkpoint
 * (checkpoint_scales.h) sets *out_second and the quantizer's recorded state;
 * core__quantizer_mark_restore with mark restores the current one after the call. */
core_status core__checkpoint_scales_call(core_quantizer *quantizer,
                                         core__quantizer_mark *mark,
                                         bool *out_second);

/* Conversions for devices without a kernel (float8_emulation.c): any dtype to
 * float8 with rounding to nearest, floating dtypes with stochastic rounding,
 * and float8 to f32. */
core_status core__float8_emulate_encode(core_tensor *tensor, core_dtype dtype,
                                        core_tensor **out_tensor);
core_status core__float8_emulate_stochastic(core_tensor *tensor,
                                            core_dtype dtype, bool saturate,
                                            core_generator *generator,
                                            core_tensor **out_tensor);
core_status core__float8_emulate_decode(core_tensor *data,
                                        core_tensor **out_tensor);

/* _scaled_mm as an f32 product, which represents every float8 number exactly
 * (product_fallback.c).  bias may be NULL. */
core_status core__float8_emulate_matmul(core_tensor *self, core_tensor *mat2,
                                        core_tensor *scale_a,
                                        core_tensor *scale_b, core_tensor *bias,
                                        core_dtype dtype,
                                        core_tensor **out_tensor);

/* The same memory viewed as another dtype of the same size, without history. */
core_status core__quantizer_reinterpret(core_tensor *tensor, core_dtype dtype,
                                        core_tensor **out_tensor);
/* The scale for an amax: max / 2^margin / amax, clamped to the range of f32;
 * `now` where the amax is 0. */
float core__quantizer_scale_on_host(const core_quantizer *quantizer, float amax,
                                    float now);
/* The same, computed on the device. */
core_status core__quantizer_scale_on_device(
    const core_quantizer_options *options, core_tensor *amax,
    core_tensor *empty, core_tensor **out_scale);
core_status core__quantizer_cast(const core_quantizer_options *options,
                                 core_tensor *scaled, core_tensor **out_data);
/* tensor: f32.  *out_amax: 0-dim, of the whole tensor.  Blocks with NaN or
 * infinity become NaN.  Does not wait. */
core_status core__quantize_blocks(const core_quantizer_options *options,
                                  core_tensor *tensor, core_tensor **out_data,
                                  core_tensor **out_scales,
                                  core_tensor **out_amax);
/* Returns the error for the first block that contains NaN or infinity. */
core_status core__quantize_blocks_error(core_tensor *tensor);
core_status core__dequantize_blocks(core_tensor *wide, core_tensor *scales,
                                    core_tensor **out_tensor);

#endif
