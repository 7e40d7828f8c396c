/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* epilogue.h: a kernel of a loop program that runs on each part of a product's
 * result when that part is finished (core.codegen, launch_after).
 *
 * The product's kernel takes the epilogue that waits for its result, and
 * announces each element of the result exactly once.  An epilogue that no
 * kernel takes runs after the product. */

#ifndef CPU_EPILOGUE_H
#define CPU_EPILOGUE_H

#include <libcore/codegen.h>
#include <stdint.h>

typedef struct cpu_epilogue cpu_epilogue;

/* The result of a product: matrices of rows of columns, or images of channels
 * of positions, dense, row-major. */
typedef struct cpu_epilogue_result {
    const void *data;
    core_dtype dtype;
    int64_t matrices, rows, columns;
} cpu_epilogue_result;

/* Returns the epilogue that waits for this result in the calling thread, or
 * NULL.  The caller announces all parts before its kernel returns. */
cpu_epilogue *cpu_epilogue_take(const cpu_epilogue_result *result);

/* Announces that some columns of some rows are finished.  Any thread may call
 * it.  Accepts NULL. */
void cpu_epilogue_run(cpu_epilogue *epilogue, int64_t matrix, int64_t row,
                      int64_t rows, int64_t column, int64_t columns);

/* Of core.codegen. */
core_status cpu_epilogue_launch(void *device, void *kernel,
                                const core_loop_launch *launch, uint32_t result,
                                core_status (*produce)(void *context),
                                void *context);

#endif
