/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* freeze.h: hidden inputs as constants (CORE_COMPILE_FREEZE).
 *
 * What depends only on hidden inputs that the program does not write, and on
 * constants, is computed once, and its results become constants of the program:
 * the cast of a weight, its transposed copy, a product of two weights.  Random
 * operators, operators of programs and plugins, and those for which a function
 * is registered, are not computed before.  Nor are views, tensors that are made
 * without reading any or without content (empty_like), and results that are much
 * larger than what they are computed from, unless only such a constant needs
 * them.
 *
 * The program is right as long as the content of these inputs is what it was,
 * and no function was registered for what was computed: its entry compares
 * their versions, and the number of registrations (entry.c). */

#ifndef CORE_COMPILE_FREEZE_H
#define CORE_COMPILE_FREEZE_H

#include "compile/program/program.h"

/* Freezes a program that is not shared yet.  After an error it cannot be used.
 * In a capture only the versions count, because nothing can be computed
 * then. */
core_status core__program_freeze(core_program *program);

#endif
