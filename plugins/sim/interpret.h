/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* interpret.h: runs loop programs, instruction by instruction. */

#ifndef SIM_INTERPRET_H
#define SIM_INTERPRET_H

#include "sim.h"

enum {
    SIM_TILE = 128,               /* elements that an instruction computes */
    SIM_TILE_BYTES = 8 * SIM_TILE /* of the widest dtype */
};

/* An instruction, and the CPU's kernel that computes it, if one does. */
typedef struct sim_step {
    core_loop_instruction instruction;
    const core_kernel *kernel;
    core_operator *op;
    const char *mode; /* a string among the kernel's arguments, or NULL */
    uint32_t nvalues; /* the kernel's operands: values, in this order */
    uint32_t values[3];
} sim_step;

/* A program that is ready to run. */
typedef struct sim_program {
    uint32_t nsteps;
    uint32_t noperands;
    uint32_t rows; /* a bit for each operand with an element for each row */
    bool reduces;
    sim_step *steps;
} sim_program;

/* Fills *out; UNSUPPORTED if the CPU has no kernel for an instruction.
 * sim_program_free accepts what it has left. */
core_status sim_program_make(const core_loop_program *from, sim_program *out);
void sim_program_free(sim_program *program);
/* Bytes of memory that a run needs. */
uint64_t sim_program_scratch(const sim_program *program);
/* Runs the program on a loop whose memory is host addresses. */
core_status sim_program_run(const sim_program *program, const core_loop *loop,
                            char *scratch);

/* The newest kernel of the CPU that accepts these dtypes, results first; NULL:
 * there is none. */
const core_kernel *sim_kernel_of(const char *name, const core_dtype *dtypes,
                                 uint32_t count);
/* Returns the host addresses of a loop's operands, in `operands`. */
core_status sim_translate_operands(sim_device *device, const core_loop *loop,
                                   core_operand *operands);

#endif
