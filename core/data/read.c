/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Reads one batch, and copies it to the device of the loader. */

#include "data/loader.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"

#include <libcore/memory.h>
#include <libcore/ops.h>
#include <libcore/stream.h>

void core__data_batch_clear(core__data_batch *batch)
{
    for (size_t i = 0; i < CORE_DATA_TENSORS; i++)
        core_tensor_release(batch->tensors[i]);
    core_error_release(batch->error);
    *batch = (core__data_batch){.count = 0};
}

/* Copies through pinned memory; a device without it copies as it can. */
static core_status stage(core_tensor *from, core_device *device,
                         core_tensor **out_pinned)
{
    core_status status = core_tensor_pinned(device, core_tensor_dtype(from),
                                            core_tensor_sizes(from),
                                            core_tensor_ndim(from), out_pinned);

    if (status == CORE_ERROR_UNSUPPORTED) {
        core_error_clear();
        *out_pinned = core_tensor_retain(from);
        return CORE_OK;
    }
    return status == CORE_OK ? core_tensor_copy(*out_pinned, from, 0) : status;
}

core_status core__data_finish(core_device *device)
{
    core_stream *stream;

    CORE_TRY(core_stream_current(device, &stream));
    return core_stream_synchronize(stream);
}

/* Waits for the copy, as the pinned memory is released then. */
static core_status to_device(core_tensor **tensor, core_device *device,
                             bool staging)
{
    core_tensor *pinned = NULL, *copy = NULL;
    core_status status = CORE_OK;

    if (core_tensor_device(*tensor) == device)
        return core__data_finish(device);
    if (staging)
        status = stage(*tensor, device, &pinned);
    if (status == CORE_OK)
        status = core_to(pinned ? pinned : *tensor, CORE_DTYPE_NONE, device,
                         staging, false, -1, &copy);
    if (status == CORE_OK)
        status = core__data_finish(device);
    core_tensor_release(pinned);
    if (status != CORE_OK) {
        core_tensor_release(copy);
        return status;
    }
    core_tensor_release(*tensor);
    *tensor = copy;
    return CORE_OK;
}

static core_status read_samples(const core_data_loader *loader,
                                const int64_t *samples, size_t count,
                                core__data_batch *out)
{
    out->count = 0;
    CORE_TRY(loader->source.read(loader->source.context, samples, count,
                                 out->tensors, &out->count));
    if (out->count == 0 || out->count > CORE_DATA_TENSORS)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "the source of the data loader returned %zu "
                           "tensors, not 1 to %d",
                           out->count, (int)CORE_DATA_TENSORS);
    for (size_t i = 0; i < out->count; i++)
        if (!out->tensors[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "the source of the data loader left tensor %zu "
                               "of %zu NULL",
                               i, out->count);
    return CORE_OK;
}

static core_status read_batch(const core_data_loader *loader, int64_t batch,
                              bool staging, core__data_batch *out)
{
    int64_t size = loader->options.batch_size, first = batch * size;
    int64_t left = loader->source.count - first;
    size_t count = (size_t)(left < size ? left : size);
    int64_t *samples = core__alloc_array(count, sizeof *samples);
    core_status status = CORE_OK;

    if (!samples)
        return core__error(CORE_ERROR_OUT_OF_MEMORY,
                           "no memory for the numbers of %zu samples", count);
    for (size_t i = 0; i < count; i++)
        samples[i] = loader->order ? loader->order[first + (int64_t)i]
                                   : first + (int64_t)i;
    status = read_samples(loader, samples, count, out);
    core__free(samples);
    for (size_t i = 0; status == CORE_OK && i < out->count; i++)
        if (loader->options.device)
            status =
                to_device(&out->tensors[i], loader->options.device, staging);
    return status;
}

void core__data_read(const core_data_loader *loader, int64_t batch,
                     bool staging, core__data_batch *out)
{
    uint32_t errors = core__error_sequence();
    core_status status;

    *out = (core__data_batch){.count = 0};
    status = read_batch(loader, batch, staging, out);
    if (status == CORE_OK)
        return;
    core__data_batch_clear(out);
    out->status = status;
    if (core__error_sequence() == errors ||
        core__thread_self()->error.code != status)
        (void)core__error(status, "the source of the data loader failed and "
                                  "set no message");
    core__error_prefix("batch %lld", (long long)batch);
    (void)core_error_detach(&out->error);
}
