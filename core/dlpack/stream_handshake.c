/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The stream handshake of DLPack.
 *
 * A stream is passed as its native handle, except for a few numbers that mean
 * default streams.  CUDA's runtime itself accepts 1 and 2 as handles. */

#include "base/error.h"
#include "device/device.h"
#include "device/stream.h"
#include "dlpack/dlpack.h"

#include <libcore/device.h>

enum { CUDA_LEGACY = 1 };

/* Refuses numbers that could mean more than one stream, or none. */
static core_status check_number(const core_device *device, int64_t stream)
{
    int32_t type = core__dlpack_from_device(device).type;

    if (stream < CORE_DLPACK_STREAM_NONE ||
        (type == CORE_DLPACK_CUDA && stream == 0) ||
        (type == CORE_DLPACK_ROCM && (stream == 1 || stream == 2)))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "DLPack: %lld is not a stream of \"%s\"",
                           (long long)stream, device->name);
    return CORE_OK;
}

/* The stream of a number, with a reference; NULL: libcore cannot adopt it. */
static core_status stream_of(core_device *device, int64_t number,
                             core_stream **out_stream)
{
    *out_stream = NULL;
    if (!device->interfaces.stream_adopt.adopt)
        return CORE_OK;
    if (number == 0 &&
        core__dlpack_from_device(device).type == CORE_DLPACK_ROCM)
        return CORE_OK; /* a NULL handle cannot be adopted */
    if (number == 0) {
        *out_stream = core_stream_retain(device->stream);
        return CORE_OK;
    }
    return core_stream_adopt(device, (void *)(intptr_t)number, out_stream);
}

core_status core__dlpack_order_consumer(core_device *device, int64_t stream)
{
    core_stream *current, *consumer = NULL;
    core_status status;

    if (device->synchronous)
        return CORE_OK;
    CORE_TRY(check_number(device, stream));
    if (stream == CORE_DLPACK_STREAM_NONE)
        return CORE_OK;
    current = core__stream_current(device);
    status = stream_of(device, stream, &consumer);
    if (status == CORE_OK && consumer)
        status = core_stream_wait_stream(consumer, current);
    else if (status == CORE_OK)
        status = core_stream_synchronize(current);
    core_stream_release(consumer);
    return status;
}

core_status core__dlpack_wait_for_producer(core_device *device,
                                           core_stream *stream)
{
    core_stream *current;

    if (device->synchronous || !stream)
        return CORE_OK;
    if (core_stream_device(stream) != device)
        return core__error(CORE_ERROR_DEVICE,
                           "DLPack: the memory is on \"%s\" and the stream on "
                           "\"%s\"; they must be on the same device",
                           device->name, core_stream_device(stream)->name);
    current = core__stream_current(device);
    return stream == current ? CORE_OK
                             : core_stream_wait_stream(current, stream);
}

core_status core_dlpack_stream(core_device *device, core_stream *stream,
                               int64_t *out_stream)
{
    int32_t type;
    void *native = NULL;

    CORE__NOT_NULL(out_stream);
    *out_stream = CORE_DLPACK_STREAM_NONE;
    CORE__NOT_NULL(device);
    if (device->synchronous)
        return CORE_OK;
    if (!stream)
        stream = core__stream_current(device);
    if (core_stream_device(stream) != device)
        return core__error(CORE_ERROR_DEVICE,
                           "DLPack: the stream is on \"%s\"; an exchange on "
                           "\"%s\" needs one of its streams",
                           core_stream_device(stream)->name, device->name);
    if (!device->interfaces.stream_adopt.native)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "DLPack: the plugin of \"%s\" does not export "
                           "native stream handles (core.stream_adopt)",
                           device->name);
    CORE_TRY(core_stream_native(stream, &native));
    type = core__dlpack_from_device(device).type;
    /* The handle of a default stream is NULL; each kind of device has its own
     * number for it. */
    *out_stream = (int64_t)(intptr_t)native;
    if (!native && type == CORE_DLPACK_CUDA)
        *out_stream = CUDA_LEGACY;
    return CORE_OK;
}
