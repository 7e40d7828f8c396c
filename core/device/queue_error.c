/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Waits for a plugin's stream, and reports errors of its work.
 *
 * Work fails after the call that submitted it has returned, so the error by
 * itself names no operator.  A queue records the numbers of the calls
 * submitted to it and how many are known to be done; the failed one is among
 * those in between. */

#include "base/memory.h"
#include "base/observe.h"
#include "base/settings.h"
#include "device/stream.h"
#include "device/upcalls.h"

#include <stdio.h>
#include <string.h>

static _Atomic uint64_t waits;
static _Atomic uint64_t calls;

uint64_t core_host_waits(void)
{
    return atomic_load(&waits);
}

void core__host_wait_count(void)
{
    atomic_fetch_add_explicit(&waits, 1, memory_order_relaxed);
}

uint64_t core__call_number(void)
{
    return atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1;
}

/* ----------------------------------------------------------- the calls -- */

/* Reads the setting again after each core_setting_set. */
static core_status blocking(bool *out)
{
    static _Atomic uint32_t seen; /* generation + 1 */
    static _Atomic bool value;
    uint32_t now = core__settings_generation() + 1;

    if (core__unlikely(atomic_load(&seen) != now)) {
        bool on;

        *out = false;
        CORE_TRY(core__setting_boolean(CORE__SETTING_BLOCKING, &on));
        atomic_store(&value, on);
        atomic_store(&seen, now);
    }
    *out = atomic_load_explicit(&value, memory_order_relaxed);
    return CORE_OK;
}

core_status core__stream_record_launch(core_stream *stream, core_operator *op,
                                       uint64_t id)
{
    core__queue *queue = stream->queue;
    uint64_t n =
        atomic_fetch_add_explicit(&queue->launched, 1, memory_order_relaxed);
    core_status status;
    bool wait;

    atomic_store_explicit(&queue->ring[n % CORE__QUEUE_RING].call, id,
                          memory_order_relaxed);
    atomic_store_explicit(&queue->ring[n % CORE__QUEUE_RING].op, op,
                          memory_order_relaxed);
    if (n == atomic_load_explicit(&queue->succeeded, memory_order_relaxed)) {
        atomic_store_explicit(&queue->first_call, id, memory_order_relaxed);
        atomic_store_explicit(&queue->first_op, op, memory_order_relaxed);
    }
    status = blocking(&wait);
    if (core__likely(status == CORE_OK && !wait) || stream->capture)
        return status;
    /* Also after an error, because the caller will free memory that the device
     * may be reading. */
    CORE_TRY(core__queue_wait(queue, "LIBCORE_BLOCKING"));
    return status == CORE_OK ? CORE_OK : blocking(&wait);
}

static const char *name_of(core_operator *op)
{
    return op ? core__device_upcalls.operator_name(op) : "a kernel";
}

/* The call with that number; NULL if the ring no longer has it. */
static core_operator *find_call(core__queue *queue, uint64_t call)
{
    for (uint32_t i = 0; i < CORE__QUEUE_RING; i++)
        if (atomic_load(&queue->ring[i].call) == call)
            return atomic_load(&queue->ring[i].op);
    return NULL;
}

/* Describes what may have failed: "mm (call 12)" or "one of the 7 calls since
 * …". */
static void describe(core__queue *queue, char *text, size_t size)
{
    uint64_t launched = atomic_load(&queue->launched);
    uint64_t count = launched - atomic_load(&queue->succeeded);
    uint32_t last = (uint32_t)((launched - 1) % CORE__QUEUE_RING);

    if (launched == 0 || count == 0)
        snprintf(text, size, "work submitted to the stream failed");
    else if (count == 1)
        snprintf(text, size, "%s (call %llu) failed",
                 name_of(atomic_load(&queue->ring[last].op)),
                 (unsigned long long)atomic_load(&queue->ring[last].call));
    else
        snprintf(text, size,
                 "one of the %llu calls since the last success, from %s "
                 "(call %llu) to %s (call %llu), failed",
                 (unsigned long long)count,
                 name_of(atomic_load(&queue->first_op)),
                 (unsigned long long)atomic_load(&queue->first_call),
                 name_of(atomic_load(&queue->ring[last].op)),
                 (unsigned long long)atomic_load(&queue->ring[last].call));
}

/* -------------------------------------------------------------- errors -- */

/* Fails for a stale queue, and for one that failed before. */
core_status core__queue_check(core__queue *queue)
{
    if (queue == &core__queue_synchronous)
        return CORE_OK;
    if (queue->generation != atomic_load(&queue->device->generation))
        return core__device_stale_error(queue->device);
    if (atomic_load(&queue->failed) != CORE_OK)
        return core__error(CORE_ERROR_STREAM, "%s", queue->failure);
    return CORE_OK;
}

core_status core__stream_check_slow(core_stream *stream)
{
    if (stream->generation != atomic_load(&stream->device->generation))
        return core__device_stale_error(stream->device);
    return core__queue_check(stream->queue);
}

/* The first thread to detect the failure stores its text, which is in this
 * thread's record. */
static core_status poison(core__queue *queue)
{
    core__error_record *record = &core__thread_self()->error;
    char *text = core__strdup(record->text);

    pthread_mutex_lock(&queue->lock);
    if (atomic_load(&queue->failed) == CORE_OK && text) {
        queue->failure = text;
        atomic_store(&queue->failed, CORE_ERROR_STREAM);
        text = NULL;
    }
    pthread_mutex_unlock(&queue->lock);
    core__free(text);
    record->code = CORE_ERROR_STREAM;
    record->severity = CORE_SEVERITY_STREAM_POISONED;
    return CORE_ERROR_STREAM;
}

core_status core__queue_check_status(core__queue *queue, core_status status,
                                     uint32_t errors, const char *reason)
{
    core_device *device = queue->device;
    core__error_record *record;
    char range[512];
    bool lost;

    if (core__likely(status == CORE_OK || status == CORE_ERROR_BUSY))
        return status;
    record = core__device_error_record(device, status, errors);
    lost = status == CORE_ERROR_DEVICE_LOST ||
           record->severity == CORE_SEVERITY_DEVICE_LOST;
    describe(queue, range, sizeof range);
    if (lost) {
        core__device_check_status(device, status, errors);
        core__device_stale_error(device);
        core__error_prefix("%s (found by %s)", range, reason);
        return CORE_ERROR_DEVICE_LOST;
    }
    core__error_prefix("%s: %s (found by %s)", device->name, range, reason);
    if (status == CORE_ERROR_STREAM ||
        record->severity == CORE_SEVERITY_STREAM_POISONED) {
        atomic_store(&queue->reported, true);
        return poison(queue);
    }
    return status;
}

core_status core__stream_check_submitted(core_stream *stream,
                                         core_status status, uint32_t errors)
{
    core__error_record *record;

    if (core__likely(status == CORE_OK))
        return status;
    record = core__device_error_record(stream->device, status, errors);
    if (stream->device->synchronous)
        return status;
    if (status == CORE_ERROR_DEVICE_LOST ||
        record->severity == CORE_SEVERITY_DEVICE_LOST)
        return core__device_check_status(stream->device, status, errors);
    if (status == CORE_ERROR_STREAM ||
        record->severity == CORE_SEVERITY_STREAM_POISONED)
        return poison(stream->queue);
    return status;
}

core_status core__queue_take_error(core__queue *queue, const char *reason)
{
    core_device *device = queue->device;
    core_stream_error taken = {.struct_size = sizeof taken, .index = INT64_MIN};
    core_operator *op;
    core_status status;
    uint32_t errors = core__error_sequence();

    if (!device->interfaces.stream_error.take ||
        !core__device_has_generation(device, queue->generation))
        return CORE_OK;
    pthread_mutex_lock(&queue->lock);
    status = queue->ended ? CORE_OK
                          : device->interfaces.stream_error.take(
                                device->impl, queue->impl, &taken);
    if (status == CORE_OK && taken.code != CORE_OK) {
        if (taken.text.size == 0)
            core__error(taken.code, "found by %s", reason);
        else
            core__error(taken.code, "%.*s (found by %s)",
                        (int)(taken.text.size < 512 ? taken.text.size : 512),
                        taken.text.data, reason);
        pthread_mutex_unlock(&queue->lock);
        op = find_call(queue, taken.call_id);
        if (taken.call_id == 0) /* not a kernel's: of work that the stream
                                * waited for */
            core__error_prefix("%s", device->name);
        else if (taken.index == INT64_MIN)
            core__error_prefix("%s: %s (call %llu) encountered invalid data",
                               device->name, name_of(op),
                               (unsigned long long)taken.call_id);
        else
            core__error_prefix(
                "%s: %s (call %llu) encountered invalid data, %lld",
                device->name, name_of(op), (unsigned long long)taken.call_id,
                (long long)taken.index);
        status = taken.code;
        return status;
    }
    pthread_mutex_unlock(&queue->lock);
    return core__queue_check_status(queue, status, errors, reason);
}

core_status core__queue_mark_succeeded(core__queue *queue,
                                       core__queue_mark mark,
                                       const char *reason)
{
    uint64_t before = atomic_load(&queue->succeeded);
    uint64_t launched = mark.launched;
    uint64_t now;
    uint32_t slot = (uint32_t)(launched % CORE__QUEUE_RING);

    while (before < launched &&
           !atomic_compare_exchange_weak(&queue->succeeded, &before, launched))
        ;
    /* A call submitted meanwhile is now the oldest whose outcome is unknown. */
    now = atomic_load(&queue->launched);
    if (now > launched && now - launched <= CORE__QUEUE_RING &&
        before < launched) {
        atomic_store(&queue->first_call, atomic_load(&queue->ring[slot].call));
        atomic_store(&queue->first_op, atomic_load(&queue->ring[slot].op));
    }
    CORE_TRY(core__queue_take_error(queue, reason));
    return core__queue_take_awaited_errors(queue, mark.waited, reason);
}

/* ------------------------------------------------------------- waiting -- */

core_status core__queue_wait(core__queue *queue, const char *reason)
{
    core_device *device = queue->device;
    core__queue_mark mark = core__queue_position(queue);
    uint64_t token;
    core_status status;
    uint32_t errors = core__error_sequence();

    if (atomic_load(&queue->failed) != CORE_OK)
        atomic_store(&queue->reported, true);
    CORE_TRY(core__queue_check(queue));
    core__host_wait_count();
    token = core__observe_begin(CORE__OBSERVED_WAIT, reason, 0, device);
    status = device->backend->streams.synchronize(device->impl, queue->impl);
    core__observe_end(token);
    if (core__unlikely(status != CORE_OK))
        return core__queue_check_status(queue, status, errors, reason);
    return core__queue_mark_succeeded(queue, mark, reason);
}

core_status core__capture_refuse(core_stream *stream, const char *what)
{
    core__device_upcalls.capture_invalidate(stream, what);
    return core__error(
        CORE_ERROR_UNSUPPORTED,
        "%s: %s cannot be part of a capture, whose work has not run yet",
        stream->device->name, what);
}
