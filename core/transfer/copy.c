/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "transfer/copy.h"

#include "base/observe.h"
#include "base/thread.h"
#include "device/stream.h"
#include "dispatch/launch_log.h"
#include "memory/host_memory.h"
#include "ops_ids.h"

/* Called before work is submitted to a stream.  reason: why the host will wait
 * for it, or NULL. */
static core_status begin(core_stream *stream, const char *reason)
{
    CORE_TRY(core__launch_log_check("it copies or fills without a kernel"));
    if (stream->device->synchronous)
        return CORE_OK;
    CORE_TRY(core__stream_check(stream));
    if (core__unlikely(reason && stream->capture))
        return core__capture_refuse(stream, reason);
    return CORE_OK;
}

/* A copy or fill that is being submitted to a stream. */
typedef struct submission {
    uint64_t id;     /* 0: the device is synchronous */
    void *work;      /* base/observe.h */
    uint32_t errors; /* core__error_sequence before the plugin's call */
} submission;

static submission submission_begin(core_stream *stream, const char *name)
{
    submission submission = {.errors = core__error_sequence()};

    if (stream->device->synchronous)
        return submission;
    submission.id = core__call_number();
    submission.work =
        core__observe_work(stream, name, submission.id, CORE__WORK_COPY);
    return submission;
}

static core_status submission_end(core_stream *stream,
                                  const submission *submission,
                                  core_status status)
{
    core__observe_work_end(submission->work, stream);
    return core__stream_check_submitted(stream, status, submission->errors);
}

/* Records the operator, so that later errors name it. */
static core_status record(core_stream *stream, uint32_t op,
                          const submission *submission)
{
    return submission->id ? core__stream_record_launch(
                                stream, &core__operators[op], submission->id)
                          : CORE_OK;
}

static core_status launched(core_stream *stream, const submission *submission)
{
    return record(stream, CORE_OP_COPY_, submission);
}

/* Waits if the copy was submitted and something failed afterwards: the copy
 * may still run, while the caller is about to reuse the host memory. */
static core_status wait_after_failure(core_stream *stream, core_status status)
{
    core_device *device = stream->device;
    core__queue *queue = stream->queue;
    core__error_record saved;

    if (core__likely(status == CORE_OK) || device->synchronous ||
        stream->capture ||
        !core__device_has_generation(device, queue->generation))
        return status;
    core__error_save(&saved);
    device->backend->streams.synchronize(device->impl, queue->impl);
    core__error_restore(&saved);
    return status;
}

core_status core__copy_to_host(core_device *device, void *to, core_memory from,
                               uint64_t size, bool non_blocking,
                               const char *reason)
{
    core_stream *stream = core__stream_current(device);
    bool pinned = non_blocking && core__host_memory_is_pinned(device, to, size);
    core_status status;
    submission copy;

    CORE_TRY(begin(stream, pinned ? NULL : reason));
    copy = submission_begin(stream, "copy to the host");
    CORE_TRY(submission_end(stream, &copy,
                            device->memory.copy_to_host(
                                device->impl, stream->impl, to, from, size)));
    status = launched(stream, &copy);
    if (status == CORE_OK)
        status = pinned ? core__host_memory_record_stream(device, to, stream)
                        : core__stream_wait(stream, reason);
    return wait_after_failure(stream, status);
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
    submission copy;

    CORE_TRY(begin(stream, waits ? reason : NULL));
    copy = submission_begin(stream, "copy from the host");
    CORE_TRY(submission_end(stream, &copy,
                            device->memory.copy_from_host(
                                device->impl, stream->impl, to, from, size)));
    status = launched(stream, &copy);
    if (status == CORE_OK && pinned)
        status = core__host_memory_record_stream(device, from, stream);
    else if (status == CORE_OK && waits)
        status = core__stream_wait(stream, reason);
    return wait_after_failure(stream, status);
}

static core_status reaches(core_device *device, core_device *other,
                           bool *out_yes)
{
    const core_peer_interface *peer = &device->interfaces.peer;
    uint32_t yes = 0, errors = core__error_sequence();

    *out_yes = false;
    if (device->backend != other->backend || !peer->copy)
        return CORE_OK;
    if (peer->can_access)
        CORE_TRY(core__device_check_status(
            device, peer->can_access(device->impl, other->impl, &yes), errors));
    *out_yes = yes != 0;
    return CORE_OK;
}

/* If the plugin reports a loss, it may concern the source; then the target is
 * usable. */
static core_status submission_result(core_stream *target, core_device *source,
                                     core_status status, uint32_t errors)
{
    bool silent = core__error_sequence() == errors;
    core__error_record saved;

    if (core__likely(status != CORE_ERROR_DEVICE_LOST))
        return core__stream_check_submitted(target, status, errors);
    core__error_save(&saved);
    status = core_device_status(source);
    if (status == CORE_ERROR_DEVICE_LOST)
        return status;
    if (silent)
        core__error(CORE_ERROR_DEVICE_LOST, "a copy between devices");
    else
        core__error_restore(&saved);
    return core__stream_check_submitted(target, CORE_ERROR_DEVICE_LOST, errors);
}

core_status core__copy_peer(core_device *to_device, core_memory to,
                            core_device *from_device, core_memory from,
                            uint64_t size, bool *out_done)
{
    core_stream *target = core__stream_current(to_device);
    core_stream *source = core__stream_current(from_device);
    core_status status;
    submission copy;

    *out_done = false;
    CORE_TRY(begin(target, NULL));
    CORE_TRY(core__stream_check(source));
    CORE_TRY(reaches(to_device, from_device, out_done));
    if (!*out_done)
        return CORE_OK;
    CORE_TRY(core__stream_order(target, source));
    copy = submission_begin(target, "copy between devices");
    status = to_device->interfaces.peer.copy(to_device->impl, target->impl, to,
                                             from_device->impl, from, size);
    core__observe_work_end(copy.work, target);
    CORE_TRY(submission_result(target, from_device, status, copy.errors));
    CORE_TRY(launched(target, &copy));
    /* The source's stream may next change or free the memory being read. */
    return core__stream_order_reuse(source, target);
}

core_status core__fill_bytes(const core_operator *op, core_device *device,
                             core_memory to, uint64_t size, uint64_t pattern,
                             uint32_t pattern_size)
{
    core_stream *stream = core__stream_current(device);
    submission fill;

    CORE_TRY(begin(stream, NULL));
    fill = submission_begin(stream, "fill");
    CORE_TRY(submission_end(stream, &fill,
                            device->memory.fill(device->impl, stream->impl, to,
                                                size, pattern, pattern_size)));
    return record(stream, op->id, &fill);
}
