/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "block.h"
#include "device.h"
#include "fault.h"

CORE_SDK_NOTE("sim", "libcore", "0.2", "Apache-2.0", "sim", "");

const core_host *sim_host;

static core_backend backend = {
    .struct_size = sizeof(core_backend),
    .device_type = {"sim", 3},
    .user = &backend,
    .enumerate = sim_enumerate,
    .device_open = sim_device_open,
    .device_close = sim_device_close,
    .device_information = sim_device_information,
    .device_properties = sim_device_properties,
    .device_status = sim_device_status,
    .get_interface = sim_get_interface,
    .memory = &sim_memory_table,
    .streams = &sim_stream_table,
    .events = &sim_event_table,
};

static void close_devices(void)
{
    for (uint32_t i = 0; i < SIM_DEVICES; i++)
        sim_device_close(NULL, &sim_devices[i]);
}

static core_status stop(void *plugin, uint64_t deadline_ns)
{
    (void)plugin;
    (void)deadline_ns;
    close_devices();
    sim_quarantine_empty();
    sim_kernels_close();
    return CORE_OK;
}

/* At process exit none of our threads may use what is being torn down. */
__attribute__((destructor)) static void at_exit(void)
{
    if (sim_forked() || sim_running)
        return;
    pthread_mutex_lock(&sim_lock);
    for (uint32_t i = 0; i < SIM_DEVICES; i++)
        if (sim_devices[i].open)
            sim_device_set_lost(&sim_devices[i], "the process ends");
    pthread_mutex_unlock(&sim_lock);
    for (uint32_t i = 0; i < SIM_DEVICES; i++)
        if (sim_devices[i].open)
            sim_streams_close(&sim_devices[i]);
}

static core_status init(const core_host *host, core_registry *registry,
                        void **out_plugin)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    core_status status;

    sim_host = host;
    *out_plugin = NULL;
    pthread_once(&once, sim_handle_forks);
    status = sim_settings_read();
    if (status == CORE_OK)
        sim_hotplug_open();
    if (status == CORE_OK)
        status = sim_faults_read();
    if (status == CORE_OK)
        status = host->register_backend(registry, &backend);
    if (status == CORE_OK)
        status = sim_register_kernels(registry);
    if (status != CORE_OK)
        sim_kernels_close();
    return status;
}

CORE_SDK_EXPORT core_status core_plugin_entry(const core_plugin_offer *offer,
                                              core_plugin_answer *answer)
{
    return core_sdk_negotiate(offer, answer, 1, 0, init, stop);
}
