/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* simplify.h: the first pass over a program. */

#ifndef CORE_COMPILE_SIMPLIFY_H
#define CORE_COMPILE_SIMPLIFY_H

#include "compile/program/program.h"

/* Removes dead nodes, repeated nodes, copies without effect, and nodes that
 * return an operand (identities.h).  Random nodes stay, so the numbers of the others do not change; so do operators of programs
 * and plugins.  The program must not be shared yet; after an error, which is
 * OUT_OF_MEMORY, it cannot be used. */
core_status core__program_simplify(core_program *program);

#endif
