/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* codegen.h: core.codegen of the simulated accelerator. */

#ifndef SIM_CODEGEN_H
#define SIM_CODEGEN_H

#include "sim.h"

extern const core_codegen_interface sim_codegen;
extern _Atomic uint64_t sim_loop_kernels; /* that exist */

#endif
