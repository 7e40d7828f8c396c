/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* nccl.c: the gpu_collectives of NCCL.  If its header is found, what
 * collectives_library.h declares is compared with it. */

#include <gpu/host/collectives_library.h>

#if __has_include(<nccl.h>)
#include <nccl.h>
#define GPU_CCL_TITLE "NCCL"
#include <gpu/host/collectives_header.h>
#endif

extern const gpu_collectives cuda_collectives;

const gpu_collectives cuda_collectives = {"nccl", "NCCL", "libnccl.so.2"};
