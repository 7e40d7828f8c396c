/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* comm.h: collectives among processes: all-reduce, broadcast and others on
 * tensors.
 *
 * A communicator connects `size` processes, the ranks 0 to size - 1.  Every
 * rank makes the same calls on it in the same order, with tensors of the same
 * dtype and number of elements.  libcore does not move the bytes between
 * processes itself.  An engine does, which a plugin provides (core.collectives
 * in backend.h): "mpi", of plugins/mpi, for every device; "nccl" and "rccl", of
 * the plugins cuda and rocm, for their devices.
 *
 * Order.  A collective belongs to the calling thread's current stream of the
 * communicator's device: it uses what was enqueued before, and later work of
 * the stream waits for it.  It runs on a separate stream that belongs to the
 * communicator, so the host and other streams continue meanwhile.  On a device
 * without streams it is complete when the call returns.
 *
 * Errors.  Each collective has a number, which counts the calls on the
 * communicator.  Before the data moves, the ranks compare number, kind, dtype,
 * element count, reduction and root; if they differ, every rank gets an error
 * that names the calls.  If a rank has ended, or does not make the call within
 * the timeout, the others get an error that names the rank, the collective and
 * its number.  If the engine cannot find out which rank it is, libcore names it
 * where the ranks met through a store (core_comm_options): in a file, those on
 * one machine, or over TCP, by connections to rank 0 that stay open, with a
 * thread, until the last communicator of the store is released.  It names those
 * of the communicators of core_comm_split and core_reducer, too, by their ranks
 * in these, but not of core_comm_shrink.  After an error the communicator has
 * failed: later calls return the same error.  On a device with streams an error
 * may occur after the call has returned; the next call on the communicator
 * reports it, and so do core_comm_error, and core_comm_synchronize, which
 * waits.  The content of the result is then undefined, and its memory is kept
 * until the process ends, because the engine may still write to it.
 *
 * Several communicators.  If one stream orders the collectives of two of them,
 * every rank must call these in the same order, or they wait for each other
 * until the timeout.  Threads that each have a communicator should each have a
 * stream.
 *
 * Threads.  One thread at a time may use a communicator: a call that begins
 * during another thread's call returns BUSY.  A child process of fork cannot
 * use the communicators of its parent: DEVICE_LOST.
 *
 * Tensors.  Collectives accept contiguous tensors on the communicator's device;
 * otherwise they return INVALID_ARGUMENT or DEVICE.  A collective cannot be
 * captured (capture.h), recorded (compile.h), or used inside core_vmap:
 * UNSUPPORTED. */

#ifndef LIBCORE_COMM_H
#define LIBCORE_COMM_H

#include "backend.h"
#include "plugins.h"
#include "stream.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A group of processes that communicate.  Reference-counted. */
typedef struct core_comm core_comm;

/* Flags of a communicator. */
enum {
    /* The ranks do not compare their calls.  That saves a small message to each
     * rank for each collective; calls that differ then have undefined results
     * or wait until the timeout. */
    CORE_COMM_UNCHECKED = 1u << 0
};

/* The options of core_comm_create.  If all fields but struct_size are 0, a
 * launcher such as mpirun decides. */
typedef struct core_comm_options {
    uint32_t struct_size;
    uint32_t flags;     /* CORE_COMM_… */
    const char *engine; /* NULL: "mpi" */
    /* How the ranks find each other, for engines whose launcher does not
     * connect them: "file:/path", which all ranks can write and where no file
     * exists; or "tcp:host:port", where rank 0 listens.  NULL: "tcp:" with
     * MASTER_ADDR and MASTER_PORT of the environment. */
    const char *store;
    /* This process and the number of processes.  size 0: both are those of the
     * engine's launcher, or else of the environment: OMPI_COMM_WORLD_RANK and
     * _SIZE, PMI_RANK and _SIZE, SLURM_PROCID and SLURM_NTASKS, or RANK and
     * WORLD_SIZE; the last two come first if torchrun has set
     * TORCHELASTIC_RUN_ID. */
    uint32_t rank;
    uint32_t size;
    double timeout; /* of each call, in seconds, at most 1e6; 0: 300 */
} core_comm_options;
CORE_STATIC_ASSERT(sizeof(core_comm_options) == 40, "core_comm_options");

/* An engine that a plugin has registered. */
typedef struct core_comm_engine_information {
    uint32_t struct_size; /* in: sizeof of the caller's; out: filled */
    uint32_t usable;      /* 1: core_comm_create can use it in this process */
    const char *name;
    core_plugin *plugin; /* borrowed */
    char reason[256];    /* why it is not usable; otherwise "" */
} core_comm_engine_information;
CORE_STATIC_ASSERT(sizeof(core_comm_engine_information) ==
                       264 + 2 * sizeof(void *),
                   "core_comm_engine_information");

/* Describes the engine at an index, which counts from 0, in the order in which
 * core_comm_create tries those of one name; opens all plugins.  An MPI or a
 * vendor's library may be opened, but not initialized.  INDEX: index is not
 * below the number of engines. */
core_status core_comm_engine_describe(
    size_t index, core_comm_engine_information *out_information);

/* Creates a communicator for tensors on a device; all ranks call it.  The
 * caller owns one reference.  device NULL: the default device.  options NULL:
 * the launcher decides.
 *
 * NOT_FOUND: no engine of that name can be used, for the reasons in the
 * message.  INVALID_ARGUMENT: an option is out of range, or rank, size or store
 * are neither given nor set by a launcher.  UNSUPPORTED: the device is "meta",
 * or has streams but no host callbacks or no pinned memory.  INCOMPATIBLE, on
 * all ranks: the libcore or plugin of a rank differs from rank 0's in name or
 * version.  CANCELLED: the timeout passed. */
core_status core_comm_create(core_device *device,
                             const core_comm_options *options,
                             core_comm **out_comm);

/* Adds a reference and returns comm.  Accepts NULL. */
core_comm *core_comm_retain(core_comm *comm);

/* Drops a reference.  Accepts NULL.  Releasing the last one waits for the
 * collectives that were enqueued. */
void core_comm_release(core_comm *comm);

/* Returns the rank of this process; 0 for NULL. */
uint32_t core_comm_rank(const core_comm *comm);

/* Returns the number of ranks; 0 for NULL. */
uint32_t core_comm_size(const core_comm *comm);

/* Returns the device of a communicator, borrowed; NULL for NULL. */
core_device *core_comm_device(const core_comm *comm);

/* Divides the ranks into groups and creates a communicator for the group of
 * this rank; all ranks call it.  The ranks with the same color form a group, in
 * which they are ordered by key, then by rank in comm.  The caller owns one
 * reference.  It waits for the collectives that were enqueued.  After an error
 * comm has failed, too.  UNSUPPORTED: the engine cannot. */
core_status core_comm_split(core_comm *comm, uint32_t color, uint32_t key,
                            core_comm **out_comm);

/* Makes a communicator fail: pending and later calls of this rank return
 * CANCELLED, and so do those of the other ranks if the engine can notify them;
 * otherwise the others wait until their timeout.  Any thread may call it at any
 * time. */
core_status core_comm_abort(core_comm *comm);

/* Creates a communicator of the ranks that still work, after an error; all of
 * these ranks call it, within three quarters of the timeout.  They keep their
 * order.  More than half of the ranks must be left, or half of them with rank
 * 0, so that no others can go on by themselves.  It waits for three quarters of
 * the timeout for ranks that do not come, and takes up to three times the
 * timeout.  The caller owns one reference.  UNSUPPORTED: the engine cannot;
 * "mpi" can.  INVALID_ARGUMENT: the communicator has not failed.  CANCELLED or
 * IO: too few ranks are left, or they do not agree who is, as one came too
 * late; they may try again, unless this one has promised others to go on with
 * them.  If a rank ends just after it has promised this, the others may wait
 * forever. */
core_status core_comm_shrink(core_comm *comm, core_comm **out_comm);

/* Returns CORE_OK, or the error with which the communicator failed.  Does not
 * wait.  Any thread may call it at any time. */
core_status core_comm_error(core_comm *comm);

/* Waits until all collectives that were enqueued are complete, and returns the
 * communicator's error, if any. */
core_status core_comm_synchronize(core_comm *comm);

/* Returns the number of the last collective of a communicator, which is how
 * many it has had; 0 for NULL.  Sends and receives are not counted. */
uint64_t core_comm_sequence(const core_comm *comm);

/* ---------------------------------------------------------- collectives -- */

/* UNSUPPORTED: the engine does not have the collective, or cannot reduce the
 * dtype.  reduction: CORE_REDUCE_… (backend.h); DTYPE for CORE_REDUCE_AVG of a
 * dtype that is not floating.  f16 and bf16 are reduced in f32 and rounded
 * once, except by "nccl" and "rccl", which round after each addition.  The
 * caller owns *out_tensor.
 *
 * The functions that return a tensor are differentiable, those that reduce
 * for CORE_REDUCE_SUM and CORE_REDUCE_AVG; AUTOGRAD for other reductions of a
 * tensor that requires grad.  The gradient is that of the sum of the losses of
 * all ranks, so every rank calls backward. */

/* Reduces the tensors of all ranks; every rank gets the result, with the same
 * bits.  The order of the additions depends on the engine, on the number of
 * elements, and on whether the calls are compared or in a group, so that with
 * three ranks or more a sum may have other bits there. */
core_status core_all_reduce(core_comm *comm, core_tensor *input,
                            uint32_t reduction, core_tensor **out_tensor);

/* Does what core_all_reduce does, in place.  AUTOGRAD: the tensor requires grad
 * and grad mode is on.  REFUSED: its memory is read-only. */
core_status core_all_reduce_(core_comm *comm, core_tensor *tensor,
                             uint32_t reduction);

/* Reduces the tensors of all ranks for rank `root`.  On the other ranks the
 * result is a tensor of zeros with the same sizes, whose gradient does not
 * count: so every rank has a result from which it calls backward. */
core_status core_reduce(core_comm *comm, core_tensor *input, uint32_t reduction,
                        uint32_t root, core_tensor **out_tensor);

/* Copies the elements of the tensor of rank `root` to the tensors of all ranks,
 * in place.  AUTOGRAD and REFUSED as for core_all_reduce_. */
core_status core_broadcast(core_comm *comm, core_tensor *tensor, uint32_t root);

/* Concatenates the tensors of all ranks along dimension 0, in the order of
 * ranks: [n, ...] becomes [size * n, ...], and [] becomes [size]. */
core_status core_all_gather(core_comm *comm, core_tensor *input,
                            core_tensor **out_tensor);

/* Reduces the tensors of all ranks and returns the part of this rank:
 * [size * n, ...] becomes [n, ...], rows rank * n to rank * n + n - 1.  SHAPE:
 * dimension 0 is not a multiple of the number of ranks. */
core_status core_reduce_scatter(core_comm *comm, core_tensor *input,
                                uint32_t reduction, core_tensor **out_tensor);

/* Divides dimension 0 into as many equal parts as there are ranks, sends part r
 * to rank r, and concatenates the parts that it receives, in the order of
 * ranks.  The sizes do not change.  SHAPE as for core_reduce_scatter. */
core_status core_all_to_all(core_comm *comm, core_tensor *input,
                            core_tensor **out_tensor);

/* Does what core_all_to_all does for parts of different sizes.  send_rows and
 * receive_rows: one number for each rank: how many rows of dimension 0 it gets,
 * and how many come from it; they may be 0.  The input's dimension 0 is the sum
 * of send_rows, the result's that of receive_rows, and the other dimensions are
 * equal on all ranks.  If ranks do not know what they receive, they exchange
 * the numbers before, by core_all_to_all of an i64 tensor.  SHAPE:
 * send_rows have another sum, or a number is negative.  INVALID_ARGUMENT on
 * every rank: one expects other rows than another sends (not compared with
 * CORE_COMM_UNCHECKED).  UNSUPPORTED: this rank sends or receives more elements
 * than the engine can, with MPI 2,147,483,647; the other ranks, if they do not,
 * wait for the timeout. */
core_status core_all_to_all_rows(core_comm *comm, core_tensor *input,
                                 const int64_t *send_rows,
                                 const int64_t *receive_rows,
                                 core_tensor **out_tensor);

/* Sends the elements of a tensor, contiguous and on the communicator's device,
 * to another rank, which calls core_recv with as many of the same dtype, in the
 * order of the current stream.  INVALID_ARGUMENT: to is this rank, or
 * not a rank. */
core_status core_send(core_comm *comm, core_tensor *tensor, uint32_t to);

/* Receives the elements of a tensor from another rank, in place, in the order
 * of the current stream.  AUTOGRAD and REFUSED as for core_all_reduce_;
 * INVALID_ARGUMENT as for core_send. */
core_status core_recv(core_comm *comm, core_tensor *tensor, uint32_t from);

/* One of the messages of core_send_recv. */
typedef struct core_message {
    core_tensor *tensor; /* contiguous, on the communicator's device */
    uint32_t rank;       /* the other rank */
    uint32_t receives;   /* 0: sends the tensor; else: receives into it */
} core_message;
CORE_STATIC_ASSERT(sizeof(core_message) == 8 + sizeof(void *), "core_message");

/* Sends and receives as one call, so that ranks that send to each other do not
 * wait for each other: the neighbours of a ring or a grid can exchange tensors
 * of any size.  Each other rank calls it, too, or makes the calls of core_send
 * and core_recv that belong to its messages.  Those between two ranks are
 * matched in the order of the array, for each direction.  The messages are
 * transferred one after another, pair of ranks by pair in the same order on all
 * ranks, so that two ranks that have not exchanged theirs may delay others.
 * All are checked before the first one is begun.  Errors as for core_send and
 * core_recv; INVALID_ARGUMENT: memory that is received into is also in another
 * message, of this tensor or of a view. */
core_status core_send_recv(core_comm *comm, const core_message *messages,
                           size_t count);

/* Makes the current stream wait until all ranks have called it; on a
 * synchronous device the thread waits.  To wait on the host, call
 * core_comm_synchronize. */
core_status core_barrier(core_comm *comm);

/* Begins a group of collectives: those that are called on the communicator
 * until core_comm_group_end check their arguments and create their results, and
 * are made by it, in their order; an engine may run those at once that do not
 * use each other's memory.  The ranks then compare all of them at once, which
 * costs one small message to each rank instead of one for each call.  Every
 * rank makes the same groups.  They belong to the stream that is current at the
 * end; until then results have no content, inputs must not be changed, and
 * core_comm_synchronize does not wait for them.  INVALID_ARGUMENT: a group has
 * begun.  In a group core_send, core_recv and core_send_recv are UNSUPPORTED;
 * core_comm_split and a backward through a collective of the communicator are
 * INVALID_ARGUMENT. */
core_status core_comm_group_begin(core_comm *comm);

/* Makes the collectives of the group that has begun.  INVALID_ARGUMENT: none
 * has; or the groups of the ranks differ, in calls that the message names.  If
 * this function returns an error, the group has ended, too: its other calls are
 * not made.  If calls are compared, and the group has several, the communicator
 * has then failed, unless the error is of the current stream.  A collective
 * that is refused between begin and end is not part of the group, which goes
 * on. */
core_status core_comm_group_end(core_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
