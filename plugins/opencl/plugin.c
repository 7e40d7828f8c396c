/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The OpenCL plugin: devices of OpenCL 1.2 and later. */

#include "opencl.h"

CORE_SDK_NOTE("opencl", "The libcore authors", "0.1.0", "Apache-2.0", "opencl",
              "OpenCL 1.2");

const core_host *opencl_host;

static const void *get_interface(void *backend, core_string name,
                                 uint32_t version)
{
    (void)backend;
    if (version > 1)
        return NULL;
    if (core_sdk_string_equal(name, "core.numerics"))
        return &opencl_numerics;
    if (core_sdk_string_equal(name, "core.timing"))
        return &opencl_timing;
    if (core_sdk_string_equal(name, "core.stream_error"))
        return &opencl_stream_error;
    if (core_sdk_string_equal(name, "core.host_callback"))
        return &opencl_host_callback;
    if (core_sdk_string_equal(name, "core.host_memory"))
        return &opencl_host_memory;
    if (core_sdk_string_equal(name, "core.profiler"))
        return &opencl_profiler;
    if (core_sdk_string_equal(name, "core.codegen"))
        return &opencl_codegen;
    if (core_sdk_string_equal(name, "core.stream_adopt"))
        return &opencl_stream_adopt;
    return NULL;
}

static const core_backend backend = {
    .struct_size = sizeof(core_backend),
    .device_type = {"opencl", 6},
    .enumerate = opencl_enumerate,
    .device_open = opencl_device_open,
    .device_close = opencl_device_close,
    .device_information = opencl_device_information,
    .device_properties = opencl_device_properties,
    .device_status = opencl_device_status,
    .get_interface = get_interface,
    .memory = &opencl_memory_table,
    .streams = &opencl_stream_table,
    .events = &opencl_event_table,
};

/* Kernels that the device cannot run because it lacks f64 are refused at the
 * call. */
core_status opencl_supports(const core_call *call, const core_value *args,
                            uint32_t nargs)
{
    const opencl_device *device = call->device;
    bool f64 = false;

    for (uint32_t i = 0; i < nargs; i++)
        if (args[i].tag == CORE_VALUE_VIEW && args[i].u.view->dtype == CORE_F64)
            f64 = true;
    for (uint32_t i = 0; call->loop != NULL && i < call->loop->noperands; i++)
        if (call->loop->operands[i].dtype == CORE_F64)
            f64 = true;
    if (!f64 || device == NULL || device->has_f64)
        return CORE_OK;
    return opencl_refuse(CORE_ERROR_UNSUPPORTED, "%s has no f64 (cl_khr_fp64)",
                         device->name);
}

core_status opencl_needs_f64(const core_call *call, const core_value *args,
                             uint32_t nargs)
{
    const opencl_device *device = call->device;

    (void)args;
    (void)nargs;
    if (device == NULL || device->has_f64)
        return CORE_OK;
    return opencl_refuse(
        CORE_ERROR_UNSUPPORTED,
        "%s has no f64 (cl_khr_fp64), which this operator requires",
        device->name);
}

core_status opencl_register(core_registry *registry, const opencl_row *rows,
                            uint32_t count, uint32_t max_ndim)
{
    core_status status = CORE_OK;

    for (uint32_t i = 0; i < count && status == CORE_OK; i++) {
        core_kernel kernel = {.struct_size = sizeof kernel};

        kernel.name = core_sdk_string(rows[i].name);
        kernel.launch = rows[i].launch;
        kernel.user = rows[i].user;
        kernel.demands = rows[i].requirements;
        kernel.max_ndim = max_ndim;
        for (uint32_t k = 0; k < CORE_SIGNATURE_MAX; k++)
            if (rows[i].signature[k] & OPENCL_F64)
                kernel.supports = opencl_supports;
        memcpy(kernel.signature, rows[i].signature, sizeof kernel.signature);
        status = opencl_register_kernel(registry, kernel);
    }
    return status;
}

static core_status init(const core_host *host, core_registry *registry,
                        void **out_plugin)
{
    static core_status (*const parts[])(core_registry *) = {
        opencl_register_elementwise, opencl_register_copy,
        opencl_register_reduce,      opencl_register_matmul,
        opencl_register_rows,        opencl_register_index,
        opencl_register_move,        opencl_register_factory,
        opencl_register_loss,        opencl_register_conv,
        opencl_register_pooling,     opencl_register_norm,
        opencl_register_random,      opencl_register_scatter,
        opencl_register_scan,        opencl_register_sort,
        opencl_register_masked,      opencl_register_pad,
        opencl_register_resample,
    };
    core_status status;

    opencl_host = host;
    *out_plugin = NULL;
    status = host->register_backend(registry, &backend);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (status == CORE_OK)
            status = parts[i](registry);
    return status;
}

static core_status stop(void *plugin, uint64_t deadline_ns)
{
    (void)plugin;
    (void)deadline_ns;
    return CORE_OK;
}

core_status core_plugin_entry(const core_plugin_offer *offer,
                              core_plugin_answer *answer);
CORE_SDK_EXPORT core_status core_plugin_entry(const core_plugin_offer *offer,
                                              core_plugin_answer *answer)
{
    /* Vendors' libraries leave threads behind, so the plugin is never
     * unloaded. */
    return core_sdk_negotiate(offer, answer, 1, 0, init, stop);
}
