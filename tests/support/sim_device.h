/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sim_device.h: the simulated device as the core opens it, and its controls. */

#ifndef TESTS_SUPPORT_SIM_DEVICE_H
#define TESTS_SUPPORT_SIM_DEVICE_H

#include "autograd.h"

#include "../../plugins/sim/sim_control.h"

#include <libcore/stream.h>

static core_device *sim;
static const sim_control *control;

static inline void sim_find(const char *name)
{
    const void *table;

    OK(core_device_find(name, &sim));
    OK(core_device_interface(sim, "sim.control", 1, &table));
    control = table;
}

static inline sim_counters counters_of(uint32_t index)
{
    sim_counters counters = {.struct_size = sizeof counters};

    OK(control->counters(index, &counters));
    return counters;
}

#endif
