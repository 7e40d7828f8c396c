/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* reducer.h: data-parallel training: gradients averaged over all ranks.
 *
 * Each rank of a communicator has the same parameters and its own part of every
 * batch.  core_reducer_backward does what core_backward does, and makes the
 * grad of each parameter the average of those of all ranks, with the same bits
 * on every rank.  So the same optimizer step keeps the parameters equal.
 *
 *     CORE_TRY(core_reducer_create(comm, parameters, count, NULL, &reducer));
 *     for each batch:
 *         core_optimizer_zero_grad(optimizer);
 *         loss of this rank's samples
 *         CORE_TRY(core_reducer_backward(reducer, &loss, 1, NULL, 0));
 *         CORE_TRY(core_optimizer_step(optimizer));
 *
 * Buckets.  The gradients are stored one after the other in a few tensors, the
 * buckets, and the grads of the parameters are views of these.  A backward
 * writes into them directly, and a bucket is reduced as a whole as soon as it
 * has all of its gradients, during the backward.  Each of the last ones takes
 * half of the gradients that are left, because little of the backward is left
 * to hide it.  The buckets are filled in the reverse order of the parameters at
 * first; after the first step, in the order in which rank 0 had the gradients,
 * which then remains.
 *
 * Batches.  The average of the gradients is the gradient of the average loss,
 * which is that of the whole batch if the ranks have parts of equal size.  For
 * others, multiply the loss of a rank by its number of samples, times the
 * number of ranks, divided by the size of the whole batch.  A rank without
 * samples calls core_reducer_backward without a loss.
 *
 * Unused parameters.  Parameters on which the losses do not depend may differ
 * by rank.  A rank that has no gradient for a parameter contributes zeros; if
 * no rank has one, the grad remains as it was.
 *
 * Errors.  An error names the rank, the collective and its number, as in
 * comm.h, and after it the reducer has failed: later calls return it again.
 * On a device with streams a collective may fail after core_reducer_backward
 * has returned; the next call reports that, and core_comm_synchronize of
 * core_reducer_comm waits for it.  If the backward itself fails on one rank,
 * the others get an error that names it; so they do if it cannot start one and
 * calls core_reducer_cancel.
 *
 * Threads.  One thread at a time may use a reducer; it communicates on its own
 * communicator, so that other threads may use the one of core_reducer_create
 * meanwhile.  A child process of fork cannot use it: DEVICE_LOST. */

#ifndef LIBCORE_REDUCER_H
#define LIBCORE_REDUCER_H

#include "autograd.h"
#include "comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The parameters of a model, and the buckets of their gradients. */
typedef struct core_reducer core_reducer;

/* The options of core_reducer_create.  All fields but struct_size may be 0. */
typedef struct core_reducer_options {
    uint32_t struct_size;
    /* The dtype of the buckets, CORE_F32 or CORE_F64, in which gradients are
     * summed over several backwards and averaged; 0: each parameter's own.  The
     * grad of a parameter with another dtype is a copy that is rounded to its
     * dtype. */
    core_dtype dtype;
    uint64_t bucket_bytes;       /* of a bucket, about; 0: 25 MB (26214400) */
    uint64_t first_bucket_bytes; /* of the first one, about, which is small so
                                    that it can be reduced early; and the least
                                    of the last ones.  0: 1 MB */
    /* Tensors that are not trained, such as the running averages of batch
     * normalization, for core_reducer_broadcast_buffers. */
    core_tensor *const *buffers;
    uint64_t nbuffers;
} core_reducer_options;
CORE_STATIC_ASSERT(sizeof(core_reducer_options) == 24 + 8 + sizeof(void *),
                   "core_reducer_options");

/* Flags of core_reducer_backward, in addition to CORE_RETAIN_GRAPH. */
enum {
    /* Add to this rank's gradients only, without communication: the grads are
     * averaged by the next call without the flag, which all ranks make. */
    CORE_REDUCER_NO_SYNC = 1u << 8
};

/* What a reducer has done. */
typedef struct core_reducer_counts {
    uint32_t struct_size;
    uint32_t buckets;
    uint64_t bytes;    /* of all buckets, also while a shard's have no memory */
    uint64_t steps;    /* calls that averaged */
    uint64_t reduced;  /* buckets, over all steps */
    uint64_t early;    /* of these, begun before the end of the backward */
    uint64_t in_place; /* gradients computed in their bucket, without a copy */
    uint64_t copied;   /* gradients copied into it or added to it */
    /* On a device without streams, in nanoseconds: in collectives of buckets;
     * and, of these, after the end of the backward, which waits for them.  The
     * rest was hidden by the backward. */
    uint64_t communicated_ns;
    uint64_t waited_ns;
} core_reducer_counts;

/* Creates a reducer for leaves that require grad, on the communicator's device;
 * all ranks call it.  The caller passes it to core_reducer_release.  It copies
 * parameters and buffers of rank 0 to the other ranks, and keeps references to
 * them.  options NULL: all 0.
 *
 * INVALID_ARGUMENT: the parameters, their layouts or the options differ between
 * ranks, or a parameter occurs twice.  AUTOGRAD: a parameter is not a leaf that
 * requires grad.  DEVICE: it is on another device.  UNSUPPORTED: the engine
 * cannot average the dtype, or divide a communicator.  If it fails on one rank
 * alone, the others wait for it until the timeout of the communicator. */
core_status core_reducer_create(core_comm *comm, core_tensor *const *parameters,
                                size_t count,
                                const core_reducer_options *options,
                                core_reducer **out_reducer);

/* Releases a reducer after the collectives that were begun.  Accepts NULL.  The
 * grads of the parameters remain, and keep the memory of their buckets. */
void core_reducer_release(core_reducer *reducer);

/* Does the same as core_backward, and makes the grads of the parameters the
 * averages of those of all ranks; all ranks call it.  Gradients are added to
 * grads that are there.  tensors NULL and count 0: this rank has no loss.
 * flags: CORE_RETAIN_GRAPH, CORE_REDUCER_NO_SYNC.
 *
 * Hooks that run after the grad of a parameter was updated see the grad before
 * this backward, because it is set at the end; or, if gradients are added to
 * it, a sum that is not averaged yet.  They must not use the grads of other
 * parameters.
 *
 * After an argument was refused, which changes nothing, the call can be
 * repeated.  So can one with NO_SYNC after any error: the grads are as before
 * it.  Therefore a backward that adds to gradients without averaging them first
 * copies its buckets.  (Of a shard with CORE_SHARD_GRADIENTS they may have been
 * changed in part.)  After another error the reducer has failed, and the grads
 * may have been changed in part.  The other ranks get an error that names this
 * rank at their next collective, for which this call waits, at most for the
 * timeout; with CORE_COMM_UNCHECKED they get one as soon as the engine can
 * notify them, or after the timeout. */
core_status core_reducer_backward(core_reducer *reducer,
                                  core_tensor *const *tensors, size_t count,
                                  core_tensor *const *grads, uint32_t flags);

/* Makes a reducer fail with an error, for a rank that cannot make the next call
 * of core_reducer_backward, for example because its forward has failed.
 * status: of that error; message: its text, or NULL.  The other ranks, which
 * make that call, get an error that names this rank; it waits for them as that
 * function does after an error.  Returns status.  INVALID_ARGUMENT: status is
 * CORE_OK.  BUSY: the reducer is in use. */
core_status core_reducer_cancel(core_reducer *reducer, core_status status,
                                const char *message);

/* Copies the buffers of rank 0 to the other ranks, in the order of the current
 * stream; all ranks call it.  Errors are those of core_broadcast. */
core_status core_reducer_broadcast_buffers(core_reducer *reducer);

/* Returns the communicator of the reducer, borrowed; NULL for NULL. */
core_comm *core_reducer_comm(const core_reducer *reducer);

/* Returns a bucket, borrowed, or NULL if index is out of range.  Its last
 * elements, one for each gradient, are internal.  (Buckets of a shard have
 * none, and with CORE_SHARD_GRADIENTS no memory between steps: NULL.) */
core_tensor *core_reducer_bucket(const core_reducer *reducer, size_t index);

/* Gets what a reducer has done.  The caller sets struct_size. */
core_status core_reducer_get_counts(const core_reducer *reducer,
                                    core_reducer_counts *out_counts);

#ifdef __cplusplus
}
#endif
#endif
