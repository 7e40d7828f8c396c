/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* mpi_engine.h: what the files of this plugin share. */

#ifndef PLUGINS_MPI_MPI_ENGINE_H
#define PLUGINS_MPI_MPI_ENGINE_H

#include <libcore/sdk.h>

#include <mpi.h>

#include <stdatomic.h>
#include <stdbool.h>

#ifdef OPEN_MPI
#define MPI_NAME "openmpi"
#define MPI_TITLE "Open MPI"
#else
#define MPI_NAME "mpich"
#define MPI_TITLE "MPICH"
#endif

/* clang-format off */
/* The functions of MPI that the plugin calls. */
#define MPI_FUNCTIONS(X)                                              \
    X(Init_thread)                                                    \
    X(Query_thread)                                                   \
    X(Comm_idup)                                                      \
    X(Initialized)                                                    \
    X(Finalized)                                                      \
    X(Finalize) X(Comm_rank) X(Comm_size) X(Comm_split)   \
        X(Comm_free) X(Comm_set_errhandler) X(Isend) X(Irecv) X(Test) \
            X(Testall) X(Iallreduce) X(Ibcast) X(Iallgather)          \
                X(Ireduce_scatter_block) X(Ialltoall) X(Ibarrier)     \
    X(Ireduce)                                                        \
    X(Ialltoallv) X(Reduce_local)                                     \
    X(Comm_group) X(Comm_create_group) X(Group_incl) X(Group_free)    \
                    X(Error_string) X(Get_library_version) X(Iprobe)

/* The handles of MPI that it uses, with their names in Open MPI, where they
 * are addresses of variables in the library. */
#define MPI_HANDLES(X)                                       \
    X(MPI_Comm, COMM_WORLD, ompi_mpi_comm_world)             \
    X(MPI_Errhandler, ERRORS_RETURN, ompi_mpi_errors_return) \
    X(MPI_Request, REQUEST_NULL, ompi_request_null)          \
    X(MPI_Datatype, DOUBLE, ompi_mpi_double)                 \
    X(MPI_Datatype, FLOAT, ompi_mpi_float)                   \
    X(MPI_Datatype, INT64_T, ompi_mpi_int64_t)               \
    X(MPI_Datatype, INT32_T, ompi_mpi_int32_t)               \
    X(MPI_Datatype, INT16_T, ompi_mpi_int16_t)               \
    X(MPI_Datatype, INT8_T, ompi_mpi_int8_t)                 \
    X(MPI_Datatype, UINT8_T, ompi_mpi_uint8_t)               \
    X(MPI_Op, SUM, ompi_mpi_op_sum)                          \
    X(MPI_Op, PROD, ompi_mpi_op_prod)                        \
    X(MPI_Op, MIN, ompi_mpi_op_min) X(MPI_Op, MAX, ompi_mpi_op_max)

/* clang-format on */

typedef struct mpi_library {
#define MEMBER(name) __typeof__(MPI_##name) *name;
    MPI_FUNCTIONS(MEMBER)
#undef MEMBER
#define MEMBER(type, name, symbol) type name;
    MPI_HANDLES(MEMBER)
#undef MEMBER
#ifdef MPICH_VERSION
    int (*Comm_revoke)(MPI_Comm); /* MPIX_; NULL: it cannot be used */
#endif
} mpi_library;

extern const core_host *mpi_host;
extern mpi_library mpi;

/* Opens the library and initialises MPI, once.  UNSUPPORTED with a reason. */
core_status mpi_probe(void *user);
core_status mpi_start(void);
/* From now on the process does not wait for others at its end. */
void mpi_never_finalize(void);
/* At its end, the process waits that long for the others. */
void mpi_set_finalize_timeout(int64_t timeout_ns);

/* The library is called by one thread at a time. */
void mpi_lock(void);
bool mpi_try_lock(void);
void mpi_unlock(void);

core_status mpi_error(int code, const char *what);

enum { MPI_EXCHANGE_MOST = 128 };

/* An all_reduce of at most MPI_SMALL_BYTES on at most MPI_SMALL_RANKS ranks moves its
 * elements with the exchange before it, to all ranks, and each rank reduces them. */
enum { MPI_SMALL_BYTES = 4096, MPI_SMALL_RANKS = 4 };

/* Those in the first message; a second one has the rest.  On one machine, Open MPI sends
 * messages of up to 4,096 bytes in half of the time of longer ones. */
#ifdef OPEN_MPI
enum { MPI_FIRST_BYTES = 2048 };
#else
enum { MPI_FIRST_BYTES = MPI_SMALL_BYTES };
#endif

typedef struct mpi_meeting mpi_meeting; /* of a shrink */
typedef struct mpi_shared mpi_shared;   /* shared.c */

typedef struct mpi_comm {
    MPI_Comm data;    /* collectives */
    MPI_Comm control; /* exchange, and whether the ranks respond */
    MPI_Comm members; /* shrink; control, unless abort revokes that */
    int rank, size;
    atomic_bool aborted;
    MPI_Request *requests; /* of exchange, 2 * size for each of two messages */
    MPI_Status *statuses;
    /* Of exchange; kept after a failure, because messages may be unfinished. */
    char *inbox;
    char *outbox;
    size_t
        message; /* bytes that both messages of a rank may have: those of exchange,
                     * and for few ranks MPI_SMALL_BYTES more */
    int *parts; /* counts and places of the parts of an all_to_all, 4 * size */
    char *pieces;  /* of an all_reduce in a ring; NULL: none yet */
    void *scratch; /* f16 and bf16 as f32 */
    size_t scratch_size;
    mpi_meeting *meetings;      /* the last one first */
    int attempts;               /* of a shrink */
    bool agreed;                /* a shrink has promised to create its result */
    bool shares;                /* mpi_shared_begin was called */
    mpi_shared *shared;         /* NULL: the ranks share no memory */
    uint64_t exchanges, rounds; /* in that memory */
} mpi_comm;

int64_t mpi_now_ns(void);

/* The memory of a communicator; NULL: there is none, which is the error of
 * mpi_no_memory. */
mpi_comm *mpi_comm_new(int rank, int size);
/* Without its handles of MPI.  Accepts NULL. */
void mpi_comm_free(mpi_comm *comm);
core_status mpi_no_memory(void);
/* Duplicates a communicator, without the lock while it waits for the ranks.  After an
 * error, `comm` stays: MPI may still write to it. */
core_status mpi_duplicate(mpi_comm *comm, MPI_Comm of, MPI_Comm *out,
                          int64_t deadline);
/* Duplicates comm->data for the other messages, in the same way. */
core_status mpi_connect(mpi_comm *comm, int64_t deadline);

/* Waits for requests; *out_done says whether they completed by the deadline. */
core_status mpi_wait(mpi_comm *comm, MPI_Request *requests, int count,
                     int64_t deadline, bool *out_done);

core_status mpi_exchange(void *comm, const void *mine, uint32_t bytes,
                         void *out_all, int64_t timeout_ns);
/* mpi_exchange in messages of MPI. */
core_status mpi_exchange_messages(mpi_comm *comm, const void *mine,
                                  uint32_t bytes, void *out_all,
                                  int64_t deadline);
/* Gathers, as mpi_exchange does, and moves `size` bytes of data to all ranks if what all pass
 * in `mine` is equal: those of a rank are in its mpi_message, after MPI_EXCHANGE_MOST, until
 * the next exchange. */
core_status mpi_exchange_data(mpi_comm *comm, const void *mine, uint32_t bytes,
                              const void *data, size_t size, void *out_all,
                              int64_t timeout_ns, bool *out_equal);
/* What a rank has sent in the last exchange. */
const char *mpi_message(const mpi_comm *comm, int rank);
/* Lets MPI go on with what other ranks may wait for. */
void mpi_advance(const mpi_comm *comm);
/* CANCELLED, naming the ranks that do not respond. */
core_status mpi_report_missing_ranks(mpi_comm *comm, int64_t timeout_ns);
/* all_reduce in place; *out_done: by the deadline. */
core_status mpi_ring_all_reduce(mpi_comm *comm, void *data, uint64_t count,
                                uint64_t item, MPI_Datatype type, MPI_Op op,
                                int64_t deadline, bool *out_done);

/* Between ranks on one machine, in comm->shared.  begin: all ranks call it once, after
 * their first exchange; the ranks may share no memory afterwards. */
core_status mpi_shared_begin(mpi_comm *comm, int64_t deadline);
core_status mpi_shared_settings(void);
void mpi_shared_end(mpi_comm *comm);
core_status mpi_shared_exchange(mpi_comm *comm, const void *mine,
                                uint32_t bytes, const void *data, size_t size,
                                int64_t deadline);
const char *mpi_shared_message(const mpi_comm *comm, int rank);

/* An all_reduce, reduce_scatter or all_gather. */
typedef struct mpi_shared_call {
    uint32_t kind;
    uint64_t count; /* as in core_collective */
    uint64_t item;  /* bytes of an element */
    MPI_Datatype type;
    MPI_Op op; /* all_gather has none */
    const void *input;
    void *output;
    int64_t deadline;
} mpi_shared_call;

/* *out_done: by the deadline. */
core_status mpi_shared_run(mpi_comm *comm, const mpi_shared_call *call,
                           bool *out_done);

core_status mpi_run(void *comm, const core_collective *call);
core_status mpi_exchange_and_run(void *comm, const core_collective *call,
                                 const void *mine, uint32_t bytes,
                                 void *out_all, uint32_t *out_ran);
core_status mpi_shrink(void *comm, int64_t timeout_ns, uint32_t *out_rank,
                       uint32_t *out_size, void **out_comm);

void mpi_meeting_free(mpi_meeting *last);

extern const core_collectives_interface mpi_collectives;

#endif
