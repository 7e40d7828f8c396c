/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* thread_pool.c: the thread pool.
 *
 * One job at a time.  The caller writes the job, opens the gate and wakes
 * the workers; a worker that finds the gate open joins by counting itself
 * in, takes chunks until none is left, and counts itself out.  The caller
 * works too, then closes the gate and waits for those who joined: a worker
 * that was not scheduled in time finds the gate closed and is not waited
 * for.  A second caller, or a task that itself calls, computes alone. */

#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#include "thread_pool.h"

enum {
    MAX_THREADS = 1024,
    GATE_OPEN = 1, /* the low bit; threads inside are counted in steps of 2 */
    GATE_STEP = 2,
    SPINS_WORKER = 1000, /* some tens of microseconds, then sleep */
    SPINS_CALLER = 1000,
    STACK_SIZE = 2 << 20
};

static struct {
    /* The job: written by the caller while the gate is closed and no worker is
     * inside. */
    cpu_task task;
    void *context;
    int64_t n, grain;
    _Alignas(64) _Atomic int64_t next; /* the first index that is not taken */
    _Alignas(64) _Atomic uint32_t gate;
    _Atomic uint32_t limit; /* workers with an index from here on stay out */
    _Alignas(64) _Atomic uint32_t epoch; /* workers sleep on it */
    _Atomic uint32_t sleepers;
    _Atomic uint32_t stop;
    _Atomic uint32_t requested; /* threads, including the caller; 0: not set */

    pthread_mutex_t lock; /* held by the caller for the duration of its job */
    uint32_t started;     /* workers; under lock */
    pthread_t workers[MAX_THREADS];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* 1 in a worker, and in a caller while it computes. */
static _Thread_local int inside;

static void wait_while(_Atomic uint32_t *word, uint32_t value)
{
#ifdef __linux__
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
#else
    struct timespec moment = {.tv_nsec = 50000};

    if (atomic_load(word) == value)
        nanosleep(&moment, NULL);
#endif
}

static void wake(_Atomic uint32_t *word, int count)
{
#ifdef __linux__
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
#else
    (void)word;
    (void)count;
#endif
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void take_chunks(void)
{
    cpu_task task = pool.task;
    void *context = pool.context;
    int64_t n = pool.n, grain = pool.grain;

    for (;;) {
        int64_t begin =
            atomic_fetch_add_explicit(&pool.next, grain, memory_order_relaxed);

        if (begin >= n)
            break;
        task(context, begin, n - begin < grain ? n : begin + grain);
    }
}

/* Counts the thread in if a job is open; true if it was. */
static bool enter(void)
{
    uint32_t gate = atomic_load_explicit(&pool.gate, memory_order_relaxed);

    while (gate & GATE_OPEN)
        if (atomic_compare_exchange_weak_explicit(
                &pool.gate, &gate, gate + GATE_STEP, memory_order_acquire,
                memory_order_relaxed))
            return true;
    return false;
}

static void leave(void)
{
    uint32_t before =
        atomic_fetch_sub_explicit(&pool.gate, GATE_STEP, memory_order_acq_rel);

    /* The caller has closed the gate, may sleep on it, and this was the last
     * worker. */
    if (before == GATE_STEP)
        wake(&pool.gate, 1);
}

static void *work(void *argument)
{
    uint32_t index = (uint32_t)(uintptr_t)argument;
    uint32_t seen = 0;

    inside = 1;
    while (!atomic_load(&pool.stop)) {
        uint32_t epoch =
            atomic_load_explicit(&pool.epoch, memory_order_acquire);
        int spins = 0;

        while (epoch == seen && spins++ < SPINS_WORKER) {
            relax();
            epoch = atomic_load_explicit(&pool.epoch, memory_order_acquire);
        }
        if (epoch == seen) {
            atomic_fetch_add(&pool.sleepers, 1);
            wait_while(&pool.epoch, seen);
            atomic_fetch_sub(&pool.sleepers, 1);
            continue;
        }
        seen = epoch;
        if (index < atomic_load_explicit(&pool.limit, memory_order_relaxed) &&
            enter()) {
            take_chunks();
            leave();
        }
    }
    return NULL;
}

/* A child only has this thread: the state of the pool is reset. */
static void after_fork_in_child(void)
{
    static const pthread_mutex_t initial = PTHREAD_MUTEX_INITIALIZER;

    pool.lock = initial;
    pool.started = 0;
    atomic_store(&pool.gate, 0);
    atomic_store(&pool.epoch, 0);
    atomic_store(&pool.sleepers, 0);
    atomic_store(&pool.stop, 0);
}

/* Before any thread can hold the lock. */
__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

static uint32_t available_processors(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        int count = CPU_COUNT(&set);

        if (count > 0)
            return (uint32_t)count;
    }
    return 1;
}

uint32_t cpu_thread_pool_threads(void)
{
    uint32_t requested =
        atomic_load_explicit(&pool.requested, memory_order_relaxed);

    if (requested == 0) {
        requested = available_processors();
        if (requested > MAX_THREADS)
            requested = MAX_THREADS;
        atomic_store_explicit(&pool.requested, requested, memory_order_relaxed);
    }
    return requested;
}

int cpu_thread_pool_set_threads(uint32_t threads)
{
    if (threads < 1 || threads > MAX_THREADS)
        return -1;
    atomic_store_explicit(&pool.requested, threads, memory_order_relaxed);
    return 0;
}

/* Under lock.  Threads that cannot be started are ignored. */
static void start_workers(uint32_t count)
{
    sigset_t all, before;
    pthread_attr_t attributes;

    if (pthread_attr_init(&attributes) != 0)
        return;
    pthread_attr_setstacksize(&attributes, STACK_SIZE);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.started < count) {
        if (pthread_create(&pool.workers[pool.started], &attributes, work,
                           (void *)(uintptr_t)pool.started) != 0)
            break;
        pool.started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

static void run_alone(int64_t n, int64_t grain, cpu_task task, void *context)
{
    int64_t begin;

    for (begin = 0; begin < n; begin += grain)
        task(context, begin, n - begin < grain ? n : begin + grain);
}

/* Closes the gate and waits until all who joined have left. */
static void finish(void)
{
    uint32_t gate = atomic_fetch_and_explicit(&pool.gate, ~(uint32_t)GATE_OPEN,
                                              memory_order_acq_rel) &
                    ~(uint32_t)GATE_OPEN;
    int spins = 0;

    while (gate != 0) {
        if (spins++ < SPINS_CALLER)
            relax();
        else
            wait_while(&pool.gate, gate);
        gate = atomic_load_explicit(&pool.gate, memory_order_acquire);
    }
}

void cpu_parallel_for(int64_t n, int64_t grain, cpu_task task, void *context)
{
    uint32_t threads, helpers;
    int64_t chunks;

    if (n <= 0)
        return;
    if (n <= grain) {
        task(context, 0, n);
        return;
    }
    threads = cpu_thread_pool_threads();
    if (threads == 1 || inside || pthread_mutex_trylock(&pool.lock) != 0) {
        run_alone(n, grain, task, context);
        return;
    }
    chunks = (n - 1) / grain + 1;
    helpers = chunks < (int64_t)threads ? (uint32_t)chunks - 1 : threads - 1;
    if (pool.started < helpers)
        start_workers(helpers);

    pool.task = task;
    pool.context = context;
    pool.n = n;
    pool.grain = grain;
    atomic_store_explicit(&pool.next, 0, memory_order_relaxed);
    atomic_store_explicit(&pool.limit, helpers, memory_order_relaxed);
    atomic_store_explicit(&pool.gate, GATE_OPEN, memory_order_release);
    atomic_fetch_add(&pool.epoch, 1);
    if (atomic_load(&pool.sleepers) != 0)
        /* The futex does not select which ones wake, so all do. */
        wake(&pool.epoch, INT_MAX);

    inside = 1;
    take_chunks();
    inside = 0;
    finish();
    pthread_mutex_unlock(&pool.lock);
}

void cpu_thread_pool_shutdown(void)
{
    uint32_t k;

    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.stop, 1);
    atomic_fetch_add(&pool.epoch, 1);
    wake(&pool.epoch, INT_MAX);
    for (k = 0; k < pool.started; k++)
        pthread_join(pool.workers[k], NULL);
    pool.started = 0;
    atomic_store(&pool.stop, 0);
    pthread_mutex_unlock(&pool.lock);
}
