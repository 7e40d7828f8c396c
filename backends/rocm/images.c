/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* images.c: the compiled kernels. */

#include <gpu/host/embedded_images.h>

extern const gpu_image rocm_images[];
const gpu_image rocm_images[] = {GPU_FAMILIES(GPU_EMBEDDED){NULL, NULL}};
