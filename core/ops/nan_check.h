/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* nan_check.h: for those who look for NaN. */

#ifndef CORE_OPS_NAN_H
#define CORE_OPS_NAN_H

#include "tensor/tensor.h"

/* Whether an element is NaN: the host waits for it.  False for dtypes that
 * cannot hold one, and where there are no elements to look at (meta).  What it
 * calls is neither recorded nor cast nor watched. */
core_status core__tensor_has_nan(core_tensor *tensor, bool *out_has);

#endif
