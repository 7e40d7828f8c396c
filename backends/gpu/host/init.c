/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* init.c: what each vendor's plugin registers. */

#include <gpu/host/collectives.h>
#include <gpu/host/host.h>

const core_host *gpu_host;

core_status gpu_register(core_registry *registry, const gpu_row *rows,
                         uint32_t count)
{
    core_status status = CORE_OK;

    for (uint32_t i = 0; i < count && status == CORE_OK; i++) {
        core_kernel kernel = {.struct_size = sizeof kernel};
        const core_kernel *one = &kernel;

        kernel.name = core_sdk_string(rows[i].name);
        kernel.launch = rows[i].launch;
        kernel.user = rows[i].user;
        kernel.demands = rows[i].requirements;
        kernel.supports = rows[i].supports;
        memcpy(kernel.signature, rows[i].signature, sizeof kernel.signature);
        status = gpu_host->register_kernels(
            registry, core_sdk_string(gpu_this_vendor.type), &one, 1);
    }
    return status;
}

core_status gpu_supports_dims(const core_call *call, const core_value *args,
                              uint32_t nargs)
{
    (void)call;
    for (uint32_t i = 0; i < nargs; i++)
        if (args[i].tag == CORE_VALUE_VIEW && args[i].u.view->ndim > GPU_DIMS)
            return gpu_refuse(
                CORE_ERROR_UNSUPPORTED,
                "a tensor of %u dimensions; at most %d are supported",
                args[i].u.view->ndim, GPU_DIMS);
    return CORE_OK;
}

core_status gpu_init(const core_host *host, core_registry *registry,
                     void **out_plugin)
{
#define ROW(file) gpu_register_##file,
    static core_status (*const parts[])(core_registry *) = {GPU_REGISTRARS(ROW)
                                                                NULL};
    const core_backend backend = {
        .struct_size = sizeof backend,
        .device_type = core_sdk_string(gpu_this_vendor.type),
        .enumerate = gpu_enumerate,
        .device_open = gpu_device_open,
        .device_close = gpu_device_close,
        .device_information = gpu_device_information,
        .device_properties = gpu_device_properties,
        .device_status = gpu_device_status,
        .get_interface = gpu_get_interface,
        .memory = &gpu_memory_table,
        .streams = &gpu_stream_table,
        .events = &gpu_event_table,
    };
    core_status status;

    gpu_host = host;
    *out_plugin = NULL;
    status = host->register_backend(registry, &backend);
    for (size_t i = 0; parts[i] != NULL && status == CORE_OK; i++)
        status = parts[i](registry);
    /* An older libcore has no such interfaces. */
    if (status == CORE_OK && gpu_this_vendor.collectives != NULL &&
        host->register_interface != NULL)
        status = gpu_collectives_register(registry);
    return status;
}

core_status gpu_stop(void *plugin, uint64_t deadline_ns)
{
    (void)plugin;
    (void)deadline_ns;
    return CORE_OK;
}
