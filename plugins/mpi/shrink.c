/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A communicator of the ranks that still work.  Neither library can find out which
 * these are, so the ranks say so themselves, in three rounds of messages: that they
 * are here; which ranks each has seen; and that it has the same answer from all of
 * these.  Only then do they call MPI_Comm_create_group, which has no timeout.  More
 * than half of the ranks must be here, or half of them with rank 0, so that no other
 * ranks can go on by themselves.  The first round also waits for ranks that a collective
 * has missed: if a rank ends in the middle of one, some ranks may have completed it and
 * miss the others in the next, which may be of another communicator.
 *
 * A rank may begin three quarters of the timeout after another, and its first round
 * takes as long, so that the second one ends after twice the timeout, and the third
 * after three times. */

#include "mpi_engine.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Tags of the rounds; each attempt has its own, so that a message of one before is
 * not taken for one of this attempt. */
enum { TAG_HERE, TAG_SEEN, TAG_AGREED, TAG_CREATE, TAGS };
enum { FIRST_TAG = 8, ATTEMPTS_MOST = 1000 };

/* What the ranks send in an attempt.  It is kept as long as the communicator, because
 * messages may be unfinished. */
struct mpi_meeting {
    mpi_meeting *before;
    MPI_Request *requests; /* of all rounds; incoming and outgoing, by rank */
    uint8_t *arrived;      /* in this round; by rank */
    uint8_t *seen;         /* by rank: 1 if it is here, this one among them */
    uint8_t *others;       /* of each round: what each rank has sent */
    int *ranks;            /* those that are here */
    int count, first_tag;
};

void mpi_meeting_free(mpi_meeting *m)
{
    mpi_meeting *before;

    for (; m != NULL; m = before) {
        before = m->before;
        free(m->requests);
        free(m->arrived);
        free(m->seen);
        free(m->others);
        free(m->ranks);
        free(m);
    }
}

static mpi_meeting *meeting_new(mpi_comm *comm)
{
    size_t size = (size_t)comm->size;
    mpi_meeting *m = calloc(1, sizeof *m);

    if (m == NULL)
        return NULL;
    m->requests = calloc(TAG_CREATE * 2 * size, sizeof *m->requests);
    m->arrived = calloc(size, 1);
    m->seen = calloc(size, 1);
    m->others = calloc(TAG_CREATE * size, size);
    m->ranks = calloc(size, sizeof *m->ranks);
    if (m->requests == NULL || m->arrived == NULL || m->seen == NULL ||
        m->others == NULL || m->ranks == NULL) {
        mpi_meeting_free(m);
        return NULL;
    }
    m->first_tag = FIRST_TAG + TAGS * comm->attempts++;
    m->before = comm->meetings;
    comm->meetings = m;
    return m;
}

static MPI_Request *incoming_of(const mpi_comm *comm, mpi_meeting *m, int round)
{
    return m->requests + (size_t)(2 * round * comm->size);
}

static uint8_t *message_of(const mpi_comm *comm, mpi_meeting *m, int round,
                           int rank)
{
    return m->others + (size_t)(round * comm->size + rank) * (size_t)comm->size;
}

/* Begins messages of as many bytes to and from every rank. */
static core_status post(const mpi_comm *comm, mpi_meeting *m, int round,
                        int bytes)
{
    MPI_Request *incoming = incoming_of(comm, m, round);
    uint8_t *mine = message_of(comm, m, round, comm->rank);
    int code = MPI_SUCCESS;

    memcpy(mine, m->seen, (size_t)comm->size);
    mpi_lock();
    for (int r = 0; r < 2 * comm->size; r++)
        incoming[r] = mpi.REQUEST_NULL;
    for (int r = 0; r < comm->size && code == MPI_SUCCESS; r++) {
        if (r == comm->rank)
            continue;
        code = mpi.Irecv(message_of(comm, m, round, r), bytes, mpi.UINT8_T, r,
                         m->first_tag + round, comm->members, &incoming[r]);
        if (code == MPI_SUCCESS)
            code = mpi.Isend(mine, bytes, mpi.UINT8_T, r, m->first_tag + round,
                             comm->members, &incoming[comm->size + r]);
    }
    for (int r = 0; r < comm->size; r++)
        m->arrived[r] = r == comm->rank;
    mpi_unlock();
    return code == MPI_SUCCESS ? CORE_OK
                               : mpi_error(code, "a message cannot be sent");
}

/* Finds from which ranks a message has arrived, and returns whether one has not.  An
 * error of one message says that its rank has ended. */
static bool waits(const mpi_comm *comm, mpi_meeting *m, int round)
{
    MPI_Request *incoming = incoming_of(comm, m, round);
    bool left = false;

    mpi_lock();
    for (int r = 0; r < comm->size; r++) {
        int done = 0;

        if (incoming[r] != mpi.REQUEST_NULL &&
            mpi.Test(&incoming[r], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
            done)
            m->arrived[r] = 1;
        left = left || !m->arrived[r];
    }
    mpi_unlock();
    return left;
}

/* The first round: until all have come. */
static void find_ranks(const mpi_comm *comm, mpi_meeting *m, int64_t deadline)
{
    static const struct timespec pause = {0, 1000000};

    while (waits(comm, m, TAG_HERE) && mpi_now_ns() <= deadline)
        nanosleep(&pause, NULL);
    mpi_lock();
    for (int r = 0; r < comm->size; r++) {
        m->seen[r] = m->arrived[r];
        if (m->seen[r])
            m->ranks[m->count++] = r;
    }
    mpi_unlock();
}

static core_status check_majority(const mpi_comm *comm, const mpi_meeting *m)
{
    if (2 * m->count > comm->size || (2 * m->count == comm->size && m->seen[0]))
        return CORE_OK;
    return core_sdk_error(mpi_host, CORE_ERROR_CANCELLED, MPI_TITLE,
                          "%d of %d ranks are here; needed: more than half, or "
                          "half of them with rank 0",
                          m->count, comm->size);
}

/* Each rank that has answered must have seen the same ranks, whether it is one of them
 * or goes on without this one. */
static core_status check_answers(const mpi_comm *comm, mpi_meeting *m,
                                 int round, bool *out_all)
{
    *out_all = true;
    waits(comm, m, round);
    for (int r = 0; r < comm->size; r++) {
        if (r == comm->rank || !m->seen[r])
            continue;
        if (!m->arrived[r])
            *out_all = false;
        else if (memcmp(m->seen, message_of(comm, m, round, r),
                        (size_t)comm->size) != 0)
            return core_sdk_error(mpi_host, CORE_ERROR_IO, MPI_TITLE,
                                  "rank %d does not see the same ranks as rank "
                                  "%d: one of them came too late",
                                  r, comm->rank);
    }
    return CORE_OK;
}

static core_status agree(const mpi_comm *comm, mpi_meeting *m, int round,
                         int64_t deadline)
{
    static const struct timespec pause = {0, 1000000};
    core_status status = post(comm, m, round, comm->size);
    bool all = false;

    while (status == CORE_OK && !all) {
        bool late = mpi_now_ns() > deadline;

        status = check_answers(comm, m, round, &all);
        if (status == CORE_OK && !all && late)
            return core_sdk_error(mpi_host, CORE_ERROR_CANCELLED, MPI_TITLE,
                                  "the timeout passed before the ranks that "
                                  "are left had agreed which they are");
        if (status == CORE_OK && !all)
            nanosleep(&pause, NULL);
    }
    return status;
}

/* After the last round others may go on with this rank, and not with another set. */
static core_status meet(mpi_comm *comm, mpi_meeting *m, int64_t timeout_ns)
{
    int64_t begin = mpi_now_ns();
    core_status status = post(comm, m, TAG_HERE, 1);

    if (status != CORE_OK)
        return status;
    find_ranks(comm, m, begin + timeout_ns / 4 * 3);
    /* Before the majority: it tells those that came too late. */
    status = agree(comm, m, TAG_SEEN, begin + timeout_ns * 2);
    if (status == CORE_OK)
        status = check_majority(comm, m);
    if (status != CORE_OK)
        return status;
    comm->agreed = true;
    return agree(comm, m, TAG_AGREED, begin + timeout_ns * 3);
}

/* Without a deadline, as MPI_Comm_split: all members have said that they call it. */
static core_status create(const mpi_comm *comm, const mpi_meeting *m,
                          MPI_Comm *out)
{
    MPI_Group all, rest;
    int code;

    mpi_lock();
    code = mpi.Comm_group(comm->members, &all);
    if (code == MPI_SUCCESS) {
        code = mpi.Group_incl(all, m->count, m->ranks, &rest);
        mpi.Group_free(&all);
    }
    if (code == MPI_SUCCESS) {
        code = mpi.Comm_create_group(comm->members, rest,
                                     m->first_tag + TAG_CREATE, out);
        mpi.Group_free(&rest);
    }
    if (code == MPI_SUCCESS)
        mpi.Comm_set_errhandler(*out, mpi.ERRORS_RETURN);
    mpi_unlock();
    return code == MPI_SUCCESS ? CORE_OK
                               : mpi_error(code, "MPI_Comm_create_group");
}

static core_status check(const mpi_comm *comm)
{
    if (comm->agreed)
        return core_sdk_error(mpi_host, CORE_ERROR_IO, MPI_TITLE,
                              "this rank has agreed with others before which "
                              "ranks are left, and they may have gone on");
    if (comm->attempts >= ATTEMPTS_MOST)
        return core_sdk_error(mpi_host, CORE_ERROR_IO, MPI_TITLE,
                              "%d attempts; accepted: at most as many",
                              ATTEMPTS_MOST);
    return CORE_OK;
}

core_status mpi_shrink(void *handle, int64_t timeout_ns, uint32_t *out_rank,
                       uint32_t *out_size, void **out_comm)
{
    mpi_comm *comm = handle, *rest;
    core_status status = check(comm);
    mpi_meeting *m;
    int rank = 0;

    *out_comm = NULL;
    mpi_never_finalize();
    if (status != CORE_OK)
        return status;
    m = meeting_new(comm);
    /* Before the ranks agree: the others would wait for one without memory. */
    rest = m == NULL ? NULL : mpi_comm_new(0, comm->size);
    if (rest == NULL)
        return mpi_no_memory();
    status = meet(comm, m, timeout_ns);
    if (status == CORE_OK)
        status = create(comm, m, &rest->data);
    if (status != CORE_OK) {
        mpi_comm_free(rest);
        return status;
    }
    while (m->ranks[rank] != comm->rank)
        rank++;
    rest->rank = rank;
    rest->size = m->count;
    status = mpi_connect(rest, mpi_now_ns() + timeout_ns);
    if (status != CORE_OK)
        return status; /* MPI may still write to it */
    *out_rank = (uint32_t)rank;
    *out_size = (uint32_t)m->count;
    *out_comm = rest;
    return CORE_OK;
}
