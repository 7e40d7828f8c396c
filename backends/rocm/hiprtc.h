/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* hiprtc.h: HIP's runtime compiler, for kernels of loop programs. */

#ifndef ROCM_HIPRTC_H
#define ROCM_HIPRTC_H

#include <gpu/driver.h>

/* gpu_driver.compiler, compiler_version and compile, with the hipRTC of this major
 * version of HIP. */
const char *rocm_hiprtc_missing(int major);
void rocm_hiprtc_version(int major, int *out_major, int *out_minor);
int rocm_hiprtc_compile(int major, gpu_compilation *c);

#endif
