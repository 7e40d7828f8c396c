/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* partial_gradients.h: gradients of a part of a graph, for functions whose
 * backward is recorded. */

#ifndef CORE_AUTOGRAD_PARTIAL_GRADIENTS_H
#define CORE_AUTOGRAD_PARTIAL_GRADIENTS_H

#include "autograd/graph/node.h"

/* core_grad for the part of the graph between outputs and inputs: a gradient is
 * taken as it arrives at an input, before hooks of the input run, and nothing
 * behind an input runs, even if another input is reachable from there.  grads:
 * of outputs, all given; on the devices and of the sizes and dtypes of these.
 * out_grads: NULL where the outputs do not depend on an input. */
core_status core__partial_gradients(core_tensor *const *outputs,
                                    core_tensor *const *grads, size_t noutputs,
                                    core_tensor *const *inputs, size_t ninputs,
                                    bool retain, bool create,
                                    core_tensor **out_grads);

/* Fails if the outputs depend on leaves for which `is_known` is false, other
 * than through one of the inputs. */
core_status core__partial_gradients_check(
    core_tensor *const *outputs, size_t noutputs, core_tensor *const *inputs,
    size_t ninputs, bool (*is_known)(const core_tensor *leaf));

#endif
