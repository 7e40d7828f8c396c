/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* has_nan.h: checks a tensor for NaN. */

#ifndef CORE_OPS_HAS_NAN_H
#define CORE_OPS_HAS_NAN_H

#include "tensor/tensor.h"

/* Whether an element is NaN; the host waits for the device.  False for dtypes
 * without NaN and for tensors without data (meta).  The operators called are
 * not recorded, cast or observed. */
core_status core__tensor_has_nan(core_tensor *tensor, bool *out_has);

#endif
