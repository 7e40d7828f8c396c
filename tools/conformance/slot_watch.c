/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "slot_watch.h"

#include <libcore/core.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

const char *const slot_names[SLOTS] = {
    [SLOT_NONE] = "",
    [SLOT_CONSTRUCTORS] = "dlopen (the constructors of the file)",
    [SLOT_ENTRY] = CORE_PLUGIN_ENTRY,
    [SLOT_INIT] = "init",
    [SLOT_ENUMERATE] = "enumerate",
    [SLOT_DEVICE_OPEN] = "device_open",
    [SLOT_DEVICE_PROPERTIES] = "device_properties",
    [SLOT_LOAD] = "core_plugin_load (constructors, entry or init)",
    [SLOT_FIND] = "core_device_find (enumerate, device_open, properties, "
                  "information or status of the device)",
    [SLOT_ENTRY_OFFERED] = CORE_PLUGIN_ENTRY,
    [SLOT_INIT_OLD_HOST] = "init with the host table of an older minor",
    [SLOT_INIT_REFUSED] = "init, whose backend the host refused",
    [SLOT_DEVICE_CLOSE] = "device_close",
    [SLOT_SHUTDOWN] = "shutdown",
    [SLOT_ALLOC] = "alloc",
    [SLOT_FREE] = "free",
    [SLOT_MEMORY_INFO] = "info of the memory",
    [SLOT_COPY_FROM_HOST] = "copy_from_host",
    [SLOT_COPY_TO_HOST] = "copy_to_host",
    [SLOT_COPY] = "copy",
    [SLOT_FILL] = "fill",
    [SLOT_STREAM_CREATE] = "create of a stream",
    [SLOT_STREAM_DESTROY] = "destroy of a stream",
    [SLOT_STREAM_QUERY] = "query of a stream",
    [SLOT_STREAM_SYNCHRONIZE] = "synchronize of a stream",
    [SLOT_WAIT_EVENT] = "wait_event",
    [SLOT_EVENT_CREATE] = "create of an event",
    [SLOT_EVENT_DESTROY] = "destroy of an event",
    [SLOT_RECORD] = "record",
    [SLOT_EVENT_QUERY] = "query of an event",
    [SLOT_EVENT_SYNCHRONIZE] = "synchronize of an event",
    [SLOT_INTERFACE] = "get_interface",
    [SLOT_IPC_CLOSE] = "close of core.ipc, of memory whose exporting process "
                       "has ended",
    [SLOT_OPERATOR] = "an operator (supports, prepare or launch of its kernel)",
    [SLOT_READ] = "core_tensor_read (copy_to_host and the wait for what the "
                  "stream does before)",
};

static slot_watch not_shared;
static slot_watch *watch = &not_shared;

static int64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

void slot_watch_share(void)
{
    void *shared = mmap(NULL, sizeof *watch, PROT_READ | PROT_WRITE, MAP_SHARED,
                        SLOT_WATCH_FILE, 0);

    if (shared != MAP_FAILED)
        watch = shared;
}

void slot_watch_unshare(void)
{
    watch = &not_shared;
}

void slot_watch_restart(void)
{
    for (int i = 0; i < SLOTS; i++) {
        atomic_store_explicit(&watch->calls[i], 0, memory_order_relaxed);
        atomic_store_explicit(&watch->spent[i], 0, memory_order_relaxed);
    }
    watch->last = SLOT_NONE;
    watch->call.name[0] = 0;
}

gate_measure *slot_watch_gate(void)
{
    return &watch->gate;
}

void slot_watch_opened(void)
{
    atomic_store(&watch->opened, 1);
}

void slot_watch_set_flat(bool flat)
{
    atomic_store(&watch->flat, flat);
}

void slot_watch_call(const watched_call *call)
{
    watch->call = *call;
}

slot slot_enter(slot which)
{
    slot before =
        (slot)atomic_load_explicit(&watch->current, memory_order_relaxed);

    atomic_store_explicit(&watch->entered, now(), memory_order_relaxed);
    atomic_store_explicit(&watch->current, which, memory_order_relaxed);
    atomic_fetch_add_explicit(&watch->calls[which], 1, memory_order_relaxed);
    return before;
}

void slot_leave(slot which, slot before)
{
    int64_t entered =
        atomic_load_explicit(&watch->entered, memory_order_relaxed);

    atomic_fetch_add_explicit(&watch->spent[which], now() - entered,
                              memory_order_relaxed);
    atomic_store_explicit(&watch->last, which, memory_order_relaxed);
    atomic_store_explicit(&watch->current, before, memory_order_relaxed);
}

double slot_seconds(slot which)
{
    return (double)atomic_load_explicit(&watch->spent[which],
                                        memory_order_relaxed) *
           1e-9;
}

/* ------------------------------------------------------------- tables -- */

static core_memory_table memory_of;
static core_stream_table streams_of;
static core_event_table events_of;
static core_backend backend_of;

/* Defines a slot that calls the plugin's. */
#define WATCHED(table, name, which, parameters, arguments) \
    static core_status watched_##table##_##name parameters \
    {                                                      \
        slot before = slot_enter(which);                   \
        core_status status = table##_of.name arguments;    \
                                                           \
        slot_leave(which, before);                         \
        return status;                                     \
    }
#define WATCHED_VOID(table, name, which, parameters, arguments) \
    static void watched_##table##_##name parameters             \
    {                                                           \
        slot before = slot_enter(which);                        \
                                                                \
        table##_of.name arguments;                              \
        slot_leave(which, before);                              \
    }

WATCHED(memory, alloc, SLOT_ALLOC,
        (void *device, uint64_t size, core_memory *out_memory),
        (device, size, out_memory))
WATCHED_VOID(memory, free, SLOT_FREE,
             (void *device, core_memory memory, uint64_t size),
             (device, memory, size))
WATCHED(memory, info, SLOT_MEMORY_INFO,
        (void *device, uint64_t *out_free, uint64_t *out_total),
        (device, out_free, out_total))
WATCHED(memory, copy_from_host, SLOT_COPY_FROM_HOST,
        (void *device, void *stream, core_memory to, const void *from,
         uint64_t size),
        (device, stream, to, from, size))
WATCHED(memory, copy_to_host, SLOT_COPY_TO_HOST,
        (void *device, void *stream, void *to, core_memory from, uint64_t size),
        (device, stream, to, from, size))
WATCHED(memory, copy, SLOT_COPY,
        (void *device, void *stream, core_memory to, core_memory from,
         uint64_t size),
        (device, stream, to, from, size))
WATCHED(memory, fill, SLOT_FILL,
        (void *device, void *stream, core_memory to, uint64_t size,
         uint64_t pattern, uint32_t pattern_size),
        (device, stream, to, size, pattern, pattern_size))
WATCHED(streams, create, SLOT_STREAM_CREATE,
        (void *device, uint32_t flags, void **out_stream),
        (device, flags, out_stream))
WATCHED_VOID(streams, destroy, SLOT_STREAM_DESTROY,
             (void *device, void *stream), (device, stream))
WATCHED(streams, query, SLOT_STREAM_QUERY, (void *device, void *stream),
        (device, stream))
WATCHED(streams, synchronize, SLOT_STREAM_SYNCHRONIZE,
        (void *device, void *stream), (device, stream))
WATCHED(streams, wait_event, SLOT_WAIT_EVENT,
        (void *device, void *stream, void *event), (device, stream, event))
WATCHED(events, create, SLOT_EVENT_CREATE,
        (void *device, uint32_t flags, void **out_event),
        (device, flags, out_event))
WATCHED_VOID(events, destroy, SLOT_EVENT_DESTROY, (void *device, void *event),
             (device, event))
WATCHED(events, record, SLOT_RECORD, (void *device, void *event, void *stream),
        (device, event, stream))
WATCHED(events, query, SLOT_EVENT_QUERY, (void *device, void *event),
        (device, event))
WATCHED(events, synchronize, SLOT_EVENT_SYNCHRONIZE,
        (void *device, void *event), (device, event))
WATCHED(backend, enumerate, SLOT_ENUMERATE,
        (void *backend, uint32_t *out_count, core_string *out_reason),
        (backend, out_count, out_reason))
WATCHED(backend, device_open, SLOT_DEVICE_OPEN,
        (void *backend, uint32_t index, void **out_device),
        (backend, index, out_device))
WATCHED_VOID(backend, device_close, SLOT_DEVICE_CLOSE,
             (void *backend, void *device), (backend, device))
WATCHED(backend, device_properties, SLOT_DEVICE_PROPERTIES,
        (void *device, core_device_properties *out), (device, out))

/* Replaces a slot that the plugin has. */
#define WATCH(table, pointer, name)                     \
    do {                                                \
        if ((pointer)->name)                            \
            (pointer)->name = watched_##table##_##name; \
    } while (0)

void slot_watch_tables(core_memory_table *memory, core_stream_table *streams,
                       core_event_table *events)
{
    memory_of = *memory;
    streams_of = *streams;
    events_of = *events;
    WATCH(memory, memory, alloc);
    WATCH(memory, memory, free);
    WATCH(memory, memory, info);
    WATCH(memory, memory, copy_from_host);
    WATCH(memory, memory, copy_to_host);
    WATCH(memory, memory, copy);
    WATCH(memory, memory, fill);
    WATCH(streams, streams, create);
    WATCH(streams, streams, destroy);
    WATCH(streams, streams, query);
    WATCH(streams, streams, synchronize);
    WATCH(streams, streams, wait_event);
    WATCH(events, events, create);
    WATCH(events, events, destroy);
    WATCH(events, events, record);
    WATCH(events, events, query);
    WATCH(events, events, synchronize);
}

void slot_watch_backend(core_backend *backend)
{
    backend_of = *backend;
    WATCH(backend, backend, enumerate);
    WATCH(backend, backend, device_open);
    WATCH(backend, backend, device_close);
    WATCH(backend, backend, device_properties);
}

/* -------------------------------------------------------- the runner's -- */

/* The slot in which most of the time was spent. */
static slot longest(const slot_watch *self, int64_t *out_spent)
{
    slot found = SLOT_NONE;

    *out_spent = 0;
    for (int i = 1; i < SLOTS; i++) {
        int64_t spent = self->spent[i];

        if (self->current == (uint32_t)i)
            spent += now() - self->entered;
        if (spent > *out_spent) {
            *out_spent = spent;
            found = (slot)i;
        }
    }
    return found;
}

void slot_watch_describe(const slot_watch *self, double timed_out, char *text,
                         size_t capacity)
{
    uint32_t current = self->current;
    int64_t spent;
    slot most;

    *text = 0;
    if (current >= SLOTS)
        return;
    if (timed_out <= 0) {
        /* A kernel crashes on its stream whatever the caller does. */
        if (current != SLOT_NONE && current < SLOT_OPERATOR)
            snprintf(text, capacity, " during %s", slot_names[current]);
        return;
    }
    most = longest(self, &spent);
    if ((double)spent * 1e-9 > timed_out / 10)
        snprintf(text, capacity, ", of which %.1f in %llu call%s of %s%s",
                 (double)spent * 1e-9, (unsigned long long)self->calls[most],
                 self->calls[most] == 1 ? "" : "s", slot_names[most],
                 most == (slot)current ? ", which has not returned" : "");
    else if (current != SLOT_NONE)
        snprintf(text, capacity, "; %s has not returned", slot_names[current]);
}

void slot_watch_describe_last(const slot_watch *self, bool opening, char *text,
                              size_t capacity)
{
    uint32_t last = self->last;

    *text = 0;
    if (last == SLOT_NONE || last >= SLOT_OPERATOR)
        return;
    if (opening)
        snprintf(text, capacity,
                 " after %s has returned: what it has stored or returned is "
                 "not valid, or a thread of the plugin crashed",
                 slot_names[last]);
    else
        snprintf(text, capacity,
                 "; of the functions that the suite watches, which are not "
                 "those of optional interfaces, %s returned last",
                 slot_names[last]);
}

/* Appends text; returns the length, at most that of a full buffer. */
static size_t append(char *text, size_t capacity, size_t used,
                     const char *format, ...)
{
    va_list arguments;
    int size;

    va_start(arguments, format);
    size = vsnprintf(text + used, capacity - used, format, arguments);
    va_end(arguments);
    used += size > 0 ? (size_t)size : 0;
    return used < capacity ? used : capacity - 1;
}

static size_t append_numbers(char *text, size_t capacity, size_t used,
                             const char *before, const int64_t *numbers,
                             uint32_t count)
{
    used = append(text, capacity, used, "%s[", before);
    for (uint32_t d = 0; d < count && d < WATCHED_NDIM; d++)
        used = append(text, capacity, used, "%s%lld", d ? ", " : "",
                      (long long)numbers[d]);
    return append(text, capacity, used, "%s]",
                  count > WATCHED_NDIM ? ", ..." : "");
}

/* Tests whether the strides are not those of row-major order without gaps. */
static bool is_strided(const watched_tensor *one)
{
    int64_t step = 1;
    bool differs = false;

    for (uint32_t d = one->ndim; one->ndim <= WATCHED_NDIM && d-- > 0;) {
        differs |= one->sizes[d] != 1 && one->strides[d] != step;
        step *= one->sizes[d] ? one->sizes[d] : 1;
    }
    return differs;
}

void slot_watch_describe_call(const slot_watch *self, char *text,
                              size_t capacity)
{
    watched_call call = self->call;
    size_t used = 0;

    *text = 0;
    call.name[WATCHED_NAME - 1] = 0;
    if (!call.name[0])
        return;
    used = append(text, capacity, used, "%s(", call.name);
    for (uint32_t i = 0; i < call.tensors && i < WATCHED_TENSORS; i++) {
        const watched_tensor *one = &call.tensor[i];

        used = append(text, capacity, used, "%s%s ", i ? ", " : "",
                      core_dtype_name(one->dtype));
        used = append_numbers(text, capacity, used, "", one->sizes, one->ndim);
        if (is_strided(one))
            used = append_numbers(text, capacity, used, " with strides ",
                                  one->strides, one->ndim);
    }
    append(text, capacity, used, "%s)",
           call.tensors > WATCHED_TENSORS ? ", ..." : "");
}
