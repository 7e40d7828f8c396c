/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Waiting with a deadline, and small messages between all pairs of ranks, which
 * tell which of them is missing. */

#define _GNU_SOURCE

#include "mpi_engine.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

/* Tags of messages on the control communicator. */
enum { TAG_HEADER = 1, TAG_ALIVE = 2, TAG_REST = 3 };

/* Polls without a pause for a while, then lets other processes run, and after
 * some milliseconds sleeps between two polls. */
static void relax(uint32_t polls)
{
    static const struct timespec pause = {0, 50000};

    if (polls > 20000)
        nanosleep(&pause, NULL);
    else if (polls > 200)
        sched_yield();
}

core_status mpi_wait(mpi_comm *comm, MPI_Request *requests, int count,
                     int64_t deadline, bool *out_done)
{
    *out_done = false;
    for (uint32_t polls = 0;; polls++) {
        int done = 0, code;

        mpi_lock();
        code = mpi.Testall(count, requests, &done, comm->statuses);
        mpi_unlock();
        if (code != MPI_SUCCESS)
            return mpi_error(code, "a rank ended or the data does not fit");
        if (done) {
            *out_done = true;
            return CORE_OK;
        }
        if (atomic_load(&comm->aborted))
            return core_sdk_error(mpi_host, CORE_ERROR_CANCELLED, MPI_TITLE,
                                  "the communicator was aborted");
        if ((polls & 63) == 63 && mpi_now_ns() > deadline)
            return CORE_OK;
        relax(polls);
    }
}

/* A message of this rank to all others, and those of the others, which may be shorter. */
typedef struct round {
    MPI_Request *requests; /* incoming and outgoing, by rank */
    size_t offset;         /* in the inbox's messages, and in the outbox */
    int bytes, most, tag;
} round;

static core_status post(const mpi_comm *comm, round r)
{
    int code = MPI_SUCCESS, size = comm->size;

    mpi_lock();
    for (int i = 0; i < 2 * size; i++)
        r.requests[i] = mpi.REQUEST_NULL;
    for (int i = 1; i < size && code == MPI_SUCCESS; i++) {
        int from = (comm->rank + i) % size;

        code = mpi.Irecv(comm->inbox + (size_t)from * comm->message + r.offset,
                         r.most, mpi.UINT8_T, from, r.tag, comm->control,
                         &r.requests[from]);
    }
    for (int i = 1; i < size && code == MPI_SUCCESS; i++) {
        int to = (comm->rank + size - i) % size;

        code = mpi.Isend(comm->outbox + r.offset, r.bytes, mpi.UINT8_T, to,
                         r.tag, comm->control, &r.requests[size + to]);
    }
    mpi_unlock();
    return code == MPI_SUCCESS ? CORE_OK
                               : mpi_error(code, "a message cannot be sent");
}

/* The ranks whose message has not arrived. */
static core_status name_missing(const mpi_comm *comm, MPI_Request *requests,
                                const char *format)
{
    char text[256] = "", *at = text;
    int named = 0;

    mpi_lock();
    for (int r = 0; r < comm->size; r++) {
        int done = 1;

        if (r != comm->rank && requests[r] != mpi.REQUEST_NULL &&
            mpi.Test(&requests[r], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            done = 0;
        if (!done && at < text + sizeof text - 16)
            at += snprintf(at, 16, "%s%d", named++ ? ", " : "rank ", r);
    }
    mpi_unlock();
    return core_sdk_error(mpi_host, CORE_ERROR_CANCELLED, MPI_TITLE, format,
                          named ? text : "no rank in particular");
}

static core_status wait_for(mpi_comm *comm, MPI_Request *requests,
                            int64_t deadline)
{
    bool done;
    core_status status =
        mpi_wait(comm, requests, 2 * comm->size, deadline, &done);

    return status == CORE_OK && !done
               ? name_missing(comm, requests,
                              "the timeout passed while waiting for %s")
               : status;
}

static core_status begin_first(const mpi_comm *comm, size_t bytes)
{
    size_t most = MPI_EXCHANGE_MOST + MPI_FIRST_BYTES;

    return post(comm, (round){.requests = comm->requests,
                              .bytes = (int)bytes,
                              .most = (int)(comm->message < most ? comm->message
                                                                 : most),
                              .tag = TAG_HEADER});
}

static core_status begin_second(const mpi_comm *comm, size_t bytes)
{
    return post(comm, (round){.requests = comm->requests + 2 * comm->size,
                              .offset = MPI_EXCHANGE_MOST + MPI_FIRST_BYTES,
                              .bytes = (int)bytes,
                              .most = (int)bytes,
                              .tag = TAG_REST});
}

const char *mpi_message(const mpi_comm *comm, int rank)
{
    if (comm->shared != NULL)
        return mpi_shared_message(comm, rank);
    return rank == comm->rank ? comm->outbox
                              : comm->inbox + (size_t)rank * comm->message;
}

void mpi_advance(const mpi_comm *comm)
{
    int found;

    if (!mpi_try_lock())
        return;
    mpi.Iprobe(MPI_ANY_SOURCE, TAG_HEADER, comm->control, &found,
               MPI_STATUS_IGNORE);
    mpi_unlock();
}

/* Copies the first bytes of all messages; returns whether they are equal. */
static bool gather(const mpi_comm *comm, uint32_t bytes, char *out_all)
{
    bool equal = true;

    for (int r = 0; r < comm->size; r++) {
        char *out = out_all + (size_t)r * bytes;

        memcpy(out, mpi_message(comm, r), bytes);
        equal = equal && memcmp(out, out_all, bytes) == 0;
    }
    return equal;
}

static core_status too_many_bytes(size_t bytes, size_t most)
{
    return core_sdk_error(mpi_host, CORE_ERROR_INVALID_ARGUMENT, MPI_TITLE,
                          "exchange: %zu bytes; accepted: at most %zu", bytes,
                          most);
}

/* After an exchange in messages: ranks that have sent the same know that all go on in the
 * same way. */
static core_status begin_sharing(mpi_comm *comm, bool equal, int64_t deadline)
{
    return equal && !comm->shares ? mpi_shared_begin(comm, deadline) : CORE_OK;
}

static core_status exchange_messages(mpi_comm *comm, const void *mine,
                                     uint32_t bytes, const void *data,
                                     size_t size, void *out_all,
                                     int64_t deadline, bool *out_equal)
{
    size_t first = size < MPI_FIRST_BYTES ? size : MPI_FIRST_BYTES;
    core_status status;

    memcpy(comm->outbox, mine, bytes);
    if (size > 0)
        memcpy(comm->outbox + MPI_EXCHANGE_MOST, data, size);
    status = begin_first(comm, size > 0 ? MPI_EXCHANGE_MOST + first : bytes);
    if (status == CORE_OK && size > first)
        status = begin_second(comm, size - first);
    if (status == CORE_OK)
        status = wait_for(comm, comm->requests, deadline);
    if (status != CORE_OK)
        return status;
    *out_equal = gather(comm, bytes, out_all);
    /* A rank that makes another call does not send the rest. */
    return *out_equal && size > first
               ? wait_for(comm, comm->requests + 2 * comm->size, deadline)
               : CORE_OK;
}

core_status mpi_exchange_messages(mpi_comm *comm, const void *mine,
                                  uint32_t bytes, void *out_all,
                                  int64_t deadline)
{
    bool equal = false;

    return exchange_messages(comm, mine, bytes, NULL, 0, out_all, deadline,
                             &equal);
}

core_status mpi_exchange_data(mpi_comm *comm, const void *mine, uint32_t bytes,
                              const void *data, size_t size, void *out_all,
                              int64_t timeout_ns, bool *out_equal)
{
    int64_t deadline = mpi_now_ns() + timeout_ns;
    core_status status;

    *out_equal = false;
    if (bytes > MPI_EXCHANGE_MOST || size > comm->message - MPI_EXCHANGE_MOST)
        return too_many_bytes(bytes + size, comm->message);
    if (comm->shared == NULL)
        return exchange_messages(comm, mine, bytes, data, size, out_all,
                                 deadline, out_equal);
    status = mpi_shared_exchange(comm, mine, bytes, data, size, deadline);
    if (status == CORE_OK)
        *out_equal = gather(comm, bytes, out_all);
    return status;
}

core_status mpi_exchange(void *handle, const void *mine, uint32_t bytes,
                         void *out_all, int64_t timeout_ns)
{
    int64_t deadline = mpi_now_ns() + timeout_ns;
    mpi_comm *comm = handle;
    core_status status;
    bool equal;

    if (bytes > MPI_EXCHANGE_MOST)
        return too_many_bytes(bytes, MPI_EXCHANGE_MOST);
    status = mpi_exchange_data(comm, mine, bytes, NULL, 0, out_all, timeout_ns,
                               &equal);
    return status == CORE_OK ? begin_sharing(comm, equal, deadline) : status;
}

/* All ranks that wait for a collective reach this at about the same time. */
core_status mpi_report_missing_ranks(mpi_comm *comm, int64_t timeout_ns)
{
    round alive = {
        .requests = comm->requests, .bytes = 1, .most = 1, .tag = TAG_ALIVE};
    core_status status = post(comm, alive);
    bool done;

    if (status == CORE_OK)
        status = mpi_wait(comm, comm->requests, 2 * comm->size,
                          mpi_now_ns() + timeout_ns, &done);
    if (status != CORE_OK)
        return status;
    return name_missing(comm, comm->requests,
                        "the timeout passed while data was moved; no "
                        "response from %s");
}
