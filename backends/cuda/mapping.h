/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* mapping.h: memory behind address ranges, of driver.h; the device's context
 * is current. */

#ifndef CUDA_MAPPING_H
#define CUDA_MAPPING_H

#include <cuda.h>

#include <stdint.h>

int cuda_granularity(CUdevice device, uint64_t *out_bytes);
int cuda_map(CUdevice device, void *data, uint64_t size);
/* Any part of what was mapped, on whole steps of the granularity. */
int cuda_unmap(CUdevice device, void *data, uint64_t size);

#endif
