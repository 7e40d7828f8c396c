/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* transpose.h: copies between memory that is dense along different
 * dimensions. */

#ifndef CPU_TRANSPOSE_H
#define CPU_TRANSPOSE_H

#include <stdbool.h>

#include "cpu.h"
#include "isa.h"

/* From operand 1 of the loop to operand 0, elements of so many bytes.  False:
 * the loop is not of that kind, and nothing was copied.  Compiled per
 * instruction set. */
#ifdef CPU_ISA
bool CPU_NAME(cpu_transpose)(const core_loop *loop, uint32_t bytes);
#endif

/* The same (move.c) where rows are dense on both sides and shorter than what
 * loop.h takes as they lie, such as the heads of attention. */
bool cpu_short_rows(const core_loop *loop, uint32_t bytes);

#endif
