/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Groups: collectives that are compared with those of the other ranks at once, and
 * then made one after another or, by an engine that can, several at once. */

#include "comm/comm.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

#include <string.h>

struct core__comm_group {
    core__comm_call *calls; /* with references, and memory of their counts */
    size_t count, capacity;
};

/* -------------------------------------------------------------- content -- */

/* failed: a call that may still read its counts. */
static void group_free(core__comm_group *group, bool failed)
{
    for (size_t i = 0; i < group->count; i++) {
        void *counts = (void *)group->calls[i].call.input_counts;

        core_tensor_release(group->calls[i].input);
        core_tensor_release(group->calls[i].output);
        if (failed)
            core__comm_abandon(counts);
        else
            core__free(counts);
    }
    core__free(group->calls);
    core__free(group);
}

void core__comm_group_drop(core_comm *comm)
{
    if (comm->group)
        group_free(comm->group, false);
    comm->group = NULL;
}

static core_status grow(core__comm_group *group)
{
    size_t capacity = group->capacity ? 2 * group->capacity : 8;
    core__comm_call *calls;

    if (group->count < group->capacity)
        return CORE_OK;
    calls = core__realloc(group->calls, capacity * sizeof *calls);
    if (!calls)
        return core__error_memory(capacity * sizeof *calls);
    group->calls = calls;
    group->capacity = capacity;
    return CORE_OK;
}

/* The caller's counts end with its call. */
static core_status keep_counts(const core_comm *comm, core_collective *call)
{
    size_t size = comm->size * sizeof(uint64_t);
    uint64_t *counts;

    if (!call->input_counts)
        return CORE_OK;
    counts = core__alloc(2 * size);
    if (!counts)
        return core__error_memory(2 * size);
    call->input_counts = memcpy(counts, call->input_counts, size);
    call->output_counts =
        memcpy(counts + comm->size, call->output_counts, size);
    return CORE_OK;
}

core_status core__comm_group_add(core_comm *comm, const core_collective *call,
                                 core_tensor *input, core_tensor *output)
{
    core__comm_group *group = comm->group;
    core__comm_call kept = {.call = *call};

    CORE_TRY(grow(group));
    CORE_TRY(keep_counts(comm, &kept.call));
    kept.call.sequence = ++comm->sequence;
    kept.input = core_tensor_retain(input);
    kept.output = core_tensor_retain(output);
    group->calls[group->count++] = kept;
    return CORE_OK;
}

/* ----------------------------------------------------------- comparison -- */

typedef struct comparison {
    core_comm *comm; /* held */
    size_t count;
    core__comm_header headers[]; /* of the calls */
} comparison;

static void comparison_free(comparison *job)
{
    core__comm_drop_job_reference(job->comm);
    core__free(job);
}

static core_status comparison_new(core_comm *comm,
                                  const core__comm_group *group,
                                  comparison **out_job)
{
    size_t size = sizeof(comparison) + group->count * sizeof(core__comm_header);
    comparison *job = core__alloc(size);

    *out_job = job;
    if (!job)
        return core__error_memory(size);
    job->comm = comm;
    core__comm_add_job_reference(comm);
    job->count = group->count;
    for (size_t i = 0; i < group->count; i++)
        job->headers[i] = core__comm_header_of(&group->calls[i].call);
    return CORE_OK;
}

/* Calls that are not compared before are compared one by one. */
static core_status run_comparison(const comparison *job)
{
    core_comm *comm = job->comm;
    uint64_t first = job->headers[0].sequence;
    core_status status;

    CORE_TRY(core__comm_raise(comm));
    core__progress_reach(comm->progress, first);
    status = core__comm_compare_group(comm, job->headers, job->count);
    if (status == CORE_OK) {
        atomic_store(&comm->compared, first + job->count - 1);
        return CORE_OK;
    }
    if (status == CORE_ERROR_CANCELLED)
        core__progress_name_missing(comm->progress, first);
    core__error_prefix("rank %u of %u: a group of %zu collectives "
                       "(collective %llu)",
                       comm->rank, comm->size, job->count,
                       (unsigned long long)first);
    core__comm_fail(comm);
    return status;
}

static void run_job(void *context)
{
    run_comparison(context);
    comparison_free(context);
}

static void drop_job(void *context)
{
    comparison *job = context;

    core__error(CORE_ERROR_STREAM,
                "a group of collectives did not run, because its stream "
                "failed");
    atomic_store(&job->comm->dropped, true);
    core__comm_fail(job->comm);
    comparison_free(job);
}

static bool is_compared(const core_comm *comm, const core__comm_group *group)
{
    return comm->size > 1 && !(comm->flags & CORE_COMM_UNCHECKED) &&
           group->count > 1;
}

static core_status compare(core_comm *comm, const core__comm_group *group)
{
    core_status status;
    comparison *job;

    CORE_TRY(comparison_new(comm, group, &job));
    if (comm->stream)
        return core_stream_callback(comm->stream, run_job, job, drop_job);
    status = run_comparison(job);
    comparison_free(job);
    return status;
}

/* -------------------------------------------------------------- batches -- */

static bool overlap(const core_tensor *a, const core_tensor *b)
{
    const char *from_a = a ? core__comm_address(a) : NULL;
    const char *from_b = b ? core__comm_address(b) : NULL;

    return from_a && from_b &&
           from_a < from_b + b->numel * (int64_t)core__dtype_size(b->dtype) &&
           from_b < from_a + a->numel * (int64_t)core__dtype_size(a->dtype);
}

static bool depend(const core__comm_call *a, const core__comm_call *b)
{
    return overlap(a->output, b->input) || overlap(a->output, b->output) ||
           overlap(a->input, b->output);
}

/* Calls of different kinds may be run at once, but not those for which there is
 * more to do than the engine's call (run.c). */
static bool can_share(const core__comm_call *call)
{
    return call->call.kind != CORE_COLLECTIVE_BARRIER && call->call.count > 0 &&
           !call->call.input_counts;
}

/* How many calls from index i can be run at once, at least 1. */
static uint32_t count_shared(const core_comm *comm,
                             const core__comm_group *group, size_t i)
{
    const core__comm_call *first = &group->calls[i];
    uint32_t count = 1;

    if (!comm->engine->table.run_group || !core__comm_is_on_device(comm) ||
        !can_share(first))
        return 1;
    for (; i + count < group->count && can_share(&first[count]); count++)
        for (uint32_t k = 0; k < count; k++)
            if (depend(&first[k], &first[count]))
                return count;
    return count;
}

static core_status make(core_comm *comm, core__comm_call *calls, uint32_t count)
{
    const core__comm_batch all = {calls, count};

    return count == 1 ? core__comm_submit_now(comm, &calls->call, calls->input,
                                              calls->output)
                      : core__comm_submit_batch(comm, &all);
}

/* --------------------------------------------------------------- public -- */

static core_status begin(core_comm *comm)
{
    if (comm->group)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_comm_group_begin: a group has begun; groups "
                           "do not nest");
    comm->group = core__alloc_zero(sizeof *comm->group);
    return comm->group ? CORE_OK : core__error_memory(sizeof *comm->group);
}

core_status core_comm_group_begin(core_comm *comm)
{
    core_status status;

    CORE_TRY(core__comm_begin(comm, __func__));
    status = begin(comm);
    core__comm_end(comm);
    return status;
}

/* The other ranks compare the calls, and then make them without another
 * comparison, so that a rank that cannot do so can make no other call. */
static core_status make_calls(core_comm *comm, core__comm_group *group)
{
    bool compared = is_compared(comm, group);
    core_status status = CORE_OK;

    if (group->count > 0)
        CORE_TRY(core__comm_check_stream(comm));
    if (compared)
        status = compare(comm, group);
    for (size_t i = 0; i < group->count && status == CORE_OK;) {
        uint32_t count = count_shared(comm, group, i);

        status = make(comm, &group->calls[i], count);
        i += count;
    }
    if (compared && status != CORE_OK)
        core__comm_leave(comm);
    return status;
}

static core_status end(core_comm *comm)
{
    core__comm_group *group = comm->group;
    core_status status;

    if (!group)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_comm_group_end: no group has begun");
    comm->group = NULL;
    status = make_calls(comm, group);
    group_free(group, status != CORE_OK);
    return status;
}

/* Of a communicator that has failed; unless another thread makes a call. */
static void drop_in_call(core_comm *comm)
{
    bool before = false;

    if (!atomic_compare_exchange_strong(&comm->in_call, &before, true))
        return;
    core__comm_group_drop(comm);
    core__comm_end(comm);
}

core_status core_comm_group_end(core_comm *comm)
{
    core_status status = core__comm_begin(comm, __func__);

    if (status != CORE_OK) {
        if (comm && status != CORE_ERROR_BUSY &&
            status != CORE_ERROR_DEVICE_LOST)
            drop_in_call(comm);
        return status;
    }
    status = end(comm);
    core__comm_end(comm);
    return status;
}
