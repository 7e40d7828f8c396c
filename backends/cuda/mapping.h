/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* mapping.h: memory mapped to address ranges (gpu_driver.virtual_map and
 * others).  The device's context is current. */

#ifndef CUDA_MAPPING_H
#define CUDA_MAPPING_H

#include <cuda.h>

#include <stdint.h>

int cuda_granularity(CUdevice device, uint64_t *out_bytes);
int cuda_map(CUdevice device, void *data, uint64_t size);
/* Unmaps any part of what was mapped, in multiples of the granularity. */
int cuda_unmap(CUdevice device, void *data, uint64_t size);

#endif
