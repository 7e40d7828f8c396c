/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* images.c: the compiled kernels. */

#include <gpu/host/embedded_images.h>

extern const gpu_image cuda_images[];
const gpu_image cuda_images[] = {GPU_FAMILIES(GPU_EMBEDDED){NULL, NULL}};
