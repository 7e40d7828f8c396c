/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* translate.h: calls with host addresses instead of device memory. */

#ifndef SIM_TRANSLATE_H
#define SIM_TRANSLATE_H

#include "sim.h"

enum { SIM_VALUES = 48, SIM_VIEWS = 128, SIM_OPERANDS = 16, SIM_SCRATCH = 16 };

typedef struct sim_translated {
    core_call call;
    sim_work *work;
    sim_device *device;
    core_loop loop;
    core_operand operands[SIM_OPERANDS];
    core_value values[SIM_VALUES];
    core_view *views;        /* enough for most calls: SIM_VIEWS besides those
                              * of */
    const core_view **lists; /* lists */
    void *scratch[SIM_SCRATCH];
    uint32_t most;
    uint32_t nviews;
    uint32_t nlisted;
    uint32_t nscratch;
} sim_translated;

/* Translates the call of a unit of work for the borrowed kernel. */
core_status sim_translate(sim_work *work, sim_translated **out);
void sim_translated_free(sim_translated *translated);
core_status sim_translate_view(sim_translated *translated,
                               const core_view *view,
                               const core_view **out_view);
void sim_translate_open(void);

#endif
