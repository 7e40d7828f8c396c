/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop.h: builds a loop from operands. */

#ifndef CORE_DISPATCH_LOOP_H
#define CORE_DISPATCH_LOOP_H

#include "dispatch/structured.h"

/* A loop under construction, on the stack; unused parts stay uninitialised.
 * Strides of operand k: strides[k], innermost dimension first. */
typedef struct core__loop_builder {
    core_loop loop;
    core_operand operands[CORE__OPERANDS_MAX + 2];
    int64_t sizes[CORE_MAX_NDIM];
    int64_t strides[CORE__OPERANDS_MAX + 2][CORE_MAX_NDIM];
    uint32_t ndim;
    uint32_t noperands;
} core__loop_builder;

/* Starts a loop over `sizes` (outermost first, as in tensors). */
void core__loop_begin(core__loop_builder *builder, uint32_t ndim,
                      const int64_t *sizes);
/* Adds a tensor, broadcast to the loop: its trailing dimensions are the
 * loop's. */
void core__loop_add(core__loop_builder *builder, const core_tensor *tensor,
                    uint32_t flags);
/* The same with the strides, in elements, that a conversion of it has. */
void core__loop_add_converted(core__loop_builder *builder,
                              const core_tensor *tensor,
                              const int64_t *strides);
/* Adds an operand with given strides (in elements, outermost first, one per
 * dimension of the loop). */
void core__loop_add_strided(core__loop_builder *builder,
                            const core_tensor *tensor, const int64_t *strides,
                            uint32_t flags);
/* Adds a number with a dtype. */
void core__loop_add_number(core__loop_builder *builder, core_dtype dtype,
                           core_scalar value);
/* Orders the dimensions by the operands' strides; earlier operands take
 * precedence.  *out_permutation (may be NULL) receives the tensor dimension of
 * each loop dimension, innermost first. */
void core__loop_order(core__loop_builder *builder, uint8_t *out_permutation);
/* The same by the strides of one operand only. */
void core__loop_order_by(core__loop_builder *builder, uint32_t operand);
/* Joins dimensions that all operands traverse as one; dimensions with and
 * without a bit in loop.reduced are not joined. */
void core__loop_coalesce(core__loop_builder *builder);
/* Fills in builder->loop. */
void core__loop_finish(core__loop_builder *builder, uint32_t noutputs);

#endif
