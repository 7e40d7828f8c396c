/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Modes and threads: backward in the engine's workers, nested backwards,
 * threads that end, forks. */

#include "support/children.h"
#include "support/devices.h"
#include "support/modes.h"

#include "base/thread.h"
#include "dispatch/dispatch.h"

#include <sched.h>
#include <stdatomic.h>

/* Counts the calls, and notes the threads. */
typedef struct counted {
    _Atomic uint32_t calls;
    _Atomic uint32_t elsewhere; /* in other threads than `home` */
    pthread_t home;
} counted;

static core_status count(core_call *call, const core_value *args,
                         uint32_t nargs, core_value *results, uint32_t nresults)
{
    counted *counted = call->user;

    atomic_fetch_add(&counted->calls, 1);
    if (!pthread_equal(pthread_self(), counted->home))
        atomic_fetch_add(&counted->elsewhere, 1);
    return core_redispatch_below(call, args, nargs, results, nresults);
}

static core_tensor *spread(passing *zero, passing *one, core_tensor *a)
{
    return sum(on(pass(one, on(pass(zero, on(a, "sim:0")), "sim:1")), "cpu"));
}

START_TEST(backward_runs_under_the_callers_modes_in_every_thread)
{
    core_tensor *a = leaf(VECTOR(2, 1, 2));
    passing zero = {.factor = 2}, one = {.factor = 3};

    for (uint32_t level = 0; level < 2; level++) {
        counted counted = {.home = pthread_self()};
        core_tensor *y = spread(&zero, &one, a);

        push(level, count, &counted);
        backward(y);
        ck_assert_uint_gt(counted.elsewhere, 0);
        ck_assert_uint_gt(counted.calls, counted.elsewhere);
        pop();
        counted.calls = 0;
        backward(spread(&zero, &one, a)); /* the workers' modes are gone */
        ck_assert_uint_eq(counted.calls, 0);
    }
    HOLDS(core_tensor_grad(a), 2, 24, 24);
}
END_TEST

static core_status refuse_in_worker(core_call *call, const core_value *args,
                                    uint32_t nargs, core_value *results,
                                    uint32_t nresults)
{
    const counted *counted = call->user;

    if (!pthread_equal(pthread_self(), counted->home))
        return core_error_set(CORE_ERROR_REFUSED, "not in this thread");
    return core_redispatch_below(call, args, nargs, results, nresults);
}

START_TEST(error_of_a_mode_in_a_worker_is_that_of_the_backward)
{
    core_tensor *a = leaf(VECTOR(2, 1, 2));
    passing zero = {.factor = 2}, one = {.factor = 3};
    counted counted = {.home = pthread_self()};
    core_tensor *y = spread(&zero, &one, a);

    push(CORE_MODE_BELOW_AUTOGRAD, refuse_in_worker, &counted);
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_REFUSED,
          "not in this thread");
    pop();
    backward(spread(&zero, &one, a));
}
END_TEST

static core_status push_and_pop(void *context)
{
    core_mode *mode;

    (void)context;
    CORE_TRY(core_mode_push(CORE_MODE_API, note, NULL, &mode));
    return core_mode_pop(mode);
}

static core_status push_and_pop_in_worker(void *context)
{
    FAILS(core_mode_pop(modes[0]), CORE_ERROR_INVALID_ARGUMENT,
          "this thread has not pushed");
    return push_and_pop(context);
}

static core_status only_push(void *context)
{
    core_mode *mode;

    (void)context;
    return core_mode_push(CORE_MODE_API, note, NULL, &mode);
}

START_TEST(functions_in_workers_pop_what_they_push)
{
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *y;
    passing zero = {.factor = 2, .inside = push_and_pop_in_worker};
    passing one = {.factor = 3};
    counted counted = {.home = pthread_self()};

    push(CORE_MODE_API, count, &counted);
    backward(spread(&zero, &one, a));
    ck_assert(!pthread_equal(zero.thread, pthread_self()));
    zero.inside = only_push;
    y = spread(&zero, &one, a);
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_INVALID_ARGUMENT,
          "without popping");
    seen[0] = '\0';
    zero.inside = NULL;
    backward(spread(&zero, &one, a));
    SEEN("");
}
END_TEST

START_TEST(functions_in_the_callers_thread_pop_what_they_push)
{
    passing inside = {.factor = 2, .inside = push_and_pop};
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *y;
    counted counted = {.home = pthread_self()};

    for (uint32_t level = 0; level < 2; level++) {
        push(level, count, &counted);
        inside.inside = push_and_pop;
        backward(sum(pass(&inside, a)));
        inside.inside = only_push;
        y = sum(pass(&inside, a));
        FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_INVALID_ARGUMENT,
              "without popping");
        seen[0] = '\0';
        counted.calls = 0;
        mul(a, a);
        SEEN("");
        ck_assert_uint_eq(counted.calls, 1);
        pop();
    }
}
END_TEST

/* A backward in a backward, on another thread beyond some depth. */
typedef struct deep {
    core_tensor *leaf;
    int left;
} deep;

static core_status deeper(void *context)
{
    deep *deep = context;
    passing inner = {.factor = 1, .inside = deeper, .context = deep};
    core_tensor *y;

    if (deep->left-- == 0)
        return CORE_OK;
    core_grad_mode_set(true);
    y = pass(&inner, deep->leaf);
    return core_backward(&y, 1, NULL, 0);
}

START_TEST(nested_backwards_on_fresh_stacks_have_the_modes)
{
    deep deep = {leaf(VECTOR(1, 1)), 70};
    passing first = {.factor = 1, .inside = deeper, .context = &deep};
    counted counted = {.home = pthread_self()};
    core_tensor *y = pass(&first, deep.leaf);

    push(CORE_MODE_BELOW_AUTOGRAD, count, &counted);
    backward(y);
    ck_assert_uint_gt(counted.elsewhere, 0);
}
END_TEST

/* --------------------------------------------------------------- threads -- */

static void *in_thread(void *argument)
{
    core_tensor *x = argument, *y;
    core_mode *mode;

    FAILS(core_mode_pop(modes[0]), CORE_ERROR_INVALID_ARGUMENT,
          "this thread has not pushed");
    OK(core_mul(x, x, &y));
    core_tensor_release(y);
    /* two modes that it does not pop */
    OK(core_mode_push(CORE_MODE_API, note, "thread:", &mode));
    OK(core_mode_push(CORE_MODE_BELOW_AUTOGRAD, note, "thread:", &mode));
    return mode;
}

START_TEST(modes_belong_to_their_thread_and_end_with_it)
{
    core_tensor *x = VECTOR(2, 1, 2);
    pthread_t thread;
    void *mode;

    seen[0] = '\0';
    push(CORE_MODE_API, note, "main:");
    ck_assert_int_eq(pthread_create(&thread, NULL, in_thread, x), 0);
    pthread_join(thread, &mode);
    SEEN("");
    mul(x, x);
    SEEN("main:mul.Tensor ");
    FAILS(core_mode_pop(mode), CORE_ERROR_INVALID_ARGUMENT,
          "this thread has not pushed");
}
END_TEST

enum { THREADS = 4, ROUNDS = 200 };

static void *works_under_a_mode(void *argument)
{
    counted counted = {.home = pthread_self()};
    core_tensor *x = argument, *y;
    core_mode *outer, *inner;

    for (int i = 0; i < ROUNDS; i++) {
        OK(core_mode_push(CORE_MODE_API, count, &counted, &outer));
        OK(core_mode_push(CORE_MODE_BELOW_AUTOGRAD, count, &counted, &inner));
        OK(core_mul(x, x, &y));
        core_tensor_release(y);
        OK(core_mode_pop(inner));
        OK(core_mode_pop(outer));
        OK(core_mul(x, x, &y));
        core_tensor_release(y);
    }
    ck_assert_uint_eq(counted.calls, 2 * ROUNDS);
    ck_assert_uint_eq(counted.elsewhere, 0);
    return NULL;
}

START_TEST(threads_have_modes_at_the_same_time)
{
    core_tensor *x = VECTOR(2, 1, 2);
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(
            pthread_create(&threads[i], NULL, works_under_a_mode, x), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}
END_TEST

static _Atomic bool enough;

static void *calls_under_a_mode(void *argument)
{
    counted counted = {.home = pthread_self()};
    core_tensor *x = argument, *y;
    core_mode *modes[2];

    OK(core_mode_push(CORE_MODE_API, count, &counted, &modes[0]));
    OK(core_mode_push(CORE_MODE_BELOW_AUTOGRAD, count, &counted, &modes[1]));
    while (!atomic_load(&enough)) {
        OK(core_mul(x, x, &y));
        core_tensor_release(y);
    }
    OK(core_mode_pop(modes[1]));
    OK(core_mode_pop(modes[0]));
    return NULL;
}

/* A profiler changes how every operator collects its keys (checked by TSan). */
START_TEST(calls_under_modes_run_while_a_profiler_starts_and_stops)
{
    core_tensor *x = VECTOR(2, 1, 2);
    pthread_t thread;

    atomic_store(&enough, false);
    ck_assert_int_eq(pthread_create(&thread, NULL, calls_under_a_mode, x), 0);
    for (int i = 0; i < 100; i++) {
        core__dispatch_observe(true);
        core__dispatch_observe(false);
        sched_yield();
    }
    atomic_store(&enough, true);
    pthread_join(thread, NULL);
}
END_TEST

typedef struct shared {
    core_tensor *y;
    counted *counted;
} shared;

static void *backward_under_a_mode(void *argument)
{
    shared *shared = argument;
    core_mode *mode;

    OK(core_mode_push(CORE_MODE_BELOW_AUTOGRAD, count, shared->counted, &mode));
    OK(core_backward(&shared->y, 1, NULL, 0));
    OK(core_mode_pop(mode));
    return NULL;
}

/* The workers are shared, and run nodes under each caller's modes in turn. */
START_TEST(backwards_of_two_threads_have_their_own_modes)
{
    counted counts[2] = {{.home = pthread_self()}, {.home = pthread_self()}};
    shared shared[2];
    pthread_t threads[2];

    for (int i = 0; i < 2; i++) {
        core_tensor *a = leaf(VECTOR(2, 1, 2)), *y = a;

        for (int k = 0; k < 5 * (i + 1); k++)
            y = on(mul(on(y, "sim:0"), on(a, "sim:0")), "sim:1");
        shared[i].y = sum(on(y, "cpu"));
        shared[i].counted = &counts[i];
    }
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL,
                                        backward_under_a_mode, &shared[i]),
                         0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_gt(counts[0].calls, 10);
    ck_assert_uint_gt(counts[1].calls, counts[0].calls * 3 / 2);
}
END_TEST

/* --------------------------------------------------------------- devices -- */

START_TEST(calls_on_devices_with_streams_and_plans_are_seen)
{
    core_tensor *x;

    setenv("LIBCORE_SIM_COMPILE", "1", 1); /* sim is loaded here */
    x = fresh_on(VECTOR(2, 1, 2), "sim:0");
    for (uint32_t level = 0; level < 2; level++)
        for (int i = 0; i < 3; i++) {
            core_tensor *y;

            seen[0] = '\0';
            push(level, note, NULL);
            y = mul(x, x);
            OK(core_neg_(y));
            SEEN("mul.Tensor neg_ ");
            pop();
            HOLDS(on(y, "cpu"), 2, -1, -4);
            SEEN("");
        }
}
END_TEST

/* ------------------------------------------------------------------ fork -- */

START_TEST(child_of_a_fork_has_the_modes_of_its_thread)
{
    core_tensor *x = VECTOR(2, 1, 2);
    core_mode *mode = push(CORE_MODE_API, note, "forked:");
    core_tensor *y;
    pid_t child;

    mul(x, x);
    seen[0] = '\0';
    fflush(NULL);
    child = fork();
    if (child == 0) {
        bool well;

        child_begins(20);
        well = core_mul(x, x, &y) == CORE_OK &&
               strcmp(seen, "forked:mul.Tensor ") == 0 &&
               core_mode_pop(mode) == CORE_OK && core_mul(x, x, &y) == CORE_OK;
        child_ends(well && strcmp(seen, "forked:mul.Tensor ") == 0);
    }
    wait_for_child(child);
    mul(x, x);
    SEEN("forked:mul.Tensor ");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        backward_runs_under_the_callers_modes_in_every_thread,
        error_of_a_mode_in_a_worker_is_that_of_the_backward,
        functions_in_workers_pop_what_they_push,
        functions_in_the_callers_thread_pop_what_they_push,
        nested_backwards_on_fresh_stacks_have_the_modes,
        modes_belong_to_their_thread_and_end_with_it,
        threads_have_modes_at_the_same_time,
        calls_under_modes_run_while_a_profiler_starts_and_stops,
        backwards_of_two_threads_have_their_own_modes,
        calls_on_devices_with_streams_and_plans_are_seen,
        child_of_a_fork_has_the_modes_of_its_thread,
    };
    const test_suite suite = {.name = "dispatch/mode_threads",
                              .teardown = pop_all,
                              SUITE_TESTS(tests)};

    return suite_run(&suite, 1);
}
