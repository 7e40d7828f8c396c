/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* loader.h: what a data loader consists of.
 *
 * Batch b of an epoch is kept in slot b % nslots from the time that a thread
 * has read it until it is delivered.  A thread begins to read batch b when the
 * batches up to b - nslots were delivered, so its slot is empty then. */

#ifndef CORE_DATA_LOADER_H
#define CORE_DATA_LOADER_H

#include <libcore/data.h>

#include <pthread.h>
#include <sys/types.h>

/* A batch, or the error in its place. */
typedef struct core__data_batch {
    core_tensor *tensors[CORE_DATA_TENSORS];
    size_t count;
    core_status status;
    core_error *error; /* NULL without memory */
} core__data_batch;

typedef struct core__data_slot {
    core__data_batch batch;
    bool full;
} core__data_slot;

struct core_data_loader {
    core_data_source source;
    core_data_options options;
    int64_t batches;
    pid_t process; /* whose threads read */

    /* The threads read these without the lock; core_data_loader_begin, which
     * changes them, waits until none reads. */
    int64_t *order; /* of the samples, if shuffled */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* what is below */
    bool begun;
    bool ending;
    bool pausing;      /* no thread may begin to read */
    uint32_t reading;  /* threads that do */
    int64_t taken;     /* the next batch to read */
    int64_t delivered; /* the next batch to deliver */

    core__data_slot *slots;
    uint32_t nslots;
    pthread_t *threads;
    uint32_t nthreads; /* that were started */
};

/* Sets the order of an epoch's samples. */
void core__data_shuffle(int64_t *order, int64_t count, uint64_t seed,
                        uint64_t epoch);

/* Reads batch number `batch` and copies it to the loader's device, where it is
 * complete for all streams.  staging: uses pinned memory.  On failure *out has
 * the error. */
void core__data_read(const core_data_loader *loader, int64_t batch,
                     bool staging, core__data_batch *out);

/* Releases what a batch has, and empties it. */
void core__data_batch_clear(core__data_batch *batch);

/* Waits for what this thread has enqueued on a device. */
core_status core__data_finish(core_device *device);

/* Starts the loader's threads. */
core_status core__data_start(core_data_loader *loader);

/* Ends and joins them. */
void core__data_stop(core_data_loader *loader);

#endif
