/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* float8_fallback.h: operators on float8 tensors for devices without a
 * kernel. */

#ifndef CORE_QUANT_FLOAT8_FALLBACK_H
#define CORE_QUANT_FLOAT8_FALLBACK_H

#include <libcore/kernel.h>

/* Runs fills, copies, conversions and stochastic rounding with results that are
 * bit-identical to the kernels', and products rounded as f32.  Returns
 * NO_KERNEL without a message for all other calls. */
core_status core__float8_fallback(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults);

#endif
