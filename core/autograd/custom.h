/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* custom.h: nodes whose backward is a program's function. */

#ifndef CORE_AUTOGRAD_CUSTOM_H
#define CORE_AUTOGRAD_CUSTOM_H

#include "autograd/node.h"

/* grads: by result, borrowed, NULL where undefined.  gradients: one per edge,
 * owned by the caller. */
core_status core__custom_run(core_node *node, core_tensor *const *grads,
                             core_tensor **gradients);
/* Lets the context go: the graph is not kept. */
void core__custom_released(core_node *node);
void core__custom_destroy(core_node *node);

#endif
