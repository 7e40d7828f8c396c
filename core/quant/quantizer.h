/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* quantizer.h: what the ways of scaling share.  Grad mode is off. */

#ifndef CORE_QUANT_QUANTIZER_H
#define CORE_QUANT_QUANTIZER_H

#include <libcore/quantizer.h>

/* What the next two calls change of a quantizer; the tensor is held. */
typedef struct core__quantizer_mark {
    core_quantizer_state state;
    core_tensor *amax;
    float oldest[2]; /* that they push out of the history, the last one first */
} core__quantizer_mark;

void core__quantizer_mark_set(const core_quantizer *quantizer,
                              core__quantizer_mark *mark);
/* As it was then. */
void core__quantizer_undo(core_quantizer *quantizer,
                          const core__quantizer_mark *mark);
void core__quantizer_mark_drop(core__quantizer_mark *mark);

/* Conversions where the device has no kernel (emulate.c): any dtype to eight
 * bits, to the nearest; floating ones by chance; and eight bits to f32. */
core_status core__float8_emulate_narrow(core_tensor *tensor, core_dtype dtype,
                                        core_tensor **out_tensor);
core_status core__float8_emulate_chance(core_tensor *tensor, core_dtype dtype,
                                        bool saturate,
                                        core_generator *generator,
                                        core_tensor **out_tensor);
core_status core__float8_emulate_widen(core_tensor *data,
                                       core_tensor **out_tensor);

core_status core__quantizer_cast(const core_quantizer_options *options,
                                 core_tensor *scaled, core_tensor **out_data);
/* tensor: f32. */
core_status core__quantize_blocks(const core_quantizer_options *options,
                                  core_tensor *tensor, core_tensor **out_data,
                                  core_tensor **out_scales, float *out_amax);
core_status core__dequantize_blocks(core_tensor *wide, core_tensor *scales,
                                    core_tensor **out_tensor);

#endif
