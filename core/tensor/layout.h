/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* layout.h: properties of sizes and strides. */

#ifndef CORE_TENSOR_LAYOUT_H
#define CORE_TENSOR_LAYOUT_H

#include "tensor/tensor.h"

/* CORE__TENSOR_CONTIGUOUS and CORE__TENSOR_DENSE as they apply; also returns
 * numel. */
uint32_t core__layout_flags(uint32_t ndim, const int64_t *sizes,
                            const int64_t *strides, int64_t *out_numel);

/* Accepts CORE_FORMAT_…; else UNSUPPORTED. */
core_status core__layout_format_check(int64_t format);
/* Row-major strides. */
void core__layout_contiguous(uint32_t ndim, const int64_t *sizes,
                             int64_t *out_strides);
/* Strides with the channel (dimension 1) innermost, for 4 or 5 dimensions. */
void core__layout_channels_last(uint32_t ndim, const int64_t *sizes,
                                int64_t *out_strides);
/* True if sizes and strides are channels-last in the sense in which results of
 * convolution follow their input. */
bool core__layout_is_channels_last(const core_tensor *tensor);
/* Dense strides in the stride order of `tensor`, for a result of the same
 * sizes.  Where strides are equal or 0, the later dimension is the inner one, as
 * in ATen. */
void core__layout_like(const core_tensor *tensor, int64_t *out_strides);

/* Strides by which a tensor of `sizes` can be viewed as `to` without a copy;
 * false if it cannot.  Both have the same number of elements. */
bool core__layout_view(uint32_t ndim, const int64_t *sizes,
                       const int64_t *strides, uint32_t to_ndim,
                       const int64_t *to_sizes, int64_t *out_strides);

/* Whether two tensors' elements share bytes. */
typedef enum core__overlap {
    CORE__OVERLAP_NONE,
    CORE__OVERLAP_SAME,   /* exactly the same elements in the same order */
    CORE__OVERLAP_PARTIAL /* some bytes are shared, or this cannot be ruled
                           * out */
} core__overlap;
core__overlap core__layout_overlap(const core_tensor *a, const core_tensor *b);
/* The range from its first byte to the end of its last, in its storage's
 * memory; the tensor has elements. */
void core__layout_bytes(const core_tensor *tensor, uint64_t *from,
                        uint64_t *to);
/* True if two elements of the tensor share bytes (in an expanded tensor, for
 * example). */
bool core__layout_overlaps_itself(const core_tensor *tensor);
bool core__strides_overlap(uint32_t ndim, const int64_t *sizes,
                           const int64_t *strides);

#endif
