/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* quantizer.h: what the ways of scaling share.  Grad mode is off. */

#ifndef CORE_QUANT_QUANTIZER_H
#define CORE_QUANT_QUANTIZER_H

#include <libcore/quantizer.h>
#include <libcore/stream.h>

#include <stdatomic.h>

/* Of a quantizer that waits for nothing: what the device knows and the host
 * does not yet.  0-dim and f32, but `kept`; NULL: the host's is the newest. */
typedef struct core__quantizer_late {
    core_tensor *amax;   /* of the last call */
    core_tensor *scale;  /* of delayed: of the next one */
    core_tensor *kept;   /* of delayed: the history, zeros behind its end */
    core_stream *stream; /* on which they were made */
} core__quantizer_late;

struct core_quantizer {
    atomic_uint references;
    core_quantizer_options options;
    core_quantizer_state state;
    core__quantizer_late late;
    float history[]; /* newest first; the options' length */
};

/* By the device alone.  tensor: f32. */
core_status core__quantizer_without_wait(core_quantizer *quantizer,
                                         core_tensor *tensor,
                                         core_tensor **out_data,
                                         core_tensor **out_scales);
/* Told to the host, which waits. */
core_status core__quantizer_settle(core_quantizer *quantizer);
/* From a stream that may be another than that of the last call. */
core_status core__quantizer_here(core_quantizer *quantizer,
                                 core_device *device);
/* References of what there is, and their end. */
core__quantizer_late core__quantizer_late_hold(const core__quantizer_late *of);
void core__quantizer_late_drop(core__quantizer_late *late);

/* What the next two calls change of a quantizer; held. */
typedef struct core__quantizer_mark {
    core_quantizer_state state;
    core__quantizer_late late;
    float oldest[2]; /* that they push out of the history, the last one first */
} core__quantizer_mark;

void core__quantizer_mark_set(const core_quantizer *quantizer,
                              core__quantizer_mark *mark);
/* As it was then. */
void core__quantizer_undo(core_quantizer *quantizer,
                          const core__quantizer_mark *mark);
void core__quantizer_mark_drop(core__quantizer_mark *mark);

/* Before a call.  In the second run of a checkpoint (checkpoint_scales.h) *out_second, and the
 * quantizer as it was in the first; core__quantizer_undo with mark, behind the
 * call, makes it as it is. */
core_status core__quantized_call(core_quantizer *quantizer,
                                 core__quantizer_mark *mark, bool *out_second);

/* Conversions where the device has no kernel (float8_emulation.c): any dtype to eight
 * bits, to the nearest; floating ones by chance; and eight bits to f32. */
core_status core__float8_emulate_narrow(core_tensor *tensor, core_dtype dtype,
                                        core_tensor **out_tensor);
core_status core__float8_emulate_chance(core_tensor *tensor, core_dtype dtype,
                                        bool saturate,
                                        core_generator *generator,
                                        core_tensor **out_tensor);
core_status core__float8_emulate_widen(core_tensor *data,
                                       core_tensor **out_tensor);

/* _scaled_mm by the device's product of f32, which has all numbers of eight bits
 * exactly (product_fallback.c).  bias: may be NULL. */
core_status core__float8_emulate_product(core_tensor *self, core_tensor *mat2,
                                         core_tensor *scale_a,
                                         core_tensor *scale_b,
                                         core_tensor *bias, core_dtype dtype,
                                         core_tensor **out_tensor);

/* The same memory as another dtype of that size; without history. */
core_status core__quantizer_relabel(core_tensor *tensor, core_dtype dtype,
                                    core_tensor **out_tensor);
/* max / 2^margin / amax, within what f32 has; `now` where amax is 0. */
float core__quantizer_scale_for(const core_quantizer *quantizer, float amax,
                                float now);
/* The same by the device. */
core_status core__quantizer_scale(const core_quantizer_options *options,
                                  core_tensor *amax, core_tensor *empty,
                                  core_tensor **out_scale);
core_status core__quantizer_cast(const core_quantizer_options *options,
                                 core_tensor *scaled, core_tensor **out_data);
/* tensor: f32.  *out_amax: of all of it, 0-dim.  Blocks that have NaN or infinity
 * become NaN.  Waits for nothing. */
core_status core__quantize_blocks(const core_quantizer_options *options,
                                  core_tensor *tensor, core_tensor **out_data,
                                  core_tensor **out_scales,
                                  core_tensor **out_amax);
/* The first block of the tensor that has an element which is no number or
 * infinite: that error. */
core_status core__blocks_refused(core_tensor *tensor);
core_status core__dequantize_blocks(core_tensor *wide, core_tensor *scales,
                                    core_tensor **out_tensor);

#endif
