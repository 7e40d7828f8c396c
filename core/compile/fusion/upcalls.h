/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* upcalls.h: the functions of later folders that fusion calls
 * (base/upcalls.h explains these tables). */

#ifndef CORE_COMPILE_FUSION_UPCALLS_H
#define CORE_COMPILE_FUSION_UPCALLS_H

#include "compile/fusion/fusion.h"

struct core__fusion_upcalls {
    /* Measures calls of a group with its kernel, and without. */
    core_status (*measure)(core_program *program, core_device *device,
                           const uint32_t *nodes, core__fused_group *group);
};

extern const struct core__fusion_upcalls core__fusion_upcalls;

#endif
