/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* interfaces.c: graphs, and the table of interfaces. */

#include <gpu/host/codegen.h>
#include <gpu/host/interfaces.h>

#define calls (gpu_this_vendor.driver)

/* -------------------------------------------------------------- graphs -- */

static core_status begin(void *opaque, void *on)
{
    gpu_device *device = opaque;
    gpu_stream *stream = on;

    return gpu_report(device,
                      calls->capture_begin(device->context, stream->native),
                      "beginning a capture");
}

static core_status end(void *opaque, void *on, void **out_graph)
{
    gpu_device *device = opaque;
    gpu_stream *stream = on;

    if (out_graph != NULL)
        *out_graph = NULL;
    return gpu_report(
        device, calls->capture_end(device->context, stream->native, out_graph),
        "ending a capture");
}

static core_status launch(void *opaque, void *graph, void *on)
{
    gpu_device *device = opaque;
    gpu_stream *stream = on;
    int code = atomic_load(&device->lost);

    if (code == 0)
        code = calls->graph_launch(device->context, graph, stream->native);
    return gpu_report(device, code, "launching a graph");
}

static void destroy(void *opaque, void *graph)
{
    gpu_device *device = opaque;

    calls->graph_destroy(device->context, graph);
}

const core_graph_capture_interface gpu_graph_capture = {
    .struct_size = sizeof(core_graph_capture_interface),
    .begin = begin,
    .end = end,
    .launch = launch,
    .destroy = destroy,
};

const core_device_reset_interface gpu_reset = {
    .struct_size = sizeof(core_device_reset_interface),
    .reset = gpu_device_reset,
};

/* --------------------------------------------------------------- names -- */

const void *gpu_get_interface(void *backend, core_string name, uint32_t version)
{
    const struct {
        const char *name;
        const void *table;
        bool supported;
    } tables[] = {
        {"core.timing", &gpu_timing, calls->event_elapsed},
        {"core.host_callback", &gpu_host_callback, calls->stream_call},
        {"core.host_memory", &gpu_host_memory, calls->host_pin},
        {"core.stream_adopt", &gpu_stream_adopt, true},
        {"core.stream_priority", &gpu_stream_priority, calls->priority_range},
        {"core.virtual_memory", &gpu_virtual_memory, calls->virtual_map},
        {"core.peer", &gpu_peer, calls->peer_copy},
        {"core.graph_capture", &gpu_graph_capture, calls->capture_begin},
        {"core.device_reset", &gpu_reset, calls->device_reset},
        {"core.stream_error", &gpu_stream_error, true},
        {"core.codegen", &gpu_codegen, calls->compile},
        {"core.profiler", &gpu_profiler, calls->trace_start},
        {"core.ranges", &gpu_ranges, calls->ranges_enabled},
    };

    (void)backend;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (version <= 1 && tables[i].supported &&
            core_sdk_string_equal(name, tables[i].name) &&
            (tables[i].table != &gpu_ranges || calls->ranges_enabled()))
            return tables[i].table;
    return NULL;
}
