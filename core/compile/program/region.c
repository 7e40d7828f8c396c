/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What nodes with regions have (region.h). */

#include "compile/program/region.h"

#include "tensor/dtype.h"

void core__region_release(const core__program_node *node)
{
    for (uint32_t i = 0; i < core__region_count(node); i++)
        core_program_release(node->regions[i]);
}

uint32_t core__loop_inputs(const core_program *body)
{
    uint32_t count = body->noutputs;

    for (uint32_t i = 0; i < body->noutputs; i++)
        count +=
            core__dtype_is_floating((core_dtype)body->outputs[i].type.dtype);
    return count;
}

uint32_t core__region_most_generators(core_program *const *regions,
                                      uint32_t count)
{
    uint32_t most = 1;

    for (uint32_t i = 0; i < count; i++)
        most += regions[i]->ndevices + regions[i]->ngenerators;
    return most;
}

int64_t core__region_state_size(core_program *const *regions, uint32_t count)
{
    return (int64_t)CORE__REGION_STATE_ENTRY *
           core__region_most_generators(regions, count);
}

/* A node that draws the numbers of another one again takes none. */
uint64_t core__region_blocks(const core_program *region)
{
    uint64_t blocks = 0;

    for (uint32_t i = 0; i < region->nnodes; i++) {
        const core__program_node *node = &region->nodes[i];

        blocks += node->draws;
        for (uint32_t k = 0;
             k < core__region_count(node) && !core__region_state(node); k++)
            blocks += core__region_blocks(node->regions[k]);
    }
    return blocks;
}

bool core__region_draws(const core_program *region)
{
    return core__region_blocks(region) > 0;
}
