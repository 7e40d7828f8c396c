/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Reducers: creation, parameters and buffers that are equal on all ranks, and
 * end. */

#include "comm/reducer.h"

#include "base/fork.h"
#include "base/memory.h"
#include "base/thread.h"
#include "tensor/dtype.h"

#include <libcore/autograd.h>
#include <libcore/ops.h>

#include <string.h>

enum { BUCKET_BYTES = 25 << 20, FIRST_BUCKET_BYTES = 1 << 20 };

/* -------------------------------------------------------------- checks -- */

static core_status check_options(const core_reducer_options *options)
{
    if (options->struct_size < sizeof *options)
        return core__error_struct_size("core_reducer_create",
                                       "core_reducer_options",
                                       options->struct_size, sizeof *options);
    if (options->dtype != CORE_DTYPE_NONE && options->dtype != CORE_F32 &&
        options->dtype != CORE_F64)
        return core__error(CORE_ERROR_DTYPE,
                           "core_reducer_create: the dtype of the buckets is "
                           "%s; accepted: CORE_F32, CORE_F64, and 0 for those "
                           "of the parameters",
                           core__dtype_name(options->dtype));
    if (options->nbuffers && !options->buffers)
        return core__error_null("core_reducer_create", "buffers");
    return CORE_OK;
}

static core_status check_engine(const core_comm *comm, core_dtype dtype)
{
    const core_collectives_interface *table = &comm->engine->table;

    if (table->dtypes & CORE_DTYPE_MASK(dtype) &&
        table->reductions & CORE_REDUCE_MASK(CORE_REDUCE_AVG))
        return CORE_OK;
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "core_reducer_create: the engine \"%s\" cannot average "
                       "%s",
                       comm->engine->name, core__dtype_name(dtype));
}

static core_status check_parameter(const core_comm *comm,
                                   core_tensor *const *parameters, size_t index,
                                   core_dtype dtype)
{
    const core_tensor *parameter = parameters[index];

    if (!parameter)
        return core__error_null("core_reducer_create", "a parameter");
    if (!core_tensor_requires_grad(parameter) ||
        !core_tensor_is_leaf(parameter))
        return core__error(CORE_ERROR_AUTOGRAD,
                           "core_reducer_create: parameter %zu is not a leaf "
                           "that requires grad",
                           index);
    if (parameter->device != comm->device)
        return core__error(CORE_ERROR_DEVICE,
                           "core_reducer_create: parameter %zu is on \"%s\", "
                           "and the communicator is for \"%s\"",
                           index, parameter->device->name, comm->device->name);
    for (size_t i = 0; i < index; i++)
        if (parameters[i] == parameter)
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "core_reducer_create: parameters %zu and %zu "
                               "are the same tensor",
                               i, index);
    return check_engine(comm, dtype ? dtype : parameter->dtype);
}

static core_status check_arguments(const core_comm *comm,
                                   core_tensor *const *parameters, size_t count,
                                   const core_reducer_options *options)
{
    if (!comm || (count && !parameters))
        return core__error_null("core_reducer_create",
                                comm ? "parameters" : "comm");
    if (count == 0 || count > INT32_MAX)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_reducer_create: the number of parameters is "
                           "%zu; it must be 1 to %d",
                           count, INT32_MAX);
    CORE_TRY(check_options(options));
    for (size_t i = 0; i < count; i++)
        CORE_TRY(check_parameter(comm, parameters, i, options->dtype));
    for (size_t i = 0; i < options->nbuffers; i++)
        if (!options->buffers[i] || options->buffers[i]->device != comm->device)
            return core__error(CORE_ERROR_DEVICE,
                               "core_reducer_create: buffer %zu is NULL or not "
                               "on \"%s\", the communicator's device",
                               i, comm->device->name);
    return CORE_OK;
}

/* ------------------------------------------------- equality of the ranks -- */

static void hash_number(uint64_t *hash, uint64_t number)
{
    for (int i = 0; i < 8; i++, number >>= 8)
        *hash = (*hash ^ (number & 255)) * UINT64_C(0x100000001b3);
}

static void hash_tensor(uint64_t *hash, const core_tensor *tensor)
{
    hash_number(hash, tensor->dtype);
    hash_number(hash, tensor->ndim);
    for (uint32_t i = 0; i < tensor->ndim; i++)
        hash_number(hash, (uint64_t)tensor->sizes[i]);
}

/* Ranks average the same elements if gradients have the same strides. */
static void hash_layout(uint64_t *hash, const core_tensor *parameter)
{
    int64_t strides[CORE_MAX_NDIM];

    core__reducer_strides(parameter, strides);
    for (uint32_t i = 0; i < parameter->ndim; i++)
        hash_number(hash, parameter->sizes[i] > 1 ? (uint64_t)strides[i] : 0);
}

uint64_t core__reducer_hash_parameters(const core_reducer *reducer)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (uint32_t i = 0; i < reducer->count; i++) {
        hash_tensor(&hash, reducer->parameters[i].parameter);
        hash_layout(&hash, reducer->parameters[i].parameter);
    }
    return hash;
}

/* What must be the same on all ranks. */
static uint64_t hash_of(const core_reducer *reducer)
{
    uint64_t hash = core__reducer_hash_parameters(reducer);

    hash_number(&hash, reducer->dtype);
    hash_number(&hash, (reducer->shard != NULL) + 2u * reducer->frees);
    hash_number(&hash, reducer->bucket_bytes);
    hash_number(&hash, reducer->first_bucket_bytes);
    hash_number(&hash, reducer->nbuffers);
    for (size_t i = 0; i < reducer->nbuffers; i++)
        hash_tensor(&hash, reducer->buffers[i]);
    return hash;
}

/* all: number of parameters and hash of each rank. */
static core_status compare(const core_comm *comm, const int64_t *all)
{
    for (uint32_t r = 1; r < comm->size; r++) {
        if (all[2 * r] != all[0])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "core_reducer_create: rank %u has %lld "
                               "parameters, and rank 0 has %lld",
                               r, (long long)all[2 * r], (long long)all[0]);
        if (all[2 * r + 1] != all[1])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "core_reducer_create: the parameters, buffers "
                               "or options of rank %u differ from those of "
                               "rank 0 in sizes, layouts, dtypes or order",
                               r);
    }
    return CORE_OK;
}

static core_status check_equality(core_reducer *reducer)
{
    int64_t mine[2] = {reducer->count, (int64_t)hash_of(reducer)}, two = 2;
    size_t size = 2 * (size_t)reducer->comm->size * sizeof *mine;
    core_tensor *sent = NULL, *gathered = NULL;
    int64_t *all = core__alloc(size);
    core_status status;

    if (!all)
        return core__error_memory(size);
    status = core_tensor_from_data(mine, CORE_I64, &two, 1,
                                   reducer->comm->device, &sent);
    if (status == CORE_OK)
        status = core_all_gather(reducer->comm, sent, &gathered);
    if (status == CORE_OK)
        status = core_tensor_read(gathered, all, size);
    if (status == CORE_OK)
        status = core_comm_error(reducer->comm);
    if (status == CORE_OK)
        status = compare(reducer->comm, all);
    core_tensor_release(sent);
    core_tensor_release(gathered);
    core__free(all);
    return status;
}

/* ----------------------------------------------------- copies of rank 0 -- */

static core_status broadcast(core_comm *comm, core_tensor *tensor)
{
    core_tensor *copy = NULL;
    core_status status;

    if (tensor->flags & CORE__TENSOR_CONTIGUOUS)
        return core_broadcast(comm, tensor, 0);
    status = core_contiguous(tensor, CORE_FORMAT_CONTIGUOUS, &copy);
    if (status == CORE_OK)
        status = core_broadcast(comm, copy, 0);
    if (status == CORE_OK)
        status = core_copy_(tensor, copy, false);
    core__tensor_release(copy);
    return status;
}

core_status core_reducer_broadcast_buffers(core_reducer *reducer)
{
    bool grads;
    core_status status = CORE_OK;

    CORE__NOT_NULL(reducer);
    grads = core_grad_mode_set(false);
    for (size_t i = 0; status == CORE_OK && i < reducer->nbuffers; i++)
        status = broadcast(reducer->comm, reducer->buffers[i]);
    core_grad_mode_set(grads);
    return status;
}

static core_status broadcast_parameters(core_reducer *reducer)
{
    bool grads = core_grad_mode_set(false);
    core_status status = CORE_OK;

    for (uint32_t i = 0; status == CORE_OK && i < reducer->count; i++)
        status = broadcast(reducer->comm, reducer->parameters[i].parameter);
    core_grad_mode_set(grads);
    return status;
}

/* ------------------------------------------------------------ creation -- */

static core_status keep_buffers(core_reducer *reducer,
                                const core_reducer_options *options)
{
    size_t size = options->nbuffers * sizeof *reducer->buffers;

    if (!size)
        return CORE_OK;
    reducer->buffers = core__alloc(size);
    if (!reducer->buffers)
        return core__error_memory(size);
    while (reducer->nbuffers < options->nbuffers) {
        core_tensor *buffer = options->buffers[reducer->nbuffers];

        reducer->buffers[reducer->nbuffers++] = core_tensor_retain(buffer);
    }
    return CORE_OK;
}

static core_status keep_parameters(core_reducer *reducer,
                                   core_tensor *const *parameters,
                                   uint32_t count)
{
    size_t size =
        count * (sizeof *reducer->parameters + sizeof *reducer->destinations +
                 2 * sizeof *reducer->order);

    reducer->parameters = core__alloc_zero(size);
    if (!reducer->parameters)
        return core__error_memory(size);
    reducer->destinations = (void *)(reducer->parameters + count);
    reducer->order = (void *)(reducer->destinations + count);
    reducer->readiness = reducer->order + count;
    reducer->count = count;
    for (uint32_t i = 0; i < count; i++) {
        reducer->parameters[i].reducer = reducer;
        reducer->parameters[i].parameter = core_tensor_retain(parameters[i]);
        reducer->order[i] = count - 1 - i;
    }
    return CORE_OK;
}

static core_status prepare(core_reducer *reducer, core_comm *comm,
                           core_tensor *const *parameters, uint32_t count,
                           const core_reducer_options *options)
{
    reducer->dtype = options->dtype;
    reducer->bucket_bytes =
        options->bucket_bytes ? options->bucket_bytes : BUCKET_BYTES;
    reducer->first_bucket_bytes = options->first_bucket_bytes
                                      ? options->first_bucket_bytes
                                      : FIRST_BUCKET_BYTES;
    CORE_TRY(keep_parameters(reducer, parameters, count));
    CORE_TRY(keep_buffers(reducer, options));
    CORE_TRY(core_comm_split(comm, 0, comm->rank, &reducer->comm));
    if (comm->stream)
        CORE_TRY(core_stream_create(comm->device, &reducer->stream));
    CORE_TRY(check_equality(reducer));
    CORE_TRY(broadcast_parameters(reducer));
    CORE_TRY(core_reducer_broadcast_buffers(reducer));
    CORE_TRY(core_comm_synchronize(reducer->comm));
    CORE_TRY(core__buckets_build(reducer));
    /* Parts of buckets belong to ranks, so the order remains. */
    reducer->measured = reducer->rebuilt = reducer->shard != NULL;
    if (reducer->frees)
        CORE_TRY(core__reducer_hook(reducer));
    return reducer->stream ? CORE_OK : core__reducer_thread_start(reducer);
}

core_status core__reducer_create(core_comm *comm,
                                 core_tensor *const *parameters, size_t count,
                                 const core_reducer_options *options,
                                 core_shard *shard, bool frees,
                                 core_reducer **out_reducer)
{
    static const core_reducer_options none = {.struct_size = sizeof none};
    core_reducer *reducer;
    core_status status;

    if (!options)
        options = &none;
    CORE_TRY(core__thread_check_unrecorded("core_reducer_create"));
    CORE_TRY(check_arguments(comm, parameters, count, options));
    reducer = core__alloc_zero(sizeof *reducer);
    if (!reducer)
        return core__error_memory(sizeof *reducer);
    pthread_mutex_init(&reducer->lock, NULL);
    reducer->shard = shard;
    reducer->frees = frees;
    status = prepare(reducer, comm, parameters, (uint32_t)count, options);
    if (status != CORE_OK) {
        core_reducer_release(reducer);
        return status;
    }
    *out_reducer = reducer;
    return CORE_OK;
}

core_status core_reducer_create(core_comm *comm, core_tensor *const *parameters,
                                size_t count,
                                const core_reducer_options *options,
                                core_reducer **out_reducer)
{
    CORE__NOT_NULL(out_reducer);
    *out_reducer = NULL;
    return core__reducer_create(comm, parameters, count, options, NULL, false,
                                out_reducer);
}

/* ----------------------------------------------------------------- end -- */

static void release_stream(core_reducer *reducer)
{
    core__error_record earlier;

    if (!reducer->stream || reducer->comm->process != core__fork_mark)
        return;
    core__error_save(&earlier);
    core_stream_synchronize(reducer->stream);
    core__error_restore(&earlier);
    core_stream_release(reducer->stream);
}

void core_reducer_release(core_reducer *reducer)
{
    if (!reducer)
        return;
    core__reducer_thread_end(reducer);
    core__reducer_unhook(reducer);
    release_stream(reducer);
    core__buckets_release(reducer);
    for (uint32_t i = 0; i < reducer->count; i++) {
        core__tensor_release(reducer->parameters[i].parameter);
        core__tensor_release(reducer->parameters[i].view);
        core__tensor_release(reducer->parameters[i].published);
    }
    for (size_t i = 0; i < reducer->nbuffers; i++)
        core__tensor_release(reducer->buffers[i]);
    core__free(reducer->buffers);
    core__free(reducer->parameters);
    core_comm_release(reducer->comm);
    pthread_mutex_destroy(&reducer->lock);
    core__free(reducer);
}

/* ----------------------------------------------------------- accessors -- */

core_comm *core_reducer_comm(const core_reducer *reducer)
{
    return reducer ? reducer->comm : NULL;
}

core_tensor *core_reducer_bucket(const core_reducer *reducer, size_t index)
{
    return reducer && index < reducer->nbuckets ? reducer->buckets[index].memory
                                                : NULL;
}

core_status core_reducer_get_counts(const core_reducer *reducer,
                                    core_reducer_counts *out_counts)
{
    core_reducer_counts counts;
    uint32_t size;

    CORE__NOT_NULL(reducer);
    CORE__NOT_NULL(out_counts);
    CORE__CHECK_STRUCT_SIZE(out_counts, core_reducer_counts);
    size = out_counts->struct_size;
    if (size > sizeof counts)
        size = sizeof counts;
    counts = reducer->counts;
    if (reducer->thread) {
        pthread_mutex_lock(&reducer->thread->lock);
        counts.communicated_ns = reducer->thread->communicated_ns;
        pthread_mutex_unlock(&reducer->thread->lock);
    }
    counts.struct_size = size;
    memcpy(out_counts, &counts, size);
    return CORE_OK;
}
