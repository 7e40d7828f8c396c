/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* --distributed: each rank takes its part of every batch. */

#include "layers.h"
#include "parameter_shards.h"
#include "tensor_parallel.h"

#include <libcore/memory.h>
#include <libcore/stream.h>
#include <stdlib.h>

core_status train_distributed_connect(trainer *t)
{
    train_options *options = &t->options;
    const core_comm_options chosen = {.struct_size = sizeof chosen,
                                      .engine = options->distributed,
                                      .timeout = options->timeout};

    t->ranks = t->processes = 1;
    t->shard_save = options->save;
    if (!options->distributed)
        return CORE_OK;
    if (!t->comm)
        CORE_TRY(core_comm_create(t->device, &chosen, &t->comm));
    t->rank = core_comm_rank(t->comm);
    t->ranks = t->processes = core_comm_size(t->comm);
    t->quiet = t->rank > 0;
    if (t->quiet) {
        options->save = options->profile = options->plot = NULL;
        options->json = false;
    }
    return train_tensor_connect(t);
}

/* Ranks drop out different elements of their samples. */
static void seed_rank(const trainer *t)
{
    uint64_t seed, offset;

    core_generator_state(NULL, &seed, &offset);
    core_generator_set_state(
        NULL, seed + t->rank * UINT64_C(0x9e3779b97f4a7c15), offset);
}

void train_distributed_part(const trainer *t, int64_t whole, int64_t *out_first,
                            int64_t *out_end)
{
    *out_first = whole * t->rank / t->ranks;
    *out_end = whole * (t->rank + 1) / t->ranks;
}

double train_distributed_weight(const trainer *t, int64_t mine, int64_t whole)
{
    return (double)mine * t->ranks / (double)whole;
}

core_status train_distributed_sum(const trainer *t, core_tensor *local,
                                  core_tensor **out_sum)
{
    if (t->comm)
        return core_all_reduce(t->comm, local, CORE_REDUCE_SUM, out_sum);
    *out_sum = core_tensor_retain(local);
    return CORE_OK;
}

/* Of the ranks of both communicators, with --tensor-parallel. */
static core_status find_largest(const trainer *t, core_tensor *number)
{
    CORE_TRY(core_all_reduce_(t->comm, number, CORE_REDUCE_MAX));
    return t->tensor ? core_all_reduce_(t->tensor, number, CORE_REDUCE_MAX)
                     : CORE_OK;
}

static core_status ask_signals(trainer *t, int64_t mine)
{
    core_stream *stream;
    core_tensor *number;
    core_status status;

    CORE_TRY(
        core_tensor_from_data(&mine, CORE_I64, NULL, 0, t->device, &number));
    status = find_largest(t, number);
    if (status == CORE_OK)
        status = core_tensor_copy(t->noticed, number, CORE_COPY_NON_BLOCKING);
    core_tensor_release(number);
    if (status == CORE_OK)
        status = core_stream_current(t->device, &stream);
    return status == CORE_OK ? core_event_record(t->answered, stream) : status;
}

static core_status read_signals(const trainer *t, int *out_signal)
{
    int64_t number;

    CORE_TRY(core_event_synchronize(t->answered));
    CORE_TRY(core_tensor_item_int(t->noticed, &number));
    *out_signal = (int)number;
    return core_comm_error(t->comm);
}

core_status train_distributed_notice(trainer *t, int signal, int *out_signal)
{
    *out_signal = t->comm ? 0 : signal;
    if (!t->comm)
        return CORE_OK;
    if (t->noticed) {
        CORE_TRY(read_signals(t, out_signal));
    } else {
        CORE_TRY(core_event_create(t->device, 0, &t->answered));
        CORE_TRY(core_tensor_pinned(t->device, CORE_I64, NULL, 0, &t->noticed));
    }
    return *out_signal ? CORE_OK : ask_signals(t, signal);
}

core_status train_distributed_wait(const trainer *t)
{
    if (!t->comm)
        return CORE_OK;
    CORE_TRY(core_barrier(t->comm));
    CORE_TRY(core_comm_synchronize(t->comm));
    if (!t->tensor)
        return CORE_OK;
    CORE_TRY(core_barrier(t->tensor));
    return core_comm_synchronize(t->tensor);
}

core_status train_distributed_collect(trainer *t)
{
    if (!t->comm)
        return CORE_OK;
    CORE_TRY(core_all_reduce_(t->comm, t->loss_sum, CORE_REDUCE_SUM));
    CORE_TRY(core_all_reduce_(t->comm, t->correct, CORE_REDUCE_SUM));
    if (t->rank == 0)
        return CORE_OK;
    CORE_TRY(core_zero_(t->loss_sum));
    return core_zero_(t->correct);
}

static core_status compare(const trainer *t, const int64_t *digests,
                           uint32_t ranks, const char *what, const char *among)
{
    for (uint32_t r = 1; r < ranks; r++)
        if (digests[r] != digests[0])
            return train_error(CORE_ERROR_CORRUPT,
                               "%s of rank %u differ from those of rank 0%s "
                               "after step %lld",
                               what, r, among, (long long)trainer_steps(t));
    return CORE_OK;
}

core_status train_distributed_gather(const trainer *t, core_comm *comm,
                                     int64_t mine, int64_t *out_all)
{
    core_tensor *sent = NULL, *all = NULL;
    const int64_t one = 1;
    core_status status;

    status = core_tensor_from_data(&mine, CORE_I64, &one, 1, t->device, &sent);
    if (status == CORE_OK)
        status = core_all_gather(comm, sent, &all);
    if (status == CORE_OK)
        status =
            core_tensor_read(all, out_all, core_comm_size(comm) * sizeof mine);
    if (status == CORE_OK)
        status = core_comm_error(comm);
    core_tensor_release(sent);
    core_tensor_release(all);
    return status;
}

core_status train_distributed_compare(const trainer *t, core_comm *comm,
                                      uint64_t digest, const char *what,
                                      const char *among)
{
    uint32_t ranks = core_comm_size(comm);
    int64_t *digests = malloc(ranks * sizeof *digests);
    core_status status;

    if (!digests)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for digests");
    status = train_distributed_gather(t, comm, (int64_t)digest, digests);
    if (status == CORE_OK)
        status = compare(t, digests, ranks, what, among);
    free(digests);
    return status;
}

/* Weights in parts are not sent by rank 0: all ranks must have read the same
 * checkpoint. */
static core_status compare_read(const trainer *t)
{
    static const char what[] = "the tensors in the --resume file";
    uint64_t digest = t->read_digest + (uint64_t)trainer_steps(t);

    CORE_TRY(train_distributed_compare(
        t, t->comm, digest, what,
        t->tensor ? " (of the ranks that have the same part)" : ""));
    return t->tensor
               ? train_distributed_compare(t, t->tensor, digest, what,
                                           " (of the ranks that share a model)")
               : CORE_OK;
}

core_status train_distributed_create(trainer *t)
{
    if (!t->comm)
        return CORE_OK;
    seed_rank(t);
    if (t->rank > 0) { /* a checkpoint has the sums of all ranks */
        CORE_TRY(core_zero_(t->loss_sum));
        CORE_TRY(core_zero_(t->correct));
    }
    if (t->shard)
        return train_shard_share(t);
    if (t->tensor || t->model.pieces)
        CORE_TRY(compare_read(t));
    /* With one group, no rank has the same part as another; the gradients of
     * pieces are summed by their backward. */
    if ((t->ranks == 1 && t->tensor) || t->model.pieces)
        return CORE_OK;
    return core_reducer_create(t->comm, t->model.parameters, t->model.count,
                               NULL, &t->reducer);
}

core_status train_distributed_choose(trainer *t, core_comm *comm, int64_t mine,
                                     int64_t *out_choice)
{
    int64_t *all = malloc(core_comm_size(comm) * sizeof *all);
    core_status status;

    *out_choice = 0;
    if (!all)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for numbers");
    t->device = core_comm_device(comm);
    status = train_distributed_gather(t, comm, mine, all);
    if (status == CORE_OK)
        *out_choice = all[0];
    free(all);
    return status;
}

core_status train_distributed_verify(const trainer *t)
{
    uint64_t digest;

    if (t->model.pieces)
        return train_pieces_verify(t);
    CORE_TRY(train_model_digest(&t->model, &digest));
    CORE_TRY(train_distributed_compare(
        t, t->comm, digest, "the weights",
        t->tensor ? " (of the ranks that have the same part)" : ""));
    return train_tensor_verify(t);
}

void train_distributed_abort(trainer *t)
{
    core_error *error = NULL;

    if (!t->comm)
        return;
    core_error_detach(&error);
    if (t->reducer)
        core_comm_abort(core_reducer_comm(t->reducer));
    if (t->shard)
        core_comm_abort(core_reducer_comm(core_shard_reducer(t->shard)));
    core_comm_abort(t->comm);
    if (t->tensor)
        core_comm_abort(t->tensor);
    core_error_raise(error);
}

/* Returns NULL if there is no reducer. */
static core_comm *reducer_comm(const trainer *t)
{
    if (t->shard)
        return core_reducer_comm(core_shard_reducer(t->shard));
    return t->reducer ? core_reducer_comm(t->reducer) : NULL;
}

/* An error of this rank alone, such as a full disk, ends the rank. */
core_comm *train_distributed_shrink(trainer *t)
{
    uint32_t before = t->processes;
    core_comm *rest = NULL;
    core_error *error = NULL;
    bool failed;

    if (!t->options.shrinks || !t->comm)
        return NULL;
    core_error_detach(&error);
    failed = core_comm_error(t->comm) != CORE_OK ||
             (reducer_comm(t) && core_comm_error(reducer_comm(t)) != CORE_OK);
    core_error_raise(error);
    if (!failed)
        return NULL;
    train_distributed_abort(t);
    if (core_comm_shrink(t->comm, &rest) != CORE_OK) {
        fprintf(stderr, "core-train: %s\n", core_error_message());
        return NULL;
    }
    if (core_comm_size(rest) < before)
        return rest;
    fprintf(stderr, "core-train: no rank has ended\n");
    core_comm_release(rest);
    return NULL;
}

core_status train_distributed_backward(trainer *t, core_tensor *loss)
{
    if (t->shard)
        return core_shard_backward(t->shard, loss ? &loss : NULL, loss != NULL,
                                   NULL, 0);
    if (!t->reducer)
        return core_backward(&loss, 1, NULL, 0);
    return core_reducer_backward(t->reducer, loss ? &loss : NULL, loss != NULL,
                                 NULL, 0);
}
