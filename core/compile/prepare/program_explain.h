/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* program_explain.h: what explain tells about a program. */

#ifndef CORE_COMPILE_PROGRAM_EXPLAIN_H
#define CORE_COMPILE_PROGRAM_EXPLAIN_H

#include "base/json.h"
#include "compile/program/program.h"

/* Writes the member "program" of an object: its size, and how it is run. */
void core__program_explain(core_program *program, core__json *json);
/* Writes how calls of it are prepared, as members of an object. */
void core__prepared_explain(core_program *program, core__json *json);

#endif
