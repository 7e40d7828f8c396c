/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* quantizer.h: what the ways of scaling share.  Grad mode is off. */

#ifndef CORE_QUANT_QUANTIZER_H
#define CORE_QUANT_QUANTIZER_H

#include <libcore/quantizer.h>

core_status core__quantizer_cast(const core_quantizer_options *options,
                                 core_tensor *scaled, core_tensor **out_data);
/* tensor: f32. */
core_status core__quantize_blocks(const core_quantizer_options *options,
                                  core_tensor *tensor, core_tensor **out_data,
                                  core_tensor **out_scales, float *out_amax);
core_status core__dequantize_blocks(core_tensor *wide, core_tensor *scales,
                                    core_tensor **out_tensor);

#endif
