/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Opens, closes, loses and resets devices. */

#include "device.h"

#include "codegen.h"
#include "fault.h"
#include "profile.h"

#include <stdatomic.h>

pthread_mutex_t sim_lock = PTHREAD_MUTEX_INITIALIZER;
sim_device sim_devices[SIM_DEVICES];

static _Atomic bool forked;

static void before_fork(void)
{
    pthread_mutex_lock(&sim_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&sim_lock);
}

static void after_fork_in_child(void)
{
    atomic_store(&forked, true);
    pthread_mutex_unlock(&sim_lock);
}

void sim_handle_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

bool sim_forked(void)
{
    return atomic_load_explicit(&forked, memory_order_relaxed);
}

core_status sim_usable(const sim_device *device)
{
    core_error_info info = {.struct_size = sizeof info,
                            .code = CORE_ERROR_DEVICE_LOST,
                            .severity = CORE_SEVERITY_DEVICE_LOST,
                            .component = core_sdk_string("sim")};
    char text[64];

    if (sim_forked())
        return core_sdk_error(sim_host, CORE_ERROR_UNSUPPORTED, "sim",
                              "%s: a forked process cannot use the devices of "
                              "its parent",
                              device->name);
    if (!atomic_load(&device->lost))
        return CORE_OK;
    snprintf(text, sizeof text,
             device->present ? "%s is lost until it is reset"
                             : "%s was removed",
             device->name);
    info.text = core_sdk_string(text);
    return sim_host->error(&info);
}

void sim_device_set_lost(sim_device *device, const char *reason)
{
    atomic_store(&device->lost, true);
    pthread_cond_broadcast(&device->released);
    for (sim_stream *at = device->streams; at; at = at->next) {
        if (at->failure.code == CORE_ERROR_DEVICE_LOST)
            continue;
        at->failure.code = CORE_ERROR_DEVICE_LOST;
        snprintf(at->failure.text, sizeof at->failure.text, "%s", reason);
    }
}

/* --------------------------------------------------- the backend's slots -- */

core_status sim_enumerate(void *backend, uint32_t *out_count,
                          core_string *out_reason)
{
    core_status status = sim_hotplug_before_read();

    (void)backend;
    if (status != CORE_OK)
        return status;
    *out_count = sim_hotplug_count();
    *out_reason =
        core_sdk_string(*out_count        ? ""
                        : sim_set.devices ? "all were removed"
                                          : "LIBCORE_SIM_DEVICES is 0");
    return CORE_OK;
}

core_status sim_device_open(void *backend, uint32_t index, void **out_device)
{
    core_status status = sim_hotplug_before_read();
    sim_device *device = sim_hotplug_device(index);

    (void)backend;
    *out_device = NULL;
    if (status != CORE_OK)
        return status;
    if (!device)
        return core_sdk_error(sim_host, CORE_ERROR_NO_DEVICE, "sim",
                              "there is no device %u", index);
    if (device->open) /* the list has changed since the core read it */
        return core_sdk_error(sim_host, CORE_ERROR_BUSY, "sim", "%s is open",
                              device->id);
    snprintf(device->name, sizeof device->name, "sim:%u", device->index);
    atomic_store(&device->lost, false);
    status = sim_usable(device);
    if (status == CORE_OK)
        status = sim_memory_open(device);
    if (status == CORE_OK) {
        pthread_mutex_lock(&sim_lock); /* another thread may remove it */
        memset(&device->count, 0, sizeof device->count);
        sim_faults_open(device);
        device->held = false;
        pthread_cond_init(&device->released, NULL);
        device->open = true;
        if (!device->present)
            atomic_store(&device->lost, true);
        pthread_mutex_unlock(&sim_lock);
        *out_device = device;
    }
    return status;
}

void sim_device_close(void *backend, void *handle)
{
    sim_device *device = handle;

    (void)backend;
    if (!device->open || sim_forked())
        return;
    sim_streams_close(device);
    sim_memory_close(device);
    sim_profile_close(device);
    pthread_mutex_lock(&sim_lock);
    pthread_cond_destroy(&device->released);
    device->open = false;
    pthread_mutex_unlock(&sim_lock);
}

core_status sim_device_information(void *handle, core_device_information *out)
{
    sim_device *device = handle;

    out->name = core_sdk_string("simulated accelerator");
    out->stable_id = core_sdk_string(device->id);
    out->features =
        core_sdk_string(sim_set.flat ? "flat,deferred" : "handles,deferred");
    return CORE_OK;
}

core_status sim_device_properties(void *device, core_device_properties *out)
{
    (void)device;
    out->flags = CORE_DEVICE_HAS_F64 | (sim_set.flat ? CORE_DEVICE_FLAT : 0);
    out->base_alignment = sim_set.alignment;
    out->granularity = sim_set.granularity;
    out->tail_padding = sim_set.tail;
    out->largest_allocation = sim_set.largest;
    out->total_memory = sim_set.bytes;
    out->compute_units = 1;
    out->numa_node = UINT32_MAX;
    out->max_streams = (uint32_t)sim_set.queues;
    if (out->struct_size > offsetof(core_device_properties, copy_streams))
        out->copy_streams = (uint32_t)sim_set.copy_queues;
    return CORE_OK;
}

core_status sim_device_status(void *device)
{
    core_status status = sim_hotplug_update();

    return status == CORE_OK ? sim_usable(device) : status;
}

const void *sim_get_interface(void *backend, core_string name, uint32_t version)
{
    (void)backend;
    static const struct {
        const char *name;
        const void *table;
    } tables[] = {
        {"core.stream_error", &sim_stream_error},
        {"core.peer", &sim_peer},
        {"core.host_memory", &sim_host_memory},
        {"core.host_callback", &sim_host_callback},
        {"core.timing", &sim_timing},
        {"core.stream_adopt", &sim_stream_adopt},
        {"core.stream_priority", &sim_stream_priority},
        {"core.virtual_memory", &sim_virtual_memory},
        {"core.device_reset", &sim_device_reset},
        {"core.graph_capture", &sim_graph_capture},
        {"core.allocator", &sim_allocator},
        {"core.profiler", &sim_profiler},
        {"core.layout", &sim_layout},
        {"core.hotplug", &sim_hotplug},
        {"core.ipc", &sim_ipc},
        {"core.codegen", &sim_codegen},
        {"sim.control", &sim_control_table},
    };

    (void)backend;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (version > 1 || !core_sdk_string_equal(name, tables[i].name))
            continue;
        if ((tables[i].table == &sim_allocator && !sim_set.own) ||
            (tables[i].table == &sim_profiler && !sim_set.profiler) ||
            (tables[i].table == &sim_layout && !sim_set.layout) ||
            (tables[i].table == &sim_codegen && !sim_set.codegen))
            return NULL;
        if (tables[i].table == &sim_stream_error)
            sim_errors_taken = true;
        return tables[i].table;
    }
    return NULL;
}
