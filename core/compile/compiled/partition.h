/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* partition.h: splits a joint program into a forward and a backward program.
 *
 * The forward program has what the function recorded, and returns besides its
 * outputs the values that the backward program gets: the saved values.  Which
 * ones are saved is a minimum cut, over bytes, of the graph of values between
 * what must be computed in the forward and what the backward uses.  Views,
 * element-wise operators, casts, copies and factories may be computed again in
 * the backward instead of being saved; products, reductions, random numbers and
 * everything else may not.
 *
 * A saved tensor that the program can change, an input, a hidden input or a
 * root, is checked for changes.  So one of those is saved if the backward uses
 * it itself, as it would without compilation, and never to compute something
 * else from it again. */

#ifndef CORE_COMPILE_PARTITION_H
#define CORE_COMPILE_PARTITION_H

#include "compile/record/joint_trace.h"

typedef enum core__saved_source {
    CORE__SAVED_INPUT,  /* of the function */
    CORE__SAVED_HIDDEN, /* input of the program */
    CORE__SAVED_OUTPUT  /* of the forward program */
} core__saved_source;

typedef struct core__saved_value {
    uint8_t source; /* core__saved_source */
    uint32_t index;
    uint32_t value; /* of the joint program */
} core__saved_value;

typedef struct core__partition {
    core_program *forward;
    core__saved_value *saved; /* in the arena of the forward program */
    uint32_t nsaved;
    uint64_t saved_bytes;
    uint64_t direct_bytes; /* of what would be saved without recomputation */
} core__partition;

/* Chooses the saved values and makes the forward program, which takes over the
 * tensors of the joint one.  The joint outputs then refer to outputs of the
 * forward program.  budget: recompute nothing if the saved values take at most
 * that many bytes. */
core_status core__partition_make(core_program *joint, core__joint *described,
                                 uint64_t budget, core__partition *out);

/* A backward program for the roots of a mask. */
typedef struct core__backward {
    core_program *program;
    uint32_t *inputs;  /* by input: number of the root whose gradient it is, or
                        * nroots + number of the saved value */
    uint32_t *outputs; /* by source: output, or CORE__NO_VALUE */
} core__backward;

/* The arrays are in the arena of the program, which the caller owns. */
core_status core__backward_make(core_program *joint,
                                const core__joint *described,
                                const core__partition *partition, uint32_t mask,
                                core__backward *out);

#endif
