/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Communicators: creation, parts, errors and end. */

#include "comm/comm.h"

#include "base/fork.h"
#include "base/launcher.h"
#include "base/memory.h"
#include "base/thread.h"

#include <libcore/memory.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE_MOST = CORE__LAUNCHED_MOST, DEFAULT_TIMEOUT = 300 };

/* -------------------------------------------------------------- errors -- */

core_status core__comm_raise(core_comm *comm)
{
    core_error *copy = NULL;
    core_status status = CORE_OK;

    pthread_mutex_lock(&comm->lock);
    if (comm->error) {
        /* The record becomes this thread's, and a copy of it is kept. */
        status = core_error_raise(comm->error);
        copy = core__error_copy();
        comm->error = copy;
        if (!copy) {
            core_error_set(status, "the communicator has failed");
            core_error_detach(&comm->error);
        }
    }
    pthread_mutex_unlock(&comm->lock);
    return status;
}

/* The same for a caller of the communicator.  A plugin drops what its stream does
 * not run before the core learns of the stream's error, so that is added here. */
static core_status raise_with_reason(core_comm *comm)
{
    core_status status = CORE_OK;
    char reason[384];

    if (atomic_load(&comm->dropped))
        status = core_stream_query(comm->stream);
    if (status == CORE_OK || status == CORE_ERROR_BUSY)
        return core__comm_raise(comm);
    snprintf(reason, sizeof reason, "%s", core_error_message());
    status = core__comm_raise(comm);
    if (status != CORE_OK)
        core__error_suffix(": %s", reason);
    return status;
}

void core__comm_fail(core_comm *comm)
{
    core_error *error = core__error_copy();

    pthread_mutex_lock(&comm->lock);
    if (!comm->error) {
        comm->error = error;
        error = NULL;
    }
    pthread_mutex_unlock(&comm->lock);
    core_error_release(error);
}

void core__comm_leave(core_comm *comm)
{
    core__error_record error;
    bool failed;

    pthread_mutex_lock(&comm->lock);
    failed = comm->error != NULL;
    pthread_mutex_unlock(&comm->lock);
    core__comm_fail(comm);
    if (failed && !comm->stream) /* in a call that the other ranks make, too */
        return;
    core__error_save(&error);
    if (comm->engine->table.abort)
        comm->engine->table.abort(comm->impl);
    core__error_restore(&error);
}

static core_status check_process(const core_comm *comm, const char *name)
{
    if (comm->process == core__fork_mark)
        return CORE_OK;
    return core__error(CORE_ERROR_DEVICE_LOST,
                       "%s: the communicator was created before this process "
                       "was forked; a child cannot use it",
                       name);
}

core_status core__comm_begin(core_comm *comm, const char *name)
{
    bool before = false;
    core_status status;

    if (!comm)
        return core__error_null(name, "comm");
    CORE_TRY(check_process(comm, name));
    CORE_TRY(core__thread_check_unrecorded(name));
    if (!atomic_compare_exchange_strong(&comm->in_call, &before, true))
        return core__error(CORE_ERROR_BUSY,
                           "%s: another thread is making a call on the "
                           "communicator; one thread at a time may use it",
                           name);
    status = raise_with_reason(comm);
    if (status != CORE_OK)
        atomic_store(&comm->in_call, false);
    return status;
}

void core__comm_end(core_comm *comm)
{
    atomic_store(&comm->in_call, false);
}

/* ------------------------------------------------------------ creation -- */

static core_status check_place(uint32_t rank, uint32_t size)
{
    if (size > 0 && size <= SIZE_MOST && rank < size)
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "core_comm_create: rank %u of %u; accepted: a size of 1 "
                       "to %d and a rank below it",
                       rank, size, SIZE_MOST);
}

static core_status place_in_environment(core_comm *comm)
{
    if (core__launcher_place(&comm->rank, &comm->size))
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "core_comm_create: the options have no rank and size, "
                       "and no launcher has set them (mpirun, srun, or RANK "
                       "and WORLD_SIZE)");
}

/* Where the rank and size of this process come from. */
static core_status find_place(core_comm *comm, const core_comm_options *options)
{
    const core__comm_engine *engine = comm->engine;

    if (engine->table.world) {
        CORE_TRY(engine->table.world(engine->user, &comm->rank, &comm->size));
        if (options->size > 0 &&
            (options->rank != comm->rank || options->size != comm->size))
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "core_comm_create: the options say rank %u of "
                               "%u, the launcher of \"%s\" rank %u of %u",
                               options->rank, options->size, engine->name,
                               comm->rank, comm->size);
    } else if (options->size > 0) {
        comm->rank = options->rank;
        comm->size = options->size;
    } else {
        CORE_TRY(place_in_environment(comm));
    }
    return check_place(comm->rank, comm->size);
}

/* The store of the options, or of the environment in `text`. */
static core_status find_store(const core_comm_options *options, char *text,
                              size_t size, const char **out_store)
{
    const char *host = secure_getenv("MASTER_ADDR");
    const char *port = secure_getenv("MASTER_PORT");

    *out_store = options->store;
    if (*out_store)
        return CORE_OK;
    if (!host || !port)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_comm_create: the options have no store, and "
                           "MASTER_ADDR and MASTER_PORT are not both set; "
                           "accepted: file:PATH or tcp:HOST:PORT");
    snprintf(text, size, "tcp:%s:%s", host, port);
    *out_store = text;
    return CORE_OK;
}

/* Of the engine's table: a communicator for the device or for host memory. */
static core_status create_impl(core_comm *comm, const void *id)
{
    const core_collectives_interface *table = &comm->engine->table;
    void *user = comm->engine->user;

    if (core__comm_is_on_device(comm))
        return table->create_on_device(user, comm->device->impl, comm->rank,
                                       comm->size, id, comm->timeout_ns,
                                       &comm->impl);
    return table->create(user, comm->rank, comm->size, id, comm->timeout_ns,
                         &comm->impl);
}

static void describe_rank(const core_comm *comm, char *out)
{
    const core__comm_engine *engine = comm->engine;
    bool on_device = core__comm_is_on_device(comm);

    memset(out, 0, CORE__COMM_ABOUT);
    snprintf(out, CORE__COMM_ABOUT - 1,
             "libcore %s (ABI %d.%d), %s of %s %s%s%s", core_version(),
             CORE_ABI_MAJOR, CORE_ABI_MINOR, engine->name, engine->about->name,
             engine->about->version, on_device ? " on " : "",
             on_device ? comm->device->backend->type : "");
    out[CORE__COMM_ABOUT - 1] = 1;
}

/* Of ranks that a launcher has connected, which wait for each other. */
static core_status compare_ranks(core_comm *comm, const char *about,
                                 int64_t deadline)
{
    char *all = (char *)comm->all;
    int64_t left = deadline - core__store_now_ns();
    core_status status = comm->engine->table.exchange(
        comm->impl, about, CORE__COMM_ABOUT, all, left > 0 ? left : 1);

    if (status != CORE_OK)
        core__comm_fail(comm);
    for (uint32_t r = 1; r < comm->size && status == CORE_OK; r++)
        status =
            core__store_compare(r, all, all + (size_t)r * CORE__COMM_ABOUT);
    return status;
}

static core_status connect_ranks(core_comm *comm,
                                 const core_comm_options *options)
{
    const core_collectives_interface *table = &comm->engine->table;
    uint8_t id[CORE_COLLECTIVES_ID_SIZE] = {0};
    const char *store = NULL;
    char text[512], about[CORE__COMM_ABOUT];
    int64_t deadline = core__store_now_ns() + comm->timeout_ns;
    bool shared;
    core_status status = CORE_OK;

    describe_rank(comm, about);
    if (!table->unique_id) {
        CORE_TRY(create_impl(comm, NULL));
        return compare_ranks(comm, about, deadline);
    }
    if (comm->size > 1)
        CORE_TRY(find_store(options, text, sizeof text, &store));
    if (comm->rank == 0)
        CORE_TRY(table->unique_id(comm->engine->user, id));
    if (comm->size > 1)
        status =
            core__store_share_id(store, comm->rank, comm->size,
                                 comm->timeout_ns, about, id, &comm->progress);
    shared = comm->size > 1 && status == CORE_OK;
    if (status == CORE_OK)
        status = create_impl(comm, id);
    if (shared)
        core__store_end(store, comm->rank);
    return status;
}

/* An engine that moves device memory knows only its own plugin's. */
static core_status check_device(const core_comm *comm)
{
    const core_device *device = comm->device;
    const core__comm_engine *engine = comm->engine;

    if (!core__comm_is_on_device(comm) ||
        (device->backend->plugin == engine->plugin &&
         device->flags & CORE_DEVICE_FLAT))
        return CORE_OK;
    return core__error(
        CORE_ERROR_UNSUPPORTED,
        "core_comm_create: the engine \"%s\" moves the memory of "
        "its own plugin's devices; the device is \"%s\"",
        engine->name, device->name);
}

/* What is the same for every way of creation; comm->rank and size are set.  Once
 * ranks are connected, none may lack the memory to compare what they run. */
static core_status prepare(core_comm *comm)
{
    size_t size = (size_t)comm->size * CORE__COMM_ABOUT;

    comm->all = core__alloc(size);
    if (!comm->all)
        return core__error_memory(size);
    if (comm->device->synchronous)
        return CORE_OK;
    if (!comm->device->interfaces.host_callback.enqueue ||
        !comm->device->interfaces.host_memory.alloc)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "core_comm_create: \"%s\" has streams, but not both "
                           "host callbacks and pinned memory, which "
                           "collectives need",
                           comm->device->name);
    return core_stream_create(comm->device, &comm->stream);
}

static core_status comm_new(core_device *device, core__comm_engine *engine,
                            core_comm **out_comm)
{
    core_comm *comm = core__alloc_zero(sizeof *comm);

    *out_comm = comm;
    if (!comm)
        return core__error_memory(sizeof *comm);
    atomic_init(&comm->references, 1);
    atomic_init(&comm->holds, 1);
    pthread_mutex_init(&comm->lock, NULL);
    comm->process = core__fork_mark;
    comm->device = core_device_retain(device);
    comm->engine = engine;
    atomic_fetch_add(&engine->comms, 1);
    return CORE_OK;
}

void core__comm_add_job_reference(core_comm *comm)
{
    atomic_fetch_add_explicit(&comm->holds, 1, memory_order_relaxed);
}

void core__comm_drop_job_reference(core_comm *comm)
{
    if (atomic_fetch_sub(&comm->holds, 1) != 1)
        return;
    if (comm->error)
        core__comm_abandon(comm->all); /* a failed call may still use it */
    else
        core__free(comm->all);
    core_error_release(comm->error);
    pthread_mutex_destroy(&comm->lock);
    core__free(comm);
}

static void comm_destroy(core_comm *comm)
{
    bool own = comm->process == core__fork_mark;

    /* After a failure, jobs that did not run must not use the engine. */
    if (own && comm->stream && core_stream_synchronize(comm->stream) != CORE_OK)
        core__comm_fail(comm);
    core__comm_group_drop(comm);
    if (own && comm->impl)
        comm->engine->table.destroy(comm->impl, comm->error != NULL);
    core__progress_end(comm->progress, own);
    if (own)
        core_stream_release(comm->stream);
    atomic_fetch_sub(&comm->engine->comms, 1);
    core_device_release(comm->device);
    core__comm_drop_job_reference(comm);
}

static core_status check_options(const core_comm_options *options)
{
    if (options->struct_size < sizeof *options ||
        options->flags & ~(uint32_t)CORE_COMM_UNCHECKED)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_comm_create: struct_size is %u and flags are "
                           "0x%x; accepted: %zu and at most 0x%x",
                           options->struct_size, options->flags,
                           sizeof *options, CORE_COMM_UNCHECKED);
    if (!(options->timeout >= 0 && options->timeout <= 1e6))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_comm_create: the timeout is %g; accepted: 0 "
                           "(%d) to 1e6 seconds",
                           options->timeout, DEFAULT_TIMEOUT);
    return CORE_OK;
}

core_status core_comm_create(core_device *device,
                             const core_comm_options *options,
                             core_comm **out_comm)
{
    static const core_comm_options none = {.struct_size = sizeof none};
    core__comm_engine *engine;
    core__error_record earlier;
    core_comm *comm = NULL;
    core_status status;

    CORE__NOT_NULL(out_comm);
    *out_comm = NULL;
    if (!options)
        options = &none;
    CORE_TRY(check_options(options));
    CORE_TRY(core__thread_check_unrecorded(__func__));
    if (!device)
        CORE_TRY(core__device_current(&device));
    CORE_TRY(core__device_check_process(device));
    if (device->meta)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "core_comm_create: the device is \"meta\", whose "
                           "tensors have no memory");
    if (options->size > 0)
        CORE_TRY(check_place(options->rank, options->size));
    core__error_save(&earlier);
    CORE_TRY(core__comm_engine_find(options->engine ? options->engine : "mpi",
                                    &engine));
    status = comm_new(device, engine, &comm);
    atomic_fetch_sub(&engine->comms, 1); /* the comm counts itself */
    if (status != CORE_OK)
        return status;
    comm->flags = options->flags;
    comm->timeout_ns =
        (int64_t)((options->timeout > 0 ? options->timeout : DEFAULT_TIMEOUT) *
                  1e9);
    status = check_device(comm);
    if (status == CORE_OK)
        status = find_place(comm, options);
    if (status == CORE_OK)
        status = prepare(comm);
    if (status == CORE_OK)
        status = connect_ranks(comm, options);
    if (status != CORE_OK) {
        core_comm_release(comm);
        return status;
    }
    *out_comm = comm;
    return core__error_restore_on_success(&earlier, status);
}

core_comm *core_comm_retain(core_comm *comm)
{
    if (comm)
        atomic_fetch_add_explicit(&comm->references, 1, memory_order_relaxed);
    return comm;
}

void core_comm_release(core_comm *comm)
{
    core__error_record earlier;

    if (!comm || atomic_fetch_sub(&comm->references, 1) != 1)
        return;
    core__error_save(&earlier);
    comm_destroy(comm);
    core__error_restore(&earlier);
}

/* ----------------------------------------------------------- accessors -- */

uint32_t core_comm_rank(const core_comm *comm)
{
    return comm ? comm->rank : 0;
}

uint32_t core_comm_size(const core_comm *comm)
{
    return comm ? comm->size : 0;
}

core_device *core_comm_device(const core_comm *comm)
{
    return comm ? comm->device : NULL;
}

uint64_t core_comm_sequence(const core_comm *comm)
{
    return comm ? comm->sequence : 0;
}

core_status core_comm_error(core_comm *comm)
{
    CORE__NOT_NULL(comm);
    CORE_TRY(check_process(comm, __func__));
    return raise_with_reason(comm);
}

core_status core_comm_synchronize(core_comm *comm)
{
    CORE__NOT_NULL(comm);
    CORE_TRY(check_process(comm, __func__));
    if (comm->stream) {
        core_status status = core_stream_synchronize(comm->stream);

        CORE_TRY(raise_with_reason(comm));
        return status;
    }
    return raise_with_reason(comm);
}

core_status core_comm_abort(core_comm *comm)
{
    CORE__NOT_NULL(comm);
    CORE_TRY(check_process(comm, __func__));
    core__error(CORE_ERROR_CANCELLED,
                "core_comm_abort: rank %u aborted the communicator after "
                "collective %llu%s",
                comm->rank, (unsigned long long)comm->sequence,
                comm->engine->table.abort
                    ? ""
                    : "; the engine cannot end calls that have begun");
    core__comm_fail(comm);
    core_error_clear();
    if (comm->engine->table.abort)
        comm->engine->table.abort(comm->impl);
    return CORE_OK;
}

/* --------------------------------------------------------------- parts -- */

/* What a rank tells the others when a communicator is split. */
typedef struct member {
    uint32_t color, key;
} member;

/* The place of this rank among those with its color. */
static void place_in_part(core_comm *part, const core_comm *comm,
                          const member *all)
{
    const member *mine = &all[comm->rank];

    for (uint32_t r = 0; r < comm->size; r++) {
        if (all[r].color != mine->color)
            continue;
        part->size++;
        part->rank += all[r].key < mine->key ||
                      (all[r].key == mine->key && r < comm->rank);
    }
}

/* The first rank of a part makes its id, which all ranks exchange. */
static core_status create_part(core_comm *part, const core_comm *comm,
                               const member *all)
{
    const core_collectives_interface *table = &comm->engine->table;
    size_t size = (size_t)comm->size * CORE_COLLECTIVES_ID_SIZE;
    uint8_t *ids = core__alloc_zero(size), id[CORE_COLLECTIVES_ID_SIZE] = {0};
    uint32_t first = 0;
    core_status status = CORE_OK;

    if (!ids)
        return core__error_memory(size);
    while (all[first].color != all[comm->rank].color)
        first++;
    if (first == comm->rank)
        status = table->unique_id(comm->engine->user, id);
    if (status == CORE_OK)
        status =
            table->exchange(comm->impl, id, sizeof id, ids, comm->timeout_ns);
    if (status == CORE_OK)
        status = create_impl(part, ids + (size_t)first * sizeof id);
    core__free(ids);
    return status;
}

static int compare_places(const void *a, const void *b)
{
    const uint64_t *one = a, *other = b;

    return (*one > *other) - (*one < *other);
}

/* The ranks of a part are found in a store as those of the whole. */
static core_status share_progress(core_comm *comm, core_comm *part,
                                  const member *all, uint32_t first)
{
    size_t size = part->size * (sizeof(uint64_t) + sizeof(uint32_t));
    uint64_t *places; /* key, then rank */
    uint32_t *members, count = 0;

    if (!comm->progress)
        return CORE_OK;
    places = core__alloc(size);
    if (!places)
        return core__error_memory(size);
    members = (uint32_t *)(places + part->size);
    for (uint32_t r = 0; r < comm->size; r++)
        if (all[r].color == all[first].color)
            places[count++] = (uint64_t)all[r].key << 32 | r;
    qsort(places, count, sizeof *places, compare_places);
    for (uint32_t r = 0; r < count; r++)
        members[r] = (uint32_t)places[r];
    part->progress = core__progress_of_part(comm->progress, comm->splits, first,
                                            members, part->rank, part->size);
    core__free(places);
    return CORE_OK;
}

static core_status split(core_comm *comm, core_comm *part, uint32_t color,
                         uint32_t key)
{
    const core_collectives_interface *table = &comm->engine->table;
    member mine = {color, key};
    size_t size = (size_t)comm->size * sizeof mine;
    member *all = core__alloc(size);
    uint32_t first = 0;
    core_status status;

    if (!all)
        return core__error_memory(size);
    comm->splits++;
    status =
        table->exchange(comm->impl, &mine, sizeof mine, all, comm->timeout_ns);
    if (status == CORE_OK) {
        place_in_part(part, comm, all);
        /* Engines need not take every color: the first rank of that color is
         * as good a name of the part. */
        while (all[first].color != color)
            first++;
        status = table->split
                     ? table->split(comm->impl, first, part->rank, part->size,
                                    comm->timeout_ns, &part->impl)
                     : create_part(part, comm, all);
    }
    if (status == CORE_OK)
        status = share_progress(comm, part, all, first);
    /* After the engine, which waits for all ranks. */
    if (status == CORE_OK)
        status = prepare(part);
    core__free(all);
    return status;
}

core_status core_comm_split(core_comm *comm, uint32_t color, uint32_t key,
                            core_comm **out_comm)
{
    core_comm *part = NULL;
    core_status status;

    CORE__NOT_NULL(out_comm);
    *out_comm = NULL;
    CORE_TRY(core__comm_begin(comm, __func__));
    if (comm->group) {
        core__comm_end(comm);
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_comm_split: a group has begun");
    }
    if (!comm->engine->table.split && !comm->engine->table.unique_id) {
        core__comm_end(comm);
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "core_comm_split: the engine \"%s\" cannot divide "
                           "a communicator",
                           comm->engine->name);
    }
    status = comm->stream ? core_stream_synchronize(comm->stream) : CORE_OK;
    if (status == CORE_OK)
        status = core__comm_raise(comm);
    if (status == CORE_OK)
        status = comm_new(comm->device, comm->engine, &part);
    if (status == CORE_OK) {
        part->flags = comm->flags;
        part->timeout_ns = comm->timeout_ns;
        status = split(comm, part, color, key);
        if (status != CORE_OK) {
            core__error_prefix("core_comm_split");
            core__comm_fail(comm);
        }
    }
    core__comm_end(comm);
    if (status != CORE_OK) {
        core_comm_release(part);
        return status;
    }
    *out_comm = part;
    return CORE_OK;
}

static core_status check_shrink(core_comm *comm)
{
    core_status status;
    bool failed;

    if (!comm->engine->table.shrink)
        return core__error(
            CORE_ERROR_UNSUPPORTED,
            "core_comm_shrink: the engine \"%s\" cannot create a "
            "communicator of the ranks that still work",
            comm->engine->name);
    pthread_mutex_lock(&comm->lock);
    failed = comm->error != NULL;
    pthread_mutex_unlock(&comm->lock);
    status = failed ? CORE_OK
                    : core__error(CORE_ERROR_INVALID_ARGUMENT,
                                  "core_comm_shrink: the communicator has not "
                                  "failed; core_comm_split makes parts of it");
    return status;
}

core_status core_comm_shrink(core_comm *comm, core_comm **out_comm)
{
    core_comm *rest = NULL;
    core_status status;

    CORE__NOT_NULL(out_comm);
    *out_comm = NULL;
    CORE__NOT_NULL(comm);
    CORE_TRY(check_process(comm, __func__));
    CORE_TRY(check_shrink(comm));
    if (comm->stream)
        CORE_TRY(core_stream_synchronize(comm->stream));
    CORE_TRY(comm_new(comm->device, comm->engine, &rest));
    rest->flags = comm->flags;
    rest->timeout_ns = comm->timeout_ns;
    status = comm->engine->table.shrink(comm->impl, comm->timeout_ns,
                                        &rest->rank, &rest->size, &rest->impl);
    if (status == CORE_OK)
        status = prepare(rest);
    if (status != CORE_OK) {
        core__error_prefix("core_comm_shrink");
        core_comm_release(rest);
        return status;
    }
    *out_comm = rest;
    return CORE_OK;
}
