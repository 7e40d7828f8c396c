/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A communicator of the ranks that still work.  Neither library can find out which
 * these are, so the ranks say so themselves: each sends a message to all others, and
 * then, to those from which it has one, which these are.  If all of them have seen the
 * same ranks, these make a communicator, for which MPI needs no others.  A rank for
 * which the failed collective has waited until its timeout is not waited for again. */

#include "mpi_engine.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TAG_HERE = 3, TAG_SEEN = 4, TAG_CREATE = 5 };

/* What the ranks send.  It is kept: messages to other ranks may be unfinished. */
typedef struct meeting {
    MPI_Request *incoming, *outgoing; /* by rank */
    uint8_t *seen;   /* by rank: 1 if it is here, this one among them */
    uint8_t *others; /* what each has seen */
    int *ranks;      /* those that are here */
    int count;
} meeting;

static void meeting_free(meeting *m)
{
    if (m == NULL)
        return;
    free(m->incoming);
    free(m->outgoing);
    free(m->seen);
    free(m->others);
    free(m->ranks);
    free(m);
}

static meeting *meeting_new(int size)
{
    meeting *m = calloc(1, sizeof *m);
    size_t ranks = (size_t)size;

    if (m == NULL)
        return NULL;
    m->incoming = calloc(ranks, sizeof *m->incoming);
    m->outgoing = calloc(ranks, sizeof *m->outgoing);
    m->seen = calloc(ranks, 1);
    m->others = calloc(ranks, ranks);
    m->ranks = calloc(ranks, sizeof *m->ranks);
    if (m->incoming != NULL && m->outgoing != NULL && m->seen != NULL &&
        m->others != NULL && m->ranks != NULL)
        return m;
    meeting_free(m);
    return NULL;
}

/* Begins messages of as many bytes to and from every rank that is `wanted`; NULL:
 * all. */
static core_status post(const mpi_comm *comm, meeting *m, const uint8_t *wanted,
                        int bytes, int tag)
{
    int code = MPI_SUCCESS;

    mpi_lock();
    for (int r = 0; r < comm->size; r++)
        m->incoming[r] = m->outgoing[r] = mpi.REQUEST_NULL;
    for (int r = 0; r < comm->size && code == MPI_SUCCESS; r++) {
        if (r == comm->rank || (wanted != NULL && !wanted[r]))
            continue;
        code = mpi.Irecv(m->others + (size_t)r * (size_t)comm->size, bytes,
                         mpi.UINT8_T, r, tag, comm->control, &m->incoming[r]);
        if (code == MPI_SUCCESS)
            code = mpi.Isend(m->seen, bytes, mpi.UINT8_T, r, tag, comm->control,
                             &m->outgoing[r]);
    }
    mpi_unlock();
    return code == MPI_SUCCESS ? CORE_OK
                               : mpi_error(code, "a message cannot be sent");
}

/* Stores from which ranks a message has arrived, by the deadline; true: from all
 * that were asked.  An error of one message says that its rank has ended. */
static bool gather(const mpi_comm *comm, meeting *m, uint8_t *arrived,
                   int64_t deadline)
{
    static const struct timespec pause = {0, 1000000};

    for (;;) {
        bool all = true;

        mpi_lock();
        for (int r = 0; r < comm->size; r++) {
            int done = 0;

            if (m->incoming[r] == mpi.REQUEST_NULL)
                continue;
            if (mpi.Test(&m->incoming[r], &done, MPI_STATUS_IGNORE) !=
                MPI_SUCCESS)
                done = 0;
            if (done)
                arrived[r] = 1;
            all = all && (done || comm->missing[r]);
        }
        mpi_unlock();
        if (all || mpi_now_ns() > deadline)
            return all;
        nanosleep(&pause, NULL);
    }
}

/* Finds the ranks that are here.  A rank may begin later than another, by as long as
 * its own error took. */
static core_status find_ranks(const mpi_comm *comm, meeting *m, int64_t first,
                              int64_t deadline)
{
    uint8_t *arrived = m->others + (size_t)comm->rank * (size_t)comm->size;
    core_status status = post(comm, m, NULL, 1, TAG_HERE);

    if (status != CORE_OK)
        return status;
    gather(comm, m, arrived, first);
    arrived[comm->rank] = 1;
    for (int r = 0; r < comm->size; r++) {
        m->seen[r] = arrived[r] && !comm->missing[r];
        if (m->seen[r])
            m->ranks[m->count++] = r;
    }
    memcpy(arrived, m->seen, (size_t)comm->size);
    status = post(comm, m, m->seen, comm->size, TAG_SEEN);
    if (status != CORE_OK)
        return status;
    if (!gather(comm, m, arrived, deadline))
        return core_sdk_error(mpi_host, CORE_ERROR_CANCELLED, MPI_TITLE,
                              "the timeout passed before the ranks that are "
                              "left had said which they are");
    for (int r = 0; r < comm->size; r++)
        if (m->seen[r] &&
            memcmp(m->seen, m->others + (size_t)r * (size_t)comm->size,
                   (size_t)comm->size) != 0)
            return core_sdk_error(mpi_host, CORE_ERROR_IO, MPI_TITLE,
                                  "rank %d does not see the same ranks as rank "
                                  "%d: one of them came too late",
                                  r, comm->rank);
    return CORE_OK;
}

/* Without a deadline, as MPI_Comm_split: all members have agreed to it. */
static core_status create(const mpi_comm *comm, const meeting *m, MPI_Comm *out)
{
    MPI_Group all, rest;
    int code;

    mpi_lock();
    code = mpi.Comm_group(comm->control, &all);
    if (code == MPI_SUCCESS) {
        code = mpi.Group_incl(all, m->count, m->ranks, &rest);
        mpi.Group_free(&all);
    }
    if (code == MPI_SUCCESS) {
        code = mpi.Comm_create_group(comm->control, rest, TAG_CREATE, out);
        mpi.Group_free(&rest);
    }
    if (code == MPI_SUCCESS)
        mpi.Comm_set_errhandler(*out, mpi.ERRORS_RETURN);
    mpi_unlock();
    return code == MPI_SUCCESS ? CORE_OK
                               : mpi_error(code, "MPI_Comm_create_group");
}

core_status mpi_shrink(void *handle, int64_t timeout_ns, uint32_t *out_rank,
                       uint32_t *out_size, void **out_comm)
{
    int64_t begin = mpi_now_ns(), deadline = begin + timeout_ns;
    const mpi_comm *comm = handle;
    meeting *m = meeting_new(comm->size);
    core_status status;
    mpi_comm *rest;
    int rank = 0;

    *out_comm = NULL;
    mpi_never_finalize();
    if (m == NULL)
        return mpi_no_memory();
    status = find_ranks(comm, m, begin + timeout_ns / 4 * 3, deadline);
    if (status != CORE_OK)
        return status;
    while (m->ranks[rank] != comm->rank)
        rank++;
    rest = mpi_comm_new(rank, m->count);
    if (rest == NULL)
        return mpi_no_memory();
    status = create(comm, m, &rest->data);
    if (status == CORE_OK)
        status = mpi_duplicate(rest, rest->data, &rest->control, deadline);
    if (status != CORE_OK)
        return status;
    *out_rank = (uint32_t)rank;
    *out_size = (uint32_t)m->count;
    *out_comm = rest;
    return CORE_OK;
}
