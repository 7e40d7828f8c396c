/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop_program.h: making, checking, printing and storing loop programs
 * (libcore/codegen.h). */

#ifndef CORE_CODEGEN_LOOP_PROGRAM_H
#define CORE_CODEGEN_LOOP_PROGRAM_H

#include <libcore/codegen.h>
#include <libcore/status.h>

#include <stdbool.h>

enum { CORE__LOOP_NO_VALUE = UINT32_MAX };

/* ------------------------------------------------------------- opcodes -- */

enum {
    CORE__LOOP_FLOATS = CORE_DTYPE_MASK(CORE_F64) | CORE_DTYPE_MASK(CORE_F32) |
                        CORE_DTYPE_MASK(CORE_F16) | CORE_DTYPE_MASK(CORE_BF16),
    CORE__LOOP_INTEGERS = CORE_DTYPE_MASK(CORE_I64) |
                          CORE_DTYPE_MASK(CORE_I32) |
                          CORE_DTYPE_MASK(CORE_I16) | CORE_DTYPE_MASK(CORE_I8) |
                          CORE_DTYPE_MASK(CORE_U8),
    CORE__LOOP_NUMBERS = CORE__LOOP_FLOATS | CORE__LOOP_INTEGERS,
    CORE__LOOP_BOOL = CORE_DTYPE_MASK(CORE_BOOL),
    CORE__LOOP_ANY = CORE__LOOP_NUMBERS | CORE__LOOP_BOOL,
    CORE__LOOP_I64 = CORE_DTYPE_MASK(CORE_I64),
    CORE__LOOP_REDUCED = CORE_DTYPE_MASK(CORE_F64) | CORE_DTYPE_MASK(CORE_F32) |
                         CORE_DTYPE_MASK(CORE_I64) | CORE_DTYPE_MASK(CORE_I32)
};

/* What the fields of an instruction are. */
typedef enum core__loop_form {
    CORE__LOOP_FORM_NONE, /* an unused number */
    CORE__LOOP_FORM_LOAD,
    CORE__LOOP_FORM_STORE,
    CORE__LOOP_FORM_CONSTANT,
    CORE__LOOP_FORM_DIMENSION, /* a: a dimension */
    CORE__LOOP_FORM_PLAIN,     /* values of the result's dtype */
    CORE__LOOP_FORM_TEST,      /* values of one dtype; a bool */
    CORE__LOOP_FORM_SELECT,
    CORE__LOOP_FORM_CONVERT,
    CORE__LOOP_FORM_FUNCTION,
    CORE__LOOP_FORM_PHILOX, /* values are i64 */
    CORE__LOOP_FORM_REDUCE
} core__loop_form;

typedef struct core__loop_opcode {
    const char *name;
    uint8_t form;   /* core__loop_form */
    uint8_t values; /* how many of a, b and c are values, from a on */
    uint32_t types; /* accepted dtypes of these, or of the result */
} core__loop_opcode;

/* Returns NULL for an unknown opcode. */
const core__loop_opcode *core__loop_opcode_of(uint32_t opcode);

/* A function that CORE_LOOP_FUNCTION can name. */
typedef struct core__loop_function {
    const char *name;
    uint32_t nargs;
    uint32_t types; /* accepted dtypes */
} core__loop_function;

/* Returns NULL for an unknown function. */
const core__loop_function *core__loop_function_of(core_string name);

/* The fields of an instruction that are values: a mask, bit 0 for a.  Those of
 * an unknown opcode or function are not values. */
uint32_t core__loop_values(const core_loop_program *program,
                           const core_loop_instruction *at);
static inline uint32_t core__loop_field(const core_loop_instruction *at,
                                        uint32_t k)
{
    return k == 0 ? at->a : k == 1 ? at->b : at->c;
}

/* ------------------------------------------------------------ programs -- */

/* Checks everything that libcore/codegen.h says about a program, whatever it
 * contains.  Its pointers must be valid for the counts, unless these exceed the
 * limits.  The message begins with "loop program". */
core_status core__loop_program_verify(const core_loop_program *program);
/* Checks a loop against a program, except for what is in its memory: overlaps
 * and alignment. */
core_status core__loop_program_verify_loop(const core_loop_program *program,
                                           const core_loop *loop);

/* Programs are reference counted. */
core_loop_program *core__loop_program_retain(core_loop_program *program);
/* Accepts NULL. */
void core__loop_program_release(core_loop_program *program);

/* Returns the program as text, a line for each instruction; core__free frees
 * it.  The program may be wrong. */
core_status core__loop_program_text(const core_loop_program *program,
                                    char **out_text);

/* Returns the program as bytes, from which hash and files are made; core__free
 * frees them. */
core_status core__loop_program_encode(const core_loop_program *program,
                                      void **out_data, size_t *out_size);
/* Makes a verified program of bytes, which may be damaged: CORRUPT. */
core_status core__loop_program_decode(const void *data, size_t size,
                                      core_loop_program **out_program);
/* Copies a program, which may be wrong, and verifies the copy. */
core_status core__loop_program_copy(const core_loop_program *from,
                                    core_loop_program **out_program);

/* -------------------------------------------------------------- writer -- */

/* A program under construction.  Functions that return a value or an operand
 * keep the first error; core__loop_writer_finish returns it. */
typedef struct core__loop_writer {
    core_loop_instruction *instructions;
    core_loop_operand operands[CORE_LOOP_MAX_OPERANDS];
    core_string names[CORE_LOOP_MAX_NAMES]; /* of core__loop_function_of */
    uint32_t ninstructions, capacity, noperands, nnames;
    uint32_t ndim;
    core_status status;
} core__loop_writer;

/* ndim: 0, or the number of dimensions of the program's loops, if it uses
 * INDEX, SIZE or POSITION. */
void core__loop_writer_begin(core__loop_writer *self, uint32_t ndim);
/* Frees what the writer has allocated. */
void core__loop_writer_end(core__loop_writer *self);

/* Adds an operand, and returns its number. */
uint32_t core__loop_write_operand(core__loop_writer *self, core_dtype dtype,
                                  uint32_t flags);
/* Adds an instruction, or finds the same one, and returns its value.  In a
 * FUNCTION, c is that of core__loop_write_name. */
uint32_t core__loop_write(core__loop_writer *self, uint32_t opcode,
                          core_dtype type, uint32_t a, uint32_t b, uint32_t c);
/* Adds the name of a function. */
uint32_t core__loop_write_name(core__loop_writer *self, const char *name);
/* Adds a number, rounded to the dtype as an element is. */
uint32_t core__loop_write_constant(core__loop_writer *self, core_dtype type,
                                   core_scalar value);
/* The same for the bits of an element. */
uint32_t core__loop_write_bits(core__loop_writer *self, core_dtype type,
                               uint64_t bits);
/* Converts a value, unless it has that dtype. */
uint32_t core__loop_write_convert(core__loop_writer *self, core_dtype type,
                                  uint32_t value);
/* Returns the dtype of a value; CORE_DTYPE_NONE after an error. */
core_dtype core__loop_type_of(const core__loop_writer *self, uint32_t value);

/* Whether a value is the same for all elements of a row (libcore/codegen.h).
 * False after an error. */
bool core__loop_is_uniform(const core__loop_writer *self, uint32_t value);

/* Drops values that no STORE needs and operands that nothing uses, puts STOREs
 * last and outputs first, and verifies the program.  out_operands, which may be
 * NULL, receives for each operand its number in the program, or
 * CORE__LOOP_NO_VALUE if it was dropped. */
core_status core__loop_writer_finish(core__loop_writer *self,
                                     core_loop_program **out_program,
                                     uint32_t *out_operands);

#endif
