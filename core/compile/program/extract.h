/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* extract.h: makes a program from a part of another one. */

#ifndef CORE_COMPILE_EXTRACT_H
#define CORE_COMPILE_EXTRACT_H

#include "compile/program/program.h"

typedef struct core__extraction {
    const core_program *from;
    core_program *to;
    uint32_t *numbers; /* by value of `from`: its number in `to`, or NO_VALUE */
    uint32_t *stack;   /* of nodes */
} core__extraction;

/* Creates a program with the devices and generators of `from`, whose arena it
 * shares, and nothing else. */
core_status core__extraction_begin(core__extraction *e, core_program *from);
/* Returns the finished program, or releases it if status is not CORE_OK. */
core_status core__extraction_end(core__extraction *e, core_status status,
                                 core_program **out_program);
/* Adds an input for a value of `from`. */
core_status core__extract_input(core__extraction *e, uint32_t value);
/* Adds a node, and first those that it needs and are not there. */
core_status core__extract_node(core__extraction *e, uint32_t index);
/* Adds the node of a value, if it is not there. */
core_status core__extract_value(core__extraction *e, uint32_t value);
/* Adds a copy of a value of `to`; *out_value: its number there. */
core_status core__extract_clone(core__extraction *e, uint32_t value,
                                uint32_t *out_value);

/* The value of which a value of a program is a view; itself if it is none. */
uint32_t core__program_root(const core_program *program, uint32_t value);
/* Where a view begins: elements from the first of its root.  UNSUPPORTED if that
 * is not known. */
core_status core__program_view_offset(const core_program *program,
                                      uint32_t value, int64_t *out_offset);

#endif
