/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop_writer.h: what the writers of kernels of loop programs share
 * (loop_source.c, loop_rows.c). */

#ifndef GPU_LOOP_WRITER_H
#define GPU_LOOP_WRITER_H

#include <gpu/host/loop_source.h>

#include <libcore/sdk_rows.h>

typedef struct gpu_loop_writer {
    const core_loop_program *program;
    char *text;
    size_t used, capacity;
    bool no_memory;
} gpu_loop_writer;

/* Adds a line of at most 255 characters. */
__attribute__((format(printf, 2, 3))) void gpu_loop_put(gpu_loop_writer *w,
                                                        const char *format,
                                                        ...);

/* How many of the fields of an instruction are values, from a on. */
uint32_t gpu_loop_values(const core_loop_program *program,
                         const core_loop_instruction *at);
/* The type of an element in memory, and of values. */
const char *gpu_loop_type(core_dtype dtype);
/* Whether an operand is in memory. */
bool gpu_loop_in_memory(const core_loop_program *program, uint32_t operand);
/* Writes the declaration of a value. */
void gpu_loop_put_value(gpu_loop_writer *w, uint32_t value);

/* loop_rows.c.  Writes the members of struct gpu_loop for a program with
 * reductions (kernels/loop_rows.h). */
void gpu_loop_put_row(gpu_loop_writer *w);

#endif
