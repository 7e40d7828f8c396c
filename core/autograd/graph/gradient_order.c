/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Orders streams that write the same stored gradient. */

#include "autograd/graph/gradient_order.h"

#include "device/stream.h"

core_status core__gradient_order_wait(core_stream *earlier)
{
    core_stream *current = core__stream_current(earlier->device);

    if (current->queue == earlier->queue ||
        !atomic_load(&current->capture) != !atomic_load(&earlier->capture))
        return CORE_OK;
    return core__stream_order(current, earlier);
}

void core__gradient_order_written(core_stream **written, core_device *device)
{
    core_stream *current = core__stream_current(device);
    core_stream *before = *written;

    if (before == current)
        return;
    core_stream_retain(current);
    *written = current;
    core_stream_release(before);
}
