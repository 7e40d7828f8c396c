/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* linear.h: what the parts of the fused Linear share. */

#ifndef CORE_LINEAR_LINEAR_H
#define CORE_LINEAR_LINEAR_H

#include "quant/quantizer.h"

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

/* The error that every call gives for such arguments. */
core_status core__linear_check(const core_linear_forward_args *args);
/* core_linear_forward of arguments that were checked.  Where it fails quantizers
 * and workspace are as far as it came: who calls it has marked them. */
core_status core__linear_compute(const core_linear_forward_args *args,
                                 core_tensor **out_output,
                                 core_linear_made *out_made);

/* core_linear_setup of arguments that were checked, into zeros. */
void core__linear_setup(const core_linear_forward_args *forward,
                        const core_linear_made *made,
                        core_linear_backward_args *backward);

/* As many columns as the tensor's last dimension, all else rows. */
core_status core__linear_flat(core_tensor *tensor, core_tensor **out_matrix);

/* A factor of eight bits, borrowed. */
typedef struct core__linear_factor {
    core_tensor *data, *scales;
} core__linear_factor;

/* Whether the device has a kernel for their product. */
bool core__linear_has_eight(const core__linear_factor *a,
                            const core__linear_factor *b, core_tensor *bias,
                            core_dtype dtype);
/* By the device's kernel; *out_product NULL, and CORE_OK, where it has none for
 * these. */
core_status core__linear_eight(const core__linear_factor *a,
                               const core__linear_factor *b, core_tensor *bias,
                               core_dtype dtype, core_tensor **out_product);
/* The same of the forward's; no view. */
core_status core__linear_forward_eight(const core_linear_forward_args *args,
                                       const core_linear_made *made,
                                       core_tensor **out_product);

/* The quantized weight: from the workspace, or made now.  Owned. */
core_status core__linear_weight(const core_linear_forward_args *args,
                                core_tensor **out_data,
                                core_tensor **out_scales);
struct core_linear_workspace {
    core_tensor *data;
    core_tensor *scales;
    core_tensor *weight; /* held: its address is no other's meanwhile */
    core_stream *stream; /* on which it was quantized; held */
    uint32_t version;
};

/* What a forward with quantizers changes besides its results: set before it,
 * once a call, and undone at the end of one that failed. */
typedef struct core__linear_mark {
    core__quantizer_mark input, weight;
    core_linear_workspace workspace;
} core__linear_mark;

void core__linear_mark_set(const core_linear_forward_args *args,
                           core__linear_mark *mark);
void core__linear_mark_end(const core_linear_forward_args *args,
                           core__linear_mark *mark, bool done);

/* For a first microbatch: the workspace keeps what it made. */
void core__linear_keep(const core_linear_forward_args *args,
                       const core_linear_made *made);
core_linear_store *core__linear_store_retain(core_linear_store *store);

/* One weight gradient: grad^T * input, with what backward has of both.  Holds
 * references. */
typedef struct core__linear_dw {
    core_tensor *grad;        /* [rows, out], as backward computes with it */
    core_tensor *grad_scales; /* NULL, or grad is of eight bits */
    core_tensor *input;       /* or in eight bits: */
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
