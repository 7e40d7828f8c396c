/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* images.h: for which GPUs there are kernels.  CUDA_ARCHES: "sm_80 sm_90", as
 * they were compiled. */

#ifndef CUDA_IMAGES_H
#define CUDA_IMAGES_H

#include <stdbool.h>

/* capability: 80 of 8.0. */
bool cuda_images_fit(int capability);

#endif
