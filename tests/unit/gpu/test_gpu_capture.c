/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Graphs on the emulated GPU: errors of their kernels are stored in the record
 * of the stream on which the graph was captured, on whichever stream it
 * runs. */

#include "support/gpu_emulated.h"

#include "base/memory.h"

#include <libcore/capture.h>
#include <libcore/settings.h>
#include <libcore/stream.h>

typedef struct scene {
    core_stream *captured, *other;
    core_tensor *place;
    core_graph *graph;
} scene;

/* A graph that looks up the index at `place`; 77 is out of range. */
static scene make(void)
{
    core_tensor *from = moved(CALL(ones, &(int64_t){10}, 1, CORE_F32, NULL),
                              gpuemu()),
                *out;
    core_tensor *bad = moved(
        CALL(full, &(int64_t){3}, 1, core_int(77), CORE_I64, NULL), gpuemu());
    scene s = {0};

    s.place = moved(CALL(zeros, &(int64_t){3}, 1, CORE_I64, NULL), gpuemu());
    OK(core_stream_create(gpuemu(), &s.captured));
    OK(core_stream_create(gpuemu(), &s.other));
    OK(core_device_synchronize(gpuemu()));
    OK(core_stream_set_current(s.captured));
    CALL(index_select, from, 0, s.place); /* loads the image */
    OK(core_capture_begin(s.captured, NULL));
    OK(core_index_select(from, 0, s.place, &out));
    keep(out);
    OK(core_capture_end(s.captured, &s.graph));
    OK(core_graph_launch(s.graph, s.other));
    OK(core_stream_synchronize(s.other));
    OK(core_copy_(s.place, bad, false));
    OK(core_stream_synchronize(s.captured));
    return s;
}

static void clear(scene *s)
{
    core_stream *first;

    core_graph_release(s->graph);
    OK(core_stream_default(gpuemu(), &first));
    OK(core_stream_set_current(first));
    core_stream_release(s->captured);
    core_stream_release(s->other);
}

START_TEST(bad_data_is_reported_where_the_graph_was_captured)
{
    scene s = make();

    OK(core_graph_launch(s.graph, s.other));
    FAILS(core_stream_synchronize(s.other), CORE_ERROR_INDEX, "77");
    OK(core_stream_synchronize(s.other)); /* once */
    OK(core_stream_synchronize(s.captured));
    OK(core_graph_launch(s.graph, s.captured));
    FAILS(core_stream_synchronize(s.captured), CORE_ERROR_INDEX, "77");
    clear(&s);
    drop_all();
}
END_TEST

START_TEST(bad_data_of_a_graph_is_reported_by_a_wait)
{
    scene s = make();
    core_event *event;
    core_stream *third;

    OK(core_stream_create(gpuemu(), &third));
    OK(core_event_create(gpuemu(), 0, &event));
    OK(core_graph_launch(s.graph, s.other));
    OK(core_event_record(event, s.other));
    OK(core_stream_wait_event(third, event));
    FAILS(core_stream_synchronize(third), CORE_ERROR_INDEX, "77");
    core_event_release(event);
    core_stream_release(third);
    clear(&s);
    drop_all();
}
END_TEST

START_TEST(with_blocking_the_launch_fails)
{
    scene s = make();

    OK(core_setting_set("LIBCORE_BLOCKING", "1"));
    FAILS(core_graph_launch(s.graph, s.other), CORE_ERROR_INDEX, "77");
    OK(core_setting_set("LIBCORE_BLOCKING", NULL));
    clear(&s);
    drop_all();
}
END_TEST

/* Whatever cannot be allocated, either the error is reported once or nothing
 * was launched. */
START_TEST(bad_data_is_reported_once_without_memory)
{
    scene s = make();
    int at_once = 0, refused = 0;

    for (int64_t allowed = 0; allowed < 12; allowed++) {
        core_status launched, waited;
        core_stream *fresh;

        OK(core_stream_create(gpuemu(), &fresh));
        core__alloc_fault_set(allowed, false);
        launched = core_graph_launch(s.graph, fresh);
        core__alloc_fault_set(-1, false);
        waited = core_stream_synchronize(fresh);
        at_once += launched == CORE_ERROR_INDEX;
        refused += launched == CORE_ERROR_OUT_OF_MEMORY;
        if (launched == CORE_OK)
            ck_assert_int_eq(waited, CORE_ERROR_INDEX);
        else
            ck_assert_int_eq(waited, CORE_OK);
        OK(core_stream_synchronize(s.captured));
        core_stream_release(fresh);
    }
    ck_assert_int_gt(at_once, 0);
    ck_assert_int_lt(at_once + refused, 12);
    clear(&s);
    drop_all();
}
END_TEST

EMULATED_SUITE("gpu/gpu_capture",
               bad_data_is_reported_where_the_graph_was_captured,
               bad_data_of_a_graph_is_reported_by_a_wait,
               with_blocking_the_launch_fails,
               bad_data_is_reported_once_without_memory)
