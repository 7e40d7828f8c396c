/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Results of collectives, on a device without and one with streams. */

#include "support/ranks.h"

#include "../../../plugins/sim/sim_control.h"

#include "comm/comm.h"

#include <libcore/autograd.h>
#include <libcore/capture.h>

/* ------------------------------------------------------------- results -- */

static void reduce_all(core_comm *comm)
{
    core_tensor *input = rank_numbers(comm, 2), *sum, *average, *most;

    OK(core_all_reduce(comm, input, CORE_REDUCE_SUM, &sum));
    OK(core_all_reduce(comm, input, CORE_REDUCE_AVG, &average));
    OK(core_all_reduce(comm, input, CORE_REDUCE_MAX, &most));
    rank_expect(sum, (float[]){6, 12}, 2);
    rank_expect(average, (float[]){2, 4}, 2);
    rank_expect(most, (float[]){3, 6}, 2);
    OK(core_all_reduce_(comm, input, CORE_REDUCE_PROD));
    rank_expect(input, (float[]){6, 48}, 2);
    ck_assert_uint_eq(core_comm_sequence(comm), 4);
    core_tensor_release(input);
    core_tensor_release(sum);
    core_tensor_release(average);
    core_tensor_release(most);
}

static void move_parts(core_comm *comm)
{
    core_tensor *one = rank_numbers(comm, 1), *three = rank_numbers(comm, 3);
    core_tensor *gathered, *scattered, *exchanged;
    float r = (float)core_comm_rank(comm) + 1;

    OK(core_all_gather(comm, one, &gathered));
    rank_expect(gathered, (float[]){1, 2, 3}, 3);
    OK(core_reduce_scatter(comm, three, CORE_REDUCE_SUM, &scattered));
    rank_expect(scattered, (float[]){6 * r}, 1);
    OK(core_all_to_all(comm, three, &exchanged));
    rank_expect(exchanged, (float[]){r, 2 * r, 3 * r}, 3);
    OK(core_broadcast(comm, three, 2));
    rank_expect(three, (float[]){3, 6, 9}, 3);
    OK(core_barrier(comm));
    core_tensor_release(one);
    core_tensor_release(three);
    core_tensor_release(gathered);
    core_tensor_release(scattered);
    core_tensor_release(exchanged);
}

static void reduce_to(core_comm *comm)
{
    bool root = core_comm_rank(comm) == 1;
    core_tensor *input = rank_numbers(comm, 2), *sum, *average;

    OK(core_reduce(comm, input, CORE_REDUCE_SUM, 1, &sum));
    OK(core_reduce(comm, input, CORE_REDUCE_AVG, 1, &average));
    rank_expect(sum, root ? (float[]){6, 12} : (float[]){0, 0}, 2);
    rank_expect(average, root ? (float[]){2, 4} : (float[]){0, 0}, 2);
    core_tensor_release(input);
    core_tensor_release(sum);
    core_tensor_release(average);
}

/* Rank a sends a rows to each rank b, and one more to itself. */
static void row_counts(core_comm *comm, int64_t *send, int64_t *receive)
{
    int64_t rank = core_comm_rank(comm);

    for (int64_t r = 0; r < 3; r++) {
        send[r] = rank + (r == rank);
        receive[r] = r + (r == rank);
    }
}

static void move_rows(core_comm *comm)
{
    uint32_t rank = core_comm_rank(comm);
    int64_t send[3], receive[3];
    core_tensor *input, *output;

    row_counts(comm, send, receive);
    input = rank_numbers(comm, 3 * rank + 1);
    OK(core_all_to_all_rows(comm, input, send, receive, &output));
    if (rank == 0)
        rank_expect(output, (float[]){1, 2, 3, 6}, 4);
    if (rank == 1)
        rank_expect(output, (float[]){4, 6, 9, 12}, 4);
    if (rank == 2)
        rank_expect(output, (float[]){8, 15, 18, 21}, 4);
    core_tensor_release(input);
    core_tensor_release(output);
}

/* A token goes around the ranks. */
static void pass_on(core_comm *comm)
{
    uint32_t rank = core_comm_rank(comm), size = core_comm_size(comm);
    core_tensor *token = rank_numbers(comm, 4);

    if (rank > 0)
        OK(core_recv(comm, token, rank - 1));
    OK(core_send(comm, token, (rank + 1) % size));
    if (rank == 0)
        OK(core_recv(comm, token, size - 1));
    rank_expect(token, (float[]){1, 2, 3, 4}, 4);
    ck_assert_uint_eq(core_comm_sequence(comm), 0);
    core_tensor_release(token);
}

enum { LARGE = 400000 }; /* more than a socket takes without a receiver */

/* Every rank sends two tensors to each other one, of which one is large. */
static void exchange_all(core_comm *comm)
{
    uint32_t rank = core_comm_rank(comm);
    int64_t large = LARGE;
    core_tensor *sent[2] = {rank_numbers(comm, 2)}, *got[3][2], *most;
    core_message messages[8];
    size_t count = 0;

    OK(core_full(&large, 1, core_float(rank), CORE_F32, core_comm_device(comm),
                 &sent[1]));
    for (uint32_t i = 1; i < 3; i++) {
        uint32_t other = (rank + i) % 3;

        for (int k = 0; k < 2; k++) {
            OK(core_zeros_like(sent[k], CORE_DTYPE_NONE, NULL, -1,
                               &got[other][k]));
            messages[count++] = (core_message){sent[k], other, 0};
            messages[count++] = (core_message){got[other][k], other, 1};
        }
    }
    OK(core_send_recv(comm, messages, count));
    for (uint32_t r = 0; r < 3; r++) {
        float number = (float)r + 1;

        if (r == rank)
            continue;
        rank_expect(got[r][0], (float[]){number, 2 * number}, 2);
        OK(core_amax(got[r][1], NULL, 0, false, &most));
        rank_expect(most, (float[]){number - 1}, 1);
        core_tensor_release(most);
        core_tensor_release(got[r][0]);
        core_tensor_release(got[r][1]);
    }
    core_tensor_release(sent[0]);
    core_tensor_release(sent[1]);
}

/* A rank that makes the calls one by one. */
static void exchange_with_calls(core_comm *comm)
{
    uint32_t other = 1 - core_comm_rank(comm);
    core_tensor *sent = rank_numbers(comm, 3), *got = rank_numbers(comm, 3);
    core_message messages[] = {{got, other, 1}, {sent, other, 0}};
    float theirs = (float)other + 1;

    if (other == 1) {
        OK(core_send_recv(comm, messages, 2));
    } else {
        OK(core_recv(comm, got, other));
        OK(core_send(comm, sent, other));
    }
    rank_expect(got, (float[]){theirs, 2 * theirs, 3 * theirs}, 3);
    OK(core_send_recv(comm, NULL, 0));
    core_tensor_release(sent);
    core_tensor_release(got);
}

/* 1 + 2^-8 has no bf16: only a sum in f32 that is rounded once is 3 + 2^-6. */
static void reduce_halves(core_comm *comm)
{
    static const float values[] = {1, 1.0078125f, 1.0078125f};
    core_tensor *full = rank_tensor(comm, &values[core_comm_rank(comm)], 1);
    core_tensor *half, *sum, *back;

    OK(core_to_copy(full, CORE_BF16, NULL, false, -1, &half));
    OK(core_all_reduce(comm, half, CORE_REDUCE_SUM, &sum));
    OK(core_to_copy(sum, CORE_F32, NULL, false, -1, &back));
    rank_expect(back, (float[]){3.015625f}, 1);
    core_tensor_release(full);
    core_tensor_release(half);
    core_tensor_release(sum);
    core_tensor_release(back);
}

static void divide(core_comm *comm)
{
    uint32_t rank = core_comm_rank(comm);
    core_tensor *input = rank_numbers(comm, 1);
    core_comm *part;

    /* Ranks 0 and 2 in the opposite order, and rank 1 alone. */
    OK(core_comm_split(comm, rank % 2, 10 - rank, &part));
    ck_assert_uint_eq(core_comm_size(part), rank % 2 ? 1 : 2);
    ck_assert_uint_eq(core_comm_rank(part), rank == 0);
    OK(core_all_reduce_(part, input, CORE_REDUCE_SUM));
    rank_expect(input, (float[]){rank % 2 ? 2 : 4}, 1);
    core_tensor_release(input);
    core_comm_release(part);
}

static void nothing_to_move(core_comm *comm)
{
    int64_t none = 0;
    core_tensor *empty, *sum;

    OK(core_zeros(&none, 1, CORE_F32, core_comm_device(comm), &empty));
    OK(core_all_reduce(comm, empty, CORE_REDUCE_SUM, &sum));
    ck_assert_int_eq(core_tensor_numel(sum), 0);
    core_tensor_release(empty);
    core_tensor_release(sum);
}

static const char *const devices[] = {"cpu", "sim"};

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

    row_counts(comm, send, receive);
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
    if (status == CORE_OK)
        status = core_comm_synchronize(comm);
    ck_assert_int_eq(status, CORE_ERROR_INVALID_ARGUMENT);
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
    rank_device = devices[_i];
    on_ranks(3, make_a_group);
    rank_flags = CORE_COMM_UNCHECKED;
    on_ranks(3, make_a_group);
}
END_TEST

START_TEST(groups_that_differ_are_errors)
{
    rank_device = devices[_i];
    on_ranks(3, second_call_differs);
    on_ranks(3, number_differs);
    on_ranks(3, group_is_missing);
}
END_TEST

/* --------------------------------------------------- groups that fail -- */

static core_status wait_after(core_comm *comm, core_status status)
{
    return status == CORE_OK ? core_comm_synchronize(comm) : status;
}

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
        ck_assert_int_eq(wait_after(comm, core_comm_group_end(comm)),
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

/* Rank 1 ends its group on a stream that is captured, which is refused before
 * the calls are compared, and then makes another call. */
static void group_ends_in_a_capture(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2);
    core_stream *stream;
    core_stream_guard guard;
    core_graph *graph = NULL;

    begin_two_sums(comm, x);
    if (core_comm_rank(comm) == 1) {
        OK(core_stream_create(core_comm_device(comm), &stream));
        OK(core_stream_guard_enter(stream, &guard));
        OK(core_capture_begin(stream, NULL));
        ck_assert_int_eq(core_comm_group_end(comm), CORE_ERROR_UNSUPPORTED);
        MESSAGE("a collective");
        ck_assert_int_ne(core_capture_end(stream, &graph), CORE_OK);
        core_stream_guard_leave(&guard);
        core_stream_release(stream);
        ck_assert_int_eq(wait_after(comm, core_barrier(comm)),
                         CORE_ERROR_INVALID_ARGUMENT);
    } else {
        ck_assert_int_eq(wait_after(comm, core_comm_group_end(comm)),
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
    rank_device = devices[_i];
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

START_TEST(collectives_compute_what_they_say)
{
    rank_device = devices[_i];
    on_ranks(3, reduce_all);
    on_ranks(3, move_parts);
    on_ranks(3, reduce_to);
    on_ranks(3, move_rows);
    on_ranks(3, pass_on);
    on_ranks(3, nothing_to_move);
}
END_TEST

START_TEST(ranks_that_send_to_each_other_do_not_wait)
{
    rank_device = devices[_i];
    on_ranks(3, exchange_all);
    on_ranks(2, exchange_with_calls);
}
END_TEST

START_TEST(calls_that_are_not_compared_compute_the_same)
{
    rank_flags = CORE_COMM_UNCHECKED;
    on_ranks(3, reduce_to);
    on_ranks(3, move_rows);
}
END_TEST

START_TEST(halves_are_summed_in_f32)
{
    on_ranks(3, reduce_halves);
}
END_TEST

START_TEST(split_makes_parts_in_the_order_of_keys)
{
    rank_device = devices[_i];
    on_ranks(3, divide);
}
END_TEST

START_TEST(one_rank_alone)
{
    rank_device = devices[_i];
    on_ranks(1, nothing_to_move);
}
END_TEST

/* ----------------------------------------------------------- gradients -- */

/* The gradient of sum_r weight_r * f(x)_r, where weight_r is r + 1. */
static core_tensor *gradient_of(core_comm *comm, core_tensor *input,
                                core_tensor *result)
{
    float weight = (float)core_comm_rank(comm) + 1;
    core_tensor *weighted, *loss, *gradient;

    OK(core_mul_scalar(result, core_float(weight), &weighted));
    OK(core_sum(weighted, CORE_DTYPE_NONE, &loss));
    OK(core_grad(&loss, 1, NULL, &input, 1, 0, &gradient));
    core_tensor_release(weighted);
    core_tensor_release(loss);
    core_tensor_release(result);
    return gradient;
}

static void differentiate(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 3), *y, *g;

    OK(core_tensor_set_requires_grad(x, true));
    OK(core_all_reduce(comm, x, CORE_REDUCE_SUM, &y));
    rank_expect(g = gradient_of(comm, x, y), (float[]){6, 6, 6}, 3);
    core_tensor_release(g);
    OK(core_all_reduce(comm, x, CORE_REDUCE_AVG, &y));
    rank_expect(g = gradient_of(comm, x, y), (float[]){2, 2, 2}, 3);
    core_tensor_release(g);
    OK(core_all_gather(comm, x, &y));
    rank_expect(g = gradient_of(comm, x, y), (float[]){6, 6, 6}, 3);
    core_tensor_release(g);
    OK(core_reduce_scatter(comm, x, CORE_REDUCE_SUM, &y));
    rank_expect(g = gradient_of(comm, x, y), (float[]){1, 2, 3}, 3);
    core_tensor_release(g);
    OK(core_all_to_all(comm, x, &y));
    rank_expect(g = gradient_of(comm, x, y), (float[]){1, 2, 3}, 3);
    core_tensor_release(g);
    ck_assert_int_eq(core_all_reduce(comm, x, CORE_REDUCE_MAX, &y),
                     CORE_ERROR_AUTOGRAD);
    ck_assert_int_eq(core_all_reduce_(comm, x, CORE_REDUCE_SUM),
                     CORE_ERROR_AUTOGRAD);
    core_tensor_release(x);
}

/* d/dx of (all_reduce(x))^2, twice. */
static void differentiate_twice(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 1), *y, *square, *loss, *first, *second;

    OK(core_tensor_set_requires_grad(x, true));
    OK(core_all_reduce(comm, x, CORE_REDUCE_SUM, &y));
    OK(core_mul(y, y, &square));
    OK(core_sum(square, CORE_DTYPE_NONE, &loss));
    OK(core_grad(&loss, 1, NULL, &x, 1, CORE_CREATE_GRAPH, &first));
    rank_expect(first, (float[]){36}, 1); /* 3 ranks, each 2 * 6 */
    OK(core_grad(&first, 1, NULL, &x, 1, 0, &second));
    rank_expect(second, (float[]){18}, 1);
    core_tensor_release(x);
    core_tensor_release(y);
    core_tensor_release(square);
    core_tensor_release(loss);
    core_tensor_release(first);
    core_tensor_release(second);
}

static void differentiate_roots(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 3), *y, *g;

    OK(core_tensor_set_requires_grad(x, true));
    OK(core_reduce(comm, x, CORE_REDUCE_SUM, 1, &y));
    rank_expect(g = gradient_of(comm, x, y), (float[]){2, 2, 2}, 3);
    core_tensor_release(g);
    OK(core_reduce(comm, x, CORE_REDUCE_AVG, 2, &y));
    rank_expect(g = gradient_of(comm, x, y), (float[]){1, 1, 1}, 3);
    core_tensor_release(g);
    core_tensor_release(x);
}

/* The weight is that of the rank that receives the row. */
static void differentiate_rows(core_comm *comm)
{
    uint32_t rank = core_comm_rank(comm);
    int64_t send[3], receive[3];
    core_tensor *x = rank_numbers(comm, 3 * rank + 1), *y, *g;

    row_counts(comm, send, receive);
    OK(core_tensor_set_requires_grad(x, true));
    OK(core_all_to_all_rows(comm, x, send, receive, &y));
    memset(send, 0, sizeof send); /* not kept */
    g = gradient_of(comm, x, y);
    if (rank == 0)
        rank_expect(g, (float[]){1}, 1);
    if (rank == 1)
        rank_expect(g, (float[]){1, 2, 2, 3}, 4);
    if (rank == 2)
        rank_expect(g, (float[]){1, 1, 2, 2, 3, 3, 3}, 7);
    core_tensor_release(g);
    core_tensor_release(x);
}

/* d/dx of (reduce(x))^2 at the root, twice. */
static void differentiate_reduce_twice(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 1), *y, *square, *loss, *first, *second;

    OK(core_tensor_set_requires_grad(x, true));
    OK(core_reduce(comm, x, CORE_REDUCE_SUM, 0, &y));
    OK(core_mul(y, y, &square));
    OK(core_sum(square, CORE_DTYPE_NONE, &loss));
    OK(core_grad(&loss, 1, NULL, &x, 1, CORE_CREATE_GRAPH, &first));
    rank_expect(first, (float[]){12}, 1); /* 2 * 6 */
    OK(core_grad(&first, 1, NULL, &x, 1, 0, &second));
    rank_expect(second, (float[]){6}, 1); /* of the sum of 3 ranks' */
    core_tensor_release(x);
    core_tensor_release(y);
    core_tensor_release(square);
    core_tensor_release(loss);
    core_tensor_release(first);
    core_tensor_release(second);
}

static void gather_scalars(core_comm *comm)
{
    float value = (float)core_comm_rank(comm);
    core_tensor *x, *y, *g;

    OK(core_tensor_from_data(&value, CORE_F32, NULL, 0, core_comm_device(comm),
                             &x));
    OK(core_tensor_set_requires_grad(x, true));
    OK(core_all_gather(comm, x, &y));
    ck_assert_int_eq(core_tensor_ndim(y), 1);
    g = gradient_of(comm, x, y);
    ck_assert_int_eq(core_tensor_ndim(g), 0);
    rank_expect(g, (float[]){6}, 1);
    core_tensor_release(x);
    core_tensor_release(g);
}

START_TEST(gradients_are_those_of_the_sum_of_all_losses)
{
    rank_device = devices[_i];
    on_ranks(3, differentiate);
    on_ranks(3, gather_scalars);
    on_ranks(3, differentiate_roots);
    on_ranks(3, differentiate_rows);
}
END_TEST

START_TEST(gradients_of_gradients_communicate_too)
{
    on_ranks(3, differentiate_twice);
    on_ranks(3, differentiate_reduce_twice);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        calls_that_are_not_compared_compute_the_same,
        halves_are_summed_in_f32,
        gradients_of_gradients_communicate_too,
        group_that_ends_in_a_capture_is_refused,
        counts_of_a_group_that_failed_are_kept,
    };
    const suite_loop loops[] = {
        {collectives_compute_what_they_say, 0, 2},
        {ranks_that_send_to_each_other_do_not_wait, 0, 2},
        {groups_are_made_at_their_end, 0, 2},
        {groups_that_differ_are_errors, 0, 2},
        {call_of_a_group_that_fails_on_a_rank_is_an_error_on_all, 1, 4},
        {backward_through_a_collective_is_refused_in_a_group, 0, 2},
        {split_makes_parts_in_the_order_of_keys, 0, 2},
        {one_rank_alone, 0, 2},
        {gradients_are_those_of_the_sum_of_all_losses, 0, 2},
    };
    const test_suite suites[] = {
        {"comm/collectives", SUITE_TESTS(tests), SUITE_LOOPS(loops)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
