/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* comm.h: collectives among processes: all-reduce, broadcast and the like on
 * tensors, and data-parallel training with them (reducer.h).
 *
 * A communicator connects `size` processes, the ranks 0 to size - 1.  Every
 * rank makes the same calls on it in the same order, with tensors of the same
 * sizes and dtype.  libcore does not move the bytes between processes itself:
 * an engine does, which a plugin provides (core.collectives in backend.h);
 * plugins/mpi uses the MPI library of the system.
 *
 * Order.  A collective belongs to the calling thread's current stream of the
 * communicator's device: it uses what was enqueued before, and later work of
 * the stream waits for it.  It runs on a stream of the communicator's own, so
 * that the host and other streams go on meanwhile.  On a device without streams
 * it is complete when the call returns.
 *
 * Errors.  Each collective has a number, which counts the calls on the
 * communicator.  Before the data moves, the ranks compare number, kind, dtype,
 * element count, reduction and root; if they differ, every rank gets an error
 * that names the calls.  A rank that has ended, or does not make the call
 * within the timeout, is an error that names it, the collective and its number.
 * After an error the communicator is failed: later calls return the same error.
 * On a device with streams an error is found after the call has returned; it is
 * reported by the next call on the communicator, by core_comm_error, and by
 * core_comm_synchronize, which waits.  The content of the result is then
 * undefined, and its memory is kept until the process ends, because the engine
 * may still write to it.
 *
 * Several communicators.  If one stream orders the collectives of two of them,
 * they must have the same order on every rank, or they wait for each other until
 * the timeout.  Threads with a communicator each should use a stream each.
 *
 * Threads.  A communicator is used by one thread at a time: a call that begins
 * while another is being made returns BUSY.  A child of fork cannot use the
 * communicators of its parent.
 *
 * Every collective takes tensors on the communicator's device, and refuses
 * those that are not contiguous.  None can be captured (capture.h), recorded
 * (compile.h), or used inside of core_vmap. */

#ifndef LIBCORE_COMM_H
#define LIBCORE_COMM_H

#include "backend.h"
#include "stream.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A group of processes that communicate.  Reference-counted. */
typedef struct core_comm core_comm;

/* Flags of a communicator. */
enum {
    /* The calls of the ranks are not compared.  That saves the time of a small
     * message for each collective; calls that differ then give undefined
     * results, or end by the timeout. */
    CORE_COMM_UNCHECKED = 1u << 0
};

/* How a communicator is created.  Zero in every field but struct_size means
 * what a launcher such as mpirun has set. */
typedef struct core_comm_options {
    uint32_t struct_size;
    uint32_t flags;     /* CORE_COMM_… */
    const char *engine; /* NULL: "mpi" */
    /* How the ranks find each other, for engines that no launcher connects:
     * "file:/path", a file that does not exist and that all ranks can access;
     * or "tcp:host:port", on which rank 0 listens.  NULL: "tcp:" with
     * MASTER_ADDR and MASTER_PORT of the environment. */
    const char *store;
    /* size 0: both from the launcher's environment: OMPI_COMM_WORLD_…, PMI_…,
     * SLURM_PROCID and SLURM_NTASKS, or RANK and WORLD_SIZE. */
    uint32_t rank;
    uint32_t size;
    double timeout; /* of each call, in seconds; 0: 300 */
} core_comm_options;
CORE_STATIC_ASSERT(sizeof(core_comm_options) == 40, "core_comm_options");

/* Creates a communicator for tensors of a device; all ranks call it.  The
 * caller owns one reference.  device NULL: the default device.  options NULL:
 * all zero.  NOT_FOUND if no engine of that name can be used, with the reasons;
 * UNSUPPORTED if the device has streams but no host callbacks or no pinned
 * memory; CANCELLED if the timeout passed. */
core_status core_comm_create(core_device *device,
                             const core_comm_options *options,
                             core_comm **out_comm);

/* Adds a reference and returns comm.  Accepts NULL. */
core_comm *core_comm_retain(core_comm *comm);

/* Drops a reference.  Accepts NULL.  Releasing the last one waits for the
 * collectives that were enqueued. */
void core_comm_release(core_comm *comm);

/* Returns the rank of this process. */
uint32_t core_comm_rank(const core_comm *comm);

/* Returns the number of ranks. */
uint32_t core_comm_size(const core_comm *comm);

/* Returns the device of a communicator, borrowed. */
core_device *core_comm_device(const core_comm *comm);

/* Creates communicators of parts of the ranks; all ranks call it.  Those with
 * one color form a part, ordered by key, then by rank.  The caller owns one
 * reference. */
core_status core_comm_split(core_comm *comm, uint32_t color, uint32_t key,
                            core_comm **out_comm);

/* Makes the pending and later calls of all ranks on the communicator fail,
 * where the engine can tell the others; otherwise they wait for their timeout.
 * Any thread may call it at any time. */
core_status core_comm_abort(core_comm *comm);

/* Creates a communicator of the ranks that still work, after an error; all of
 * those call it.  The caller owns one reference.  UNSUPPORTED if the engine
 * cannot; INVALID_ARGUMENT if the communicator has not failed. */
core_status core_comm_shrink(core_comm *comm, core_comm **out_comm);

/* Returns CORE_OK, or the error with which the communicator failed.  Does not
 * wait.  Any thread may call it at any time. */
core_status core_comm_error(core_comm *comm);

/* Waits until all collectives that were enqueued are complete, and returns the
 * communicator's error, if any. */
core_status core_comm_synchronize(core_comm *comm);

/* Returns how many collectives were called on a communicator; sends and
 * receives do not count. */
uint64_t core_comm_sequence(const core_comm *comm);

/* ---------------------------------------------------------- collectives -- */

/* reduction: CORE_REDUCE_… (backend.h).  f16 and bf16 are reduced in f32 and
 * rounded once.  The caller owns *out_tensor.  All of the four functions that
 * return a tensor are differentiable for CORE_REDUCE_SUM and CORE_REDUCE_AVG;
 * the gradient of a rank is that of the sum of all ranks' losses. */

/* Reduces the tensors of all ranks; every rank gets the result, with the same
 * bits. */
core_status core_all_reduce(core_comm *comm, core_tensor *input,
                            uint32_t reduction, core_tensor **out_tensor);

/* Does the same in place.  AUTOGRAD if the tensor requires grad and grad mode
 * is on. */
core_status core_all_reduce_(core_comm *comm, core_tensor *tensor,
                             uint32_t reduction);

/* Copies the elements of the root's tensor to the tensors of all ranks, in
 * place.  AUTOGRAD as for core_all_reduce_. */
core_status core_broadcast(core_comm *comm, core_tensor *tensor, uint32_t root);

/* Concatenates the tensors of all ranks along dimension 0, in rank order.  A
 * 0-dim tensor counts as one of 1 element. */
core_status core_all_gather(core_comm *comm, core_tensor *input,
                            core_tensor **out_tensor);

/* Reduces the tensors of all ranks and returns the part of this rank: dimension
 * 0 is divided into as many parts as there are ranks.  SHAPE if that is not
 * possible. */
core_status core_reduce_scatter(core_comm *comm, core_tensor *input,
                                uint32_t reduction, core_tensor **out_tensor);

/* Divides dimension 0 into as many parts as there are ranks, sends part r to
 * rank r, and concatenates the parts that it receives, in rank order.  SHAPE as
 * for core_reduce_scatter. */
core_status core_all_to_all(core_comm *comm, core_tensor *input,
                            core_tensor **out_tensor);

/* Sends the elements of a tensor to one other rank, which calls core_recv. */
core_status core_send(core_comm *comm, core_tensor *tensor, uint32_t to);

/* Receives the elements of a tensor from one other rank, in place.  AUTOGRAD as
 * for core_all_reduce_. */
core_status core_recv(core_comm *comm, core_tensor *tensor, uint32_t from);

/* Waits, in the order of the current stream, until all ranks have called it. */
core_status core_barrier(core_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
