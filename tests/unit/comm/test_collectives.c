/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Results of collectives, on a device without and one with streams. */

#include "support/ranks.h"

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

static void move_rows(core_comm *comm)
{
    uint32_t rank = core_comm_rank(comm);
    int64_t send[3], receive[3];
    core_tensor *input, *output;

    rank_row_counts(comm, send, receive);
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

START_TEST(collectives_compute_what_they_say)
{
    rank_device = rank_devices[_i];
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
    rank_device = rank_devices[_i];
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
    rank_device = rank_devices[_i];
    on_ranks(3, divide);
}
END_TEST

START_TEST(one_rank_alone)
{
    rank_device = rank_devices[_i];
    on_ranks(1, nothing_to_move);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        calls_that_are_not_compared_compute_the_same,
        halves_are_summed_in_f32,
    };
    const suite_loop loops[] = {
        {collectives_compute_what_they_say, 0, 2},
        {ranks_that_send_to_each_other_do_not_wait, 0, 2},
        {split_makes_parts_in_the_order_of_keys, 0, 2},
        {one_rank_alone, 0, 2},
    };
    const test_suite suites[] = {
        {"comm/collectives", SUITE_TESTS(tests), SUITE_LOOPS(loops)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
