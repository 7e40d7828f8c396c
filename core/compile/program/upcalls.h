/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* upcalls.h: the functions of later folders that program calls
 * (base/upcalls.h explains these tables). */

#ifndef CORE_COMPILE_PROGRAM_UPCALLS_H
#define CORE_COMPILE_PROGRAM_UPCALLS_H

#include "compile/program/program.h"

struct core__program_upcalls {
    /* Free what runs have left in a program. */
    void (*prepared_calls_free)(core_program *program);
    void (*replay_free)(core_program *program);
};

extern const struct core__program_upcalls core__program_upcalls;

#endif
