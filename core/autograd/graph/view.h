/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* view.h: changes in place of a view, as its base and the base's other views
 * see them.
 *
 * The base gets a slices node: outside the view, its gradient is the gradient
 * of the base before the change; inside, it is what the operator's formula
 * computes from the view's part.  Views derive their new history from the base
 * when they are used next. */

#ifndef CORE_AUTOGRAD_VIEW_H
#define CORE_AUTOGRAD_VIEW_H

#include "autograd/graph/node.h"

/* Called before a change: returns an error if the change of this tensor,
 * perhaps a view, cannot be recorded. */
core_status core__view_check(const char *name, const core_tensor *view);
/* node: recorded the operator on `view`, with the view's new content as its
 * input 0; self_edge: index of the view's own edge in it, UINT32_MAX if its old
 * content does not matter.  Takes over node's reference, also on failure. */
core_status core__view_rebase(core_tensor *view, core_node *node,
                              uint32_t self_edge);
/* Derives the history of a stale view from that of its base. */
core_status core__view_regenerate(core_tensor *view);

core_status core__slices_run(core_node *node, core_tensor *const *grads,
                             core_tensor **gradients);
void core__slices_release_saved(core_node *node);
void core__slices_destroy(core_node *node);

#endif
