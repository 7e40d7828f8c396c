/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Graphs: work submitted to a capturing stream is stored with copies of its
 * calls, and submitted again at every launch. */

#include "capture.h"

#include "fault.h"

#include <stdlib.h>

struct sim_graph {
    uint32_t references; /* held by the core, the stream, and pending work */
    sim_device *device;
    sim_graph *next; /* of the device */
    sim_work *first;
    sim_work **last;
    bool listed;
};

static void unlist(sim_graph *graph)
{
    sim_graph **at = &graph->device->graphs;

    if (!graph->listed)
        return;
    while (*at != graph)
        at = &(*at)->next;
    *at = graph->next;
    graph->listed = false;
    graph->device->count.graphs--;
}

/* With the lock, which it releases temporarily if this was the last
 * reference. */
static void unref(sim_graph *graph)
{
    if (--graph->references > 0)
        return;
    pthread_mutex_unlock(&sim_lock);
    while (graph->first) {
        sim_work *next = graph->first->next;

        if (graph->first->end)
            graph->first->end(graph->first);
        free(graph->first);
        graph->first = next;
    }
    free(graph);
    pthread_mutex_lock(&sim_lock);
}

core_status sim_capture_add(sim_stream *stream, const sim_work *work)
{
    sim_graph *graph = stream->graph;
    const char *what = work->turn       ? "a result whose shape depends on data"
                       : work->function ? "a host callback"
                       : work->graph    ? "the launch of a graph"
                       : work->records  ? "the record of an event"
                       : work->marker   ? "the wait for an event"
                                        : NULL;
    sim_work *item;

    if (what)
        return core_sdk_error(sim_host, CORE_ERROR_UNSUPPORTED, "sim",
                              "%s cannot be captured", what);
    item = malloc(sizeof *item);
    if (!item)
        return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                              "no host memory to capture work");
    *item = *work;
    item->next = NULL;
    item->stream = stream;
    *graph->last = item;
    graph->last = &item->next;
    return CORE_OK;
}

void sim_capture_drop(sim_stream *stream)
{
    sim_graph *graph = stream->graph;

    stream->graph = NULL;
    if (graph)
        unref(graph);
}

static core_status begin(void *handle, void *of)
{
    sim_device *device = handle;
    sim_stream *stream = of;
    core_status status = sim_usable(device);
    sim_graph *graph;

    if (status != CORE_OK)
        return status;
    graph = calloc(1, sizeof *graph);
    if (!graph)
        return core_sdk_error(sim_host, CORE_ERROR_OUT_OF_MEMORY, "sim",
                              "no host memory for a graph");
    graph->references = 1;
    graph->device = device;
    graph->last = &graph->first;
    pthread_mutex_lock(&sim_lock);
    if (stream->graph)
        status = CORE_ERROR_BUSY;
    else
        stream->graph = graph;
    pthread_mutex_unlock(&sim_lock);
    if (status == CORE_OK)
        return CORE_OK;
    free(graph);
    return core_sdk_error(sim_host, status, "sim",
                          "the stream is already being captured");
}

static core_status end(void *handle, void *of, void **out_graph)
{
    sim_device *device = handle;
    sim_stream *stream = of;
    core_status status = sim_usable(device);
    sim_graph *graph;

    if (out_graph)
        *out_graph = NULL;
    pthread_mutex_lock(&sim_lock);
    graph = stream->graph;
    stream->graph = NULL;
    if (!graph) {
        status = core_sdk_error(sim_host, CORE_ERROR_INTERNAL, "sim",
                                "capture end: the capture was not begun");
    } else if (status != CORE_OK || !out_graph) {
        unref(graph);
    } else {
        graph->next = device->graphs;
        device->graphs = graph;
        graph->listed = true;
        device->count.graphs++;
        *out_graph = graph;
    }
    pthread_mutex_unlock(&sim_lock);
    return status;
}

static void end_replay(sim_work *work)
{
    pthread_mutex_lock(&sim_lock);
    unref(work->graph);
    pthread_mutex_unlock(&sim_lock);
}

static core_status launch(void *device, void *handle, void *of)
{
    sim_graph *graph = handle;
    sim_stream *stream = of;
    core_status status = sim_usable(device);

    if (status == CORE_OK)
        status = sim_fault(device, SIM_FAULT_GRAPH);
    if (status != CORE_OK)
        return status;
    pthread_mutex_lock(&sim_lock);
    for (sim_work *at = graph->first; at && status == CORE_OK; at = at->next) {
        sim_work work = *at;

        work.end = end_replay;
        work.graph = graph;
        status = sim_enqueue_locked(stream, &work);
        if (status == CORE_OK)
            graph->references++;
    }
    graph->device->count.graph_launches += status == CORE_OK;
    pthread_mutex_unlock(&sim_lock);
    return status;
}

static void destroy(void *device, void *handle)
{
    (void)device;
    if (sim_forked())
        return;
    pthread_mutex_lock(&sim_lock);
    unlist(handle);
    unref(handle);
    pthread_mutex_unlock(&sim_lock);
}

void sim_graphs_drop(sim_device *device)
{
    while (device->graphs) {
        sim_graph *graph = device->graphs;

        unlist(graph);
        unref(graph);
    }
}

const core_graph_capture_interface sim_graph_capture = {
    .struct_size = sizeof(core_graph_capture_interface),
    .begin = begin,
    .end = end,
    .launch = launch,
    .destroy = destroy,
};
