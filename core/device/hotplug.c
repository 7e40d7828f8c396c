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

/* Gives the lists room for one more device. */
static core_status grow(core__backend *backend, uint32_t count)
{
    core_device **devices =
        core__realloc(backend->devices, (count + 1) * sizeof *devices);
    core__device_place *places;

    if (!devices)
        return core__error_memory((count + 1) * sizeof *devices);
    devices[count] = NULL;
    backend->devices = devices;
    places = core__realloc(backend->places, (count + 1) * sizeof *places);
    if (!places)
        return core__error_memory((count + 1) * sizeof *places);
    backend->places = places;
    return CORE_OK;
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

/* Finds or adds the device with this id; equal ids are the same pointer. */
static core_status place_of(core__backend *backend, const char *id,
                            uint32_t *count, uint32_t limit,
                            core__device_place **out_place)
{
    for (uint32_t i = 0; i < *count; i++)
        if (backend->places[i].id == id) {
            *out_place = &backend->places[i];
            return CORE_OK;
        }
    if (*count == limit)
        return core__error(CORE_ERROR_REFUSED,
                           "%s: the plugin has reported %u devices; at most "
                           "that many are accepted",
                           backend->type, limit);
    CORE_TRY(grow(backend, *count));
    *out_place = &backend->places[(*count)++];
    **out_place = (core__device_place){id, ABSENT};
    return CORE_OK;
}

static core_status find_places(core__backend *backend, uint32_t found,
                               uint32_t *count, uint32_t limit)
{
    core__device_place *place = NULL;
    const char *id;

    for (uint32_t position = 0; position < found; position++) {
        CORE_TRY(id_at(backend, position, &id));
        if (!id)
            continue;
        CORE_TRY(place_of(backend, id, count, limit, &place));
        if (place->position != ABSENT)
            return core__error(
                CORE_ERROR_REFUSED,
                "%s: the plugin reports the id \"%s\" for devices %u and %u",
                backend->type, id, place->position, position);
        place->position = position;
    }
    return CORE_OK;
}

static void lose_missing(core__backend *backend, uint32_t count)
{
    char reason[160];

    for (uint32_t i = 0; i < count; i++) {
        core_device *device = backend->devices[i];

        if (!device || backend->places[i].position != ABSENT ||
            atomic_load(&device->lost))
            continue;
        snprintf(reason, sizeof reason, "the device \"%.80s\" was removed",
                 backend->places[i].id);
        core__device_lose(device, reason);
    }
}

core_status core__hotplug_update(core__backend *backend, uint32_t found,
                                 uint32_t limit)
{
    uint32_t count =
        backend->device_count == UINT32_MAX ? 0 : backend->device_count;
    core_status status;

    for (uint32_t i = 0; i < count; i++)
        backend->places[i].position = ABSENT;
    status = find_places(backend, found, &count, limit);
    backend->device_count = count;
    if (status == CORE_OK)
        lose_missing(backend, count);
    return status;
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
