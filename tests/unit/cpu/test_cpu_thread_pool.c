/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#define SUITE_FORKS true

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/children.h"
#include "support/suite.h"
#include "runtime/thread_pool.h"

enum { N = 10007, GRAIN = 16 };

static _Atomic int visits[N];
static _Atomic int bad_chunks;

static void visit(void *context, int64_t begin, int64_t end)
{
    (void)context;
    if (begin % GRAIN != 0 || (end != N && end - begin != GRAIN))
        bad_chunks++;
    for (int64_t k = begin; k < end; k++)
        visits[k]++;
}

static int all_visited(int times)
{
    for (int k = 0; k < N; k++)
        if (visits[k] != times)
            return 0;
    return bad_chunks == 0;
}

START_TEST(every_chunk_runs_exactly_once)
{
    for (int round = 1; round <= 200; round++) {
        ck_assert_int_eq(cpu_thread_pool_set_threads((uint32_t)(1 + round % 5)),
                         0);
        cpu_parallel_for(N, GRAIN, visit, NULL);
        ck_assert(all_visited(round));
    }
    cpu_thread_pool_shutdown();
}
END_TEST

static void nest(void *context, int64_t begin, int64_t end)
{
    (void)context;
    for (int64_t k = begin; k < end; k++)
        cpu_parallel_for(N, GRAIN, visit, NULL);
}

START_TEST(parallel_for_may_be_nested)
{
    cpu_thread_pool_set_threads(3);
    cpu_parallel_for(6, 1, nest, NULL);
    ck_assert(all_visited(6));
}
END_TEST

static void *call_often(void *unused)
{
    (void)unused;
    for (int k = 0; k < 50; k++)
        cpu_parallel_for(N, GRAIN, visit, NULL);
    return NULL;
}

START_TEST(several_threads_may_use_the_pool_concurrently)
{
    pthread_t threads[4];

    cpu_thread_pool_set_threads(3);
    for (int k = 0; k < 4; k++)
        ck_assert_int_eq(pthread_create(&threads[k], NULL, call_often, NULL),
                         0);
    for (int k = 0; k < 4; k++)
        pthread_join(threads[k], NULL);
    ck_assert(all_visited(200));
}
END_TEST

START_TEST(pool_works_in_forked_child)
{
    pid_t child;

    cpu_thread_pool_set_threads(3);
    cpu_parallel_for(N, GRAIN, visit, NULL);
    child = fork();
    ck_assert_int_ne(child, -1);
    if (child == 0) {
        child_begins(200);
        cpu_parallel_for(N, GRAIN, visit, NULL);
        child_ends(all_visited(2));
    }
    wait_for_child(child);
    cpu_parallel_for(N, GRAIN, visit, NULL);
    ck_assert(all_visited(2));
}
END_TEST

START_TEST(pool_restarts_after_shutdown)
{
    cpu_thread_pool_set_threads(3);
    for (int round = 1; round <= 20; round++) {
        cpu_parallel_for(N, GRAIN, visit, NULL);
        ck_assert(all_visited(round));
        cpu_thread_pool_shutdown();
    }
}
END_TEST

START_TEST(invalid_thread_counts_are_refused)
{
    ck_assert_uint_ge(cpu_thread_pool_threads(), 1);
    ck_assert_int_eq(cpu_thread_pool_set_threads(0), -1);
    ck_assert_int_eq(cpu_thread_pool_set_threads(1000000), -1);
    ck_assert_int_eq(cpu_thread_pool_set_threads(7), 0);
    ck_assert_uint_eq(cpu_thread_pool_threads(), 7);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        every_chunk_runs_exactly_once,
        parallel_for_may_be_nested,
        several_threads_may_use_the_pool_concurrently,
        pool_works_in_forked_child,
        pool_restarts_after_shutdown,
        invalid_thread_counts_are_refused,
    };
    const test_suite suite = {
        .name = "cpu/cpu_thread_pool",
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
