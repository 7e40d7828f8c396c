/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* custom.h: nodes whose backward is a program's function. */

#ifndef CORE_AUTOGRAD_CUSTOM_H
#define CORE_AUTOGRAD_CUSTOM_H

#include "autograd/graph/node.h"

/* grads: by result, owned by the caller; undefined ones are filled in if the
 * function wants that.  gradients: one per edge, owned by the caller. */
core_status core__custom_run(core_node *node, core_tensor **grads,
                             core_tensor **gradients);
/* Fills undefined gradients with zeros. */
core_status core__fill_undefined(core_node *node, core_tensor **grads);
/* Lets the context go: the graph is not kept. */
void core__custom_released(core_node *node);
void core__custom_destroy(core_node *node);

#endif
