/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* recompute.h: results that are recomputed instead of kept.
 *
 * The backward of a layer norm needs the input of the norm anyway.  So the
 * output, which the function reads again late to compute the gradient of a
 * weight, need not be kept until then: it is recomputed from the input,
 * with the same bits. */

#ifndef CORE_COMPILE_RECOMPUTE_H
#define CORE_COMPILE_RECOMPUTE_H

#include "compile/program/program.h"

/* Makes a program that needs less memory; *out_program is NULL if it would not.
 * It has the same values and more, and borrows all but its nodes and values. */
core_status core__program_recompute(const core_program *program,
                                    core_program **out_program);
/* Frees such a program, or accepts NULL. */
void core__program_recomputed_free(core_program *program);

#endif
