/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Runs kernels of loop programs on parts of their loops. */

#include "epilogue.h"

#include "tiles.h"
#include "view.h"

struct cpu_epilogue {
    const cpu_tile_kernel *kernel;
    const core_loop *loop; /* dimensions: columns, rows, matrices */
    uint32_t result;       /* an operand */
    bool taken;
    bool no_memory, failed; /* atomic */
};

/* What the kernel that this thread launches may take. */
static _Thread_local cpu_epilogue *waiting;

enum { COLUMNS, ROWS, MATRICES };

cpu_epilogue *cpu_epilogue_take(const cpu_epilogue_result *result)
{
    cpu_epilogue *e = waiting;
    const core_operand *operand;

    if (e == NULL || e->taken)
        return NULL;
    operand = &e->loop->operands[e->result];
    if (cpu_address(operand->memory) != (const char *)result->data ||
        operand->dtype != result->dtype ||
        e->loop->sizes[COLUMNS] != result->columns ||
        e->loop->sizes[ROWS] != result->rows ||
        e->loop->sizes[MATRICES] != result->matrices)
        return NULL;
    e->taken = true;
    return e;
}

static void run(cpu_epilogue *e, const core_loop *loop)
{
    bool failed;

    if (!cpu_tiles_run(e->kernel, loop, (cpu_tile_division){0}, &failed))
        __atomic_store_n(&e->no_memory, true, __ATOMIC_RELAXED);
    else if (failed)
        __atomic_store_n(&e->failed, true, __ATOMIC_RELAXED);
}

/* Whether whole rows are one row: each operand goes on where the row before
 * ends. */
static bool joins_rows(const core_loop *loop)
{
    for (uint32_t k = 0; k < loop->noperands; k++)
        if (loop->operands[k].strides[ROWS] !=
            loop->operands[k].strides[COLUMNS] * loop->sizes[COLUMNS])
            return false;
    return true;
}

void cpu_epilogue_run(cpu_epilogue *e, int64_t matrix, int64_t row,
                      int64_t rows, int64_t column, int64_t columns)
{
    core_operand operands[CORE_LOOP_MAX_OPERANDS];
    int64_t sizes[] = {columns, rows};
    core_loop part;

    if (e == NULL)
        return;
    part = *e->loop;
    for (uint32_t k = 0; k < part.noperands; k++) {
        const int64_t *strides = part.operands[k].strides;

        operands[k] = part.operands[k];
        operands[k].memory.offset +=
            (uint64_t)(column * strides[COLUMNS] + row * strides[ROWS] +
                       matrix * strides[MATRICES]);
    }
    part.ndim = 2;
    if (columns == e->loop->sizes[COLUMNS] && joins_rows(e->loop)) {
        part.ndim = 1;
        sizes[0] = rows * columns;
    }
    part.sizes = sizes;
    part.operands = operands;
    part.numel = rows * columns;
    run(e, &part);
}

core_status cpu_epilogue_launch(void *device, void *handle,
                                const core_loop_launch *launch, uint32_t result,
                                core_status (*produce)(void *context),
                                void *context)
{
    cpu_epilogue e = {.kernel = handle, .loop = launch->loop, .result = result};
    cpu_epilogue *before = waiting;
    const cpu_tile_kernel *kernel = handle;
    core_status status;

    (void)device;
    if (launch->loop->noperands != kernel->noperands ||
        result >= kernel->noperands)
        return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                         "a loop with %u operands, of which %u is the result "
                         "of a product; the kernel has %u",
                         launch->loop->noperands, result, kernel->noperands);
    waiting = &e;
    status = produce(context);
    waiting = before;
    if (status != CORE_OK)
        return status;
    if (!e.taken)
        run(&e, launch->loop);
    return cpu_tiles_status(e.no_memory, e.failed);
}
