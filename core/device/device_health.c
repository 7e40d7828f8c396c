/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* How a device is: well, lost, started anew. */

#include "base/fork.h"
#include "base/memory.h"
#include "base/thread.h"
#include "device/stream.h"
#include "device/upcalls.h"

#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Another thread may have had it. */
void core__state_forked(void)
{
    pthread_mutex_init(&lock, NULL);
}

/* Under the lock.  The record of this thread says why. */
static void lose(core_device *device)
{
    if (atomic_load(&device->lost))
        return;
    /* Who reads it holds the lock. */
    core__free(device->loss);
    device->loss = core__strdup(core_error_message());
    atomic_store(&device->lost, true);
    atomic_fetch_add(&device->generation, 1);
}

core_status core__device_result(core_device *device, core_status status)
{
    const core__error_record *record = &core__thread_self()->error;

    if (core__likely(status == CORE_OK || status == CORE_ERROR_BUSY))
        return status;
    CORE_TRY(core__device_here(device));
    if (record->code != status)
        core__error(status, "the plugin of \"%s\" did not say why",
                    device->name);
    if (status != CORE_ERROR_DEVICE_LOST &&
        record->severity != CORE_SEVERITY_DEVICE_LOST)
        return status;
    pthread_mutex_lock(&lock);
    lose(device);
    pthread_mutex_unlock(&lock);
    return core__device_stale(device);
}

core_status core__device_stale(core_device *device)
{
    core_status status;

    pthread_mutex_lock(&lock);
    if (device->forked)
        status = core__error(CORE_ERROR_DEVICE_LOST,
                             "device \"%s\" cannot be used in a forked child: "
                             "it works for the process that opened it",
                             device->name);
    else if (atomic_load(&device->lost))
        status = core__error(CORE_ERROR_DEVICE_LOST,
                             "device \"%s\" is lost until core_device_reset: "
                             "%s",
                             device->name,
                             device->loss ? device->loss : "no reason known");
    else
        status = core__error(CORE_ERROR_DEVICE_LOST,
                             "device \"%s\" was reset: what was made before is "
                             "gone",
                             device->name);
    pthread_mutex_unlock(&lock);
    core__thread_self()->error.severity = CORE_SEVERITY_DEVICE_LOST;
    return status;
}

core_status core_device_status(core_device *device)
{
    core_status (*ask)(void *);

    CORE__NOT_NULL(device);
    if (atomic_load(&device->lost))
        return core__device_stale(device);
    ask = device->backend->table.device_status;
    return ask ? core__device_result(device, ask(device->impl)) : CORE_OK;
}

core_status core_device_interface(core_device *device, const char *name,
                                  uint32_t version, const void **out_table)
{
    const core_backend *table;
    core_string wanted;

    CORE__NOT_NULL(out_table);
    *out_table = NULL;
    CORE__NOT_NULL(device);
    CORE__NOT_NULL(name);
    table = &device->backend->table;
    wanted = (core_string){name, strlen(name)};
    if (table->get_interface)
        *out_table = table->get_interface(table->user, wanted, version);
    if (*out_table)
        return CORE_OK;
    return core__error(CORE_ERROR_NOT_FOUND,
                       "\"%s\" has no interface \"%.64s\" of version %u",
                       device->name, name, version);
}

/* ------------------------------------------------------------------ reset -- */

/* Everything of before is the plugin's no more.  On failure the device is
 * lost. */
static core_status begin_anew(core_device *device)
{
    core_status status = device->interfaces.device_reset.reset(device->impl);

    if (status == CORE_OK)
        core__device_upcalls.host_memory_reset(device);
    if (status == CORE_OK)
        status = core__stream_default_renew(device);
    if (status == CORE_OK)
        return CORE_OK;
    core__error_prefix("\"%s\" could not be reset", device->name);
    pthread_mutex_lock(&lock);
    lose(device);
    pthread_mutex_unlock(&lock);
    return status;
}

core_status core_device_reset(core_device *device)
{
    CORE__NOT_NULL(device);
    if (!device->interfaces.device_reset.reset)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "\"%s\" cannot be started anew", device->name);
    CORE_TRY(core__device_here(device));
    /* Streams that threads had made current are of no use any more. */
    core__stream_forget(device);
    pthread_mutex_lock(&lock);
    if (!atomic_load(&device->lost))
        atomic_fetch_add(&device->generation, 1);
    atomic_store(&device->lost, false);
    pthread_mutex_unlock(&lock);
    core__device_upcalls.allocator_reset(device);
    core__event_stock_empty(device);
    return begin_anew(device);
}
