/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* collectives_comm.c: communicators of the vendor's library, and waiting for it
 * with a deadline. */

#include <gpu/host/collectives.h>
#include <gpu/host/thread.h>

#include <stdlib.h>
#include <time.h>

#define calls (gpu_this_vendor.driver)
#define title (gpu_this_vendor.collectives->title)

/* How long destroying waits for other ranks, and an abort for the stream. */
#define PATIENCE_NS INT64_C(10000000000)

/* ------------------------------------------------------------- waiting -- */

int64_t gpu_comm_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Polls without a pause for a while, and then ever more rarely. */
static void relax(uint32_t polls)
{
    const struct timespec pause = {0, polls > 2000 ? 500000 : 20000};

    if (polls > 200)
        nanosleep(&pause, NULL);
}

static core_status check_limits(const gpu_comm *comm, int64_t deadline)
{
    if (atomic_load(&comm->aborted))
        return gpu_refuse(CORE_ERROR_CANCELLED, "the communicator was aborted");
    if (gpu_comm_now() <= deadline)
        return CORE_OK;
    if (comm->size == 2)
        return gpu_refuse(CORE_ERROR_CANCELLED,
                          "the timeout passed while waiting for rank %u",
                          1 - comm->rank);
    return gpu_refuse(CORE_ERROR_CANCELLED,
                      "the timeout passed while waiting for other ranks; %s "
                      "does not report for which",
                      title);
}

core_status gpu_comm_settle(gpu_comm *comm, int code, const char *function,
                            int64_t deadline)
{
    core_status status = CORE_OK;

    for (uint32_t polls = 0; code == GPU_CCL_IN_PROGRESS; polls++) {
        int asked = gpu_ccl_calls.async_error(comm->handle, &code);

        if (asked != GPU_CCL_SUCCESS)
            code = asked;
        if (code != GPU_CCL_IN_PROGRESS)
            break;
        status = check_limits(comm, deadline);
        if (status != CORE_OK)
            return status;
        relax(polls);
    }
    return code == GPU_CCL_SUCCESS
               ? CORE_OK
               : gpu_ccl_error(comm->handle, code, function);
}

/* What the library has found out since. */
static core_status check_library(gpu_comm *comm)
{
    int state = GPU_CCL_SUCCESS;
    int code = gpu_ccl_calls.async_error(comm->handle, &state);

    if (code == GPU_CCL_SUCCESS)
        code = state;
    if (code == GPU_CCL_SUCCESS || code == GPU_CCL_IN_PROGRESS)
        return CORE_OK;
    return gpu_ccl_error(comm->handle, code, "while waiting for other ranks");
}

core_status gpu_comm_wait(gpu_comm *comm, int64_t deadline)
{
    void *context = comm->device->context;
    core_status status;

    for (uint32_t polls = 0;; polls++) {
        int code = calls->stream_query(context, comm->stream);

        if (code != GPU_BUSY)
            return gpu_report(comm->device, code, "a collective");
        if (polls % 32 == 31) {
            status = check_library(comm);
            if (status != CORE_OK)
                return status;
        }
        status = check_limits(comm, deadline);
        if (status != CORE_OK)
            return status;
        relax(polls);
    }
}

void gpu_comm_stop(gpu_comm *comm)
{
    int64_t deadline = gpu_comm_now() + PATIENCE_NS;
    void *context = comm->device->context;

    if (comm->handle == NULL)
        return;
    gpu_ccl_calls.abort(comm->handle);
    comm->handle = NULL;
    for (uint32_t polls = 0;
         calls->stream_query(context, comm->stream) == GPU_BUSY; polls++) {
        comm->busy = gpu_comm_now() > deadline;
        if (comm->busy)
            break;
        relax(polls);
    }
}

void gpu_comm_abort(void *opaque)
{
    gpu_comm *comm = opaque;
    gpu_use use;

    atomic_store(&comm->aborted, true);
    /* Otherwise the running collective sees it. */
    if (pthread_mutex_trylock(&comm->lock) != 0)
        return;
    if (calls->use_begin(comm->device->context, &use) == 0) {
        gpu_comm_stop(comm);
        calls->use_end(&use);
    }
    pthread_mutex_unlock(&comm->lock);
}

/* ------------------------------------------------------ a device's reset -- */

static gpu_comm *all; /* that exist */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;

static void all_add(gpu_comm *comm)
{
    pthread_mutex_lock(&all_lock);
    comm->next = all;
    all = comm;
    pthread_mutex_unlock(&all_lock);
}

static void all_remove(gpu_comm *comm)
{
    gpu_comm **at = &all;

    pthread_mutex_lock(&all_lock);
    while (*at != NULL && *at != comm)
        at = &(*at)->next;
    if (*at != NULL)
        *at = comm->next;
    pthread_mutex_unlock(&all_lock);
}

static void stop_for_reset(gpu_comm *comm)
{
    gpu_use use;

    atomic_store(&comm->aborted, true);
    pthread_mutex_lock(&comm->lock);
    if (calls->use_begin(comm->device->context, &use) == 0) {
        gpu_comm_stop(comm);
        calls->use_end(&use);
    }
    pthread_mutex_unlock(&comm->lock);
}

void gpu_comms_stop(const gpu_device *device)
{
    pthread_mutex_lock(&all_lock);
    for (gpu_comm *comm = all; comm != NULL; comm = comm->next)
        if (comm->device == device && comm->generation == device->generation)
            stop_for_reset(comm);
    pthread_mutex_unlock(&all_lock);
}

/* -------------------------------------------------------- their memory -- */

static void comm_free(gpu_comm *comm)
{
    gpu_device *device = comm->device;
    void *context = device->context;

    /* A reset has already freed the driver's objects. */
    if (comm->generation == device->generation && !comm->busy) {
        if (comm->staged != NULL)
            calls->free(context, comm->staged);
        if (comm->pinned != NULL)
            calls->host_free(context, comm->pinned);
        if (comm->stream != NULL)
            calls->stream_destroy(context, comm->stream);
    }
    pthread_mutex_destroy(&comm->lock);
    free(comm);
    gpu_device_release(device);
}

static core_status comm_new(gpu_device *device, uint32_t rank, uint32_t size,
                            gpu_comm **out)
{
    gpu_comm *comm = calloc(1, sizeof *comm);
    void *context = device->context;
    int code;

    *out = comm;
    if (comm == NULL)
        return gpu_refuse(CORE_ERROR_OUT_OF_MEMORY,
                          "no host memory for a communicator");
    atomic_fetch_add(&device->references, 1);
    comm->device = device;
    comm->generation = device->generation;
    comm->rank = rank;
    comm->size = size;
    comm->staging = (size_t)size * CORE_COLLECTIVES_ID_SIZE;
    pthread_mutex_init(&comm->lock, NULL);
    code = calls->stream_create(context, 0, &comm->stream);
    if (code == 0)
        code = calls->alloc(context, 2 * comm->staging, (void **)&comm->staged);
    if (code == 0)
        code = calls->host_alloc(context, 2 * comm->staging,
                                 (void **)&comm->pinned);
    return gpu_report(device, code, "creating a communicator");
}

/* ------------------------------------------------------ their creation -- */

core_status gpu_comm_unique_id(void *user, void *id)
{
    gpu_ccl_id made = {{0}};
    core_status status = gpu_ccl_open();
    sigset_t signals;
    int code;

    (void)user;
    if (status != CORE_OK)
        return status;
    gpu_signals_block(&signals);
    code = gpu_ccl_calls.get_unique_id(&made);
    gpu_signals_restore(&signals);
    if (code != GPU_CCL_SUCCESS)
        return gpu_ccl_error(NULL, code, "ncclGetUniqueId");
    memcpy(id, &made, sizeof made);
    return CORE_OK;
}

/* Libraries before 2.14 have no ncclCommInitRankConfig, and creation has no timeout
 * with them. */
static core_status connect_ranks(gpu_comm *comm, const gpu_ccl_id *id,
                                 int64_t deadline)
{
    gpu_ccl_config config = {sizeof config, GPU_CCL_CONFIG_MAGIC,
                             GPU_CCL_CONFIG_VERSION, 0};
    int rank = (int)comm->rank, size = (int)comm->size;

    if (gpu_ccl_calls.init_rank_config == NULL)
        return gpu_comm_settle(
            comm, gpu_ccl_calls.init_rank(&comm->handle, size, *id, rank),
            "ncclCommInitRank", deadline);
    return gpu_comm_settle(
        comm,
        gpu_ccl_calls.init_rank_config(&comm->handle, size, *id, rank, &config),
        "ncclCommInitRankConfig", deadline);
}

static core_status create_current(gpu_comm *comm, const gpu_ccl_id *id,
                                  int64_t deadline)
{
    sigset_t signals;
    core_status status;
    gpu_use use;
    int code = calls->use_begin(comm->device->context, &use);

    if (code != 0)
        return gpu_report(comm->device, code, "creating a communicator");
    gpu_signals_block(&signals); /* in the library's threads */
    status = connect_ranks(comm, id, deadline);
    gpu_signals_restore(&signals);
    if (status != CORE_OK)
        gpu_comm_stop(comm);
    calls->use_end(&use);
    return status;
}

core_status gpu_comm_create(void *user, void *device, uint32_t rank,
                            uint32_t size, const void *id, int64_t timeout_ns,
                            void **out_comm)
{
    int64_t deadline = gpu_comm_now() + timeout_ns;
    core_status status = gpu_ccl_open();
    gpu_comm *comm = NULL;
    gpu_ccl_id copy;

    (void)user;
    *out_comm = NULL;
    if (status != CORE_OK)
        return status;
    memcpy(&copy, id, sizeof copy);
    status = comm_new(device, rank, size, &comm);
    if (status == CORE_OK)
        status = create_current(comm, &copy, deadline);
    if (status == CORE_OK) {
        all_add(comm);
        *out_comm = comm;
    } else if (comm != NULL) {
        comm_free(comm);
    }
    return status;
}

/* Waits for the other ranks, which may still need this one, but not forever. */
static void end(gpu_comm *comm)
{
    int64_t deadline = gpu_comm_now() + PATIENCE_NS;
    core_status status = CORE_OK;

    if (comm->handle == NULL)
        return;
    if (gpu_ccl_calls.finalize != NULL)
        status = gpu_comm_settle(comm, gpu_ccl_calls.finalize(comm->handle),
                                 "ncclCommFinalize", deadline);
    if (status == CORE_OK) {
        gpu_ccl_calls.destroy(comm->handle);
        comm->handle = NULL;
    }
    gpu_comm_stop(comm);
}

void gpu_comm_destroy(void *opaque, uint32_t failed)
{
    gpu_comm *comm = opaque;
    gpu_use use;

    all_remove(comm);
    if (comm->generation == comm->device->generation &&
        calls->use_begin(comm->device->context, &use) == 0) {
        pthread_mutex_lock(&comm->lock);
        if (failed)
            gpu_comm_stop(comm);
        else
            end(comm);
        pthread_mutex_unlock(&comm->lock);
        calls->use_end(&use);
    }
    comm_free(comm);
}
