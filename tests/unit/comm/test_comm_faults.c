/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Ranks that end, stop or differ, and wrong arguments: every other rank gets
 * an error that names the rank, the collective and its number. */

#include "support/ranks.h"

#include "../../../plugins/sim/sim_control.h"

#include "comm/collective.h"

#include <libcore/autograd.h>
#include <libcore/compile.h>
#include <libcore/lazy.h>
#include <libcore/transform.h>

#include <pthread.h>

/* ------------------------------------------------------- ranks that end -- */

static void last_rank_dies(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2);

    OK(core_barrier(comm));
    OK(core_comm_synchronize(comm));
    if (core_comm_rank(comm) == 2)
        raise(SIGKILL);
    rank_expect_failure(comm, core_all_reduce_(comm, x, CORE_REDUCE_SUM),
                        CORE_ERROR_IO);
    MESSAGE("all_reduce(sum) of 2 f32 (collective 2)");
    MESSAGE("2 ended");
    core_tensor_release(x);
}

static void last_rank_leaves(core_comm *comm)
{
    OK(core_barrier(comm));
    OK(core_comm_synchronize(comm));
    if (core_comm_rank(comm) == 2)
        return;
    rank_expect_failure(comm, core_barrier(comm), CORE_ERROR_IO);
    MESSAGE("barrier (collective 2)");
    MESSAGE("2 ended");
}

START_TEST(killed_rank_is_an_error_on_the_others)
{
    rank_device = rank_devices[_i];
    on_ranks_that_end(3, 1 << 2, last_rank_dies);
}
END_TEST

START_TEST(rank_that_leaves_early_is_an_error_on_the_others)
{
    rank_device = rank_devices[_i];
    on_ranks(3, last_rank_leaves);
}
END_TEST

/* Rank 2 does not arrive, and no rank ends before the others have their errors.
 * Rank 1, which waits longer, gets an error of its own or sees rank 0's. */
static void last_rank_stops(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2);
    core_status status;

    OK(core_barrier(comm));
    OK(core_comm_synchronize(comm));
    if (core_comm_rank(comm) == 1) {
        rank_set_timeout(comm, 5);
        rank_mark(1);
        status = core_broadcast(comm, x, 1);
        if (status == CORE_OK)
            status = core_comm_synchronize(comm);
        ck_assert_int_ne(status, CORE_OK);
        rank_mark(2);
    } else if (core_comm_rank(comm) == 0) {
        rank_await_mark(1);
        rank_set_timeout(comm, 1);
        rank_expect_failure(comm, core_broadcast(comm, x, 1),
                            CORE_ERROR_CANCELLED);
        MESSAGE("broadcast of 2 f32 from rank 1 (collective 2)");
        MESSAGE("the timeout passed while waiting for rank 2");
        rank_mark(0);
    }
    rank_await_mark(0);
    rank_await_mark(2);
    core_tensor_release(x);
}

START_TEST(rank_that_does_not_arrive_is_an_error_after_the_timeout)
{
    rank_device = rank_devices[_i];
    on_ranks(3, last_rank_stops);
}
END_TEST

/* ---------------------------------------------------- ranks that differ -- */

static void sizes_differ(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, core_comm_rank(comm) == 1 ? 3 : 2);

    rank_expect_failure(comm, core_all_reduce_(comm, x, CORE_REDUCE_SUM),
                        CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("rank 0 all_reduce(sum) of 2 f32 (collective 1), rank 1 "
            "all_reduce(sum) of 3 f32 (collective 1)");
    core_tensor_release(x);
}

static void dtypes_differ(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2), *y;
    core_dtype dtype = core_comm_rank(comm) == 2 ? CORE_F64 : CORE_F32;

    OK(core_to_copy(x, dtype, NULL, false, -1, &y));
    rank_expect_failure(comm, core_broadcast(comm, y, 0),
                        CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("rank 0 broadcast of 2 f32 from rank 0 (collective 1), rank 2 "
            "broadcast of 2 f64 from rank 0 (collective 1)");
    core_tensor_release(x);
    core_tensor_release(y);
}

static void orders_differ(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2);

    OK(core_barrier(comm));
    rank_expect_failure(comm,
                        core_comm_rank(comm) == 1
                            ? core_barrier(comm)
                            : core_all_reduce_(comm, x, CORE_REDUCE_MIN),
                        CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("rank 0 all_reduce(min) of 2 f32 (collective 2), rank 1 barrier "
            "(collective 2)");
    core_tensor_release(x);
}

static void roots_differ(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 1);

    rank_expect_failure(comm,
                        core_broadcast(comm, x, core_comm_rank(comm) == 2),
                        CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("from rank 0 (collective 1), rank 2 broadcast of 1 f32 from rank "
            "1");
    core_tensor_release(x);
}

static void reduce_roots_differ(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 1), *y;

    rank_expect_failure(
        comm,
        core_reduce(comm, x, CORE_REDUCE_SUM, core_comm_rank(comm) == 2, &y),
        CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("to rank 0 (collective 1), rank 2 reduce(sum) of 1 f32 to rank 1");
    core_tensor_release(x);
}

/* Rank 1 expects two rows of rank 0, which sends one. */
static void rows_differ(core_comm *comm)
{
    int64_t send[3] = {1, 1, 1}, receive[3] = {1, 1, 1};
    core_tensor *x = rank_numbers(comm, 3), *y;

    if (core_comm_rank(comm) == 1)
        receive[0] = 2;
    rank_expect_failure(comm, core_all_to_all_rows(comm, x, send, receive, &y),
                        CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("all_to_all_rows of rows of 1 f32 (collective 1): rank 0 sends 1 "
            "rows to rank 1, which expects 2");
    core_tensor_release(x);
}

static void pair_differs(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2), *y = rank_numbers(comm, 3);

    if (core_comm_rank(comm) == 0) {
        /* It may see that rank 1 has ended. */
        core_send(comm, x, 1);
        core_comm_synchronize(comm);
    } else {
        rank_expect_failure(comm, core_recv(comm, y, 0),
                            CORE_ERROR_INVALID_ARGUMENT);
        MESSAGE("rank 0 send of 2 f32, rank 1 recv of 3 f32");
    }
    core_tensor_release(x);
    core_tensor_release(y);
}

START_TEST(different_calls_are_an_error_on_every_rank)
{
    rank_device = rank_devices[_i];
    on_ranks(3, sizes_differ);
    on_ranks(3, dtypes_differ);
    on_ranks(3, orders_differ);
    on_ranks(3, roots_differ);
    on_ranks(3, reduce_roots_differ);
    on_ranks(3, rows_differ);
    on_ranks(2, pair_differs);
}
END_TEST

/* --------------------------------------------------------------- abort -- */

static void first_rank_aborts(core_comm *comm)
{
    OK(core_barrier(comm));
    OK(core_comm_synchronize(comm));
    if (core_comm_rank(comm) == 0) {
        OK(core_comm_abort(comm));
        ck_assert_int_eq(core_barrier(comm), CORE_ERROR_CANCELLED);
        MESSAGE("rank 0 aborted the communicator after collective 1");
    } else {
        rank_expect_failure(comm, core_barrier(comm), CORE_ERROR_IO);
        MESSAGE("ended");
    }
    ck_assert_int_eq(core_comm_shrink(comm, &comm), CORE_ERROR_UNSUPPORTED);
    MESSAGE("the engine \"sockets\" cannot");
    _exit(RANK_IS_WELL);
}

START_TEST(abort_ends_the_calls_of_all_ranks)
{
    on_ranks(3, first_rank_aborts);
}
END_TEST

/* ----------------------------------------------------- wrong arguments -- */

/* Two views of x: the same memory is refused, other rows are not.  Each rank
 * sends row 0 to the next one, which has it as row 1; no refused message arrives
 * before it. */
static void pass_rows(core_comm *comm, core_tensor *x)
{
    uint32_t rank = core_comm_rank(comm), next = (rank + 1) % 3;
    uint32_t before = (rank + 2) % 3;
    const int64_t six = 6;
    core_tensor *flat, *first, *second;
    float found[3];

    OK(core_reshape(x, &six, 1, &flat));
    OK(core_select(x, 0, 0, &first));
    OK(core_select(x, 0, 1, &second));
    {
        const core_message same[] = {{x, next, 0}, {flat, before, 1}};
        const core_message part[] = {{second, next, 1}, {flat, before, 0}};
        const core_message rows[] = {{first, next, 0}, {second, before, 1}};

        ck_assert_int_eq(core_send_recv(comm, same, 2),
                         CORE_ERROR_INVALID_ARGUMENT);
        MESSAGE("messages 0 and 1 have the same memory");
        ck_assert_int_eq(core_send_recv(comm, part, 2),
                         CORE_ERROR_INVALID_ARGUMENT);
        OK(core_add_scalar_(first, core_int(rank + 1), core_int(1)));
        OK(core_send_recv(comm, rows, 2));
    }
    OK(core_tensor_read(second, found, sizeof found));
    ck_assert_float_eq(found[2], (float)(before + 1));
    OK(core_zero_(x));
    core_tensor_release(flat);
    core_tensor_release(first);
    core_tensor_release(second);
}

/* None of the messages is sent, not even the first one. */
static void refuse_messages(core_comm *comm, core_tensor *x,
                            core_tensor *elsewhere)
{
    uint32_t other = (core_comm_rank(comm) + 1) % 3;
    const core_message twice[] = {{x, other, 0}, {x, other, 1}};
    const core_message device[] = {{x, other, 0}, {elsewhere, other, 0}};
    const core_message far = {x, 3, 0}, none = {0};

    ck_assert_int_eq(core_send_recv(comm, twice, 2),
                     CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("messages 0 and 1 have the same memory");
    ck_assert_int_eq(core_send_recv(comm, device, 2), CORE_ERROR_DEVICE);
    ck_assert_int_eq(core_send_recv(comm, &far, 1),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_send_recv(comm, &none, 1),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_send_recv(comm, NULL, 1),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_send_recv(NULL, NULL, 0),
                     CORE_ERROR_INVALID_ARGUMENT);
}

/* x: of sizes [2, 3]. */
static void refuse_roots_and_rows(core_comm *comm, core_tensor *x)
{
    const int64_t two[3] = {1, 1, 0}, three[3] = {1, 1, 1};
    const int64_t negative[3] = {3, -1, 0};
    core_tensor *out;

    ck_assert_int_eq(core_reduce(comm, x, CORE_REDUCE_SUM, 3, &out),
                     CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("core_reduce: rank 3; accepted: 0 to 2");
    ck_assert_int_eq(core_reduce(comm, x, 0, 0, &out),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_all_to_all_rows(comm, x, three, two, &out),
                     CORE_ERROR_SHAPE);
    MESSAGE("core_all_to_all_rows: input has sizes [2, 3]; dimension 0 must be "
            "the sum of send_rows, 3");
    ck_assert_int_eq(core_all_to_all_rows(comm, x, two, negative, &out),
                     CORE_ERROR_SHAPE);
    MESSAGE("receive_rows[1] is -1");
    ck_assert_int_eq(core_all_to_all_rows(comm, x, two, NULL, &out),
                     CORE_ERROR_INVALID_ARGUMENT);
}

static void refuse(core_comm *comm)
{
    int64_t sizes[2] = {2, 3};
    core_tensor *x, *across, *whole, *elsewhere, *out;

    OK(core_zeros(sizes, 2, CORE_F32, core_comm_device(comm), &x));
    OK(core_t(x, &across));
    OK(core_zeros(sizes, 2, CORE_I64, core_comm_device(comm), &whole));
    OK(core_to_copy(x, CORE_F32, NULL, false, -1, &elsewhere));
    core_tensor_release(elsewhere);
    {
        core_device *other;

        OK(core_device_find(strcmp(rank_device, "cpu") ? "cpu" : "sim",
                            &other));
        OK(core_zeros(sizes, 2, CORE_F32, other, &elsewhere));
    }
    ck_assert_int_eq(core_all_reduce(comm, across, CORE_REDUCE_SUM, &out),
                     CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("core_all_reduce: the tensor is not contiguous");
    ck_assert_int_eq(
        core__all_gather_into(comm, "core_shard_gather", across, across),
        CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("core_shard_gather: the tensor is not contiguous");
    ck_assert_int_eq(core_all_reduce(comm, elsewhere, CORE_REDUCE_SUM, &out),
                     CORE_ERROR_DEVICE);
    MESSAGE("the communicator is for");
    ck_assert_int_eq(core_all_reduce(comm, x, 9, &out),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_all_reduce(comm, x, 0, &out),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_all_reduce(comm, whole, CORE_REDUCE_AVG, &out),
                     CORE_ERROR_DTYPE);
    ck_assert_int_eq(core_all_reduce(comm, NULL, CORE_REDUCE_SUM, &out),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_all_reduce(NULL, x, CORE_REDUCE_SUM, &out),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_all_reduce(comm, x, CORE_REDUCE_SUM, NULL),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_broadcast(comm, x, 3), CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("core_broadcast: rank 3; accepted: 0 to 2");
    ck_assert_int_eq(core_send(comm, x, core_comm_rank(comm)),
                     CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("except this rank");
    refuse_messages(comm, x, elsewhere);
    pass_rows(comm, x);
    ck_assert_int_eq(core_reduce_scatter(comm, x, CORE_REDUCE_SUM, &out),
                     CORE_ERROR_SHAPE);
    MESSAGE("input has sizes [2, 3]; dimension 0 must be a multiple of the "
            "number of ranks, 3");
    ck_assert_int_eq(core_all_to_all(comm, x, &out), CORE_ERROR_SHAPE);
    refuse_roots_and_rows(comm, x);
    /* None of them has failed the communicator. */
    OK(core_all_reduce_(comm, x, CORE_REDUCE_SUM));
    OK(core_comm_synchronize(comm));
    ck_assert_uint_eq(core_comm_sequence(comm), 1);
    core_tensor_release(x);
    core_tensor_release(across);
    core_tensor_release(whole);
    core_tensor_release(elsewhere);
}

START_TEST(wrong_arguments_are_refused_and_nothing_fails)
{
    rank_device = rank_devices[_i];
    on_ranks(3, refuse);
}
END_TEST

/* A pending tensor of another thread's lazy region. */
typedef struct pending_call {
    core_comm *comm;
    core_tensor *tensor;
} pending_call;

static void *send_pending(void *context)
{
    const pending_call *call = context;
    core_tensor *out;

    ck_assert_int_eq(
        core_all_reduce(call->comm, call->tensor, CORE_REDUCE_SUM, &out),
        CORE_ERROR_UNSUPPORTED);
    MESSAGE("core_all_reduce: the tensor has no content");
    ck_assert_int_eq(
        core_all_reduce_(call->comm, call->tensor, CORE_REDUCE_SUM),
        CORE_ERROR_UNSUPPORTED);
    return NULL;
}

static void use_pending(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2);
    pending_call call = {.comm = comm};
    pthread_t thread;

    OK(core_lazy_begin(NULL));
    OK(core_neg(x, &call.tensor));
    ck_assert_int_eq(pthread_create(&thread, NULL, send_pending, &call), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    OK(core_all_reduce_(comm, call.tensor, CORE_REDUCE_SUM)); /* cuts */
    rank_expect(call.tensor, (float[]){-3, -6}, 2);
    OK(core_lazy_end());
    core_tensor_release(call.tensor);
    core_tensor_release(x);
}

START_TEST(tensors_without_content_are_refused)
{
    rank_device = rank_devices[_i];
    on_ranks(2, use_pending);
}
END_TEST

static core_status reduce(core_comm *comm, core_tensor *x)
{
    return core_all_reduce_(comm, x, CORE_REDUCE_SUM);
}

static void capture(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2);

    rank_refuse_in_capture(comm, reduce, x);
    core_tensor_release(x);
}

START_TEST(collectives_cannot_be_captured)
{
    rank_device = "sim";
    on_ranks(1, capture);
}
END_TEST

static void in_a_child(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2);
    int state;
    pid_t child = fork();

    if (child == 0) {
        alarm(20);
        if (core_all_reduce_(comm, x, CORE_REDUCE_SUM) !=
                CORE_ERROR_DEVICE_LOST ||
            strstr(core_error_message(), "before this process was forked") ==
                NULL)
            _exit(1);
        core_comm_release(comm);
        _exit(RANK_IS_WELL);
    }
    ck_assert_int_eq(waitpid(child, &state, 0), child);
    ck_assert_int_eq(WEXITSTATUS(state), RANK_IS_WELL);
    OK(core_all_reduce_(comm, x, CORE_REDUCE_SUM));
    rank_expect(x, (float[]){3, 6}, 2);
    core_tensor_release(x);
}

START_TEST(child_of_fork_cannot_use_the_communicator)
{
    on_ranks(2, in_a_child);
}
END_TEST

/* Holds the communicator while rank 1 does not arrive. */
static void *wait_in_barrier(void *comm)
{
    OK(core_barrier(comm));
    return NULL;
}

static void two_threads(core_comm *comm)
{
    pthread_t other;
    core_status status = CORE_OK;

    if (core_comm_rank(comm) == 1) {
        rank_await_mark(0);
        OK(core_barrier(comm));
        return;
    }
    pthread_create(&other, NULL, wait_in_barrier, comm);
    while (core_comm_sequence(comm) == 0)
        usleep(1000);
    status = core_barrier(comm);
    ck_assert_int_eq(status, CORE_ERROR_BUSY);
    MESSAGE("another thread is making a call on the communicator");
    rank_mark(0);
    pthread_join(other, NULL);
}

START_TEST(two_threads_at_once_are_refused)
{
    on_ranks(2, two_threads);
}
END_TEST

/* Lets rank 1 go on once rank 0 releases its last reference or, on a device without
 * streams, waits in its collective.  A pending collective keeps the memory of
 * its communicator. */
static void *mark_release(void *data)
{
    core_comm *comm = data;

    while (comm->stream ? atomic_load(&comm->references) != 0
                        : core_comm_sequence(comm) == 0)
        usleep(1000);
    rank_mark(0);
    return NULL;
}

/* Rank 0 releases its only reference while its collective waits for rank 1. */
static void release_at_once(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2);
    bool first = core_comm_rank(comm) == 0;
    pthread_t other;

    if (first)
        ck_assert_int_eq(pthread_create(&other, NULL, mark_release, comm), 0);
    else
        rank_await_mark(0);
    OK(core_all_reduce_(comm, x, CORE_REDUCE_SUM));
    core_comm_release(comm);
    if (first)
        pthread_join(other, NULL);
    rank_expect(x, (float[]){3, 6}, 2);
    core_tensor_release(x);
    _exit(RANK_IS_WELL);
}

START_TEST(release_waits_for_pending_collectives)
{
    rank_device = rank_devices[_i];
    on_ranks(2, release_at_once);
}
END_TEST

/* A thread for each communicator, on all ranks. */
static void *reduce_often(void *comm)
{
    for (int i = 0; i < 20; i++) {
        core_tensor *x = rank_numbers(comm, 8);

        OK(core_all_reduce_(comm, x, CORE_REDUCE_MAX));
        rank_expect(x, (float[]){2, 4, 6, 8, 10, 12, 14, 16}, 8);
        core_tensor_release(x);
    }
    return NULL;
}

static void two_at_once(core_comm *comm)
{
    pthread_t thread;
    core_comm *other;

    OK(core_comm_split(comm, 0, core_comm_rank(comm), &other));
    ck_assert_int_eq(pthread_create(&thread, NULL, reduce_often, other), 0);
    reduce_often(comm);
    pthread_join(thread, NULL);
    core_comm_release(other);
}

START_TEST(two_communicators_are_used_by_two_threads)
{
    on_ranks(2, two_at_once);
}
END_TEST

/* ------------------------------------------------------------- streams -- */

/* A kernel on the communicator's stream fails before the collective, which the
 * stream then drops. */
static void stream_fails(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2), *y = rank_numbers(comm, 2), *z;
    const sim_control *control;
    core_stream *before;

    OK(core_device_interface(core_comm_device(comm), "sim.control", 1,
                             (const void **)&control));
    OK(core_stream_current(core_comm_device(comm), &before));
    OK(control->hold(0));
    OK(control->fault(0, SIM_FAULT_ASYNC, 1));
    OK(core_stream_set_current(comm->stream));
    OK(core_mul(x, x, &z));
    OK(core_stream_set_current(before));
    OK(core_all_reduce_(comm, y, CORE_REDUCE_SUM));
    OK(control->release(0));
    ck_assert_int_eq(core_comm_synchronize(comm), CORE_ERROR_STREAM);
    MESSAGE("collective 1 did not run, because its stream failed: ");
    MESSAGE("mul.Tensor: sim: injected failure");
    MESSAGE("injected failure");
    ck_assert_int_eq(core_comm_error(comm), CORE_ERROR_STREAM);
    MESSAGE("injected failure");
    ck_assert_int_eq(core_barrier(comm), CORE_ERROR_STREAM);
    MESSAGE("injected failure");
    core_tensor_release(x);
    core_tensor_release(y);
    core_tensor_release(z);
}

/* The collective runs, after work that failed on another stream, whose error is
 * not the communicator's. */
static void other_stream_fails(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2), *y;
    const sim_control *control;

    OK(core_device_interface(core_comm_device(comm), "sim.control", 1,
                             (const void **)&control));
    OK(control->fault(0, SIM_FAULT_ASYNC, 1));
    OK(core_mul(x, x, &y));
    OK(core_all_reduce_(comm, y, CORE_REDUCE_SUM));
    ck_assert_int_eq(core_comm_synchronize(comm), CORE_ERROR_STREAM);
    MESSAGE("waited for work that failed");
    MESSAGE("injected failure");
    OK(core_comm_error(comm));
    core_tensor_release(x);
    core_tensor_release(y);
}

START_TEST(collective_whose_stream_fails_names_the_reason)
{
    rank_device = "sim";
    on_ranks(1, stream_fails);
    on_ranks(1, other_stream_fails);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        collective_whose_stream_fails_names_the_reason,
        abort_ends_the_calls_of_all_ranks,
        collectives_cannot_be_captured,
        child_of_fork_cannot_use_the_communicator,
        two_threads_at_once_are_refused,
        two_communicators_are_used_by_two_threads,
    };
    const suite_loop loops[] = {
        {killed_rank_is_an_error_on_the_others, 0, 2},
        {rank_that_leaves_early_is_an_error_on_the_others, 0, 2},
        {rank_that_does_not_arrive_is_an_error_after_the_timeout, 0, 2},
        {different_calls_are_an_error_on_every_rank, 0, 2},
        {wrong_arguments_are_refused_and_nothing_fails, 0, 2},
        {tensors_without_content_are_refused, 0, 2},
        {release_waits_for_pending_collectives, 0, 2},
    };
    const test_suite suites[] = {
        {"comm/comm_faults", SUITE_TESTS(tests), SUITE_LOOPS(loops)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
