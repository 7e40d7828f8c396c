/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* The plugin: registers whatever the steps provide. */

#include "device.h"

/* The oldest ABI minor that the plugin runs under, in the note and in the
 * entry. */
#define OLDEST_MINOR (STEP >= 2 ? 2 : 1)

CORE_SDK_NOTE_SINCE(OLDEST_MINOR, NAME, "The libcore authors", "0.1",
                    "Apache-2.0 OR MIT-0", NAME, "");

const core_host *host;

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
}

static core_status device_properties(void *device, core_device_properties *out)
{
    (void)device;
    out->flags = CORE_DEVICE_HAS_F64; /* not FLAT: handles are not addresses */
    out->base_alignment = 64;
    out->granularity = 64;
    out->numa_node = UINT32_MAX;
    return CORE_OK;
}

/* Step 6: host memory for asynchronous copies. */
#if STEP >= 6
static core_status host_alloc(void *device, uint64_t size, void **out_data)
{
    (void)device;
    *out_data = aligned_alloc(64, (size + 63) / 64 * 64);
    return *out_data != NULL
               ? CORE_OK
               : core_sdk_error(host, CORE_ERROR_OUT_OF_MEMORY, NAME,
                                "no host memory for %llu bytes",
                                (unsigned long long)size);
}

static void host_free(void *device, void *data, uint64_t size)
{
    (void)device;
    (void)size;
    free(data);
}

static const core_host_memory_interface host_memory = {
    .struct_size = sizeof(core_host_memory_interface),
    .alloc = host_alloc,
    .free = host_free,
};
#endif

static const void *get_interface(void *backend, core_string name,
                                 uint32_t version)
{
    (void)backend;
    (void)name;
    (void)version;
#if STEP >= 6
    if (version == 1 && core_sdk_string_equal(name, "core.host_memory"))
        return &host_memory;
    if (version == 1 && core_sdk_string_equal(name, "core.allocator"))
        return &own_memory;
#endif
#if STEP >= 7
    if (version == 1 && core_sdk_string_equal(name, "core.graph_capture"))
        return &capture_table;
#endif
#if STEP >= 9
    if (version == 1 && core_sdk_string_equal(name, "core.host_callback"))
        return &callback_table;
    if (version == 1 && core_sdk_string_equal(name, "core.timing"))
        return &timing_table;
    if (version == 1 && core_sdk_string_equal(name, "core.stream_error"))
        return &stream_error_table;
#endif
    return NULL;
}

static core_backend backend = {
    .struct_size = sizeof(core_backend),
    .device_type = {NAME, sizeof(NAME) - 1},
    .user = &backend,
    .enumerate = enumerate,
    .device_open = device_open,
    .device_close = device_close,
    .device_properties = device_properties,
    .get_interface = get_interface,
    .memory = &memory_table,
#if STEP >= 2
    .streams = &stream_table,
    .events = &event_table,
#endif
};

static core_status init(const core_host *given, core_registry *registry,
                        void **out_plugin)
{
    core_status status;

    host = given;
    *out_plugin = NULL;
    status = host->register_backend(registry, &backend);
#if STEP >= 3
    if (status == CORE_OK)
        status = family_register(registry);
#endif
#if STEP >= 4
    if (status == CORE_OK)
        status = product_register(registry);
#endif
#if STEP >= 8
    if (status == CORE_OK)
        status = operator_register(registry);
#endif
#if STEP >= 9
    if (status == CORE_OK)
        status = take_register(registry);
#endif
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
    /* Streams have threads of ours, so the plugin is not safe to unload. */
    return core_sdk_negotiate(offer, answer, OLDEST_MINOR, 0, init, stop);
}
