/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* nvrtc.h: NVIDIA's runtime compiler, for kernels of loop programs. */

#ifndef CUDA_NVRTC_H
#define CUDA_NVRTC_H

#include <gpu/driver.h>

/* gpu_driver.compiler, compiler_version and compile, with NVRTC of the newest CUDA version up to `newest`, the
 * major version that the driver supports, or 0 if that is not known.  The architecture "sm_90" makes code,
 * "compute_90" PTX. */
const char *cuda_nvrtc_missing(int newest);
void cuda_nvrtc_version(int newest, int *out_major, int *out_minor);
int cuda_nvrtc_compile(int newest, gpu_compilation *c);

#endif
