/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop_source.h: loop programs (libcore/codegen.h) as source of kernels. */

#ifndef GPU_LOOP_SOURCE_H
#define GPU_LOOP_SOURCE_H

#include <gpu/host/host.h>

#include <libcore/codegen.h>

/* The name of a program's kernels, which the suffixes "_d" (dense) and "_s"
 * (strided) follow; with reductions "_l", "_t" and "_b", in which a thread, a
 * team of 32 or a block computes a row. */
enum { GPU_LOOP_NAME = 32 };
void gpu_loop_name(const core_loop_program *program, char out[GPU_LOOP_NAME]);

/* Checks whether kernels can compute the program; UNSUPPORTED otherwise. */
core_status gpu_loop_check(const core_loop_program *program);

/* Whether it has the dense kernel: no instruction depends on dimensions. */
bool gpu_loop_has_dense(const core_loop_program *program);

/* Writes the source of a program that passed the check; free() frees it.  It is
 * complete: it includes no file.  An instruction that is an operator has the
 * operator's expression, from which gen_kernels.py makes the operator's own
 * kernel. */
core_status gpu_loop_source(const core_loop_program *program, char **out_text);

#endif
