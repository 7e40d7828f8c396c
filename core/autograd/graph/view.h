/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* view.h: changes in place of a view, as its base and the other views see
 * them.
 *
 * The base gets a slices node: its gradient is, outside the view, the gradient
 * of the base before the change, and inside it what the operator's formula
 * makes of the view's part.  Views find their new history from the base when
 * they are used next. */

#ifndef CORE_AUTOGRAD_VIEW_H
#define CORE_AUTOGRAD_VIEW_H

#include "autograd/graph/node.h"

/* Before anything is changed: whether the change of this tensor, a view
 * perhaps, can be recorded. */
core_status core__view_check(const char *name, const core_tensor *view);
/* node: what recorded the operator on `view`, its input 0 the view's new
 * content; self_edge: index of the view's own edge in it, UINT32_MAX if its
 * old content does not matter.  Takes over node's reference, on failure too. */
core_status core__view_rebase(core_tensor *view, core_node *node,
                              uint32_t self_edge);
/* The history of a stale view, from that of its base. */
core_status core__view_regenerate(core_tensor *view);

core_status core__slices_run(core_node *node, core_tensor *const *grads,
                             core_tensor **gradients);
void core__slices_release_saved(core_node *node);
void core__slices_destroy(core_node *node);

#endif
