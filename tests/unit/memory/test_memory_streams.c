/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Memory and order: blocks used by other streams, streams that end, pools, and
 * host memory used by copies. */

#define SUITE_FORKS true

#include "support/memory.h"

#include <unistd.h>

#include <pthread.h>

static core_tensor *tensor_of(core_device *device, int64_t n)
{
    core_tensor *made;

    OK(core_empty(&n, 1, CORE_F32, device, -1, &made));
    return made;
}

/* A block that fills its segment, so that no other block can be used
 * instead. */
static piece take_whole(void)
{
    return take(20 * MIB);
}

/* ---------------------------------------------------------- record_stream -- */

START_TEST(stream_of_the_block_needs_no_record_stream)
{
    core_tensor *t;
    core_stream *own;
    uint64_t made;
    piece p;

    open_sim("");
    OK(core_stream_default(sim, &own));
    made = core_device_events_created(sim);
    t = tensor_of(sim, 5 * (int64_t)MIB);
    OK(control->hold(0));
    OK(core_tensor_record_stream(t, own));
    core_tensor_release(t);
    p = take_whole();
    ck_assert_uint_eq(stats().segments[0].current, 1);
    OK(control->release(0));
    give(p);
    ck_assert_uint_eq(stats().events, 0);
    ck_assert_uint_eq(core_device_events_created(sim), made);
    all_is_back();
}
END_TEST

START_TEST(block_is_reused_when_every_stream_is_done)
{
    core_stream *one, *two;
    core_tensor *t;
    piece p, q;

    open_sim("");
    one = stream();
    two = stream();
    t = tensor_of(sim, 5 * (int64_t)MIB);
    OK(control->hold(0));
    OK(core_tensor_record_stream(t, one));
    OK(core_tensor_record_stream(t, two));
    OK(core_tensor_record_stream(t, one)); /* one call is enough */
    core_tensor_release(t);
    ck_assert_uint_eq(stats().events, 2);
    ck_assert_uint_eq(stats().allocations[0].current, 0);
    ck_assert_uint_eq(stats().active[0].current, 1);
    ck_assert_uint_eq(stats().active_bytes[0].current, 20 * MIB);
    p = take_whole();
    ck_assert_uint_eq(stats().segments[0].current, 2); /* a new segment */
    OK(control->release(0));
    OK(core_stream_synchronize(one));
    OK(core_stream_synchronize(two));
    q = take_whole(); /* the stream is done before memory grows */
    ck_assert_uint_eq(stats().segments[0].current, 2);
    give(p);
    give(q);
    core_stream_release(one);
    core_stream_release(two);
    all_is_back();
}
END_TEST

START_TEST(one_busy_stream_keeps_the_block_from_reuse)
{
    core_device *sim1;
    core_stream *here, *there;
    core_event *event;
    core_tensor *t;
    piece p;

    open_sim("");
    OK(core_device_find("sim:1", &sim1));
    here = stream();
    OK(core_stream_create(sim1, &there));
    OK(core_event_create(sim1, 0, &event));
    OK(control->hold(1));
    OK(core_event_record(event, there));
    t = tensor_of(sim, 5 * (int64_t)MIB);
    OK(core_stream_wait_event(here, event)); /* of a device that is held */
    OK(core_tensor_record_stream(t, here));
    core_tensor_release(t);
    p = take_whole();
    ck_assert_uint_eq(stats().segments[0].current, 2);
    give(p);
    OK(control->release(1));
    core_event_release(event);
    core_stream_release(here);
    core_stream_release(there);
    all_is_back();
}
END_TEST

START_TEST(tensors_and_streams_of_two_devices_are_refused)
{
    core_device *sim1;
    core_stream *theirs, *ours;
    core_tensor *t, *host;

    open_sim("");
    OK(core_device_find("sim:1", &sim1));
    OK(core_stream_default(sim1, &theirs));
    OK(core_stream_default(sim, &ours));
    t = tensor_of(sim, 10);
    host = tensor_of(NULL, 10);
    FAILS(core_tensor_record_stream(t, theirs), CORE_ERROR_DEVICE, "sim",
          "sim:1");
    FAILS(core_tensor_record_stream(host, ours), CORE_ERROR_DEVICE, "cpu",
          "sim");
    FAILS(core_tensor_record_stream(NULL, ours), CORE_ERROR_INVALID_ARGUMENT,
          "tensor");
    FAILS(core_tensor_record_stream(t, NULL), CORE_ERROR_INVALID_ARGUMENT,
          "stream");
    core_tensor_release(t);
    core_tensor_release(host);
}
END_TEST

START_TEST(emptying_the_cache_waits_for_other_streams)
{
    core_stream *other;
    core_tensor *t, *u;

    OK(core_setting_set("LIBCORE_SIM_CHECK", "1"));
    open_sim("");
    OK(control->delay(1, 20000));
    other = stream();
    t = tensor_of(sim, 5 * (int64_t)MIB);
    u = tensor_of(sim, 5 * (int64_t)MIB);
    {
        core_stream_guard guard;
        core_tensor *part;

        OK(core_stream_guard_enter(other, &guard));
        OK(core_narrow(t, 0, 0, 100, &part));
        OK(core_fill_(part, core_float(1)));
        core_tensor_release(part);
        core_stream_guard_leave(&guard);
    }
    OK(core_tensor_record_stream(t, other));
    core_tensor_release(t);
    core_tensor_release(u);
    OK(core_memory_empty_cache(sim));
    ck_assert_uint_eq(stats().reserved_bytes[0].current, 0);
    OK(core_stream_synchronize(other));
    core_stream_release(other);
    ck_assert_uint_eq(counters().conflicts, 0);
    all_is_back();
}
END_TEST

START_TEST(failed_stream_keeps_no_block_from_reuse)
{
    core_stream *other;
    core_tensor *t, *work;
    core_stream_guard guard;

    open_sim("");
    other = stream();
    t = tensor_of(sim, 5 * (int64_t)MIB);
    OK(core_stream_guard_enter(other, &guard));
    work = tensor_of(sim, 10);
    OK(control->fault(0, SIM_FAULT_ASYNC, 1));
    OK(core_fill_(work, core_float(1)));
    core_stream_guard_leave(&guard);
    ck_assert_int_eq(core_stream_synchronize(other), CORE_ERROR_STREAM);
    OK(core_tensor_record_stream(t, other));
    core_tensor_release(t);
    give(take_whole());
    ck_assert_uint_eq(stats().segments[CORE_MEMORY_LARGE].current, 1);
    core_tensor_release(work);
    core_stream_release(other);
    all_is_back();
}
END_TEST

START_TEST(block_is_reused_later_if_no_event_can_be_created)
{
    const uint32_t faults[] = {SIM_FAULT_EVENT, SIM_FAULT_RECORD};
    core_stream *other;
    core_tensor *t;

    open_sim("");
    other = stream();
    for (int i = 0; i < 2; i++) {
        t = tensor_of(sim, 5 * (int64_t)MIB);
        OK(core_tensor_record_stream(t, other));
        OK(control->hold(0)); /* no event that is recorded later is done */
        OK(control->fault(0, faults[i], 1));
        core_tensor_release(t);
        ck_assert_uint_eq(stats().active[0].current, 1);
        OK(control->release(0));
        OK(core_stream_synchronize(other));
        give(take_whole());
        ck_assert_uint_eq(stats().segments[0].current, 1);
    }
    core_stream_release(other);
    all_is_back();
}
END_TEST

/* ------------------------------------------------------- streams and threads -- */

START_TEST(memory_of_an_ended_stream_is_reused)
{
    core_stream *first = NULL, *second;
    piece p, q;

    open_sim("");
    first = stream();
    p = take_on(first, 20 * MIB);
    give(p);
    core_stream_release(first);
    second = stream();
    q = take_on(second, 20 * MIB);
    ck_assert(same(p, q));
    ck_assert_uint_eq(stats().segments[0].current, 1);
    give(q);
    core_stream_release(second);
    all_is_back();
}
END_TEST

static void wait_for(void *context)
{
    while (!atomic_load((_Atomic bool *)context))
        usleep(100);
}

/* Without the event that the next owner would wait for. */
START_TEST(memory_without_an_event_is_not_reused_before_the_work_is_done)
{
    const uint32_t faults[] = {SIM_FAULT_EVENT, SIM_FAULT_RECORD};
    static _Atomic bool go_on;
    core_stream *first, *second, *third;
    piece p, q;

    open_sim("");
    for (int i = 0; i < 2; i++) {
        atomic_store(&go_on, false);
        first = stream();
        second = stream();
        third = stream();
        p = take_on(first, 20 * MIB);
        OK(core_stream_callback(first, wait_for, (void *)&go_on, NULL));
        give(p);
        OK(control->fault(0, faults[i], 1));
        core_stream_release(first); /* does not wait */
        q = take_on(second, 20 * MIB);
        ck_assert(!same(p, q));
        ck_assert_int_eq(core_stream_query(second), CORE_OK);
        give(q);
        atomic_store(&go_on, true);
        OK(core_device_synchronize(sim));
        q = take_on(third, 20 * MIB);
        ck_assert(same(p, q));
        ck_assert_uint_eq(stats().segments[0].current, 2);
        give(q);
        core_stream_release(second);
        core_stream_release(third);
        all_is_back();
    }
}
END_TEST

START_TEST(reset_discards_all_blocks)
{
    core_stream *other;
    piece p, q, r;

    open_sim("");
    other = stream();
    p = take(1000);
    give(take(1000)); /* cached */
    q = take(3 * MIB);
    r = take(3 * MIB);
    OK(core__allocator_record(sim, q.block, other));
    OK(core__allocator_record(sim, r.block, other));
    give(r); /* waits for its uses */
    OK(control->lose(0));
    OK(core_device_reset(sim));
    ck_assert_uint_eq(stats().reserved_bytes[0].current, 0);
    ck_assert_uint_eq(stats().active[0].current, 0);
    give(p); /* has no effect */
    give(q);
    r = take(1000);
    ck_assert_uint_eq(stats().segments[0].current, 1);
    ck_assert_uint_eq(stats().allocations[0].current, 1);
    give(r);
    core_stream_release(other);
    all_is_back();
}
END_TEST

static void *give_it(void *context)
{
    give(*(piece *)context);
    return NULL;
}

START_TEST(block_may_be_freed_by_another_thread)
{
    pthread_t thread;
    piece p, q;

    open_sim("");
    for (int i = 0; i < 3; i++) {
        p = take(i == 0 ? 1000 : i == 1 ? MIB : 20 * MIB);
        ck_assert_int_eq(pthread_create(&thread, NULL, give_it, &p), 0);
        pthread_join(thread, NULL);
        q = take(i == 0 ? 1000 : i == 1 ? MIB : 20 * MIB);
        ck_assert(same(p, q));
        give(q);
    }
    all_is_back();
}
END_TEST

/* ------------------------------------------------------------------ pools -- */

static core_memory_pool *pool_of_sim(void)
{
    core_memory_pool *made;

    OK(core_memory_pool_create(sim, &made));
    return made;
}

static piece take_in(core_memory_pool *from, uint64_t size)
{
    piece p;

    OK(core_memory_pool_begin(from));
    p = take(size);
    OK(core_memory_pool_end(from));
    return p;
}

START_TEST(pool_has_its_own_segments)
{
    core_memory_pool *a, *b;
    piece p, q, r;

    open_sim("");
    a = pool_of_sim();
    b = pool_of_sim();
    give(take(1000));
    p = take_in(a, 1000);
    q = take_in(b, 1000);
    ck_assert_uint_eq(stats().segments[0].current, 3);
    give(p);
    r = take_in(a, 1000);
    ck_assert(same(p, r)); /* in the pool it came from */
    give(r);
    r = take(1000);
    ck_assert(!same(p, r));
    give(r);
    give(q);
    OK(core_memory_empty_cache(sim)); /* a pool keeps its memory */
    ck_assert_uint_eq(stats().segments[0].current, 2);
    core_memory_pool_release(a);
    ck_assert_uint_eq(stats().segments[0].current, 1);
    core_memory_pool_release(b);
    ck_assert_uint_eq(stats().segments[0].current, 0);
    all_is_back();
}
END_TEST

START_TEST(pool_lives_as_long_as_its_last_tensor)
{
    core_memory_pool *a;
    piece p, q;

    open_sim("");
    a = pool_of_sim();
    ck_assert_ptr_eq(core_memory_pool_retain(a), a);
    p = take_in(a, 1000);
    q = take_in(a, 3 * MIB);
    core_memory_pool_release(a);
    ck_assert_uint_eq(stats().segments[0].current, 2);
    core_memory_pool_release(a);
    ck_assert_uint_eq(stats().segments[0].current, 2);
    give(q);
    ck_assert_uint_eq(stats().segments[0].current, 1);
    give(p);
    ck_assert_uint_eq(stats().segments[0].current, 0);
    core_memory_pool_release(NULL);
    all_is_back();
}
END_TEST

static void *take_outside(void *context)
{
    *(piece *)context = take(1000);
    return NULL;
}

START_TEST(pools_nest_and_are_per_thread)
{
    core_memory_pool *a, *b;
    pthread_t thread;
    piece p[4], r;

    open_sim("");
    a = pool_of_sim();
    b = pool_of_sim();
    OK(core_memory_pool_begin(a));
    p[0] = take(1000);
    OK(core_memory_pool_begin(b));
    p[1] = take(1000);
    FAILS(core_memory_pool_end(a), CORE_ERROR_INVALID_ARGUMENT,
          "not been ended");
    ck_assert_int_eq(pthread_create(&thread, NULL, take_outside, &p[2]), 0);
    pthread_join(thread, NULL);
    OK(core_memory_pool_end(b));
    give(p[0]);
    r = take(1000);
    ck_assert(same(r, p[0])); /* in pool a again */
    OK(core_memory_pool_end(a));
    ck_assert_uint_eq(stats().segments[0].current, 3);
    FAILS(core_memory_pool_end(a), CORE_ERROR_INVALID_ARGUMENT, "begun");
    FAILS(core_memory_pool_begin(NULL), CORE_ERROR_INVALID_ARGUMENT, "pool");
    give(p[2]);
    p[3] = take(1000);
    ck_assert(same(p[3], p[2])); /* in no pool */
    give(p[3]);
    give(r);
    give(p[1]);
    core_memory_pool_release(a);
    core_memory_pool_release(b);
    all_is_back();
}
END_TEST

/* ------------------------------------------------------------ host memory -- */

START_TEST(pinned_host_memory_is_cached)
{
    void *a, *b;

    open_sim("");
    OK(core_host_memory_alloc(sim, 1000, &a));
    memset(a, 1, 1000); /* the host may write to it */
    OK(core_host_memory_free(sim, a));
    OK(core_host_memory_alloc(sim, 4000, &b));
    ck_assert_ptr_eq(a, b);
    ck_assert_uint_eq(counters().pinned, 1);
    OK(core_host_memory_free(sim, b));
    OK(core_memory_empty_cache(sim));
    ck_assert_uint_eq(counters().pinned, 0);
}
END_TEST

START_TEST(host_memory_waits_for_the_copies_that_use_it)
{
    core_tensor *t, *host;
    void *data, *a, *b;
    int64_t n = 1000;

    open_sim("");
    t = tensor_of(sim, n);
    OK(core_fill_(t, core_float(3)));
    OK(control->hold(0));
    OK(core_tensor_pinned(sim, CORE_F32, &n, 1, &host));
    OK(core_tensor_data(host, &data));
    OK(core_tensor_copy(host, t, CORE_COPY_NON_BLOCKING));
    core_tensor_release(host);
    OK(core_host_memory_alloc(sim, 4000, &a));
    ck_assert_ptr_ne(a, data);
    OK(control->release(0));
    OK(core_device_synchronize(sim));
    OK(core_host_memory_alloc(sim, 4000, &b));
    ck_assert_ptr_eq(b, data);
    OK(core_host_memory_free(sim, a));
    OK(core_host_memory_free(sim, b));
    core_tensor_release(t);
    OK(core_memory_empty_cache(sim));
    ck_assert_uint_eq(counters().pinned, 0);
}
END_TEST

START_TEST(free_of_other_memory_is_refused)
{
    char *data, mine;
    piece p;

    open_sim("");
    FAILS(core_host_memory_free(sim, &mine), CORE_ERROR_INVALID_ARGUMENT,
          "on \"sim");
    OK(core_host_memory_alloc(sim, 1000, (void **)&data));
    FAILS(core_host_memory_free(sim, data + 64), CORE_ERROR_INVALID_ARGUMENT,
          "not allocated pinned memory");
    p = take(1000);
    FAILS(core_host_memory_free(sim, p.memory.handle),
          CORE_ERROR_INVALID_ARGUMENT, "not allocated pinned memory");
    OK(core_host_memory_free(sim, data));
    FAILS(core_host_memory_free(sim, data), CORE_ERROR_INVALID_ARGUMENT,
          "not allocated pinned memory"); /* the second free */
    OK(core_host_memory_free(sim, NULL));
    FAILS(core_host_memory_free(NULL, data), CORE_ERROR_INVALID_ARGUMENT,
          "device");
    give(p);
}
END_TEST

START_TEST(host_memory_of_a_tensor_is_freed_only_by_the_tensor)
{
    core_tensor *tensor;
    void *data, *a, *b;
    int64_t n = 250;

    open_sim("");
    OK(core_tensor_pinned(sim, CORE_F32, &n, 1, &tensor));
    OK(core_tensor_data(tensor, &data));
    FAILS(core_host_memory_free(sim, data), CORE_ERROR_INVALID_ARGUMENT,
          "core_host_memory_free", "tensor");
    OK(core_host_memory_alloc(sim, 1000, &a));
    ck_assert_ptr_ne(a, data);
    memset(data, 1, 1000);
    core_tensor_release(tensor);
    FAILS(core_host_memory_free(sim, data), CORE_ERROR_INVALID_ARGUMENT,
          "not allocated pinned memory");
    OK(core_host_memory_alloc(sim, 1000, &b));
    ck_assert_ptr_eq(b, data);
    OK(core_host_memory_free(sim, a));
    OK(core_host_memory_free(sim, b));
    OK(core_memory_empty_cache(sim));
    ck_assert_uint_eq(counters().pinned, 0);
}
END_TEST

START_TEST(cached_host_memory_is_freed_before_an_allocation_fails)
{
    void *a, *b;

    open_sim("");
    OK(core_host_memory_alloc(sim, 1000, &a));
    OK(core_host_memory_free(sim, a));
    OK(control->fault(0, SIM_FAULT_HOST, 1));
    OK(core_host_memory_alloc(sim, 100000, &b));
    ck_assert_uint_eq(counters().pinned, 1);
    OK(core_host_memory_free(sim, b));
    FAILS(core_host_memory_alloc(sim, 0, &a), CORE_ERROR_INVALID_ARGUMENT,
          "0 bytes");
    FAILS(core_host_memory_alloc(sim, SIZE_MAX, &a), CORE_ERROR_OUT_OF_MEMORY,
          "bytes");
    FAILS(core_host_memory_alloc(sim, 1, NULL), CORE_ERROR_INVALID_ARGUMENT,
          "out_data");
}
END_TEST

START_TEST(plugin_without_host_memory_is_reported)
{
    int64_t n = 10;
    core_tensor *t;
    void *data;

    open_sim("");
    sim->interfaces.host_memory.alloc = NULL;
    FAILS(core_host_memory_alloc(sim, 1000, &data), CORE_ERROR_UNSUPPORTED,
          "core_host_memory_alloc", "sim", "core.host_memory");
    ck_assert_ptr_null(data);
    FAILS(core_tensor_pinned(sim, CORE_F32, &n, 1, &t), CORE_ERROR_UNSUPPORTED,
          "sim");
    ck_assert_ptr_null(t);
}
END_TEST

START_TEST(synchronous_device_has_pageable_host_memory)
{
    core_device *cpu;
    void *data;

    OK(core_device_find("cpu", &cpu));
    OK(core_host_memory_alloc(cpu, 1000, &data));
    memset(data, 1, 1000);
    OK(core_host_memory_free(cpu, data));
    FAILS(core_host_memory_free(cpu, data), CORE_ERROR_INVALID_ARGUMENT,
          "not allocated pinned memory");
}
END_TEST

START_TEST(pinned_tensor_is_on_the_cpu_and_row_major)
{
    int64_t sizes[] = {3, 4}, negative[] = {3, -4}, none = 0;
    core_tensor *t;
    core_stream *other;

    open_sim("");
    OK(core_tensor_pinned(sim, CORE_F32, sizes, 2, &t));
    ck_assert_str_eq(core_device_name(core_tensor_device(t)), "cpu");
    ck_assert_int_eq(core_tensor_strides(t)[0], 4);
    ck_assert_int_eq(core_tensor_strides(t)[1], 1);
    OK(core_fill_(t, core_float(2)));
    other = stream();
    /* may still be in use by the device */
    OK(core_tensor_record_stream(t, other));
    core_tensor_release(t);
    core_stream_release(other);
    OK(core_tensor_pinned(sim, CORE_F32, &none, 1, &t));
    core_tensor_release(t);
    FAILS(core_tensor_pinned(sim, CORE_F32, negative, 2, &t), CORE_ERROR_SHAPE,
          "-4");
    FAILS(core_tensor_pinned(sim, CORE_F32, NULL, 2, &t),
          CORE_ERROR_INVALID_ARGUMENT, "sizes");
    OK(core_memory_empty_cache(sim));
    ck_assert_uint_eq(counters().pinned, 0);
}
END_TEST

SUITE("memory/memory_streams", stream_of_the_block_needs_no_record_stream,
      block_is_reused_when_every_stream_is_done,
      one_busy_stream_keeps_the_block_from_reuse,
      tensors_and_streams_of_two_devices_are_refused,
      emptying_the_cache_waits_for_other_streams,
      failed_stream_keeps_no_block_from_reuse,
      block_is_reused_later_if_no_event_can_be_created,
      memory_without_an_event_is_not_reused_before_the_work_is_done,
      memory_of_an_ended_stream_is_reused, reset_discards_all_blocks,
      block_may_be_freed_by_another_thread, pool_has_its_own_segments,
      pool_lives_as_long_as_its_last_tensor, pools_nest_and_are_per_thread,
      pinned_host_memory_is_cached,
      host_memory_waits_for_the_copies_that_use_it,
      free_of_other_memory_is_refused,
      host_memory_of_a_tensor_is_freed_only_by_the_tensor,
      cached_host_memory_is_freed_before_an_allocation_fails,
      plugin_without_host_memory_is_reported,
      synchronous_device_has_pageable_host_memory,
      pinned_tensor_is_on_the_cpu_and_row_major)
