/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The comparison of the ranks' calls, before data moves, and how errors describe
 * a call. */

#include "comm/comm.h"

#include "base/error.h"
#include "base/memory.h"
#include "tensor/dtype.h"

#include <stdio.h>
#include <string.h>

static const char *reduction_name(uint32_t reduction)
{
    static const char *const names[] = {"",      "(sum)", "(prod)",
                                        "(min)", "(max)", "(avg)"};

    return reduction < sizeof names / sizeof *names ? names[reduction] : "(?)";
}

/* "all_reduce(sum) of 12 f32 (collective 7)" */
void core__comm_describe(const core__comm_header *header, char *text,
                         size_t size)
{
    const char *name = core__collective_name(header->kind) + strlen("core_");
    bool group = header->kind == CORE__COMM_GROUP;
    int used = group ? snprintf(text, size, "a group of %llu collectives",
                                (unsigned long long)header->count)
                     : snprintf(text, size, "%s%s", name,
                                reduction_name(header->reduction));

    if (header->kind != CORE_COLLECTIVE_BARRIER && !group)
        used += snprintf(
            text + used, size - (size_t)used, " of %s%llu %s",
            header->kind == CORE_COLLECTIVE_ALL_TO_ALL_COUNTS ? "rows of " : "",
            (unsigned long long)header->count, core__dtype_name(header->dtype));
    if (header->kind == CORE_COLLECTIVE_BROADCAST ||
        header->kind == CORE_COLLECTIVE_REDUCE)
        used += snprintf(text + used, size - (size_t)used, " %s rank %u",
                         header->kind == CORE_COLLECTIVE_REDUCE ? "to" : "from",
                         header->root);
    if (header->sequence)
        snprintf(text + used, size - (size_t)used, " (collective %llu)",
                 (unsigned long long)header->sequence);
}

core__comm_header core__comm_header_of(const core_collective *call)
{
    return (core__comm_header){call->sequence, call->count,     call->kind,
                               call->dtype,    call->reduction, call->peer};
}

static core_status differ(uint32_t a, const core__comm_header *header_a,
                          uint32_t b, const core__comm_header *header_b)
{
    char text_a[160], text_b[160];

    core__comm_describe(header_a, text_a, sizeof text_a);
    core__comm_describe(header_b, text_b, sizeof text_b);
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "the ranks make different calls: rank %u %s, rank %u "
                       "%s",
                       a, text_a, b, text_b);
}

/* A rank that does not make the call, because of an error of its own. */
static core_status find_failed(const core_comm *comm)
{
    for (uint32_t r = 0; r < comm->size; r++)
        if (comm->all[r].kind == CORE__COMM_FAILED)
            return core__error(CORE_ERROR_IO,
                               "rank %u has failed (%s) and does not take part",
                               r, core_status_name(comm->all[r].dtype));
    return CORE_OK;
}

/* The first rank whose header is not that of rank 0, or the number of ranks.  Every
 * rank compares with rank 0, so that all report the same.  The headers are those of
 * the last exchange. */
static core_status find_other(const core_comm *comm, uint32_t *out_other)
{
    uint32_t r = 1;

    CORE_TRY(find_failed(comm));
    while (r < comm->size &&
           memcmp(&comm->all[r], &comm->all[0], sizeof *comm->all) == 0)
        r++;
    *out_other = r;
    return CORE_OK;
}

static core_status exchange(core_comm *comm, const core__comm_header *mine,
                            uint32_t *out_other)
{
    CORE_TRY(comm->engine->table.exchange(comm->impl, mine, sizeof *mine,
                                          comm->all, comm->timeout_ns));
    return find_other(comm, out_other);
}

core_status core__comm_compare(core_comm *comm, const core_collective *call,
                               uint32_t *out_ran)
{
    const core_collectives_interface *table = &comm->engine->table;
    core__comm_header mine = core__comm_header_of(call);
    uint32_t r;

    *out_ran = 0;
    if (table->exchange_and_run && call->kind == CORE_COLLECTIVE_ALL_REDUCE &&
        call->count > 0) {
        CORE_TRY(table->exchange_and_run(comm->impl, call, &mine, sizeof mine,
                                         comm->all, out_ran));
        CORE_TRY(find_other(comm, &r));
    } else {
        CORE_TRY(exchange(comm, &mine, &r));
    }
    return r == comm->size ? CORE_OK
                           : differ(0, &comm->all[0], r, &comm->all[r]);
}

/* --------------------------------------------------------------- groups -- */

/* Of the calls of a group: their number, that of the first, and 96 bits of their
 * headers' hash (FNV-1a). */
static core__comm_header header_of_group(const core__comm_header *calls,
                                         size_t count)
{
    const uint8_t *bytes = (const uint8_t *)calls;
    uint64_t a = UINT64_C(0xcbf29ce484222325), b = ~a;

    for (size_t i = 0; i < count * sizeof *calls; i++) {
        a = (a ^ bytes[i]) * UINT64_C(0x100000001b3);
        b = (b ^ bytes[i]) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return (core__comm_header){.sequence = calls[0].sequence,
                               .count = count,
                               .kind = CORE__COMM_GROUP,
                               .dtype = (uint32_t)a,
                               .reduction = (uint32_t)(a >> 32),
                               .root = (uint32_t)(b >> 32)};
}

/* The number of calls that all ranks have; 0 if one does not make a group. */
static uint64_t fewest(const core_comm *comm)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t r = 0; r < comm->size; r++)
        if (comm->all[r].kind != CORE__COMM_GROUP)
            return 0;
        else if (comm->all[r].count < least)
            least = comm->all[r].count;
    return least;
}

core_status core__comm_compare_group(core_comm *comm,
                                     const core__comm_header *calls,
                                     size_t count)
{
    core__comm_header mine = header_of_group(calls, count), first, second;
    uint64_t common;
    uint32_t other, r;

    CORE_TRY(exchange(comm, &mine, &other));
    if (other == comm->size)
        return CORE_OK;
    first = comm->all[0];
    second = comm->all[other];
    common = fewest(comm);
    for (uint64_t i = 0; i < common; i++) {
        CORE_TRY(exchange(comm, &calls[i], &r));
        if (r < comm->size)
            return differ(0, &comm->all[0], r, &comm->all[r]);
    }
    return differ(0, &first, other, &second);
}

/* The rank r whose part this rank does not expect; size: none. */
static uint32_t find_unexpected(const core_comm *comm,
                                const core_collective *call,
                                const uint64_t *sent)
{
    uint32_t r = 0;

    while (r < comm->size && sent[r] == call->output_counts[r])
        r++;
    return r;
}

/* All ranks report the first rank that receives what it does not expect. */
static core_status report_counts(core_comm *comm, const core_collective *call,
                                 const uint64_t *sent)
{
    uint32_t r = find_unexpected(comm, call, sent);
    core__comm_header mine = {.root = r};

    if (r < comm->size) {
        mine.count = sent[r] / call->count;
        mine.sequence = call->output_counts[r] / call->count;
    }
    CORE_TRY(comm->engine->table.exchange(comm->impl, &mine, sizeof mine,
                                          comm->all, call->timeout_ns));
    for (r = 0; r < comm->size; r++)
        if (comm->all[r].root < comm->size)
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "rank %u sends %llu rows to rank %u, which "
                               "expects %llu",
                               comm->all[r].root,
                               (unsigned long long)comm->all[r].count, r,
                               (unsigned long long)comm->all[r].sequence);
    return CORE_OK;
}

/* What each rank sends is what the other one expects. */
core_status core__comm_compare_counts(core_comm *comm,
                                      const core_collective *call)
{
    size_t size = comm->size * sizeof(uint64_t);
    uint64_t *sent = core__alloc(size);
    core_collective counts = *call;
    core_status status;

    if (!sent)
        return core__error_memory(size);
    counts.kind = CORE_COLLECTIVE_ALL_TO_ALL;
    counts.dtype = CORE_I64;
    counts.count = 1;
    counts.input = call->input_counts;
    counts.output = sent;
    counts.input_counts = counts.output_counts = NULL;
    counts.on_host = 1;
    status = comm->engine->table.run(comm->impl, &counts);
    if (status != CORE_OK) {
        core__comm_abandon(sent);
        return status;
    }
    status = report_counts(comm, call, sent);
    core__free(sent);
    return status;
}

/* The sender's header goes before its data.  It is in memory of the
 * communicator, because a call that failed may still use it. */
core_status core__comm_compare_pair(core_comm *comm,
                                    const core_collective *call)
{
    core__comm_header mine = core__comm_header_of(call), *sent = comm->all;
    core_collective first = *call;

    *sent = mine;

    first.dtype = CORE_U8;
    first.count = sizeof mine;
    first.on_host = 1;
    if (call->kind == CORE_COLLECTIVE_SEND) {
        first.input = sent;
        return comm->engine->table.run(comm->impl, &first);
    }
    first.output = sent;
    CORE_TRY(comm->engine->table.run(comm->impl, &first));
    if (sent->dtype == mine.dtype && sent->count == mine.count)
        return CORE_OK;
    return differ(call->peer, sent, comm->rank, &mine);
}
