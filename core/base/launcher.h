/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* launcher.h: what a launcher such as mpirun says of the processes that it has
 * started.  Programs have their own copy. */

#ifndef CORE_BASE_LAUNCHER_H
#define CORE_BASE_LAUNCHER_H

#include <stdbool.h>
#include <stdint.h>

enum { CORE__LAUNCHERS = 4, CORE__LAUNCHED_MOST = 1 << 20 };

/* The environment variables of the number of this process, and of how many there
 * are: of Open MPI's mpirun, of MPICH's, of srun, of torchrun and others. */
extern const char *const core__launcher_variables[CORE__LAUNCHERS][2];

/* Reads the first pair of variables that are both numbers, of at most
 * CORE__LAUNCHED_MOST; in a process of torchrun, which sets TORCHELASTIC_RUN_ID, the
 * last pair comes first.  False: there is none, and what is stored is undefined. */
bool core__launcher_place(uint32_t *out_rank, uint32_t *out_size);

#endif
