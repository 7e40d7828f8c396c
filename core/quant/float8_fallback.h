/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* float8_fallback.h: operators on tensors of eight bits where a device has no kernel. */

#ifndef CORE_QUANT_MISSING_H
#define CORE_QUANT_MISSING_H

#include <libcore/kernel.h>

/* Fills, copies, conversions and rounding by chance, with the bits that kernels
 * give; products, rounded as those of f32.  NO_KERNEL, without a message, for all other calls. */
core_status core__float8_missing(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults);

#endif
