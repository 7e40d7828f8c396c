/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "transfer/copy.h"

#include "base/observe.h"
#include "base/thread.h"
#include "device/stream.h"
#include "dispatch/operator.h"
#include "memory/host_memory.h"
#include "ops_ids.h"

/* Before work is given to a stream; reason: why the host will wait for it, or
 * NULL. */
static core_status begin(core_stream *stream, const char *reason)
{
    if (stream->device->synchronous)
        return CORE_OK;
    CORE_TRY(core__stream_check(stream));
    if (core__unlikely(reason && stream->capture))
        return core__capture_refuses(stream, reason);
    return CORE_OK;
}

/* A copy that a stream is given. */
typedef struct giving {
    uint64_t id; /* 0: the device is synchronous */
    void *work;  /* base/observe.h */
} giving;

static giving give(core_stream *stream, const char *name)
{
    giving giving = {0};

    if (stream->device->synchronous)
        return giving;
    giving.id = core__call_number();
    giving.work = core__observe_work(stream, name, giving.id, CORE__WORK_COPY);
    return giving;
}

static core_status given(core_stream *stream, const giving *giving,
                         core_status status)
{
    core__observe_work_end(giving->work, stream);
    return core__stream_given(stream, status);
}

/* The stream has the copy; errors that come later name it. */
static core_status launched(core_stream *stream, const giving *giving)
{
    return giving->id ? core__stream_launched(
                            stream, &core__operators[CORE_OP_COPY_], giving->id)
                      : CORE_OK;
}

/* The copy was given to the stream, and something failed since: it may run
 * still, while the caller is about to get the host's memory back.  So it is
 * waited for all the same. */
static core_status settled(core_stream *stream, core_status status)
{
    core_device *device = stream->device;
    core__queue *queue = stream->queue;
    core__error_record said;

    if (core__likely(status == CORE_OK) || device->synchronous ||
        stream->capture || !core__device_knows(device, queue->generation))
        return status;
    core__error_keep(&said);
    device->backend->streams.synchronize(device->impl, queue->impl);
    core__error_restore(&said);
    return status;
}

core_status core__copy_to_host(core_device *device, void *to, core_memory from,
                               uint64_t size, bool non_blocking,
                               const char *reason)
{
    core_stream *stream = core__stream_current(device);
    bool pinned = non_blocking && core__host_memory_is_pinned(device, to, size);
    core_status status;
    giving copy;

    CORE_TRY(begin(stream, pinned ? NULL : reason));
    copy = give(stream, "copy to the host");
    CORE_TRY(given(stream, &copy,
                   device->memory.copy_to_host(device->impl, stream->impl, to,
                                               from, size)));
    status = launched(stream, &copy);
    if (status == CORE_OK)
        status = pinned ? core__host_memory_record(device, to, stream)
                        : core__stream_wait(stream, reason);
    return settled(stream, status);
}

core_status core__copy_from_host(core_device *device, core_memory to,
                                 const void *from, uint64_t size,
                                 bool non_blocking)
{
    const char *reason = "a copy from the host";
    core_stream *stream = core__stream_current(device);
    bool pinned =
        non_blocking && core__host_memory_is_pinned(device, from, size);
    bool waits = !pinned && !(device->flags & CORE_DEVICE_HOST_STABLE);
    core_status status;
    giving copy;

    CORE_TRY(begin(stream, waits ? reason : NULL));
    copy = give(stream, "copy from the host");
    CORE_TRY(given(stream, &copy,
                   device->memory.copy_from_host(device->impl, stream->impl, to,
                                                 from, size)));
    status = launched(stream, &copy);
    if (status == CORE_OK && pinned)
        status = core__host_memory_record(device, from, stream);
    else if (status == CORE_OK && waits)
        status = core__stream_wait(stream, reason);
    return settled(stream, status);
}

static core_status reaches(core_device *device, core_device *other,
                           bool *out_yes)
{
    const core_peer_interface *peer = &device->interfaces.peer;
    uint32_t yes = 0;

    *out_yes = false;
    if (device->backend != other->backend || !peer->copy)
        return CORE_OK;
    if (peer->can_access)
        CORE_TRY(core__device_result(
            device, peer->can_access(device->impl, other->impl, &yes)));
    *out_yes = yes != 0;
    return CORE_OK;
}

/* Of two devices that a plugin says it lost, the source may be the one: then
 * the target is well. */
static core_status given_by(core_stream *target, core_device *source,
                            core_status status)
{
    core__error_record said;

    if (core__likely(status != CORE_ERROR_DEVICE_LOST))
        return core__stream_given(target, status);
    core__error_keep(&said);
    status = core_device_status(source);
    if (status == CORE_ERROR_DEVICE_LOST)
        return status;
    if (said.code == CORE_OK)
        return core__stream_given(target, core__error(CORE_ERROR_DEVICE_LOST,
                                                      "a copy between "
                                                      "devices"));
    core__error_restore(&said);
    return core__stream_given(target, said.code);
}

core_status core__copy_peer(core_device *to_device, core_memory to,
                            core_device *from_device, core_memory from,
                            uint64_t size, bool *out_done)
{
    core_stream *target = core__stream_current(to_device);
    core_stream *source = core__stream_current(from_device);
    core_status status;
    giving copy;

    *out_done = false;
    CORE_TRY(core__stream_check(target));
    CORE_TRY(core__stream_check(source));
    CORE_TRY(reaches(to_device, from_device, out_done));
    if (!*out_done)
        return CORE_OK;
    CORE_TRY(core__stream_order(target, source));
    copy = give(target, "copy between devices");
    status = to_device->interfaces.peer.copy(to_device->impl, target->impl, to,
                                             from_device->impl, from, size);
    core__observe_work_end(copy.work, target);
    CORE_TRY(given_by(target, from_device, status));
    CORE_TRY(launched(target, &copy));
    /* What the source's stream does next may change or free what is read. */
    return core__stream_order_memory(source, target);
}
