/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* autograd.h: gradients.
 *
 * Operators on tensors that require grad record a graph, backwards: each
 * result knows the node that made it, each node the ones before it.
 * core_backward walks it and adds to the grad of every leaf it reaches (a leaf:
 * a tensor that requires grad and is no operator's result); core_grad gives
 * the gradients of chosen tensors instead and changes none.
 *
 * Threads: a graph may be built in one thread and walked in another, and
 * several threads may walk graphs that share nodes.  Modes belong to the
 * thread. */

#ifndef LIBCORE_AUTOGRAD_H
#define LIBCORE_AUTOGRAD_H

#include "kernel.h"
#include "status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct core_hook core_hook;

/* Computes outputs (owned, at most *noutputs, which it then sets) from inputs
 * by operators.  On failure what it left in outputs is released. */
typedef core_status (*core_tensor_function)(void *context,
                                            core_tensor *const *inputs,
                                            size_t ninputs,
                                            core_tensor **outputs,
                                            size_t *noutputs);

/* ------------------------------------------------------------- tensors -- */

/* Only floating leaves can be given it; AUTOGRAD error otherwise.  A leaf from
 * which it was taken accumulates no gradient any more, nor do its hooks run, also
 * in backwards through what was recorded before. */
core_status core_tensor_set_requires_grad(core_tensor *tensor,
                                          bool requires_grad);
bool core_tensor_requires_grad(const core_tensor *tensor);
/* True for every tensor that no recorded operator made. */
bool core_tensor_is_leaf(const core_tensor *tensor);

/* The accumulated gradient, borrowed: valid until the next backward, or until
 * it is set; retain it to keep it.  NULL if there is none. */
core_tensor *core_tensor_grad(const core_tensor *tensor);
/* Replaces it; the tensor takes a reference of its own.  NULL: none.  Sizes,
 * dtype and device must be the tensor's. */
core_status core_tensor_set_grad(core_tensor *tensor, core_tensor *grad);
/* Results of operators forget their gradient during backward; this one keeps
 * it for core_tensor_grad, the sum of it over all backwards.  A tensor that was
 * changed in place keeps that of what it is now.  One that was detached (detach_)
 * still gets what arrives at what it was, until it is made a result or a leaf
 * that requires grad again. */
core_status core_tensor_retain_grad(core_tensor *tensor);

/* The node that made a tensor, borrowed from it; NULL for a leaf.  That of a
 * view whose base was changed in place is made here: NULL too, with an error
 * set, if that fails; core_tensor_is_leaf tells the two apart. */
core_node *core_tensor_grad_fn(core_tensor *tensor);
/* Which result of it the tensor is. */
uint32_t core_tensor_output_number(const core_tensor *tensor);

/* -------------------------------------------------------------- walking -- */

enum {
    /* Keep what nodes saved, so that the graph can be walked again. */
    CORE_RETAIN_GRAPH = 1u << 0,
    /* Record the backward itself, for higher derivatives; retains the graph
     * too. */
    CORE_CREATE_GRAPH = 1u << 1,
    /* core_grad: an input that the outputs do not depend on gets NULL.  Without
     * it that is an error, told before the graph is walked. */
    CORE_ALLOW_UNUSED = 1u << 2
};

/* Adds the gradients of `tensors` to the grads of the leaves behind them.
 * grads[i]: the gradient that flows into tensors[i], of its sizes; a NULL
 * entry (or grads NULL) means 1, for tensors of one element.  The first error
 * of a node ends the walk; its message begins with the node's name. */
core_status core_backward(core_tensor *const *tensors, size_t count,
                          core_tensor *const *grads, uint32_t flags);

/* out_grads[i]: the gradient of the outputs with respect to inputs[i], owned
 * by the caller.  Runs only the nodes that lie between. */
core_status core_grad(core_tensor *const *outputs, size_t noutputs,
                      core_tensor *const *grad_outputs,
                      core_tensor *const *inputs, size_t ninputs,
                      uint32_t flags, core_tensor **out_grads);

/* ---------------------------------------------------------------- modes -- */

/* Off: operators record nothing.  Returns what it was:
 *
 *     bool before = core_grad_mode_set(false);
 *     ...
 *     core_grad_mode_set(before); */
bool core_grad_mode_set(bool enabled);
bool core_grad_mode(void);

/* Inference mode: records nothing, and results are inference tensors, cheaper
 * and never to be part of a graph.  The answer goes back to _end; calls nest. */
uint64_t core_inference_begin(void);
void core_inference_end(uint64_t before);
bool core_inference_mode(void);

/* Anomaly mode: nodes remember where they were made, and in backward each
 * gradient that a node gives is looked at; one that holds NaN is an error that
 * names node and place.  Slow: for finding errors.  The place is what the
 * program said last with core_anomaly_place_set, or, if it said nothing (NULL),
 * its stack where the system can tell.  Returns what it was. */
bool core_anomaly_mode_set(bool enabled);
bool core_anomaly_mode(void);
/* "decoder, layer 3": copied when an operator is recorded, so it must live
 * until the next call.  Returns what it was. */
const char *core_anomaly_place_set(const char *place);

/* ---------------------------------------------------------------- hooks -- */

/* Every register_… copies function and context into a hook.  drop(context),
 * unless NULL, is called once, when the hook is gone.  out_hook may be NULL;
 * else the handle is given back with core_hook_remove (the hook runs no more)
 * or core_hook_release (it stays).
 * A hook may do both, and register others: they run from the next gradient
 * on. */

/* Sees a gradient of the tensor before anything uses it; *out_grad, left NULL,
 * may be set to an owned tensor that replaces it. */
typedef core_status (*core_tensor_hook)(void *context, core_tensor *grad,
                                        core_tensor **out_grad);
core_status core_tensor_register_hook(core_tensor *tensor,
                                      core_tensor_hook function, void *context,
                                      void (*drop)(void *context),
                                      core_hook **out_hook);

/* Runs after a leaf's grad was updated. */
typedef core_status (*core_accumulate_hook)(void *context, core_tensor *leaf);
core_status core_tensor_register_accumulate_hook(core_tensor *tensor,
                                                 core_accumulate_hook function,
                                                 void *context,
                                                 void (*drop)(void *context),
                                                 core_hook **out_hook);

/* Before a node runs.  grads: by result of the forward, NULL where undefined;
 * an entry may be replaced: release the old one, store an owned one. */
typedef core_status (*core_node_pre_hook)(void *context, core_node *node,
                                          core_tensor **grads, size_t count);
core_status core_node_register_pre_hook(core_node *node,
                                        core_node_pre_hook function,
                                        void *context,
                                        void (*drop)(void *context),
                                        core_hook **out_hook);

/* After it: gradients, one per edge, may be replaced likewise. */
typedef core_status (*core_node_post_hook)(void *context, core_node *node,
                                           core_tensor *const *grads,
                                           size_t ngrads,
                                           core_tensor **gradients,
                                           size_t ngradients);
core_status core_node_register_post_hook(core_node *node,
                                         core_node_post_hook function,
                                         void *context,
                                         void (*drop)(void *context),
                                         core_hook **out_hook);

/* Both take NULL. */
void core_hook_remove(core_hook *hook);
void core_hook_release(core_hook *hook);

/* ---------------------------------------------------------------- nodes -- */

/* These take NULL, too: no node, no name, no edges. */
core_node *core_node_retain(core_node *node);
void core_node_release(core_node *node);
/* "mul.Tensor backward"; lives as long as the node. */
const char *core_node_name(const core_node *node);
size_t core_node_edge_count(const core_node *node);
/* The node at the end of an edge, borrowed; NULL where no gradient is wanted.
 * out_input (may be NULL): which of its inputs the edge feeds. */
core_node *core_node_edge(const core_node *node, size_t index,
                          uint32_t *out_input);

/* ----------------------------------------------------- custom functions -- */

/* A function with a gradient of one's own.  The program computes outputs from
 * inputs, recording nothing (core_grad_mode_set(false), or detached inputs),
 * then calls core_function_record, which makes the outputs results of a new
 * node.  Flags are in kernel.h. */
typedef struct core_function_info {
    uint32_t struct_size;
    uint32_t flags;   /* CORE_FUNCTION_… */
    const char *name; /* copied */
    /* grads: by output, borrowed; zeros where undefined.  gradients: one per
     * input, all NULL; set those that are wanted (core_node_needs_gradient) to
     * owned tensors.  What is not referenced elsewhere becomes a leaf's grad
     * without a copy, unless it lies in the memory of one of grads. */
    core_status (*backward)(core_node *node, void *context,
                            core_tensor *const *grads, size_t ngrads,
                            core_tensor **gradients, size_t ngradients);
    void *context;
    /* The context is needed no more: after the first backward without
     * CORE_RETAIN_GRAPH, or when the node goes.  Called once, also when
     * recording fails.  May be NULL. */
    void (*release)(void *context);
    /* Inputs that were changed in place; each must be an output too. */
    core_tensor *const *dirty;
    size_t ndirty;
    /* Outputs that have no gradient; those that are not floating never do. */
    core_tensor *const *non_differentiable;
    size_t nnon_differentiable;
} core_function_info;

/* saved: tensors for core_node_saved, inputs and outputs among them, checked
 * for changes in place; entries may be NULL.  Outputs must be without
 * history, each a tensor of its own, and no input unless dirty; views keep their
 * base, but refuse to be changed in place, and to be used once it was.  Records
 * nothing, and releases the context, when no input requires grad or grad mode
 * is off.  out_node may be NULL; else it is borrowed from the outputs, NULL if
 * nothing was recorded. */
core_status core_function_record(const core_function_info *info,
                                 core_tensor *const *inputs, size_t ninputs,
                                 core_tensor *const *saved, size_t nsaved,
                                 core_tensor *const *outputs, size_t noutputs,
                                 core_node **out_node);

/* For a backward function.  A saved tensor gives a reference, which the caller
 * drops; NULL where none was saved. */
core_status core_node_saved(core_node *node, size_t index,
                            core_tensor **out_tensor);
bool core_node_needs_gradient(const core_node *node, size_t input);

/* -------------------------------------------------------------- checking -- */

typedef core_tensor_function core_gradcheck_function;
enum { CORE_GRADCHECK_OUTPUTS = 8 };

/* Compares the recorded derivative with central differences of step eps,
 * element by element: |analytic - numeric| <= atol + rtol * |numeric|.  Inputs:
 * those that require grad are f64 leaves, contiguous; they are changed during
 * the check and restored.  AUTOGRAD error that names the first mismatch;
 * INVALID_ARGUMENT for outputs none of which is floating, which leave nothing
 * to check, an eps that is not above 0 and finite, a tolerance that is not 0
 * or more and finite. */
core_status core_gradcheck(core_gradcheck_function function, void *context,
                           core_tensor *const *inputs, size_t ninputs,
                           double eps, double atol, double rtol);
/* The same for the second derivative. */
core_status core_gradgradcheck(core_gradcheck_function function, void *context,
                               core_tensor *const *inputs, size_t ninputs,
                               double eps, double atol, double rtol);

#ifdef __cplusplus
}
#endif
#endif
