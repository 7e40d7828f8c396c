/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Captures and graphs.  While a stream is capturing, stream->capture is set:
 * kernel calls are flagged, memory comes from the capture's pool, and random
 * operators draw relative to a counter on the device that each launch
 * updates. */

#include "capture/capture.h"

#include "base/fork.h"
#include "base/memory.h"
#include "base/observe.h"
#include "memory/allocator.h"
#include "random/generator.h"
#include "tensor/tensor.h"

#include <libcore/random.h>

#include <stdio.h>
#include <string.h>

/* A generator from which the captured work draws. */
typedef struct source {
    struct source *next;
    core_generator *generator; /* NULL: the default one */
    core_tensor *counter;      /* {offset, seed}, written by each launch; a part
                                * of the capture's counters */
    uint64_t used;             /* counter blocks used by one launch */
} source;

/* From how many generators a capture can draw. */
enum { SOURCES = 32 };

typedef struct capture {
    core_stream_guard guard;
    core_memory_pool *pool;
    core_tensor *counters; /* NULL: the device has no fill */
    uint32_t nsources;
    source *sources;
    _Atomic uint64_t size; /* several threads may submit work */
    bool invalid;
    char reason[160];
} capture;

/* No other lock is taken while it is held: any thread may query a stream whose
 * capture it invalidates and which is about to end. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Several threads may draw random numbers in one capture.  Those of generators
 * and of threads are taken while it is held. */
static pthread_mutex_t draws = PTHREAD_MUTEX_INITIALIZER;

void core__captures_fork(core__fork_phase at)
{
    core__fork_mutex(at, &lock);
}

void core__capture_draws_fork(core__fork_phase at)
{
    core__fork_mutex(at, &draws);
}

static _Atomic uint64_t captures_begun;

struct core_graph {
    _Atomic uint32_t references;
    uint32_t generation;
    core_device *device;
    core_memory_pool *pool;
    core_stream *stream;   /* the stream on which it was captured, and whose
                            * memory it uses */
    core_event *elsewhere; /* an event after its launches on other streams;
                            * NULL: none yet */
    void *impl;
    source *sources;
    uint64_t size;
};

static void sources_free(source *at)
{
    while (at) {
        source *next = at->next;

        core__tensor_release(at->counter);
        core_generator_release(at->generator);
        core__free(at);
        at = next;
    }
}

/* --------------------------------------------------------- in progress -- */

void core__capture_invalidate(core_stream *stream, const char *what)
{
    capture *under_way;

    if (stream->device->forked || !stream->capture)
        return;
    pthread_mutex_lock(&lock);
    under_way = stream->capture;
    if (under_way && !under_way->invalid) {
        under_way->invalid = true;
        snprintf(under_way->reason, sizeof under_way->reason, "%s", what);
    }
    pthread_mutex_unlock(&lock);
}

void core__capture_count_work(core_stream *stream)
{
    capture *under_way = stream->capture;

    atomic_fetch_add_explicit(&under_way->size, 1, memory_order_relaxed);
}

static core_status source_of(core_stream *stream, core_generator *generator,
                             source **out_source)
{
    capture *under_way = stream->capture;
    int64_t two = 2, one = 1;
    source *found = under_way->sources;

    while (found && found->generator != generator)
        found = found->next;
    *out_source = found;
    if (found)
        return CORE_OK;
    /* Each launch writes new values of the counters. */
    if (!stream->device->memory.fill)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "random operators cannot be captured on \"%s\": its "
                           "plugin has no fill",
                           stream->device->name);
    if (under_way->nsources == SOURCES)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "a capture can draw from at most %d generators",
                           SOURCES);
    found = core__alloc_zero(sizeof *found);
    if (!found)
        return core__error_memory(sizeof *found);
    if (core__tensor_alias(under_way->counters, CORE_I64, 1, &two, &one,
                           2 * (int64_t)under_way->nsources,
                           &found->counter) != CORE_OK) {
        core__free(found);
        return core_error_code();
    }
    under_way->nsources++;
    core__generator_retain(generator);
    found->generator = generator;
    found->next = under_way->sources;
    under_way->sources = found;
    *out_source = found;
    return CORE_OK;
}

core_status core__capture_random(core_stream *stream, core_generator *generator,
                                 uint64_t numel, uint64_t *out_seed,
                                 uint64_t *out_offset,
                                 core_tensor **out_counter)
{
    source *from;
    core_status status;

    *out_seed = *out_offset = 0;
    *out_counter = NULL;
    pthread_mutex_lock(&draws);
    status = source_of(stream, generator, &from);
    if (status == CORE_OK) {
        *out_offset = from->used;
        *out_counter = from->counter;
        from->used += core__generator_blocks(numel);
    }
    pthread_mutex_unlock(&draws);
    return status;
}

/* ---------------------------------------------------------- begin, end -- */

static core_status check_begin(core_stream *stream, core_memory_pool *pool)
{
    core_device *device = stream->device;

    if (!device->interfaces.graph_capture.begin || !device->allocator)
        return core__error(CORE_ERROR_UNSUPPORTED,
                           "%s: the plugin does not support captures",
                           device->name);
    CORE_TRY(core__allocator_capture_check(stream, pool));
    if (stream->id == 0)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: the default stream cannot capture; create one "
                           "with core_stream_create",
                           device->name);
    if (stream->capture)
        return core__error(CORE_ERROR_BUSY,
                           "%s: this stream is already capturing",
                           device->name);
    return core__stream_check(stream);
}

/* Counters are written before a launch.  So their memory is taken before the
 * captured work takes and frees any, which it may write later. */
static core_status make_counters(const core_stream *stream,
                                 core_tensor **out_counters)
{
    int64_t numbers = 2 * (int64_t)SOURCES;

    return stream->device->memory.fill
               ? core__tensor_new(stream->device, CORE_I64, 1, &numbers, NULL,
                                  out_counters)
               : CORE_OK;
}

core_status core_capture_begin(core_stream *stream, core_memory_pool *pool)
{
    capture *under_way;
    core_device *device;
    core_status status;
    uint32_t errors;

    CORE__NOT_NULL(stream);
    CORE_TRY(core__thread_cut(__func__));
    CORE_TRY(check_begin(stream, pool));
    device = stream->device;
    under_way = core__alloc_zero(sizeof *under_way);
    if (!under_way)
        return core__error_memory(sizeof *under_way);
    status = CORE_OK;
    if (pool)
        under_way->pool = core_memory_pool_retain(pool);
    else
        status = core_memory_pool_create(device, &under_way->pool);
    if (status != CORE_OK)
        goto failed;
    status = core__queue_capture(stream->queue, true);
    if (status != CORE_OK)
        goto failed;
    status = core_stream_guard_enter(stream, &under_way->guard);
    if (status != CORE_OK)
        goto failed_queue;
    status = core__allocator_capture_begin(stream, under_way->pool);
    if (status != CORE_OK)
        goto failed_guard;
    status = make_counters(stream, &under_way->counters);
    if (status != CORE_OK)
        goto failed_memory;
    errors = core__error_sequence();
    pthread_mutex_lock(&stream->queue->lock);
    status = device->interfaces.graph_capture.begin(device->impl, stream->impl);
    pthread_mutex_unlock(&stream->queue->lock);
    status = core__stream_check_submitted(stream, status, errors);
    if (status != CORE_OK)
        goto failed_memory;
    stream->capture = under_way;
    atomic_store(&stream->capture_id, atomic_fetch_add(&captures_begun, 1) + 1);
    return CORE_OK;

failed_memory:
    core__tensor_release(under_way->counters);
    core__allocator_capture_end(stream);
failed_guard:
    core_stream_guard_leave(&under_way->guard);
failed_queue:
    core__queue_capture(stream->queue, false);
failed:
    core_memory_pool_release(under_way->pool);
    core__free(under_way);
    return status;
}

static core_status graph_make(core_stream *stream, capture *ended, void *impl,
                              core_graph **out_graph)
{
    core_device *device = stream->device;
    core_graph *graph = core__alloc_zero(sizeof *graph);

    *out_graph = graph;
    if (!graph) {
        device->interfaces.graph_capture.destroy(device->impl, impl);
        return core__error_memory(sizeof *graph);
    }
    atomic_init(&graph->references, 1);
    graph->generation = stream->generation;
    graph->device = core_device_retain(device);
    graph->pool = core_memory_pool_retain(ended->pool);
    graph->stream = core_stream_retain(stream);
    graph->impl = impl;
    graph->sources = ended->sources;
    graph->size = atomic_load(&ended->size);
    ended->sources = NULL;
    return CORE_OK;
}

/* Ends the capture in the plugin, which knows nothing of it after a reset. */
static core_status end_impl(core_stream *stream, void **out_impl)
{
    core_device *device = stream->device;
    core_status status;
    uint32_t errors = core__error_sequence();

    if (!core__device_has_generation(device, stream->generation))
        return core__device_stale_error(device);
    pthread_mutex_lock(&stream->queue->lock);
    status = device->interfaces.graph_capture.end(device->impl, stream->impl,
                                                  out_impl);
    pthread_mutex_unlock(&stream->queue->lock);
    return core__stream_check_submitted(stream, status, errors);
}

core_status core_capture_end(core_stream *stream, core_graph **out_graph)
{
    capture *ended;
    core_device *device;
    core_status status;
    void *impl = NULL;
    bool keep;

    if (out_graph)
        *out_graph = NULL;
    CORE__NOT_NULL(stream);
    CORE_TRY(core__thread_cut(__func__));
    ended = stream->capture;
    if (!ended)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: this stream is not capturing",
                           stream->device->name);
    device = stream->device;
    CORE_TRY(core__device_check_process(device));
    core_stream_retain(stream); /* the guard may have the last reference */
    pthread_mutex_lock(&lock);
    keep = out_graph && !ended->invalid;
    pthread_mutex_unlock(&lock);
    status = end_impl(stream, keep ? &impl : NULL);
    pthread_mutex_lock(&lock);
    stream->capture = NULL;
    atomic_store(&stream->capture_id, 0);
    pthread_mutex_unlock(&lock);
    core__queue_capture(stream->queue, false);
    core__allocator_capture_end(stream);
    core_stream_guard_leave(&ended->guard);
    if (status == CORE_OK && out_graph && ended->invalid)
        status =
            core__error(CORE_ERROR_UNSUPPORTED,
                        "%s: the capture is invalid: %s cannot be part of it",
                        device->name, ended->reason);
    if (status == CORE_OK && keep)
        status = graph_make(stream, ended, impl, out_graph);
    sources_free(ended->sources);
    core__tensor_release(ended->counters);
    core_memory_pool_release(ended->pool);
    core__free(ended);
    core_stream_release(stream);
    return status;
}

bool core_stream_is_capturing(const core_stream *stream)
{
    return stream && stream->capture;
}

/* -------------------------------------------------------------- graphs -- */

/* Draws the numbers of an eager call: {offset, seed} for each source, to be
 * freed with core__free.  NULL: there is no source. */
static core_status draw(const core_graph *graph, uint64_t (**out_counters)[2])
{
    uint64_t(*counters)[2];
    size_t count = 0;

    *out_counters = NULL;
    for (const source *at = graph->sources; at; at = at->next)
        count++;
    if (count == 0)
        return CORE_OK;
    counters = core__alloc(count * sizeof *counters);
    if (!counters)
        return core__error_memory(count * sizeof *counters);
    *out_counters = counters;
    for (const source *at = graph->sources; at; at = at->next, counters++)
        core__generator_advance(at->generator, at->used, &(*counters)[1],
                                &(*counters)[0]);
    return CORE_OK;
}

/* With the queue's lock held. */
static core_status refill(const core_graph *graph, core_stream *stream,
                          uint64_t (*counters)[2])
{
    core_device *device = graph->device;

    for (const source *at = graph->sources; at; at = at->next, counters++) {
        core_memory memory = core__tensor_memory(at->counter);

        for (int i = 0; i < 2; i++) {
            CORE_TRY(device->memory.fill(device->impl, stream->impl, memory, 8,
                                         (*counters)[i], 8));
            memory.offset += 8;
        }
    }
    return CORE_OK;
}

/* The graph's memory is released in the order of the stream on which it was
 * captured.  If no event can be recorded, this waits for the launch. */
static core_status record_launch(core_graph *graph, core_stream *stream)
{
    core_status status = CORE_OK;

    if (stream == graph->stream)
        return CORE_OK;
    if (!graph->elsewhere)
        status = core__event_take(graph->device, &graph->elsewhere);
    if (status == CORE_OK)
        status = core_event_record(graph->elsewhere, stream);
    if (status == CORE_OK)
        return CORE_OK;
    core_error_clear();
    return core__stream_wait(stream, "a graph whose event failed");
}

/* Data errors of a graph's kernels may be reported by the stream on which they
 * were captured; callers that wait for the launch must get them.  If there is
 * no memory to record that, this waits and takes the error. */
static core_status take_error_now(core_graph *graph, core_stream *stream)
{
    core_error_clear();
    CORE_TRY(core__stream_wait(stream, "a graph, because memory ran out"));
    return core__queue_take_error(graph->stream->queue,
                                  "the launch of its graph");
}

/* Later work on its own stream runs after its launches on others. */
static void order_after_launches(core_graph *graph)
{
    core__error_record earlier;

    if (graph->elsewhere &&
        graph->generation == atomic_load(&graph->device->generation)) {
        core__error_save(&earlier);
        if (graph->stream->capture ||
            core_stream_wait_event(graph->stream, graph->elsewhere) != CORE_OK)
            (void)core_event_synchronize(graph->elsewhere);
        core__error_restore(&earlier);
    }
    core__event_return(graph->elsewhere);
}

/* What follows a launch that the plugin has accepted. */
static core_status launched(core_graph *graph, core_stream *stream, uint64_t id)
{
    core__error_record earlier;
    core_status status, inherited;

    core__error_save(&earlier);
    /* Before anything waits: blocking launches wait at once. */
    inherited = core__queue_add_awaited(stream->queue, graph->stream->queue);
    status = core__stream_record_launch(stream, NULL, id);
    if (status == CORE_OK)
        status = record_launch(graph, stream);
    if (status == CORE_OK && inherited != CORE_OK)
        status = take_error_now(graph, stream);
    return core__error_restore_on_success(&earlier, status);
}

core_status core_graph_launch(core_graph *graph, core_stream *stream)
{
    uint64_t(*counters)[2];
    core_device *device;
    core_status status;
    uint32_t errors;
    uint64_t id;
    void *work;

    CORE__NOT_NULL(graph);
    CORE__NOT_NULL(stream);
    CORE_TRY(core__thread_cut(__func__));
    device = graph->device;
    if (stream->device != device)
        return core__error(CORE_ERROR_DEVICE,
                           "core_graph_launch: the graph is of \"%s\", the "
                           "stream of \"%s\"; both must be of one device",
                           device->name, stream->device->name);
    if (graph->generation != atomic_load(&device->generation)) {
        status = core__device_stale_error(device);
        core__error_prefix("core_graph_launch");
        return status;
    }
    if (stream->capture)
        return core__capture_refuse(stream, "the launch of a graph");
    CORE_TRY(core__stream_check(stream));
    /* Before the lock, because generators have their own. */
    CORE_TRY(draw(graph, &counters));
    id = core__call_number();
    work = core__observe_work(stream, "graph", id, CORE__WORK_GRAPH);
    errors = core__error_sequence();
    pthread_mutex_lock(&stream->queue->lock);
    status = refill(graph, stream, counters);
    if (status == CORE_OK)
        status = device->interfaces.graph_capture.launch(
            device->impl, graph->impl, stream->impl);
    pthread_mutex_unlock(&stream->queue->lock);
    core__observe_work_end(work, stream);
    core__free(counters);
    CORE_TRY(core__stream_check_submitted(stream, status, errors));
    atomic_fetch_add_explicit(&device->graphs, 1, memory_order_relaxed);
    return launched(graph, stream, id);
}

uint64_t core_graph_size(const core_graph *graph)
{
    return graph ? graph->size : 0;
}

core_memory_pool *core_graph_pool(const core_graph *graph)
{
    return graph ? graph->pool : NULL;
}

core_graph *core_graph_retain(core_graph *graph)
{
    if (graph)
        atomic_fetch_add(&graph->references, 1);
    return graph;
}

void core_graph_release(core_graph *graph)
{
    core_device *device;

    if (!graph || atomic_fetch_sub(&graph->references, 1) != 1)
        return;
    device = graph->device;
    order_after_launches(graph);
    if (core__device_has_generation(device, graph->generation))
        device->interfaces.graph_capture.destroy(device->impl, graph->impl);
    sources_free(graph->sources);
    core_memory_pool_release(graph->pool);
    core_stream_release(graph->stream);
    core__free(graph);
    core_device_release(device);
}
