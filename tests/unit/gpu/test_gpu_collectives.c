/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Communicators of the plugins cuda and rocm on fake libraries
 * (tests/fixtures/gpu/nccl.c): libraries that are absent, old or fail, ranks that
 * end, stop or differ, and the order of streams. */

#include "support/gpu_collectives.h"
#include "support/ranks.h"

#include "comm/comm.h"

#include <libcore/reducer.h>
#include <libcore/stream.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

static const gpu_collectives_vendor *vendor;
static const char *library; /* NULL: none */

static void prepare(void)
{
    ck_assert(gpu_open_fake(vendor->driver, RTLD_GLOBAL));
    if (library)
        ck_assert_msg(gpu_open_fake(library, RTLD_GLOBAL), "%s", dlerror());
}

/* Whether the library was called to end its work. */
static bool was_aborted(void)
{
    const _Atomic unsigned *aborts = dlsym(RTLD_DEFAULT, "fake_aborts");

    ck_assert_ptr_nonnull(aborts);
    return atomic_load(aborts) == 1;
}

/* False, and the test is skipped, if it cannot run. */
static bool use_vendor(int number)
{
    vendor = &gpu_vendors[number];
    library = vendor->library;
    rank_engine = vendor->engine;
    rank_device = vendor->device;
    rank_prepare = prepare;
    if (gpu_find_plugin(vendor))
        return true;
    suite_skip("the plugin %s or its fake library is not built",
               vendor->device);
    return false;
}

/* A communicator of this process alone. */
static core_status create(core_comm **out_comm)
{
    core_comm_options options = rank_options(0, 1);

    return core_comm_create(rank_device_find(), &options, out_comm);
}

static void expect_failure(core_comm *comm, core_status status,
                           core_status expected)
{
    status = rank_wait(comm, status);
    ck_assert_msg(status == expected, "%s: %s", core_status_name(status),
                  core_error_message());
    ck_assert_int_eq(core_comm_error(comm), expected);
}

static void expect_abort(core_comm *comm, core_status status,
                         core_status expected)
{
    expect_failure(comm, status, expected);
    ck_assert(was_aborted());
}

static void expect_sum(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2);
    float sum = 0;

    for (uint32_t r = 0; r < core_comm_size(comm); r++)
        sum += (float)(r + 1);
    OK(core_all_reduce_(comm, x, CORE_REDUCE_SUM));
    rank_expect(x, (float[]){sum, 2 * sum}, 2);
    core_tensor_release(x);
}

/* ------------------------------------------------------------ libraries -- */

/* core-info shows the reason, too. */
static void expect_reason(const char *text)
{
    core_comm_engine_information found;
    core_comm *comm;
    size_t i = 0;

    ck_assert_int_eq(create(&comm), CORE_ERROR_NOT_FOUND);
    MESSAGE(text);
    do {
        found = (core_comm_engine_information){.struct_size = sizeof found};
        OK(core_comm_engine_describe(i++, &found));
    } while (strcmp(found.name, vendor->engine) != 0);
    ck_assert_uint_eq(found.usable, 0);
    ck_assert_msg(strstr(found.reason, text) != NULL, "%s", found.reason);
}

/* After this process has closed the library, no one has it open. */
static void expect_closed(void)
{
    void *handle = dlopen(vendor->name, RTLD_NOW | RTLD_NOLOAD);

    ck_assert_ptr_nonnull(handle);
    dlclose(handle);
    dlclose(handle); /* that of gpu_open_fake */
    ck_assert_ptr_null(dlopen(vendor->name, RTLD_NOW | RTLD_NOLOAD));
}

START_TEST(absent_library_is_named)
{
    char text[100];

    if (!use_vendor(_i))
        return;
    if (dlopen(vendor->name, RTLD_NOW | RTLD_LOCAL)) {
        suite_skip("this machine has %s", vendor->name);
        return;
    }
    library = NULL;
    prepare();
    snprintf(text, sizeof text, "no %s was found (%s: cannot open",
             vendor->title, vendor->name);
    expect_reason(text);
    expect_reason("; LD_LIBRARY_PATH may name its folder");
}
END_TEST

START_TEST(library_that_is_too_old_is_refused)
{
    char text[100];

    if (!use_vendor(_i))
        return;
    setenv("FAKE_NCCL_VERSION", "2708", 1);
    prepare();
    snprintf(text, sizeof text,
             "%s is version 2708; %s 2.10 or later is needed", vendor->name,
             vendor->title);
    expect_reason(text);
    expect_closed();
}
END_TEST

START_TEST(engine_without_a_device_says_so)
{
    core_comm_engine_information found = {.struct_size = sizeof found};

    if (!use_vendor(_i))
        return;
    setenv("GPUEMU_DEVICES", "0", 1);
    prepare();
    for (size_t i = 0; strcmp(found.name ? found.name : "", vendor->engine);
         i++)
        OK(core_comm_engine_describe(i, &found));
    ck_assert_uint_eq(found.usable, 0);
    ck_assert_msg(strstr(found.reason, "no device") != NULL, "%s",
                  found.reason);
}
END_TEST

/* Of 2.10: it blocks while ranks connect. */
START_TEST(old_library_without_later_functions_works)
{
    if (!use_vendor(0))
        return;
    library = vendor->old;
    on_ranks(2, expect_sum);
}
END_TEST

START_TEST(four_ranks_sum)
{
    if (!use_vendor(_i))
        return;
    on_ranks(4, expect_sum);
}
END_TEST

START_TEST(device_of_another_plugin_is_refused)
{
    core_comm *comm;

    if (!use_vendor(_i))
        return;
    prepare();
    rank_device_find();
    rank_device = "cpu";
    ck_assert_int_eq(create(&comm), CORE_ERROR_UNSUPPORTED);
    MESSAGE("moves the memory of its own plugin's devices; the device is "
            "\"cpu\"");
}
END_TEST

/* -------------------------------------------------------------- streams -- */

static void sleep_a_little(void *context)
{
    (void)context;
    usleep(20000);
}

/* The collective comes after what was enqueued before it, and before what
 * follows; the host waits for neither. */
static void in_order(core_comm *comm)
{
    core_device *device = core_comm_device(comm);
    core_tensor *x = rank_numbers(comm, 2), *y;
    core_stream *stream;

    OK(core_stream_create(device, &stream));
    OK(core_device_synchronize(device));
    OK(core_stream_set_current(stream));
    OK(core_stream_callback(stream, sleep_a_little, NULL, NULL));
    OK(core_fill_(x, core_float(core_comm_rank(comm) + 1)));
    OK(core_all_reduce_(comm, x, CORE_REDUCE_SUM));
    OK(core_mul_scalar_(x, core_float(10)));
    OK(core_all_reduce(comm, x, CORE_REDUCE_MAX, &y));
    OK(core_fill_(x, core_float(0)));
    rank_expect(y, (float[]){30, 30}, 2);
    OK(core_comm_synchronize(comm));
    core_tensor_release(x);
    core_tensor_release(y);
    core_stream_release(stream);
}

START_TEST(collectives_are_in_the_order_of_the_stream)
{
    if (!use_vendor(_i))
        return;
    on_ranks(2, in_order);
}
END_TEST

/* The average of the gradients of all ranks, on the device. */
static void averages(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2), *w = rank_numbers(comm, 2);
    core_tensor *product, *loss;
    core_reducer *reducer;

    OK(core_tensor_set_requires_grad(w, true));
    OK(core_reducer_create(comm, &w, 1, NULL, &reducer));
    OK(core_mul(x, w, &product));
    OK(core_sum(product, CORE_DTYPE_NONE, &loss));
    OK(core_reducer_backward(reducer, &loss, 1, NULL, 0));
    rank_expect(core_tensor_grad(w), (float[]){1.5f, 3}, 2);
    core_tensor_release(product);
    core_tensor_release(loss);
    core_tensor_release(x);
    core_tensor_release(w);
    core_reducer_release(reducer);
}

START_TEST(reducer_averages_gradients)
{
    if (!use_vendor(_i))
        return;
    on_ranks(2, averages);
}
END_TEST

/* --------------------------------------------------------------- groups -- */

/* A number of the fake library. */
static unsigned fake_number(const char *name)
{
    const _Atomic unsigned *number = dlsym(RTLD_DEFAULT, name);

    ck_assert_ptr_nonnull(number);
    return atomic_load(number);
}

/* The library starts the last call of a group first.  The sum of sums uses a
 * result, and the broadcast writes what others read, so that each begins another
 * group of the library. */
static void make_a_group(core_comm *comm)
{
    float rank = (float)core_comm_rank(comm);
    core_tensor *x = rank_numbers(comm, 2), *sum, *all, *swapped, *part;

    OK(core_comm_group_begin(comm));
    OK(core_all_reduce(comm, x, CORE_REDUCE_SUM, &sum));
    OK(core_all_gather(comm, x, &all));
    OK(core_all_to_all(comm, x, &swapped));
    OK(core_reduce_scatter(comm, x, CORE_REDUCE_SUM, &part));
    OK(core_all_reduce_(comm, sum, CORE_REDUCE_SUM));
    OK(core_all_reduce_(comm, all, CORE_REDUCE_MAX));
    OK(core_barrier(comm));
    OK(core_broadcast(comm, x, 1));
    OK(core_comm_group_end(comm));
    rank_expect(sum, (float[]){6, 12}, 2);
    rank_expect(all, (float[]){1, 2, 2, 4}, 4);
    rank_expect(swapped, (float[]){rank + 1, 2 * (rank + 1)}, 2);
    rank_expect(part, (float[]){3 * (rank + 1)}, 1);
    rank_expect(x, (float[]){2, 4}, 2);
    OK(core_comm_synchronize(comm));
    ck_assert_uint_eq(core_comm_sequence(comm), 8);
    ck_assert_uint_eq(fake_number("fake_groups"), 2);
    ck_assert_uint_eq(fake_number("fake_grouped"), 4 + 2);
    ck_assert_uint_eq(fake_number("fake_open_groups"), 0);
    core_tensor_release(x);
    core_tensor_release(sum);
    core_tensor_release(all);
    core_tensor_release(swapped);
    core_tensor_release(part);
}

START_TEST(groups_are_those_of_the_library)
{
    if (!use_vendor(_i))
        return;
    on_ranks(2, make_a_group);
    rank_flags = CORE_COMM_UNCHECKED;
    on_ranks(2, make_a_group);
}
END_TEST

static core_status reduce_two(core_comm *comm, core_tensor *x, core_tensor *y)
{
    OK(core_comm_group_begin(comm));
    OK(core_all_reduce_(comm, x, CORE_REDUCE_SUM));
    OK(core_all_reduce_(comm, y, CORE_REDUCE_SUM));
    return core_comm_group_end(comm);
}

static const char *failing;

static void group_fails(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2), *y = rank_numbers(comm, 3);
    char text[100];

    expect_abort(comm, reduce_two(comm, x, y), CORE_ERROR_IO);
    MESSAGE("of 2: a group of 2 collectives (collective 1): ");
    snprintf(text, sizeof text, "%s: %s: unhandled system error (2)",
             vendor->title, failing);
    MESSAGE(text);
    ck_assert_uint_eq(fake_number("fake_open_groups"), 0);
    core_tensor_release(x);
    core_tensor_release(y);
}

START_TEST(error_of_a_group_is_named)
{
    static const char *const functions[] = {"ncclGroupStart", "ncclAllReduce",
                                            "ncclGroupEnd"};

    char text[40];

    if (!use_vendor(_i / 3))
        return;
    failing = functions[_i % 3];
    snprintf(text, sizeof text, "%s=2", failing);
    setenv("FAKE_GPU_FAIL", text, 1);
    on_ranks(2, group_fails);
}
END_TEST

static void second_rank_makes_no_group(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2), *y = rank_numbers(comm, 3);

    if (core_comm_rank(comm) == 1) {
        rank_await_mark(0);
        _exit(RANK_IS_WELL);
    }
    rank_set_timeout(comm, 0.3);
    expect_abort(comm, reduce_two(comm, x, y), CORE_ERROR_CANCELLED);
    MESSAGE("rank 0 of 2: a group of 2 collectives (collective 1): ");
    MESSAGE("the timeout passed while waiting for rank 1");
    OK(core_device_synchronize(core_comm_device(comm)));
    rank_mark(0);
    core_tensor_release(x);
    core_tensor_release(y);
}

START_TEST(timeout_ends_a_group_on_the_device)
{
    if (!use_vendor(_i))
        return;
    rank_flags = CORE_COMM_UNCHECKED;
    on_ranks(2, second_rank_makes_no_group);
}
END_TEST

/* --------------------------------------------------------------- faults -- */

static void second_rank_stops(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2);

    OK(core_barrier(comm));
    OK(core_comm_synchronize(comm));
    if (core_comm_rank(comm) == 1) {
        rank_await_mark(0);
        _exit(RANK_IS_WELL);
    }
    rank_set_timeout(comm, 0.3);
    expect_abort(comm, core_broadcast(comm, x, 1), CORE_ERROR_CANCELLED);
    MESSAGE("rank 0 of 2: broadcast of 2 f32 from rank 1 (collective 2)");
    MESSAGE("the timeout passed while waiting for rank 1");
    MESSAGE("; rank 1 has reached collective 1");
    ck_assert_int_eq(core_barrier(comm), CORE_ERROR_CANCELLED);
    /* What the collective used is free again. */
    OK(core_device_synchronize(core_comm_device(comm)));
    rank_mark(0);
    core_tensor_release(x);
}

START_TEST(rank_that_does_not_arrive_is_an_error_after_the_timeout)
{
    if (!use_vendor(_i))
        return;
    on_ranks(2, second_rank_stops);
}
END_TEST

/* The library's stream waits, and only an abort ends that. */
static void second_rank_stops_unchecked(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2);

    if (core_comm_rank(comm) == 1) {
        rank_await_mark(0);
        _exit(RANK_IS_WELL);
    }
    rank_set_timeout(comm, 0.3);
    expect_abort(comm, core_all_reduce_(comm, x, CORE_REDUCE_SUM),
                 CORE_ERROR_CANCELLED);
    MESSAGE("all_reduce(sum) of 2 f32 (collective 1)");
    OK(core_device_synchronize(core_comm_device(comm)));
    rank_mark(0);
    core_tensor_release(x);
}

START_TEST(timeout_ends_a_collective_on_the_device)
{
    if (!use_vendor(_i))
        return;
    rank_flags = CORE_COMM_UNCHECKED;
    on_ranks(2, second_rank_stops_unchecked);
}
END_TEST

static void last_rank_dies(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2);

    OK(core_barrier(comm));
    OK(core_comm_synchronize(comm));
    if (core_comm_rank(comm) == 2)
        raise(SIGKILL);
    expect_abort(comm, core_all_reduce_(comm, x, CORE_REDUCE_SUM),
                 CORE_ERROR_IO);
    MESSAGE("all_reduce(sum) of 2 f32 (collective 2)");
    MESSAGE("remote process exited (6)");
    core_tensor_release(x);
}

START_TEST(killed_rank_is_an_error_on_the_others)
{
    if (!use_vendor(_i))
        return;
    on_ranks_that_end(3, 1 << 2, last_rank_dies);
}
END_TEST

static void sizes_differ(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, core_comm_rank(comm) == 1 ? 3 : 2);

    expect_failure(comm, core_all_reduce_(comm, x, CORE_REDUCE_SUM),
                   CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("rank 0 all_reduce(sum) of 2 f32 (collective 1), rank 1 "
            "all_reduce(sum) of 3 f32 (collective 1)");
    core_tensor_release(x);
}

START_TEST(ranks_that_differ_are_compared)
{
    if (!use_vendor(_i))
        return;
    on_ranks(2, sizes_differ);
}
END_TEST

static void call_fails(core_comm *comm)
{
    core_tensor *x = rank_numbers(comm, 2);
    char text[100];

    expect_abort(comm, core_all_reduce_(comm, x, CORE_REDUCE_SUM),
                 CORE_ERROR_IO);
    snprintf(text, sizeof text,
             "%s: ncclAllReduce: unhandled system error (2); the last error",
             vendor->title);
    MESSAGE(text);
    core_tensor_release(x);
}

START_TEST(error_of_the_library_is_named)
{
    if (!use_vendor(_i))
        return;
    setenv("FAKE_GPU_FAIL", "ncclAllReduce=2", 1);
    on_ranks(2, call_fails);
}
END_TEST

START_TEST(creation_that_fails_is_named)
{
    core_comm *comm;

    if (!use_vendor(_i))
        return;
    setenv("FAKE_GPU_FAIL", "ncclCommInit=5", 1);
    prepare();
    ck_assert_int_eq(create(&comm), CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("ncclCommInitRankConfig: invalid usage (5)");
    ck_assert_ptr_null(comm);
    setenv("FAKE_GPU_FAIL", "", 1);
    OK(create(&comm));
    core_comm_release(comm);
}
END_TEST

/* What rank 0 says that it runs, in the file of the store. */
static void read_about(const char *path, char *about)
{
    int file;

    while ((file = open(path, O_RDONLY)) < 0)
        usleep(1000);
    do
        ck_assert_int_eq(
            pread(file, about, CORE__COMM_ABOUT, CORE__STORE_TEXTS),
            CORE__COMM_ABOUT);
    while (!about[CORE__COMM_ABOUT - 1]);
    close(file);
}

/* Rank 1 gets the id and ends. */
START_TEST(creation_that_others_do_not_join_ends_after_the_timeout)
{
    core_comm_options options;
    core_comm *comm;
    pid_t child;

    if (!use_vendor(_i))
        return;
    temporary_folder(rank_folder, "libcore-ranks");
    rank_timeout = 3; /* the child writes to the file within it */
    options = rank_options(0, 2);
    child = fork();
    if (child == 0) {
        char id[CORE_COLLECTIVES_ID_SIZE], about[CORE__COMM_ABOUT];
        core__progress *progress;

        alarm(RANK_WATCHDOG_SECONDS);
        read_about(options.store + strlen("file:"), about);
        _exit(core__store_share_id(options.store, 1, 2, 5000000000, about, id,
                                   &progress) != CORE_OK);
    }
    prepare();
    ck_assert_int_eq(core_comm_create(rank_device_find(), &options, &comm),
                     CORE_ERROR_CANCELLED);
    MESSAGE("the timeout passed while waiting for rank 1");
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    temporary_remove(rank_folder);
}
END_TEST

static void *abort_soon(void *comm)
{
    usleep(50000);
    core_comm_abort(comm);
    return NULL;
}

/* The other rank finds out. */
static void one_rank_aborts(core_comm *comm)
{
    bool first = core_comm_rank(comm) == 0;
    core_tensor *x = rank_numbers(comm, 2);
    pthread_t thread;

    if (first) {
        ck_assert_int_eq(pthread_create(&thread, NULL, abort_soon, comm), 0);
        expect_abort(comm, core_recv(comm, x, 1), CORE_ERROR_CANCELLED);
        pthread_join(thread, NULL);
    } else {
        expect_abort(comm, core_recv(comm, x, 0), CORE_ERROR_IO);
        MESSAGE("remote process exited (6)");
    }
    core_tensor_release(x);
}

START_TEST(abort_ends_what_waits)
{
    if (!use_vendor(_i))
        return;
    on_ranks(2, one_rank_aborts);
}
END_TEST

START_TEST(communicator_does_not_outlive_a_reset)
{
    core_comm *comm;
    core_tensor *x;

    if (!use_vendor(_i))
        return;
    prepare();
    OK(create(&comm));
    expect_sum(comm);
    OK(core_device_reset(core_comm_device(comm)));
    ck_assert(was_aborted());
    x = rank_numbers(comm, 2);
    ck_assert_int_ne(core_all_reduce_(comm, x, CORE_REDUCE_SUM), CORE_OK);
    core_tensor_release(x);
    core_comm_release(comm);
    OK(create(&comm));
    expect_sum(comm);
    core_comm_release(comm);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        old_library_without_later_functions_works,
    };
    const suite_loop loops[] = {
        {absent_library_is_named, 0, GPU_VENDORS},
        {library_that_is_too_old_is_refused, 0, GPU_VENDORS},
        {engine_without_a_device_says_so, 0, GPU_VENDORS},
        {four_ranks_sum, 0, GPU_VENDORS},
        {device_of_another_plugin_is_refused, 0, GPU_VENDORS},
        {collectives_are_in_the_order_of_the_stream, 0, GPU_VENDORS},
        {reducer_averages_gradients, 0, GPU_VENDORS},
        {groups_are_those_of_the_library, 0, GPU_VENDORS},
        {error_of_a_group_is_named, 0, 3 * GPU_VENDORS},
        {timeout_ends_a_group_on_the_device, 0, GPU_VENDORS},
        {rank_that_does_not_arrive_is_an_error_after_the_timeout, 0,
         GPU_VENDORS},
        {timeout_ends_a_collective_on_the_device, 0, GPU_VENDORS},
        {killed_rank_is_an_error_on_the_others, 0, GPU_VENDORS},
        {ranks_that_differ_are_compared, 0, GPU_VENDORS},
        {error_of_the_library_is_named, 0, GPU_VENDORS},
        {creation_that_fails_is_named, 0, GPU_VENDORS},
        {creation_that_others_do_not_join_ends_after_the_timeout, 0,
         GPU_VENDORS},
        {abort_ends_what_waits, 0, GPU_VENDORS},
        {communicator_does_not_outlive_a_reset, 0, GPU_VENDORS},
    };
    const test_suite suites[] = {
        {"gpu/collectives", SUITE_TESTS(tests), SUITE_LOOPS(loops)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
