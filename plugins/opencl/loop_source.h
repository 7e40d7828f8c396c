/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loop_source.h: loop programs (libcore/codegen.h) as OpenCL C. */

#ifndef OPENCL_LOOP_SOURCE_H
#define OPENCL_LOOP_SOURCE_H

#include "opencl.h"

/* Writes the source of a program; free() frees it.  It has two kernels, `dense`
 * for loops without gaps and `spaced` for any loop.  Their arguments are for
 * each operand a buffer and an offset in bytes, or for a number a ulong; if the
 * program may fail, the error buffer and the call's id; the number of elements;
 * and for `spaced` the number of dimensions and a buffer of longs with their
 * sizes and, for each operand, their strides in bytes.
 *
 * If the program has reductions, the kernels are `lines`, a work item for each
 * row, `groups`, OPENCL_GROUP work items for each, and `dense_groups`, the same
 * for rows of one dimension in which no operand has gaps.  Their arguments are
 * those of `spaced`, with the number of rows in the place of that of elements,
 * then the number of dimensions that are reduced and the size of a row.
 *
 * Each instruction computes the expression of the operator by which codegen.h
 * defines it, the same as elementwise.c's kernel of that operator.
 * UNSUPPORTED: the program has an instruction that this device cannot
 * compute. */
core_status opencl_loop_source(const opencl_device *device,
                               const core_loop_program *program,
                               char **out_text);

/* Whether a launch of the program can find bad data. */
bool opencl_loop_may_fail(const core_loop_program *program);

#endif
