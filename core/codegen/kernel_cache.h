/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* kernel_cache.h: kernels that are kept on disk, of devices that build slowly
 * and can save kernels.  They are in the folder `kernels` of LIBCORE_CACHE, a
 * file each, whose name is a hash of all that a kernel depends on: the program,
 * the hints, the generator with instruction set and driver, and the seal of the
 * plugin's file.  Kernels of plugins without a seal are not kept.
 *
 * A kernel is code, so a file is only read if it and its folder belong to the
 * user and others cannot write them.  A file that is damaged or of something
 * else is deleted.  What cannot be read or written is built; a warning says so
 * once.  If the files take more than CORE__KERNEL_CACHE_SIZE, those that were
 * not used for the longest time are deleted. */

#ifndef CORE_CODEGEN_KERNEL_CACHE_H
#define CORE_CODEGEN_KERNEL_CACHE_H

#include "codegen/loop_kernel.h"

enum { CORE__KERNEL_CACHE_SIZE = 256 << 20 };

/* *out_kernel is NULL if there is none. */
void core__kernel_cache_load(core_device *device, core_loop_program *program,
                             const core_loop_hints *hints,
                             core__loop_kernel **out_kernel);
void core__kernel_cache_store(core__loop_kernel *kernel,
                              const core_loop_hints *hints);

/* What the process has done with the files. */
typedef struct core__kernel_cache_counts {
    uint64_t loaded, stored;
    uint64_t refused; /* files that were not used */
    uint64_t failed;  /* files that could not be written */
} core__kernel_cache_counts;
core__kernel_cache_counts core__kernel_cache_get_counts(void);
/* What is in the folder, and where it is.  path may be NULL. */
core_status core__kernel_cache_measure(uint64_t *out_files, uint64_t *out_bytes,
                                       char *path, size_t capacity);

#endif
