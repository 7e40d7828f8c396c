/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The handshake of streams. */

#include "base/error.h"
#include "device/device.h"
#include "exchange/dlpack.h"

#include <libcore/device.h>

/* Zero is the default stream where there is one, but not by this number. */
static core_status check_number(const core_device *device, int64_t stream)
{
    int32_t type = core__dlpack_from_device(device).type;

    if (stream < CORE_DLPACK_STREAM_NONE ||
        (type == CORE_DLPACK_CUDA && stream == 0) ||
        (type == CORE_DLPACK_ROCM && (stream == 1 || stream == 2)))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "DLPack: %lld is no stream of %s", (long long)stream,
                           device->name);
    return CORE_OK;
}

core_status core__dlpack_hand_over(core_device *device, int64_t stream)
{
    if (device->synchronous)
        return CORE_OK;
    CORE_TRY(check_number(device, stream));
    return stream == CORE_DLPACK_STREAM_NONE ? CORE_OK
                                             : core_device_synchronize(device);
}

core_status core__dlpack_take_over(core_device *device, core_stream *stream)
{
    if (device->synchronous || !stream)
        return CORE_OK;
    return core_device_synchronize(device);
}

core_status core_dlpack_stream(core_device *device, core_stream *stream,
                               int64_t *out_stream)
{
    CORE__NOT_NULL(out_stream);
    *out_stream = CORE_DLPACK_STREAM_NONE;
    CORE__NOT_NULL(device);
    if (device->synchronous)
        return CORE_OK;
    (void)stream;
    return core__error(CORE_ERROR_UNSUPPORTED,
                       "DLPack: %s does not tell the handles of its streams",
                       device->name);
}
