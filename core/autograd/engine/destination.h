/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* destination.h: gradients that a backward writes into buffers of the program
 * (libcore/destination.h). */

#ifndef CORE_AUTOGRAD_DESTINATION_H
#define CORE_AUTOGRAD_DESTINATION_H

#include "autograd/engine/engine.h"

#include <libcore/destination.h>

typedef struct core__destination {
    core_node *node; /* where the gradient arrives; referenced; may be NULL */
    uint32_t input;
    bool accumulate;     /* to the content, from the next write on */
    bool touched;        /* by this backward */
    bool in_place;       /* written by a formula, or the gradient was the buffer
                          * itself */
    core_tensor *buffer; /* borrowed from the caller */
    core_gradient_destination *given; /* the program's */
} core__destination;

struct core__destinations {
    size_t count;
    core__destination *items;
    /* By node: index of the item + 1; 0: none.  Of a power of 2. */
    uint32_t *table;
    size_t table_size;
};

/* The destination of this input of a node; NULL: none. */
core__destination *core__destination_of(const core__destinations *destinations,
                                        const core_node *node, uint32_t input);
static inline bool core__destination_touched(
    const core__destinations *destinations, const core_node *node)
{
    const core__destination *at = core__destination_of(destinations, node, 0);

    return at && at->touched;
}

/* The caller keeps its reference to grad. */
core_status core__destination_write_gradient(core__destination *destination,
                                             core_tensor *grad);

/* Calls the program's function if a gradient was written, which no one changes
 * any more. */
core_status core__destination_ready(const core__destination *destination);

/* Called before a formula: computes gradients that can be written directly into
 * their destination and removes them from context->needed. */
core_status core__destination_write_formula(core__destinations *destinations,
                                            core__formula_context *context);

/* For custom functions of the library, while they run: the buffer into which
 * the gradient of an input may be written; NULL: none.  After writing, call
 * core__destination_written and leave the gradient NULL. */
core_tensor *core__destination_buffer(const core_node *node, uint32_t input,
                                      bool *out_accumulate);
void core__destination_written(const core_node *node, uint32_t input);

/* The program's structs may be smaller or larger than those of this header. */
static inline core_gradient_destination *core__destination_given(
    core_gradient_destination *given, size_t index)
{
    return (void *)((char *)given + index * given->struct_size);
}

bool core__destination_shares_memory(const core_tensor *a,
                                     const core_tensor *b);
/* destination_pairs.c: no two have the same input, or buffers that share
 * memory. */
core_status core__destinations_check_pairs(const char *name,
                                           core_gradient_destination *given,
                                           size_t count);

/* Convert to and from the program's array; the destinations of a nested call
 * are separate. */
core_status core__destinations_begin(const char *name,
                                     core_gradient_destination *given,
                                     size_t count, bool leaves,
                                     core__destinations *destinations);
void core__destinations_end(core__destinations *destinations, bool done);

#endif
