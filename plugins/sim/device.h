/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* device.h: the functions of core_backend. */

#ifndef SIM_DEVICE_H
#define SIM_DEVICE_H

#include "sim.h"

void sim_handle_forks(void);
core_status sim_enumerate(void *backend, uint32_t *out_count,
                          core_string *out_reason);
core_status sim_device_open(void *backend, uint32_t index, void **out_device);
void sim_device_close(void *backend, void *device);
core_status sim_device_information(void *device, core_device_information *out);
core_status sim_device_properties(void *device, core_device_properties *out);
core_status sim_device_status(void *device);
const void *sim_get_interface(void *backend, core_string name,
                              uint32_t version);

#endif
