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
enum { TAG_HEADER = 1, TAG_ALIVE = 2 };

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

/* Posts the messages of this rank to all others. */
static core_status post(mpi_comm *comm, int bytes, int tag)
{
    int code = MPI_SUCCESS, size = comm->size;

    mpi_lock();
    for (int r = 0; r < 2 * size; r++)
        comm->requests[r] = mpi.REQUEST_NULL;
    for (int i = 1; i < size && code == MPI_SUCCESS; i++) {
        int from = (comm->rank + i) % size;

        code = mpi.Irecv(comm->inbox + (size_t)from * MPI_EXCHANGE_MOST, bytes,
                         mpi.UINT8_T, from, tag, comm->control,
                         &comm->requests[from]);
    }
    for (int i = 1; i < size && code == MPI_SUCCESS; i++) {
        int to = (comm->rank + size - i) % size;

        code = mpi.Isend(comm->outbox, bytes, mpi.UINT8_T, to, tag,
                         comm->control, &comm->requests[size + to]);
    }
    mpi_unlock();
    return code == MPI_SUCCESS ? CORE_OK
                               : mpi_error(code, "a message cannot be sent");
}

/* The ranks whose message has not arrived. */
static core_status name_missing(mpi_comm *comm, const char *format)
{
    char text[256] = "", *at = text;
    int named = 0;

    mpi_lock();
    for (int r = 0; r < comm->size; r++) {
        int done = 1;

        if (r != comm->rank && comm->requests[r] != mpi.REQUEST_NULL &&
            mpi.Test(&comm->requests[r], &done, MPI_STATUS_IGNORE) !=
                MPI_SUCCESS)
            done = 0;
        if (!done && at < text + sizeof text - 16)
            at += snprintf(at, 16, "%s%d", named++ ? ", " : "rank ", r);
    }
    mpi_unlock();
    return core_sdk_error(mpi_host, CORE_ERROR_CANCELLED, MPI_TITLE, format,
                          named ? text : "no rank in particular");
}

core_status mpi_exchange(void *handle, const void *mine, uint32_t bytes,
                         void *out_all, int64_t timeout_ns)
{
    mpi_comm *comm = handle;
    core_status status;
    bool done;

    if (bytes > MPI_EXCHANGE_MOST)
        return core_sdk_error(mpi_host, CORE_ERROR_INVALID_ARGUMENT, MPI_TITLE,
                              "exchange: %u bytes; accepted: at most %d", bytes,
                              MPI_EXCHANGE_MOST);
    memcpy(comm->outbox, mine, bytes);
    status = post(comm, (int)bytes, TAG_HEADER);
    if (status == CORE_OK)
        status = mpi_wait(comm, comm->requests, 2 * comm->size,
                          mpi_now_ns() + timeout_ns, &done);
    if (status != CORE_OK)
        return status;
    if (!done)
        return name_missing(comm, "the timeout passed while waiting for %s");
    for (int r = 0; r < comm->size; r++)
        memcpy((char *)out_all + (size_t)r * bytes,
               r == comm->rank ? comm->outbox
                               : comm->inbox + (size_t)r * MPI_EXCHANGE_MOST,
               bytes);
    return CORE_OK;
}

/* All ranks that wait for a collective reach this at about the same time. */
core_status mpi_report_missing_ranks(mpi_comm *comm, int64_t timeout_ns)
{
    core_status status = post(comm, 1, TAG_ALIVE);
    bool done;

    if (status == CORE_OK)
        status = mpi_wait(comm, comm->requests, 2 * comm->size,
                          mpi_now_ns() + timeout_ns, &done);
    if (status != CORE_OK)
        return status;
    return name_missing(comm, "the timeout passed while data was moved; no "
                              "response from %s");
}
