/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* rccl.c: the gpu_collectives of RCCL.  If its header is found, what
 * collectives_library.h declares is compared with it. */

#include <gpu/host/collectives_library.h>

#if defined __HIP_PLATFORM_AMD__ && __has_include(<rccl/rccl.h>)
#include <rccl/rccl.h>
#define GPU_CCL_TITLE "RCCL"
#include <gpu/host/collectives_header.h>
#endif

extern const gpu_collectives rocm_collectives;

const gpu_collectives rocm_collectives = {"rccl", "RCCL", "librccl.so.1"};
