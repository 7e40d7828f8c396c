/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* functional.h: an evaluation of a function that is being differentiated, for
 * functional.c and transform/jacobian.c. */

#ifndef CORE_AUTOGRAD_FUNCTIONAL_H
#define CORE_AUTOGRAD_FUNCTIONAL_H

#include "tensor/tensor.h"

#include <libcore/functional.h>

/* One evaluation of the function. */
typedef struct core__derivation {
    const char *name; /* the public function */
    const core_derivative *of;
    bool create;
    bool grad_mode; /* of the thread before the call */
    size_t ninputs, noutputs;
    core_tensor **inputs;  /* stand-ins */
    core_tensor **outputs; /* of the caller's capacity */
    /* Floating inputs and their positions. */
    core_tensor **differentiated;
    size_t *positions;
    size_t ndifferentiated;
    core_tensor **grads; /* ndifferentiated entries, for core_grad */
} core__derivation;

/* Calls the function with stand-ins for the inputs, in grad mode.  name: the
 * public function.  core__derivation_end must follow, also on failure. */
core_status core__derivation_begin(core__derivation *work, const char *name,
                                   const core_derivative *of, size_t noutputs);
/* Releases everything and returns status. */
core_status core__derivation_end(core__derivation *work, core_status status);
/* Zeros like a tensor. */
core_status core__derivation_zeros(const core_tensor *like,
                                   core_tensor **out_zeros);
/* Detaches a result, unless derivatives of it are to be computed. */
core_status core__derivation_finish(const core__derivation *work,
                                    core_tensor **result);
/* Computes work->grads, with a graph, of a function whose result has one
 * element. */
core_status core__derivation_first(core__derivation *work);

#endif
