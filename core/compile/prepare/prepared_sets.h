/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* prepared_sets.h: the sets of prepared calls of a program. */

#ifndef CORE_COMPILE_PREPARED_SETS_H
#define CORE_COMPILE_PREPARED_SETS_H

#include "compile/prepare/prepared.h"

/* prepared_sets.c */

/* Makes the sets of a program, unless another thread has. */
core_status core__prepared_calls_new(core_program *program,
                                     core__prepared_calls **out);
/* The sets of a program, made if there are none yet. */
static inline core_status core__prepared_calls_of(core_program *program,
                                                  core__prepared_calls **out)
{
    *out = atomic_load_explicit(&program->prepared, memory_order_acquire);
    return core__likely(*out != NULL) ? CORE_OK
                                      : core__prepared_calls_new(program, out);
}
/* Puts a set back that a call has taken. */
void core__prepared_give_back(core__prepared_calls *calls, core__prepared *set);
/* Takes a set, or makes one; *out_set is NULL if there can be none. */
core_status core__prepared_take(core_program *program,
                                core_tensor *const *inputs,
                                core__prepared_calls *calls,
                                const core_stream *stream,
                                core__prepared **out_set);

#endif
