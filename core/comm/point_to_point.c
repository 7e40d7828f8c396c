/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Messages between two ranks, and the barrier. */

#include "comm/collective.h"

#include "tensor/tensor.h"

core_status core_send(core_comm *comm, core_tensor *tensor, uint32_t to)
{
    core__collective c = {
        .comm = comm, .kind = CORE_COLLECTIVE_SEND, .root = to};
    core_status status;

    CORE_TRY(core__comm_begin(comm, __func__));
    status = core__comm_check_rank(comm, __func__, to, true);
    if (status == CORE_OK)
        status = core__comm_check_tensor(comm, __func__, tensor);
    if (status == CORE_OK)
        status = core__collective_submit(&c, tensor, NULL);
    core__comm_end(comm);
    return status;
}

core_status core_recv(core_comm *comm, core_tensor *tensor, uint32_t from)
{
    core__collective c = {
        .comm = comm, .kind = CORE_COLLECTIVE_RECV, .root = from};
    core_status status;

    CORE_TRY(core__comm_begin(comm, __func__));
    status = core__comm_check_rank(comm, __func__, from, true);
    if (status == CORE_OK)
        status = core__comm_check_changed(comm, __func__, tensor);
    if (status == CORE_OK) {
        core__tensor_bump_version(tensor);
        status = core__collective_submit(&c, NULL, tensor);
    }
    core__comm_end(comm);
    return status;
}

core_status core_barrier(core_comm *comm)
{
    core__collective c = {.comm = comm, .kind = CORE_COLLECTIVE_BARRIER};
    core_status status;

    CORE_TRY(core__comm_begin(comm, __func__));
    status = core__collective_submit(&c, NULL, NULL);
    core__comm_end(comm);
    return status;
}
