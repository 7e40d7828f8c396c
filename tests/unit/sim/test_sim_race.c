/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* LIBCORE_SIM_CHECK=1: every unordered conflict is detected, whichever access
 * happened first, and nothing else is reported. */

#include "support/sim.h"

enum { N = 4096 };

static core_memory a, b;
static void *first, *second, *third;

static void setup(void)
{
    sim_open_checked();
    a = new_block(device, N);
    b = new_block(device, N);
    first = new_stream(device);
    second = new_stream(device);
    third = new_stream(device);
}

static void teardown(void)
{
    sim.memory->free(device, a, N);
    sim.memory->free(device, b, N);
    sim.streams->destroy(device, first);
    sim.streams->destroy(device, second);
    sim.streams->destroy(device, third);
    sim_close();
}

static void wait_for(void *stream)
{
    OK(sim.streams->synchronize(device, stream));
}

static void finish(void)
{
    sim.streams->synchronize(device, first);
    sim.streams->synchronize(device, second);
    sim.streams->synchronize(device, third);
}

#define CONFLICTS(count)                                            \
    do {                                                            \
        finish();                                                   \
        ck_assert_uint_eq(counted(0).conflicts, (uint64_t)(count)); \
    } while (0)

START_TEST(unordered_writes_conflict)
{
    fill(device, first, a, N, 1);
    fill(device, second, a, N, 2);
    CONFLICTS(1);
}
END_TEST

START_TEST(conflict_is_detected_after_the_first_write_is_done)
{
    struct timespec time = {0, 20000000};

    fill(device, first, a, N, 1);
    nanosleep(&time, NULL);
    fill(device, second, a, N, 2);
    CONFLICTS(1);
}
END_TEST

START_TEST(unordered_read_and_write_conflict_in_either_order)
{
    increment_bytes(device, first, b, a, N);
    fill(device, second, a, N, 2);
    CONFLICTS(1);
    fill(device, first, a, N, 2);
    increment_bytes(device, third, b, a, N);
    CONFLICTS(2);
}
END_TEST

START_TEST(reads_do_not_conflict)
{
    core_memory c = new_block(device, N);

    increment_bytes(device, first, b, a, N);
    increment_bytes(device, second, c, a, N);
    CONFLICTS(0);
    sim.memory->free(device, c, N);
}
END_TEST

START_TEST(error_names_both_operators_and_streams_and_fails_the_later)
{
    char text[512];

    increment_bytes(device, first, b, a, N);
    fill(device, second, at(a, 100), 10, 2);
    FAILS(sim.streams->synchronize(device, second), CORE_ERROR_STREAM, "race");
    ck_assert_ptr_nonnull(strstr(error_text, "fill"));
    ck_assert_ptr_nonnull(strstr(error_text, "increment"));
    ck_assert_ptr_nonnull(strstr(error_text, "[100, 110)"));
    ck_assert_uint_eq(error_now.severity, CORE_SEVERITY_STREAM_POISONED);
    wait_for(first);
    OK(control->conflict(text, sizeof text));
    ck_assert_ptr_nonnull(strstr(text, "stream 1"));
    ck_assert_ptr_nonnull(strstr(text, "stream 2"));
}
END_TEST

START_TEST(wait_for_an_event_orders_work)
{
    fill(device, first, a, N, 1);
    order(device, first, device, second);
    increment_bytes(device, second, b, a, N);
    ck_assert_uint_eq(byte_of(device, second, b), 2);
    CONFLICTS(0);
}
END_TEST

START_TEST(event_orders_only_work_before_it)
{
    void *event = new_event(device, 0);

    OK(sim.events->record(device, event, first));
    fill(device, first, a, N, 1);
    OK(sim.streams->wait_event(device, second, event));
    increment_bytes(device, second, b, a, N);
    CONFLICTS(1);
    sim.events->destroy(device, event);
}
END_TEST

START_TEST(rerecording_does_not_extend_an_earlier_wait)
{
    void *event = new_event(device, 0);

    fill(device, first, a, N, 1);
    OK(sim.events->record(device, event, first));
    OK(sim.streams->wait_event(device, second, event));
    fill(device, first, b, N, 1);
    OK(sim.events->record(device, event, first));
    /* the wait does not cover b */
    increment_bytes(device, second, at(b, 0), a, 1);
    CONFLICTS(1);
    sim.events->destroy(device, event);
}
END_TEST

START_TEST(order_is_transitive_through_a_third_stream)
{
    fill(device, first, a, N, 1);
    order(device, first, device, second);
    order(device, second, device, third);
    increment_bytes(device, third, b, a, N);
    CONFLICTS(0);
}
END_TEST

START_TEST(host_wait_orders_work_enqueued_later)
{
    fill(device, first, a, N, 1);
    wait_for(first);
    fill(device, second, a, N, 2);
    CONFLICTS(0);
}
END_TEST

START_TEST(host_wait_for_another_stream_orders_nothing)
{
    fill(device, first, a, N, 1);
    wait_for(third);
    fill(device, second, a, N, 2);
    CONFLICTS(1);
}
END_TEST

START_TEST(event_query_that_returns_done_orders_work)
{
    void *event = new_event(device, 0);

    fill(device, first, a, N, 1);
    OK(sim.events->record(device, event, first));
    while (sim.events->query(device, event) == CORE_ERROR_BUSY)
        ;
    fill(device, second, a, N, 2);
    CONFLICTS(0);
    fill(device, second, a, N, 1);
    OK(sim.events->record(device, event, second));
    OK(sim.events->synchronize(device, event));
    fill(device, first, a, N, 2);
    CONFLICTS(0);
    sim.events->destroy(device, event);
}
END_TEST

START_TEST(adjacent_bytes_do_not_conflict)
{
    fill(device, first, a, 100, 1);
    fill(device, second, at(a, 100), 100, 2);
    fill(device, third, at(a, 200), 100, 2);
    ck_assert_uint_eq(counted(0).conflicts, 0);
    fill(device, second, at(a, 99), 1, 3);
    CONFLICTS(1);
}
END_TEST

START_TEST(interleaved_bytes_do_not_conflict)
{
    increment_bytes(device, first, b, b, 1);
    OK(launch_named("increment", device, first, a, 2, b, 1, N / 2));
    OK(launch_named("increment", device, second, at(a, 1), 2, b, 1, N / 2));
    finish();
    /* only the first byte of b, which was written */
    ck_assert_uint_eq(counted(0).conflicts, 1);
}
END_TEST

START_TEST(many_runs_of_bytes_are_distinguished_exactly)
{
    /* 2048 runs, more than are stored one by one */
    OK(launch_named("increment", device, first, a, 2, b, 0, N / 2));
    OK(launch_named("increment", device, second, at(a, 1), 2, b, 0, N / 2));
    ck_assert_uint_eq(counted(0).conflicts, 0);
    fill(device, third, at(a, 2001), 1, 3);
    FAILS(sim.streams->synchronize(device, third), CORE_ERROR_STREAM, "race");
    CONFLICTS(1);
}
END_TEST

START_TEST(older_access_is_detected_behind_a_later_one)
{
    fill(device, first, a, N, 1);
    order(device, first, device, second);
    increment_bytes(device, second, b, a, N); /* ordered after the write */
    fill(device, third, a, 1, 1);             /* ordered after neither */
    FAILS(sim.streams->synchronize(device, third), CORE_ERROR_STREAM, "race");
    CONFLICTS(1);
}
END_TEST

START_TEST(write_must_be_ordered_after_every_reader)
{
    fill(device, first, a, N, 1);
    order(device, first, device, second);
    order(device, first, device, third);
    increment_bytes(device, second, at(b, 0), a, 8);
    increment_bytes(device, third, at(b, 8), a, 8);
    order(device, second, device, first);
    fill(device, first, a, N, 1); /* the third stream may still read */
    CONFLICTS(1);
}
END_TEST

/* Memory that is freed too early is not reused in the meantime: the conflicting
 * work does not start before, so that two users never share the memory. */
START_TEST(free_before_all_users_are_done_conflicts)
{
    core_memory c = new_block(device, N);

    fill(device, first, c, N, 1);
    wait_for(first);
    sim.memory->free(device, c, N);
    CONFLICTS(0);
    c = new_block(device, N);
    OK(control->hold(0));
    fill(device, first, c, N, 1);
    sim.memory->free(device, c, N);
    OK(control->release(0));
    CONFLICTS(1);
    FAILS(sim.streams->synchronize(device, first), CORE_ERROR_STREAM,
          "is freed");
}
END_TEST

START_TEST(pinned_memory_is_checked)
{
    const core_host_memory_interface *pinned = interface("core.host_memory");
    void *data;

    OK(pinned->alloc(device, N, &data));
    OK(sim.memory->copy_to_host(device, first, data, a, N));
    OK(sim.memory->copy_from_host(device, second, b, data, N));
    CONFLICTS(1);
    wait_for(first);
    OK(control->hold(0));
    OK(sim.memory->copy_to_host(device, first, data, a, N));
    pinned->free(device, data, N);
    OK(control->release(0));
    FAILS(sim.streams->synchronize(device, first), CORE_ERROR_STREAM, "pinned");
}
END_TEST

START_TEST(events_order_work_of_two_devices)
{
    const core_peer_interface *peer = interface("core.peer");
    core_memory far = new_block(device1, N);
    void *there = new_stream(device1);

    fill(device1, there, far, N, 7);
    order(device1, there, device, first);
    OK(peer->copy(device, first, a, device1, far, N));
    ck_assert_uint_eq(byte_of(device, first, a), 7);
    CONFLICTS(0);
    fill(device1, there, far, N, 7);
    OK(peer->copy(device, second, a, device1, far, N));
    CONFLICTS(1);
    OK(sim.streams->synchronize(device1, there));
    sim.memory->free(device1, far, N);
    sim.streams->destroy(device1, there);
}
END_TEST

/* Random work on random ranges, compared with an oracle that remembers
 * everything: the order between all pairs of works, byte by byte. */
enum { WORKS = 160, SPAN = 64, STREAMS = 3 };

START_TEST(detection_matches_a_complete_oracle)
{
    struct {
        int stream, from, to;
        bool writes;
    } works[WORKS];
    void *streams[STREAMS] = {first, second, third};
    bool knows[STREAMS][WORKS] = {{false}};
    uint64_t expected = 0;

    srand((unsigned)_i + 1);
    for (int w = 0; w < WORKS; w++) {
        int s = rand() % STREAMS, other = rand() % STREAMS;
        bool conflict = false;

        if (rand() % 3 == 0 && other != s) {
            order(device, streams[other], device, streams[s]);
            for (int k = 0; k < w; k++)
                knows[s][k] |= knows[other][k];
        }
        works[w].stream = s;
        works[w].from = rand() % (SPAN - 1);
        works[w].to =
            works[w].from + 1 + rand() % (SPAN - works[w].from - 1 + 1);
        if (works[w].to > SPAN)
            works[w].to = SPAN;
        works[w].writes = rand() % 3 == 0;
        for (int k = 0; k < w; k++)
            conflict |= !knows[s][k] && works[k].from < works[w].to &&
                        works[w].from < works[k].to &&
                        (works[k].writes || works[w].writes);
        knows[s][w] = true;
        if (works[w].writes)
            fill(device, streams[s], at(a, (uint64_t)works[w].from),
                 (uint64_t)(works[w].to - works[w].from), 1);
        else
            OK(launch_named("increment", device, streams[s], at(b, (uint64_t)s),
                            0, at(a, (uint64_t)works[w].from), 1,
                            works[w].to - works[w].from));
        expected += conflict;
        ck_assert_msg(counted(0).conflicts == expected,
                      "work %d: found %llu conflicts of %llu", w,
                      (unsigned long long)counted(0).conflicts,
                      (unsigned long long)expected);
    }
    ck_assert_uint_gt(expected, 0);
    finish();
}
END_TEST

enum { MANY = 300 };

/* Streams beyond the number that can be checked cause no false reports. */
START_TEST(streams_beyond_the_checked_number_cause_no_conflicts)
{
    void *many[MANY], *before = second;

    for (int i = 0; i < MANY; i++)
        many[i] = new_stream(device);
    for (int i = 0; i < 10; i++)
        fill(device, second, b, N, 1);
    for (int i = 240; i < MANY; i++) {
        order(device, before, device, many[i]);
        increment_bytes(device, many[i], a, b, N);
        before = many[i];
    }
    order(device, before, device, third);
    fill(device, third, b, N, 2);
    CONFLICTS(0);
    fill(device, first, b, N, 3);
    fill(device, second, b, N, 4);
    CONFLICTS(1);
    for (int i = 0; i < MANY; i++)
        sim.streams->destroy(device, many[i]);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        unordered_writes_conflict,
        conflict_is_detected_after_the_first_write_is_done,
        unordered_read_and_write_conflict_in_either_order,
        reads_do_not_conflict,
        error_names_both_operators_and_streams_and_fails_the_later,
        wait_for_an_event_orders_work,
        event_orders_only_work_before_it,
        rerecording_does_not_extend_an_earlier_wait,
        order_is_transitive_through_a_third_stream,
        host_wait_orders_work_enqueued_later,
        host_wait_for_another_stream_orders_nothing,
        event_query_that_returns_done_orders_work,
        adjacent_bytes_do_not_conflict,
        interleaved_bytes_do_not_conflict,
        many_runs_of_bytes_are_distinguished_exactly,
        older_access_is_detected_behind_a_later_one,
        write_must_be_ordered_after_every_reader,
        free_before_all_users_are_done_conflicts,
        pinned_memory_is_checked,
        events_order_work_of_two_devices,
        streams_beyond_the_checked_number_cause_no_conflicts,
    };
    const suite_loop loops[] = {
        {detection_matches_a_complete_oracle, 0, 20},
    };
    const test_suite suite = {
        .name = "sim/sim_race",
        .setup = setup,
        .teardown = teardown,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    return suite_run(&suite, 1);
}
