/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Devices that a program adds, removes and reorders through sim.control, or
 * another process by the file LIBCORE_SIM_ABSENT. */

#include "sim.h"

#include <limits.h>

/* Indices in sim_devices, in the order of the enumeration; under sim_lock. */
static uint32_t order[SIM_DEVICES];
static uint32_t present;
static core_status (*watcher)(void *user);
static void *watcher_user;

void sim_hotplug_watch(core_status (*function)(void *user), void *user)
{
    pthread_mutex_lock(&sim_lock);
    watcher = function;
    watcher_user = user;
    pthread_mutex_unlock(&sim_lock);
}

/* Returns false if no file names the devices that are absent. */
static bool read_absent(bool absent[SIM_DEVICES])
{
    core_string name = sim_host->setting(core_sdk_string("LIBCORE_SIM_ABSENT"));
    char path[PATH_MAX];
    uint32_t index;
    FILE *file;

    if (!name.data || name.size == 0 || name.size >= sizeof path ||
        sim_host->abi_minor < 6)
        return false;
    memcpy(path, name.data, name.size);
    path[name.size] = '\0';
    file = fopen(path, "re");
    if (!file)
        return false;
    while (fscanf(file, "%2u", &index) == 1)
        if (index < SIM_DEVICES)
            absent[index] = true;
    fclose(file);
    return true;
}

/* Another thread may have done the same. */
static core_status change_to(uint32_t index, bool absent)
{
    core_status status =
        absent ? sim_hotplug_remove(index) : sim_hotplug_add(index);

    return status == CORE_ERROR_NOT_FOUND ||
                   status == CORE_ERROR_INVALID_ARGUMENT
               ? CORE_OK
               : status;
}

core_status sim_hotplug_update(void)
{
    bool absent[SIM_DEVICES] = {false};
    core_status status = CORE_OK;

    if (!read_absent(absent))
        return CORE_OK;
    for (uint32_t i = 0; status == CORE_OK && i < sim_set.devices; i++)
        if (sim_devices[i].present == absent[i])
            status = change_to(i, absent[i]);
    return status;
}

core_status sim_hotplug_before_read(void)
{
    core_status (*function)(void *), status = sim_hotplug_update();
    void *user;

    if (status != CORE_OK)
        return status;
    pthread_mutex_lock(&sim_lock);
    function = watcher;
    user = watcher_user;
    pthread_mutex_unlock(&sim_lock);
    return function ? function(user) : CORE_OK;
}

void sim_hotplug_open(void)
{
    present = (uint32_t)sim_set.devices;
    for (uint32_t i = 0; i < SIM_DEVICES; i++) {
        order[i] = i;
        sim_devices[i].index = i;
        sim_devices[i].present = i < present;
        snprintf(sim_devices[i].id, sizeof sim_devices[i].id, "sim-%u", i);
    }
}

uint32_t sim_hotplug_count(void)
{
    uint32_t count;

    pthread_mutex_lock(&sim_lock);
    count = present;
    pthread_mutex_unlock(&sim_lock);
    return count;
}

sim_device *sim_hotplug_device(uint32_t index)
{
    sim_device *device = NULL;

    pthread_mutex_lock(&sim_lock);
    if (index < present)
        device = &sim_devices[order[index]];
    pthread_mutex_unlock(&sim_lock);
    return device;
}

/* Under the lock, so that the core reads no list that changed before this. */
static core_status announce(void)
{
    return sim_host->devices_changed(core_sdk_string("sim"));
}

static core_status unsupported(void)
{
    return core_sdk_error(sim_host, CORE_ERROR_UNSUPPORTED, "sim",
                          "devices change from ABI 0.6 on");
}

core_status sim_hotplug_remove(uint32_t index)
{
    core_status status = CORE_OK;
    bool removed;

    if (sim_host->abi_minor < 6)
        return unsupported();
    pthread_mutex_lock(&sim_lock);
    removed = index < SIM_DEVICES && sim_devices[index].present;
    if (removed) {
        uint32_t at = 0;

        while (order[at] != index)
            at++;
        for (present--; at < present; at++)
            order[at] = order[at + 1];
        sim_devices[index].present = false;
        if (sim_devices[index].open)
            sim_device_set_lost(&sim_devices[index], "the device was removed");
        status = announce();
    }
    pthread_mutex_unlock(&sim_lock);
    if (!removed)
        return core_sdk_error(sim_host, CORE_ERROR_NOT_FOUND, "sim",
                              "sim-%u is not present", index);
    return status;
}

core_status sim_hotplug_add(uint32_t index)
{
    core_status status = CORE_OK;
    bool added;

    if (sim_host->abi_minor < 6)
        return unsupported();
    pthread_mutex_lock(&sim_lock);
    added = index < SIM_DEVICES && !sim_devices[index].present;
    if (added) {
        order[present++] = index;
        sim_devices[index].present = true;
        status = announce();
    }
    pthread_mutex_unlock(&sim_lock);
    if (!added)
        return core_sdk_error(sim_host, CORE_ERROR_INVALID_ARGUMENT, "sim",
                              "sim-%u is present, or not below %d", index,
                              SIM_DEVICES);
    return status;
}

core_status sim_hotplug_reverse(void)
{
    core_status status;

    if (sim_host->abi_minor < 6)
        return unsupported();
    pthread_mutex_lock(&sim_lock);
    for (uint32_t i = 0; i < present / 2; i++) {
        uint32_t first = order[i];

        order[i] = order[present - 1 - i];
        order[present - 1 - i] = first;
    }
    status = announce();
    pthread_mutex_unlock(&sim_lock);
    return status;
}

static core_status device_id(void *backend, uint32_t index, core_string *out_id)
{
    core_status status = sim_hotplug_before_read();
    sim_device *device = sim_hotplug_device(index);

    (void)backend;
    if (status != CORE_OK)
        return status;
    *out_id = core_sdk_string(device ? device->id : "");
    return device ? CORE_OK
                  : core_sdk_error(sim_host, CORE_ERROR_NOT_FOUND, "sim",
                                   "there is no device %u", index);
}

const core_hotplug_interface sim_hotplug = {
    .struct_size = sizeof(core_hotplug_interface),
    .device_id = device_id,
};
