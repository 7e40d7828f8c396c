/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shape.h: arithmetic on sizes that several operators share. */

#ifndef CORE_OPS_SHAPE_H
#define CORE_OPS_SHAPE_H

#include "ops/infer.h"

/* Returns SHAPE for more than CORE_MAX_NDIM dimensions. */
static inline core_status core__ndim_check(const core_operator *op,
                                           uint64_t ndim)
{
    if (ndim <= CORE_MAX_NDIM)
        return CORE_OK;
    return core__op_error(CORE_ERROR_SHAPE, op,
                          "a tensor has at most %d dimensions, not %llu",
                          CORE_MAX_NDIM, (unsigned long long)ndim);
}

/* Numbers that are added to or multiplied by sizes (paddings, strides,
 * dilations, offsets) are below this, and numbers of elements below
 * CORE__NUMEL_MAX, so that sums of a few of both do not overflow. */
#define CORE__SIZE_OPERAND_MAX ((int64_t)1 << 40)
#define CORE__NUMEL_MAX (INT64_MAX / 8)

/* Returns SHAPE for a magnitude of CORE__SIZE_OPERAND_MAX or more. */
core_status core__size_operand_check(const core_operator *op, const char *name,
                                     int64_t value);

/* Returns SHAPE for a negative size, or more elements than can be addressed;
 * sizes of 0 count as 1, as in strides. */
core_status core__sizes_check(const core_operator *op, size_t ndim,
                              const int64_t *sizes);

/* Returns SHAPE, naming the tensor, if it has other sizes.  Takes NULL. */
core_status core__sizes_check_equal(const core_operator *op, const char *name,
                                    const core_tensor *tensor, uint32_t ndim,
                                    const int64_t *sizes);

/* Returns DTYPE if they differ.  names: of both, "self and other". */
core_status core__dtypes_check_equal(const core_operator *op, const char *names,
                                     const core_tensor *a,
                                     const core_tensor *b);

/* Returns SHAPE unless the sizes of input end in those of shape, at least
 * one. */
core_status core__normalized_shape_check(const core_operator *op,
                                         const core_tensor *input, size_t count,
                                         const int64_t *shape);

/* Clears those of the first count results that output_mask does not request;
 * NONE requests all. */
core_status core__results_mask(core__inference *infer, const core_value *mask,
                               uint32_t count);

/* The mask of dimensions, each listed once. */
core_status core__dims_mask(const core_operator *op, const core_value *list,
                            uint32_t ndim, uint32_t *out_mask);

/* Returns INVALID_ARGUMENT for a scale factor so large or small that a position
 * might not be an index.  NONE means no factor. */
core_status core__scales_check(const core_operator *op,
                               const core_value *scales, uint32_t count);

/* Returns INVALID_ARGUMENT unless it is one of CORE_REDUCTION_…. */
core_status core__reduction_check(const core_operator *op, int64_t reduction);
/* What connectionist temporal classification requires of its operands, but for
 * the lengths (infer_ctc.c). */
core_status core__ctc_check(const core_operator *op, const core_tensor *probs,
                            const core_tensor *targets, int64_t blank);

/* The `wanted` sizes of a view of self; one of them may be -1. */
core_status core__shape_resolve(const core_operator *op,
                                const core_tensor *self, size_t count,
                                const int64_t *wanted, int64_t *out_sizes);

/* The part of `size` elements that start, end and step select: first element
 * and count.  NONE: from the beginning, to the end. */
core_status core__slice_range(const core_operator *op, int64_t size,
                              const core_value *start, const core_value *end,
                              int64_t step, int64_t *out_first,
                              int64_t *out_count);

/* An index in a dimension of `size`; a negative one counts from the end. */
core_status core__index_wrap(const core_operator *op, int64_t index,
                             int64_t size, uint32_t dim, int64_t *out_index);

#endif
