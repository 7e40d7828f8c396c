/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* linear.h: what the parts of the fused Linear share. */

#ifndef CORE_LINEAR_LINEAR_H
#define CORE_LINEAR_LINEAR_H

#include "quant/quantizer.h"

#include <libcore/linear.h>

/* Retains; takes NULL. */
static inline core_tensor *core__linear_retain(core_tensor *tensor)
{
    return tensor ? core_tensor_retain(tensor) : NULL;
}

/* The number of rows of the tensor's last dimension, which may have size 0. */
static inline int64_t core__linear_row_count(core_tensor *tensor)
{
    int64_t rows = 1;

    for (uint32_t i = 0; i + 1 < core_tensor_ndim(tensor); i++)
        rows *= core_tensor_size(tensor, i);
    return rows;
}

/* Disable and re-enable autocast around a computation whose dtypes are already
 * chosen.  *out_region is passed to the second; 0 if there was no region. */
core_status core__linear_autocast_disable(core_tensor *tensor,
                                          uint64_t *out_region);
void core__linear_autocast_restore(uint64_t region);

/* Returns the error for invalid arguments, the same from every entry point. */
core_status core__linear_check(const core_linear_forward_args *args);
/* core_linear_forward with checked arguments.  On failure, quantizers and
 * workspace are left changed: the caller restores them with a mark. */
core_status core__linear_compute(const core_linear_forward_args *args,
                                 core_tensor **out_output,
                                 core_linear_intermediates *out_made);

/* core_linear_setup with checked arguments, into a zeroed struct. */
void core__linear_setup(const core_linear_forward_args *forward,
                        const core_linear_intermediates *made,
                        core_linear_backward_args *backward);

/* Reshapes to a matrix: the last dimension are the columns, the others the
 * rows. */
core_status core__linear_as_matrix(core_tensor *tensor,
                                   core_tensor **out_matrix);

/* A float8 factor, borrowed. */
typedef struct core__linear_quantized_factor {
    core_tensor *data, *scales;
} core__linear_quantized_factor;

/* Whether the device has a kernel for their product. */
bool core__linear_quantized_supported(const core__linear_quantized_factor *a,
                                      const core__linear_quantized_factor *b,
                                      core_tensor *bias, core_dtype dtype);
/* Multiplies with the device's kernel; leaves *out_product NULL and returns
 * CORE_OK if the device has none for these operands. */
core_status core__linear_quantized_matmul(
    const core__linear_quantized_factor *a,
    const core__linear_quantized_factor *b, core_tensor *bias, core_dtype dtype,
    core_tensor **out_product);
/* The same for the product of the forward; the result is not a view. */
core_status core__linear_quantized_forward(
    const core_linear_forward_args *args, const core_linear_intermediates *made,
    core_tensor **out_product);

/* The quantized weight: from the workspace, or quantized now.  Owned. */
core_status core__linear_quantized_weight(const core_linear_forward_args *args,
                                          core_tensor **out_data,
                                          core_tensor **out_scales);
struct core_linear_workspace {
    core_tensor *data;
    core_tensor *scales;
    core_tensor *weight; /* owned, so that its address cannot be reused */
    core_stream *stream; /* the stream that quantized it; owned */
    uint32_t version;
};

/* What a quantized forward changes besides its results: set before the forward,
 * and restored by core__linear_mark_end if the call failed. */
typedef struct core__linear_mark {
    core__quantizer_mark input, weight;
    core_linear_workspace workspace;
} core__linear_mark;

void core__linear_mark_set(const core_linear_forward_args *args,
                           core__linear_mark *mark);
void core__linear_mark_end(const core_linear_forward_args *args,
                           core__linear_mark *mark, bool done);

/* After a first microbatch: keeps the quantized weight in the workspace. */
void core__linear_workspace_fill(const core_linear_forward_args *args,
                                 const core_linear_intermediates *made);
core_linear_wgrad_queue *core__linear_wgrad_queue_retain(
    core_linear_wgrad_queue *queue);

/* A weight gradient grad^T * input, with what backward has of both.  Owns
 * references. */
typedef struct core__linear_weight_gradient {
    core_tensor *grad;        /* [rows, out], in the dtype that backward
                               * computes in */
    core_tensor *grad_scales; /* NULL unless grad is float8 */
    core_tensor *input;       /* or quantized: */
    core_tensor *input_data;
    core_tensor *input_scales;
    core_tensor *main_grad;
    core_tensor *leaf;
    core_dtype dtype;
    uint32_t flags;
    /* The versions of grad and input during backward, for a queue. */
    uint32_t grad_version, input_version;
} core__linear_weight_gradient;

/* Adds to main_grad and leaves *out_gradient NULL, or returns the gradient. */
core_status core__linear_weight_gradient_compute(
    const core__linear_weight_gradient *dw, core_tensor **out_gradient);
void core__linear_weight_gradient_release(core__linear_weight_gradient *dw);
/* Takes ownership of dw, also on failure. */
core_status core__linear_wgrad_queue_push(core_linear_wgrad_queue *queue,
                                          core__linear_weight_gradient *dw);

#endif
