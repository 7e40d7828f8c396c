/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The threads of a data loader. */

#include "data/loader.h"

#include "base/error.h"
#include "base/thread_start.h"

#include <libcore/autograd.h>
#include <libcore/stream.h>

#include <string.h>

/* Takes the number of a batch to read.  False: the thread ends. */
static bool take(core_data_loader *loader, int64_t *out_batch)
{
    pthread_mutex_lock(&loader->lock);
    while (!loader->ending &&
           (loader->pausing || loader->taken >= loader->batches ||
            loader->taken >= loader->delivered + loader->nslots))
        pthread_cond_wait(&loader->changed, &loader->lock);
    if (loader->ending) {
        pthread_mutex_unlock(&loader->lock);
        return false;
    }
    *out_batch = loader->taken++;
    loader->reading++;
    pthread_mutex_unlock(&loader->lock);
    return true;
}

static void store(core_data_loader *loader, int64_t number,
                  const core__data_batch *batch)
{
    core__data_slot *slot;

    pthread_mutex_lock(&loader->lock);
    slot = &loader->slots[number % loader->nslots];
    slot->batch = *batch;
    slot->full = true;
    loader->reading--;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
}

/* A stream of this thread's own, so that its copies do not wait for what the
 * device computes.  Without one it uses the default stream. */
static void use_stream(core_device *device)
{
    core_stream *stream = NULL;

    if (device && core_stream_create(device, &stream) == CORE_OK)
        (void)core_stream_set_current(stream);
    core_stream_release(stream);
    core_error_clear();
}

static void *work(void *argument)
{
    core_data_loader *loader = argument;
    core__data_batch batch;
    int64_t number;

    (void)core_grad_mode_set(false);
    use_stream(loader->options.device);
    while (take(loader, &number)) {
        core__data_read(loader, number, true, &batch);
        store(loader, number, &batch);
    }
    return NULL;
}

core_status core__data_start(core_data_loader *loader)
{
    int failure = 0;

    while (failure == 0 && loader->nthreads < loader->options.threads) {
        failure = core__thread_start(&loader->threads[loader->nthreads], work,
                                     loader);
        if (failure == 0)
            loader->nthreads++;
    }
    /* With fewer threads the batches are the same. */
    if (loader->nthreads == 0)
        return core__error(CORE_ERROR_OUT_OF_MEMORY,
                           "core_data_loader_begin: cannot create a thread: %s",
                           strerror(failure));
    return CORE_OK;
}

void core__data_stop(core_data_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    loader->ending = true;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
    for (uint32_t i = 0; i < loader->nthreads; i++)
        pthread_join(loader->threads[i], NULL);
    loader->nthreads = 0;
}
