/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* graph_break.h: why and where a function cannot be recorded.
 *
 * The place of a break is the file and the line of the call, if the function
 * makes it with expressions.h, and how many operators had been recorded before,
 * with the name of the last one. */

#ifndef CORE_COMPILE_GRAPH_BREAK_H
#define CORE_COMPILE_GRAPH_BREAK_H

#include "compile/compiled/compiled.h"

/* In the recording of this thread: finds the place of a break when the function
 * has returned `status`. */
void core__break_find(core_status status, core__break_place *out_place);
/* Notes operator, reason and place, from the message of an error such as
 * "nonzero: reason (at file.c:7)". */
core_status core__break_describe(const char *message,
                                 const core__break_place *place,
                                 core__compiled_entry *entry);
/* The error of CORE_COMPILE_FULLGRAPH. */
core_status core__break_error(const core__compiled_entry *entry);
/* Warns that the function is called as it is. */
void core__break_log(const char *operator_name, const char *reason,
                     const char *place);

#endif
