/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Memory of graphs that run on streams other than the one they were captured
 * on. */

#define SUITE_FORKS true

#include "support/stream.h"

#include "device/stream.h"

#include "../../../plugins/sim/sim_control.h"

#include <libcore/capture.h>
#include <libcore/memory.h>

static core_device *sim;
static core_stream *maker, *other;

/* Enqueues enough slow calls to keep the other stream busy for a while. */
static void occupy_other(void)
{
    core_tensor *busy = filled(sim, 10, 1);
    core_stream *standard;
    core_stream_guard guard;

    OK(core_stream_default(sim, &standard));
    OK(core_stream_wait_stream(other, standard));
    OK(core_stream_guard_enter(other, &guard));
    for (int i = 0; i < 100; i++)
        OK(core_fill_(busy, core_float(i)));
    core_stream_guard_leave(&guard);
    OK(core_tensor_record_stream(busy, other));
}

static void begin(void)
{
    const void *table;

    setenv("LIBCORE_SIM_CHECK", "1", 1);
    sim = device_of("sim");
    OK(core_device_interface(sim, "sim.control", 1, &table));
    OK(((const sim_control *)table)->delay(7, 1000));
    maker = stream_of(sim);
    other = stream_of(sim);
}

/* out = 4 * in, with an intermediate result in the graph's own memory. */
static core_graph *quadruple(core_tensor *in, core_tensor **out)
{
    core_graph *graph;
    core_tensor *twice;

    OK(core_capture_begin(maker, NULL));
    OK(core_add(in, in, core_int(1), &twice));
    OK(core_add(twice, twice, core_int(1), out));
    core_tensor_release(twice);
    OK(core_capture_end(maker, &graph));
    return graph;
}

/* Until `other` has reached the launch, none of the graph's memory may be
 * freed, and later work on the graph's own stream runs after the launch. */
START_TEST(graph_may_be_released_while_it_runs_on_another_stream)
{
    core_tensor *in, *out, *next;
    core_stream_guard guard;
    core_graph *graph;

    begin();
    OK(core_stream_guard_enter(maker, &guard));
    in = filled(sim, 1000, 3);
    core_stream_guard_leave(&guard);
    graph = quadruple(in, &out);
    occupy_other();
    OK(core_stream_wait_stream(other, maker));
    OK(core_graph_launch(graph, other));
    OK(core_tensor_record_stream(in, other));
    core_graph_release(graph);
    OK(core_memory_empty_cache(sim));
    OK(core_stream_guard_enter(maker, &guard));
    next = filled(sim, 1000, 5);
    all_are(out, 12);
    all_are(next, 5);
    core_stream_guard_leave(&guard);
    core_tensor_release(out);
    OK(core_device_synchronize(sim));
    core_stream_release(maker);
    core_stream_release(other);
}
END_TEST

/* On its own stream a launch needs no wait, and no event is created. */
START_TEST(launches_on_the_capture_stream_create_no_event)
{
    core_tensor *in, *out;
    core_stream_guard guard;
    core_graph *graph;
    uint64_t events;

    begin();
    OK(core_stream_guard_enter(maker, &guard));
    in = filled(sim, 10, 3);
    graph = quadruple(in, &out);
    events = core_device_events_created(sim);
    for (int i = 0; i < 5; i++)
        OK(core_graph_launch(graph, maker));
    core_graph_release(graph);
    all_are(out, 12);
    ck_assert_uint_eq(core_device_events_created(sim), events);
    core_stream_guard_leave(&guard);
    core_tensor_release(out);
    core_stream_release(maker);
    core_stream_release(other);
}
END_TEST

/* If no event can be created, a launch on another stream waits on the host
 * instead of failing. */
static void launch_without_an_event(uint32_t kind)
{
    sim_counters counters = {.struct_size = sizeof counters};
    const sim_control *control;
    core_tensor *in, *out;
    core_stream_guard guard;
    core_graph *graph;
    const void *table;

    begin();
    OK(core_device_interface(sim, "sim.control", 1, &table));
    control = table;
    OK(core_stream_guard_enter(maker, &guard));
    in = filled(sim, 1000, 3);
    core_stream_guard_leave(&guard);
    graph = quadruple(in, &out);
    OK(core_stream_wait_stream(other, maker));
    occupy_other();
    core__event_stock_empty(sim);
    OK(control->fault(0, kind, 1));
    OK(core_graph_launch(graph, other));
    OK(control->counters(0, &counters));
    ck_assert_uint_eq(counters.faults, 1);
    OK(core_stream_query(other));
    core_graph_release(graph);
    OK(core_stream_guard_enter(maker, &guard));
    all_are(out, 12);
    core_stream_guard_leave(&guard);
    core_tensor_release(out);
    OK(core_device_synchronize(sim));
    core_stream_release(maker);
    core_stream_release(other);
}

START_TEST(launch_on_another_stream_waits_if_no_event_can_be_created)
{
    launch_without_an_event(SIM_FAULT_EVENT);
}
END_TEST

START_TEST(launch_on_another_stream_waits_if_no_event_can_be_recorded)
{
    launch_without_an_event(SIM_FAULT_RECORD);
}
END_TEST

SUITE("capture/capture_memory",
      graph_may_be_released_while_it_runs_on_another_stream,
      launch_on_another_stream_waits_if_no_event_can_be_created,
      launch_on_another_stream_waits_if_no_event_can_be_recorded,
      launches_on_the_capture_stream_create_no_event)
