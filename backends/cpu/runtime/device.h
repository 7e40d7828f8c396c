/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* device.h: the backend's only device, the machine itself. */

#ifndef CPU_DEVICE_H
#define CPU_DEVICE_H

#include <libcore/backend.h>

extern const core_memory_table cpu_memory_table;

core_status cpu_device_enumerate(void *backend, uint32_t *out_count,
                                 core_string *out_reason);
core_status cpu_device_open(void *backend, uint32_t index, void **out_device);
void cpu_device_close(void *backend, void *device);
core_status cpu_device_information(void *device, core_device_information *out);
core_status cpu_device_properties(void *device, core_device_properties *out);

/* Returns the bytes of memory of the machine, and how many are available now; 0
 * if unknown. */
void cpu_memory_sizes(uint64_t *out_available, uint64_t *out_total);

enum { CPU_MEMORY_ALIGNMENT = 64, CPU_MEMORY_TAIL = 64 };

#endif
