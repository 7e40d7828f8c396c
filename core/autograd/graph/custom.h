/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* custom.h: nodes whose backward is a program's function. */

#ifndef CORE_AUTOGRAD_CUSTOM_H
#define CORE_AUTOGRAD_CUSTOM_H

#include "autograd/graph/node.h"

/* grads: by result, owned by the caller; undefined ones are replaced with zeros
 * unless the function declines.  gradients: one per edge, owned by the
 * caller. */
core_status core__custom_function_run(core_node *node, core_tensor **grads,
                                      core_tensor **gradients);
/* Fills undefined gradients with zeros. */
core_status core__gradients_fill_undefined(core_node *node,
                                           core_tensor **grads);
/* Releases the function's context when the graph is not retained. */
void core__custom_function_release_context(core_node *node);
void core__custom_function_destroy(core_node *node);

#endif
