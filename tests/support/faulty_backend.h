/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* faulty_backend.h: a backend that violates the contract where a test requests
 * it, and the interposers around it. */

#ifndef TESTS_SUPPORT_FAULTY_BACKEND_H
#define TESTS_SUPPORT_FAULTY_BACKEND_H

#include "loader.h"

#include "dispatch/dispatch.h"
#include "interpose/interposers.h"
#include "loader/loader.h"

#include <libcore/codegen.h>
#include <libcore/device.h>

#include <fenv.h>

/* --------------------------------------------- a backend that can do wrong -- */

static struct {
    core_status status; /* of the following calls */
    bool silent, rounds, twice, odd, null;
    int frees, copies, launches, destroys;
    int produces;      /* how often launch_after calls its function */
    void (*act)(void); /* called by each function */
    void (*end)(void *);
    void *context;
} behaviour;

static char block[4096] __attribute__((aligned(64)));
static char stream_object, event_object;

static core_status respond(void)
{
    if (behaviour.rounds)
        fesetround(FE_UPWARD);
    if (behaviour.act)
        behaviour.act();
    if (behaviour.status != CORE_OK && !behaviour.silent)
        return core__error(behaviour.status, "as the test requests");
    return behaviour.status;
}

static core_status enumerate(void *backend, uint32_t *count, core_string *why)
{
    (void)backend;
    *count = behaviour.odd ? 0 : 1;
    *why = (core_string){0};
    return respond();
}

static core_status device_open(void *backend, uint32_t index, void **out)
{
    (void)index;
    *out = backend;
    return respond();
}

static void device_close(void *backend, void *device)
{
    ck_assert_ptr_eq(backend, device);
}

static core_status properties(void *device, core_device_properties *out)
{
    (void)device;
    out->flags = CORE_DEVICE_FLAT;
    out->base_alignment = behaviour.odd ? 48 : 64;
    out->granularity = 1;
    return CORE_OK;
}

static core_status alloc(void *device, uint64_t size, core_memory *out)
{
    static int turn;

    (void)device;
    (void)size;
    *out =
        (core_memory){block + (behaviour.twice ? 0 : 1024 * (turn++ % 4)), 0};
    if (behaviour.odd)
        out->offset = 4;
    if (behaviour.null)
        out->handle = NULL;
    return respond();
}

static void release(void *device, core_memory memory, uint64_t size)
{
    (void)device;
    (void)memory;
    (void)size;
    behaviour.frees++;
}

static core_status from_host(void *device, void *stream, core_memory to,
                             const void *from, uint64_t size)
{
    (void)device;
    (void)stream;
    (void)to;
    (void)from;
    (void)size;
    behaviour.copies++;
    return respond();
}

static core_status to_host(void *device, void *stream, void *to,
                           core_memory from, uint64_t size)
{
    (void)device;
    (void)stream;
    (void)to;
    (void)from;
    (void)size;
    behaviour.copies++;
    return respond();
}

static core_status copy(void *device, void *stream, core_memory to,
                        core_memory from, uint64_t size)
{
    (void)device;
    (void)stream;
    (void)to;
    (void)from;
    (void)size;
    behaviour.copies++;
    return respond();
}

static core_status fill(void *device, void *stream, core_memory to,
                        uint64_t size, uint64_t pattern, uint32_t pattern_size)
{
    (void)device;
    (void)stream;
    (void)to;
    (void)size;
    (void)pattern;
    (void)pattern_size;
    return respond();
}

static core_status create_stream(void *device, uint32_t flags, void **out)
{
    (void)device;
    (void)flags;
    *out = behaviour.odd ? NULL : &stream_object;
    return respond();
}

static core_status create_event(void *device, uint32_t flags, void **out)
{
    (void)device;
    (void)flags;
    *out = &event_object;
    return respond();
}

static void destroy(void *device, void *object)
{
    (void)device;
    (void)object;
    behaviour.destroys++;
}

static core_status of_one(void *device, void *object)
{
    (void)device;
    (void)object;
    return respond();
}

static core_status of_two(void *device, void *object, void *other)
{
    (void)device;
    (void)object;
    (void)other;
    return respond();
}

static core_status enqueue(void *device, void *stream,
                           void (*function)(void *context), void *context,
                           void (*drop)(void *context))
{
    (void)device;
    (void)stream;
    (void)drop;
    behaviour.end = function;
    behaviour.context = context;
    return respond();
}

static const core_host_callback_interface callbacks = {sizeof callbacks, 0,
                                                       enqueue};

static core_status capture_end(void *device, void *stream, void **out)
{
    (void)device;
    (void)stream;
    *out = block;
    return respond();
}

static const core_graph_capture_interface captures = {
    sizeof captures, 0, of_one, capture_end, of_two, destroy};

static core_status build_kernel(void *device, const core_loop_program *program,
                                const core_loop_hints *hints, void **out)
{
    (void)device;
    (void)program;
    (void)hints;
    *out = block;
    return respond();
}

static core_status launch_after(void *device, void *kernel,
                                const core_loop_launch *launch, uint32_t result,
                                core_status (*produce)(void *context),
                                void *context)
{
    core_status status = CORE_OK;

    (void)device;
    (void)kernel;
    (void)launch;
    (void)result;
    for (int i = 0; i < behaviour.produces; i++)
        status = produce(context);
    return behaviour.silent ? CORE_OK : status;
}

static const core_codegen_interface codegen = {.struct_size = sizeof codegen,
                                               .build = build_kernel,
                                               .destroy = destroy,
                                               .launch_after = launch_after};

static const void *get_interface(void *backend, core_string name,
                                 uint32_t version)
{
    (void)backend;
    (void)version;
    if (name.size == 18 && memcmp(name.data, "core.host_callback", 18) == 0)
        return &callbacks;
    if (name.size == 18 && memcmp(name.data, "core.graph_capture", 18) == 0)
        return &captures;
    if (name.size == 12 && memcmp(name.data, "core.codegen", 12) == 0)
        return &codegen;
    return name.size == 7 ? block : NULL; /* "private" */
}

static const core_memory_table memory = {.struct_size = sizeof memory,
                                         .alloc = alloc,
                                         .free = release,
                                         .copy_from_host = from_host,
                                         .copy_to_host = to_host,
                                         .copy = copy,
                                         .fill = fill};
static const core_stream_table streams = {
    sizeof streams, 0, create_stream, destroy, of_one, of_one, of_two};
static const core_event_table events = {
    sizeof events, 0, create_event, destroy, of_two, of_one, of_one};
static core_backend backend = {.struct_size = sizeof backend,
                               .device_type = {"faulty", 6},
                               .user = &backend,
                               .enumerate = enumerate,
                               .device_open = device_open,
                               .device_close = device_close,
                               .device_properties = properties,
                               .get_interface = get_interface,
                               .memory = &memory,
                               .streams = &streams,
                               .events = &events};

/* ---------------------------------------------------------------- around it -- */

static core__interposers *interposers;
static const core_backend *wrapped;
static core_host host;
static void *device, *stream;
static char lines[64][512];
static int nlines;

static void sink(void *context, uint32_t level, const char *component,
                 const char *text)
{
    (void)context;
    (void)level;
    if (nlines < 64)
        snprintf(lines[nlines++], sizeof *lines, "%s: %s", component, text);
}

static void begin(const char *which, const char *faults)
{
    core_string reason;
    uint32_t count;

    memset(&behaviour, 0, sizeof behaviour);
    core_log_set_sink(sink, NULL, CORE_LOG_WARNING);
    ck_assert_int_eq(core_setting_set("LIBCORE_INTERPOSERS", which), CORE_OK);
    ck_assert_int_eq(core_setting_set("LIBCORE_FAULT", faults), CORE_OK);
    ck_assert_int_eq(core__interposers_begin("faulty", &interposers), CORE_OK);
    core__host_fill(&host, CORE_ABI_MINOR);
    core__interposers_host(interposers, &host);
    ck_assert_int_eq(core__interposers_backend(interposers, &backend, &wrapped),
                     CORE_OK);
    ck_assert_int_eq(wrapped->enumerate(wrapped->user, &count, &reason),
                     CORE_OK);
    ck_assert_int_eq(wrapped->device_open(wrapped->user, 0, &device), CORE_OK);
    ck_assert_int_eq(wrapped->streams->create(device, 0, &stream), CORE_OK);
    nlines = 0;
}

static void validate(void)
{
    begin("validate", NULL);
}

static void end(void)
{
    core__interposers_end(interposers);
    core_log_set_sink(NULL, NULL, CORE_LOG_ERROR);
}

/* There were this many violations so far, and the newest has this text. */
static void reported(uint64_t count, const char *says)
{
    const char *breach;

    ck_assert_uint_eq(core__interposers_violations(interposers, &breach),
                      count);
    ck_assert_int_ge(nlines, 1);
    assert_contains(lines[nlines - 1], says);
    assert_contains(breach, "faulty: ");
}

#endif
