/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Backward over devices with a failing call, or a lost device, at every
 * possible point: the caller gets an error, nothing hangs or leaks, the thread
 * state is restored, and the other device keeps working. */

#define SUITE_FORKS true

#include "support/devices.h"

#include "base/thread.h"

#include <libcore/memory.h>

#include "../../../plugins/sim/sim_control.h"

enum { N = 64, WALKS = 40 };

static const char *const names[2] = {"sim:0", "sim:1"};
static const sim_control *control;

static void find_control(void)
{
    const void *table;

    OK(core_device_interface(device_of("sim"), "sim.control", 1, &table));
    OK(core_device_interface(device_of("sim:1"), "sim.control", 1, &table));
    control = table;
}

static sim_counters counted(uint32_t index)
{
    sim_counters counters = {.struct_size = sizeof counters};

    OK(control->counters(index, &counters));
    return counters;
}

/* ----------------------------------------------------------------- walks -- */

static core_tensor *ones_on(const char *name)
{
    core_tensor *tensor;

    OK(core_full((int64_t[]){N}, 1, core_float(1), CORE_F64, device_of(name),
                 &tensor));
    return keep(tensor);
}

/* Leaves on both devices; each product on its own stream, with gradients that
 * are summed and some that cross devices. */
typedef struct model {
    core_stream *streams[4];
    core_stream *before[2];
    core_tensor *leaves[2];
    core_tensor *loss;
} model;

static void build(model *m)
{
    core_tensor *parts[4];

    for (int i = 0; i < 2; i++) {
        m->before[i] = core_stream_retain(current_of(names[i]));
        m->leaves[i] = leaf(ones_on(names[i]));
        OK(core_device_synchronize(device_of(names[i])));
    }
    for (int i = 0; i < 4; i++) {
        m->streams[i] = new_stream(names[i % 2]);
        OK(core_stream_set_current(m->streams[i]));
        parts[i] = mul(m->leaves[i % 2], m->leaves[i % 2]);
        if (i >= 2)
            parts[i] = mul(parts[i], on(parts[i - 1], names[i % 2]));
        for (int k = 0; k < 2; k++)
            OK(core_device_synchronize(device_of(names[k])));
    }
    m->loss = sum(add(on(parts[2], "cpu"), on(parts[3], "cpu")));
    for (int i = 0; i < 2; i++) {
        OK(core_stream_set_current(m->before[i]));
        OK(core_device_synchronize(device_of(names[i])));
        OK(core_memory_empty_cache(device_of(names[i])));
    }
}

static core_status walk(const model *m)
{
    double values[2][N];

    CORE_TRY(core_backward(&m->loss, 1, NULL, 0));
    for (int i = 0; i < 2; i++)
        CORE_TRY(core_tensor_read(core_tensor_grad(m->leaves[i]), values[i],
                                  sizeof values[i]));
    for (int i = 0; i < 2; i++)
        CORE_TRY(core_device_synchronize(device_of(names[i])));
    /* of x^2 y^2 + x^2 y^4 at 1 */
    for (int i = 0; i < N; i++) {
        ck_assert_double_eq(values[0][i], 4);
        ck_assert_double_eq(values[1][i], 6);
    }
    return CORE_OK;
}

static void check_restored(const model *m)
{
    core__thread *self = core__thread_self();

    ck_assert_ptr_null(self->engine);
    ck_assert_ptr_null(self->executor);
    ck_assert_ptr_null(self->device);
    ck_assert_uint_eq(self->backward_depth, 0);
    ck_assert(core_grad_mode());
    for (int i = 0; i < 2; i++)
        ck_assert_ptr_eq(current_of(names[i]), m->before[i]);
}

static void release_model(model *m)
{
    drop_all();
    for (int i = 0; i < 4; i++)
        core_stream_release(m->streams[i]);
    for (int i = 0; i < 2; i++)
        core_stream_release(m->before[i]);
}

/* Checks that everything this test allocated on the device was freed. */
static void check_no_leaks(uint32_t index)
{
    OK(core_device_synchronize(device_of(names[index])));
    OK(core_memory_empty_cache(device_of(names[index])));
    ck_assert_uint_eq(counted(index).blocks, 0);
    ck_assert_uint_eq(counted(index).bad_frees, 0);
    /* Streams are destroyed asynchronously; pinned memory keeps a few until it
     * is reused. */
    for (int i = 0; counted(index).streams > 16 && i < 20000; i++)
        usleep(1000);
    ck_assert_uint_le(counted(index).streams, 16);
    ck_assert_uint_le(counted(index).events, 64); /* the core caches some */
}

static void check_backward(void)
{
    model m;

    build(&m);
    OK(walk(&m));
    check_restored(&m);
    release_model(&m);
}

/* ---------------------------------------------------------------- faults -- */

/* The core recovers from a failed allocation, which it repeats after it has
 * emptied the cache, and from some failures of events: memory freed without one
 * is synchronized.  An event that orders streams is needed. */
static bool may_be_recovered(uint32_t kind)
{
    return kind == SIM_FAULT_ALLOC || kind == SIM_FAULT_EVENT ||
           kind == SIM_FAULT_RECORD;
}

/* Makes the nth call of a kind fail on one device; returns false if backward
 * made fewer calls.  Counts backwards that report an error. */
static bool fails_at(uint32_t index, uint32_t kind, uint64_t nth,
                     uint64_t *inout_reported)
{
    core_device *device = device_of(names[index]);
    uint64_t faults;
    core_status status;
    bool occurred;
    model m;

    build(&m);
    faults = counted(index).faults;
    OK(control->fault(index, kind, nth));
    core_error_set(CORE_ERROR_IO, "an earlier error");
    status = walk(&m);
    if (status == CORE_OK)
        ck_assert_str_eq(core_error_message(), "an earlier error");
    occurred = counted(index).faults > faults;
    OK(control->fault(index, kind, 0));
    check_restored(&m);
    if (!occurred || kind == SIM_FAULT_ALLOC)
        ck_assert_msg(status == CORE_OK, "fault %u, call %llu on %s: %s", kind,
                      (unsigned long long)nth, names[index],
                      core_error_message());
    else if (!may_be_recovered(kind))
        ck_assert_msg(status != CORE_OK, "fault %u, call %llu on %s: no error",
                      kind, (unsigned long long)nth, names[index]);
    if (status != CORE_OK)
        ck_assert_msg(
            strstr(core_error_message(),
                   kind == SIM_FAULT_LOST ? "lost" : "injected failure"),
            "fault %u, call %llu on %s: %s", kind, (unsigned long long)nth,
            names[index], core_error_message());
    *inout_reported += status != CORE_OK;
    /* The other device works; it may report once that it waited for work that
     * failed. */
    if (status != CORE_OK)
        core_device_synchronize(device_of(names[1 - index]));
    OK(core_device_synchronize(device_of(names[1 - index])));
    OK(core_device_status(device_of(names[1 - index])));
    if (core_device_synchronize(device) != CORE_OK)
        OK(core_device_reset(device));
    release_model(&m);
    check_no_leaks(0);
    check_no_leaks(1);
    return occurred;
}

START_TEST(fault_at_any_call_is_reported_without_leaks)
{
    uint64_t nth = 1;

    if (_i == SIM_FAULT_ALLOC) /* every tensor allocates from the device */
        OK(core_memory_configure(NULL, "caching:false"));
    find_control();
    for (int index = 0; index < 2; index++) {
        uint64_t reported = 0;

        for (nth = 1; fails_at((uint32_t)index, (uint32_t)_i, nth, &reported);)
            nth++;
        ck_assert_uint_gt(nth, 1);
        ck_assert((reported > 0) == (_i != SIM_FAULT_ALLOC));
        check_backward();
    }
}
END_TEST

/* --------------------------------------------------------- other devices -- */

static void *walk_often(void *argument)
{
    for (int i = 0; i < WALKS; i++)
        if (core_backward(argument, 1, NULL, CORE_RETAIN_GRAPH) != CORE_OK)
            return argument;
    return NULL;
}

typedef struct loser {
    core_tensor *loss;
    core_status status;
} loser;

static void *walk_until_lost(void *argument)
{
    loser *loser = argument;

    do
        loser->status = core_backward(&loser->loss, 1, NULL, CORE_RETAIN_GRAPH);
    while (loser->status == CORE_OK);
    return NULL;
}

/* Through a device and the host, so that worker threads take part. */
static core_tensor *through(core_tensor *x, const char *name)
{
    core_tensor *y = on(x, name);

    return sum(on(mul(y, y), "cpu"));
}

START_TEST(lost_device_fails_only_backward_that_uses_it)
{
    core_tensor *a = leaf(VECTOR(2, 1, 2)), *b = leaf(VECTOR(2, 3, 4));
    core_tensor *well = through(a, "sim:1");
    loser loser = {.loss = through(b, "sim:0")};
    pthread_t lost, others[2];
    void *failed;

    find_control();
    pthread_create(&lost, NULL, walk_until_lost, &loser);
    for (int i = 0; i < 2; i++)
        pthread_create(&others[i], NULL, walk_often, &well);
    OK(control->lose(0));
    pthread_join(lost, NULL);
    ck_assert_int_eq(loser.status, CORE_ERROR_DEVICE_LOST);
    for (int i = 0; i < 2; i++) {
        pthread_join(others[i], &failed);
        ck_assert_ptr_null(failed);
    }
    HOLDS(core_tensor_grad(a), 2, 2.0 * 2 * WALKS, 4.0 * 2 * WALKS);
    OK(core_device_reset(device_of("sim:0")));
    OK(core_tensor_set_grad(b, NULL));
    backward(through(b, "sim:0"));
    HOLDS(core_tensor_grad(b), 2, 6, 8);
}
END_TEST

/* A node that loses its device and then waits for it. */
static core_status lose_and_wait(void *context)
{
    (void)context;
    OK(control->hold(0));
    OK(control->lose(0));
    CORE_TRY(core_device_synchronize(device_of("sim:0")));
    return CORE_OK;
}

START_TEST(node_waiting_for_lost_device_returns_an_error)
{
    passing there = {.name = "waiting", .factor = 2, .inside = lose_and_wait};
    core_tensor *a = leaf(VECTOR(1, 1)), *y;

    find_control();
    y = sum(on(pass(&there, on(a, "sim:0")), "cpu"));
    FAILS(core_backward(&y, 1, NULL, 0), CORE_ERROR_DEVICE_LOST, "waiting",
          "lost");
    ck_assert_int_eq(there.runs, 1);
    OK(control->release(0));
    OK(core_device_reset(device_of("sim:0")));
    check_backward();
}
END_TEST

/* An index out of range occurs in the middle of backward, which continues; the
 * next wait reports it, and the streams stay usable. */
static core_status select_beyond(void *context)
{
    const int64_t beyond = 77, one = 1;
    core_tensor *which = NULL, *result = NULL, *from = context;
    core_status status;

    status = core_tensor_from_data(&beyond, CORE_I64, &one, 1,
                                   core_tensor_device(from), &which);
    if (status == CORE_OK)
        status = core_index_select(from, 0, which, &result);
    core_tensor_release(which);
    core_tensor_release(result);
    return status;
}

START_TEST(index_error_during_backward_is_reported_by_next_wait)
{
    core_tensor *from = ones_on("sim:0"), *a = leaf(VECTOR(1, 1)), *y;
    passing there = {.name = "beyond",
                     .factor = 2,
                     .inside = select_beyond,
                     .context = from};
    core_status status;

    find_control();
    y = sum(on(pass(&there, on(a, "sim:0")), "cpu"));
    status = core_backward(&y, 1, NULL, CORE_RETAIN_GRAPH);
    if (status == CORE_OK) /* otherwise the copy to the host waited first */
        status = core_device_synchronize(device_of("sim:0"));
    ck_assert_int_eq(status, CORE_ERROR_INDEX);
    ck_assert_ptr_nonnull(strstr(core_error_message(), "index_select"));
    ck_assert_ptr_nonnull(strstr(core_error_message(), "77"));
    OK(core_device_synchronize(device_of("sim:0")));
    OK(core_tensor_set_grad(a, NULL));
    there.inside = NULL;
    backward(y);
    HOLDS(core_tensor_grad(a), 1, 2);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        lost_device_fails_only_backward_that_uses_it,
        node_waiting_for_lost_device_returns_an_error,
        index_error_during_backward_is_reported_by_next_wait,
    };
    const suite_loop loops[] = {
        {fault_at_any_call_is_reported_without_leaks, SIM_FAULT_ALLOC,
         SIM_FAULT_STREAM},
        {fault_at_any_call_is_reported_without_leaks, SIM_FAULT_STREAM + 1,
         SIM_FAULT_WAIT + 1},
    };
    const test_suite suite = {
        .name = "autograd/engine_faults",
        .teardown = drop_all,
        SUITE_TESTS(tests),
        SUITE_LOOPS(loops),
    };

    setenv("LIBCORE_SIM_CHECK", "1", 0); /* races are errors too */
    return suite_run(&suite, 1);
}
