/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* autograd.h: gradients by reverse-mode differentiation.
 *
 * Operators on tensors that require grad record a graph: each result refers to
 * the node of the operator that computed it, and each node to the nodes of its
 * inputs.  A leaf is a tensor that is not the result of a recorded operator.
 * core_backward traverses the graph and adds to the grad of every leaf that
 * requires grad; core_grad returns the gradients of chosen tensors instead, and
 * changes no grad.
 *
 * Threads.  Every function here is thread-safe.  A graph may be built in one
 * thread and traversed in another, and several threads may run backward through
 * graphs that share nodes.  Modes belong to the calling thread. */

#ifndef LIBCORE_AUTOGRAD_H
#define LIBCORE_AUTOGRAD_H

#include "kernel.h"
#include "status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A registered hook. */
typedef struct core_hook core_hook;

/* Computes outputs from inputs by operators.  inputs: borrowed.  *noutputs is
 * the capacity of outputs; the function stores owned tensors there and sets
 * *noutputs to their number, which callers such as that of core_jacobian need
 * not know before.  If it fails, the core releases the tensors that it has
 * stored.  One type serves derivatives, core_vmap and core_compile. */
typedef core_status (*core_tensor_function)(void *context,
                                            core_tensor *const *inputs,
                                            size_t ninputs,
                                            core_tensor **outputs,
                                            size_t *noutputs);

/* ------------------------------------------------------------- tensors -- */

/* Sets whether a leaf requires grad.  After it is set to false, the leaf
 * accumulates no gradient and its hooks do not run, even in a backward through
 * a graph recorded before.  AUTOGRAD for a tensor that is not floating, that
 * was made in inference mode, or, with false, that is the result of a recorded
 * operator. */
core_status core_tensor_set_requires_grad(core_tensor *tensor,
                                          bool requires_grad);

/* Returns whether a tensor requires grad: a leaf for which it was set, or the
 * result of a recorded operator.  false for NULL. */
bool core_tensor_requires_grad(const core_tensor *tensor);

/* Returns whether a tensor is a leaf: not the result of a recorded operator.
 * false for NULL. */
bool core_tensor_is_leaf(const core_tensor *tensor);

/* Returns the accumulated gradient of a tensor, borrowed, or NULL if there is
 * none.  It is valid until the next backward or until the grad is set; retain
 * it to keep it. */
core_tensor *core_tensor_grad(const core_tensor *tensor);

/* Replaces the gradient of a tensor, which takes a reference to grad.  grad
 * must have the sizes, dtype and device of the tensor.  NULL removes the
 * gradient.  SHAPE, DTYPE or DEVICE if they differ.  UNSUPPORTED for a grad
 * that a function has kept from its recording (compile.h): it has no
 * content. */
core_status core_tensor_set_grad(core_tensor *tensor, core_tensor *grad);

/* Makes a result of an operator keep its gradient for core_tensor_grad, summed
 * over all backwards.  (By default only leaves keep theirs; for a leaf the call
 * has no effect.)  After an in-place change, the tensor keeps the gradient of
 * its new value.  After detach_ it still receives the gradient of its value
 * before, until it becomes the result of a recorded operator or a leaf that
 * requires grad.  AUTOGRAD if the tensor does not require grad. */
core_status core_tensor_retain_grad(core_tensor *tensor);

/* Returns the node of the operator that computed a tensor, borrowed from the
 * tensor, or NULL for a leaf.  For a view whose base was changed in place the
 * node is created during this call; if that fails, the result is NULL and the
 * error record is set.  core_tensor_is_leaf distinguishes the two. */
core_node *core_tensor_grad_fn(core_tensor *tensor);

/* Returns the index of a tensor among the results of its node, 0 for a leaf. */
uint32_t core_tensor_output_index(const core_tensor *tensor);

/* ------------------------------------------------------------- backward -- */

/* Flags of core_backward and core_grad. */
enum {
    /* Keep the saved values of nodes, so that backward can run through the
     * graph again. */
    CORE_RETAIN_GRAPH = 1u << 0,
    /* Record the backward itself, for higher derivatives.  Implies
     * CORE_RETAIN_GRAPH. */
    CORE_CREATE_GRAPH = 1u << 1,
    /* core_grad: return NULL for an input on which the outputs do not depend.
     * Without the flag that is an error, reported before any node runs. */
    CORE_ALLOW_UNUSED = 1u << 2
};

/* Computes the gradients of tensors with respect to the leaves of their graph,
 * and adds them to the grads of the leaves.  grads[i]: the gradient of
 * tensors[i], of its sizes.  A NULL entry, or grads NULL, means 1, for a tensor
 * of one element.  flags: CORE_RETAIN_GRAPH, CORE_CREATE_GRAPH.  The first
 * error of a node stops the backward; its message starts with the name of the
 * node. */
core_status core_backward(core_tensor *const *tensors, size_t count,
                          core_tensor *const *grads, uint32_t flags);

/* Computes the gradients of outputs with respect to inputs.  grad_outputs: as
 * grads in core_backward.  out_grads has ninputs entries, which the caller
 * owns; all are NULL on failure.  flags: CORE_RETAIN_GRAPH, CORE_CREATE_GRAPH,
 * CORE_ALLOW_UNUSED.  Runs only the nodes between outputs and inputs.  AUTOGRAD
 * if an input does not require grad, or, without CORE_ALLOW_UNUSED, if the
 * outputs do not depend on it. */
core_status core_grad(core_tensor *const *outputs, size_t noutputs,
                      core_tensor *const *grad_outputs,
                      core_tensor *const *inputs, size_t ninputs,
                      uint32_t flags, core_tensor **out_grads);

/* ---------------------------------------------------------------- modes -- */

/* Sets the calling thread's grad mode and returns the previous one.  While it
 * is off, operators record nothing.  Initially on.
 *
 *     bool before = core_grad_mode_set(false);
 *     ...
 *     core_grad_mode_set(before); */
bool core_grad_mode_set(bool enabled);

/* Returns the calling thread's grad mode. */
bool core_grad_mode(void);

/* Starts inference mode in the calling thread.  Operators record nothing, and
 * their results are inference tensors, which cost less and can never be part of
 * a graph.  Returns the previous modes, for core_inference_end.  Calls nest. */
uint64_t core_inference_begin(void);

/* Restores the modes that core_inference_begin returned. */
void core_inference_end(uint64_t before);

/* Returns whether the calling thread is in inference mode. */
bool core_inference_mode(void);

/* Sets the calling thread's anomaly mode and returns the previous one.  While
 * it is on, nodes store where they were recorded, and a backward checks every
 * gradient that a node computes: NaN is an error that names the node and the
 * place.  The place is the text of core_anomaly_place_set or, if that is NULL,
 * the program's stack where the system can report it.  Slow; for debugging. */
bool core_anomaly_mode_set(bool enabled);

/* Returns the calling thread's anomaly mode. */
bool core_anomaly_mode(void);

/* Sets the calling thread's place for anomaly mode, "decoder, block 3", and
 * returns the previous one.  The text is borrowed until the next call; each
 * recorded operator copies it.  NULL: no place. */
const char *core_anomaly_place_set(const char *place);

/* ---------------------------------------------------------------- hooks -- */

/* Every register function makes a hook of function and context.  drop(context),
 * unless NULL, is called once, when the hook is destroyed.  out_hook may be
 * NULL; otherwise the caller passes the handle to core_hook_remove (the hook no
 * longer runs) or to core_hook_release (the hook stays registered).  A hook may
 * do either, and may register other hooks, which run from the next gradient
 * on. */

/* Receives a gradient of a tensor before anything uses it.  *out_grad is NULL;
 * the hook may set it to an owned tensor, which replaces the gradient. */
typedef core_status (*core_tensor_hook)(void *context, core_tensor *grad,
                                        core_tensor **out_grad);

/* Registers a hook on the gradient of a tensor.  AUTOGRAD if the tensor does
 * not require grad. */
core_status core_tensor_register_hook(core_tensor *tensor,
                                      core_tensor_hook function, void *context,
                                      void (*drop)(void *context),
                                      core_hook **out_hook);

/* Runs after the grad of a leaf was updated. */
typedef core_status (*core_accumulate_hook)(void *context, core_tensor *leaf);

/* Registers a hook that runs after the grad of a leaf was updated.  AUTOGRAD if
 * the tensor is not a leaf that requires grad. */
core_status core_tensor_register_accumulate_hook(core_tensor *tensor,
                                                 core_accumulate_hook function,
                                                 void *context,
                                                 void (*drop)(void *context),
                                                 core_hook **out_hook);

/* Runs before a node.  grads: one per result of the forward, NULL where
 * undefined.  The hook may replace an entry: it releases the old tensor and
 * stores an owned one. */
typedef core_status (*core_node_pre_hook)(void *context, core_node *node,
                                          core_tensor **grads, size_t count);

/* Registers a hook that runs before a node. */
core_status core_node_register_pre_hook(core_node *node,
                                        core_node_pre_hook function,
                                        void *context,
                                        void (*drop)(void *context),
                                        core_hook **out_hook);

/* Runs after a node.  grads: the gradients that the node received.  gradients:
 * those that it computed, one per edge; the hook may replace an entry like a
 * core_node_pre_hook. */
typedef core_status (*core_node_post_hook)(void *context, core_node *node,
                                           core_tensor *const *grads,
                                           size_t ngrads,
                                           core_tensor **gradients,
                                           size_t ngradients);

/* Registers a hook that runs after a node. */
core_status core_node_register_post_hook(core_node *node,
                                         core_node_post_hook function,
                                         void *context,
                                         void (*drop)(void *context),
                                         core_hook **out_hook);

/* Removes a hook, which no longer runs, and frees the handle.  Accepts NULL. */
void core_hook_remove(core_hook *hook);

/* Frees the handle of a hook, which stays registered.  Accepts NULL. */
void core_hook_release(core_hook *hook);

/* ---------------------------------------------------------------- nodes -- */

/* Adds a reference and returns node.  Accepts NULL. */
core_node *core_node_retain(core_node *node);

/* Drops a reference.  Accepts NULL. */
void core_node_release(core_node *node);

/* Returns the name of a node, "mul.Tensor backward".  The text lives as long as
 * the node.  "" for NULL. */
const char *core_node_name(const core_node *node);

/* Returns the number of edges of a node, one per tensor input of the forward.
 * 0 for NULL. */
size_t core_node_edge_count(const core_node *node);

/* Returns the node at the end of an edge, borrowed, or NULL if the input needs
 * no gradient.  *out_input is the input of that node to which the edge leads;
 * out_input may be NULL.  NULL for a NULL node or an index out of range. */
core_node *core_node_edge(const core_node *node, size_t index,
                          uint32_t *out_input);

/* ----------------------------------------------------- custom functions -- */

/* A function with its own gradient.  The program computes outputs from inputs
 * without recording (core_grad_mode_set(false), or detached inputs), and then
 * calls core_function_record, which makes the outputs results of a new node. */
typedef struct core_function_info {
    uint32_t struct_size;
    uint32_t flags;   /* CORE_FUNCTION_… (kernel.h) */
    const char *name; /* copied */

    /* Computes gradients.  grads: one per output, borrowed; zeros where
     * undefined.  gradients: one per input, all NULL; it sets those that are
     * needed (core_node_needs_gradient) to owned tensors.  A gradient to which
     * nothing else refers becomes the grad of a leaf without a copy, unless it
     * shares memory with one of grads. */
    core_status (*backward)(core_node *node, void *context,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients);
    void *context; /* passed to backward */

    /* Frees the context.  Called once: after the first backward without
     * CORE_RETAIN_GRAPH, when the node is destroyed, or when recording fails.
     * May be NULL. */
    void (*release)(void *context);

    /* Inputs that were changed in place.  Each must also be an output. */
    core_tensor *const *dirty;
    size_t ndirty;

    /* Outputs that have no gradient.  Outputs that are not floating never have
     * one. */
    core_tensor *const *non_differentiable;
    size_t nnon_differentiable;
} core_function_info;

/* Records a custom function.  saved: tensors for core_node_saved, which may
 * include inputs and outputs and are checked for later changes in place;
 * entries may be NULL.  The outputs must be distinct tensors without history,
 * and not inputs unless dirty.  An output that is a view keeps its base, but
 * cannot be changed in place, nor used after its base was.
 *
 * If no input requires grad or grad mode is off, nothing is recorded and the
 * context is released.  *out_node is borrowed from the outputs, or NULL if
 * nothing was recorded; out_node may be NULL. */
core_status core_function_record(const core_function_info *info,
                                 core_tensor *const *inputs, size_t ninputs,
                                 core_tensor *const *saved, size_t nsaved,
                                 core_tensor *const *outputs, size_t noutputs,
                                 core_node **out_node);

/* Gets a saved tensor in a backward function.  *out_tensor is a reference that
 * the caller releases, or NULL if NULL was saved.  INDEX if index is out of
 * range; AUTOGRAD if the saved tensors were released after the first backward;
 * VERSION if the tensor was changed in place since. */
core_status core_node_saved(core_node *node, size_t index,
                            core_tensor **out_tensor);

/* Returns whether a backward function must compute the gradient of an input. */
bool core_node_needs_gradient(const core_node *node, size_t input);

/* -------------------------------------------------------------- checking -- */

/* The function that core_gradcheck differentiates. */
typedef core_tensor_function core_gradcheck_function;

/* The maximum number of outputs of that function. */
enum { CORE_GRADCHECK_OUTPUTS = 8 };

/* Compares the recorded derivative of a function with central differences of
 * step eps, element by element: |analytic - numeric| <= atol + rtol *
 * |numeric|.  Inputs that require grad must be contiguous f64 leaves; they are
 * changed during the check and restored.  AUTOGRAD for a mismatch; the message
 * names the first.  INVALID_ARGUMENT if no output is floating, eps is not
 * finite and above 0, or a tolerance is not finite and at least 0. */
core_status core_gradcheck(core_gradcheck_function function, void *context,
                           core_tensor *const *inputs, size_t ninputs,
                           double eps, double atol, double rtol);

/* Does the same as core_gradcheck for the second derivative. */
core_status core_gradgradcheck(core_gradcheck_function function, void *context,
                               core_tensor *const *inputs, size_t ninputs,
                               double eps, double atol, double rtol);

#ifdef __cplusplus
}
#endif
#endif
