/* SPDX-License-Identifier: Apache-2.0 OR MIT-0
 * Copyright The libcore authors */

/* Step 7: graphs.  While a stream captures, its work is stored instead of run;
 * each launch of the graph runs all of it. */

#include "device.h"

#if STEP >= 7
struct graph {
    _Atomic uint32_t references; /* the core's, and one for each launch */
    job *first, **last;
};

static void graph_release(void *context)
{
    graph *g = context;

    if (atomic_fetch_sub(&g->references, 1) > 1)
        return;
    while (g->first != NULL) {
        job *next = g->first->next;

        if (g->first->drop != NULL)
            g->first->drop(g->first->context);
        free(g->first);
        g->first = next;
    }
    free(g);
}

/* With the lock of the stream that captures. */
void graph_add(graph *to, job *work)
{
    *to->last = work;
    to->last = &work->next;
}

static core_status graph_run(void *context)
{
    core_status status = CORE_OK;

    for (job *j = ((graph *)context)->first; j != NULL && status == CORE_OK;
         j = j->next)
        status = j->run(j->context);
    return status;
}

static core_status begin(void *device, void *on)
{
    graph *recorded = calloc(1, sizeof *recorded);

    (void)device;
    if (recorded == NULL)
        return core_sdk_error(host, CORE_ERROR_OUT_OF_MEMORY, NAME,
                              "no host memory for a graph");
    recorded->references = 1;
    recorded->last = &recorded->first;
    stream_set_capture(on, recorded);
    return CORE_OK;
}

static core_status end(void *device, void *on, void **out_graph)
{
    graph *recorded = stream_set_capture(on, NULL);

    (void)device;
    if (out_graph != NULL)
        *out_graph = recorded;
    else
        graph_release(recorded);
    return CORE_OK;
}

static core_status run_graph(void *device, void *handle, void *on)
{
    graph *g = handle;

    (void)device;
    atomic_fetch_add(&g->references, 1);
    return stream_submit(
        on, (job){.run = graph_run, .drop = graph_release, .context = g});
}

static void destroy(void *device, void *handle)
{
    (void)device;
    graph_release(handle);
}

const core_graph_capture_interface capture_table = {
    .struct_size = sizeof(core_graph_capture_interface),
    .begin = begin,
    .end = end,
    .launch = run_graph,
    .destroy = destroy,
};
#endif
