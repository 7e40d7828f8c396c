/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* fault.h: injected failures. */

#ifndef SIM_FAULT_H
#define SIM_FAULT_H

#include "sim.h"
#include "sim_control.h"

/* Counts an operation of this kind; returns CORE_OK, or the requested failure
 * as this thread's error. */
core_status sim_fault(sim_device *device, uint32_t kind);
/* The same without setting an error: for operations that fail later. */
bool sim_fault_due(sim_device *device, uint32_t kind);
/* Applies LIBCORE_SIM_FAULT.  Called when a device is opened. */
void sim_faults_open(sim_device *device);
core_status sim_faults_read(void);
extern const sim_control sim_control_table;

#endif
