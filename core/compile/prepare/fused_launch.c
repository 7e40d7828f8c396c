/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The kernels of groups in prepared calls. */

#include "compile/prepare/prepared.h"

#include "base/memory.h"
#include "dispatch/launch.h"

static const core_kernel demands_nothing = {.struct_size =
                                                sizeof demands_nothing};

static core_status set_tensors(core__fused_launch *fused,
                               const core__fused_group *group,
                               core_tensor *const *tensors)
{
    core__kernel_call *run = &fused->run;
    size_t size = group->noperands * sizeof *run->many;
    core_tensor **to = run->tensors;

    if (group->noperands > CORE__KERNEL_TENSORS) {
        to = run->many = core__alloc(size);
        if (!to)
            return core__error_memory(size);
    }
    run->ntensors = group->noperands;
    for (uint32_t i = 0; i < group->noperands; i++)
        to[i] = tensors[group->values[i]];
    return CORE_OK;
}

static core_status set_loop(core__fused_launch *fused,
                            const core__program_type *type)
{
    const core__loop_arguments arguments = {
        .tensors = core__logged_tensors(&fused->launch),
        .ndim = type->ndim,
        .row_ndim = fused->group->nreduced ? 1 : 0,
        .sizes = core__type_sizes(type)};
    core_loop *loop;

    CORE_TRY(core__loop_kernel_loop(fused->group->kernel, &arguments, &loop));
    fused->launch.loop = loop;
    fused->launch.block = (core_call *)(void *)loop; /* is freed with it */
    return CORE_OK;
}

core_status core__fused_launch_new(const core_program *program,
                                   const core__fusion *fusion,
                                   const core__fused_group *group,
                                   core_tensor *const *tensors,
                                   core__logged_launch **out_launch)
{
    core__fused_launch *fused = core__alloc_zero(sizeof *fused);
    core_status status;

    *out_launch = NULL;
    if (!fused)
        return core__error_memory(sizeof *fused);
    fused->group = group;
    fused->launch.kernel = &demands_nothing;
    fused->launch.run = &fused->run;
    fused->run.device = fusion->device;
    fused->run.op = program->nodes[fusion->order[group->first]].op;
    status = set_tensors(fused, group, tensors);
    if (status == CORE_OK)
        status = set_loop(fused, &program->values[group->space].type);
    if (status == CORE_OK)
        *out_launch = &fused->launch;
    else
        core__logged_launch_free(&fused->launch);
    return status;
}
