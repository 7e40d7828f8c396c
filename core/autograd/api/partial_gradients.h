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

/* True in a backward that keeps the graph for another one. */
bool core__backward_retains(void);

/* Calls `visit` for each node between outputs and inputs, until it fails. */
core_status core__partial_gradients_visit(
    core_tensor *const *outputs, size_t noutputs, core_tensor *const *inputs,
    size_t ninputs, core_status (*visit)(void *context, core_node *node),
    void *context);

/* Fails as a backward of the outputs would if an earlier one has released a node
 * between outputs and inputs; one that is running does not count. */
core_status core__partial_gradients_check_saved(core_tensor *const *outputs,
                                                size_t noutputs,
                                                core_tensor *const *inputs,
                                                size_t ninputs);
/* Releases what these nodes have saved, as a backward does that keeps nothing. */
core_status core__partial_gradients_release_saved(core_tensor *const *outputs,
                                                  size_t noutputs,
                                                  core_tensor *const *inputs,
                                                  size_t ninputs);

/* Fails if the outputs depend on leaves for which `is_known` is false, other
 * than through one of the inputs. */
core_status core__partial_gradients_check(
    core_tensor *const *outputs, size_t noutputs, core_tensor *const *inputs,
    size_t ninputs, bool (*is_known)(const core_tensor *leaf));

#endif
