/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The engine "mpi": communicators, and the plugin. */

#include "mpi_engine.h"

#include <stdlib.h>

/* The version of mpi.h, whose library is needed. */
#define TEXT_OF(number) #number
#define DOTTED(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)
#ifdef OPEN_MPI
#define MPI_VERSION_TEXT \
    DOTTED(OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION)
#else
#define MPI_VERSION_TEXT MPICH_VERSION
#endif

CORE_SDK_NOTE_SINCE(6, MPI_NAME, "libcore", "0.1", "Apache-2.0", "",
                    MPI_TITLE " " MPI_VERSION_TEXT);

const core_host *mpi_host;

static core_status world(void *user, uint32_t *out_rank, uint32_t *out_size)
{
    core_status status = mpi_start();
    int rank = 0, size = 0;

    (void)user;
    if (status != CORE_OK)
        return status;
    mpi_lock();
    mpi.Comm_rank(mpi.COMM_WORLD, &rank);
    mpi.Comm_size(mpi.COMM_WORLD, &size);
    mpi_unlock();
    *out_rank = (uint32_t)rank;
    *out_size = (uint32_t)size;
    return CORE_OK;
}

void mpi_comm_free(mpi_comm *comm)
{
    if (comm == NULL)
        return;
    free(comm->requests);
    free(comm->statuses);
    free(comm->inbox);
    free(comm->outbox);
    free(comm->parts);
    free(comm->pieces);
    free(comm->scratch);
    mpi_shared_end(comm);
    mpi_meeting_free(comm->meetings);
    free(comm);
}

/* failed: messages may be unfinished, and freeing would wait for the others. */
static void destroy(void *handle, uint32_t failed)
{
    mpi_comm *comm = handle;

    if (failed) {
        mpi_never_finalize();
        mpi_shared_end(comm); /* of which MPI knows nothing */
        return;               /* unfinished calls use the rest */
    }
    mpi_lock();
    mpi.Comm_free(&comm->data);
    if (comm->members != comm->control)
        mpi.Comm_free(&comm->members);
    mpi.Comm_free(&comm->control);
    mpi_unlock();
    mpi_comm_free(comm);
}

mpi_comm *mpi_comm_new(int rank, int size)
{
    mpi_comm *comm = calloc(1, sizeof *comm);

    if (comm == NULL)
        return NULL;
    comm->rank = rank;
    comm->size = size;
    comm->requests = calloc(4 * (size_t)size, sizeof(MPI_Request));
    comm->statuses = calloc(2 * (size_t)size, sizeof(MPI_Status));
    comm->message =
        MPI_EXCHANGE_MOST + (size <= MPI_SMALL_RANKS ? MPI_SMALL_BYTES : 0);
    comm->inbox = calloc((size_t)size, comm->message);
    comm->outbox = calloc(1, comm->message);
    comm->parts = calloc(4 * (size_t)size, sizeof(int));
    if (comm->requests != NULL && comm->statuses != NULL &&
        comm->inbox != NULL && comm->outbox != NULL && comm->parts != NULL)
        return comm;
    mpi_comm_free(comm);
    return NULL;
}

core_status mpi_no_memory(void)
{
    return core_sdk_error(mpi_host, CORE_ERROR_OUT_OF_MEMORY, MPI_TITLE,
                          "cannot allocate host memory for a communicator");
}

core_status mpi_duplicate(mpi_comm *comm, MPI_Comm of, MPI_Comm *out,
                          int64_t deadline)
{
    MPI_Request request = mpi.REQUEST_NULL;
    core_status status;
    bool done;
    int code;

    mpi_lock();
    code = mpi.Comm_idup(of, out, &request);
    mpi_unlock();
    if (code != MPI_SUCCESS)
        return mpi_error(code, "MPI_Comm_idup");
    status = mpi_wait(comm, &request, 1, deadline, &done);
    if (status != CORE_OK || !done)
        mpi_never_finalize();
    if (status == CORE_OK && !done)
        return core_sdk_error(mpi_host, CORE_ERROR_CANCELLED, MPI_TITLE,
                              "the timeout passed before all ranks created "
                              "the communicator");
    if (status == CORE_OK) {
        mpi_lock();
        mpi.Comm_set_errhandler(*out, mpi.ERRORS_RETURN);
        mpi_unlock();
    }
    return status;
}

core_status mpi_connect(mpi_comm *comm, int64_t deadline)
{
    core_status status =
        mpi_duplicate(comm, comm->data, &comm->control, deadline);

    comm->members = comm->control;
#ifdef MPICH_VERSION
    if (status == CORE_OK && mpi.Comm_revoke != NULL)
        status = mpi_duplicate(comm, comm->data, &comm->members, deadline);
#endif
    return status;
}

static core_status create(void *user, uint32_t rank, uint32_t size,
                          const void *id, int64_t timeout_ns, void **out_comm)
{
    int64_t deadline = mpi_now_ns() + timeout_ns;
    mpi_comm *comm = mpi_comm_new((int)rank, (int)size);
    core_status status;

    (void)user;
    (void)id;
    *out_comm = NULL;
    if (comm == NULL)
        return mpi_no_memory();
    mpi_set_finalize_timeout(timeout_ns);
    status = mpi_duplicate(comm, mpi.COMM_WORLD, &comm->data, deadline);
    if (status == CORE_OK)
        status = mpi_connect(comm, deadline);
    if (status == CORE_OK)
        *out_comm = comm;
    return status;
}

/* MPI_Comm_split has no form with a deadline, but the core calls this right
 * after an exchange, so that all ranks come to it. */

static core_status split(void *handle, uint32_t color, uint32_t rank,
                         uint32_t size, int64_t timeout_ns, void **out_comm)
{
    int64_t deadline = mpi_now_ns() + timeout_ns;
    mpi_comm *comm = handle, *part;
    core_status status;
    int code;

    *out_comm = NULL;
    if (color > INT32_MAX)
        return core_sdk_error(mpi_host, CORE_ERROR_INVALID_ARGUMENT, MPI_TITLE,
                              "the color is %u; accepted: 0 to %d", color,
                              INT32_MAX);
    part = mpi_comm_new((int)rank, (int)size);
    if (part == NULL)
        return mpi_no_memory();
    mpi_lock();
    code = mpi.Comm_split(comm->data, (int)color, (int)rank, &part->data);
    mpi_unlock();
    if (code != MPI_SUCCESS) {
        mpi_comm_free(part);
        return mpi_error(code, "MPI_Comm_split");
    }
    status = mpi_connect(part, deadline);
    if (status == CORE_OK)
        *out_comm = part;
    return status;
}

/* Not the communicator of a shrink, which may follow. */
static void abort_comm(void *handle)
{
    mpi_comm *comm = handle;

    atomic_store(&comm->aborted, true);
#ifdef MPICH_VERSION
    if (mpi.Comm_revoke != NULL) {
        mpi_lock();
        mpi.Comm_revoke(comm->data);
        mpi.Comm_revoke(comm->control);
        mpi_unlock();
    }
#endif
}

const core_collectives_interface mpi_collectives = {
    .struct_size = sizeof mpi_collectives,
    .dtypes = CORE_DTYPE_MASK(CORE_F64) | CORE_DTYPE_MASK(CORE_F32) |
              CORE_DTYPE_MASK(CORE_F16) | CORE_DTYPE_MASK(CORE_BF16) |
              CORE_DTYPE_MASK(CORE_I64) | CORE_DTYPE_MASK(CORE_I32) |
              CORE_DTYPE_MASK(CORE_I16) | CORE_DTYPE_MASK(CORE_I8) |
              CORE_DTYPE_MASK(CORE_U8),
    .reductions =
        CORE_REDUCE_MASK(CORE_REDUCE_SUM) | CORE_REDUCE_MASK(CORE_REDUCE_PROD) |
        CORE_REDUCE_MASK(CORE_REDUCE_MIN) | CORE_REDUCE_MASK(CORE_REDUCE_MAX) |
        CORE_REDUCE_MASK(CORE_REDUCE_AVG),
    .kinds = CORE_COLLECTIVE_MASK(CORE_COLLECTIVE_REDUCE) |
             CORE_COLLECTIVE_MASK(CORE_COLLECTIVE_ALL_TO_ALL_COUNTS),
    .engine = {"mpi", 3},
    .probe = mpi_probe,
    .world = world,
    .create = create,
    .destroy = destroy,
    .split = split,
    .exchange = mpi_exchange,
    .run = mpi_run,
    .exchange_and_run = mpi_exchange_and_run,
    .abort = abort_comm,
    .shrink = mpi_shrink,
};

static core_status init(const core_host *host, core_registry *registry,
                        void **out_plugin)
{
    core_status status;

    *out_plugin = NULL;
    mpi_host = host;
    status = mpi_shared_settings();
    if (status != CORE_OK)
        return status;
    return host->register_interface(registry,
                                    core_sdk_string("core.collectives"), 1,
                                    &mpi_collectives, NULL);
}

CORE_SDK_EXPORT core_status core_plugin_entry(const core_plugin_offer *offer,
                                              core_plugin_answer *answer);

core_status core_plugin_entry(const core_plugin_offer *offer,
                              core_plugin_answer *answer)
{
    return core_sdk_negotiate(offer, answer, 6, 0, init, NULL);
}
