/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* transpose.h: copies between memory that is dense along different
 * dimensions.  Compiled per instruction set. */

#ifndef CPU_TRANSPOSE_H
#define CPU_TRANSPOSE_H

#include <stdbool.h>

#include "cpu.h"
#include "isa.h"

/* From operand 1 of the loop to operand 0, elements of so many bytes.  False:
 * the loop is not of that kind, and nothing was copied. */
bool CPU_NAME(cpu_transpose)(const core_loop *loop, uint32_t bytes);

#endif
