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

/* What the node of a base knows of the view that was changed in place.
 * Sizes and strides of the view and of the base are stored behind it. */
struct core__slices {
    core_node *inner;   /* what was recorded on the view; owned */
    uint32_t self_edge; /* of inner; UINT32_MAX: none */
    uint32_t ndim;      /* of the view */
    int64_t offset;     /* of the view, from the base's first element or, with
                           an extent, from the first of the two */
    int64_t *sizes;
    int64_t *strides;
    int64_t *base_strides; /* NULL: row-major */
    /* If the base has gaps, or the view reaches out of it: the number of
     * elements of the storage that the two span; otherwise 0. */
    int64_t extent;
    int64_t base_offset; /* from the first of these */
    int64_t *base_sizes;
    uint32_t base_ndim;
    uint32_t reserved;
};

void core__slices_release_saved(core_node *node);
void core__slices_destroy(core_node *node);

#endif
