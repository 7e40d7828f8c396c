/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* linear.h: what the parts of the fused Linear share. */

#ifndef CORE_LINEAR_LINEAR_H
#define CORE_LINEAR_LINEAR_H

#include <libcore/linear.h>

/* Takes NULL. */
static inline core_tensor *core__linear_hold(core_tensor *tensor)
{
    return tensor ? core_tensor_retain(tensor) : NULL;
}

/* The tensor's elements as rows of its last dimension, which may be 0. */
static inline int64_t core__linear_rows(core_tensor *tensor)
{
    int64_t rows = 1;

    for (uint32_t i = 0; i + 1 < core_tensor_ndim(tensor); i++)
        rows *= core_tensor_size(tensor, i);
    return rows;
}

/* In between no region casts: the dtypes are chosen.  *out_region is for the
 * second; 0 where there was none. */
core_status core__linear_quiet(core_tensor *tensor, uint64_t *out_region);
void core__linear_quiet_end(uint64_t region);

/* core_linear_setup of arguments that were checked, into zeros. */
void core__linear_setup(const core_linear_forward_args *forward,
                        const core_linear_made *made,
                        core_linear_backward_args *backward);

/* The quantized weight: from the workspace, or made now.  Owned. */
core_status core__linear_weight(const core_linear_forward_args *args,
                                core_tensor **out_data,
                                core_tensor **out_scales);
/* The workspace keeps what a first microbatch made. */
void core__linear_keep(const core_linear_forward_args *args,
                       const core_linear_made *made);
core_linear_store *core__linear_store_retain(core_linear_store *store);

/* One weight gradient: grad^T * input, with what backward has of both.  Holds
 * references. */
typedef struct core__linear_dw {
    core_tensor *grad;  /* [rows, out], as backward computes with it */
    core_tensor *input; /* or in eight bits: */
    core_tensor *input_data;
    core_tensor *input_scales;
    core_tensor *main_grad;
    core_tensor *leaf;
    core_dtype dtype;
    uint32_t flags;
    /* Of the first two, in a store: those that they had in backward. */
    uint32_t grad_version, input_version;
} core__linear_dw;

/* Into main_grad, and *out_gradient NULL; else that. */
core_status core__linear_dw_compute(const core__linear_dw *dw,
                                    core_tensor **out_gradient);
void core__linear_dw_release(core__linear_dw *dw);
/* Takes dw over, also on failure. */
core_status core__linear_store_push(core_linear_store *store,
                                    core__linear_dw *dw);

#endif
