/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* transfer.h: elements between devices and the host. */

#ifndef CORE_DEVICE_TRANSFER_H
#define CORE_DEVICE_TRANSFER_H

#include "device/device.h"
#include "tensor/tensor.h"

/* to[...] = from[...]: same sizes; any dtypes, layouts and devices.  Computes
 * below autograd.  Same device: the `copy_` kernel; else through contiguous
 * memory of one dtype, and through the host if it must be. */
core_status core__tensor_copy(core_tensor *to, core_tensor *from);
/* non_blocking: see core_tensor_copy (stream.h). */
core_status core__tensor_copy_flags(core_tensor *to, core_tensor *from,
                                    bool non_blocking);

/* One element to the host: waits, and counts it. */
core_status core__tensor_load(core_tensor *tensor, core_scalar *out_value);

#endif
