/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* destination.h: gradients that a backward is to put into buffers of the
 * program (libcore/destination.h). */

#ifndef CORE_AUTOGRAD_DESTINATION_H
#define CORE_AUTOGRAD_DESTINATION_H

#include "autograd/engine/engine.h"

#include <libcore/destination.h>

typedef struct core__destination {
    core_node *node; /* where the gradient arrives; referenced; may be NULL */
    uint32_t input;
    bool accumulate;     /* to what is in the buffer already, by now */
    bool touched;        /* by this backward */
    bool straight;       /* by a formula, or it was the buffer itself */
    core_tensor *buffer; /* borrowed from the caller */
} core__destination;

struct core__destinations {
    size_t count;
    core__destination *items;
};

/* NULL: there is none for this input of this node. */
core__destination *core__destination_of(const core__destinations *destinations,
                                        const core_node *node, uint32_t input);
static inline bool core__destination_touched(
    const core__destinations *destinations, const core_node *node)
{
    const core__destination *at = core__destination_of(destinations, node, 0);

    return at && at->touched;
}

/* grad stays the caller's. */
core_status core__destination_put(core__destination *destination,
                                  core_tensor *grad);

/* Before a formula: those gradients of it that can be written where they belong
 * are, and are not needed any more. */
core_status core__destination_straight(core__destinations *destinations,
                                       core__backward *context);

/* For a function of the library's own, while it runs: where the gradient of one
 * of its inputs may be written at once; NULL: nowhere.  Once it was,
 * core__destination_taken is told, and the gradient stays NULL. */
core_tensor *core__destination_offered(const core_node *node, uint32_t input,
                                       bool *out_accumulate);
void core__destination_taken(const core_node *node, uint32_t input);

/* From and to what the program gave; destinations of several calls do not
 * mix. */
core_status core__destinations_begin(const char *name,
                                     core_gradient_destination *given,
                                     size_t count, bool leaves,
                                     core__destinations *destinations);
void core__destinations_end(core__destinations *destinations,
                            core_gradient_destination *given, bool done);

#endif
