/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Collectives, by the nonblocking ones of MPI, which can be waited for with a
 * deadline. */

#include "mpi_engine.h"

#include <limits.h>
#include <stdlib.h>

/* Elements of one call of MPI, whose counts are int. */
enum { COUNT_MOST = 1 << 30, TAG_PAIR = 1 };

static bool is_half(core_dtype dtype)
{
    return dtype == CORE_F16 || dtype == CORE_BF16;
}

/* The type in which MPI computes. */
static MPI_Datatype number_type(core_dtype dtype)
{
    switch (dtype) {
    case CORE_F64:
        return mpi.DOUBLE;
    case CORE_F32:
    case CORE_F16:
    case CORE_BF16:
        return mpi.FLOAT;
    case CORE_I64:
        return mpi.INT64_T;
    case CORE_I32:
        return mpi.INT32_T;
    case CORE_I16:
        return mpi.INT16_T;
    case CORE_I8:
        return mpi.INT8_T;
    default:
        return mpi.UINT8_T;
    }
}

/* A type of the same size, for what is only moved. */
static MPI_Datatype item_type(core_dtype dtype)
{
    switch (dtype) {
    case CORE_F64:
    case CORE_I64:
        return mpi.INT64_T;
    case CORE_F32:
    case CORE_I32:
        return mpi.INT32_T;
    case CORE_F16:
    case CORE_BF16:
    case CORE_I16:
        return mpi.INT16_T;
    default:
        return mpi.UINT8_T;
    }
}

static uint64_t item_size(core_dtype dtype)
{
    MPI_Datatype type = item_type(dtype);

    return type == mpi.INT64_T   ? 8
           : type == mpi.INT32_T ? 4
           : type == mpi.INT16_T ? 2
                                 : 1;
}

static MPI_Op operation(uint32_t reduction)
{
    return reduction == CORE_REDUCE_PROD  ? mpi.PROD
           : reduction == CORE_REDUCE_MIN ? mpi.MIN
           : reduction == CORE_REDUCE_MAX ? mpi.MAX
                                          : mpi.SUM;
}

/* Of a timeout a quarter, but at most two seconds, is left to find out which rank does
 * not respond. */
static int64_t reserve_of(int64_t timeout_ns)
{
    int64_t quarter = timeout_ns / 4;

    return quarter < 2000000000 ? quarter : 2000000000;
}

/* Finishes what was begun with this code. */
static core_status finish(mpi_comm *comm, int code, MPI_Request *request,
                          int64_t timeout_ns)
{
    int64_t reserve = reserve_of(timeout_ns);
    core_status status;
    bool done;

    if (code != MPI_SUCCESS)
        return mpi_error(code, "the collective cannot begin");
    status =
        mpi_wait(comm, request, 1, mpi_now_ns() + timeout_ns - reserve, &done);
    return status == CORE_OK && !done ? mpi_report_missing_ranks(comm, reserve)
                                      : status;
}

/* ---------------------------------------------------------- reductions -- */

static core_status scratch(mpi_comm *comm, size_t size, void **out)
{
    if (comm->scratch_size < size) {
        free(comm->scratch);
        comm->scratch = malloc(size);
        comm->scratch_size = comm->scratch != NULL ? size : 0;
    }
    *out = comm->scratch;
    return *out != NULL
               ? CORE_OK
               : core_sdk_error(mpi_host, CORE_ERROR_OUT_OF_MEMORY, MPI_TITLE,
                                "cannot allocate %zu bytes of host memory",
                                size);
}

static void widen(core_dtype dtype, const uint16_t *from, float *to,
                  uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] = dtype == CORE_F16 ? core_sdk_f16_to_f32(from[i])
                                  : core_sdk_bf16_to_f32(from[i]);
}

static void narrow(core_dtype dtype, const float *from, uint16_t *to,
                   uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] = dtype == CORE_F16 ? core_sdk_f32_to_f16(from[i])
                                  : core_sdk_f32_to_bf16(from[i]);
}

static void divide(core_dtype dtype, void *data, uint64_t count, int by)
{
    for (uint64_t i = 0; i < count; i++)
        if (dtype == CORE_F64)
            ((double *)data)[i] /= by;
        else
            ((float *)data)[i] /= (float)by;
}

/* Begins with a part of the elements. */
static int begin_reduction(mpi_comm *comm, const core_collective *call,
                           const void *from, void *to, int count,
                           MPI_Request *request)
{
    MPI_Datatype type = number_type(call->dtype);
    MPI_Op op = operation(call->reduction);
    int root = (int)call->peer;

    if (call->kind == CORE_COLLECTIVE_REDUCE_SCATTER)
        return mpi.Ireduce_scatter_block(from, to, count, type, op, comm->data,
                                         request);
    if (call->kind == CORE_COLLECTIVE_ALL_REDUCE)
        return mpi.Iallreduce(from == to ? MPI_IN_PLACE : from, to, count, type,
                              op, comm->data, request);
    if (comm->rank != root)
        to = NULL;
    return mpi.Ireduce(from == to ? MPI_IN_PLACE : from, to, count, type, op,
                       root, comm->data, request);
}

/* Whether ring.c is faster than MPI_Iallreduce of Open MPI, as measured there: on two
 * ranks from 16 KB on, on more from 32 MB on. */
static bool uses_ring(const mpi_comm *comm, const core_collective *call,
                      uint64_t bytes)
{
#ifdef OPEN_MPI
    const uint64_t least = comm->size == 2 ? 1 << 14 : 1 << 25;

    return call->kind == CORE_COLLECTIVE_ALL_REDUCE && comm->size > 1 &&
           call->count >= least / bytes;
#else
    (void)comm;
    (void)call;
    (void)bytes;
    return false;
#endif
}

static core_status reduce_in_ring(mpi_comm *comm, const core_collective *call,
                                  uint64_t bytes, const void *input,
                                  void *output)
{
    int64_t reserve = reserve_of(call->timeout_ns);
    core_status status;
    bool done;

    if (input != output)
        memcpy(output, input, call->count * bytes);
    status = mpi_ring_all_reduce(
        comm, output, call->count, bytes, number_type(call->dtype),
        operation(call->reduction), mpi_now_ns() + call->timeout_ns - reserve,
        &done);
    return status == CORE_OK && !done ? mpi_report_missing_ranks(comm, reserve)
                                      : status;
}

static core_status move_shared(mpi_comm *comm, const core_collective *call,
                               uint64_t bytes, const void *input, void *output)
{
    int64_t reserve = reserve_of(call->timeout_ns);
    mpi_shared_call shared = {.kind = call->kind,
                              .count = call->count,
                              .item = bytes,
                              .type = number_type(call->dtype),
                              .op = operation(call->reduction),
                              .input = input,
                              .output = output,
                              .deadline =
                                  mpi_now_ns() + call->timeout_ns - reserve};
    core_status status;
    bool done;

    status = mpi_shared_run(comm, &shared, &done);
    return status == CORE_OK && !done ? mpi_report_missing_ranks(comm, reserve)
                                      : status;
}

static core_status reduce_numbers(mpi_comm *comm, const core_collective *call,
                                  const void *input, void *output)
{
    uint64_t bytes = is_half(call->dtype) ? 4 : item_size(call->dtype);

    if (comm->shared != NULL && call->kind != CORE_COLLECTIVE_REDUCE)
        return move_shared(comm, call, bytes, input, output);
    if (uses_ring(comm, call, bytes))
        return reduce_in_ring(comm, call, bytes, input, output);
    for (uint64_t done = 0; done < call->count; done += COUNT_MOST) {
        uint64_t left = call->count - done;
        int count = (int)(left < COUNT_MOST ? left : COUNT_MOST);
        const char *from = (const char *)input + done * bytes;
        char *to = output != NULL ? (char *)output + done * bytes : NULL;
        MPI_Request request = mpi.REQUEST_NULL;
        core_status status;
        int code;

        mpi_lock();
        code = begin_reduction(comm, call, from, to, count, &request);
        mpi_unlock();
        status = finish(comm, code, &request, call->timeout_ns);
        if (status != CORE_OK)
            return status;
    }
    return CORE_OK;
}

static core_status reduce(mpi_comm *comm, const core_collective *call)
{
    bool scatter = call->kind == CORE_COLLECTIVE_REDUCE_SCATTER;
    uint64_t parts = scatter ? (uint64_t)comm->size : 1;
    const void *input = call->input;
    void *output = call->output, *wide = NULL;
    core_status status = CORE_OK;

    if (scatter && call->count > COUNT_MOST / parts)
        return core_sdk_error(
            mpi_host, CORE_ERROR_UNSUPPORTED, MPI_TITLE,
            "reduce_scatter: more than %d elements are not supported",
            COUNT_MOST);
    if (is_half(call->dtype)) {
        status =
            scratch(comm, (parts + 1) * call->count * sizeof(float), &wide);
        if (status != CORE_OK)
            return status;
        widen(call->dtype, call->input, wide, parts * call->count);
        input = wide;
        output = scatter ? (float *)wide + parts * call->count : wide;
    }
    status = reduce_numbers(comm, call, input, output);
    if (call->output == NULL) /* the root has the result */
        return status;
    if (status == CORE_OK && call->reduction == CORE_REDUCE_AVG)
        divide(call->dtype, output, call->count, comm->size);
    if (status == CORE_OK && is_half(call->dtype))
        narrow(call->dtype, output, call->output, call->count);
    return status;
}

/* ------------------------------------------------------ with the exchange -- */

/* Of what all ranks have sent, in the order of the ranks, so that the result is the same
 * on each. */
static core_status reduce_messages(mpi_comm *comm, const core_collective *call,
                                   const void *input, void *to, size_t size)
{
    int code = MPI_SUCCESS;

    mpi_lock();
    for (int r = 0; r < comm->size && code == MPI_SUCCESS; r++) {
        const char *from = mpi_message(comm, r) + MPI_EXCHANGE_MOST;

        if (r > 0)
            code = mpi.Reduce_local(from, to, (int)call->count,
                                    number_type(call->dtype),
                                    operation(call->reduction));
        else if (comm->rank > 0 || input != to)
            memcpy(to, from, size);
    }
    mpi_unlock();
    return code == MPI_SUCCESS ? CORE_OK : mpi_error(code, "MPI_Reduce_local");
}

core_status mpi_exchange_and_run(void *handle, const core_collective *call,
                                 const void *mine, uint32_t bytes,
                                 void *out_all, uint32_t *out_ran)
{
    uint64_t item = is_half(call->dtype) ? 4 : item_size(call->dtype);
    float wide[MPI_SMALL_BYTES / sizeof(float)];
    const void *input = call->input;
    void *output = call->output;
    mpi_comm *comm = handle;
    core_status status;
    bool equal;
    size_t size;

    *out_ran = 0;
    if (call->count > (comm->message - MPI_EXCHANGE_MOST) / item)
        return mpi_exchange(handle, mine, bytes, out_all, call->timeout_ns);
    size = call->count * item;
    if (is_half(call->dtype)) {
        widen(call->dtype, call->input, wide, call->count);
        input = output = wide;
    }
    status = mpi_exchange_data(comm, mine, bytes, input, size, out_all,
                               call->timeout_ns, &equal);
    if (status != CORE_OK || !equal)
        return status;
    status = reduce_messages(comm, call, input, output, size);
    if (status != CORE_OK)
        return status;
    if (call->reduction == CORE_REDUCE_AVG)
        divide(call->dtype, output, call->count, comm->size);
    if (is_half(call->dtype))
        narrow(call->dtype, wide, call->output, call->count);
    *out_ran = 1;
    return CORE_OK;
}

/* ------------------------------------------------------------ movement -- */

static int begin(mpi_comm *comm, const core_collective *call, int count,
                 uint64_t offset, MPI_Request *request)
{
    MPI_Datatype type = item_type(call->dtype);
    const char *input = (const char *)call->input + offset;
    char *output = (char *)call->output + offset;
    int peer = (int)call->peer;

    switch (call->kind) {
    case CORE_COLLECTIVE_BROADCAST:
        return mpi.Ibcast(output, count, type, peer, comm->data, request);
    case CORE_COLLECTIVE_ALL_GATHER:
        return mpi.Iallgather(input, count, type, output, count, type,
                              comm->data, request);
    case CORE_COLLECTIVE_ALL_TO_ALL:
        return mpi.Ialltoall(input, count, type, output, count, type,
                             comm->data, request);
    case CORE_COLLECTIVE_SEND:
        return mpi.Isend(input, count, type, peer, TAG_PAIR, comm->data,
                         request);
    case CORE_COLLECTIVE_RECV:
        return mpi.Irecv(output, count, type, peer, TAG_PAIR, comm->data,
                         request);
    default:
        return mpi.Ibarrier(comm->data, request);
    }
}

/* One message has no other rank to ask. */
static core_status finish_pair(mpi_comm *comm, const core_collective *call,
                               int code, MPI_Request *request)
{
    core_status status;
    bool done;

    if (code != MPI_SUCCESS)
        return mpi_error(code, "the message cannot begin");
    status = mpi_wait(comm, request, 1, mpi_now_ns() + call->timeout_ns, &done);
    if (status == CORE_OK && !done)
        return core_sdk_error(mpi_host, CORE_ERROR_CANCELLED, MPI_TITLE,
                              "the timeout passed while waiting for rank %u",
                              call->peer);
    return status;
}

static core_status move(mpi_comm *comm, const core_collective *call)
{
    bool pair = call->kind == CORE_COLLECTIVE_SEND ||
                call->kind == CORE_COLLECTIVE_RECV;
    bool divisible = pair || call->kind == CORE_COLLECTIVE_BROADCAST;
    uint64_t done = 0;

    if (comm->shared != NULL && call->kind == CORE_COLLECTIVE_ALL_GATHER)
        return move_shared(comm, call, item_size(call->dtype), call->input,
                           call->output);
    if (!divisible && call->count > COUNT_MOST)
        return core_sdk_error(mpi_host, CORE_ERROR_UNSUPPORTED, MPI_TITLE,
                              "parts of more than %d elements", COUNT_MOST);
    do {
        uint64_t left = call->count - done;
        int code, count = (int)(left < COUNT_MOST ? left : COUNT_MOST);
        MPI_Request request = mpi.REQUEST_NULL;
        core_status status;

        mpi_lock();
        code =
            begin(comm, call, count, done * item_size(call->dtype), &request);
        mpi_unlock();
        status = pair ? finish_pair(comm, call, code, &request)
                      : finish(comm, code, &request, call->timeout_ns);
        if (status != CORE_OK)
            return status;
        done += (uint64_t)count;
    } while (done < call->count);
    return CORE_OK;
}

/* Counts of one kind and their sums, which have to fit int. */
static core_status place_parts(const uint64_t *counts, int size, int *parts)
{
    uint64_t at = 0;

    for (int r = 0; r < size; r++) {
        if (counts[r] > INT_MAX || at > INT_MAX)
            return core_sdk_error(
                mpi_host, CORE_ERROR_UNSUPPORTED, MPI_TITLE,
                "an all_to_all of %llu elements, of which %llu are of rank %d: "
                "MPI counts to %d",
                (unsigned long long)(at + counts[r]),
                (unsigned long long)counts[r], r, INT_MAX);
        parts[r] = (int)counts[r];
        parts[size + r] = (int)at;
        at += counts[r];
    }
    return CORE_OK;
}

static core_status move_parts(mpi_comm *comm, const core_collective *call)
{
    MPI_Datatype type = item_type(call->dtype);
    int size = comm->size, code, *out = comm->parts, *in = out + 2 * size;
    MPI_Request request = mpi.REQUEST_NULL;
    core_status status = place_parts(call->input_counts, size, out);

    if (status == CORE_OK)
        status = place_parts(call->output_counts, size, in);
    if (status != CORE_OK)
        return status;
    mpi_lock();
    code = mpi.Ialltoallv(call->input, out, out + size, type, call->output, in,
                          in + size, type, comm->data, &request);
    mpi_unlock();
    return finish(comm, code, &request, call->timeout_ns);
}

core_status mpi_run(void *handle, const core_collective *call)
{
    mpi_comm *comm = handle;

    switch (call->kind) {
    case CORE_COLLECTIVE_ALL_REDUCE:
    case CORE_COLLECTIVE_REDUCE_SCATTER:
    case CORE_COLLECTIVE_REDUCE:
        return reduce(comm, call);
    case CORE_COLLECTIVE_ALL_TO_ALL_COUNTS:
        return move_parts(comm, call);
    default:
        if (call->kind >= CORE_COLLECTIVE_ALL_REDUCE &&
            call->kind <= CORE_COLLECTIVE_BARRIER)
            return move(comm, call);
        return core_sdk_error(mpi_host, CORE_ERROR_UNSUPPORTED, MPI_TITLE,
                              "collective kind %u is not supported",
                              call->kind);
    }
}
