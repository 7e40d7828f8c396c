/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Collectives that change a tensor, or write to one that exists. */

#include "comm/collective.h"

#include "tensor/tensor.h"

core_status core_all_reduce_(core_comm *comm, core_tensor *tensor,
                             uint32_t reduction)
{
    core__collective c = {.comm = comm,
                          .kind = CORE_COLLECTIVE_ALL_REDUCE,
                          .reduction = reduction};
    core_status status;

    CORE_TRY(core__comm_begin(comm, __func__));
    status = core__comm_check_changed(comm, __func__, tensor);
    if (status == CORE_OK)
        status = core__comm_check_reduction(comm, __func__, tensor->dtype,
                                            reduction);
    if (status == CORE_OK) {
        core__tensor_bump_version(tensor);
        status = core__collective_submit(&c, tensor, tensor);
    }
    core__comm_end(comm);
    return status;
}

core_status core_broadcast(core_comm *comm, core_tensor *tensor, uint32_t root)
{
    core__collective c = {
        .comm = comm, .kind = CORE_COLLECTIVE_BROADCAST, .root = root};
    core_status status;

    CORE_TRY(core__comm_begin(comm, __func__));
    status = core__comm_check_rank(comm, __func__, root, false);
    if (status == CORE_OK)
        status = core__comm_check_changed(comm, __func__, tensor);
    if (status == CORE_OK) {
        core__tensor_bump_version(tensor);
        status = core__collective_submit(&c, tensor, tensor);
    }
    core__comm_end(comm);
    return status;
}

/* Of a size that fits. */
static core_status run_into(const core__collective *c, const char *name,
                            core_tensor *input, core_tensor *output)
{
    core_status status;

    CORE_TRY(core__comm_begin(c->comm, name));
    status = core__comm_check_tensor(c->comm, name, input);
    if (status == CORE_OK)
        status = core__comm_check_changed(c->comm, name, output);
    if (status == CORE_OK) {
        core__tensor_bump_version(output);
        status = core__collective_submit(c, input, output);
    }
    core__comm_end(c->comm);
    return status;
}

core_status core__reduce_scatter_into(core_comm *comm, const char *name,
                                      core_tensor *input, uint32_t reduction,
                                      core_tensor *output)
{
    const core__collective c = {.comm = comm,
                                .kind = CORE_COLLECTIVE_REDUCE_SCATTER,
                                .reduction = reduction};

    return run_into(&c, name, input, output);
}

core_status core__all_gather_into(core_comm *comm, const char *name,
                                  core_tensor *input, core_tensor *output)
{
    const core__collective c = {.comm = comm,
                                .kind = CORE_COLLECTIVE_ALL_GATHER};

    return run_into(&c, name, input, output);
}
