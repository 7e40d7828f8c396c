/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Data loaders: each sample is delivered once, in an order that depends only on
 * the seed and the epoch; errors stay with their batch. */

#include "support/autograd.h"
#include "support/sim_device.h"

#include <libcore/autograd.h>
#include <libcore/data.h>
#include <libcore/device.h>
#include <libcore/memory.h>

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAMPLES = 23, BATCH = 4, BATCHES = 6 };

/* A source whose tensor has the numbers of the samples. */
typedef struct numbers {
    int64_t fails;          /* at the batch with this sample; -1: never */
    atomic_size_t returned; /* tensors that it claims */
    bool silent;            /* fails without a message */
    bool grad_mode;         /* it was on in a call */
    atomic_int reads, released;
} numbers;

static core_status read_numbers(void *context, const int64_t *samples,
                                size_t count, core_tensor **outputs,
                                size_t *noutputs)
{
    numbers *n = context;
    const int64_t size = (int64_t)count;

    atomic_fetch_add(&n->reads, 1);
    if (core_grad_mode())
        n->grad_mode = true;
    *noutputs = n->returned;
    CORE_TRY(
        core_tensor_from_data(samples, CORE_I64, &size, 1, NULL, &outputs[0]));
    for (size_t i = 0; i < count; i++)
        if (samples[i] == n->fails)
            return n->silent
                       ? CORE_ERROR_IO
                       : core_error_set(CORE_ERROR_IO, "the disk is on fire");
    return CORE_OK;
}

static void release_numbers(void *context)
{
    numbers *n = context;

    atomic_fetch_add(&n->released, 1);
}

static core_data_source source_of(numbers *n)
{
    core_data_source source = {.struct_size = sizeof source,
                               .count = SAMPLES,
                               .read = read_numbers,
                               .context = n,
                               .release = release_numbers};

    return source;
}

static core_data_options options_of(uint32_t threads, bool shuffle)
{
    core_data_options options = {.struct_size = sizeof options,
                                 .threads = threads,
                                 .shuffle = shuffle,
                                 .batch_size = BATCH,
                                 .seed = 5};

    return options;
}

static core_data_loader *loader_of(numbers *n, const core_data_options *options)
{
    core_data_source source = source_of(n);
    core_data_loader *loader;

    OK(core_data_loader_create(&source, options, &loader));
    return loader;
}

/* Reads the rest of an epoch into `all`; returns how many samples. */
static size_t read_rest(core_data_loader *loader, int64_t *all)
{
    size_t total = 0;

    for (;;) {
        core_tensor *batch[2];
        size_t count = 2, size;

        OK(core_data_loader_next(loader, batch, &count));
        if (count == 0)
            return total;
        ck_assert_uint_eq(count, 1);
        ck_assert_ptr_null(batch[1]);
        size = (size_t)core_tensor_numel(batch[0]);
        OK(core_tensor_read(batch[0], all + total, size * sizeof *all));
        core_tensor_release(batch[0]);
        total += size;
    }
}

/* ---------------------------------------------------------------- order -- */

/* _i threads. */
START_TEST(each_sample_is_delivered_once)
{
    numbers n = {.fails = -1, .returned = 1};
    core_data_options options = options_of((uint32_t)_i, true);
    core_data_loader *loader = loader_of(&n, &options);
    int64_t all[SAMPLES], again[SAMPLES], other[SAMPLES];
    bool seen[SAMPLES] = {false};

    ck_assert_int_eq(core_data_loader_batches(loader), BATCHES);
    OK(core_data_loader_begin(loader, 3, 0));
    ck_assert_uint_eq(read_rest(loader, all), SAMPLES);
    ck_assert_uint_eq(read_rest(loader, other), 0);
    for (int i = 0; i < SAMPLES; i++) {
        ck_assert(!seen[all[i]]);
        seen[all[i]] = true;
    }
    OK(core_data_loader_begin(loader, 4, 0));
    ck_assert_uint_eq(read_rest(loader, other), SAMPLES);
    ck_assert_mem_ne(all, other, sizeof all);
    OK(core_data_loader_begin(loader, 3, 2));
    ck_assert_uint_eq(read_rest(loader, again), SAMPLES - 2 * BATCH);
    ck_assert_mem_eq(again, all + 2 * BATCH, sizeof all - 2 * BATCH * 8);
    core_data_loader_release(loader);
    ck_assert_int_eq(n.released, 1);
    ck_assert_int_eq(n.reads, 2 * BATCHES + BATCHES - 2);
    ck_assert(!n.grad_mode && core_grad_mode());
}
END_TEST

START_TEST(the_order_does_not_depend_on_threads)
{
    int64_t all[4][SAMPLES];

    for (uint32_t threads = 0; threads < 4; threads++) {
        numbers n = {.fails = -1, .returned = 1};
        core_data_options options = options_of(threads, true);
        core_data_loader *loader = loader_of(&n, &options);

        OK(core_data_loader_begin(loader, 0, 0));
        ck_assert_uint_eq(read_rest(loader, all[threads]), SAMPLES);
        ck_assert_mem_eq(all[threads], all[0], sizeof all[0]);
        core_data_loader_release(loader);
    }
}
END_TEST

START_TEST(samples_are_in_order_without_shuffle)
{
    numbers n = {.fails = -1, .returned = 1};
    core_data_options options = options_of(2, false);
    core_data_loader *loader;
    int64_t all[SAMPLES];

    options.drop_last = true;
    loader = loader_of(&n, &options);
    ck_assert_int_eq(core_data_loader_batches(loader), BATCHES - 1);
    OK(core_data_loader_begin(loader, 0, 0));
    ck_assert_uint_eq(read_rest(loader, all), (BATCHES - 1) * BATCH);
    for (int i = 0; i < (BATCHES - 1) * BATCH; i++)
        ck_assert_int_eq(all[i], i);
    core_data_loader_release(loader);
}
END_TEST

/* An epoch is left in the middle, many times, with batches on the way. */
START_TEST(an_epoch_can_be_left)
{
    numbers n = {.fails = -1, .returned = 1};
    core_data_options options = options_of(3, false);
    core_data_loader *loader = loader_of(&n, &options);
    int64_t all[SAMPLES];

    for (uint64_t epoch = 0; epoch < 100; epoch++) {
        core_tensor *batch;
        size_t count = 1;

        OK(core_data_loader_begin(loader, epoch, (int64_t)epoch % BATCHES));
        OK(core_data_loader_next(loader, &batch, &count));
        OK(core_tensor_read(batch, all, (size_t)core_tensor_numel(batch) * 8));
        ck_assert_int_eq(all[0], (int64_t)epoch % BATCHES * BATCH);
        core_tensor_release(batch);
    }
    core_data_loader_release(loader);
}
END_TEST

/* --------------------------------------------------------------- devices -- */

/* [rows, columns] of 0, 1, 2, …, f64. */
static core_tensor *range(int64_t rows, int64_t columns)
{
    core_tensor *all = CALL(arange, core_int(rows * columns), CORE_F64, NULL);

    return CALL(reshape, all, (const int64_t[]){rows, columns}, 2);
}

/* _i: threads, and whether the rows are on the device already. */
START_TEST(batches_are_copied_to_a_device)
{
    core_data_options options = options_of((uint32_t)_i % 3, true);
    core_tensor *rows[2], *sum = NULL;
    core_data_source source;
    core_data_loader *loader;
    double total, want = 0;

    for (int row = 0; row < SAMPLES; row++)
        for (int i = 0; i < 1000; i++)
            want += row * (row * 1000.0 + i);
    OK(core_device_find("sim", &options.device));
    rows[0] = range(SAMPLES, 1000);
    rows[1] = range(SAMPLES, 1);
    for (int i = 0; i < 2 && _i >= 3; i++)
        rows[i] = CALL(to, rows[i], CORE_DTYPE_NONE, options.device, false,
                       false, -1);
    OK(core_data_source_tensors(rows, 2, &source));
    OK(core_data_loader_create(&source, &options, &loader));
    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        OK(core_zeros(NULL, 0, CORE_F64, options.device, &sum));
        OK(core_data_loader_begin(loader, epoch, 0));
        for (;;) {
            core_tensor *batch[2], *both, *part;
            size_t count = 2;

            OK(core_data_loader_next(loader, batch, &count));
            if (count == 0)
                break;
            ck_assert_ptr_eq(core_tensor_device(batch[0]), options.device);
            OK(core_mul(batch[0], batch[1], &both));
            OK(core_sum(both, CORE_DTYPE_NONE, &part));
            OK(core_add_(sum, part, core_int(1)));
            core_tensor_release(batch[0]);
            core_tensor_release(batch[1]);
            core_tensor_release(both);
            core_tensor_release(part);
        }
        OK(core_tensor_item_float(sum, &total));
        ck_assert(total == want);
        core_tensor_release(sum);
    }
    core_data_loader_release(loader);
    core_device_release(options.device);
}
END_TEST

/* The loader's threads copy through memory that is pinned, which the device keeps
 * for later batches; a loader without threads copies without it. */
START_TEST(threads_copy_through_pinned_memory)
{
    core_data_options options = options_of(1, false);
    core_data_source source;
    core_data_loader *loader;
    core_tensor *rows = range(SAMPLES, 1000);

    sim_find("sim");
    options.device = sim;
    for (uint32_t threads = 0; threads < 2; threads++) {
        options.threads = threads;
        OK(core_memory_empty_cache(sim));
        ck_assert_uint_eq(counters_of(0).pinned, 0);
        OK(core_data_source_tensors(&rows, 1, &source));
        OK(core_data_loader_create(&source, &options, &loader));
        OK(core_data_loader_begin(loader, 0, 0));
        for (size_t count = 1; count > 0;) {
            core_tensor *batch;

            OK(core_data_loader_next(loader, &batch, &count));
            if (count > 0)
                core_tensor_release(batch);
        }
        if (threads)
            ck_assert_uint_gt(counters_of(0).pinned, 0);
        else
            ck_assert_uint_eq(counters_of(0).pinned, 0);
        core_data_loader_release(loader);
    }
    core_device_release(sim);
}
END_TEST

/* ---------------------------------------------------------------- errors -- */

/* _i threads. */
START_TEST(an_error_stays_with_its_batch)
{
    numbers n = {.fails = 9, .returned = 1};
    core_data_options options = options_of((uint32_t)_i, false);
    core_data_loader *loader = loader_of(&n, &options);

    OK(core_data_loader_begin(loader, 0, 0));
    for (int i = 0; i < BATCHES; i++) {
        core_tensor *batch;
        size_t count = 1;

        if (i == 2) {
            FAILS(core_data_loader_next(loader, &batch, &count), CORE_ERROR_IO,
                  "batch 2", "the disk is on fire");
            ck_assert_ptr_null(batch);
            ck_assert_uint_eq(count, 0);
        } else {
            OK(core_data_loader_next(loader, &batch, &count));
            core_tensor_release(batch);
        }
    }
    core_data_loader_release(loader);
}
END_TEST

/* _i threads.  An old error of the caller is not taken for the source's. */
START_TEST(a_source_may_fail_without_a_message)
{
    numbers n = {.fails = 0, .returned = 1, .silent = true};
    core_data_options options = options_of((uint32_t)_i, false);
    core_data_loader *loader = loader_of(&n, &options);
    core_tensor *batch;
    size_t count = 1;

    OK(core_data_loader_begin(loader, 0, 0));
    (void)core_error_set(CORE_ERROR_SHAPE, "something else");
    FAILS(core_data_loader_next(loader, &batch, &count), CORE_ERROR_IO,
          "batch 0", "set no message");
    core_data_loader_release(loader);
}
END_TEST

START_TEST(wrong_batches_are_refused)
{
    numbers n = {.fails = -1, .returned = 0};
    core_data_options options = options_of(1, false);
    core_data_loader *loader = loader_of(&n, &options);
    core_tensor *batch[2];
    size_t count = 2;

    FAILS(core_data_loader_next(loader, batch, &count),
          CORE_ERROR_INVALID_ARGUMENT, "core_data_loader_begin was not called");
    OK(core_data_loader_begin(loader, 0, 0));
    count = 2;
    FAILS(core_data_loader_next(loader, batch, &count),
          CORE_ERROR_INVALID_ARGUMENT, "returned 0 tensors");
    n.returned = 2;
    OK(core_data_loader_begin(loader, 0, 0));
    count = 2;
    FAILS(core_data_loader_next(loader, batch, &count),
          CORE_ERROR_INVALID_ARGUMENT, "left tensor 1 of 2 NULL");
    n.returned = 1;
    OK(core_data_loader_begin(loader, 0, 0));
    count = 0;
    FAILS(core_data_loader_next(loader, batch, &count),
          CORE_ERROR_INVALID_ARGUMENT, "room for 0");
    count = 2;
    OK(core_data_loader_next(loader, batch, &count));
    core_tensor_release(batch[0]);
    core_data_loader_release(loader);
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
    numbers n = {.fails = -1, .returned = 1};
    core_data_options options = options_of(0, false);
    core_data_source source = source_of(&n);
    core_data_loader *loader = (core_data_loader *)&n;
    core_tensor *scalar = CALL(zeros, NULL, 0, CORE_F32, NULL);

    options.batch_size = 0;
    FAILS(core_data_loader_create(&source, &options, &loader),
          CORE_ERROR_INVALID_ARGUMENT, "batch_size is 0");
    ck_assert_ptr_null(loader);
    ck_assert_int_eq(n.released, 1);
    options.batch_size = 1;
    options.threads = 5000;
    FAILS(core_data_loader_create(&source, &options, &loader),
          CORE_ERROR_INVALID_ARGUMENT, "threads is 5000");
    source.count = 0;
    FAILS(core_data_loader_create(&source, &options, &loader),
          CORE_ERROR_INVALID_ARGUMENT, "0 samples");
    FAILS(core_data_loader_create(&source, NULL, &loader),
          CORE_ERROR_INVALID_ARGUMENT, "options");
    FAILS(core_data_loader_create(&source, &options, NULL),
          CORE_ERROR_INVALID_ARGUMENT, "out_loader");
    ck_assert_int_eq(n.released, 5);
    FAILS(core_data_source_tensors(&scalar, 1, &source), CORE_ERROR_SHAPE,
          "tensors[0]");
    FAILS(core_data_source_tensors(&scalar, 0, &source),
          CORE_ERROR_INVALID_ARGUMENT, "0 tensors");
    options = options_of(0, false);
    loader = loader_of(&n, &options);
    FAILS(core_data_loader_begin(loader, 0, BATCHES + 1),
          CORE_ERROR_INVALID_ARGUMENT, "first is 7");
    core_data_loader_release(loader);
    core_data_loader_release(NULL);
}
END_TEST

START_TEST(a_child_of_fork_is_refused)
{
    numbers n = {.fails = -1, .returned = 1};
    core_data_options options = options_of(2, false);
    core_data_loader *loader = loader_of(&n, &options);
    int64_t all[SAMPLES];
    bool *refused = mmap(NULL, sizeof *refused, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int state;
    pid_t child;

    ck_assert_ptr_ne(refused, MAP_FAILED);
    OK(core_data_loader_begin(loader, 0, 0));
    child = fork();
    if (child == 0) {
        core_tensor *batch;
        size_t count = 1;
        bool both =
            core_data_loader_next(loader, &batch, &count) ==
                CORE_ERROR_INVALID_ARGUMENT &&
            core_data_loader_begin(loader, 0, 0) == CORE_ERROR_INVALID_ARGUMENT;

        core_data_loader_release(loader);
        *refused = both && n.released == 0;
        /* Not by exit, where valgrind would report the memory of threads that
         * the child does not have.  The kernel sends this signal as well, when
         * it has no memory: it says nothing about what the child found. */
        kill(getpid(), SIGKILL);
    }
    ck_assert_int_eq(waitpid(child, &state, 0), child);
    ck_assert_msg(*refused,
                  "the child's calls were not refused, or something else ended "
                  "it first: state %#x",
                  (unsigned)state);
    munmap(refused, sizeof *refused);
    ck_assert_uint_eq(read_rest(loader, all), SAMPLES);
    core_data_loader_release(loader);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        the_order_does_not_depend_on_threads,
        samples_are_in_order_without_shuffle,
        an_epoch_can_be_left,
        wrong_batches_are_refused,
        bad_arguments_are_refused,
        a_child_of_fork_is_refused,
        threads_copy_through_pinned_memory,
    };
    const suite_loop loops[] = {
        {each_sample_is_delivered_once, 0, 4},
        {batches_are_copied_to_a_device, 0, 6},
        {an_error_stays_with_its_batch, 0, 3},
        {a_source_may_fail_without_a_message, 0, 3},
    };
    const test_suite suite = {.name = "data/loader",
                              .teardown = drop_all,
                              SUITE_TESTS(tests),
                              SUITE_LOOPS(loops)};

    return suite_run(&suite, 1);
}
