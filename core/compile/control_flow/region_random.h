/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* region_random.h: random numbers of branches and loops that are differentiated.
 *
 * The gradient of a region calls its function again, which must draw the numbers
 * that the first call drew.  So the node of the first call has one more result:
 * the state of the generators before it, an i64 tensor.  The node of the gradient
 * has that as its last argument: the generators have that state while it runs,
 * and after it the state that they had before.  Meanwhile no other thread may
 * change them, or the two would draw other numbers: that is an error.
 *
 * The generators are those of the devices on which regions compute, or the
 * default one of the process, and those that operators in regions are given.  An entry
 * of the tensor is the address of a generator, by which it is found again and
 * which is never followed, its seed and its offset. */

#ifndef CORE_COMPILE_REGION_RANDOM_H
#define CORE_COMPILE_REGION_RANDOM_H

#include "compile/program/region.h"

#include "random/generator.h"

typedef uint64_t core__generator_state[2]; /* seed, offset */

/* The generators of a node with regions. */
typedef struct core__region_random {
    core_generator **generators; /* borrowed; NULL: the process' default */
    core__generator_state *states;
    uint32_t count;
} core__region_random;

/* devices: those of this run, by index of the program. */
core_status core__region_random_find(const core_program *program,
                                     const core__program_node *node,
                                     core_device *const *devices,
                                     core__region_random *out);
void core__region_random_free(core__region_random *random);
/* Watches the generators in this thread, and reads their states. */
void core__region_random_watch(const core__region_random *random,
                               core__generator_watch *watch,
                               core__generator_state *states);
/* REFUSED if another thread has changed a state since then. */
core_status core__region_random_check(const core__generator_watch *watch);
/* Reads the state of the generators into states, or sets it. */
void core__region_random_get(const core__region_random *random,
                             core__generator_state *states);
void core__region_random_set(const core__region_random *random,
                             const core__generator_state *states);
/* Makes the tensor of random->states, of `size` elements. */
core_status core__region_random_save(const core__region_random *random,
                                     int64_t size, core_device *device,
                                     core_tensor **out_state);
/* Reads the states from such a tensor. */
core_status core__region_random_load(core__region_random *random,
                                     core_tensor *state);

#endif
