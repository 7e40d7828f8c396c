/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* transfer.h: copies elements between devices and the host. */

#ifndef CORE_TRANSFER_TRANSFER_H
#define CORE_TRANSFER_TRANSFER_H

#include "device/device.h"
#include "tensor/tensor.h"

/* to[...] = from[...]: same sizes; any dtypes, layouts and devices.  Computes
 * below autograd.  On one device it is the `copy_` kernel, else copies of
 * contiguous memory of one dtype, through the host if needed. */
core_status core__tensor_copy(core_tensor *to, core_tensor *from);
/* non_blocking: see core_tensor_copy (libcore/stream.h). */
core_status core__tensor_copy_flags(core_tensor *to, core_tensor *from,
                                    bool non_blocking);

/* Copies one element to the host; waits, and counts the wait. */
core_status core__tensor_load(core_tensor *tensor, core_scalar *out_value);

#endif
