/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Random traffic from several threads, in each configuration of the allocator:
 * no memory is reused while a stream may still use it, and all of it is
 * returned.  Takes a few seconds; with LIBCORE_TEST_LONG=1 a minute.
 * LIBCORE_TEST_SEED repeats the requests of each thread. */

#include "support/effort.h"
#include "support/memory_stress.h"

#include <sched.h>

static uint64_t seed(void)
{
    const char *text = getenv("LIBCORE_TEST_SEED");

    return text ? strtoull(text, NULL, 0) : 20;
}

static void start(traffic *all, worker *workers)
{
    OK(core_stream_create(sim, &all->shared));
    for (int t = 0; t < THREADS; t++) {
        worker *w = &workers[t];

        *w = (worker){.all = all, .random = seed() * 1000 + (uint64_t)t};
        OK(core_stream_create(sim, &w->streams[0]));
        OK(core_stream_create(sim, &w->streams[1]));
        w->streams[2] = core_stream_retain(all->shared);
        OK(core_stream_create(sim, &w->maker));
    }
    for (int t = 0; t < THREADS; t++)
        ck_assert_int_eq(
            pthread_create(&workers[t].thread, NULL, work, &workers[t]), 0);
}

static void report(const char *name, const worker *workers)
{
    core_memory_stats s = stats();
    uint64_t done = 0, made = 0, refused = 0, worst = 0, launched = 0;
    uint64_t captured = 0;

    for (int t = 0; t < THREADS; t++) {
        done += workers[t].done;
        made += workers[t].made;
        captured += workers[t].captured;
        launched += workers[t].launched;
        refused += workers[t].refused;
        if (workers[t].worst > worst)
            worst = workers[t].worst;
    }
    printf("# %s: seed %llu, %llu steps, %llu tensors, %llu captures, "
           "%llu launches, %llu refused, %llu events, %llu retries; most "
           "reserved %.1f MiB, most active %.1f, "
           "most cached or lost to fragmentation %.1f\n",
           name, (unsigned long long)seed(), (unsigned long long)done,
           (unsigned long long)made, (unsigned long long)captured,
           (unsigned long long)launched, (unsigned long long)refused,
           (unsigned long long)s.events, (unsigned long long)s.retries,
           (double)s.reserved_bytes[0].peak / MIB,
           (double)s.active_bytes[0].peak / MIB, (double)worst / MIB);
    fflush(stdout);
}

/* A released stream ends when its work is done. */
static void streams_are_gone(uint64_t streams)
{
    double until = now() + 20;

    while (counters().streams != streams && now() < until)
        sched_yield();
    ck_assert_uint_eq(counters().streams, streams);
}

static void everything_is_back(uint64_t streams)
{
    char text[512] = "";
    sim_counters c;

    OK(core_device_synchronize(sim));
    all_is_back();
    c = counters();
    OK(control->conflict(text, sizeof text));
    ck_assert_msg(c.conflicts == 0, "%s", text);
    ck_assert_uint_eq(c.overruns, 0);
    ck_assert_uint_eq(c.bad_frees, 0);
    ck_assert_uint_eq(c.blocks, 0);
    ck_assert_uint_eq(c.reservations, 0);
    ck_assert_uint_eq(c.pinned, 0);
    streams_are_gone(streams);
}

static void run(const char *settings, uint64_t limit)
{
    static worker workers[THREADS];
    traffic all = {.lock = PTHREAD_MUTEX_INITIALIZER,
                   .steps = effort_is_slow() ? 300 : 1500,
                   .until = effort_is_long() ? now() + 12 : 0,
                   .tight = limit != 0 || strstr(settings, "fraction")};
    uint64_t streams;

    OK(core_setting_set("LIBCORE_SIM_CHECK", "1"));
    open_sim(settings);
    streams = counters().streams;
    if (limit)
        OK(control->limit(limit));
    OK(control->delay(seed(), 20));
    start(&all, workers);
    for (int t = 0; t < THREADS; t++)
        pthread_join(workers[t].thread, NULL);
    report(*settings ? settings : "no settings", workers);
    for (int i = 0; i < BOXES; i++)
        forget(&all.boxes[i]);
    core_stream_release(all.shared);
    for (int t = 0; t < THREADS; t++)
        ck_assert_msg(!*workers[t].failure, "thread %d: %s", t,
                      workers[t].failure);
    everything_is_back(streams);
}

START_TEST(traffic_with_default_settings)
{
    run("", 0);
}
END_TEST

START_TEST(traffic_in_expandable_segments)
{
    run("expandable_segments:true", 0);
}
END_TEST

START_TEST(traffic_with_rounded_sizes_and_unsplit_blocks)
{
    run("max_split_size_mb:20,roundup_power2_divisions:4,"
        "fraction:0.06,garbage_collection_threshold:0.5",
        0);
}
END_TEST

START_TEST(traffic_where_memory_runs_out)
{
    run("", 120 * MIB);
}
END_TEST

START_TEST(traffic_where_memory_runs_out_in_expandable_segments)
{
    run("expandable_segments:true", 120 * MIB);
}
END_TEST

SUITE("memory/memory_stress", traffic_with_default_settings,
      traffic_in_expandable_segments,
      traffic_with_rounded_sizes_and_unsplit_blocks,
      traffic_where_memory_runs_out,
      traffic_where_memory_runs_out_in_expandable_segments)
