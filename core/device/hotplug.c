/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Devices that are added and removed while the process runs (core.hotplug).
 *
 * The index of a device, which is part of its name, is given to an id, and
 * stays that id's.  The plugin's index of it, its position, changes with each
 * enumeration. */

#include "device/device.h"
#include "device/interned_text.h"

#include "base/memory.h"

#include <libcore/device.h>

#include <stdio.h>
#include <string.h>

enum { ABSENT = UINT32_MAX };

static _Atomic uint64_t changes;

uint64_t core_device_changes(void)
{
    return atomic_load(&changes);
}

core_status core__devices_changed(core_string device_type)
{
    bool supported;

    if (!device_type.data || device_type.size == 0)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "devices_changed: the device type is empty");
    if (!core__backend_note_change(device_type, &supported))
        return core__error(
            CORE_ERROR_NOT_FOUND,
            "devices_changed: no backend has the device type \"%.*s\"",
            (int)(device_type.size < 64 ? device_type.size : 64),
            device_type.data);
    if (!supported)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "devices_changed: the plugin of \"%.*s\" does not "
                           "offer core.hotplug",
                           (int)(device_type.size < 64 ? device_type.size : 64),
                           device_type.data);
    atomic_fetch_add(&changes, 1);
    return CORE_OK;
}

/* The lists never move, so that a device is found in them without copies. */
static core_status allocate_lists(core__backend *backend)
{
    const size_t devices = CORE__DEVICES_LIMIT * sizeof *backend->devices;
    const size_t places = CORE__DEVICES_LIMIT * sizeof *backend->places;

    if (!backend->places)
        backend->places = core__alloc_zero(places);
    if (!backend->places)
        return core__error_memory(places);
    if (!backend->devices)
        backend->devices = core__alloc_zero(devices);
    return backend->devices ? CORE_OK : core__error_memory(devices);
}

/* The id of the device at a position, or NULL if it has just gone. */
static core_status id_at(core__backend *backend, uint32_t position,
                         const char **out_id)
{
    core__error_record earlier;
    core_string id = {0};
    core_status status;

    *out_id = NULL;
    core__error_save(&earlier);
    status = backend->hotplug.device_id(backend->table.user, position, &id);
    if (status == CORE_ERROR_NOT_FOUND) {
        core__error_restore(&earlier);
        return CORE_OK;
    }
    if (core__error_restore_on_success(&earlier, status) != CORE_OK)
        return core_error_code() == status
                   ? status
                   : core__error(status,
                                 "%s: the plugin's device_id failed and gave "
                                 "no reason",
                                 backend->type);
    *out_id = id.data ? core__intern_text(id.data, id.size) : "";
    if (!*out_id)
        return core__error_memory(id.size);
    if (!**out_id)
        return core__error(CORE_ERROR_REFUSED,
                           "%s: the plugin reports an empty id for device %u",
                           backend->type, position);
    return CORE_OK;
}

/* The devices that the plugin enumerates: the id at each position, or NULL. */
typedef struct device_list {
    const char **ids;
    uint32_t count;
    const char *reason; /* why there are none */
} device_list;

/* The index of an id, or the number of known devices; equal ids are the same
 * pointer. */
static uint32_t index_of(const core__backend *backend, uint32_t count,
                         const char *id)
{
    uint32_t index = 0;

    while (index < count && backend->places[index].id != id)
        index++;
    return index;
}

static uint32_t known_devices(const core__backend *backend)
{
    return backend->device_count == UINT32_MAX ? 0 : backend->device_count;
}

static core_status check_list(const core__backend *backend,
                              const device_list *list)
{
    uint32_t known = known_devices(backend), count = known;

    for (uint32_t i = 0; i < list->count; i++) {
        const char *id = list->ids[i];

        for (uint32_t k = 0; id && k < i; k++)
            if (list->ids[k] == id)
                return core__error(
                    CORE_ERROR_REFUSED,
                    "%s: the plugin reports the id \"%s\" for devices %u and "
                    "%u",
                    backend->type, id, k, i);
        if (id && index_of(backend, known, id) == known)
            count++;
    }
    if (count <= CORE__DEVICES_LIMIT)
        return CORE_OK;
    return core__error(CORE_ERROR_REFUSED,
                       "%s: the plugin has reported %u devices; at most %d are "
                       "accepted",
                       backend->type, count, CORE__DEVICES_LIMIT);
}

static core_status read_list(core__backend *backend, device_list *list)
{
    uint32_t count;

    *list = (device_list){NULL, 0, ""};
    CORE_TRY(core__backend_call_enumerate(backend, &count, &list->reason));
    list->ids = core__alloc_zero((count + 1) * sizeof *list->ids);
    if (!list->ids)
        return core__error_memory((count + 1) * sizeof *list->ids);
    list->count = count;
    for (uint32_t position = 0; position < count; position++)
        CORE_TRY(id_at(backend, position, &list->ids[position]));
    return check_list(backend, list);
}

static void lose_missing(core__backend *backend)
{
    char reason[160];

    for (uint32_t i = 0; i < backend->device_count; i++) {
        core_device *device = backend->devices[i];

        if (!device || backend->places[i].position != ABSENT ||
            atomic_load(&device->lost))
            continue;
        snprintf(reason, sizeof reason, "the device \"%.80s\" was removed",
                 backend->places[i].id);
        core__device_lose(device, reason);
    }
}

static void store_list(core__backend *backend, const device_list *list)
{
    uint32_t count = known_devices(backend);

    for (uint32_t i = 0; i < count; i++)
        backend->places[i].position = ABSENT;
    for (uint32_t position = 0; position < list->count; position++) {
        const char *id = list->ids[position];
        uint32_t index;

        if (!id)
            continue;
        index = index_of(backend, count, id);
        count += index == count;
        backend->places[index] = (core__device_place){id, position};
    }
    backend->reason = list->reason;
    backend->device_count = count;
    lose_missing(backend);
}

/* A removal during the calls below moves the devices behind it, so that one is
 * skipped or seen twice: such a list is not used. */
core_status core__hotplug_enumerate(core__backend *backend)
{
    core__error_record earlier;

    CORE_TRY(allocate_lists(backend));
    core__error_save(&earlier);
    for (uint32_t i = 0; i < CORE__HOTPLUG_ATTEMPTS; i++) {
        core_status status;
        device_list list;
        bool disturbed;

        atomic_store(&backend->changed, false);
        status = read_list(backend, &list);
        disturbed = atomic_load(&backend->changed);
        if (status == CORE_OK && !disturbed)
            store_list(backend, &list);
        core__free(list.ids);
        if (status != CORE_OK && !disturbed)
            atomic_store(&backend->changed, true); /* the next lookup reads it
                                                    * again */
        if (!disturbed)
            return core__error_restore_on_success(&earlier, status);
        core__error_restore(&earlier);
    }
    if (backend->device_count != UINT32_MAX)
        return CORE_OK; /* with the last list */
    return core__error(CORE_ERROR_BUSY,
                       "%s: the devices changed during each of %d enumerations",
                       backend->type, CORE__HOTPLUG_ATTEMPTS);
}

core_status core__hotplug_position(const core__backend *backend, uint32_t index,
                                   uint32_t *out_position)
{
    *out_position = index;
    if (!backend->hotplug.device_id)
        return CORE_OK;
    *out_position = backend->places[index].position;
    if (*out_position != ABSENT)
        return CORE_OK;
    return core__error(CORE_ERROR_NO_DEVICE,
                       "device \"%s:%u\" was removed: the plugin no longer "
                       "reports \"%s\"",
                       backend->type, index, backend->places[index].id);
}

core_status core__hotplug_check_id(const core_device *device)
{
    const core__backend *backend = device->backend;
    core_string found = device->information.stable_id;
    const char *id;

    if (!backend->hotplug.device_id)
        return CORE_OK;
    if (found.size == 0)
        return core__error(CORE_ERROR_REFUSED,
                           "device \"%s:%u\": the plugin offers core.hotplug, "
                           "but device_information reports no stable_id, which "
                           "must equal what device_id reports",
                           backend->type, device->index);
    id = backend->places[device->index].id;
    if (found.size == strlen(id) && memcmp(found.data, id, found.size) == 0)
        return CORE_OK;
    return core__error(CORE_ERROR_BUSY,
                       "device \"%s:%u\" is \"%.64s\", but the plugin opened "
                       "\"%.*s\" at its index: the list of devices changed, "
                       "or stable_id is not what device_id reports",
                       backend->type, device->index, id,
                       (int)(found.size < 64 ? found.size : 64),
                       found.data ? found.data : "");
}
