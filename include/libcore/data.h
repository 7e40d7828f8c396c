/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* data.h: data loaders, which read the batches of a data set in threads, ahead
 * of their use, in an order that a seed determines.
 *
 *     core_data_loader *loader;
 *     core_tensor *batch[2];
 *
 *     CORE_TRY(core_data_loader_create(&source, &options, &loader));
 *     CORE_TRY(core_data_loader_begin(loader, epoch, 0));
 *     for (;;) {
 *         size_t count = 2;
 *
 *         CORE_TRY(core_data_loader_next(loader, batch, &count));
 *         if (count == 0)
 *             break;
 *         ...
 *     }
 *
 * The batches and their order do not depend on the number of threads.
 *
 * Threads.  One thread at a time may use a loader.  Batches are read with grad
 * mode off.  The loader's threads block signals.  A child of fork cannot use
 * the loader of its parent, but may release it.
 *
 * Errors.  INVALID_ARGUMENT for a NULL argument, unless its description accepts
 * NULL. */

#ifndef LIBCORE_DATA_H
#define LIBCORE_DATA_H

#include "device.h"
#include "tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------- sources -- */

/* The maximum number of tensors of a batch. */
enum { CORE_DATA_TENSORS = 16 };

/* A data set. */
typedef struct core_data_source {
    uint32_t struct_size;
    uint32_t reserved;
    int64_t count; /* samples; at least 1 */

    /* Reads a batch: the samples with the given numbers, from 0 to count - 1.
     * outputs: CORE_DATA_TENSORS entries, all NULL; it sets the first ones to
     * owned tensors, on any device, and *noutputs to their number, at least 1.
     * If it fails, the loader releases those that it has set.  Several threads
     * may call it at once, unless the loader has at most one. */
    core_status (*read)(void *context, const int64_t *samples, size_t count,
                        core_tensor **outputs, size_t *noutputs);
    void *context; /* passed to read */

    /* Frees the context.  Called once, when the loader is released, and also if
     * core_data_loader_create fails; not in a child of fork.  May be NULL. */
    void (*release)(void *context);
} core_data_source;
CORE_STATIC_ASSERT(sizeof(core_data_source) == 40, "core_data_source");

/* Creates a source whose samples are the rows of some tensors, as of images and
 * their labels: a batch has core_index_select of each.  The source keeps a
 * reference to each tensor; the program does not change it while a loader
 * reads. Waits for the current streams of their devices.  out_source: for
 * core_data_loader_create, which takes over its context.  INVALID_ARGUMENT:
 * more tensors than CORE_DATA_TENSORS, or none.  SHAPE: a tensor has no
 * dimension, or no rows, or the numbers of rows differ. */
core_status core_data_source_tensors(core_tensor *const *tensors, size_t count,
                                     core_data_source *out_source);

/* --------------------------------------------------------------- loader -- */

typedef struct core_data_loader core_data_loader;

/* The options of a loader. */
typedef struct core_data_options {
    uint32_t struct_size;
    uint32_t threads;  /* that read; 0: core_data_loader_next reads */
    uint32_t prefetch; /* batches that are read ahead; 0: 2 * threads */
    bool shuffle;      /* the order of each epoch is random */
    bool drop_last;    /* leaves out a last batch that is not full */
    uint16_t reserved;
    int64_t batch_size;  /* samples; at least 1 */
    uint64_t seed;       /* of shuffle, with the number of the epoch */
    core_device *device; /* where batches are copied to; NULL: they stay where
                            they were read */
} core_data_options;
CORE_STATIC_ASSERT(sizeof(core_data_options) == 40, "core_data_options");

/* Creates a loader.  source, options: copied; the loader takes over the context
 * of the source.  For a device with streams, the loader's threads copy through
 * pinned memory on streams of their own, while the device computes.
 * INVALID_ARGUMENT: no samples, a batch size below 1, or more than 1024 threads
 * or 65536 batches ahead. */
core_status core_data_loader_create(const core_data_source *source,
                                    const core_data_options *options,
                                    core_data_loader **out_loader);

/* Ends the threads, after what they are reading, and frees the loader and the
 * batches that were not used.  Accepts NULL. */
void core_data_loader_release(core_data_loader *loader);

/* Returns the number of batches of an epoch. */
int64_t core_data_loader_batches(const core_data_loader *loader);

/* Begins an epoch, at any time.  epoch: its number, which determines the order.
 * first: the number of the first batch, so that a program can continue where it
 * was interrupted; at most the number of batches. */
core_status core_data_loader_begin(core_data_loader *loader, uint64_t epoch,
                                   int64_t first);

/* Returns the next batch of the epoch, and waits for it if necessary.
 * *noutputs: in: the capacity of outputs; out: how many tensors the batch has,
 * 0 after the last batch and on failure.  The caller owns the tensors, which
 * are ready for the current stream of their device.  An error of the source or
 * of a copy is returned in the place of its batch, and the following call
 * returns the batch after it.  INVALID_ARGUMENT: no epoch was begun; the batch
 * does not fit (it is lost); or the process is a child of fork. */
core_status core_data_loader_next(core_data_loader *loader,
                                  core_tensor **outputs, size_t *noutputs);

#ifdef __cplusplus
}
#endif
#endif
