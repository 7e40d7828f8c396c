/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* progress.h: which collective each rank of a communicator has reached.  The
 * error of a call that waits for other ranks until its timeout names them by it,
 * also if the engine cannot.
 *
 * Ranks that met in a file share its memory, and those that met over TCP keep
 * their connections to rank 0, with a thread on each rank that only answers
 * questions.  A collective stores its number, and sends nothing.  The parts of
 * such a communicator use the same memory or connections, and have their own
 * numbers under a key. */

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

/* Keys: none; the communicator whose ranks met; others are hashes. */
#define CORE__PROGRESS_FREE UINT64_C(0)
#define CORE__PROGRESS_WHOLE UINT64_C(1)

/* How many communicators of the same store a rank counts at the same time; of
 * others nothing is known. */
enum { CORE__PROGRESS_COUNTERS = 64 };

/* The last collective of a rank on a communicator. */
typedef struct core__progress_counter {
    _Atomic uint64_t key;
    _Atomic uint64_t reached;
} core__progress_counter;

typedef struct core__progress_store core__progress_store;

/* How the numbers of the other ranks are found. */
typedef struct core__progress_way {
    /* Stores those of all ranks, for the communicator of a key; false if they
     * cannot be found. */
    bool (*ask)(core__progress_store *store, uint64_t key,
                uint64_t *out_reached);
    /* own: in the process that created it.  Otherwise there is no thread. */
    void (*end)(core__progress_store *store, bool own);
} core__progress_way;

/* What the ranks that met share: for the communicator and its parts. */
struct core__progress_store {
    const core__progress_way *way;
    uint32_t rank, size;
    _Atomic int64_t wait_ns;      /* for the answers of the other ranks */
    core__progress_counter *mine; /* CORE__PROGRESS_COUNTERS of this rank */
    _Atomic uint32_t references;  /* of communicators */
    _Atomic uint64_t used; /* counters of communicators, a bit for each */
    _Atomic uint32_t next; /* counter to be used */
};

/* Of a communicator. */
typedef struct core__progress {
    core__progress_store *store;
    uint64_t key;
    core__progress_counter *mine;
    uint32_t rank, size;
    uint32_t members[]; /* their ranks in the store */
} core__progress;

/* The functions that create one return NULL if that is not possible, which is no
 * error: messages then name no ranks. */

/* The size of the file of a store of which ranks share the memory, and where the name
 * of the machine begins, which core__progress_file_begin stores at `text`; zeros
 * follow. */
enum { CORE__PROGRESS_FILE_HEAD = 40 };
size_t core__progress_file_machine(uint32_t size);
size_t core__progress_file_size(uint32_t size);
void core__progress_file_begin(void *text);
/* file: is left open, and may be closed. */
core__progress *core__progress_of_file(int file, uint32_t rank, uint32_t size);

/* Rank 0.  peers: the connection of each rank but 0, or -1; the memory and the
 * connections are the progress's from then on, also if it returns NULL. */
core__progress *core__progress_of_server(int *peers, uint32_t size);
/* Another rank.  connection: as above. */
core__progress *core__progress_of_client(int connection, uint32_t rank,
                                         uint32_t size);

/* Of a part of a communicator.  number: of the call that makes parts, of which
 * the first has rank `first`; members: `size` ranks of the communicator, in the
 * order of the part. */
core__progress *core__progress_of_part(core__progress *whole, uint64_t number,
                                       uint32_t first, const uint32_t *members,
                                       uint32_t rank, uint32_t size);

/* For those that find numbers: prepares the parts of a store that are the same
 * for every way, and creates the progress of all its ranks; NULL: no memory. */
core__progress *core__progress_begin(core__progress_store *store);
/* The number under a key; UNKNOWN: there is none. */
uint64_t core__progress_find(const core__progress_counter *counters,
                             uint32_t count, uint64_t key);

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
/* The store ends with the last of its communicators. */
void core__progress_end(core__progress *progress, bool own);

#endif
