/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Devices used wrongly: closed while something of them lives, and given the
 * host's memory for their own.  Other misuse is tested beside what it misuses
 * (test_event, test_memory_streams, test_memory_blocks, test_engine_faults). */

#include "stream.h"

#include "base/thread.h"
#include "device/stream.h"

#include <libcore/capture.h>
#include <libcore/memory.h>

typedef struct made {
    core_stream *stream;
    core_event *event;
    core_tensor *tensor;
    core_memory_pool *pool;
    core_graph *graph;
} made;

enum { KINDS = 5 };

static made make(int kind)
{
    core_device *sim = device_of("sim");
    core_stream *capturing;
    int64_t n = 100;
    made m = {NULL};

    switch (kind) {
    case 0:
        OK(core_stream_create(sim, &m.stream));
        break;
    case 1:
        OK(core_event_create(sim, 0, &m.event));
        break;
    case 2:
        OK(core_full(&n, 1, core_float(1), CORE_F32, sim, &m.tensor));
        break;
    case 3:
        OK(core_memory_pool_create(sim, &m.pool));
        break;
    default:
        OK(core_stream_create(sim, &capturing));
        OK(core_capture_begin(capturing, NULL));
        OK(core_capture_end(capturing, &m.graph));
        core_stream_release(capturing);
    }
    return m;
}

static void unmake(made *m)
{
    core_stream_release(m->stream);
    core_event_release(m->event);
    core_tensor_release(m->tensor);
    core_memory_pool_release(m->pool);
    core_graph_release(m->graph);
}

/* What keeps a plugin from being unloaded (loader/open.c). */
static int64_t held(core_device *device)
{
    uint32_t slot = device->backend->slot;

    return (int64_t)atomic_load(&device->references) +
           core__thread_storages(slot);
}

/* There is no stream of a destroyed device: it is not destroyed before. */
START_TEST(a_device_stays_while_something_of_it_lives)
{
    core_device *sim = device_of("sim");
    int64_t before;

    before = held(sim);
    for (int kind = 0; kind < KINDS; kind++) {
        made m = make(kind);

        ck_assert_msg(held(sim) > before, "kind %d", kind);
        unmake(&m);
        OK(core_device_synchronize(sim));
        ck_assert_msg(held(sim) == before, "kind %d", kind);
    }
}
END_TEST

/* As from a plugin's function, or a program's kernel. */
static void host_pointer_for_memory(void)
{
    core_device *sim = device_of("sim:0");
    core_stream *bad = stream_of(sim), *good = stream_of(sim);
    double mine = 1, there = 2;
    core_memory wrong = {&mine, 0};
    core_status status;

    status = sim->memory.copy_to_host(sim->impl, bad->impl, &there, wrong,
                                      sizeof mine);
    if (status == CORE_OK)
        status = core_stream_synchronize(bad);
    ck_assert_int_ne(status, CORE_OK);
    ck_assert_msg(strstr(core_error_message(), "no memory of sim:0"), "%s",
                  core_error_message());
    status = sim->memory.fill(sim->impl, bad->impl, wrong, 8, 0, 8);
    if (status == CORE_OK)
        status = core_stream_synchronize(bad);
    ck_assert_int_ne(status, CORE_OK);
    ck_assert_double_eq(mine, 1);
    ck_assert_double_eq(there, 2);
    core_stream_release(bad);
    /* Others go on. */
    all_are(filled(sim, 10, 3), 3);
    OK(core_stream_synchronize(good));
    core_stream_release(good);
    all_are(filled(device_of("sim:1"), 10, 3), 3);
}

START_TEST(the_hosts_memory_is_no_handle_of_a_device)
{
    host_pointer_for_memory();
}
END_TEST

START_TEST(the_hosts_memory_is_no_address_of_a_device)
{
    setenv("LIBCORE_SIM_MEMORY", "flat", 1);
    host_pointer_for_memory();
}
END_TEST

SUITE("misuse", a_device_stays_while_something_of_it_lives,
      the_hosts_memory_is_no_handle_of_a_device,
      the_hosts_memory_is_no_address_of_a_device)
