/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* transpose.h: copies between memory that is dense along different
 * dimensions. */

#ifndef CPU_TRANSPOSE_H
#define CPU_TRANSPOSE_H

#include <stdbool.h>

#include "cpu.h"
#include "isa.h"

/* Copies operand 1 of the loop to operand 0, with elements of so many bytes.
 * Returns false, having copied nothing, if the loop is not of that kind.
 * Compiled per instruction set. */
#ifdef CPU_ISA
bool CPU_NAME(cpu_transpose)(const core_loop *loop, uint32_t bytes);
#endif

/* The same (move.c) for rows that are dense on both sides and shorter than
 * those that loop.h passes in place, such as the heads of attention. */
bool cpu_short_rows(const core_loop *loop, uint32_t bytes);

#endif
