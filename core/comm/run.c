/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Runs collectives: in the calling thread on a synchronous device, and
 * otherwise on the communicator's stream, as a host function between a copy
 * from the device and a copy back, or without copies for an engine that moves
 * the device's memory.  That function runs when the stream reaches
 * it, so that collectives run in the order of the calls. */

#include "comm/comm.h"

#include "base/fork.h"
#include "base/memory.h"
#include "base/observe.h"
#include "base/thread.h"
#include "device/stream.h"
#include "tensor/dtype.h"
#include "tensor/storage_check.h"

#include <libcore/autograd.h>
#include <libcore/memory.h>

#include <stdio.h>
#include <string.h>

/* ----------------------------------------------------------- execution -- */

/* With those of the other ranks; calls of a group have been compared.  *out_ran: the
 * engine has run the call, too. */
static core_status compare(core_comm *comm, const core_collective *call,
                           uint32_t *out_ran)
{
    *out_ran = 0;
    if (comm->size == 1 || comm->flags & CORE_COMM_UNCHECKED)
        return CORE_OK;
    if (call->kind == CORE_COLLECTIVE_SEND ||
        call->kind == CORE_COLLECTIVE_RECV)
        return core__comm_compare_pair(comm, call);
    return call->sequence <= comm->compared
               ? CORE_OK
               : core__comm_compare(comm, call, out_ran);
}

static core_status run_compared(core_comm *comm, const core_collective *call)
{
    uint32_t ran;

    CORE_TRY(compare(comm, call, &ran));
    if (ran)
        return CORE_OK;
    if (call->count == 0 && call->kind != CORE_COLLECTIVE_BARRIER)
        return CORE_OK;
    if (call->input_counts && !(comm->flags & CORE_COMM_UNCHECKED))
        CORE_TRY(core__comm_compare_counts(comm, call));
    return comm->engine->table.run(comm->impl, call);
}

/* A range of the thread that communicates, in profiles: "all_reduce". */
static core_status run(core_comm *comm, const core_collective *call)
{
    const char *name = core__collective_name(call->kind) + strlen("core_");
    uint64_t token =
        core__observe_begin(CORE__OBSERVED_RANGE, name, 0, comm->device);
    core_status status = run_compared(comm, call);

    core__observe_end(token);
    return status;
}

/* Not because of this call: it was aborted. */
static bool has_failed(core_comm *comm)
{
    bool failed;

    pthread_mutex_lock(&comm->lock);
    failed = comm->error != NULL;
    pthread_mutex_unlock(&comm->lock);
    return failed;
}

/* The error of a collective or, with header.kind GROUP, of a group, after `errors`
 * of the thread. */
static void fail(core_comm *comm, const core__comm_header *header,
                 core_status status, uint32_t errors)
{
    char text[160];

    if (core__error_sequence() == errors)
        core__error(status, "the engine gave no reason");
    if (status == CORE_ERROR_CANCELLED && !has_failed(comm))
        core__progress_name_missing(comm->progress, header->sequence);
    core__comm_describe(header, text, sizeof text);
    core__error_prefix("rank %u of %u: %s", comm->rank, comm->size, text);
    core__comm_fail(comm);
}

core_status core__comm_run(core_comm *comm, const core_collective *call)
{
    core__comm_header header = core__comm_header_of(call);
    uint32_t errors = core__error_sequence();
    core_status status = core__comm_raise(comm);

    if (status != CORE_OK)
        return status;
    if (call->sequence)
        core__progress_reach(comm->progress, call->sequence);
    status = run(comm, call);
    if (status != CORE_OK)
        fail(comm, &header, status, errors);
    return status;
}

/* The others may be late, or have failed, too. */
static void report(core_comm *comm, core_status status)
{
    core__comm_header mine = {.sequence = comm->sequence + 1,
                              .kind = CORE__COMM_FAILED,
                              .dtype = (core_dtype)status};

    if (comm->stream && core_stream_synchronize(comm->stream) != CORE_OK)
        return;
    if (core__comm_raise(comm) == CORE_OK)
        comm->engine->table.exchange(comm->impl, &mine, sizeof mine, comm->all,
                                     comm->timeout_ns);
}

void core__comm_report(core_comm *comm)
{
    core__error_record error;

    core__error_save(&error);
    if (comm->size > 1 && !(comm->flags & CORE_COMM_UNCHECKED) &&
        comm->process == core__fork_mark)
        report(comm, error.code);
    core__error_restore(&error);
    core__comm_fail(comm);
}

/* ------------------------------------------------ memory after failures -- */

/* What a failed collective may still read or write. */
typedef struct abandoned {
    struct abandoned *next;
    core_tensor *tensor; /* or */
    void *memory;
} abandoned;

static abandoned *_Atomic all_abandoned;

/* Without memory for the entry they are kept all the same. */
static void keep(core_tensor *tensor, void *memory)
{
    abandoned *entry = core__alloc(sizeof *entry);

    if (!entry)
        return;
    entry->tensor = tensor;
    entry->memory = memory;
    entry->next = atomic_load(&all_abandoned);
    while (!atomic_compare_exchange_weak(&all_abandoned, &entry->next, entry))
        ;
}

static void abandon(core_tensor *tensor)
{
    if (!tensor)
        return;
    core__tensor_retain(tensor);
    keep(tensor, NULL);
}

void core__comm_abandon(void *memory)
{
    if (memory)
        keep(NULL, memory);
}

/* ---------------------------------------------------------- host memory -- */

void *core__comm_address(const core_tensor *tensor)
{
    if (!tensor || tensor->numel == 0)
        return NULL;
    return (char *)tensor->storage->memory.handle +
           tensor->storage->memory.offset +
           (uint64_t)tensor->offset * core__dtype_size(tensor->dtype);
}

static core_status run_on(core_comm *comm, core_collective *call,
                          core_tensor *input, core_tensor *output)
{
    core_status status;

    call->input = core__comm_address(input);
    call->output = core__comm_address(output);
    status = core__comm_run(comm, call);
    if (status != CORE_OK) {
        abandon(input);
        abandon(output);
    }
    return status;
}

/* A tensor on the host with the sizes of another one: pinned for a device with
 * streams. */
static core_status staging(core_comm *comm, const core_tensor *like,
                           core_tensor **out)
{
    core_device *host;

    if (comm->stream)
        return core_tensor_pinned(comm->device, like->dtype, like->sizes,
                                  like->ndim, out);
    CORE_TRY(core__device_host(&host));
    return core__tensor_new(host, like->dtype, like->ndim, like->sizes, NULL,
                            out);
}

/* On the host, one tensor stands for both if they are the same.  For an engine
 * that moves the device's memory, they are the caller's. */
typedef struct staged {
    core_comm *comm; /* held */
    core_collective call;
    uint64_t *counts;            /* of the call; NULL: none */
    core_tensor *input, *output; /* NULL: none; with references */
} staged;

static void staged_free(staged *job)
{
    core__tensor_release(job->input);
    core__tensor_release(job->output);
    core__comm_drop_job_reference(job->comm);
    core__free(job->counts);
    core__free(job);
}

/* The caller's counts end with its call. */
static core_status keep_counts(staged *job)
{
    uint32_t ranks = job->comm->size;
    size_t size = ranks * sizeof *job->counts;

    if (!job->call.input_counts)
        return CORE_OK;
    job->counts = core__alloc(2 * size);
    if (!job->counts)
        return core__error_memory(2 * size);
    job->call.input_counts = memcpy(job->counts, job->call.input_counts, size);
    job->call.output_counts =
        memcpy(job->counts + ranks, job->call.output_counts, size);
    return CORE_OK;
}

static core_status run_staged_job(staged *job)
{
    core_status status = run_on(job->comm, &job->call, job->input, job->output);

    if (status != CORE_OK) {
        core__comm_abandon(job->counts);
        job->counts = NULL;
    }
    return status;
}

static core_status staged_new(core_comm *comm, const core_collective *call,
                              core_tensor *input, core_tensor *output,
                              staged **out_job)
{
    staged *job = core__alloc_zero(sizeof *job);
    core_status status = CORE_OK;

    *out_job = job;
    if (!job)
        return core__error_memory(sizeof *job);
    job->comm = comm;
    core__comm_add_job_reference(comm);
    job->call = *call;
    status = keep_counts(job);
    if (core__comm_is_on_device(comm)) {
        job->input = core_tensor_retain(input);
        job->output = core_tensor_retain(output);
        return status;
    }
    if (status == CORE_OK && input)
        status = staging(comm, input, &job->input);
    if (status == CORE_OK && output && output != input)
        status = staging(comm, output, &job->output);
    else if (status == CORE_OK && output) {
        job->output = job->input;
        core__tensor_retain(job->output);
    }
    if (status == CORE_OK && input)
        status = core_tensor_copy(job->input, input, CORE_COPY_NON_BLOCKING);
    return status;
}

/* ------------------------------------------------------------- streams -- */

/* The function on the communicator's stream. */
static void run_job(void *context)
{
    staged *job = context;

    run_staged_job(job);
    staged_free(job);
}

static void drop_job(void *context)
{
    staged *job = context;

    core__error(CORE_ERROR_STREAM,
                "collective %llu did not run, because its stream failed",
                (unsigned long long)job->call.sequence);
    atomic_store(&job->comm->dropped, true);
    core__comm_fail(job->comm);
    staged_free(job);
}

typedef struct single {
    const core_collective *call;
    core_tensor *input, *output;
} single;

/* With the communicator's stream as the current one. */
static core_status enqueue(core_comm *comm, const void *what)
{
    const single *one = what;
    bool copied = !core__comm_is_on_device(comm);
    core_tensor *result;
    core_status status;
    staged *job;

    status = staged_new(comm, one->call, one->input, one->output, &job);
    if (status != CORE_OK) {
        if (job)
            staged_free(job);
        return status;
    }
    result = core_tensor_retain(job->output);
    status = core_stream_callback(comm->stream, run_job, job, drop_job);
    if (status == CORE_OK && result && copied)
        status = core_tensor_copy(one->output, result, CORE_COPY_NON_BLOCKING);
    core__tensor_release(result);
    return status;
}

/* Lets the caller's stream wait for the communicator's, also after a failure,
 * which may have enqueued copies. */
static core_status order_caller(core_comm *comm, core_status first)
{
    core_stream *caller = NULL;
    core__error_record saved;
    core_status status;

    if (first != CORE_OK)
        core__error_save(&saved);
    status = core_stream_current(comm->device, &caller);
    if (status == CORE_OK)
        status = core__stream_order(caller, comm->stream);
    if (first != CORE_OK)
        core__error_restore(&saved);
    return first != CORE_OK ? first : status;
}

static core_status check_caller(core_stream *caller)
{
    CORE_TRY(core__stream_check(caller));
    return caller->capture ? core__capture_refuse(caller, "a collective")
                           : CORE_OK;
}

core_status core__comm_check_stream(core_comm *comm)
{
    core_stream *caller = NULL;

    if (!comm->stream)
        return CORE_OK;
    CORE_TRY(core_stream_current(comm->device, &caller));
    return check_caller(caller);
}

/* What is enqueued on the communicator's stream, in the order of the current
 * one. */
typedef core_status (*enqueue_function)(core_comm *comm, const void *what);

static core_status submit(core_comm *comm, enqueue_function function,
                          const void *what)
{
    bool grads = core_grad_mode_set(false);
    core_stream *caller = NULL;
    core_status status;

    status = core_stream_current(comm->device, &caller);
    if (status == CORE_OK)
        status = check_caller(caller);
    if (status == CORE_OK)
        status = core__stream_order(comm->stream, caller);
    if (status == CORE_OK)
        status = core__stream_swap(comm->stream, &caller);
    if (status == CORE_OK) {
        status = function(comm, what);
        core__stream_restore(caller);
        status = order_caller(comm, status);
    }
    core_grad_mode_set(grads);
    return status;
}

/* A synchronous device whose memory the host cannot address. */
static core_status run_staged(core_comm *comm, core_collective *call,
                              core_tensor *input, core_tensor *output)
{
    bool grads = core_grad_mode_set(false);
    staged *job;
    core_status status = staged_new(comm, call, input, output, &job);

    if (status == CORE_OK)
        status = run_staged_job(job);
    if (status == CORE_OK && output)
        status = core_tensor_copy(output, job->output, 0);
    if (job)
        staged_free(job);
    core_grad_mode_set(grads);
    return status;
}

core_status core__comm_submit(core_comm *comm, core_collective *call,
                              core_tensor *input, core_tensor *output)
{
    bool pair = call->kind == CORE_COLLECTIVE_SEND ||
                call->kind == CORE_COLLECTIVE_RECV;

    call->struct_size = sizeof *call;
    call->timeout_ns = comm->timeout_ns;
    if (pair && comm->group)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: a group has no messages between two ranks; "
                           "core_send_recv makes several of them",
                           core__collective_name(call->kind));
    if (comm->group)
        return core__comm_group_add(comm, call, input, output);
    if (!pair)
        call->sequence = ++comm->sequence;
    return core__comm_submit_now(comm, call, input, output);
}

core_status core__comm_submit_now(core_comm *comm, core_collective *call,
                                  core_tensor *input, core_tensor *output)
{
    if (comm->stream)
        return submit(comm, enqueue, &(single){call, input, output});
    if (core__device_host_access(comm->device) || core__comm_is_on_device(comm))
        return run_on(comm, call, input, output);
    return run_staged(comm, call, input, output);
}

/* --------------------------------------------------------------- batches -- */

typedef struct batch {
    core_comm *comm; /* held */
    uint32_t count;
    core__comm_call calls[]; /* with references */
} batch;

static void batch_free(batch *job)
{
    for (uint32_t i = 0; i < job->count; i++) {
        core__tensor_release(job->calls[i].input);
        core__tensor_release(job->calls[i].output);
    }
    core__comm_drop_job_reference(job->comm);
    core__free(job);
}

static core_status batch_new(core_comm *comm, const core__comm_batch *given,
                             batch **out_job)
{
    size_t size = sizeof(batch) + given->count * sizeof *given->calls;
    batch *job = core__alloc(size);

    *out_job = job;
    if (!job)
        return core__error_memory(size);
    job->comm = comm;
    core__comm_add_job_reference(comm);
    job->count = given->count;
    memcpy(job->calls, given->calls, given->count * sizeof *given->calls);
    for (uint32_t i = 0; i < given->count; i++) {
        core_tensor_retain(given->calls[i].input);
        core_tensor_retain(given->calls[i].output);
    }
    return CORE_OK;
}

static core_status run_engine(const core_comm *comm, batch *job)
{
    size_t size = job->count * sizeof(core_collective);
    core_collective *calls = core__alloc(size);
    core_status status;
    uint64_t token;

    if (!calls)
        return core__error_memory(size);
    for (uint32_t i = 0; i < job->count; i++) {
        calls[i] = job->calls[i].call;
        calls[i].input = core__comm_address(job->calls[i].input);
        calls[i].output = core__comm_address(job->calls[i].output);
    }
    token = core__observe_begin(CORE__OBSERVED_RANGE, "collectives", 0,
                                comm->device);
    status = comm->engine->table.run_group(comm->impl, calls, job->count);
    core__observe_end(token);
    core__free(calls);
    return status;
}

/* A rank that waits in one of them has reached the last one. */
static core_status run_batch(batch *job)
{
    const core_collective *first = &job->calls[0].call;
    uint32_t errors = core__error_sequence();
    core_comm *comm = job->comm;
    core__comm_header header = {.sequence = first->sequence,
                                .count = job->count,
                                .kind = CORE__COMM_GROUP};
    core_status status = core__comm_raise(comm);

    if (status != CORE_OK)
        return status;
    core__progress_reach(comm->progress, first->sequence + job->count - 1);
    status = run_engine(comm, job);
    if (status == CORE_OK)
        return CORE_OK;
    for (uint32_t i = 0; i < job->count; i++) {
        abandon(job->calls[i].input);
        abandon(job->calls[i].output);
    }
    fail(comm, &header, status, errors);
    return status;
}

static void run_batch_job(void *context)
{
    run_batch(context);
    batch_free(context);
}

static void drop_batch(void *context)
{
    batch *job = context;

    core__error(CORE_ERROR_STREAM,
                "a group of collectives did not run, because its stream "
                "failed");
    atomic_store(&job->comm->dropped, true);
    core__comm_fail(job->comm);
    batch_free(job);
}

static core_status enqueue_batch(core_comm *comm, const void *what)
{
    batch *job;

    CORE_TRY(batch_new(comm, what, &job));
    return core_stream_callback(comm->stream, run_batch_job, job, drop_batch);
}

core_status core__comm_submit_batch(core_comm *comm,
                                    const core__comm_batch *calls)
{
    core_status status;
    batch *job;

    if (comm->stream)
        return submit(comm, enqueue_batch, calls);
    CORE_TRY(batch_new(comm, calls, &job));
    status = run_batch(job);
    batch_free(job);
    return status;
}
