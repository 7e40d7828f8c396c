/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* packed_weights.h: right operands of products, kept in the layout of
 * kernels/matmul.cl.
 *
 * A matrix is kept when a product uses it for the second time unchanged
 * (core_host.call_view_content), so that what is used once needs no memory.  A
 * packed matrix belongs to its stream.  It is released when another version or
 * another storage is found at its address, when the buffer that it was made
 * from or its stream is released, when memory runs out, or, if it has not been
 * used for long, when the limit leaves no room for another matrix. */

#ifndef OPENCL_PACKED_WEIGHTS_H
#define OPENCL_PACKED_WEIGHTS_H

#include "matmul.h"

/* Leaves device->packed NULL if the device gains nothing from packed operands,
 * or if LIBCORE_OPENCL_PACKED is 0. */
core_status opencl_packed_weights_open(opencl_device *device);
/* All accept a device without packed weights. */
void opencl_packed_weights_close(opencl_device *device);
/* Releases what was packed from a buffer; NULL: from any. */
void opencl_packed_weights_drop(opencl_device *device, cl_mem of);
void opencl_packed_weights_drop_stream(opencl_device *device, uint64_t number);

/* Gets the packed right operand of a product, which the caller releases, or
 * NULL if it is not kept. */
core_status opencl_packed_weight(core_call *call, const opencl_product *product,
                                 cl_mem *out_packed);

#endif
