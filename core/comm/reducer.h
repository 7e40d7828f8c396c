/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* reducer.h: the parts of a reducer (libcore/reducer.h). */

#ifndef CORE_COMM_REDUCER_H
#define CORE_COMM_REDUCER_H

#include "comm/comm.h"

#include <libcore/destination.h>
#include <libcore/reducer.h>
#include <libcore/shard.h>

/* A parameter and its gradient. */
typedef struct core__reduced {
    core_reducer *reducer;
    core_tensor *parameter; /* with a reference, like the next two */
    core_tensor *view;      /* of the bucket, with the sizes of the parameter */
    core_tensor *published; /* the grad of the parameter that the reducer has
                             * set: `view`, or a copy of it; NULL: none */
    uint32_t version;       /* of the copy */
    uint32_t bucket;
    int64_t at;      /* first element in the bucket */
    core_hook *hook; /* of a reducer that frees its buckets */
    /* In the running backward: whether the view has a gradient from before, and
     * whether it has got one. */
    bool holds;
    bool ready;
} core__reduced;

typedef struct core__bucket {
    core_tensor *memory;  /* the gradients, then one element for each: 1 if the
                           * rank has it, and otherwise 0 */
    core_tensor *present; /* these elements; of a sharded reducer, separate */
    core_tensor *part;    /* of a sharded reducer: this rank's part of the
                           * averages */
    core_tensor *before;  /* a copy of `memory` from the beginning of a backward
                           * that adds to gradients without averaging; NULL:
                           * none was needed yet */
    bool saved;           /* ... of the running one */
    uint32_t first;       /* in the reducer's order */
    uint32_t count;
    uint32_t missing;     /* gradients that are not ready in this backward */
    bool all_present;     /* all elements of `present` are 1 */
    core_stream *written; /* of the last gradient; with a reference, or NULL */
    /* Of a reducer that frees buckets: has set the memory to zero; likewise. */
    core_stream *zeroed;
} core__bucket;

/* On a device without streams a thread makes the collectives, in the order of
 * the buckets. */
typedef struct core__reducer_thread {
    pthread_t id;
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t change;
    core__bucket *buckets;
    uint32_t begun, done; /* buckets of this step */
    bool ends;
    uint64_t communicated_ns; /* since the reducer was created */
    core_status status;       /* of the first collective that failed */
    core_error *error;
} core__reducer_thread;

struct core_reducer {
    core_comm *comm;     /* its own */
    core_stream *stream; /* of the collectives; NULL on a synchronous device */
    core__reducer_thread *thread; /* on a synchronous one */
    core_dtype dtype;             /* of the buckets; NONE: the parameters' */
    uint64_t bucket_bytes, first_bucket_bytes;
    core_tensor **buffers; /* with references */
    size_t nbuffers;
    /* Buckets have memory only while they are filled and averaged, and
     * parameters have no views of them; shard_gradients.c. */
    bool frees;
    core_tensor *probe, *probed; /* a leaf and its destination */
    core_shard *shard; /* borrowed; not NULL: each rank gets a part of every
                        * bucket, whose order does not change */

    core__reduced *parameters;
    core_gradient_destination *destinations; /* of one backward */
    uint32_t count;
    uint32_t *order; /* of the parameters in the buckets */
    core__bucket *buckets;
    uint32_t nbuckets;

    pthread_mutex_t lock; /* guards the rest, and `missing` and `written` */
    uint32_t *readiness;  /* the order of the first step */
    uint32_t nready;
    bool measured; /* `readiness` is that of rank 0 */
    bool rebuilt;  /* the buckets have this order */
    bool in_backward;
    bool averages;  /* the backward is not NO_SYNC */
    uint32_t begun; /* buckets of this step, in order */
    core_reducer_counts counts;
};

core_status core__reducer_create(core_comm *comm,
                                 core_tensor *const *parameters, size_t count,
                                 const core_reducer_options *options,
                                 core_shard *shard, bool frees,
                                 core_reducer **out_reducer);

/* Of the sizes, dtypes and strides of all parameters, in order. */
uint64_t core__reducer_hash_parameters(const core_reducer *reducer);

/* A gradient is in its bucket. */
core_status core__reducer_ready(core__reduced *item, bool in_place);

/* The other ranks, which wait for this one, get an error at the next
 * collective, and this rank keeps its own. */
void core__reducer_cancel(core_reducer *reducer);

/* The result of a destination that core_backward_into has not seen, because it
 * refused an argument. */
#define CORE__DESTINATION_UNSEEN ((core_destination_result)255)

/* shard_gradients.c: for a reducer that frees its buckets. */
core_status core__reducer_hook(core_reducer *reducer);
void core__reducer_unhook(core_reducer *reducer);
core_status core__reducer_backward_hooked(core_reducer *reducer,
                                          core_tensor *const *tensors,
                                          size_t count,
                                          core_tensor *const *grads,
                                          uint32_t flags, bool *out_refused);
/* Brings the grad of a parameter into its bucket, and removes it. */
core_status core__reducer_move_grad(core__reduced *item);

/* Averages a bucket, in the order of the current stream. */
core_status core__bucket_average(core_reducer *reducer, core__bucket *bucket);

/* shard.c: the average of a parameter's gradient has arrived; present: a rank
 * had one. */
core_status core__shard_publish(core_shard *shard, uint32_t parameter,
                                bool present);

/* The strides of a parameter's gradient in its bucket. */
void core__reducer_strides(const core_tensor *parameter, int64_t *strides);

/* bucket.c: divides the parameters, in the reducer's order, into buckets; those
 * that it had are released. */
core_status core__buckets_build(core_reducer *reducer);
void core__buckets_release(core_reducer *reducer);
/* Of a reducer that frees buckets: gives it memory, if it has none, that the
 * current stream can write. */
core_status core__bucket_allocate(core_reducer *reducer, core__bucket *bucket);
/* The place of a parameter in its bucket, with its sizes; no view for
 * autograd. */
core_status core__bucket_view(const core__bucket *bucket,
                              const core__reduced *item, core_tensor **out);

/* reducer_thread.c */
core_status core__reducer_thread_start(core_reducer *reducer);
/* Waits for the collectives that were begun. */
void core__reducer_thread_end(core_reducer *reducer);
/* Lets the thread reduce the next bucket. */
void core__reducer_thread_begin(core_reducer *reducer);
/* Waits until all buckets that were begun are reduced, and returns the first
 * error. */
core_status core__reducer_thread_wait(core_reducer *reducer);
uint64_t core__reducer_now_ns(void);

#endif
