/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Backward over several devices: which thread runs a node, errors, reentrancy,
 * threads. */

#include "support/children.h"
#include "support/devices.h"

#include "base/thread.h"
#include "base/keys.h"

#include <signal.h>

/* a * a on one device, times b on another, summed on the host. */
static core_tensor *spread(core_tensor *a, core_tensor *b, const char *first,
                           const char *second)
{
    core_tensor *x = on(a, first);
    core_tensor *y = on(mul(x, x), second);

    return sum(on(mul(y, on(b, second)), "cpu"));
}

START_TEST(gradients_across_devices_equal_single_device_gradients)
{
    core_tensor *a = leaf(VECTOR(3, 1, 2, 3)), *b = leaf(VECTOR(3, 4, 5, 6));

    backward(spread(a, b, "sim:0", "sim:1"));
    HOLDS(core_tensor_grad(a), 3, 8, 20, 36);
    HOLDS(core_tensor_grad(b), 3, 1, 4, 9);
    backward(spread(a, b, "sim:1", "cpu"));
    HOLDS(core_tensor_grad(a), 3, 16, 40, 72);
    backward(spread(a, b, "sim:1", "sim:1"));
    HOLDS(core_tensor_grad(b), 3, 3, 12, 27);
}
END_TEST

START_TEST(leaf_gets_its_gradient_on_its_own_device)
{
    core_tensor *a = leaf(fresh_on(VECTOR(2, 2, 3), "sim:0"));
    core_tensor *b = leaf(fresh_on(VECTOR(2, 5, 7), "sim:1"));

    for (int i = 1; i <= 3; i++) {
        backward(sum(mul(on(mul(a, a), "sim:1"), b)));
        ck_assert_ptr_eq(core_tensor_device(core_tensor_grad(a)),
                         device_of("sim:0"));
        HOLDS(core_tensor_grad(a), 2, 20.0 * i, 42.0 * i);
        HOLDS(core_tensor_grad(b), 2, 4.0 * i, 9.0 * i);
    }
}
END_TEST

START_TEST(second_derivatives_cross_devices)
{
    core_tensor *a = leaf(VECTOR(1, 2)), *b = leaf(VECTOR(1, 5));
    core_tensor *y = spread(a, b, "sim:0", "sim:1"), *first, *second;

    OK(core_grad(&y, 1, NULL, &a, 1, CORE_CREATE_GRAPH, &first));
    HOLDS(keep(first), 1, 20);
    OK(core_grad(&first, 1, NULL, &b, 1, CORE_RETAIN_GRAPH, &second));
    HOLDS(keep(second), 1, 4);
    OK(core_grad(&first, 1, NULL, &a, 1, 0, &second));
    HOLDS(keep(second), 1, 10);
}
END_TEST

/* -------------------------------------------------------- worker threads -- */

START_TEST(each_device_has_a_worker_and_the_caller_runs_host_nodes)
{
    passing host = {.factor = 2}, zero = {.factor = 3}, one = {.factor = 5};
    core_tensor *a = leaf(VECTOR(1, 1));
    pthread_t first;

    for (int i = 0; i < 2; i++) {
        core_tensor *x = on(pass(&host, a), "sim:0");

        backward(sum(pass(&one, on(pass(&zero, x), "sim:1"))));
        ck_assert(pthread_equal(host.thread, pthread_self()));
        ck_assert(!pthread_equal(zero.thread, pthread_self()));
        ck_assert(!pthread_equal(one.thread, pthread_self()));
        ck_assert(!pthread_equal(zero.thread, one.thread));
        if (i == 0)
            first = zero.thread;
        else
            ck_assert(pthread_equal(zero.thread, first)); /* it is reused */
    }
    HOLDS(core_tensor_grad(a), 1, 60);
}
END_TEST

START_TEST(caller_runs_single_device_graph)
{
    core_tensor *a = leaf(fresh_on(VECTOR(1, 1), "sim:1"));
    passing there = {.factor = 2};

    backward(sum(pass(&there, a)));
    ck_assert(pthread_equal(there.thread, pthread_self()));
    HOLDS(core_tensor_grad(a), 1, 2);
}
END_TEST

typedef struct seen {
    core__thread *from; /* state of the thread that ran the node */
    uint64_t included, excluded;
    core_device *device;
    core_stream *current;
    uint32_t call_flags;
    bool grad_mode, inference, signals;
} seen;

static core_status look(void *context)
{
    core__thread *self = core__thread_self();
    seen *seen = context;
    sigset_t blocked;

    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    seen->from = self;
    seen->included = self->included;
    seen->excluded = self->excluded;
    seen->grad_mode = core_grad_mode();
    seen->inference = self->inference;
    seen->call_flags = self->call_flags;
    seen->device = self->device;
    seen->signals = !sigismember(&blocked, SIGTERM);
    return core_stream_current(device_of("sim:0"), &seen->current);
}

START_TEST(worker_has_state_of_caller_and_stream_of_node)
{
    core_stream *stream = new_stream("sim:0"), *before = current_of("sim:0");
    core__thread *self = core__thread_self();
    core_tensor *a = leaf(VECTOR(1, 1)), *x, *y;
    passing there = {.factor = 2, .inside = look};
    seen seen = {0};

    there.context = &seen;
    core_stream_retain(before);
    x = on(a, "sim:0");
    OK(core_stream_wait_stream(stream, before));
    OK(core_stream_set_current(stream));
    y = sum(pass(&there, x));
    OK(core_stream_wait_stream(before, stream));
    OK(core_stream_set_current(before));
    self->call_flags |= CORE_CALL_DETERMINISTIC;
    self->device = device_of("sim:1");
    for (int create = 0; create < 2; create++) {
        OK(core_backward(&y, 1, NULL,
                         create ? CORE_CREATE_GRAPH : CORE_RETAIN_GRAPH));
        ck_assert_ptr_ne(seen.from, self);
        ck_assert_ptr_eq(seen.current, stream);
        ck_assert_uint_eq(seen.included, self->included);
        ck_assert_uint_eq(seen.excluded, self->excluded | CORE__KEY_AUTOCAST);
        ck_assert_int_eq(seen.grad_mode, create);
        ck_assert(!seen.inference);
        ck_assert(seen.call_flags & CORE_CALL_DETERMINISTIC);
        ck_assert(!seen.signals);
        ck_assert_ptr_eq(seen.device, self->device);
    }
    ck_assert_ptr_eq(current_of("sim:0"), before);
    OK(core_tensor_set_grad(a, NULL));
    self->call_flags &= ~CORE_CALL_DETERMINISTIC;
    self->device = NULL;
    core_stream_release(before);
    core_stream_release(stream);
}
END_TEST

START_TEST(released_stream_still_runs_its_nodes)
{
    core_stream *stream = new_stream("sim:0"), *before = current_of("sim:0");
    core_tensor *a, *y;

    core_stream_retain(before);
    OK(core_stream_set_current(stream));
    a = leaf(fresh_on(VECTOR(2, 1, 2), "sim:0"));
    y = sum(mul(a, a));
    OK(core_stream_wait_stream(before, stream));
    OK(core_stream_set_current(before));
    core_stream_release(stream);
    backward(y);
    HOLDS(core_tensor_grad(a), 2, 2, 4);
    core_stream_release(before);
}
END_TEST

/* ---------------------------------------------------------------- errors -- */

static core_status refuse(void *context)
{
    (void)context;
    return core_error_set(CORE_ERROR_SHAPE, "this one never");
}

START_TEST(worker_error_reaches_the_caller)
{
    core_tensor *a = leaf(VECTOR(1, 1)), *y;
    passing before = {.factor = 2};
    passing fails = {.name = "stubborn", .factor = 3, .inside = refuse};

    y = sum(on(pass(&fails, on(pass(&before, a), "sim:1")), "cpu"));
    for (int i = 0; i < 3; i++) {
        FAILS(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH), CORE_ERROR_SHAPE,
              "stubborn", "this one never");
        ck_assert_int_eq(before.runs, 0);
        ck_assert_ptr_null(core_tensor_grad(a));
        ck_assert_ptr_null(core__thread_self()->engine);
        ck_assert_ptr_null(core__thread_self()->executor);
    }
    fails.inside = NULL;
    backward(y);
    HOLDS(core_tensor_grad(a), 1, 6);
}
END_TEST

START_TEST(one_of_two_device_errors_is_reported)
{
    core_tensor *a = leaf(VECTOR(1, 1)), *y;
    passing zero = {.name = "stubborn", .factor = 3, .inside = refuse};
    passing one = zero;

    y = sum(add(on(pass(&zero, on(a, "sim:0")), "cpu"),
                on(pass(&one, on(a, "sim:1")), "cpu")));
    for (int i = 0; i < 50; i++)
        FAILS(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH), CORE_ERROR_SHAPE,
              "stubborn", "this one never");
}
END_TEST

/* ------------------------------------------------------------ reentrancy -- */

typedef struct inner {
    core_tensor *leaf;
    int depth;
    const char *devices[2];
} inner;

static core_status walk_inside(void *context)
{
    inner *inner = context;
    passing passing = {.factor = 2, .inside = walk_inside, .context = inner};
    size_t kept = pooled;
    core_tensor *y;
    core_status status;
    bool before;

    if (inner->depth == 0)
        return CORE_OK;
    before = core_grad_mode_set(true);
    inner->depth--;
    y = on(inner->leaf, inner->devices[inner->depth % 2]);
    y = sum(on(pass(&passing, y), inner->devices[(inner->depth + 1) % 2]));
    status = core_backward(&y, 1, NULL, 0);
    while (pooled > kept)
        core_tensor_release(pool[--pooled]);
    core_grad_mode_set(before);
    return status;
}

START_TEST(nested_backward_in_workers_works_at_any_depth)
{
    core_tensor *a = leaf(VECTOR(1, 1));
    inner inner = {a, 300, {"sim:0", "sim:1"}};

    OK(walk_inside(&inner));
    HOLDS(core_tensor_grad(a), 1, 600);
}
END_TEST

START_TEST(nested_backward_on_own_stream_works_at_any_depth)
{
    core_tensor *a = leaf(fresh_on(VECTOR(1, 1), "sim:0"));
    inner inner = {a, 150, {"sim:0", "sim:0"}};
    core_stream *stream = new_stream("sim:0");

    OK(core_stream_set_current(stream));
    OK(walk_inside(&inner));
    HOLDS(core_tensor_grad(a), 1, 300);
    core_stream_release(stream);
}
END_TEST

/* Two threads: each one's node waits on its worker until the other's runs, and
 * then needs the other's worker. */
typedef struct meeting {
    pthread_barrier_t *barrier;
    const char *devices[2]; /* own, the other's */
    core_tensor *leaf;
    core_status status;
} meeting;

static core_status need_the_other(void *context)
{
    meeting *meeting = context;
    core_tensor *x, *y, *z, *w;
    core_status status;
    bool before = core_grad_mode_set(true);

    pthread_barrier_wait(meeting->barrier);
    OK(core_to_copy(meeting->leaf, CORE_F64, device_of(meeting->devices[1]),
                    false, -1, &x));
    OK(core_mul(x, x, &y));
    OK(core_to_copy(y, CORE_F64, device_of(meeting->devices[0]), false, -1,
                    &z));
    OK(core_sum(z, CORE_DTYPE_NONE, &w));
    status = core_backward(&w, 1, NULL, 0);
    core_tensor_release(w);
    core_tensor_release(z);
    core_tensor_release(y);
    core_tensor_release(x);
    core_grad_mode_set(before);
    return status;
}

static void *run_meeting(void *argument)
{
    meeting *meeting = argument;
    passing passing = {
        .factor = 1, .inside = need_the_other, .context = meeting};
    core_function_info info = {.struct_size = sizeof info,
                               .name = "meeting",
                               .backward = passing_backward,
                               .context = &passing};
    core_tensor *x, *y;

    OK(core_to_copy(meeting->leaf, CORE_F64, device_of(meeting->devices[0]),
                    false, -1, &x));
    core_grad_mode_set(false);
    OK(core_mul_scalar(x, core_float(1), &y));
    core_grad_mode_set(true);
    OK(core_function_record(&info, &x, 1, NULL, 0, &y, 1, NULL));
    meeting->status = core_backward(&y, 1, NULL, 0);
    core_tensor_release(y);
    core_tensor_release(x);
    return NULL;
}

START_TEST(nested_backward_on_each_others_devices_does_not_deadlock)
{
    for (int i = 0; i < 20; i++) {
        pthread_barrier_t barrier;
        pthread_t threads[2];
        meeting meetings[2] = {
            {&barrier, {"sim:0", "sim:1"}, leaf(VECTOR(1, 3)), -1},
            {&barrier, {"sim:1", "sim:0"}, leaf(VECTOR(1, 5)), -1}};

        pthread_barrier_init(&barrier, NULL, 2);
        for (int t = 0; t < 2; t++)
            pthread_create(&threads[t], NULL, run_meeting, &meetings[t]);
        for (int t = 0; t < 2; t++) {
            pthread_join(threads[t], NULL);
            ck_assert_int_eq(meetings[t].status, CORE_OK);
        }
        HOLDS(core_tensor_grad(meetings[0].leaf), 1, 7);
        HOLDS(core_tensor_grad(meetings[1].leaf), 1, 11);
        pthread_barrier_destroy(&barrier);
    }
}
END_TEST

/* --------------------------------------------------------------- threads -- */

enum { WALKS = 50 };

static void *walk(void *argument)
{
    for (int i = 0; i < WALKS; i++)
        if (core_backward(argument, 1, NULL, CORE_RETAIN_GRAPH) != CORE_OK)
            return argument;
    return NULL;
}

START_TEST(threads_may_run_one_graph_across_devices_concurrently)
{
    core_tensor *a = leaf(VECTOR(1, 1)), *y = a;
    pthread_t threads[4];
    void *failed;

    for (int i = 0; i < 4; i++)
        y = on(mul(on(y, "sim:0"), on(a, "sim:0")), i % 2 ? "cpu" : "sim:1");
    y = sum(y);
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, walk, &y);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &failed);
        ck_assert_ptr_null(failed);
    }
    HOLDS(core_tensor_grad(a), 1, 5.0 * 4 * WALKS);
}
END_TEST

/* Many gradients reach one node from several workers at once. */
START_TEST(gradients_from_several_workers_are_summed_once)
{
    core_tensor *a = leaf(VECTOR(1, 1)), *x = mul(a, a), *y = NULL;
    const char *devices[] = {"sim:0", "sim:1", "cpu"};

    for (int i = 0; i < 30; i++) {
        core_tensor *part = on(x, devices[i % 3]);

        part = on(mul(part, part), "cpu");
        y = y ? add(y, part) : part;
    }
    for (int i = 1; i <= 20; i++) {
        OK(core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH));
        HOLDS(core_tensor_grad(a), 1, 120.0 * i);
    }
}
END_TEST

/* ------------------------------------------------------------------ fork -- */

START_TEST(forked_child_runs_backward_on_the_host)
{
    core_tensor *a = leaf(VECTOR(1, 3)), *y;
    pid_t child;

    backward(spread(a, a, "sim:0", "sim:1"));
    child = fork();
    if (child == 0) {
        child_begins(200);
        OK(core_tensor_set_grad(a, NULL));
        backward(mul(a, a));
        HOLDS(core_tensor_grad(a), 1, 6);
        child_ends(true);
    }
    wait_for_child(child);
    /* The parent works as before. */
    y = spread(a, a, "sim:0", "sim:1");
    backward(y);
    HOLDS(core_tensor_grad(a), 1, 54);
}
END_TEST

static core_status fork_here(void *context)
{
    pid_t *child = context;

    *child = fork();
    if (*child == 0)
        child_begins(200);
    return CORE_OK;
}

START_TEST(child_forked_during_backward_gets_an_error)
{
    core_tensor *a = leaf(VECTOR(1, 3)), *y;
    pid_t child = -1;
    passing forks = {.factor = 2, .inside = fork_here, .context = &child};
    core_status status;

    y = on(pass(&forks, on(on(a, "sim:0"), "cpu")), "sim:1");
    status = core_backward(&y, 1, NULL, 0);
    if (child == 0)
        child_ends(status != CORE_OK && strstr(core_error_message(), "forked"));
    OK(status);
    HOLDS(core_tensor_grad(a), 1, 2);
    wait_for_child(child);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        gradients_across_devices_equal_single_device_gradients,
        leaf_gets_its_gradient_on_its_own_device,
        second_derivatives_cross_devices,
        each_device_has_a_worker_and_the_caller_runs_host_nodes,
        caller_runs_single_device_graph,
        worker_has_state_of_caller_and_stream_of_node,
        released_stream_still_runs_its_nodes,
        worker_error_reaches_the_caller,
        one_of_two_device_errors_is_reported,
        nested_backward_in_workers_works_at_any_depth,
        nested_backward_on_own_stream_works_at_any_depth,
        nested_backward_on_each_others_devices_does_not_deadlock,
        threads_may_run_one_graph_across_devices_concurrently,
        gradients_from_several_workers_are_summed_once,
        forked_child_runs_backward_on_the_host,
        child_forked_during_backward_gets_an_error,
    };
    const test_suite suites[] = {
        {"autograd/engine_devices, plain", NULL, drop_all, 0,
         SUITE_TESTS(tests)},
        {"autograd/engine_devices, one queue", one_queue, drop_all, 0,
         SUITE_TESTS(tests)},
        {"autograd/engine_devices, other modes", every_other_mode, drop_all, 0,
         SUITE_TESTS(tests)},
    };

    setenv("LIBCORE_SIM_CHECK", "1", 0); /* makes races errors */
    return suite_run(suites, sizeof suites / sizeof *suites);
}
