/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "sim.h"

CORE_SDK_NOTE("sim", "libcore", "0.1", "Apache-2.0", "sim", "");

const core_host *sim_host;

static core_status enumerate(void *backend, uint32_t *out_count,
                             core_string *out_reason)
{
    (void)backend;
    *out_count = 1;
    *out_reason = core_sdk_string("");
    return CORE_OK;
}

static core_status device_open(void *backend, uint32_t index, void **out_device)
{
    (void)index;
    *out_device = backend;
    return CORE_OK;
}

static void device_close(void *backend, void *device)
{
    (void)backend;
    (void)device;
    sim_stream_close();
}

static core_status device_information(void *device,
                                      core_device_information *out)
{
    (void)device;
    out->name = core_sdk_string("simulated accelerator");
    out->stable_id = core_sdk_string("sim-0");
    out->features = core_sdk_string("handles,deferred");
    return CORE_OK;
}

static core_status device_properties(void *device, core_device_properties *out)
{
    uint64_t unused;

    (void)device;
    out->flags = CORE_DEVICE_HAS_F64;
    out->base_alignment = 64;
    out->granularity = 64;
    out->tail_padding = 0;
    out->compute_units = 1;
    out->numa_node = UINT32_MAX;
    return sim_memory_table.info(NULL, &unused, &out->total_memory);
}

static core_backend backend = {
    .struct_size = sizeof(core_backend),
    .device_type = {"sim", 3},
    .user = &backend,
    .enumerate = enumerate,
    .device_open = device_open,
    .device_close = device_close,
    .device_information = device_information,
    .device_properties = device_properties,
    .memory = &sim_memory_table,
    .streams = &sim_stream_table,
    .events = &sim_event_table,
};

static core_status stop(void *plugin, uint64_t deadline_ns)
{
    (void)plugin;
    (void)deadline_ns;
    sim_stream_close();
    sim_kernels_close();
    sim_memory_close();
    return CORE_OK;
}

static core_status init(const core_host *host, core_registry *registry,
                        void **out_plugin)
{
    core_status status;

    sim_host = host;
    *out_plugin = NULL;
    if (sim_memory_open() != 0)
        return core_sdk_error(host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                              "no address space for handles");
    status = host->register_backend(registry, &backend);
    if (status == CORE_OK)
        status = sim_register_kernels(registry);
    if (status != CORE_OK) {
        sim_kernels_close();
        sim_memory_close();
    }
    return status;
}

CORE_SDK_EXPORT core_status core_plugin_entry(const core_plugin_offer *offer,
                                              core_plugin_answer *answer)
{
    return core_sdk_negotiate(offer, answer, 1, 0, init, stop);
}
