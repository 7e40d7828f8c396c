/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* retain_grad.h: results of operators that retain their gradient.
 *
 * The node that produced a tensor refers to it through a separate object, which
 * the tensor empties when it is destroyed.  So a tensor may leave its node, by
 * detach_, and still receive the gradient that arrives there. */

#ifndef CORE_AUTOGRAD_RETAIN_GRAD_H
#define CORE_AUTOGRAD_RETAIN_GRAD_H

#include "autograd/graph/hooks.h"

/* Retains the gradient that `node` gets for `output` in the tensor. */
core_status core__retain_grad_add(core_tensor *tensor, core_node *node,
                                  uint32_t output);
/* From now on the tensor, which retains its grad, is result `output` of this
 * node only; NULL: of none. */
core_status core__retain_grad_move(core_tensor *tensor, core_node *node,
                                   uint32_t output);
/* Called when the tensor is destroyed or stops retaining its gradient. */
void core__retain_grad_stop(core_tensor *tensor);

/* grads: the gradients that the node is about to receive. */
core_status core__retain_grad_run(core_node *node, core_tensor **grads);
/* Called when a node is destroyed. */
void core__retain_grad_free(core__node_hooks *hooks);

#endif
