/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop_reference.h: loop programs written at random, and the suite's own
 * interpreter of them.  Neither uses libcore, so that libcore is not tested
 * against itself. */

#ifndef CONFORMANCE_LOOP_REFERENCE_H
#define CONFORMANCE_LOOP_REFERENCE_H

#include <libcore/codegen.h>

#include <stdbool.h>
#include <stddef.h>

enum { LOOP_INSTRUCTIONS = 96, LOOP_OPERANDS = 8 };

/* A program with room for its arrays. */
typedef struct loop_case {
    core_loop_program program;
    core_loop_instruction instructions[LOOP_INSTRUCTIONS];
    core_loop_operand operands[LOOP_OPERANDS];
    core_string names[4];
} loop_case;

/* Starts a program with so many outputs, whose dtypes are set later. */
void loop_case_begin(loop_case *self, uint32_t noutputs);
/* Adds an operand and returns its number. */
uint32_t loop_case_operand(loop_case *self, core_dtype dtype, uint32_t flags);
/* Adds an instruction and returns its value. */
uint32_t loop_case_add(loop_case *self, uint32_t opcode, core_dtype type,
                       uint32_t a, uint32_t b, uint32_t c);
/* Adds a LOAD of a new operand. */
uint32_t loop_case_load(loop_case *self, core_dtype dtype, uint32_t flags);
uint32_t loop_case_constant(loop_case *self, core_dtype dtype, double value);
/* Sets the dtype of an output, and stores to it. */
void loop_case_store(loop_case *self, uint32_t output, uint32_t value);
/* Computes the hash, when the program is complete. */
void loop_case_end(loop_case *self);

/* Writes a program without reductions, whose bits are defined.  divides: the
 * device divides floats and computes square roots exactly rounded; otherwise it
 * does not do it here. */
void loop_case_random(loop_case *self, uint64_t seed, bool divides);

/* Writes a program with reductions whose bits are defined: sums are exact, and
 * extremes are not those of zeros of both signs.  It has two outputs, of which
 * the second is an element for each row. */
void loop_case_random_rows(loop_case *self, uint64_t seed, bool divides);

/* Runs a program without functions and random numbers on a loop whose memory is
 * host addresses.  Sums of floats are added in order, in f64. */
void loop_reference_run(const core_loop_program *program,
                        const core_loop *loop);
/* The text of the program's instructions, for messages; at most size bytes. */
void loop_case_text(const core_loop_program *program, char *text, size_t size);

#endif
