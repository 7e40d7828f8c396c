/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* region.h: programs within programs: core_cond and core_while.
 *
 * A node with regions has no operator.  Its arguments are the predicate (of a
 * loop: absent), the inputs, and for each of its regions the values that the
 * region reads besides; its result is the list of its outputs.  A node that draws
 * random numbers and is differentiated has further parts (region_random.h): the
 * last of its results, or the last argument.  A region is a
 * program whose inputs are those two lists, with neither hidden inputs nor
 * writes, and whose outputs are values.  Its devices and generators are also the
 * program's.
 *
 * The gradient of a branch is another branch.  That of a loop is a node of its
 * own kind, with three regions.  Its inputs are those of the loop, and the
 * gradients of the floating ones among its results; its first two regions are
 * condition and body, which have the inputs of the loop only.  A run calls them
 * as the loop did, and keeps what each turn begins with.  Then it calls the
 * third region for each turn, from the last one on, with what the turn began
 * with and the gradients of its results.  Its outputs are the gradients of the
 * floating tensors that the turn began with, and of what the body reads besides:
 * these are added up.  loop_second_derivative.h describes the derivative of
 * that node. */

#ifndef CORE_COMPILE_REGION_H
#define CORE_COMPILE_REGION_H

#include "compile/program/program.h"

#include <string.h>

enum {
    CORE__REGION_PREDICATE, /* the arguments */
    CORE__REGION_INPUTS,
    CORE__REGION_THEN,     /* of a loop: the condition */
    CORE__REGION_ELSE,     /* of a loop: the body */
    CORE__REGION_GRADIENT, /* of the gradient of a loop: that of its body */
    CORE__REGION_ARGUMENTS,
    CORE__REGIONS_MAX = CORE__REGION_ARGUMENTS - CORE__REGION_THEN,
    CORE__REGION_DEPTH = 16 /* regions in regions */
};

#define CORE__COND_NAME "core_cond"
#define CORE__WHILE_NAME "core_while"
#define CORE__WHILE_BACKWARD_NAME "core_while backward"
#define CORE__WHILE_SECOND_NAME "core_while second backward"

/* How many regions a node of this name has. */
static inline uint32_t core__regions_named(const char *name)
{
    if (strcmp(name, CORE__WHILE_BACKWARD_NAME) == 0 ||
        strcmp(name, CORE__WHILE_SECOND_NAME) == 0)
        return CORE__REGIONS_MAX;
    return strcmp(name, CORE__WHILE_NAME) == 0 ||
                   strcmp(name, CORE__COND_NAME) == 0
               ? CORE__REGIONS_MAX - 1
               : 0;
}

static inline uint32_t core__region_count(const core__program_node *node)
{
    return node->regions ? core__regions_named(node->name) : 0;
}

/* The state of generators that a node with regions begins with; NULL: the
 * present one. */
static inline const core__program_argument *core__region_state(
    const core__program_node *node)
{
    uint32_t count = CORE__REGION_THEN + core__region_count(node);

    return node->regions && node->nargs > count ? &node->args[count] : NULL;
}

static inline bool core__region_is_second(const core__program_node *node)
{
    return strcmp(node->name, CORE__WHILE_SECOND_NAME) == 0;
}

/* How many results are outputs of regions, or computed from those. */
static inline uint32_t core__region_outputs(const core__program_node *node)
{
    if (core__region_is_second(node))
        return node->nvalues;
    return node->regions[core__region_count(node) - 1]->noutputs;
}

/* True if the last result is the state of generators before the node. */
static inline bool core__region_keeps_state(const core__program_node *node)
{
    return node->nvalues > core__region_outputs(node);
}

void core__region_release(const core__program_node *node);

/* How many inputs the gradient of a loop with this body has. */
uint32_t core__loop_inputs(const core_program *body);

/* Entries per generator in a tensor of the states of generators: its address, its
 * seed and its offset. */
enum { CORE__REGION_STATE_ENTRY = 3 };
/* The most generators that a node with these regions uses: each region may have
 * others, and the same ones. */
uint32_t core__region_most_generators(core_program *const *regions,
                                      uint32_t count);
/* The elements of the tensor for a node with these regions. */
int64_t core__region_state_size(core_program *const *regions, uint32_t count);
/* True if a region draws numbers that its gradient must draw again. */
bool core__region_draws(const core_program *region);
/* The blocks that the operators of a region draw, and those of the regions in
 * it, each of which may be called or not. */
uint64_t core__region_blocks(const core_program *region);

#endif
