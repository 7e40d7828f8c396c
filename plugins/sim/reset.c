/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Resets a device: everything on it is discarded. */

#include "block.h"
#include "capture.h"
#include "fault.h"
#include "profile.h"
#include "worker.h"

#include <stdlib.h>

static void drop_events(sim_device *device)
{
    while (device->events) {
        sim_event *event = device->events;

        device->events = event->next;
        if (event->marker)
            sim_marker_unref(event->marker);
        free(event);
    }
    device->count.events = 0;
}

static core_status reset(void *handle)
{
    sim_device *device = handle;
    core_status status;

    if (sim_forked() || !device->present)
        return sim_usable(device);
    pthread_mutex_lock(&sim_lock);
    sim_device_set_lost(device, "the device was reset");
    pthread_mutex_unlock(&sim_lock);
    sim_streams_close(device); /* drops their work */
    pthread_mutex_lock(&sim_lock);
    drop_events(device);
    sim_graphs_drop(device);
    sim_profile_close(device);
    /* On failure the device stays lost and keeps its memory, for later frees
     * and close. */
    status = sim_memory_open(device);
    if (status == CORE_OK)
        atomic_store(&device->lost, false);
    pthread_mutex_unlock(&sim_lock);
    return status;
}

const core_device_reset_interface sim_device_reset = {
    .struct_size = sizeof(core_device_reset_interface),
    .reset = reset,
};
