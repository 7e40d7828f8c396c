/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* A device that caches freed memory itself (core.allocator): the core requests
 * every block from it and frees it at once, in stream order. */

#define SUITE_SECONDS 30

#define SUITE_FORKS true

#include "support/memory.h"

#include <libcore/capture.h>

#include <sched.h>
#include <stdlib.h>
#include <string.h>

static void open_own(const char *bytes)
{
    setenv("LIBCORE_SIM_ALLOCATOR", "1", 1);
    setenv("LIBCORE_SIM_CHECK", "1", 1);
    if (bytes)
        setenv("LIBCORE_SIM_BYTES", bytes, 1);
    open_sim("");
}

static _Atomic bool opened;

static void until_opened(void *context)
{
    (void)context;
    while (!atomic_load(&opened))
        sched_yield();
}

static core_tensor *vector(int64_t n)
{
    core_tensor *made;

    OK(core_empty(&n, 1, CORE_F32, sim, -1, &made));
    return made;
}

/* The stream is busy and nothing waits for it: the memory returns to the device
 * as soon as the tensor is released, and the device does not reuse it before
 * the stream is done. */
START_TEST(memory_is_returned_while_its_stream_is_busy)
{
    const float ones[4] = {1, 1, 1, 1};
    core_stream *s, *other;
    core_stream_guard guard;
    core_tensor *t, *copy, *more;
    int64_t four = 4;
    float got[4];

    open_own(NULL);
    s = stream();
    other = stream();
    OK(core_stream_guard_enter(s, &guard));
    OK(core_tensor_from_data(ones, CORE_F32, &four, 1, sim, &t));
    OK(core_stream_synchronize(s));
    OK(core_stream_callback(s, until_opened, NULL, NULL));
    OK(core_neg(t, &copy));
    ck_assert_uint_eq(stats().segments[0].current, 2);
    core_tensor_release(t);
    ck_assert_uint_eq(stats().segments[0].current, 1);
    core_stream_guard_leave(&guard);
    OK(core_stream_guard_enter(other, &guard));
    OK(core_full(&four, 1, core_float(7), CORE_F32, sim, &more));
    OK(core_stream_synchronize(other));
    core_stream_guard_leave(&guard);
    atomic_store(&opened, true);
    OK(core_stream_synchronize(s));
    OK(core_tensor_read(copy, got, sizeof got));
    ck_assert(got[0] == -1 && got[3] == -1);
    core_tensor_release(more);
    core_tensor_release(copy);
    core_stream_release(s);
    core_stream_release(other);
    OK(core_device_synchronize(sim));
    all_is_back();
}
END_TEST

/* The core waits for uses by another stream, as always. */
START_TEST(memory_in_use_by_another_stream_is_kept)
{
    core_stream *other;
    core_tensor *t;

    open_own(NULL);
    other = stream();
    t = vector(1000);
    OK(core_stream_callback(other, until_opened, NULL, NULL));
    OK(core_tensor_record_stream(t, other));
    core_tensor_release(t);
    ck_assert_uint_eq(stats().segments[0].current, 1);
    atomic_store(&opened, true);
    OK(core_stream_synchronize(other));
    OK(core_memory_empty_cache(sim));
    ck_assert_uint_eq(stats().segments[0].current, 0);
    core_stream_release(other);
}
END_TEST

START_TEST(more_memory_than_the_device_has_is_allocated_in_turn)
{
    core_memory_stats s;

    open_own("4194304");
    for (int i = 0; i < 40; i++) {
        core_tensor *t = vector(1 << 18), *u;

        OK(core_neg(t, &u));
        core_tensor_release(t);
        core_tensor_release(u);
    }
    s = stats();
    ck_assert_uint_eq(s.segments[0].current, 0);
    ck_assert_uint_eq(s.out_of_memories, 0);
    {
        int64_t n = 1 << 21;
        core_tensor *t;

        ck_assert_int_eq(core_empty(&n, 1, CORE_F32, sim, -1, &t),
                         CORE_ERROR_OUT_OF_MEMORY);
    }
}
END_TEST

START_TEST(captures_keep_their_memory)
{
    core_stream *s;
    core_stream_guard guard;
    core_graph *graph;
    core_tensor *in, *half, *out;
    const float ones[4] = {1, 1, 1, 1};
    int64_t four = 4;
    float got[4];

    open_own(NULL);
    s = stream();
    OK(core_stream_guard_enter(s, &guard));
    OK(core_tensor_from_data(ones, CORE_F32, &four, 1, sim, &in));
    OK(core_capture_begin(s, NULL));
    OK(core_neg(in, &half));
    OK(core_neg(half, &out));
    core_tensor_release(half);
    OK(core_capture_end(s, &graph));
    for (int i = 0; i < 20; i++) {
        core_tensor *others = vector(4);

        OK(core_graph_launch(graph, s));
        core_tensor_release(others);
    }
    OK(core_tensor_read(out, got, sizeof got));
    ck_assert(got[0] == 1 && got[3] == 1);
    core_tensor_release(in);
    core_tensor_release(out);
    core_graph_release(graph);
    core_stream_guard_leave(&guard);
    core_stream_release(s);
    OK(core_device_synchronize(sim));
    OK(core_memory_empty_cache(sim));
    ck_assert_uint_eq(stats().segments[0].current, 0);
}
END_TEST

START_TEST(core_caching_is_unsupported_for_such_a_device)
{
    open_own(NULL);
    ck_assert_int_eq(core_memory_configure(sim, "caching:true"),
                     CORE_ERROR_UNSUPPORTED);
    ck_assert_ptr_nonnull(
        strstr(core_error_message(), "manages its memory itself"));
    ck_assert_int_eq(core_memory_configure(sim, "expandable_segments:true"),
                     CORE_ERROR_UNSUPPORTED);
    OK(core_memory_configure(sim, "fraction:0.5"));
}
END_TEST

SUITE("memory/memory_own", memory_is_returned_while_its_stream_is_busy,
      memory_in_use_by_another_stream_is_kept,
      more_memory_than_the_device_has_is_allocated_in_turn,
      captures_keep_their_memory, core_caching_is_unsupported_for_such_a_device)
