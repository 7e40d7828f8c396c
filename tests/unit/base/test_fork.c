/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Forks the process while other threads are anywhere in the library: the child
 * can use the host and exits normally. */

#define SUITE_FORKS true

#include "support/children.h"
#include "support/devices.h"
#include "support/effort.h"

#include "base/log.h"
#include "device/device.h"

#include <libcore/compiled.h>
#include <libcore/dispatch.h>
#include <libcore/memory.h>
#include <libcore/mode.h>
#include <libcore/random.h>
#include <libcore/settings.h>

#include <stdatomic.h>
#include <time.h>

static _Atomic bool enough;

/* For threads beside which the process forks: Check's assertions take a lock,
 * too. */
static void well(core_status status)
{
    if (status == CORE_OK)
        return;
    fprintf(stderr, "%s\n", core_error_message());
    abort();
}

/* Holds the locks of the device's and the host's memory most of the time. */
static void *take_and_give(void *context)
{
    core_device *const *devices = context;

    for (int64_t n = 1; !atomic_load(&enough); n = n % 90000 + 7001) {
        core_tensor *made[2];

        for (int i = 0; i < 2; i++)
            well(core_zeros(&n, 1, CORE_F64, devices[i], &made[i]));
        core_tensor_release(made[0]);
        core_tensor_release(made[1]);
        well(core_memory_empty_cache(devices[0]));
    }
    return NULL;
}

/* Does the same with streams, events and host memory. */
static void *order_and_copy(void *context)
{
    core_device *const *devices = context;

    while (!atomic_load(&enough)) {
        core_stream *stream, *mine;
        core_event *event;
        void *pinned[2];

        well(core_stream_current(devices[0], &mine));
        well(core_stream_create(devices[0], &stream));
        well(core_event_create(devices[0], 0, &event));
        well(core_event_record(event, stream));
        well(core_stream_wait_stream(mine, stream));
        for (int i = 0; i < 2; i++)
            well(core_host_memory_alloc(devices[i], 8192, &pinned[i]));
        for (int i = 0; i < 2; i++)
            well(core_host_memory_free(devices[i], pinned[i]));
        /* Otherwise work would be enqueued on the shared queue faster than it
         * is done. */
        well(core_event_synchronize(event));
        core_event_release(event);
        core_stream_release(stream);
    }
    return NULL;
}

#define NOT_HERE(call) FAILS(call, CORE_ERROR_DEVICE_LOST, "forked child")

typedef struct made_before {
    core_stream *stream;
    core_event *event;
    core_memory_pool *pool;
    core_tensor *there;
    void *pinned;
} made_before;

static void try_what_is_made_before(made_before *b)
{
    core_device *sim = device_of("sim:0");
    double value;

    NOT_HERE(core_stream_synchronize(b->stream));
    NOT_HERE(core_stream_query(b->stream));
    NOT_HERE(core_stream_wait_event(b->stream, b->event));
    NOT_HERE(core_event_record(b->event, b->stream));
    NOT_HERE(core_event_query(b->event));
    NOT_HERE(core_event_synchronize(b->event));
    NOT_HERE(core_tensor_read(b->there, &value, sizeof value));
    NOT_HERE(core_tensor_write(b->there, &value, sizeof value));
    NOT_HERE(core_fill_(b->there, core_float(2)));
    NOT_HERE(core_tensor_record_stream(b->there, b->stream));
    NOT_HERE(core_host_memory_free(sim, b->pinned));
    core_stream_release(b->stream);
    core_event_release(b->event);
    core_memory_pool_release(b->pool);
    drop(b->there);
}

static void try_the_device(void)
{
    core_device *sim = device_of("sim:0");
    core_memory_stats stats = {.struct_size = sizeof stats};
    int64_t n = 1000, large = 1000000;
    uint64_t unused, total;
    core_stream *stream;
    core_tensor *made;
    core_event *event;
    void *pinned;

    NOT_HERE(core_device_status(sim));
    NOT_HERE(core_device_synchronize(sim));
    NOT_HERE(core_device_reset(sim));
    NOT_HERE(core_device_memory(sim, &unused, &total));
    NOT_HERE(core_zeros(&n, 1, CORE_F64, sim, &made));
    NOT_HERE(core_zeros(&large, 1, CORE_F64, sim, &made));
    NOT_HERE(core_memory_empty_cache(sim));
    NOT_HERE(core_memory_get_stats(sim, &stats));
    NOT_HERE(core_memory_reset_peaks(sim));
    NOT_HERE(core_memory_configure(sim, ""));
    NOT_HERE(core_stream_create(sim, &stream));
    NOT_HERE(core_stream_create_priority(sim, 1, &stream));
    NOT_HERE(core_event_create(sim, 0, &event));
    NOT_HERE(core_host_memory_alloc(sim, 8192, &pinned));
}

static void try_the_host(void)
{
    core_device *cpu = device_of("cpu");
    core_tensor *a = leaf(VECTOR(1, 3));
    core_tensor *many;
    void *plain;

    backward(mul(a, a));
    HOLDS(core_tensor_grad(a), 1, 6);
    for (int64_t n = 1; n < 300000; n = 2 * n + 77) {
        OK(core_full(&n, 1, core_float(2), CORE_F64, cpu, &many));
        HOLDS(sum(keep(many)), 1, 2. * (double)n);
    }
    OK(core_host_memory_alloc(cpu, 8192, &plain));
    OK(core_host_memory_free(cpu, plain));
}

/* ------------------------------------------------------ work of every kind -- */

/* A leaf and an event of the host, shared by threads and children. */
static core_tensor *shared;
static core_event *moment;
static core_device *cpu, *sim;
static core_stream *of_host;

static void on_the_host(void)
{
    int64_t n = 3000, large = 70000;
    core_tensor *x, *y, *z;

    well(core_full(&n, 1, core_float(2), CORE_F64, cpu, &x));
    well(core_mul(x, shared, &y));
    well(core_sum(y, CORE_DTYPE_NONE, &z));
    well(core_backward(&z, 1, NULL, 0));
    core_tensor_release(z);
    core_tensor_release(y);
    core_tensor_release(x);
    /* runs in the thread pool */
    well(core_zeros(&large, 1, CORE_F64, cpu, &x));
    core_tensor_release(x);
    well(core_event_record(moment, of_host));
    well(core_event_query(moment));
}

static void by_chance(void)
{
    core_generator *generator;
    uint64_t seed, offset;
    int64_t n = 2000;
    core_tensor *x;

    well(core_empty(&n, 1, CORE_F32, cpu, -1, &x));
    well(core_uniform_(x, 0, 1, NULL));
    well(core_generator_create(3, &generator));
    well(core_normal_(x, 0, 1, generator));
    core_generator_state(NULL, &seed, &offset);
    core_generator_set_state(NULL, seed, offset);
    core_generator_release(generator);
    core_tensor_release(x);
}

static void swallow(void *context, uint32_t level, const char *component,
                    const char *text)
{
    const struct timespec while_others_wait = {0, 20000};

    (void)level;
    (void)component;
    if (!context || !*text)
        abort();
    nanosleep(&while_others_wait, NULL);
}

static void tell_and_set(void)
{
    const char *text;

    well(core_setting_set("LIBCORE_FORK_TEST", "on"));
    well(core_setting_get("LIBCORE_FORK_TEST", &text));
    well(core_setting_set("LIBCORE_FORK_TEST", NULL));
    well(core_memory_configure(NULL, "max_split_size_mb:40"));
    core_log_set_sink(swallow, &enough, CORE_LOG_DEBUG);
    for (int i = 0; i < 20; i++)
        core__log(CORE_LOG_DEBUG, "test", "this is number %d", i);
}

static core_status same(core_call *c, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    (void)c;
    (void)nargs;
    (void)nresults;
    results[0] = args[0];
    core_tensor_retain(args[0].u.tensor);
    return CORE_OK;
}

static void learn_and_forget(void)
{
    core_registration *op, *function;
    core_value argument = {CORE_VALUE_TENSOR, 0, {.tensor = NULL}};
    core_value result = {0};
    core_operator *found;
    char schema[80], name[48];

    /* Each thread registers its own operator. */
    snprintf(name, sizeof name, "forks::at%lx_%ld",
             (unsigned long)pthread_self(), (long)getpid());
    snprintf(schema, sizeof schema, "%s(Tensor self) -> Tensor", name);
    well(core_op_register(schema, &op));
    well(core_function_register(name, CORE_KEY_COMPOSITE_EXPLICIT, NULL, same,
                                NULL, &function));
    well(core_op_find(name, &found));
    well(core_empty(NULL, 0, CORE_F32, cpu, -1, &argument.u.tensor));
    well(core_op_call(found, &argument, 1, &result, 1));
    core_value_release(&result);
    core_value_release(&argument);
    core_registration_release(function);
    core_registration_release(op);
}

/* While it is recorded, each step takes the locks of compiled functions. */
static core_status steps(void *context, core_tensor *const *inputs,
                         size_t ninputs, core_tensor **outputs,
                         size_t *noutputs)
{
    (void)context;
    (void)ninputs;
    *noutputs = 1;
    for (int i = 0; i < 100; i++) {
        core_tensor *unused;

        CORE_TRY(core_relu(inputs[0], &unused));
        core_tensor_release(unused);
    }
    return core_relu(inputs[0], &outputs[0]);
}

static void compile_and_forget(void)
{
    core_compiled *compiled;
    core_tensor *x, *y;

    well(core_empty(NULL, 0, CORE_F32, cpu, -1, &x));
    well(core_compile(steps, NULL, NULL, &compiled));
    for (int i = 0; i < 2; i++) {
        well(core_compiled_call(compiled, &x, 1, &y, 1));
        core_tensor_release(y);
    }
    core_compiled_release(compiled);
    core_tensor_release(x);
}

static void over_devices(void)
{
    core_tensor *x, *y, *z;

    well(core_to_copy(shared, CORE_F64, sim, false, -1, &x));
    well(core_mul(x, x, &y));
    well(core_sum(y, CORE_DTYPE_NONE, &z));
    well(core_backward(&z, 1, NULL, 0));
    core_tensor_release(z);
    core_tensor_release(y);
    core_tensor_release(x);
}

static void (*const kinds[])(void) = {on_the_host,        by_chance,
                                      tell_and_set,       learn_and_forget,
                                      compile_and_forget, over_devices};

enum { KINDS = sizeof kinds / sizeof *kinds, HOST_KINDS = KINDS - 1 };

static void *again_and_again(void *context)
{
    void (*const *kind)(void) = context;

    while (!atomic_load(&enough))
        (*kind)();
    return NULL;
}

static void *once(void *context)
{
    void (*const *kind)(void) = context;

    (*kind)();
    return NULL;
}

/* -------------------------------------------------------------- the forks -- */

START_TEST(forked_child_can_use_only_the_host)
{
    core_device *sim = device_of("sim:0");
    core_device *devices[] = {sim, device_of("cpu")};
    made_before before = {.stream = new_stream("sim:0"),
                          .there = fresh_on(VECTOR(1, 1), "sim:0")};
    pthread_t threads[3];

    OK(core_event_create(sim, 0, &before.event));
    OK(core_event_record(before.event, before.stream));
    OK(core_memory_pool_create(sim, &before.pool));
    OK(core_host_memory_alloc(sim, 8192, &before.pinned));
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL,
                                        i ? take_and_give : order_and_copy,
                                        devices),
                         0);
    for (int i = 0; i < (effort_is_long() ? 200 : 15); i++) {
        pid_t child = fork();

        if (child == 0) {
            child_begins(200);
            try_what_is_made_before(&before);
            try_the_device();
            try_the_host();
            /* exit handlers of the libraries do not hang either */
            exit(CHILD_IS_WELL);
        }
        wait_for_child(child);
    }
    atomic_store(&enough, true);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    HOLDS(add(before.there, before.there), 1, 2);
    OK(core_host_memory_free(sim, before.pinned));
    core_memory_pool_release(before.pool);
    core_event_release(before.event);
    core_stream_release(before.stream);
}
END_TEST

/* Holds the lock of the host's pinned memory most of the time. */
static void *pin_and_unpin(void *context)
{
    (void)context;
    while (!atomic_load(&enough)) {
        void *pinned;

        well(core_host_memory_alloc(cpu, 8192, &pinned));
        well(core_host_memory_free(cpu, pinned));
    }
    return NULL;
}

START_TEST(child_can_use_pinned_host_memory)
{
    pthread_t threads[2];

    cpu = device_of("cpu");
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, pin_and_unpin, NULL),
                         0);
    for (int i = 0; i < (effort_is_long() ? 1000 : 30); i++) {
        pid_t child = fork();
        void *pinned;

        if (child == 0) {
            child_begins(200);
            well(core_host_memory_alloc(cpu, 8192, &pinned));
            well(core_host_memory_free(cpu, pinned));
            child_ends(true);
        }
        wait_for_child(child);
    }
    atomic_store(&enough, true);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}
END_TEST

/* Holds the lock of a counter most of the time. */
static void *count_again_and_again(void *context)
{
    core_op_counter *counter = context;
    core_op_counts counts;
    core_mode *mode;

    well(core_mode_push_counting(counter, &mode));
    while (!atomic_load(&enough)) {
        core_tensor *made;

        well(core_neg(shared, &made));
        core_tensor_release(made);
        for (int i = 0; i < 1000; i++)
            well(core_op_counter_get(counter, NULL, &counts));
    }
    well(core_mode_pop(mode));
    return NULL;
}

START_TEST(child_can_count_operators)
{
    core_op_counter *counter;
    pthread_t threads[2];
    core_mode *mode;

    shared = VECTOR(1, 3);
    OK(core_op_counter_create(&counter));
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(
            pthread_create(&threads[i], NULL, count_again_and_again, counter),
            0);
    OK(core_mode_push_counting(counter, &mode));
    for (int i = 0; i < (effort_is_long() ? 1000 : 30); i++) {
        pid_t child = fork();
        core_tensor *made;
        char *json;

        if (child == 0) {
            child_begins(200);
            well(core_neg(shared, &made)); /* under the forking thread's mode */
            core_tensor_release(made);
            well(core_op_counter_json(counter, &json));
            core_text_free(json);
            well(core_mode_pop(mode));
            child_ends(true);
        }
        wait_for_child(child);
    }
    OK(core_mode_pop(mode));
    atomic_store(&enough, true);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    core_op_counter_release(counter);
}
END_TEST

/* core_empty touches no memory, so a tensor cached by the thread would
 * succeed. */
START_TEST(child_gets_no_cached_memory_of_an_unusable_device)
{
    const int64_t n = 4;
    core_tensor *made;
    pid_t child;

    cpu = device_of("cpu");
    cpu->interfaces.fork_safe = (core_fork_safe_interface){0};
    /* the first iteration creates the thread's lists */
    for (int i = 0; i < 2; i++) {
        OK(core_empty(&n, 1, CORE_F32, cpu, -1, &made));
        core_tensor_release(made);
    }
    child = fork();
    if (child == 0) {
        child_begins(200);
        NOT_HERE(core_empty(&n, 1, CORE_F32, cpu, -1, &made));
        NOT_HERE(core_zeros(&n, 1, CORE_F32, cpu, &made));
        child_ends(true);
    }
    wait_for_child(child);
    OK(core_empty(&n, 1, CORE_F32, cpu, -1, &made));
    core_tensor_release(made);
}
END_TEST

/* In a child: everything that the host can do, in this thread and in new
 * ones. */
static void work_in_the_child(void)
{
    pthread_t threads[HOST_KINDS];

    for (int i = 0; i < HOST_KINDS; i++)
        kinds[i]();
    for (int i = 0; i < HOST_KINDS; i++)
        well(pthread_create(&threads[i], NULL, once, (void *)&kinds[i])
                 ? CORE_ERROR_INTERNAL
                 : CORE_OK);
    for (int i = 0; i < HOST_KINDS; i++)
        pthread_join(threads[i], NULL);
}

START_TEST(child_works_whatever_other_threads_were_doing)
{
    pthread_t threads[KINDS];

    cpu = device_of("cpu");
    sim = device_of("sim:0");
    of_host = current_of("cpu");
    shared =
        leaf(CALL(full, (int64_t[]){3000}, 1, core_float(3), CORE_F64, cpu));
    OK(core_event_create(cpu, 0, &moment));
    for (int i = 0; i < KINDS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, again_and_again,
                                        (void *)&kinds[i]),
                         0);
    for (int i = 0; i < (effort_is_long() ? 1000 : 30); i++) {
        pid_t child = fork();

        if (child == 0) {
            child_begins(200);
            work_in_the_child();
            child_ends(true);
        }
        wait_for_child(child);
    }
    atomic_store(&enough, true);
    for (int i = 0; i < KINDS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    core_log_set_sink(NULL, NULL, 0);
    core_event_release(moment);
}
END_TEST

static void every_other_mode_validated(void)
{
    every_other_mode();
    setenv("LIBCORE_INTERPOSERS", "validate", 1);
}

int main(void)
{
    const TTest *const tests[] = {
        forked_child_can_use_only_the_host,
        child_works_whatever_other_threads_were_doing,
        child_can_use_pinned_host_memory,
        child_gets_no_cached_memory_of_an_unusable_device,
    };
    const TTest *const of_counters[] = {child_can_count_operators};
    const test_suite suites[] = {
        {"base/fork, counters", NULL, drop_all, 0, SUITE_TESTS(of_counters)},
        {"base/fork, plain", NULL, drop_all, 0, SUITE_TESTS(tests)},
        {"base/fork, one queue", one_queue, drop_all, 0, SUITE_TESTS(tests)},
        {"base/fork, other modes", every_other_mode_validated, drop_all, 0,
         SUITE_TESTS(tests)},
    };

    setenv("LIBCORE_SIM_CHECK", "1", 0); /* races are errors too */
    return suite_run(suites, sizeof suites / sizeof *suites);
}
