/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Messages between two ranks, and the barrier. */

#include "comm/collective.h"

#include "tensor/layout.h"
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

/* ----------------------------------------------------- several messages -- */

static core_status check_message(const core_comm *comm,
                                 const core_message *messages, size_t index)
{
    static const char name[] = "core_send_recv";
    const core_message *message = &messages[index];

    CORE_TRY(core__comm_check_rank(comm, name, message->rank, true));
    CORE_TRY(message->receives
                 ? core__comm_check_changed(comm, name, message->tensor)
                 : core__comm_check_tensor(comm, name, message->tensor));
    for (size_t i = 0; i < index; i++)
        if ((messages[i].receives || message->receives) &&
            core__layout_overlap(messages[i].tensor, message->tensor) !=
                CORE__OVERLAP_NONE)
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "%s: messages %zu and %zu have the same memory",
                               name, i, index);
    return CORE_OK;
}

/* Those with a rank, of one direction. */
static core_status submit_messages(core_comm *comm,
                                   const core_message *messages, size_t count,
                                   uint32_t rank, bool receives)
{
    core__collective c = {.comm = comm,
                          .kind = receives ? CORE_COLLECTIVE_RECV
                                           : CORE_COLLECTIVE_SEND,
                          .root = rank};

    for (size_t i = 0; i < count; i++) {
        core_tensor *tensor = messages[i].tensor;

        if (messages[i].rank != rank || !messages[i].receives == receives)
            continue;
        if (receives)
            core__tensor_bump_version(tensor);
        CORE_TRY(core__collective_submit(&c, receives ? NULL : tensor,
                                         receives ? tensor : NULL));
    }
    return CORE_OK;
}

/* The pairs of ranks have an order, by the lower rank, then the higher one, and
 * in a pair the lower one sends first.  The first pair that is not done is the
 * next one for both of its ranks, so no ranks wait for each other. */
static core_status exchange(core_comm *comm, const core_message *messages,
                            size_t count)
{
    for (size_t i = 0; i < count; i++)
        CORE_TRY(check_message(comm, messages, i));
    for (uint32_t r = 0; r < comm->size; r++) {
        bool receives_first = r < comm->rank;

        CORE_TRY(submit_messages(comm, messages, count, r, receives_first));
        CORE_TRY(submit_messages(comm, messages, count, r, !receives_first));
    }
    return CORE_OK;
}

core_status core_send_recv(core_comm *comm, const core_message *messages,
                           size_t count)
{
    core_status status;

    if (count > 0 && !messages)
        return core__error_null(__func__, "messages");
    CORE_TRY(core__comm_begin(comm, __func__));
    status = exchange(comm, messages, count);
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
