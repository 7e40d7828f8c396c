/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* plan.h: plans of a device that compiles per shape (LIBCORE_SIM_COMPILE=1). */

#ifndef SIM_PLAN_H
#define SIM_PLAN_H

#include "sim.h"

core_status sim_plan_prepare(core_call *call, const core_value *args,
                             uint32_t nargs, const core_value *results,
                             uint32_t nresults, void **out_plan);
void sim_plan_destroy(void *plan);
/* Checks that the plan of a call fits the call; work holds the plan until it is
 * dropped. */
core_status sim_plan_check(const core_call *call, const core_value *args,
                           uint32_t nargs, const core_value *results,
                           uint32_t nresults);
void sim_plan_keep(sim_plan *plan);
/* Returns the compiled kernel. */
const core_kernel *sim_plan_kernel(const sim_plan *plan);

#endif
