/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* all_reduce of many elements in messages of Open MPI, between ranks that share no memory
 * (shared.c).  Its MPI_Allreduce has no deadline, and its MPI_Iallreduce takes longer than
 * this: on one machine with two processors (AMD EPYC, Zen 3), in turns, the least of 6
 * runs, this and MPI_Iallreduce
 *
 *     ranks  16 KB      128 KB    1 MB       4 MB        16 MB       64 MB
 *     2      8.7, 10.6  25, 40    130, 265   0.96, 0.81  4.5, 6.7    21, 87
 *     3                           359, 398   1.6, 0.86   7.9, 6.0    33, 83
 *     4      20, 20     104, 62   420, 437   2.8, 1.6    14, 8.4     57, 90
 *
 * in µs up to 1 MB and in ms above (docs/distributed.md).
 *
 * The ranks form a ring, and the elements as many chunks.  In n - 1 steps each rank sends
 * a chunk to the next rank, and adds what it receives from the one before; each chunk is
 * then complete on one rank, so that all ranks get the same bits.  In n - 1 more steps
 * the chunks go around.  This moves the least data that an all_reduce can: (n - 1) / n of
 * the elements, twice.  Chunks are moved in pieces that fit into a cache. */

#include "mpi_engine.h"

#include <stdlib.h>
#include <string.h>

enum { TAG_RING = 2, PIECE = 1 << 19 };

/* Of each piece: what is received, and what is sent. */
enum { RECEIVED, SENT, EACH };

typedef struct ring {
    mpi_comm *comm;
    MPI_Datatype type;
    MPI_Op op;
    uint64_t count, item;
    char *data;
    int64_t deadline;
    MPI_Request requests[2][EACH]; /* of two pieces at a time */
} ring;

typedef struct part {
    uint64_t first, count;
} part;

static part chunk_of(const ring *g, int chunk)
{
    uint64_t n = (uint64_t)g->comm->size,
             c = (uint64_t)((chunk % g->comm->size + g->comm->size) %
                            g->comm->size),
             first = g->count / n * c + (c < g->count % n ? c : g->count % n);

    return (part){first, g->count / n + (c < g->count % n)};
}

static part piece_of(const ring *g, part chunk, uint64_t piece)
{
    uint64_t most = PIECE / g->item, at = piece * most;
    uint64_t left = chunk.count > at ? chunk.count - at : 0;

    return (part){chunk.first + at, left < most ? left : most};
}

static char *address(const ring *g, part p)
{
    return g->data + p.first * g->item;
}

static char *received_piece(const ring *g, uint64_t piece)
{
    return g->comm->pieces + (piece & 1) * PIECE;
}

/* `to` is the ring's memory or, if the piece is to be reduced, that of pieces. */
static core_status begin(ring *g, uint64_t piece, part sent, part received,
                         void *to)
{
    MPI_Request *requests = g->requests[piece & 1];
    int rank = g->comm->rank, size = g->comm->size, code = MPI_SUCCESS;

    mpi_lock();
    if (received.count > 0)
        code = mpi.Irecv(to, (int)received.count, g->type,
                         (rank + size - 1) % size, TAG_RING, g->comm->data,
                         &requests[RECEIVED]);
    if (sent.count > 0 && code == MPI_SUCCESS)
        code = mpi.Isend(address(g, sent), (int)sent.count, g->type,
                         (rank + 1) % size, TAG_RING, g->comm->data,
                         &requests[SENT]);
    mpi_unlock();
    return code == MPI_SUCCESS ? CORE_OK
                               : mpi_error(code, "a message cannot be sent");
}

static core_status reduce(const ring *g, part received, uint64_t piece)
{
    int code;

    mpi_lock();
    code = mpi.Reduce_local(received_piece(g, piece), address(g, received),
                            (int)received.count, g->type, g->op);
    mpi_unlock();
    return code == MPI_SUCCESS ? CORE_OK : mpi_error(code, "MPI_Reduce_local");
}

/* One chunk goes to the next rank, and one comes.  While a piece is waited for, the next
 * one is moved. */
static core_status step(ring *g, part sent, part received, bool reduces,
                        bool *out_done)
{
    uint64_t most = PIECE / g->item;
    uint64_t longest =
        sent.count > received.count ? sent.count : received.count;
    uint64_t pieces = (longest + most - 1) / most;
    core_status status = CORE_OK;

    *out_done = true;
    for (uint64_t p = 0; p <= pieces && status == CORE_OK; p++) {
        part in = piece_of(g, received, p);

        if (p < pieces)
            status = begin(g, p, piece_of(g, sent, p), in,
                           reduces ? received_piece(g, p) : address(g, in));
        if (p == 0 || status != CORE_OK)
            continue;
        status = mpi_wait(g->comm, g->requests[(p - 1) & 1], EACH, g->deadline,
                          out_done);
        if (status == CORE_OK && !*out_done)
            break;
        in = piece_of(g, received, p - 1);
        if (status == CORE_OK && reduces && in.count > 0)
            status = reduce(g, in, p - 1);
    }
    return status;
}

core_status mpi_ring_all_reduce(mpi_comm *comm, void *data, uint64_t count,
                                uint64_t item, MPI_Datatype type, MPI_Op op,
                                int64_t deadline, bool *out_done)
{
    ring g = {.comm = comm,
              .type = type,
              .op = op,
              .count = count,
              .item = item,
              .data = data,
              .deadline = deadline};
    int rank = comm->rank, n = comm->size;
    core_status status = CORE_OK;

    if (comm->pieces == NULL)
        comm->pieces = malloc(2 * PIECE);
    if (comm->pieces == NULL)
        return mpi_no_memory();
    for (int i = 0; i < 2; i++)
        g.requests[i][RECEIVED] = g.requests[i][SENT] = mpi.REQUEST_NULL;
    *out_done = true;
    for (int s = 0; s < n - 1 && status == CORE_OK && *out_done; s++)
        status = step(&g, chunk_of(&g, rank - s), chunk_of(&g, rank - s - 1),
                      true, out_done);
    for (int s = 0; s < n - 1 && status == CORE_OK && *out_done; s++)
        status = step(&g, chunk_of(&g, rank + 1 - s), chunk_of(&g, rank - s),
                      false, out_done);
    return status;
}
