/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The process forks while another thread opens a library at its first use.
 * dlopen is this file's, so that the thread can be held there. */

#define SUITE_FORKS true

#include "support/children.h"
#include "support/suite.h"

#include "gemm/blas.h"
#include "runtime/once.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

static sem_t inside, forked;
static _Atomic int opened;
static _Atomic bool written;
static int patience; /* how long a library takes to open, in milliseconds */

static void wait_for_fork(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += patience / 1000;
    until.tv_nsec += patience % 1000 * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    sem_timedwait(&forked, &until);
}

/* Returns when the fork is done, or after a while. */
void *dlopen(const char *name, int flags)
{
    (void)name;
    (void)flags;
    if (atomic_fetch_add(&opened, 1) == 0) {
        sem_post(&inside);
        wait_for_fork();
        atomic_store(&written, true);
    }
    return NULL;
}

static void *multiply(void *unused)
{
    (void)unused;
    cpu_blas_information();
    return NULL;
}

static bool multiplies(void)
{
    float a[64], c[64] = {0};

    for (int i = 0; i < 64; i++)
        a[i] = 1;
    cpu_gemm_f32(false, false, 8, 8, 8, 1, a, 8, a, 8, 0, c, 8);
    for (int i = 0; i < 64; i++)
        if (c[i] != 8)
            return false;
    return true;
}

/* Calls in_child in a child that is forked while a thread opens a library. */
static void fork_while_opening(bool (*in_child)(void))
{
    pthread_t thread;
    pid_t child;

    sem_init(&inside, 0, 0);
    sem_init(&forked, 0, 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, multiply, NULL), 0);
    while (sem_wait(&inside) != 0)
        ;
    child = fork();
    if (child == 0) {
        child_begins(200);
        child_ends(in_child());
    }
    sem_post(&forked);
    wait_for_child(child);
    pthread_join(thread, NULL);
    ck_assert(multiplies());
}

static bool nothing_is_open_half(void)
{
    return atomic_load(&written) && multiplies() && atomic_load(&opened) == 1;
}

START_TEST(fork_waits_until_a_library_is_open)
{
    patience = 200;
    cpu_once_wait = 1000000;
    fork_while_opening(nothing_is_open_half);
    ck_assert_int_eq(opened, 1);
}
END_TEST

static bool nothing_is_opened(void)
{
    return !atomic_load(&written) && multiplies() &&
           atomic_load(&opened) == 1 &&
           strstr(cpu_blas_information(), "the process was forked") != NULL;
}

START_TEST(fork_that_cannot_wait_leaves_a_child_that_opens_nothing)
{
    patience = 1000000;
    cpu_once_wait = 10;
    fork_while_opening(nothing_is_opened);
    ck_assert_ptr_null(strstr(cpu_blas_information(), "forked"));
}
END_TEST

static cpu_once_state own;
static pid_t child;

static void fork_inside(void)
{
    child = fork();
}

/* The thread that forks goes on preparing in both processes. */
START_TEST(preparing_thread_may_fork)
{
    const char *reason = NULL;

    cpu_once_wait = 1000000;
    patience = 0;
    cpu_once(&own, fork_inside);
    sem_init(&inside, 0, 0);
    sem_init(&forked, 0, 0);
    cpu_once_open("libopenblas.so.0", &reason);
    if (child == 0)
        child_ends(atomic_load(&own.done) && opened == 1 && multiplies());
    ck_assert_int_eq(opened, 1);
    wait_for_child(child);
    child = fork(); /* the lock is free */
    if (child == 0)
        child_ends(multiplies());
    wait_for_child(child);
}
END_TEST

/* Of a program that locks something around fork(), registered before those of
 * the plugin: it runs after them. */
static pthread_mutex_t lock_of_program = PTHREAD_MUTEX_INITIALIZER;
static bool locks_at_fork;

static void lock_at_fork(void)
{
    if (!locks_at_fork)
        return;
    sem_post(&inside);
    pthread_mutex_lock(&lock_of_program);
}

static void unlock_after_fork(void)
{
    if (locks_at_fork)
        pthread_mutex_unlock(&lock_of_program);
}

__attribute__((constructor(101))) static void register_first(void)
{
    pthread_atfork(lock_at_fork, unlock_after_fork, unlock_after_fork);
}

/* Holds the program's lock during its first product, which begins when the fork
 * is waiting for that lock. */
static void *multiply_locked(void *unused)
{
    pthread_mutex_lock(&lock_of_program);
    sem_post(&forked);
    sem_wait(&inside);
    multiply(unused);
    pthread_mutex_unlock(&lock_of_program);
    return NULL;
}

START_TEST(first_product_ends_while_another_fork_handler_waits_for_it)
{
    pthread_t thread;

    patience = 0;
    cpu_once_wait = 1000000;
    sem_init(&inside, 0, 0);
    sem_init(&forked, 0, 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, multiply_locked, NULL), 0);
    while (sem_wait(&forked) != 0)
        ;
    locks_at_fork = true;
    child = fork();
    if (child == 0) {
        child_begins(200);
        child_ends(nothing_is_open_half());
    }
    wait_for_child(child);
    pthread_join(thread, NULL);
    ck_assert_int_eq(opened, 1);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        fork_waits_until_a_library_is_open,
        fork_that_cannot_wait_leaves_a_child_that_opens_nothing,
        preparing_thread_may_fork,
        first_product_ends_while_another_fork_handler_waits_for_it,
    };
    const test_suite suite = {
        .name = "cpu/cpu_once",
        SUITE_TESTS(tests),
    };

    return suite_run(&suite, 1);
}
