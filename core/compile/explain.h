/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* explain.h: what explain tells about a program. */

#ifndef CORE_COMPILE_EXPLAIN_H
#define CORE_COMPILE_EXPLAIN_H

#include "base/json.h"
#include "compile/program.h"

/* Writes the member "program" of an object: its size, and how it is run. */
void core__program_explain(core_program *program, core__json *json);

#endif
