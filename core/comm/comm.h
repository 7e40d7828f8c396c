/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* comm.h: communicators and the engines that move their data. */

#ifndef CORE_COMM_COMM_H
#define CORE_COMM_COMM_H

#include "comm/progress.h"
#include "device/device.h"
#include "tensor/tensor.h"

#include <libcore/comm.h>
#include <libcore/plugins.h>

#include <pthread.h>

/* An engine that a plugin registered.  Stays in the list; `plugin` is NULL once
 * its plugin has been closed. */
typedef struct core__comm_engine {
    struct core__comm_engine *next;
    core_plugin *plugin;
    const core_plugin_information *about; /* its plugin; stays */
    core_collectives_interface table;     /* complete, zero-filled copy */
    void *user;
    char name[32];
    _Atomic uint32_t comms; /* communicators that use it */
} core__comm_engine;

/* A collective that the ranks agree on; compared before it runs. */
typedef struct core__comm_header {
    uint64_t sequence;
    uint64_t count;
    uint32_t kind;
    uint32_t dtype;
    uint32_t reduction;
    uint32_t root;
} core__comm_header;

/* Of headers that are no call. */
enum {
    CORE__COMM_GROUP = 254, /* of `count` calls, from `sequence` */
    CORE__COMM_FAILED = 255 /* its rank has failed; `dtype` is the status */
};

/* A call with its tensors; NULL: none. */
typedef struct core__comm_call {
    core_collective call;
    core_tensor *input, *output;
} core__comm_call;

typedef struct core__comm_batch {
    const core__comm_call *calls;
    uint32_t count;
} core__comm_batch;

/* The calls of a group that has begun (group.c). */
typedef struct core__comm_group core__comm_group;

struct core_comm {
    _Atomic uint32_t references;
    /* Of the memory: the callers', counted as one, and one of each job on the
     * stream. */
    _Atomic uint32_t holds;
    core__comm_engine *engine;
    void *impl;          /* the engine's handle */
    core_device *device; /* with a reference */
    core_stream *stream; /* of its own; NULL on a synchronous device */
    uint32_t rank, size;
    uint32_t flags;
    int64_t timeout_ns;
    uint8_t process;           /* core__fork_mark of its process */
    _Atomic bool in_call;      /* a thread is making a call */
    _Atomic uint64_t sequence; /* of collectives */
    core__comm_group *group;   /* NULL: none; of calls */
    _Atomic uint64_t compared; /* with other ranks, as parts of groups */
    pthread_mutex_t lock;      /* guards the rest */
    core_error *error;         /* the first; NULL: none */
    _Atomic bool dropped;      /* a collective did not run: its stream failed */
    core__progress *progress;  /* of all ranks; NULL: it is not known */
    uint64_t splits;           /* calls that divide it; of calls */
    core__comm_header *all; /* headers of all ranks, for comparison; used by the
                             * running collective alone; CORE__COMM_ABOUT bytes
                             * for each rank, which creation compares first */
};

/* Whether the engine moves the memory of the device: the core copies nothing. */
static inline bool core__comm_is_on_device(const core_comm *comm)
{
    return comm->engine->table.create_on_device != NULL;
}

/* Keeps memory that a failed collective may still use; accepts NULL. */
void core__comm_abandon(void *memory);

/* For the loader. */
core_status core__comm_engine_add(core_plugin *plugin,
                                  const core_plugin_information *about,
                                  const void *table, void *user);
void core__comm_engines_remove(const core_plugin *plugin);
bool core__comm_engine_is_in_use(const core_plugin *plugin);

/* Moves all of the bytes over a connection; false at the deadline, and if the
 * other side has closed. */
bool core__store_transfer(int socket, void *data, size_t size, bool out,
                          int64_t deadline);
int64_t core__store_now_ns(void); /* the clock of deadlines */

/* The first engine of a name that can be used here, counted as in use;
 * NOT_FOUND with the reason of each that cannot. */
core_status core__comm_engine_find(const char *name,
                                   core__comm_engine **out_engine);

/* What a rank runs: a text with the versions of its libcore and plugin, padded with
 * NULs, and a last byte of 1.  Every version of libcore begins what ranks send and
 * store with texts of this size. */
enum { CORE__COMM_ABOUT = 128 };
_Static_assert(sizeof(core__comm_header) <= CORE__COMM_ABOUT, "see `all`");

/* Where they begin in a file, after the id and the number of ranks. */
enum { CORE__STORE_TEXTS = CORE_COLLECTIVES_ID_SIZE + 8 };

/* INCOMPATIBLE: a rank runs something else than rank 0. */
core_status core__store_compare(uint32_t rank, const char *first,
                                const char *about);

/* Waits for all ranks, compares what they run, and passes the id of rank 0 to the
 * others; store: as in core_comm_options.  *out_progress: the caller's; NULL if
 * there is none. */
core_status core__store_share_id(const char *store, uint32_t rank,
                                 uint32_t size, int64_t timeout_ns,
                                 const char *about, void *id,
                                 core__progress **out_progress);
/* After all ranks have the id: removes what rank 0 stored. */
void core__store_end(const char *store, uint32_t rank);

/* Begins and ends a call of a thread: fails for a comm that is used by another
 * thread, from before a fork, or failed.  name: of the public function. */
core_status core__comm_begin(core_comm *comm, const char *name);
void core__comm_end(core_comm *comm);

/* Runs a collective, in a call, in the order of the current stream.  input,
 * output: contiguous, on the comm's device; NULL: none. */
core_status core__comm_submit(core_comm *comm, core_collective *call,
                              core_tensor *input, core_tensor *output);
/* The same for a call that has its number, also if a group has begun. */
core_status core__comm_submit_now(core_comm *comm, core_collective *call,
                                  core_tensor *input, core_tensor *output);

/* Several of them, with consecutive numbers, at once: for engines that have
 * run_group. */
core_status core__comm_submit_batch(core_comm *comm,
                                    const core__comm_batch *calls);
/* What such an engine reads and writes; NULL: nothing. */
void *core__comm_address(const core_tensor *tensor);

/* Whether a collective can be enqueued in the order of the current stream. */
core_status core__comm_check_stream(core_comm *comm);

/* The comm fails with the thread's error, if it has not failed, and the calls
 * of the other ranks fail as after core_comm_abort. */
void core__comm_leave(core_comm *comm);

/* Adds a call to the group that has begun; frees a group without its calls. */
core_status core__comm_group_add(core_comm *comm, const core_collective *call,
                                 core_tensor *input, core_tensor *output);
void core__comm_group_drop(core_comm *comm);

/* Compares a call with those of the other ranks, the counts of its parts, or, for a
 * message, with that of the other rank.  *out_ran: 1 if the engine has also performed
 * the call. */
core_status core__comm_compare(core_comm *comm, const core_collective *call,
                               uint32_t *out_ran);
core_status core__comm_compare_counts(core_comm *comm,
                                      const core_collective *call);
core_status core__comm_compare_pair(core_comm *comm,
                                    const core_collective *call);
/* All calls of a group at once. */
core_status core__comm_compare_group(core_comm *comm,
                                     const core__comm_header *calls,
                                     size_t count);
core__comm_header core__comm_header_of(const core_collective *call);
/* "all_reduce(sum) of 12 f32 (collective 7)" */
void core__comm_describe(const core__comm_header *header, char *text,
                         size_t size);

/* Tells the other ranks, at their next collective, that this one does not take
 * part in it, because of the thread's error: they get an error that names this
 * rank.  Waits for them, at most for the timeout.  The comm fails with the
 * thread's error.  Without comparison of calls the others cannot be notified. */
void core__comm_report(core_comm *comm);
/* Runs it at once, in the calling thread. */
core_status core__comm_run(core_comm *comm, const core_collective *call);

/* For a job on the stream, which must not end the communicator: that waits for
 * the stream. */
void core__comm_add_job_reference(core_comm *comm);
void core__comm_drop_job_reference(core_comm *comm);

/* The name of the public function of a kind of collective, "core_all_reduce"; it
 * begins with "core_" for an unknown kind, too.  Static. */
const char *core__collective_name(uint32_t kind);

/* Stores the thread's error as the comm's, unless it has one. */
void core__comm_fail(core_comm *comm);
/* Raises the comm's error in this thread. */
core_status core__comm_raise(core_comm *comm);

#endif
