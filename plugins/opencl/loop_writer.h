/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop_writer.h: what the writers of kernels of loop programs share
 * (loop_source.c, loop_rows.c). */

#ifndef OPENCL_LOOP_WRITER_H
#define OPENCL_LOOP_WRITER_H

#include <libcore/sdk_rows.h>

#include "loop_source.h"

typedef struct opencl_loop_writer {
    const opencl_device *device;
    const core_loop_program *program;
    char *text;
    size_t used, capacity;
    bool no_memory;
    bool parts; /* barriers divide the kernels */
} opencl_loop_writer;

/* Adds a text of at most 1499 characters. */
__attribute__((format(printf, 2, 3))) void opencl_loop_put(
    opencl_loop_writer *w, const char *format, ...);

/* How many of the fields of an instruction are values, from a on. */
uint32_t opencl_loop_values(const core_loop_program *program,
                            const core_loop_instruction *at);

/* The type of a value, in which operators compute. */
const char *opencl_loop_type(core_dtype dtype);
/* Whether an operand is in memory. */
bool opencl_loop_in_memory(const core_loop_program *program, uint32_t operand);

/* Writes the parameters of a kernel, up to the number of elements. */
void opencl_loop_put_parameters(opencl_loop_writer *w, const char *name);
/* Writes the declaration of a value.  dense: operands have no gaps, and the
 * element is `at`; otherwise operand k is s<k> bytes behind its beginning. */
core_status opencl_loop_put_value(opencl_loop_writer *w, uint32_t value,
                                  bool dense);
/* Writes the assignment of a STORE, in the same way. */
void opencl_loop_put_store(opencl_loop_writer *w,
                           const core_loop_instruction *at, bool dense);

/* loop_rows.c.  Writes the kernels of a program with reductions. */
core_status opencl_loop_put_rows(opencl_loop_writer *w);

#endif
