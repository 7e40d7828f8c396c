/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* layer.h: the autograd layer and the in-place-or-view layer, which every
 * operator passes through. */

#ifndef CORE_AUTOGRAD_LAYER_H
#define CORE_AUTOGRAD_LAYER_H

#include "autograd/graph/gradient.h"

/* Calls the operator below itself, and records a node if a tensor requires grad
 * and grad mode is on. */
core_status core__autograd_layer(core_call *call, const core_value *args,
                                 uint32_t nargs, core_value *results,
                                 uint32_t nresults);
/* What this layer does before and after it calls the operator below itself. */
core_status core__changes_check(const core_operator *op, const core_value *args,
                                uint32_t nargs);
void core__changes_count(const core_operator *op, const core_value *args,
                         uint32_t nargs);
/* Calls the operator below itself, then bumps the versions of changed
 * tensors. */
core_status core__inplace_or_view_layer(core_call *call, const core_value *args,
                                        uint32_t nargs, core_value *results,
                                        uint32_t nresults);

/* Returns an error if a change in place of the tensor cannot be recorded; name
 * is for the message. */
core_status core__in_place_check(const char *name, const core_tensor *self);

/* record_operator.c: the node of a call that was computed. */
typedef struct core__recording {
    const core_operator *op;
    const core__gradient *gradient; /* NULL: none; the node refuses to run */
    const core_value *args;
    uint32_t needed; /* needed gradients, by index */
    uint32_t nedges;
    /* In place: by saved row, the content before the change, or NULL. */
    core_tensor *const *before;
} core__recording;

enum { CORE__SAVED_MAX = 24 };

core_status core__record_operator(const core__recording *recording,
                                  const core_value *results, uint32_t nresults,
                                  core_node **out_node);

#endif
