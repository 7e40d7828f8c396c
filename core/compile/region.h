/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* region.h: programs within programs: core_cond and core_while.
 *
 * A node with regions has no operator.  Its arguments are the predicate (of a
 * loop: absent), the inputs, and for each of its two regions the values that the
 * region reads besides; its result is the list of its outputs.  A region is a
 * program whose inputs are those two lists, with neither hidden inputs nor
 * writes, and whose outputs are values.  Its devices and generators are also the
 * program's. */

#ifndef CORE_COMPILE_REGION_H
#define CORE_COMPILE_REGION_H

#include "compile/program.h"

enum {
    CORE__REGION_PREDICATE, /* the arguments */
    CORE__REGION_INPUTS,
    CORE__REGION_THEN, /* of a loop: the condition */
    CORE__REGION_ELSE, /* of a loop: the body */
    CORE__REGION_ARGUMENTS,
    CORE__REGIONS = 2,      /* of a node */
    CORE__REGION_DEPTH = 16 /* regions in regions */
};

#define CORE__COND_NAME "core_cond"
#define CORE__WHILE_NAME "core_while"

/* Runs a node with regions.  devices: those of this run, by index.  tensors: by
 * value.  outputs: of the node. */
core_status core__region_run(const core_program *program,
                             const core__program_node *node,
                             core_device *const *devices,
                             core_tensor *const *tensors,
                             core_tensor **outputs);
void core__region_release(const core__program_node *node);

#endif
