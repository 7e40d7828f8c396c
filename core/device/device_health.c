/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The state of a device: loss, reset and status. */

#include "base/fork.h"
#include "base/memory.h"
#include "base/thread.h"
#include "device/stream.h"
#include "device/upcalls.h"

#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Another thread may have held the lock. */
void core__device_health_after_fork(void)
{
    pthread_mutex_init(&lock, NULL);
}

/* With the lock held.  This thread's error record has the reason. */
static void mark_lost(core_device *device)
{
    if (atomic_load(&device->lost))
        return;
    /* Readers hold the lock. */
    core__free(device->loss);
    device->loss = core__strdup(core_error_message());
    atomic_store(&device->lost, true);
    atomic_fetch_add(&device->generation, 1);
}

void core__device_lose(core_device *device, const char *reason)
{
    core__error_record earlier;

    core__error_save(&earlier);
    core__error(CORE_ERROR_DEVICE_LOST, "%s", reason);
    pthread_mutex_lock(&lock);
    mark_lost(device);
    pthread_mutex_unlock(&lock);
    core__error_restore(&earlier);
}

core__error_record *core__device_error_record(const core_device *device,
                                              core_status status,
                                              uint32_t errors)
{
    core__error_record *record = &core__thread_self()->error;

    if (record->sequence == errors || record->code != status)
        core__error(status,
                    "the plugin of \"%s\" reported %s and gave no reason",
                    device->name, core_status_name(status));
    return record;
}

core_status core__device_check_status(core_device *device, core_status status,
                                      uint32_t errors)
{
    const core__error_record *record;

    if (core__likely(status == CORE_OK || status == CORE_ERROR_BUSY))
        return status;
    CORE_TRY(core__device_check_process(device));
    record = core__device_error_record(device, status, errors);
    if (status != CORE_ERROR_DEVICE_LOST &&
        record->severity != CORE_SEVERITY_DEVICE_LOST)
        return status;
    pthread_mutex_lock(&lock);
    mark_lost(device);
    pthread_mutex_unlock(&lock);
    return core__device_stale_error(device);
}

core_status core__device_stale_error(core_device *device)
{
    core_status status;

    pthread_mutex_lock(&lock);
    if (device->forked)
        status = core__error(CORE_ERROR_DEVICE_LOST,
                             "device \"%s\" cannot be used in a forked child: "
                             "it belongs to the process that opened it",
                             device->name);
    else if (atomic_load(&device->lost))
        status = core__error(CORE_ERROR_DEVICE_LOST,
                             "device \"%s\" is lost until core_device_reset: "
                             "%s",
                             device->name,
                             device->loss ? device->loss : "unknown reason");
    else
        status = core__error(CORE_ERROR_DEVICE_LOST,
                             "device \"%s\" was reset; objects created before "
                             "the reset are invalid",
                             device->name);
    pthread_mutex_unlock(&lock);
    core__thread_self()->error.severity = CORE_SEVERITY_DEVICE_LOST;
    return status;
}

core_status core_device_status(core_device *device)
{
    core_status (*query)(void *);
    uint32_t errors;

    CORE__NOT_NULL(device);
    if (atomic_load(&device->lost))
        return core__device_stale_error(device);
    query = device->backend->table.device_status;
    if (!query)
        return CORE_OK;
    errors = core__error_sequence();
    return core__device_check_status(device, query(device->impl), errors);
}

core_status core_device_interface(core_device *device, const char *name,
                                  uint32_t version, const void **out_table)
{
    const core_backend *table;
    core_string key;

    CORE__NOT_NULL(out_table);
    *out_table = NULL;
    CORE__NOT_NULL(device);
    CORE__NOT_NULL(name);
    table = &device->backend->table;
    key = (core_string){name, strlen(name)};
    if (table->get_interface)
        *out_table = table->get_interface(table->user, key, version);
    if (*out_table)
        return CORE_OK;
    return core__error(CORE_ERROR_NOT_FOUND,
                       "core_device_interface: \"%s\" has no interface "
                       "\"%.64s\" of version %u",
                       device->name, name, version);
}

/* --------------------------------------------------------------- reset -- */

/* After this, the plugin has none of the previous objects.  On failure the
 * device is lost. */
static core_status reset_device(core_device *device)
{
    core_status status = device->interfaces.device_reset.reset(device->impl);

    if (status == CORE_OK)
        core__device_upcalls.host_memory_reset(device);
    if (status == CORE_OK)
        status = core__stream_default_renew(device);
    if (status == CORE_OK)
        return CORE_OK;
    core__error_prefix("core_device_reset: \"%s\" could not be reset",
                       device->name);
    pthread_mutex_lock(&lock);
    mark_lost(device);
    pthread_mutex_unlock(&lock);
    return status;
}

core_status core_device_reset(core_device *device)
{
    CORE__NOT_NULL(device);
    if (!device->interfaces.device_reset.reset)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "core_device_reset: \"%s\" cannot be reset: its "
                           "plugin does not offer core.device_reset",
                           device->name);
    CORE_TRY(core__device_check_process(device));
    /* Streams that threads had made current are invalid now. */
    core__stream_reset_current(device);
    pthread_mutex_lock(&lock);
    if (!atomic_load(&device->lost))
        atomic_fetch_add(&device->generation, 1);
    atomic_store(&device->lost, false);
    pthread_mutex_unlock(&lock);
    core__device_upcalls.allocator_reset(device);
    core__event_stock_empty(device);
    return reset_device(device);
}
