/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* progress.h: which collective each rank of a communicator has reached.  The
 * error of a call that waits for other ranks until its timeout names them by it,
 * also if the engine cannot.
 *
 * Ranks that met in a file share its memory, and those that met over TCP keep
 * their connections to rank 0, with a thread on each rank that only answers
 * questions.  A collective stores its number, and sends nothing. */

#ifndef CORE_COMM_PROGRESS_H
#define CORE_COMM_PROGRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is stored for a rank instead of the number of a collective. */
#define CORE__PROGRESS_UNKNOWN UINT64_MAX /* it does not take part in this */
#define CORE__PROGRESS_ENDED (UINT64_MAX - 1)  /* its connection is closed */
#define CORE__PROGRESS_SILENT (UINT64_MAX - 2) /* it does not answer */

typedef struct core__progress core__progress;

/* How the numbers of the other ranks are found. */
typedef struct core__progress_way {
    /* Stores those of all ranks; false if they cannot be found. */
    bool (*ask)(core__progress *progress, uint64_t *out_reached);
    /* own: in the process that created it.  Otherwise there is no thread. */
    void (*end)(core__progress *progress, bool own);
} core__progress_way;

struct core__progress {
    const core__progress_way *way;
    uint32_t rank, size;
    _Atomic int64_t wait_ns; /* for the answers of the other ranks */
    _Atomic uint64_t *mine;  /* the last collective of this rank */
};

/* The functions that create one return NULL if that is not possible, which is no
 * error: messages then name no ranks. */

/* The size of the file of a store of which ranks share the memory, after the id;
 * rank 0 writes what core__progress_file_begin stores at `text`. */
size_t core__progress_file_size(uint32_t size);
void core__progress_file_begin(void *text, uint32_t size);
/* file: is left open, and may be closed. */
core__progress *core__progress_of_file(int file, uint32_t rank, uint32_t size);

/* Rank 0.  peers: the connection of each rank but 0, or -1; the memory and the
 * connections are the progress's from then on, also if it returns NULL. */
core__progress *core__progress_of_server(int *peers, uint32_t size);
/* Another rank.  connection: as above. */
core__progress *core__progress_of_client(int connection, uint32_t rank,
                                         uint32_t size);

/* Ends a connection for which there will be no progress: the other rank then
 * says nothing of this one. */
void core__progress_decline(int connection);

/* Accept NULL. */
/* A rank that has reached a collective may be slow to answer, so that the ranks
 * of a communicator with a long timeout wait longer. */
void core__progress_set_timeout(core__progress *progress, int64_t timeout_ns);
void core__progress_reach(core__progress *progress, uint64_t sequence);
/* Appends to the thread's error which ranks have not reached a collective. */
void core__progress_name_missing(core__progress *progress, uint64_t sequence);
void core__progress_end(core__progress *progress, bool own);

#endif
