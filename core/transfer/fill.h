/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* fill.h: fills on devices without a kernel for them. */

#ifndef CORE_TRANSFER_FILL_H
#define CORE_TRANSFER_FILL_H

#include <libcore/kernel.h>

/* Fills a tensor without gaps with the device's memory table, and computes
 * zero_ of others with the device's kernel of fill_.Scalar.  Returns NO_KERNEL
 * without a message for all other calls. */
core_status core__fill_fallback(core_call *call, const core_value *args,
                                uint32_t nargs, core_value *results,
                                uint32_t nresults);

#endif
