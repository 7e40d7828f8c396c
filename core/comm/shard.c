/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Shards: which elements belong to this rank, their averages, and the elements
 * of the others. */

#include "comm/shard.h"

#include "base/memory.h"
#include "comm/collective.h"
#include "tensor/dtype.h"

#include <libcore/autograd.h>
#include <libcore/ops.h>

#include <math.h>
#include <string.h>

/* -------------------------------------------------------------- pieces -- */

static const core__bucket *bucket_of(const core_reducer *reducer,
                                     const core__reduced *item)
{
    return &reducer->buckets[item->bucket];
}

/* The elements of a parameter in this rank's part of its bucket. */
static int64_t intersect(const core_reducer *reducer, const core__reduced *item,
                         int64_t *out_first)
{
    int64_t part = bucket_of(reducer, item)->part->numel;
    int64_t from = part * reducer->comm->rank - item->at;
    int64_t to = from + part;

    if (from < 0)
        from = 0;
    if (to > item->parameter->numel)
        to = item->parameter->numel;
    *out_first = from;
    return to > from ? to - from : 0;
}

static core_status make_piece(core_shard *shard, uint32_t parameter,
                              int64_t first, int64_t count)
{
    core_reducer *reducer = shard->reducer;
    const core__reduced *item = &reducer->parameters[parameter];
    const core__bucket *bucket = bucket_of(reducer, item);
    core__piece *piece = &shard->pieces[shard->npieces++];
    int64_t one = 1, at;

    at = item->at + first - bucket->part->numel * reducer->comm->rank;
    piece->parameter = parameter;
    piece->first = first;
    CORE_TRY(core__tensor_alias(item->parameter, item->parameter->dtype, 1,
                                &count, &one, item->parameter->offset + first,
                                &piece->tensor));
    CORE_TRY(core_tensor_set_requires_grad(piece->tensor, true));
    return core__tensor_alias(bucket->part, bucket->part->dtype, 1, &count,
                              &one, at, &piece->grad);
}

static core_status make_pieces(core_shard *shard)
{
    core_reducer *reducer = shard->reducer;
    size_t size = reducer->count * sizeof *shard->pieces;

    shard->pieces = core__alloc_zero(size);
    if (!shard->pieces)
        return core__error_memory(size);
    for (uint32_t i = 0; i < reducer->count; i++) {
        int64_t first;
        int64_t count = intersect(reducer, &reducer->parameters[i], &first);

        if (count > 0)
            CORE_TRY(make_piece(shard, i, first, count));
    }
    return CORE_OK;
}

size_t core__shard_find_piece(const core_shard *shard, uint32_t parameter)
{
    size_t low = 0, high = shard->npieces;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (shard->pieces[middle].parameter < parameter)
            low = middle + 1;
        else
            high = middle;
    }
    return low < shard->npieces && shard->pieces[low].parameter == parameter
               ? low
               : SIZE_MAX;
}

/* ------------------------------------------------------------ creation -- */

static core_status check(core_tensor *const *parameters, size_t count,
                         const core_shard_options *options)
{
    if (options->struct_size < sizeof *options)
        return core__error_struct_size("core_shard_create",
                                       "core_shard_options",
                                       options->struct_size, sizeof *options);
    if (options->level > CORE_SHARD_GRADIENTS)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_shard_create: the level is %u; accepted: "
                           "CORE_SHARD_STATES and CORE_SHARD_GRADIENTS (0, 1)",
                           options->level);
    for (size_t i = 0; parameters && i < count; i++)
        if (parameters[i] && !(parameters[i]->flags & CORE__TENSOR_DENSE))
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "core_shard_create: parameter %zu is not dense; "
                               "core_contiguous makes a copy that is",
                               i);
    return CORE_OK;
}

core_status core_shard_create(core_comm *comm, core_tensor *const *parameters,
                              size_t count, const core_shard_options *options,
                              core_shard **out_shard)
{
    static const core_shard_options none = {.struct_size = sizeof none};
    core_reducer_options reduced = {.struct_size = sizeof reduced};
    core_shard *shard;
    core_status status;

    CORE__NOT_NULL(out_shard);
    *out_shard = NULL;
    if (!options)
        options = &none;
    CORE_TRY(check(parameters, count, options));
    reduced.bucket_bytes = options->bucket_bytes;
    reduced.first_bucket_bytes = options->first_bucket_bytes;
    reduced.buffers = options->buffers;
    reduced.nbuffers = options->nbuffers;
    shard = core__alloc_zero(sizeof *shard);
    if (!shard)
        return core__error_memory(sizeof *shard);
    status = core__reducer_create(comm, parameters, count, &reduced, shard,
                                  options->level == CORE_SHARD_GRADIENTS,
                                  &shard->reducer);
    if (status == CORE_OK)
        status = make_pieces(shard);
    if (status != CORE_OK) {
        core_shard_release(shard);
        return status;
    }
    *out_shard = shard;
    return CORE_OK;
}

void core_shard_release(core_shard *shard)
{
    if (!shard)
        return;
    core_reducer_release(shard->reducer);
    for (size_t i = 0; i < shard->npieces; i++) {
        core__tensor_release(shard->pieces[i].tensor);
        core__tensor_release(shard->pieces[i].grad);
    }
    core__free(shard->pieces);
    core__free(shard);
}

/* ----------------------------------------------------------- accessors -- */

core_reducer *core_shard_reducer(const core_shard *shard)
{
    return shard ? shard->reducer : NULL;
}

size_t core_shard_piece_count(const core_shard *shard)
{
    return shard ? shard->npieces : 0;
}

core_tensor *core_shard_piece(const core_shard *shard, size_t index)
{
    return shard && index < shard->npieces ? shard->pieces[index].tensor : NULL;
}

core_status core_shard_describe(const core_shard *shard, size_t index,
                                core_shard_piece_information *out_information)
{
    core_shard_piece_information found;
    uint32_t size;

    CORE__NOT_NULL(shard);
    CORE__NOT_NULL(out_information);
    CORE__CHECK_STRUCT_SIZE(out_information, core_shard_piece_information);
    if (index >= shard->npieces)
        return core__error(CORE_ERROR_INDEX,
                           "core_shard_describe: piece %zu; the shard has %zu",
                           index, shard->npieces);
    size = out_information->struct_size;
    if (size > sizeof found)
        size = sizeof found;
    found = (core_shard_piece_information){
        .struct_size = size,
        .parameter = shard->pieces[index].parameter,
        .first = (uint64_t)shard->pieces[index].first,
        .count = (uint64_t)shard->pieces[index].tensor->numel};
    memcpy(out_information, &found, size);
    return CORE_OK;
}

/* ------------------------------------------------------------ averages -- */

core_status core__shard_publish(core_shard *shard, uint32_t parameter,
                                bool present)
{
    core_tensor *whole = shard->reducer->parameters[parameter].parameter;
    size_t at = core__shard_find_piece(shard, parameter);

    if (at < shard->npieces)
        CORE_TRY(core_tensor_set_grad(shard->pieces[at].tensor,
                                      present ? shard->pieces[at].grad : NULL));
    if (!core_tensor_grad(whole))
        return CORE_OK;
    return core_tensor_set_grad(whole, NULL);
}

core_status core_shard_backward(core_shard *shard, core_tensor *const *tensors,
                                size_t count, core_tensor *const *grads,
                                uint32_t flags)
{
    CORE__NOT_NULL(shard);
    return core_reducer_backward(shard->reducer, tensors, count, grads, flags);
}

/* ------------------------------------------------------------ clipping -- */

/* Of the norms: equal on all ranks, whatever pieces they have. */
static core_dtype norm_dtype(const core_reducer *reducer)
{
    for (uint32_t i = 0; i < reducer->count; i++)
        if (reducer->parameters[i].parameter->dtype == CORE_F64)
            return CORE_F64;
    return CORE_F32;
}

static core_status norm_of(core_tensor *tensor, core_dtype dtype,
                           core_tensor **out_norm)
{
    return core_linalg_vector_norm(tensor, core_float(2), NULL, 0, false, dtype,
                                   out_norm);
}

static core_status norm_of_list(core_tensor *const *norms, size_t count,
                                core_tensor **out_norm)
{
    core_tensor *stacked;
    core_status status;

    CORE_TRY(core_stack(norms, count, 0, &stacked));
    status = norm_of(stacked, CORE_DTYPE_NONE, out_norm);
    core__tensor_release(stacked);
    return status;
}

/* Of this rank's grads; 0-dim. */
static core_status norm_of_pieces(const core_shard *shard, core_dtype dtype,
                                  core_tensor **out_norm)
{
    size_t size = shard->npieces * sizeof(core_tensor *), count = 0;
    core_tensor **norms = core__alloc_zero(size + 1);
    core_status status = CORE_OK;

    if (!norms)
        return core__error_memory(size);
    for (size_t i = 0; status == CORE_OK && i < shard->npieces; i++) {
        core_tensor *grad = core_tensor_grad(shard->pieces[i].tensor);

        if (grad)
            status = norm_of(grad, dtype, &norms[count++]);
    }
    if (status == CORE_OK && count > 0)
        status = norm_of_list(norms, count, out_norm);
    else if (status == CORE_OK)
        status =
            core_zeros(NULL, 0, dtype, shard->reducer->comm->device, out_norm);
    for (size_t i = 0; i < count; i++)
        core__tensor_release(norms[i]);
    core__free(norms);
    return status;
}

/* The ranks exchange norms, because their squares may have no number in the
 * dtype. */
static core_status norm_of_ranks(const core_shard *shard,
                                 core_tensor **out_norm)
{
    core_dtype dtype = norm_dtype(shard->reducer);
    core_tensor *mine = NULL, *all = NULL;
    core_status status = norm_of_pieces(shard, dtype, &mine);

    if (status == CORE_OK)
        status = core_all_gather(shard->reducer->comm, mine, &all);
    if (status == CORE_OK)
        status = norm_of(all, CORE_DTYPE_NONE, out_norm);
    core__tensor_release(mine);
    core__tensor_release(all);
    return status;
}

/* min(1, max_norm / (norm + 1e-6)) */
static core_status factor_of(core_tensor *norm, double max_norm,
                             core_tensor **out_factor)
{
    CORE_TRY(core_add_scalar(norm, core_float(1e-6), core_int(1), out_factor));
    CORE_TRY(core_reciprocal_(*out_factor));
    CORE_TRY(core_mul_scalar_(*out_factor, core_float(max_norm)));
    return core_clamp_max_(*out_factor, core_float(1));
}

static core_status multiply_grads(const core_shard *shard, core_tensor *factor)
{
    for (size_t i = 0; i < shard->npieces; i++) {
        core_tensor *grad = core_tensor_grad(shard->pieces[i].tensor);

        if (grad)
            CORE_TRY(core_mul_(grad, factor));
    }
    return CORE_OK;
}

static core_status clip(core_shard *shard, double max_norm,
                        core_tensor **out_norm)
{
    core_tensor *factor = NULL;
    core_status status = norm_of_ranks(shard, out_norm);

    if (status == CORE_OK)
        status = factor_of(*out_norm, max_norm, &factor);
    if (status == CORE_OK)
        status = multiply_grads(shard, factor);
    core__tensor_release(factor);
    return status;
}

core_status core_shard_clip_grad_norm(core_shard *shard, double max_norm,
                                      core_tensor **out_norm)
{
    core_tensor *norm = NULL;
    core_status status;
    bool grads;

    if (out_norm)
        *out_norm = NULL;
    CORE__NOT_NULL(shard);
    if (!(max_norm >= 0))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_shard_clip_grad_norm: max_norm is %g; it must "
                           "be 0 or more",
                           max_norm);
    grads = core_grad_mode_set(false);
    status = clip(shard, max_norm, &norm);
    if (status != CORE_OK)
        core__reducer_cancel(shard->reducer);
    core_grad_mode_set(grads);
    if (status == CORE_OK && out_norm)
        *out_norm = norm;
    else
        core__tensor_release(norm);
    return status;
}

/* ----------------------------------------------------------- gathering -- */

/* The gradients are done with, so their memory serves for the elements. */
static core_status pack(const core_shard *shard)
{
    for (size_t i = 0; i < shard->npieces; i++)
        CORE_TRY(
            core_copy_(shard->pieces[i].grad, shard->pieces[i].tensor, false));
    return CORE_OK;
}

static core_status unpack(const core_reducer *reducer,
                          const core__bucket *bucket)
{
    for (uint32_t i = 0; i < bucket->count; i++) {
        const core__reduced *item =
            &reducer->parameters[reducer->order[bucket->first + i]];
        core_tensor *view;
        core_status status;

        CORE_TRY(core__bucket_view(bucket, item, &view));
        status = core_copy_(item->parameter, view, false);
        core__tensor_release(view);
        CORE_TRY(status);
    }
    return CORE_OK;
}

static core_status gather_bucket(core_reducer *reducer, core__bucket *bucket)
{
    CORE_TRY(core__bucket_allocate(reducer, bucket));
    CORE_TRY(core__all_gather_into(reducer->comm, "core_shard_gather",
                                   bucket->part, bucket->memory));
    CORE_TRY(unpack(reducer, bucket));
    if (!reducer->frees)
        return CORE_OK;
    core__tensor_release(bucket->memory);
    bucket->memory = NULL;
    return CORE_OK;
}

static core_status gather(const core_shard *shard)
{
    core_reducer *reducer = shard->reducer;

    CORE_TRY(pack(shard));
    for (uint32_t b = 0; b < reducer->nbuckets; b++)
        CORE_TRY(gather_bucket(reducer, &reducer->buckets[b]));
    return CORE_OK;
}

/* The grads of pieces are in memory that is needed, so they end. */
static core_status drop_grads(const core_shard *shard)
{
    core_reducer *reducer = shard->reducer;

    for (uint32_t i = 0; i < reducer->count; i++)
        if (core_tensor_grad(reducer->parameters[i].parameter))
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "core_shard_gather: parameter %u has a grad, "
                               "which is not averaged yet",
                               i);
    for (size_t i = 0; i < shard->npieces; i++)
        CORE_TRY(core_tensor_set_grad(shard->pieces[i].tensor, NULL));
    return CORE_OK;
}

core_status core_shard_gather(core_shard *shard)
{
    core_status status;
    bool grads;

    CORE__NOT_NULL(shard);
    CORE_TRY(core_comm_error(shard->reducer->comm));
    CORE_TRY(drop_grads(shard));
    grads = core_grad_mode_set(false);
    status = gather(shard);
    if (status != CORE_OK)
        core__reducer_cancel(shard->reducer);
    core_grad_mode_set(grads);
    return status;
}
