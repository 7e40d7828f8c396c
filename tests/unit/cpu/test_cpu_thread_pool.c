/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/children.h"
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

START_TEST(every_chunk_is_computed_once)
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

START_TEST(a_task_may_call)
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

START_TEST(several_threads_may_call_at_once)
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

START_TEST(a_forked_child_computes)
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

START_TEST(a_pool_that_was_shut_down_starts_again)
{
    cpu_thread_pool_set_threads(3);
    for (int round = 1; round <= 20; round++) {
        cpu_parallel_for(N, GRAIN, visit, NULL);
        ck_assert(all_visited(round));
        cpu_thread_pool_shutdown();
    }
}
END_TEST

START_TEST(thread_counts_have_limits)
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
    Suite *suite = suite_create("cpu pool");
    TCase *tests = tcase_create("pool");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_test(tests, every_chunk_is_computed_once);
    tcase_add_test(tests, a_task_may_call);
    tcase_add_test(tests, several_threads_may_call_at_once);
    tcase_add_test(tests, a_forked_child_computes);
    tcase_add_test(tests, a_pool_that_was_shut_down_starts_again);
    tcase_add_test(tests, thread_counts_have_limits);
    suite_add_tcase(suite, tests);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
