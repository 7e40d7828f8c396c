/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shard.h: data-parallel training in which each rank has a part of the
 * optimizer's state (ZeRO stage 1) and, if wanted, of the gradients (stage 2).
 *
 * A reducer (reducer.h) leaves the average gradient on every rank, and every
 * rank updates all parameters.  A shard divides this: each rank gets the
 * averages of a part of the elements, by a reduce-scatter of the same buckets;
 * updates these with an optimizer that has state for them alone; and gets the
 * updated elements of the other ranks by an all-gather.  So the state takes
 * 1/size of the memory, and as much is communicated as by an all-reduce.
 *
 *     CORE_TRY(core_shard_create(comm, parameters, count, NULL, &shard));
 *     the pieces: core_shard_piece(shard, 0), ... for the optimizer
 *     if (npieces > 0)
 *         CORE_TRY(core_adam_create(pieces, npieces, &options, &optimizer));
 *     for each batch:
 *         loss of this rank's samples
 *         CORE_TRY(core_shard_backward(shard, &loss, 1, NULL, 0));
 *         if (npieces > 0)
 *             CORE_TRY(core_optimizer_step(optimizer));
 *         CORE_TRY(core_shard_gather(shard));
 *
 * Pieces.  The part of a rank consists of pieces of parameters: leaves with one
 * dimension that share the memory of their parameter, so that an update of a
 * piece updates the parameter.  Optimizers that treat each element by itself,
 * which are all of optim.h, compute the same as with whole parameters.
 *
 * What reducer.h says about batches, unused parameters, errors and threads
 * holds here, too. */

#ifndef LIBCORE_SHARD_H
#define LIBCORE_SHARD_H

#include "optim.h"
#include "reducer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The parameters of a model, and this rank's part of them. */
typedef struct core_shard core_shard;

/* What is divided among the ranks. */
enum {
    CORE_SHARD_STATES = 0, /* optimizer states */
    /* Gradients, too (ZeRO stage 2): a bucket has memory only from its first
     * gradient of a backward until it is averaged.  Gradients are copied into
     * it instead of computed in it. */
    CORE_SHARD_GRADIENTS = 1
};

/* The options of core_shard_create.  All fields but struct_size may be 0. */
typedef struct core_shard_options {
    uint32_t struct_size;
    uint32_t level;              /* CORE_SHARD_…; 0: CORE_SHARD_STATES */
    uint64_t bucket_bytes;       /* as in core_reducer_options */
    uint64_t first_bucket_bytes; /* likewise */
    core_tensor *const *buffers; /* likewise */
    uint64_t nbuffers;
} core_shard_options;
CORE_STATIC_ASSERT(sizeof(core_shard_options) == 32 + sizeof(void *),
                   "core_shard_options");

/* A piece of a parameter: elements first to first + count - 1, in the order of
 * its memory. */
typedef struct core_shard_piece_information {
    uint32_t struct_size; /* in: sizeof of the caller's; out: filled */
    uint32_t parameter;   /* index in the list of core_shard_create */
    uint64_t first;
    uint64_t count;
} core_shard_piece_information;
CORE_STATIC_ASSERT(sizeof(core_shard_piece_information) == 24,
                   "core_shard_piece_information");

/* Creates a shard; all ranks call it.  The caller passes it to
 * core_shard_release.  It copies parameters and buffers of rank 0 to the other
 * ranks, and keeps references to them.  Errors are those of
 * core_reducer_create, and INVALID_ARGUMENT for an unknown level, or a
 * parameter that is not dense. */
core_status core_shard_create(core_comm *comm, core_tensor *const *parameters,
                              size_t count, const core_shard_options *options,
                              core_shard **out_shard);

/* Releases a shard after the collectives that were begun.  Accepts NULL. */
void core_shard_release(core_shard *shard);

/* Returns the reducer of the shard, borrowed, for its communicator, counts and
 * buffers; core_reducer_backward must not be called on it.  NULL for NULL. */
core_reducer *core_shard_reducer(const core_shard *shard);

/* Returns the number of pieces of this rank; 0 for NULL.  It can be 0, if there
 * are few elements; the rank then needs no optimizer, and makes the other calls
 * as all ranks do. */
size_t core_shard_piece_count(const core_shard *shard);

/* Returns a piece, borrowed; NULL for an index out of range. */
core_tensor *core_shard_piece(const core_shard *shard, size_t index);

/* Describes a piece.  The caller sets out_information->struct_size.  INDEX
 * after the last one. */
core_status core_shard_describe(const core_shard *shard, size_t index,
                                core_shard_piece_information *out_information);

/* Does what core_backward does, averages the gradients over all ranks, and sets
 * the grads of the pieces to them; all ranks call it.  Replaces earlier grads
 * of the pieces, and removes the grads of the parameters.  If no rank has a
 * gradient for a parameter, its pieces have no grad.  flags and errors: as for
 * core_reducer_backward; with CORE_REDUCER_NO_SYNC the parameters get grads of
 * this rank, to which the next call adds.  With CORE_SHARD_GRADIENTS, a call
 * with NO_SYNC that fails in the middle may have changed these grads, and
 * UNSUPPORTED is returned if a leaf gets several gradients in one backward, as
 * inside of a checkpoint (core_checkpoint). */
core_status core_shard_backward(core_shard *shard, core_tensor *const *tensors,
                                size_t count, core_tensor *const *grads,
                                uint32_t flags);

/* Multiplies the grads of all ranks' pieces in place, as core_clip_grad_norm
 * with norm_type 2 does for whole parameters; all ranks call it.  *out_norm:
 * the norm before, 0-dim on the communicator's device, f64 if a parameter is
 * and f32 otherwise, equal on all ranks; the caller owns it; out_norm may be
 * NULL.  INVALID_ARGUMENT: max_norm is negative or not a number.  After another
 * error the shard has failed, and the other ranks get an error that names this
 * one. */
core_status core_shard_clip_grad_norm(core_shard *shard, double max_norm,
                                      core_tensor **out_norm);

/* Copies the pieces of all ranks to the parameters of all ranks; all ranks call
 * it, after the optimizer's step.  It removes the grads of the pieces, whose
 * memory it uses.  INVALID_ARGUMENT: parameters have grads of a backward with
 * CORE_REDUCER_NO_SYNC, whose memory it needs; the call can be repeated.  After
 * another error the shard has failed, and the other ranks get an error that
 * names this one. */
core_status core_shard_gather(core_shard *shard);

/* ---------------------------------------------------------- checkpoints -- */

/* Saves the optimizer's state of this rank's pieces to the file PATH.RANK, in
 * the format of safetensors.h; all ranks call it, with the same path on a file
 * system that all of them can access.  optimizer: created for the pieces, in
 * their order; NULL if there are none.  The parameters are not saved: they are
 * equal on all ranks.  After success all files are complete.  To keep the last
 * checkpoint until the new one is complete, a program uses a new path for each.
 * IO on every rank: a file could not be written on one of them. */
core_status core_shard_save(core_shard *shard, const core_optimizer *optimizer,
                            const char *path);

/* Loads what core_shard_save has saved, on any number of ranks and with buckets
 * of any size: each rank reads the parts of its pieces from the files; all
 * ranks call it.  Parameters must have the same order, sizes, dtypes and
 * strides.  After an error the state may have been changed in part.  NOT_FOUND:
 * a file is missing.  CORRUPT: a file is damaged, or does not have what it must
 * have.  IO: another rank, which the message names, has an error. */
core_status core_shard_load(core_shard *shard, core_optimizer *optimizer,
                            const char *path);

#ifdef __cplusplus
}
#endif
#endif
