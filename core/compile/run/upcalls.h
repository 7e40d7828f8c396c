/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* upcalls.h: the functions of later folders that run calls (base/upcalls.h explains
 * these tables). */

#ifndef CORE_COMPILE_RUN_UPCALLS_H
#define CORE_COMPILE_RUN_UPCALLS_H

#include "compile/program/program.h"

struct core__run_upcalls {
    /* Runs a node with regions (program/region.h).  devices: those of this run, by
     * index.  tensors: by value.  outputs: of the node. */
    core_status (*region)(const core_program *program,
                          const core__program_node *node,
                          core_device *const *devices,
                          core_tensor *const *tensors, core_tensor **outputs);
};

extern const struct core__run_upcalls core__run_upcalls;

#endif
