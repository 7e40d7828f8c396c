/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Reducers of ranks that end, stop, fail or differ, and wrong arguments: every
 * other rank gets an error, and nothing hangs. */

#include "support/ranks.h"

#include <libcore/autograd.h>
#include <libcore/compile.h>
#include <libcore/lazy.h>
#include <libcore/mode.h>
#include <libcore/reducer.h>

#include <pthread.h>

enum { COUNT = 2 };

/* The loss is the product of all parameters, each a bucket. */
typedef struct model {
    core_tensor *parameters[COUNT];
    core_reducer *reducer;
} model;

static const core_reducer_options small = {
    .struct_size = sizeof small, .bucket_bytes = 1, .first_bucket_bytes = 1};

static core_tensor *parameter(core_comm *comm, int64_t count)
{
    core_tensor *tensor = rank_numbers(comm, count);

    OK(core_tensor_set_requires_grad(tensor, true));
    return tensor;
}

static model begin(core_comm *comm)
{
    model m;

    for (int i = 0; i < COUNT; i++)
        m.parameters[i] = parameter(comm, 1);
    OK(core_reducer_create(comm, m.parameters, COUNT, &small, &m.reducer));
    return m;
}

static void end(model *m)
{
    core_reducer_release(m->reducer);
    for (int i = 0; i < COUNT; i++)
        core_tensor_release(m->parameters[i]);
}

static core_status backward(model *m, uint32_t flags)
{
    core_tensor *loss;
    core_status status;

    OK(core_mul(m->parameters[0], m->parameters[1], &loss));
    status = core_reducer_backward(m->reducer, &loss, 1, NULL, flags);
    core_tensor_release(loss);
    return status;
}

/* A step fails, at once or when it is waited for, and so do the next ones. */
static void expect_failure(model *m, core_status status, core_status expected)
{
    core_comm *comm = core_reducer_comm(m->reducer);

    if (status == CORE_OK)
        status = core_comm_synchronize(comm);
    ck_assert_msg(status == expected, "%s: %s", core_status_name(status),
                  core_error_message());
    ck_assert_int_eq(backward(m, 0), expected);
    ck_assert_int_eq(core_comm_error(comm), expected);
}

static void finish_step(model *m)
{
    OK(backward(m, 0));
    OK(core_comm_synchronize(core_reducer_comm(m->reducer)));
}

/* ------------------------------------------------------- ranks that end -- */

static void last_rank_dies(core_comm *comm)
{
    model m = begin(comm);

    finish_step(&m);
    if (core_comm_rank(comm) == 2)
        raise(SIGKILL);
    expect_failure(&m, backward(&m, 0), CORE_ERROR_IO);
    MESSAGE("of 3: all_reduce(avg) of");
    MESSAGE("f32 (collective");
    MESSAGE("2 ended");
    end(&m);
}

static void last_rank_leaves(core_comm *comm)
{
    model m = begin(comm);

    finish_step(&m);
    if (core_comm_rank(comm) != 2) {
        expect_failure(&m, backward(&m, 0), CORE_ERROR_IO);
        MESSAGE("2 ended");
    }
    end(&m);
}

static void last_rank_skips(core_comm *comm)
{
    model m = begin(comm);

    finish_step(&m);
    if (core_comm_rank(comm) == 1) {
        OK(backward(&m, CORE_REDUCER_NO_SYNC));
        rank_await_mark(0);
        _exit(RANK_IS_WELL);
    }
    rank_set_timeout(core_reducer_comm(m.reducer), 1);
    expect_failure(&m, backward(&m, 0), CORE_ERROR_CANCELLED);
    MESSAGE("rank 0 of 2: all_reduce(avg) of 17 f32 (collective ");
    MESSAGE("the timeout passed while waiting for rank 1");
    rank_mark(0);
    end(&m);
}

START_TEST(rank_that_ends_is_an_error_on_the_others)
{
    rank_device = rank_devices[_i];
    on_ranks_that_end(3, 1 << 2, last_rank_dies);
    on_ranks(3, last_rank_leaves);
}
END_TEST

START_TEST(rank_that_does_not_average_is_an_error_after_the_timeout)
{
    rank_device = rank_devices[_i];
    on_ranks(2, last_rank_skips);
}
END_TEST

/* ---------------------------------------------- backwards that fail -- */

static core_status failing_hook(void *context, core_tensor *grad,
                                core_tensor **out_grad)
{
    (void)context;
    (void)grad;
    (void)out_grad;
    return core_error_set(CORE_ERROR_UNSUPPORTED, "no more of this");
}

/* After the gradient of parameter 1, which is bucket 0. */
static void first_rank_fails(core_comm *comm)
{
    model m = begin(comm);
    core_tensor *twice, *loss;
    core_status status;

    OK(core_mul_scalar(m.parameters[0], core_float(2), &twice));
    OK(core_mul(twice, m.parameters[1], &loss));
    if (core_comm_rank(comm) == 0)
        OK(core_tensor_register_hook(m.parameters[0], failing_hook, NULL, NULL,
                                     NULL));
    status = core_reducer_backward(m.reducer, &loss, 1, NULL, 0);
    if (core_comm_rank(comm) == 0) {
        ck_assert_int_eq(status, CORE_ERROR_UNSUPPORTED);
        MESSAGE("no more of this");
        ck_assert_int_eq(backward(&m, 0), CORE_ERROR_UNSUPPORTED);
        MESSAGE("no more of this");
        rank_await_mark(0);
    } else {
        /* Notified, and not after the timeout. */
        if (status == CORE_OK)
            status = core_comm_synchronize(core_reducer_comm(m.reducer));
        ck_assert_int_eq(status, CORE_ERROR_IO);
        MESSAGE("all_reduce(avg)");
        rank_mark(0);
    }
    core_tensor_release(twice);
    core_tensor_release(loss);
    end(&m);
}

/* No gradient of this rank is ready: the node of the loss fails. */
static void first_rank_fails_early(core_comm *comm)
{
    model m = begin(comm);
    core_tensor *loss, *twice;
    uint64_t last = core_comm_sequence(core_reducer_comm(m.reducer));
    char expected[200];
    core_status status;

    OK(core_mul(m.parameters[0], m.parameters[1], &loss));
    OK(core_mul_scalar(loss, core_float(2), &twice));
    if (core_comm_rank(comm) == 1)
        OK(core_tensor_register_hook(loss, failing_hook, NULL, NULL, NULL));
    status = core_reducer_backward(m.reducer, &twice, 1, NULL, 0);
    if (status == CORE_OK)
        status = core_comm_synchronize(core_reducer_comm(m.reducer));
    if (core_comm_rank(comm) == 1) {
        ck_assert_int_eq(status, CORE_ERROR_UNSUPPORTED);
        MESSAGE("no more of this");
    } else {
        ck_assert_int_eq(status, CORE_ERROR_IO);
        snprintf(expected, sizeof expected,
                 "all_reduce(avg) of 17 f32 (collective %u): rank 1 has failed "
                 "(CORE_ERROR_UNSUPPORTED) and does not take part",
                 (unsigned)last + 1);
        MESSAGE(expected);
    }
    core_tensor_release(loss);
    core_tensor_release(twice);
    end(&m);
}

/* As after an error of its forward. */
static void last_rank_cancels(core_comm *comm)
{
    model m = begin(comm);
    core_status status;

    finish_step(&m);
    if (core_comm_rank(comm) == 2) {
        core_error_set(CORE_ERROR_IO, "handled long ago");
        ck_assert_int_eq(core_reducer_cancel(m.reducer, CORE_OK, NULL),
                         CORE_ERROR_INVALID_ARGUMENT);
        ck_assert_int_eq(
            core_reducer_cancel(m.reducer, CORE_ERROR_CANCELLED, "no sample"),
            CORE_ERROR_CANCELLED);
        MESSAGE("core_reducer_cancel: rank 2 cancels the step: no sample");
        ck_assert_int_eq(backward(&m, 0), CORE_ERROR_CANCELLED);
    } else {
        status = backward(&m, 0);
        if (status == CORE_OK)
            status = core_comm_synchronize(core_reducer_comm(m.reducer));
        ck_assert_int_eq(status, CORE_ERROR_IO);
        MESSAGE("rank 2 has failed (CORE_ERROR_CANCELLED) and does not take "
                "part");
    }
    end(&m);
}

/* A backward without averages that fails after it has added a gradient. */
static void failed_sum_is_repeated(core_comm *comm)
{
    model m = begin(comm);
    core_tensor *twice, *loss;
    core_hook *hook;

    OK(backward(&m, CORE_REDUCER_NO_SYNC));
    OK(core_mul_scalar(m.parameters[0], core_float(2), &twice));
    OK(core_mul(twice, m.parameters[1], &loss));
    OK(core_tensor_register_hook(m.parameters[0], failing_hook, NULL, NULL,
                                 &hook));
    ck_assert_int_eq(
        core_reducer_backward(m.reducer, &loss, 1, NULL, CORE_REDUCER_NO_SYNC),
        CORE_ERROR_UNSUPPORTED);
    rank_expect(core_tensor_grad(m.parameters[0]), (float[]){1}, 1);
    rank_expect(core_tensor_grad(m.parameters[1]), (float[]){1}, 1);
    core_hook_remove(hook);
    core_tensor_release(loss);
    OK(core_mul(twice, m.parameters[1], &loss));
    OK(core_reducer_backward(m.reducer, &loss, 1, NULL, 0));
    rank_expect(core_tensor_grad(m.parameters[0]), (float[]){3}, 1);
    rank_expect(core_tensor_grad(m.parameters[1]), (float[]){3}, 1);
    core_tensor_release(twice);
    core_tensor_release(loss);
    end(&m);
}

/* `user`: how many copies succeed before one fails. */
static core_status fail_a_copy(core_call *call, const core_value *args,
                               uint32_t nargs, core_value *results,
                               uint32_t nresults)
{
    int *left = call->user;

    if (strcmp(core_op_name(call->op), "_to_copy") != 0 || (*left)-- != 0)
        return core_redispatch_below(call, args, nargs, results, nresults);
    core_error_set(CORE_ERROR_OUT_OF_MEMORY, "out of memory for the test");
    return CORE_ERROR_OUT_OF_MEMORY;
}

static void expect_grads(core_tensor *const *weights, double expected)
{
    for (int i = 0; i < 2; i++) {
        double grad;

        OK(core_tensor_item_float(core_tensor_grad(weights[i]), &grad));
        ck_assert_double_eq(grad, expected);
    }
}

/* Grads of bf16 are copies of f32 buckets: if the copy for the second one fails,
 * the first one has not changed. */
static void failed_copy_is_repeated(core_comm *comm)
{
    const core_reducer_options options = {.struct_size = sizeof options,
                                          .dtype = CORE_F32};
    core_tensor *full = rank_numbers(comm, 1), *weights[2], *loss;
    core_reducer *reducer;
    core_mode *mode;
    int left = 1;

    for (int i = 0; i < 2; i++) {
        OK(core_to_copy(full, CORE_BF16, NULL, false, -1, &weights[i]));
        OK(core_fill_(weights[i], core_float(1)));
        OK(core_tensor_set_requires_grad(weights[i], true));
    }
    OK(core_reducer_create(comm, weights, 2, &options, &reducer));
    OK(core_mul(weights[0], weights[1], &loss));
    OK(core_reducer_backward(reducer, &loss, 1, NULL,
                             CORE_REDUCER_NO_SYNC | CORE_RETAIN_GRAPH));
    OK(core_mode_push(CORE_MODE_API, fail_a_copy, &left, &mode));
    ck_assert_int_eq(
        core_reducer_backward(reducer, &loss, 1, NULL,
                              CORE_REDUCER_NO_SYNC | CORE_RETAIN_GRAPH),
        CORE_ERROR_OUT_OF_MEMORY);
    OK(core_mode_pop(mode));
    expect_grads(weights, 1);
    OK(core_reducer_backward(reducer, &loss, 1, NULL, 0));
    expect_grads(weights, 2);
    core_tensor_release(loss);
    core_tensor_release(full);
    core_tensor_release(weights[0]);
    core_tensor_release(weights[1]);
    core_reducer_release(reducer);
}

START_TEST(backward_without_averages_can_be_repeated_after_an_error)
{
    rank_device = rank_devices[_i];
    on_ranks(2, failed_sum_is_repeated);
    on_ranks(2, failed_copy_is_repeated);
}
END_TEST

START_TEST(backward_that_fails_is_an_error_on_all_ranks)
{
    rank_device = rank_devices[_i];
    on_ranks(2, first_rank_fails);
    on_ranks(3, first_rank_fails_early);
    on_ranks(3, last_rank_cancels);
}
END_TEST

static void arguments_may_be_corrected(core_comm *comm)
{
    model m = begin(comm);
    core_tensor *plain = rank_numbers(comm, 1);
    uint64_t before = core_comm_sequence(core_reducer_comm(m.reducer));

    ck_assert_int_eq(core_reducer_backward(m.reducer, &plain, 1, NULL, 0),
                     CORE_ERROR_AUTOGRAD);
    ck_assert_int_eq(core_reducer_backward(m.reducer, NULL, 1, NULL, 0),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_reducer_backward(NULL, &plain, 1, NULL, 0),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(
        core_reducer_backward(m.reducer, &plain, 1, NULL, CORE_CREATE_GRAPH),
        CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("core_reducer_backward: flags are 0x2; this call accepts 0x101");
    ck_assert_uint_eq(core_comm_sequence(core_reducer_comm(m.reducer)), before);
    finish_step(&m);
    core_tensor_release(plain);
    end(&m);
}

START_TEST(wrong_arguments_of_a_backward_fail_nothing)
{
    rank_device = rank_devices[_i];
    on_ranks(2, arguments_may_be_corrected);
}
END_TEST

/* ----------------------------------------------------------- creation -- */

static core_status create(core_comm *comm, core_tensor *const *parameters,
                          size_t count, const core_reducer_options *options)
{
    core_reducer *reducer = (void *)comm;
    core_status status =
        core_reducer_create(comm, parameters, count, options, &reducer);

    if (status != CORE_OK)
        ck_assert_ptr_null(reducer);
    core_reducer_release(reducer);
    return status;
}

/* [2, 3], row-major, or the transpose of [3, 2]. */
static core_tensor *matrix(core_comm *comm, bool transposed)
{
    const int64_t sizes[2] = {transposed ? 3 : 2, transposed ? 2 : 3};
    core_tensor *made, *turned;

    OK(core_ones(sizes, 2, CORE_F32, core_comm_device(comm), &made));
    OK(transposed ? core_t(made, &turned) : core_detach(made, &turned));
    core_tensor_release(made);
    OK(core_tensor_set_requires_grad(turned, true));
    return turned;
}

static void models_differ(core_comm *comm)
{
    uint32_t rank = core_comm_rank(comm);
    core_tensor *two[] = {parameter(comm, 2), parameter(comm, 3)};
    core_tensor *turned[] = {two[1], two[0]};
    core_reducer_options other = small;

    ck_assert_int_eq(create(comm, two, rank == 1 ? 1 : 2, &small),
                     CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("core_reducer_create: rank 1 has 1 parameters, and rank 0 has 2");
    ck_assert_int_eq(create(comm, rank == 2 ? turned : two, 2, &small),
                     CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("of rank 2 differ from those of rank 0");
    other.bucket_bytes += rank == 2;
    ck_assert_int_eq(create(comm, two, 2, &other), CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("of rank 2 differ from those of rank 0");
    OK(create(comm, two, 2, &small));
    core_tensor_release(two[0]);
    core_tensor_release(two[1]);
    two[0] = matrix(comm, rank == 2);
    ck_assert_int_eq(create(comm, two, 1, &small), CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("of rank 2 differ from those of rank 0");
    core_tensor_release(two[0]);
}

static void refuse(core_comm *comm)
{
    core_tensor *good = parameter(comm, 2), *plain = rank_numbers(comm, 2),
                *other, *list[3] = {good, plain, good};
    core_reducer_options options = {.struct_size = sizeof options};
    core_device *device;

    ck_assert_int_eq(create(comm, list, 2, NULL), CORE_ERROR_AUTOGRAD);
    MESSAGE("parameter 1 is not a leaf that requires grad");
    list[1] = good;
    ck_assert_int_eq(create(comm, list, 2, NULL), CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("parameters 0 and 1 are the same tensor");
    ck_assert_int_eq(create(comm, list, 0, NULL), CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("the number of parameters is 0");
    ck_assert_int_eq(create(NULL, list, 1, NULL), CORE_ERROR_INVALID_ARGUMENT);
    OK(core_device_find(strcmp(rank_device, "cpu") ? "cpu" : "sim", &device));
    OK(core_to_copy(plain, CORE_F32, device, false, -1, &other));
    OK(core_tensor_set_requires_grad(other, true));
    list[1] = other;
    ck_assert_int_eq(create(comm, list, 2, NULL), CORE_ERROR_DEVICE);
    MESSAGE("core_reducer_create: parameter 1 is on");
    options.dtype = CORE_BF16;
    ck_assert_int_eq(create(comm, list, 1, &options), CORE_ERROR_DTYPE);
    MESSAGE("the dtype of the buckets is bf16");
    options.dtype = 0;
    options.struct_size = 8;
    ck_assert_int_eq(create(comm, list, 1, &options),
                     CORE_ERROR_INVALID_ARGUMENT);
    options.struct_size = sizeof options;
    options.nbuffers = 1;
    ck_assert_int_eq(create(comm, list, 1, &options),
                     CORE_ERROR_INVALID_ARGUMENT);
    options.buffers = &other;
    ck_assert_int_eq(create(comm, list, 1, &options), CORE_ERROR_DEVICE);
    MESSAGE("core_reducer_create: buffer 0");
    OK(core_barrier(comm));
    OK(core_comm_synchronize(comm));
    core_reducer_release(NULL);
    ck_assert_ptr_null(core_reducer_comm(NULL));
    ck_assert_ptr_null(core_reducer_bucket(NULL, 0));
    core_tensor_release(good);
    core_tensor_release(plain);
    core_tensor_release(other);
}

START_TEST(models_that_differ_are_an_error_on_every_rank)
{
    rank_device = rank_devices[_i];
    on_ranks(3, models_differ);
}
END_TEST

START_TEST(wrong_arguments_of_creation_are_refused)
{
    rank_device = rank_devices[_i];
    on_ranks(2, refuse);
}
END_TEST

/* ----------------------------------------------------- threads and fork -- */

static core_status nested_hook(void *context, core_tensor *grad,
                               core_tensor **out_grad)
{
    model *m = context;

    (void)grad;
    (void)out_grad;
    ck_assert_int_eq(core_reducer_backward(m->reducer, NULL, 0, NULL, 0),
                     CORE_ERROR_BUSY);
    MESSAGE("in use by another thread or by a backward around this one");
    core_error_clear();
    return CORE_OK;
}

static void nest(core_comm *comm)
{
    model m = begin(comm);

    OK(core_tensor_register_hook(m.parameters[0], nested_hook, &m, NULL, NULL));
    finish_step(&m);
    end(&m);
}

static void fork_child(core_comm *comm)
{
    model m = begin(comm);
    pid_t child;
    int state;

    finish_step(&m);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        ck_assert_int_eq(core_reducer_backward(m.reducer, NULL, 0, NULL, 0),
                         CORE_ERROR_DEVICE_LOST);
        MESSAGE("forked");
        core_reducer_release(m.reducer);
        _exit(RANK_IS_WELL);
    }
    ck_assert_int_eq(waitpid(child, &state, 0), child);
    ck_assert(WIFEXITED(state) && WEXITSTATUS(state) == RANK_IS_WELL);
    finish_step(&m);
    end(&m);
}

static void *abort_soon(void *comm)
{
    usleep(200 * 1000);
    OK(core_comm_abort(comm));
    return NULL;
}

/* Rank 1 waits for rank 0, which does not come, until it is aborted. */
static void abort_from_a_thread(core_comm *comm)
{
    model m = begin(comm);
    pthread_t thread;
    core_status status;

    finish_step(&m);
    if (core_comm_rank(comm) == 1) {
        ck_assert_int_eq(pthread_create(&thread, NULL, abort_soon,
                                        core_reducer_comm(m.reducer)),
                         0);
        status = backward(&m, 0);
        expect_failure(&m, status, CORE_ERROR_CANCELLED);
        pthread_join(thread, NULL);
        rank_mark(0);
    } else {
        rank_await_mark(0);
    }
    end(&m);
}

/* Both models communicate at once in one process. */
static void *train(void *context)
{
    for (int i = 0; i < 20; i++)
        finish_step(context);
    return NULL;
}

static void two_threads(core_comm *comm)
{
    model first = begin(comm), second = begin(comm);
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, train, &first), 0);
    train(&second);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    end(&first);
    end(&second);
}

START_TEST(backward_inside_a_backward_is_refused)
{
    rank_device = rank_devices[_i];
    on_ranks(2, nest);
}
END_TEST

START_TEST(child_of_fork_cannot_use_the_reducer)
{
    on_ranks(2, fork_child);
}
END_TEST

START_TEST(abort_ends_the_step)
{
    rank_device = rank_devices[_i];
    on_ranks(2, abort_from_a_thread);
}
END_TEST

START_TEST(two_reducers_are_used_by_two_threads)
{
    on_ranks(2, two_threads);
}
END_TEST

/* Pending calls of a lazy region are computed first. */
static void use_lazily(core_comm *comm)
{
    model m = begin(comm);

    OK(core_lazy_begin(NULL));
    for (int i = 0; i < 3; i++)
        OK(backward(&m, 0));
    OK(core_reducer_backward(m.reducer, NULL, 0, NULL, 0));
    OK(core_lazy_end());
    rank_expect(core_tensor_grad(m.parameters[0]), (float[]){3}, 1);
    end(&m);
}

START_TEST(reducer_works_in_a_lazy_region)
{
    rank_device = rank_devices[_i];
    on_ranks(2, use_lazily);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        child_of_fork_cannot_use_the_reducer,
        two_reducers_are_used_by_two_threads,
    };
    const suite_loop loops[] = {
        {rank_that_ends_is_an_error_on_the_others, 0, 2},
        {rank_that_does_not_average_is_an_error_after_the_timeout, 0, 2},
        {backward_that_fails_is_an_error_on_all_ranks, 0, 2},
        {backward_without_averages_can_be_repeated_after_an_error, 0, 2},
        {wrong_arguments_of_a_backward_fail_nothing, 0, 2},
        {models_that_differ_are_an_error_on_every_rank, 0, 2},
        {wrong_arguments_of_creation_are_refused, 0, 2},
        {backward_inside_a_backward_is_refused, 0, 2},
        {abort_ends_the_step, 0, 2},
        {reducer_works_in_a_lazy_region, 0, 2},
    };
    const test_suite suites[] = {
        {"comm/reducer_faults", SUITE_TESTS(tests), SUITE_LOOPS(loops)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
