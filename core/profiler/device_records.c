/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core.profiler: recording of device activity by a plugin, from the first work
 * in a round to its end. */

#include "base/error.h"
#include "device/stream.h"
#include "profiler/profile.h"

#include <stdio.h>

enum { READINGS = 8 };

/* Reads the plugin's clock and the host's together: of several attempts, the
 * one that took the shortest time. */
static core_status read_clocks(core_device *device, uint64_t *out_host,
                               int64_t *out_device_time)
{
    uint64_t shortest = UINT64_MAX;

    for (int i = 0; i < READINGS; i++) {
        uint64_t before = core__profile_now(), after;
        int64_t device_time = 0;

        CORE_TRY(device->interfaces.profiler.clock(device->impl, &device_time));
        after = core__profile_now();
        if (after - before >= shortest)
            continue;
        shortest = after - before;
        *out_host = before + shortest / 2;
        *out_device_time = device_time;
    }
    return CORE_OK;
}

bool core__profile_records_start(core__profile_clock *clock)
{
    core_device *device = clock->device;
    const core_profiler_interface *table = &device->interfaces.profiler;
    core_status status;

    if (!table->start || !table->stop || !table->take || !table->clock ||
        !table->correlate)
        return false;
    core_error_clear();
    status = table->start(device->impl, core__profile_limit());
    if (status == CORE_OK) {
        status = read_clocks(device, &clock->host, &clock->device_time);
        if (status != CORE_OK)
            (void)table->stop(device->impl);
    }
    clock->records = status == CORE_OK;
    if (status != CORE_OK)
        snprintf(clock->reason, sizeof clock->reason,
                 "its plugin records nothing: %s",
                 core_error_code() == status ? core_error_message()
                                             : core_status_name(status));
    return clock->records;
}

void core__profile_records_stop(core__profile_clock *clock)
{
    core_device *device = clock->device;
    core_status status = CORE_ERROR_DEVICE_LOST, read;

    if (!clock->records)
        return;
    core_error_clear();
    core__queues_drain(device);
    if (core__device_has_generation(device, clock->generation)) {
        read = read_clocks(device, &clock->host_end, &clock->device_time_end);
        status = device->interfaces.profiler.stop(device->impl);
        status = status == CORE_OK ? read : status;
    }
    clock->records = status == CORE_OK;
    if (status != CORE_OK)
        snprintf(clock->reason, sizeof clock->reason,
                 "its plugin's records are lost: %s",
                 core_error_code() != CORE_OK ? core_error_message()
                                              : "the device was reset");
}
