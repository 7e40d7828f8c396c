/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* fault.h: failures on demand. */

#ifndef SIM_FAULT_H
#define SIM_FAULT_H

#include "sim.h"
#include "sim_control.h"

/* One more of this kind: CORE_OK, or the failure that was asked for, as this
 * thread's error. */
core_status sim_fault(sim_device *device, uint32_t kind);
/* The same without an error: for what fails later. */
bool sim_fault_due(sim_device *device, uint32_t kind);
/* Of LIBCORE_SIM_FAULT, when the device is opened. */
void sim_faults_open(sim_device *device);
core_status sim_faults_read(void);
extern const sim_control sim_control_table;

#endif
