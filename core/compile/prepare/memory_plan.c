/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "compile/prepare/memory_plan.h"

#include "base/memory.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    const core__planned_memory *x = *(core__planned_memory *const *)a;
    const core__planned_memory *y = *(core__planned_memory *const *)b;

    if (x->size != y->size)
        return x->size < y->size ? 1 : -1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x < y ? -1 : x > y;
}

static bool meets(const core__planned_memory *a, const core__planned_memory *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static uint64_t rounded(uint64_t size)
{
    return (size + CORE__PLAN_ALIGNMENT - 1) &
           ~(uint64_t)(CORE__PLAN_ALIGNMENT - 1);
}

/* The lowest offset at which it fits among those that were placed, which are
 * sorted by offset. */
static uint64_t lowest(core__planned_memory *const *placed, uint32_t count,
                       const core__planned_memory *memory)
{
    uint64_t offset = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (!meets(placed[i], memory))
            continue;
        if (placed[i]->offset >= offset + rounded(memory->size))
            break;
        if (placed[i]->offset + rounded(placed[i]->size) > offset)
            offset = placed[i]->offset + rounded(placed[i]->size);
    }
    return offset;
}

static void insert(core__planned_memory **placed, uint32_t count,
                   core__planned_memory *memory)
{
    while (count > 0 && placed[count - 1]->offset > memory->offset) {
        placed[count] = placed[count - 1];
        count--;
    }
    placed[count] = memory;
}

core_status core__memory_plan(core__planned_memory *all, uint32_t count,
                              uint64_t *out_size)
{
    core__planned_memory **sorted = core__alloc(2 * count * sizeof *sorted + 1);
    core__planned_memory **placed = sorted + count;
    uint32_t nsorted = 0;

    *out_size = 0;
    if (!sorted)
        return core__error_memory(2 * count * sizeof *sorted);
    for (uint32_t i = 0; i < count; i++) {
        all[i].offset = 0;
        if (all[i].size)
            sorted[nsorted++] = &all[i];
    }
    qsort(sorted, nsorted, sizeof *sorted, compare);
    for (uint32_t i = 0; i < nsorted; i++) {
        uint64_t end;

        sorted[i]->offset = lowest(placed, i, sorted[i]);
        insert(placed, i, sorted[i]);
        end = sorted[i]->offset + rounded(sorted[i]->size);
        if (end > *out_size)
            *out_size = end;
    }
    core__free(sorted);
    return CORE_OK;
}
