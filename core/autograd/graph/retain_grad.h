/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* retain_grad.h: results of operators that keep their gradient.
 *
 * The node that made a tensor knows it through an object of its own, which the
 * tensor empties when it goes: so the tensor may leave the node, by detach_,
 * and still get what arrives there. */

#ifndef CORE_AUTOGRAD_RETAINED_H
#define CORE_AUTOGRAD_RETAINED_H

#include "autograd/graph/hooks.h"

/* The tensor's gradient is kept when `node` gets it for `output`. */
core_status core__retained_add(core_tensor *tensor, core_node *node,
                               uint32_t output);
/* From now on the tensor, which retains its grad, is result `output` of this
 * node alone; NULL: of none. */
core_status core__retained_move(core_tensor *tensor, core_node *node,
                                uint32_t output);
/* The tensor goes, or keeps no gradient any more. */
void core__retained_forget(core_tensor *tensor);

/* grads: what the node is about to get. */
core_status core__retained_run(core_node *node, core_tensor **grads);
/* Of a node that goes. */
void core__retained_drop(core__node_hooks *hooks);

#endif
