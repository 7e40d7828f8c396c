/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop_second_derivative.h: the second and further derivatives of a recorded loop.
 *
 * Each is a node with the regions of the gradient (region.h).  The inputs of the
 * second are those of the gradient, and then the gradients of its results.  Its own
 * results are the gradients of the floating tensors of the loop's inputs, of the
 * gradients that the loop's gradient was given, and of the floating tensors that
 * the body, and then the gradient of the body, read besides.  The third derivative
 * is to the second what the second is to the gradient, and so on.  A run makes a
 * graph: it calls the loop and its gradient with the operators of the regions, as
 * autograd records them, and differentiates the results, once or several times. */

#ifndef CORE_COMPILE_LOOP_SECOND_DERIVATIVE_H
#define CORE_COMPILE_LOOP_SECOND_DERIVATIVE_H

#include "compile/control_flow/region_trace.h"

/* Makes the gradients of a recorded loop, or a derivative of these, `made`, results
 * of a node of the graph.
 * recorded: the node that computes them, with its arguments.  inputs: of that:
 * `nstate` of the loop, and then the gradients of its results. */
core_status core__loop_second_record(const core__region_node *recorded,
                                     core_tensor *const *inputs, size_t nstate,
                                     core_tensor **made);
/* Runs the node.  inputs: of the node.  tensors: by value.  random: as in
 * core__region_loop_backward. */
core_status core__loop_second_run(const core__program_node *node,
                                  core_tensor *const *inputs,
                                  core_tensor *const *tensors,
                                  const core__region_random *random,
                                  core_tensor **outputs);

#endif
