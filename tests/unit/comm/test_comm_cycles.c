/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Communicators that begin and end many times: nothing is left of them. */

#include "support/ranks.h"

#include <malloc.h>

/* What a process has: open files, threads and bytes of malloc. */
typedef struct held {
    int files, threads;
    size_t bytes;
} held;

static held held_now(void)
{
    return (held){count_entries("/proc/self/fd"),
                  count_entries("/proc/self/task"), mallinfo2().uordblks};
}

/* A part of the communicator, and one of this process alone. */
static void begin_and_end(core_comm *comm, core_tensor *x)
{
    core_comm_options options = rank_options(0, 1);
    core_comm *part, *alone;

    OK(core_comm_split(comm, 0, core_comm_rank(comm), &part));
    OK(core_comm_create(core_comm_device(comm), &options, &alone));
    OK(core_all_reduce_(part, x, CORE_REDUCE_AVG));
    OK(core_all_reduce_(alone, x, CORE_REDUCE_SUM));
    OK(core_comm_synchronize(part));
    OK(core_comm_synchronize(alone));
    core_comm_release(part);
    core_comm_release(alone);
}

/* A leak of 100 bytes in each cycle would be found. */
static void begin_and_end_often(core_comm *comm)
{
    enum { CYCLES = 1000, FIRST = 50 };
    core_tensor *x = rank_numbers(comm, 2);
    held before, after;

    for (int i = 0; i < FIRST; i++)
        begin_and_end(comm, x);
    before = held_now();
    for (int i = 0; i < CYCLES; i++)
        begin_and_end(comm, x);
    after = held_now();
    ck_assert_int_eq(after.files, before.files);
    /* A stream's thread may end a little after the stream. */
    ck_assert_int_lt(after.threads, before.threads + CYCLES / 10);
    ck_assert_msg(after.bytes < before.bytes + 100 * CYCLES,
                  "%zu bytes before, %zu after", before.bytes, after.bytes);
    core_tensor_release(x);
}

START_TEST(thousand_communicators_leave_nothing)
{
    rank_device = rank_devices[_i];
    on_ranks(2, begin_and_end_often);
}
END_TEST

int main(void)
{
    const suite_loop loops[] = {
        {thousand_communicators_leave_nothing, 0, 2},
    };
    const test_suite suites[] = {
        {.name = "comm/comm_cycles", SUITE_LOOPS(loops)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
