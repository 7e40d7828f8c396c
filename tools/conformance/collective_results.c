/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What collectives compute, for all dtypes and reductions. */

#include "collective_rank.h"

#include <libcore/stream.h>

#include <stdlib.h>
#include <string.h>

enum { COUNT = 12, DTYPES = 9 };

static const core_dtype dtypes[DTYPES] = {CORE_F64,  CORE_F32, CORE_F16,
                                          CORE_BF16, CORE_I64, CORE_I32,
                                          CORE_I16,  CORE_I8,  CORE_U8};
static const char *const reductions[] = {"",    "sum", "prod",
                                         "min", "max", "avg"};

/* ---------------------------------------------------------- reductions -- */

/* The reduction of the elements from `first`. */
typedef struct reduction {
    uint32_t kind;
    int64_t first;
} reduction;

static double reduced(const rank *self, const void *context, int64_t element)
{
    const reduction *r = context;

    return rank_reduced(self, r->kind, r->first + element);
}

static double zero(const rank *self, const void *context, int64_t element)
{
    (void)self;
    (void)context;
    (void)element;
    return 0;
}

/* Runs a test of one dtype and reduction; returns false if the engine does not
 * have it. */
typedef bool one_reduction(rank *self, core_dtype dtype, uint32_t kind);

static void with_each(rank *self, const char *name, one_reduction *run)
{
    uint32_t had = 0;

    for (int d = 0; d < DTYPES; d++)
        for (uint32_t k = CORE_REDUCE_SUM; k <= CORE_REDUCE_MAX; k++) {
            rank_calls(self, "%s, %s in %s", name, reductions[k],
                       core_dtype_name(dtypes[d]));
            had += run(self, dtypes[d], k);
        }
    rank_expect_some(self, had);
}

static bool combine(rank *self, core_dtype dtype, uint32_t kind, int64_t count)
{
    core_tensor *x = rank_make_for(self, dtype, kind, count), *y;
    bool has = rank_has(self, core_all_reduce(self->comm, x, kind, &y));

    if (has)
        rank_expect(self, y, count, reduced, &(reduction){kind, 0});
    core_tensor_release(x);
    return has;
}

static bool all_reduce(rank *self, core_dtype dtype, uint32_t kind)
{
    return combine(self, dtype, kind, COUNT);
}

static bool in_place(rank *self, core_dtype dtype, uint32_t kind)
{
    core_tensor *x = rank_make_for(self, dtype, kind, COUNT);
    bool has = rank_has(self, core_all_reduce_(self->comm, x, kind));

    if (has)
        rank_expect(self, x, COUNT, reduced, &(reduction){kind, 0});
    else
        core_tensor_release(x);
    return has;
}

static bool reduce_scatter(rank *self, core_dtype dtype, uint32_t kind)
{
    int64_t count = (int64_t)COUNT * self->size;
    core_tensor *x = rank_make_for(self, dtype, kind, count), *y;
    bool has = rank_has(self, core_reduce_scatter(self->comm, x, kind, &y));

    if (has)
        rank_expect(self, y, COUNT, reduced,
                    &(reduction){kind, (int64_t)COUNT * self->number});
    core_tensor_release(x);
    return has;
}

static bool reduce(rank *self, core_dtype dtype, uint32_t kind)
{
    bool has = true;

    for (uint32_t root = 0; has && root < self->size; root++) {
        core_tensor *x = rank_make_for(self, dtype, kind, COUNT), *y;

        has = rank_has(self, core_reduce(self->comm, x, kind, root, &y));
        if (has)
            rank_expect(self, y, COUNT, root == self->number ? reduced : zero,
                        &(reduction){kind, 0});
        core_tensor_release(x);
    }
    return has;
}

static double average_of(const rank *self, const void *context, int64_t element)
{
    double sum = 0;

    (void)context;
    for (uint32_t r = 0; r < self->size; r++)
        sum += rank_factor(self, r, element) - 1;
    return sum;
}

/* Of multiples of the number of ranks, so that averages are exact, most of them
 * 0, so that a bf16 has their sums. */
static bool average(rank *self, core_dtype dtype)
{
    core_tensor *x = rank_make_for(self, dtype, CORE_REDUCE_PROD, COUNT);
    core_tensor *less, *scaled, *y;
    bool has;

    rank_calls(self, "all_reduce, avg in %s", core_dtype_name(dtype));
    rank_must(self, core_add_scalar(x, core_int(-1), core_int(1), &less));
    rank_must(self, core_mul_scalar(less, core_float(self->size), &scaled));
    has = rank_has(self,
                   core_all_reduce(self->comm, scaled, CORE_REDUCE_AVG, &y));
    if (has)
        rank_expect(self, y, COUNT, average_of, NULL);
    core_tensor_release(x);
    core_tensor_release(less);
    core_tensor_release(scaled);
    return has;
}

static void test_all_reduce(rank *self)
{
    with_each(self, "all_reduce", all_reduce);
}

static void test_in_place(rank *self)
{
    with_each(self, "all_reduce in place", in_place);
}

static void test_reduce_scatter(rank *self)
{
    with_each(self, "reduce_scatter", reduce_scatter);
}

static void test_reduce(rank *self)
{
    with_each(self, "reduce", reduce);
}

static void test_averages(rank *self)
{
    uint32_t had = 0;

    for (int d = 0; d < DTYPES; d++)
        if (core_dtype_is_floating(dtypes[d]))
            had += average(self, dtypes[d]);
    rank_expect_some(self, had);
}

/* Sums whose bits depend on the order of the additions. */
static void test_equal_bits(rank *self)
{
    enum { MANY = 1000 };
    int64_t count = MANY;
    float values[MANY], *all = malloc(sizeof values * self->size);
    core_tensor *x, *sum, *sums;

    for (int i = 0; i < MANY; i++)
        values[i] = 1.0f / (float)(i + 1 + 7 * (int)self->number);
    rank_calls(self, "all_reduce of 1000 f32, and all_gather of the sums");
    rank_must(self, core_tensor_from_data(values, CORE_F32, &count, 1,
                                          self->device, &x));
    if (!rank_has(self, core_all_reduce(self->comm, x, CORE_REDUCE_SUM, &sum)))
        rank_expect_some(self, 0);
    rank_must(self, core_all_gather(self->comm, sum, &sums));
    rank_must(self, core_tensor_read(sums, all, sizeof values * self->size));
    for (uint32_t r = 1; r < self->size; r++)
        if (memcmp(all, all + MANY * r, sizeof values) != 0)
            rank_fail(self, "the sums of ranks 0 and %u have different bits",
                      r);
    core_tensor_release(x);
    core_tensor_release(sum);
    core_tensor_release(sums);
    free(all);
}

/* 1 + 2^-7 is a bf16.  Of more than one of them and a 1, the sum in f32 has a
 * rounded bf16 that differs from the sum of rounded sums. */
static void test_halves(rank *self)
{
    float value = self->number == 0 ? 1 : 1.0078125f, found = 0;
    float exact = 1 + 1.0078125f * (float)(self->size - 1);
    core_tensor *x, *half, *sum, *back, *expected;

    rank_calls(self, "all_reduce, sum in bf16");
    rank_must(self, core_tensor_from_data(&value, CORE_F32, NULL, 0,
                                          self->device, &x));
    rank_must(self, core_to_copy(x, CORE_BF16, NULL, false, -1, &half));
    if (!rank_has(self,
                  core_all_reduce(self->comm, half, CORE_REDUCE_SUM, &sum)))
        rank_expect_some(self, 0);
    rank_must(self, core_to_copy(sum, CORE_F32, NULL, false, -1, &back));
    rank_must(self, core_tensor_read(back, &found, sizeof found));
    rank_must(self, core_tensor_from_data(&exact, CORE_F32, NULL, 0, NULL,
                                          &expected));
    core_tensor_release(sum);
    rank_must(self, core_to_copy(expected, CORE_BF16, NULL, false, -1, &sum));
    core_tensor_release(back);
    rank_must(self, core_to_copy(sum, CORE_F32, NULL, false, -1, &back));
    rank_must(self, core_tensor_read(back, &exact, sizeof exact));
    if (found != exact)
        rank_remark(self,
                    "the sum is %g, in f32 it is %g: bf16 is rounded after "
                    "each addition, which the engine's documentation must say",
                    (double)found, (double)exact);
    core_tensor_release(x);
    core_tensor_release(half);
    core_tensor_release(sum);
    core_tensor_release(back);
    core_tensor_release(expected);
}

/* ------------------------------------------------------------ movement -- */

/* Element i of the result of all_gather of parts of so many. */
static double gathered(const rank *self, const void *context, int64_t element)
{
    int64_t part = *(const int64_t *)context;

    (void)self;
    return rank_value((uint32_t)(element / part), element % part);
}

static void gather(rank *self, core_dtype dtype, int64_t count)
{
    core_tensor *x = rank_make(self, dtype, count), *y;

    rank_calls(self, "all_gather of %lld %s", (long long)count,
               core_dtype_name(dtype));
    rank_must(self, core_all_gather(self->comm, x, &y));
    rank_expect(self, y, count * self->size, gathered, &count);
    core_tensor_release(x);
}

static double of_root(const rank *self, const void *context, int64_t element)
{
    (void)self;
    return rank_value(*(const uint32_t *)context, element);
}

static void broadcast(rank *self, core_dtype dtype, int64_t count,
                      uint32_t root)
{
    core_tensor *x = rank_make(self, dtype, count);

    rank_calls(self, "broadcast of %lld %s from rank %u", (long long)count,
               core_dtype_name(dtype), root);
    rank_must(self, core_broadcast(self->comm, x, root));
    rank_expect(self, x, count, of_root, &root);
}

static double exchanged(const rank *self, const void *context, int64_t element)
{
    int64_t part = *(const int64_t *)context;

    return rank_value((uint32_t)(element / part),
                      part * self->number + element % part);
}

static void all_to_all(rank *self, core_dtype dtype, int64_t part)
{
    core_tensor *x = rank_make(self, dtype, part * self->size), *y;

    rank_calls(self, "all_to_all of parts of %lld %s", (long long)part,
               core_dtype_name(dtype));
    rank_must(self, core_all_to_all(self->comm, x, &y));
    rank_expect(self, y, part * self->size, exchanged, &part);
    core_tensor_release(x);
}

/* Rank a sends (a + b) % 3 rows of two elements to rank b. */
static int64_t rows_between(uint32_t a, uint32_t b)
{
    return (a + b) % 3;
}

static double received_rows(const rank *self, const void *context,
                            int64_t element)
{
    uint32_t from = 0;
    int64_t first = 0;

    (void)context;
    while (element >= 2 * rows_between(from, self->number))
        element -= 2 * rows_between(from++, self->number);
    for (uint32_t r = 0; r < self->number; r++)
        first += 2 * rows_between(from, r);
    return rank_value(from, first + element);
}

static bool move_rows(rank *self, core_dtype dtype)
{
    int64_t send[RANKS_MOST], receive[RANKS_MOST], sizes[2] = {0, 2}, all = 0;
    core_tensor *flat, *x, *y;
    bool has;

    for (uint32_t r = 0; r < self->size; r++) {
        send[r] = rows_between(self->number, r);
        receive[r] = rows_between(r, self->number);
        sizes[0] += send[r];
        all += receive[r];
    }
    rank_calls(self, "all_to_all_rows in %s", core_dtype_name(dtype));
    flat = rank_make(self, dtype, 2 * sizes[0]);
    rank_must(self, core_reshape(flat, sizes, 2, &x));
    has =
        rank_has(self, core_all_to_all_rows(self->comm, x, send, receive, &y));
    if (has)
        rank_expect(self, y, 2 * all, received_rows, NULL);
    core_tensor_release(flat);
    core_tensor_release(x);
    return has;
}

/* Each rank sends to the next one and receives from the one before. */
static void pass_on(rank *self, core_dtype dtype, int64_t count)
{
    uint32_t next = (self->number + 1) % self->size;
    uint32_t before = (self->number + self->size - 1) % self->size;
    core_tensor *x = rank_make(self, dtype, count);
    core_tensor *y = rank_make(self, dtype, count);
    const core_message messages[] = {{x, next, 0}, {y, before, 1}};

    rank_calls(self, "core_send_recv of %lld %s", (long long)count,
               core_dtype_name(dtype));
    rank_must(self, core_send_recv(self->comm, messages, 2));
    rank_expect(self, y, count, of_root, &before);
    core_tensor_release(x);
}

static void test_all_gather(rank *self)
{
    for (int d = 0; d < DTYPES; d++)
        gather(self, dtypes[d], COUNT);
}

static void test_broadcast(rank *self)
{
    for (int d = 0; d < DTYPES; d++)
        for (uint32_t root = 0; root < self->size; root++)
            broadcast(self, dtypes[d], COUNT, root);
}

static void test_all_to_all(rank *self)
{
    for (int d = 0; d < DTYPES; d++)
        all_to_all(self, dtypes[d], 2);
}

static void test_all_to_all_rows(rank *self)
{
    uint32_t had = 0;

    for (int d = 0; d < DTYPES; d++)
        had += move_rows(self, dtypes[d]);
    rank_expect_some(self, had);
}

static void test_send_recv(rank *self)
{
    for (int d = 0; d < DTYPES; d++)
        pass_on(self, dtypes[d], COUNT);
}

/* ------------------------------------------------------------- groups -- */

/* Calls of different kinds, none of which writes the memory of another one, so that an
 * engine with run_group gets all of them at once. */
static void test_groups(rank *self)
{
    int64_t count = COUNT, two = 2;
    core_tensor *x = rank_make(self, CORE_F32, COUNT), *all, *sum, *parts;
    core_tensor *pairs = rank_make(self, CORE_F32, 2 * (int64_t)self->size);
    core_tensor *sent[RANKS_MOST];
    bool has;

    for (uint32_t r = 0; r < self->size; r++)
        sent[r] = rank_make(self, CORE_F32, COUNT);
    rank_calls(self,
               "a group of all_gather, broadcasts from each rank, all_to_all "
               "and all_reduce of f32");
    rank_must(self, core_comm_group_begin(self->comm));
    rank_must(self, core_all_gather(self->comm, x, &all));
    for (uint32_t r = 0; r < self->size; r++)
        rank_must(self, core_broadcast(self->comm, sent[r], r));
    rank_must(self, core_all_to_all(self->comm, pairs, &parts));
    has = rank_has(self, core_all_reduce(self->comm, x, CORE_REDUCE_SUM, &sum));
    rank_must(self, core_comm_group_end(self->comm));
    rank_expect(self, all, count * self->size, gathered, &count);
    for (uint32_t r = 0; r < self->size; r++)
        rank_expect(self, sent[r], count, of_root, &r);
    rank_expect(self, parts, 2 * (int64_t)self->size, exchanged, &two);
    if (has)
        rank_expect(self, sum, count, reduced,
                    &(reduction){CORE_REDUCE_SUM, 0});
    core_tensor_release(x);
    core_tensor_release(pairs);
}

/* ------------------------------------------------------ sizes and order -- */

static void test_empty(rank *self)
{
    gather(self, CORE_F32, 0);
    broadcast(self, CORE_F32, 0, 0);
    all_to_all(self, CORE_F32, 0);
    pass_on(self, CORE_F32, 0);
    rank_calls(self, "all_reduce of 0 f32");
    rank_expect_some(self, combine(self, CORE_F32, CORE_REDUCE_SUM, 0));
}

/* Not multiples of blocks, and more than a message that is sent at once. */
static void test_large(rank *self)
{
    enum { LARGE = 300007 };
    rank_calls(self, "all_reduce of %d f32", LARGE);
    combine(self, CORE_F32, CORE_REDUCE_SUM, LARGE);
    gather(self, CORE_U8, LARGE);
    broadcast(self, CORE_I16, LARGE, self->size - 1);
    all_to_all(self, CORE_F32, LARGE / 10);
    pass_on(self, CORE_F32, LARGE / 3);
}

/* The late one waits until the others have begun the call, or nearly so.
 * calls: before this one. */
static void arrive(rank *self, bool late, uint32_t calls)
{
    if (!late) {
        atomic_fetch_add(&self->shared->arrived, 1);
        return;
    }
    rank_await_others(self, (calls + 1) * (self->size - 1));
    rank_pause(0.02);
}

/* One rank comes later: a call that returns before its data is there has other
 * elements. */
static void test_late(rank *self)
{
    for (uint32_t late = 0; late < self->size; late++)
        for (uint32_t kind = 0; kind < 5; kind++) {
            arrive(self, late == self->number, late * 5 + kind);
            if (kind == 0)
                broadcast(self, CORE_F32, COUNT, late);
            else if (kind == 1)
                gather(self, CORE_F32, COUNT);
            else if (kind == 2)
                all_to_all(self, CORE_F32, COUNT);
            else if (kind == 3)
                pass_on(self, CORE_F32, COUNT);
            else {
                rank_calls(self, "all_reduce, sum in f32");
                all_reduce(self, CORE_F32, CORE_REDUCE_SUM);
            }
        }
}

/* No rank leaves before the last one has come. */
static void test_barrier(rank *self)
{
    uint32_t all = self->size;

    for (uint32_t round = 0; round < 2 * all; round++) {
        if (round % all == self->number) {
            rank_await_others(self, round * all + all - 1);
            rank_pause(0.02);
        }
        atomic_fetch_add(&self->shared->arrived, 1);
        rank_meet(self);
        if (atomic_load(&self->shared->arrived) < (round + 1) * all)
            rank_fail(self, "it returned before all ranks had called it");
    }
}

/* x becomes (the sum of all x) + 1, without a wait. */
static core_tensor *sum_and_add(rank *self, core_tensor *x)
{
    core_tensor *twice, *sum, *half, *more;

    rank_must(self, core_add(x, x, core_int(1), &twice));
    rank_must(self, core_all_reduce(self->comm, twice, CORE_REDUCE_SUM, &sum));
    rank_must(self, core_mul_scalar(sum, core_float(0.5), &half));
    rank_must(self, core_add_scalar(half, core_int(1), core_int(1), &more));
    core_tensor_release(twice);
    core_tensor_release(sum);
    core_tensor_release(half);
    return more;
}

static double sum_and_one(const rank *self, const void *context,
                          int64_t element)
{
    (void)context;
    return rank_reduced(self, CORE_REDUCE_SUM, element) + 1;
}

/* Work of two streams before and after collectives.  On a device without
 * streams both are the same. */
static void test_streams(rank *self)
{
    enum { MANY = 5000, STREAMS = 2, ROUNDS = 10 };
    core_stream *streams[STREAMS], *before;
    core_tensor *x = rank_make(self, CORE_F32, MANY), *y[STREAMS * ROUNDS];

    rank_expect_some(self, all_reduce(self, CORE_F32, CORE_REDUCE_SUM));
    rank_calls(self, "all_reduce between kernels of two streams");
    rank_must(self, core_stream_current(self->device, &before));
    rank_must(self, core_stream_synchronize(before));
    for (int s = 0; s < STREAMS; s++)
        rank_must(self, core_stream_create(self->device, &streams[s]));
    for (int i = 0; i < STREAMS * ROUNDS; i++) {
        rank_must(self, core_stream_set_current(streams[i % STREAMS]));
        y[i] = sum_and_add(self, x);
    }
    for (int i = 0; i < STREAMS * ROUNDS; i++) {
        rank_must(self, core_stream_set_current(streams[i % STREAMS]));
        rank_expect(self, y[i], MANY, sum_and_one, NULL);
    }
    rank_must(self, core_stream_set_current(before));
    for (int s = 0; s < STREAMS; s++)
        core_stream_release(streams[s]);
    core_tensor_release(x);
}

/* ------------------------------------------------------- communicators -- */

/* The sum over the ranks that are equal modulo 2. */
static double sum_of_half(const rank *self, const void *context,
                          int64_t element)
{
    double sum = 0;

    (void)context;
    for (uint32_t r = self->number % 2; r < self->size; r += 2)
        sum += rank_value(r, element);
    return sum;
}

static void test_split(rank *self)
{
    core_tensor *x = rank_make(self, CORE_F32, COUNT);
    core_comm *part;

    rank_calls(self, "core_comm_split, and all_reduce in each part");
    if (!rank_has(self, core_comm_split(self->comm, self->number % 2,
                                        self->number, &part)))
        rank_expect_some(self, 0);
    if (rank_has(self, core_all_reduce_(part, x, CORE_REDUCE_SUM)))
        rank_expect(self, x, COUNT, sum_of_half, NULL);
    else
        core_tensor_release(x);
    core_comm_release(part);
    rank_expect_some(self, all_reduce(self, CORE_F32, CORE_REDUCE_SUM));
}

/* Communicators of the same ranks do not take each other's messages. */
static void test_cycles(rank *self)
{
    for (int i = 0; i < 5; i++) {
        core_comm *first = self->comm, *second;
        core_status status;

        rank_calls(self, "core_comm_split");
        status = core_comm_split(first, 0, self->number, &second);
        if (i == 0 && !rank_has(self, status))
            rank_expect_some(self, 0);
        rank_must(self, status);
        self->comm = second;
        broadcast(self, CORE_F32, COUNT + i, 0);
        self->comm = first;
        broadcast(self, CORE_F32, COUNT, self->size - 1);
        rank_calls(self, "core_comm_release");
        core_comm_release(second);
        gather(self, CORE_F32, COUNT);
    }
}

const collective_test collective_results[] = {
    {"collectives/all_reduce", test_all_reduce, 0, false},
    {"collectives/all_reduce-in-place", test_in_place, 0, false},
    {"collectives/reduce_scatter", test_reduce_scatter, 0, false},
    {"collectives/reduce", test_reduce, 0, false},
    {"collectives/averages", test_averages, 0, false},
    {"collectives/broadcast", test_broadcast, 0, false},
    {"collectives/all_gather", test_all_gather, 0, false},
    {"collectives/all_to_all", test_all_to_all, 0, false},
    {"collectives/all_to_all_rows", test_all_to_all_rows, 0, false},
    {"collectives/send_recv", test_send_recv, 0, false},
    {"collectives/groups", test_groups, 0, false},
    {"collectives/barrier", test_barrier, CORE_COMM_UNCHECKED, false},
    {"collectives/ranks-have-equal-bits", test_equal_bits, 0, false},
    {"collectives/halves-are-rounded-once", test_halves, 0, false},
    {"collectives/no-elements", test_empty, 0, false},
    {"collectives/many-elements", test_large, 0, false},
    {"collectives/waits-for-late-ranks", test_late, CORE_COMM_UNCHECKED, false},
    {"collectives/order-on-streams", test_streams, 0, false},
    {"collectives/split", test_split, 0, false},
    {"collectives/several-communicators", test_cycles, 0, false},
    {NULL, NULL, 0, false},
};
