/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* control_flow.h: branches and loops that depend on the content of tensors.
 *
 * A function that reads a tensor on the host and then decides what to compute
 * cannot be recorded (compile.h).  These functions make the decision part of
 * the program.  While nothing is recorded they read the predicate on the host,
 * which waits for its device, and call what it selects.  While a program is
 * recorded they record both branches, or condition and body, and the program
 * decides in each run.
 *
 * The functions compute outputs from inputs and from other tensors that exist,
 * such as weights.  They must not change tensors that exist outside of them.
 * They may draw random numbers.  The gradient of a recorded branch or loop
 * draws them again: it sets the generators back while it runs.  So while a
 * program with a branch or loop that draws and needs a gradient runs, or while
 * that gradient does, no other thread may draw from the same generators or seed
 * them; those are the default generators of the devices in use and those that
 * operators are given.  The run or the gradient fails with REFUSED if another
 * thread did.
 *
 * Threads.  Any thread may call these functions.  What they are given runs in
 * the thread of the call; for a gradient, in the thread that runs the
 * backward. */

#ifndef LIBCORE_CONTROL_FLOW_H
#define LIBCORE_CONTROL_FLOW_H

#include "autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Calls then_function if the predicate is true, else else_function.  predicate:
 * a tensor of bool with one element.  context and inputs are passed to the
 * function.  It returns noutputs outputs; both return outputs of the same
 * dtypes, sizes and devices, which is checked when they are recorded.  The
 * caller owns the outputs, which are row-major and have their own memory; all
 * are NULL on failure.  Autograd records the function that is called.  A
 * recorded branch has a gradient for inputs and other tensors that require
 * grad: another branch, whose functions call these again and differentiate.
 *
 * Inside core_vmap (transform.h), if the predicate differs between the samples,
 * both functions are called with all samples, and each sample gets the outputs
 * of the function that its predicate selects.
 *
 * DTYPE or SHAPE for the predicate.  INVALID_ARGUMENT for another number of
 * outputs.  While a program is recorded also SHAPE, DTYPE or DEVICE for outputs
 * that differ, and UNSUPPORTED, with the reason, if a function changes a tensor
 * that exists outside of it or does what cannot be recorded. */
core_status core_cond(core_tensor *predicate,
                      core_tensor_function then_function,
                      core_tensor_function else_function, void *context,
                      core_tensor *const *inputs, size_t ninputs,
                      core_tensor **outputs, size_t noutputs);

/* Calls body as long as condition returns true.  condition: returns one output,
 * a tensor of bool with one element.  body: returns ninputs outputs of the
 * dtypes, sizes and devices of the inputs, which are the inputs of the next
 * calls of condition and body.  outputs: ninputs entries for those of the last
 * call of body, or the inputs if there was none; the caller owns them, they are
 * row-major and have memory of their own, and all are NULL on failure.  Inputs
 * that are not row-major are copied before the first call.
 *
 * As a loop of C, one whose condition stays true does not end: there is no
 * limit, and no way to interrupt it from outside.  Where that can happen, count
 * the iterations in one more input, and let the condition compare it with a
 * limit.
 *
 * INVALID_ARGUMENT for another number of outputs; SHAPE, DTYPE or DEVICE for
 * outputs that differ from the inputs.  UNSUPPORTED if the output of condition
 * differs between the samples of core_vmap.  Otherwise errors are those of
 * core_cond.
 *
 * Autograd records the calls.  The gradient of a recorded loop runs the loop
 * again and keeps the inputs of each iteration, then computes the body again
 * for each iteration, from the last one to the first, and differentiates it.
 * OUT_OF_MEMORY if there are more iterations than the setting
 * LIBCORE_LOOP_ITERATIONS allows.  The gradient of a recorded loop can be
 * differentiated while the same program is recorded, once if the loop is in a
 * branch.  Otherwise, and if a function reads a view that requires grad and is
 * not an input, UNSUPPORTED. */
core_status core_while(core_tensor_function condition,
                       core_tensor_function body, void *context,
                       core_tensor *const *inputs, size_t ninputs,
                       core_tensor **outputs);

#ifdef __cplusplus
}
#endif
#endif
