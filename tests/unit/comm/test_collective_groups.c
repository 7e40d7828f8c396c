/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Groups of collectives: their results, ranks whose groups differ, and calls of a
 * group that fail. */

#include "support/ranks.h"

#include "../../../plugins/sim/sim_control.h"

#include "comm/comm.h"

#include <libcore/autograd.h>

/* ------------------------------------------------------ their results -- */

static void refuse_in_a_group(core_comm *comm, core_tensor *x)
{
    core_comm *part;

    ck_assert_int_eq(core_send(comm, x, (core_comm_rank(comm) + 1) % 3),
                     CORE_ERROR_UNSUPPORTED);
    MESSAGE("core_send: a group has no messages between two ranks");
    ck_assert_int_eq(core_comm_group_begin(comm), CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_comm_split(comm, 0, 0, &part),
                     CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("core_comm_split: a group has begun");
    ck_assert_int_eq(core_broadcast(comm, x, 3), CORE_ERROR_INVALID_ARGUMENT);
}

static void make_a_group(core_comm *comm)
{
    uint32_t rank = core_comm_rank(comm);
    core_tensor *x = rank_numbers(comm, 2), *sum, *all, *rows;
    core_tensor *input = rank_numbers(comm, 3 * rank + 1);
    int64_t send[3], receive[3];

    rank_row_counts(comm, send, receive);
    OK(core_comm_group_begin(comm));
    OK(core_all_reduce(comm, x, CORE_REDUCE_SUM, &sum));
    OK(core_all_gather(comm, x, &all));
    refuse_in_a_group(comm, x);
    OK(core_barrier(comm));
    OK(core_all_to_all_rows(comm, input, send, receive, &rows));
    OK(core_broadcast(comm, x, 1));
    memset(send, 0, sizeof send); /* the group has copied them */
    OK(core_comm_group_end(comm));
    ck_assert_uint_eq(core_comm_sequence(comm), 5);
    rank_expect(sum, (float[]){6, 12}, 2);
    rank_expect(all, (float[]){1, 2, 2, 4, 3, 6}, 6);
    rank_expect(x, (float[]){2, 4}, 2);
    if (rank == 2)
        rank_expect(rows, (float[]){8, 15, 18, 21}, 4);
    ck_assert_int_eq(core_comm_group_end(comm), CORE_ERROR_INVALID_ARGUMENT);
    OK(core_all_reduce_(comm, x, CORE_REDUCE_SUM));
    rank_expect(x, (float[]){6, 12}, 2);
    OK(core_comm_group_begin(comm)); /* empty */
    OK(core_comm_group_end(comm));
    OK(core_comm_group_begin(comm)); /* has not ended with the communicator */
    OK(core_all_reduce_(comm, x, CORE_REDUCE_SUM));
    core_tensor_release(x);
    core_tensor_release(sum);
    core_tensor_release(all);
    core_tensor_release(input);
    core_tensor_release(rows);
}

/* Rank 1 makes another call as the second one of its group; or has one more; or has
 * no group. */
static void differ_in_a_group(core_comm *comm, int how)
{
    bool other = core_comm_rank(comm) == 1;
    core_tensor *x = rank_numbers(comm, 2), *y = rank_numbers(comm, 3);
    core_status status = CORE_OK;

    if (!other || how != 2)
        OK(core_comm_group_begin(comm));
    status = core_broadcast(comm, x, 0);
    if (!other || how != 2) {
        OK(core_broadcast(comm, other && how == 0 ? y : x, 0));
        if (other && how == 1)
            OK(core_barrier(comm));
        status = core_comm_group_end(comm);
    }
    ck_assert_int_eq(rank_wait(comm, status), CORE_ERROR_INVALID_ARGUMENT);
    if (how == 0)
        MESSAGE("rank 0 broadcast of 2 f32 from rank 0 (collective 2), rank 1 "
                "broadcast of 3 f32 from rank 0 (collective 2)");
    if (how == 1)
        MESSAGE("rank 0 a group of 2 collectives (collective 1), rank 1 a "
                "group of 3 collectives (collective 1)");
    if (how == 2)
        MESSAGE("rank 0 a group of 2 collectives (collective 1), rank 1 "
                "broadcast of 2 f32 from rank 0 (collective 1)");
    ck_assert_int_eq(core_comm_group_begin(comm), CORE_ERROR_INVALID_ARGUMENT);
    core_tensor_release(x);
    core_tensor_release(y);
}

static void second_call_differs(core_comm *comm)
{
    differ_in_a_group(comm, 0);
}

static void number_differs(core_comm *comm)
{
    differ_in_a_group(comm, 1);
}

static void group_is_missing(core_comm *comm)
{
    differ_in_a_group(comm, 2);
}

START_TEST(groups_are_made_at_their_end)
{
    rank_device = rank_devices[_i];
    on_ranks(3, make_a_group);
    rank_flags = CORE_COMM_UNCHECKED;
    on_ranks(3, make_a_group);
}
END_TEST

START_TEST(groups_that_differ_are_errors)
{
    rank_device = rank_devices[_i];
    on_ranks(3, second_call_differs);
    on_ranks(3, number_differs);
    on_ranks(3, group_is_missing);
}
END_TEST

/* --------------------------------------------------- groups that fail -- */

static void begin_two_sums(core_comm *comm, core_tensor *x)
{
    OK(core_comm_group_begin(comm));
    OK(core_all_reduce_(comm, x, CORE_REDUCE_SUM));
    OK(core_all_reduce_(comm, x, CORE_REDUCE_SUM));
}

static uint64_t copy_that_fails;

/* On rank 1, after the calls were compared: each has a copy to the host and one
 * back. */
static void copy_of_a_call_fails(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2);
    const sim_control *control;
    core_status status;

    begin_two_sums(comm, x);
    OK(core_device_interface(core_comm_device(comm), "sim.control", 1,
                             (const void **)&control));
    if (core_comm_rank(comm) == 1) {
        OK(control->fault(0, SIM_FAULT_COPY, copy_that_fails));
        status = core_comm_group_end(comm);
        ck_assert_int_ne(status, CORE_OK);
        MESSAGE("injected failure");
        ck_assert_int_eq(core_barrier(comm), status);
        MESSAGE("injected failure");
    } else {
        ck_assert_int_eq(rank_wait(comm, core_comm_group_end(comm)),
                         CORE_ERROR_IO);
        MESSAGE("ended");
    }
    core_tensor_release(x);
}

START_TEST(call_of_a_group_that_fails_on_a_rank_is_an_error_on_all)
{
    rank_device = "sim";
    copy_that_fails = (uint64_t)_i;
    on_ranks(3, copy_of_a_call_fails);
}
END_TEST

static core_status end_group(core_comm *comm, core_tensor *x)
{
    (void)x;
    return core_comm_group_end(comm);
}

/* Rank 1 ends its group on a stream that is captured, which is refused before
 * the calls are compared, and then makes another call. */
static void group_ends_in_a_capture(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2);

    begin_two_sums(comm, x);
    if (core_comm_rank(comm) == 1) {
        rank_refuse_in_capture(comm, end_group, x);
        ck_assert_int_eq(rank_wait(comm, core_barrier(comm)),
                         CORE_ERROR_INVALID_ARGUMENT);
    } else {
        ck_assert_int_eq(rank_wait(comm, core_comm_group_end(comm)),
                         CORE_ERROR_INVALID_ARGUMENT);
    }
    MESSAGE("rank 0 a group of 2 collectives (collective 1), rank 1 barrier "
            "(collective 3)");
    core_tensor_release(x);
}

START_TEST(group_that_ends_in_a_capture_is_refused)
{
    rank_device = "sim";
    on_ranks(3, group_ends_in_a_capture);
}
END_TEST

/* A gradient would be used before the group ends. */
static void backward_in_a_group(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2), *y, *loss, *gradient;

    OK(core_tensor_set_requires_grad(x, true));
    OK(core_all_reduce(comm, x, CORE_REDUCE_AVG, &y));
    OK(core_sum(y, CORE_DTYPE_NONE, &loss));
    OK(core_comm_group_begin(comm));
    ck_assert_int_eq(
        core_grad(&loss, 1, NULL, &x, 1, CORE_RETAIN_GRAPH, &gradient),
        CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("core_all_reduce: a group has begun on the communicator");
    OK(core_comm_group_end(comm));
    OK(core_grad(&loss, 1, NULL, &x, 1, 0, &gradient));
    rank_expect(gradient, (float[]){1, 1}, 2);
    core_tensor_release(gradient);
    core_tensor_release(loss);
    core_tensor_release(x);
    core_tensor_release(y);
}

START_TEST(backward_through_a_collective_is_refused_in_a_group)
{
    rank_device = rank_devices[_i];
    on_ranks(2, backward_in_a_group);
}
END_TEST

static const uint64_t *used_counts;

/* Like an engine that still reads the counts after its error. */
static core_status run_late(void *impl, const core_collective *call)
{
    (void)impl;
    used_counts = call->input_counts;
    return core_error_set(CORE_ERROR_CANCELLED, "late");
}

static void rows_in_a_group_fail(core_comm *comm)
{
    const int64_t rows = 2;
    core_tensor *x = rank_numbers(comm, 2), *y;

    comm->engine->table.run = run_late;
    OK(core_comm_group_begin(comm));
    OK(core_all_to_all_rows(comm, x, &rows, &rows, &y));
    ck_assert_int_eq(core_comm_group_end(comm), CORE_ERROR_CANCELLED);
    ck_assert_uint_eq(used_counts[0], 2);
    ck_assert_uint_eq(used_counts[1], 2);
    core_tensor_release(x);
    core_tensor_release(y);
}

START_TEST(counts_of_a_group_that_failed_are_kept)
{
    rank_flags = CORE_COMM_UNCHECKED; /* the counts, too */
    on_ranks(1, rows_in_a_group_fail);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        group_that_ends_in_a_capture_is_refused,
        counts_of_a_group_that_failed_are_kept,
    };
    const suite_loop loops[] = {
        {groups_are_made_at_their_end, 0, 2},
        {groups_that_differ_are_errors, 0, 2},
        {call_of_a_group_that_fails_on_a_rank_is_an_error_on_all, 1, 4},
        {backward_through_a_collective_is_refused_in_a_group, 0, 2},
    };
    const test_suite suites[] = {
        {"comm/collective_groups", SUITE_TESTS(tests), SUITE_LOOPS(loops)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
