/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Groups: collectives that are compared with those of the other ranks at once, and
 * then made one after another. */

#include "comm/comm.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "tensor/tensor.h"

#include <string.h>

typedef struct grouped {
    core_collective call;
    core_tensor *input, *output; /* with references; NULL: none */
    uint64_t *counts;            /* of the call; NULL: none */
} grouped;

struct core__comm_group {
    grouped *calls;
    size_t count, capacity;
};

/* -------------------------------------------------------------- content -- */

/* failed: a call that may still read its counts. */
static void group_free(core__comm_group *group, bool failed)
{
    for (size_t i = 0; i < group->count; i++) {
        core_tensor_release(group->calls[i].input);
        core_tensor_release(group->calls[i].output);
        if (failed)
            core__comm_abandon(group->calls[i].counts);
        else
            core__free(group->calls[i].counts);
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
    grouped *calls;

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
static core_status keep_counts(const core_comm *comm, grouped *kept)
{
    size_t size = comm->size * sizeof *kept->counts;

    if (!kept->call.input_counts)
        return CORE_OK;
    kept->counts = core__alloc(2 * size);
    if (!kept->counts)
        return core__error_memory(2 * size);
    kept->call.input_counts =
        memcpy(kept->counts, kept->call.input_counts, size);
    kept->call.output_counts =
        memcpy(kept->counts + comm->size, kept->call.output_counts, size);
    return CORE_OK;
}

core_status core__comm_group_add(core_comm *comm, const core_collective *call,
                                 core_tensor *input, core_tensor *output)
{
    core__comm_group *group = comm->group;
    grouped kept = {.call = *call};

    CORE_TRY(grow(group));
    CORE_TRY(keep_counts(comm, &kept));
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
    for (size_t i = 0; i < group->count && status == CORE_OK; i++)
        status = core__comm_submit_now(comm, &group->calls[i].call,
                                       group->calls[i].input,
                                       group->calls[i].output);
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
