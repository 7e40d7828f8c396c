/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Data loaders: their life, epochs and batches. */

#include "data/loader.h"

#include "base/error.h"
#include "base/memory.h"

#include <libcore/autograd.h>
#include <libcore/memory.h>
#include <libcore/stream.h>

#include <string.h>
#include <unistd.h>

enum { THREADS = 1024, PREFETCH = 65536 };

/* ------------------------------------------------------------- lifetime -- */

static core_status check(const core_data_source *source,
                         const core_data_options *options)
{
    const char *name = "core_data_loader_create";

    if (source->struct_size < sizeof *source)
        return core__error_struct_size(name, "core_data_source",
                                       source->struct_size, sizeof *source);
    if (options->struct_size < sizeof *options)
        return core__error_struct_size(name, "core_data_options",
                                       options->struct_size, sizeof *options);
    if (!source->read)
        return core__error_null(name, "source->read");
    if (source->count < 1)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: the source has %lld samples", name,
                           (long long)source->count);
    if (options->batch_size < 1)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: batch_size is %lld; it must be at least 1",
                           name, (long long)options->batch_size);
    if (options->threads > THREADS || options->prefetch > PREFETCH)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: threads is %u and prefetch %u; the most are "
                           "%d and %d",
                           name, options->threads, options->prefetch, THREADS,
                           PREFETCH);
    return CORE_OK;
}

static int64_t count_batches(int64_t samples, const core_data_options *options)
{
    int64_t full = samples / options->batch_size;

    return full + (samples % options->batch_size != 0 && !options->drop_last);
}

static core_status allocate(core_data_loader *loader)
{
    const core_data_options *options = &loader->options;

    if (options->threads > 0) {
        loader->nslots =
            options->prefetch ? options->prefetch : 2 * options->threads;
        loader->slots =
            core__alloc_zero(loader->nslots * sizeof *loader->slots);
        loader->threads =
            core__alloc_array(options->threads, sizeof *loader->threads);
    }
    if (options->shuffle)
        loader->order = core__alloc_array((size_t)loader->source.count,
                                          sizeof *loader->order);
    if ((options->threads > 0 && (!loader->slots || !loader->threads)) ||
        (options->shuffle && !loader->order))
        return core__error(CORE_ERROR_OUT_OF_MEMORY,
                           "core_data_loader_create: no memory for %u batches "
                           "and the order of %lld samples",
                           loader->nslots, (long long)loader->source.count);
    return CORE_OK;
}

static core_status create(const core_data_source *source,
                          const core_data_options *options,
                          core_data_loader **out_loader)
{
    core_data_loader *loader;
    core_status status = check(source, options);

    if (status != CORE_OK)
        return status;
    loader = core__alloc_zero(sizeof *loader);
    if (!loader)
        return core__error(CORE_ERROR_OUT_OF_MEMORY,
                           "core_data_loader_create: no memory");
    loader->source = *source;
    loader->options = *options;
    loader->batches = count_batches(source->count, options);
    loader->pausing = true; /* until an epoch is begun */
    loader->process = getpid();
    core_device_retain(loader->options.device);
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->changed, NULL);
    status = allocate(loader);
    if (status == CORE_OK) {
        *out_loader = loader;
        return CORE_OK;
    }
    loader->source.release = NULL; /* the caller calls it */
    core_data_loader_release(loader);
    return status;
}

core_status core_data_loader_create(const core_data_source *source,
                                    const core_data_options *options,
                                    core_data_loader **out_loader)
{
    core_status status;

    if (out_loader)
        *out_loader = NULL;
    CORE__NOT_NULL(source);
    if (!options || !out_loader)
        status = core__error_null(__func__, options ? "out_loader" : "options");
    else
        status = create(source, options, out_loader);
    if (status != CORE_OK && source->struct_size >= sizeof *source &&
        source->release)
        source->release(source->context);
    return status;
}

static void empty_slots(core_data_loader *loader)
{
    for (uint32_t i = 0; i < loader->nslots; i++) {
        if (loader->slots && loader->slots[i].full)
            core__data_batch_clear(&loader->slots[i].batch);
        if (loader->slots)
            loader->slots[i].full = false;
    }
}

void core_data_loader_release(core_data_loader *loader)
{
    bool own;

    if (!loader)
        return;
    own = loader->process == getpid();
    if (own)
        core__data_stop(loader);
    /* In a child of fork, the threads and the state of the lock are not
     * there. */
    empty_slots(loader);
    if (own) {
        pthread_cond_destroy(&loader->changed);
        pthread_mutex_destroy(&loader->lock);
    }
    core_device_release(loader->options.device);
    /* What the parent may have open is the parent's. */
    if (own && loader->source.release)
        loader->source.release(loader->source.context);
    core__free(loader->slots);
    core__free(loader->threads);
    core__free(loader->order);
    core__free(loader);
}

int64_t core_data_loader_batches(const core_data_loader *loader)
{
    return loader ? loader->batches : 0;
}

/* --------------------------------------------------------------- epochs -- */

static core_status check_process(const core_data_loader *loader,
                                 const char *function)
{
    if (loader->process == getpid())
        return CORE_OK;
    return core__error(CORE_ERROR_INVALID_ARGUMENT,
                       "%s: the loader belongs to the parent of this process; "
                       "a child of fork creates its own",
                       function);
}

/* Waits until no thread reads, and drops what was read. */
static void pause_threads(core_data_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    loader->pausing = true;
    while (loader->reading > 0)
        pthread_cond_wait(&loader->changed, &loader->lock);
    empty_slots(loader);
    pthread_mutex_unlock(&loader->lock);
}

static void resume_threads(core_data_loader *loader, int64_t first)
{
    pthread_mutex_lock(&loader->lock);
    loader->pausing = false;
    loader->begun = true;
    loader->taken = loader->delivered = first;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
}

core_status core_data_loader_begin(core_data_loader *loader, uint64_t epoch,
                                   int64_t first)
{
    CORE__NOT_NULL(loader);
    CORE_TRY(check_process(loader, __func__));
    if (first < 0 || first > loader->batches)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_data_loader_begin: first is %lld; the epoch "
                           "has %lld batches",
                           (long long)first, (long long)loader->batches);
    if (loader->options.threads > 0 && loader->nthreads == 0)
        CORE_TRY(core__data_start(loader));
    pause_threads(loader);
    if (loader->order)
        core__data_shuffle(loader->order, loader->source.count,
                           loader->options.seed, epoch);
    resume_threads(loader, first);
    return CORE_OK;
}

/* -------------------------------------------------------------- batches -- */

static void wait_for_batch(core_data_loader *loader, core__data_batch *out)
{
    core__data_slot *slot = &loader->slots[loader->delivered % loader->nslots];

    pthread_mutex_lock(&loader->lock);
    while (!slot->full)
        pthread_cond_wait(&loader->changed, &loader->lock);
    *out = slot->batch;
    slot->full = false;
    loader->delivered++;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
}

/* With grad mode off, as in a thread of the loader. */
static void read_here(core_data_loader *loader, core__data_batch *out)
{
    bool before = core_grad_mode_set(false);

    core__data_read(loader, loader->delivered++, false, out);
    core_grad_mode_set(before);
}

/* Its memory came from the stream of another thread. */
static core_status use_here(core_tensor *tensor)
{
    core_stream *stream = NULL;
    core_status status =
        core_stream_current(core_tensor_device(tensor), &stream);

    return status == CORE_OK ? core_tensor_record_stream(tensor, stream)
                             : status;
}

static core_status deliver(core_data_loader *loader, core__data_batch *batch,
                           core_tensor **outputs, size_t capacity)
{
    core_status status = batch->status;

    if (status != CORE_OK && !batch->error)
        return core__error(status, "core_data_loader_next: a batch failed, and "
                                   "there was no memory for the message");
    if (status != CORE_OK) {
        status = core_error_raise(batch->error);
        batch->error = NULL;
        return status;
    }
    if (batch->count > capacity)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_data_loader_next: the batch has %zu tensors; "
                           "outputs has room for %zu",
                           batch->count, capacity);
    for (size_t i = 0; i < batch->count && loader->options.threads > 0; i++)
        CORE_TRY(use_here(batch->tensors[i]));
    for (size_t i = 0; i < batch->count; i++) {
        outputs[i] = batch->tensors[i];
        batch->tensors[i] = NULL;
    }
    return CORE_OK;
}

core_status core_data_loader_next(core_data_loader *loader,
                                  core_tensor **outputs, size_t *noutputs)
{
    core__data_batch batch;
    core_status status;
    size_t capacity;

    CORE__NOT_NULL(loader);
    CORE__NOT_NULL(outputs);
    CORE__NOT_NULL(noutputs);
    capacity = *noutputs;
    *noutputs = 0;
    memset(outputs, 0, capacity * sizeof *outputs);
    CORE_TRY(check_process(loader, __func__));
    if (!loader->begun)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_data_loader_next: core_data_loader_begin was "
                           "not called");
    if (loader->delivered == loader->batches)
        return CORE_OK;
    if (loader->options.threads > 0)
        wait_for_batch(loader, &batch);
    else
        read_here(loader, &batch);
    status = deliver(loader, &batch, outputs, capacity);
    if (status == CORE_OK)
        *noutputs = batch.count;
    core__data_batch_clear(&batch);
    return status;
}
