/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Shards: parts of optimizer states and gradients on each rank, and their errors. */

#include "support/shards.h"

#include <math.h>

/* --------------------------------------------------------------- steps -- */

/* The fixture sums in the order of ranks, so that bits are equal. */
static void train_both(core_comm *comm, const core_shard_options *options)
{
    model a = sharded(comm, options), b = whole(comm);
    double rank = core_comm_rank(comm);

    for (int i = 0; i < 3; i++) {
        step(&a, rank + i);
        step(&b, rank + i);
        expect_equal_models(&a, &b);
    }
    end(&a);
    end(&b);
}

static void train(core_comm *comm)
{
    train_both(comm, NULL);
    train_both(comm, &small);
    train_both(comm, &gradients);
}

START_TEST(sharded_steps_compute_what_whole_ones_do)
{
    rank_device = rank_devices[_i];
    for (uint32_t ranks = 1; ranks <= 4; ranks += _i + 1)
        on_ranks(ranks, train);
}
END_TEST

/* Each element belongs to one rank. */
static void count_elements(core_comm *comm)
{
    model m = sharded(comm, &small);
    core_shard_piece_information piece = {.struct_size = sizeof piece};
    float counts[COUNT] = {0}, all[COUNT];
    core_tensor *sum;
    size_t i = 0;

    for (; i < core_shard_piece_count(m.shard); i++) {
        OK(core_shard_describe(m.shard, i, &piece));
        ck_assert_uint_eq(piece.count,
                          core_tensor_numel(core_shard_piece(m.shard, i)));
        ck_assert_uint_gt(piece.count, 0);
        counts[piece.parameter] += (float)piece.count;
    }
    ck_assert_int_eq(core_shard_describe(m.shard, i, &piece), CORE_ERROR_INDEX);
    ck_assert_ptr_null(core_shard_piece(m.shard, i));
    sum = rank_tensor(comm, counts, COUNT);
    OK(core_all_reduce_(comm, sum, CORE_REDUCE_SUM));
    for (int k = 0; k < COUNT; k++)
        all[k] = (float)(sizes[k][0] * sizes[k][1]);
    rank_expect(sum, all, COUNT);
    core_tensor_release(sum);
    end(&m);
}

START_TEST(each_element_belongs_to_one_rank)
{
    on_ranks(3, count_elements);
}
END_TEST

static void use_grads_of(core_comm *comm, const core_shard_options *options)
{
    model m = sharded(comm, options);
    core_shard_piece_information piece = {.struct_size = sizeof piece};

    backward(&m, 1, CORE_REDUCER_NO_SYNC);
    ck_assert_ptr_nonnull(core_tensor_grad(m.parameters[0]));
    ck_assert_int_eq(core_shard_gather(m.shard), CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("core_shard_gather: parameter 0 has a grad");
    backward(&m, 2, 0);
    for (int i = 0; i < COUNT; i++)
        ck_assert_ptr_null(core_tensor_grad(m.parameters[i]));
    for (size_t i = 0; i < core_shard_piece_count(m.shard); i++) {
        core_tensor *tensor = core_shard_piece(m.shard, i), *expected;

        OK(core_shard_describe(m.shard, i, &piece));
        if (piece.parameter == UNUSED) {
            ck_assert_ptr_null(core_tensor_grad(tensor));
            continue;
        }
        core_grad_mode_set(false);
        OK(core_mul_scalar(tensor, core_float(6), &expected));
        core_grad_mode_set(true);
        expect_equal(core_tensor_grad(tensor), expected);
        core_tensor_release(expected);
    }
    OK(core_shard_gather(m.shard));
    end(&m);
}

static void use_grads(core_comm *comm)
{
    use_grads_of(comm, &small);
    use_grads_of(comm, &gradients);
}

START_TEST(grads_are_summed_before_they_are_averaged)
{
    rank_device = rank_devices[_i];
    on_ranks(3, use_grads);
}
END_TEST

/* Bytes of tensors at the end of a backward, and the most during it, beyond
 * those before. */
static void measure(core_comm *comm, uint32_t level, uint64_t *out_kept,
                    uint64_t *out_most)
{
    const int64_t count = 1 << 16;
    const core_shard_options options = {.struct_size = sizeof options,
                                        .level = level,
                                        .bucket_bytes = 1,
                                        .first_bucket_bytes = 1};
    core_device *device = core_comm_device(comm);
    core_memory_stats before = {.struct_size = sizeof before}, after;
    core_tensor *parameters[8], *loss = NULL;
    core_shard *shard;

    OK(core_memory_get_stats(device, &before));
    for (int i = 0; i < 8; i++) {
        core_tensor *sum, *all;

        OK(core_ones(&count, 1, CORE_F32, device, &parameters[i]));
        OK(core_tensor_set_requires_grad(parameters[i], true));
        OK(core_sum(parameters[i], CORE_DTYPE_NONE, &sum));
        if (!loss) {
            loss = sum;
            continue;
        }
        OK(core_add(loss, sum, core_int(1), &all));
        core_tensor_release(loss);
        core_tensor_release(sum);
        loss = all;
    }
    OK(core_shard_create(comm, parameters, 8, &options, &shard));
    OK(core_memory_reset_peaks(device));
    OK(core_shard_backward(shard, &loss, 1, NULL, 0));
    OK(core_comm_synchronize(core_reducer_comm(core_shard_reducer(shard))));
    after = before;
    OK(core_memory_get_stats(device, &after));
    *out_kept = after.allocated_bytes[CORE_MEMORY_ALL].current -
                before.allocated_bytes[CORE_MEMORY_ALL].current;
    *out_most = after.allocated_bytes[CORE_MEMORY_ALL].peak -
                before.allocated_bytes[CORE_MEMORY_ALL].current;
    core_tensor_release(loss);
    core_shard_release(shard);
    for (int i = 0; i < 8; i++)
        core_tensor_release(parameters[i]);
}

/* 8 parameters and, of 4 ranks, a quarter of the gradients: 10 of 256 KiB; a
 * whole reducer has 8 more. */
static void measure_both(core_comm *comm)
{
    uint64_t kept[2], most[2], unit = 1 << 18;

    for (uint32_t level = 0; level < 2; level++)
        measure(comm, level, &kept[level], &most[level]);
    ck_assert_uint_ge(kept[0], 18 * unit);
    ck_assert_uint_lt(kept[1], 11 * unit);
    ck_assert_uint_lt(most[1], most[0] + 2 * unit);
}

START_TEST(memory_of_averaged_gradients_is_freed)
{
    rank_device = "sim";
    on_ranks(4, measure_both);
}
END_TEST

/* A bucket gets gradients on two streams. */
static void use_two_streams(core_comm *comm)
{
    const int64_t count = 1024;
    core_device *device = core_comm_device(comm);
    core_tensor *parameters[2], *losses[2];
    core_stream *streams[2], *first;
    core_shard *shard;

    for (int i = 0; i < 2; i++) {
        OK(core_ones(&count, 1, CORE_F32, device, &parameters[i]));
        OK(core_tensor_set_requires_grad(parameters[i], true));
        OK(core_stream_create(device, &streams[i]));
    }
    OK(core_shard_create(comm, parameters, 2, &gradients_of_any_size, &shard));
    OK(core_device_synchronize(device));
    for (int i = 0; i < 2; i++) {
        OK(core_stream_set_current(streams[i]));
        OK(core_sum(parameters[i], CORE_DTYPE_NONE, &losses[i]));
    }
    OK(core_shard_backward(shard, losses, 2, NULL, 0));
    OK(core_device_synchronize(device));
    for (size_t i = 0; i < core_shard_piece_count(shard); i++) {
        core_tensor *grad = core_tensor_grad(core_shard_piece(shard, i));
        float values[1024];

        OK(core_tensor_read(grad, values, sizeof *values * 1024));
        for (int k = 0; k < 1024; k++)
            ck_assert_float_eq(values[k], 1);
    }
    OK(core_stream_default(device, &first));
    OK(core_stream_set_current(first));
    core_shard_release(shard);
    for (int i = 0; i < 2; i++) {
        core_tensor_release(losses[i]);
        core_tensor_release(parameters[i]);
        core_stream_release(streams[i]);
    }
}

START_TEST(gradients_of_a_bucket_may_be_on_several_streams)
{
    setenv("LIBCORE_SIM_CHECK", "1", 1); /* makes races errors */
    rank_device = "sim";
    on_ranks(1, use_two_streams);
}
END_TEST

/* A backward within the backward gives a parameter another gradient. */
static core_status nested(void *context, core_tensor *grad,
                          core_tensor **out_grad)
{
    core_tensor *parameter = context, *sum;

    (void)grad;
    (void)out_grad;
    core_grad_mode_set(true);
    OK(core_sum(parameter, CORE_DTYPE_NONE, &sum));
    OK(core_backward(&sum, 1, NULL, 0));
    core_tensor_release(sum);
    core_grad_mode_set(false);
    return CORE_OK;
}

static void refuse_two_gradients(core_comm *comm)
{
    model m = sharded(comm, &gradients);
    core_tensor *twice, *loss;

    OK(core_mul_scalar(m.parameters[4], core_float(2), &twice));
    OK(core_sum(twice, CORE_DTYPE_NONE, &loss));
    OK(core_tensor_register_hook(twice, nested, m.parameters[4], NULL, NULL));
    ck_assert_int_eq(core_shard_backward(m.shard, &loss, 1, NULL, 0),
                     CORE_ERROR_UNSUPPORTED);
    MESSAGE("parameter 4 gets several gradients in one backward");
    core_tensor_release(twice);
    core_tensor_release(loss);
    end(&m);
}

static void refuse_wrong_loss(core_comm *comm)
{
    model m = sharded(comm, &gradients);
    core_tensor *plain = rank_numbers(comm, 1);

    ck_assert_int_eq(core_shard_backward(m.shard, &plain, 1, NULL, 0),
                     CORE_ERROR_AUTOGRAD);
    step(&m, 1);
    core_tensor_release(plain);
    end(&m);
}

START_TEST(what_sharded_gradients_cannot_do_is_an_error)
{
    on_ranks(2, refuse_two_gradients);
    on_ranks(2, refuse_wrong_loss);
}
END_TEST

static float number(core_tensor *tensor)
{
    float value;

    OK(core_tensor_read(tensor, &value, sizeof value));
    return value;
}

static void clip(core_comm *comm)
{
    model a = sharded(comm, &small), b = whole(comm);
    core_tensor *norm_a, *norm_b;

    backward(&a, 1, 0);
    backward(&b, 1, 0);
    OK(core_shard_clip_grad_norm(a.shard, 2, &norm_a));
    OK(core_clip_grad_norm(b.parameters, COUNT, 2, 2, false, &norm_b));
    ck_assert_float_eq_tol(number(norm_a), number(norm_b), 1e-4f);
    OK(core_shard_clip_grad_norm(a.shard, 1, NULL));
    core_tensor_release(norm_a);
    OK(core_shard_clip_grad_norm(a.shard, 1, &norm_a));
    ck_assert_float_eq_tol(number(norm_a), 1, 1e-4f);
    ck_assert_int_eq(core_shard_clip_grad_norm(a.shard, -1, NULL),
                     CORE_ERROR_INVALID_ARGUMENT);
    core_tensor_release(norm_a);
    core_tensor_release(norm_b);
    end(&a);
    end(&b);
}

/* Of gradients 3, 4, 0, ... times a power of two whose square has no number in
 * the dtype. */
static void clip_to_one(core_comm *comm, core_dtype dtype, double scale)
{
    const int64_t count = 64; /* elements of 2 ranks */
    double values[64] = {[0] = 3 * scale, [40] = 4 * scale}, norm;
    core_tensor *parameter, *plain, *wide, *product, *loss, *found;
    core_shard *shard;

    OK(core_ones(&count, 1, dtype, core_comm_device(comm), &parameter));
    OK(core_tensor_from_data(values, CORE_F64, &count, 1,
                             core_comm_device(comm), &wide));
    OK(core_to_copy(wide, dtype, NULL, false, -1, &plain));
    OK(core_tensor_set_requires_grad(parameter, true));
    OK(core_shard_create(comm, &parameter, 1, NULL, &shard));
    OK(core_mul(parameter, plain, &product));
    OK(core_sum(product, CORE_DTYPE_NONE, &loss));
    OK(core_shard_backward(shard, &loss, 1, NULL, 0));
    OK(core_shard_clip_grad_norm(shard, 1, &found));
    OK(core_tensor_item_float(found, &norm));
    ck_assert(fabs(norm / scale - 5) < 1e-5);
    core_tensor_release(found);
    OK(core_shard_clip_grad_norm(shard, 1, &found));
    OK(core_tensor_item_float(found, &norm));
    ck_assert(fabs(norm - (scale < 1 ? 5 * scale : 1)) < 1e-5);
    core_tensor_release(found);
    core_tensor_release(loss);
    core_tensor_release(product);
    core_tensor_release(plain);
    core_tensor_release(wide);
    core_shard_release(shard);
    core_tensor_release(parameter);
}

static void clip_extremes(core_comm *comm)
{
    clip_to_one(comm, CORE_F32, 0x1p67);
    clip_to_one(comm, CORE_F32, 0x1p-80);
    clip_to_one(comm, CORE_F64, 0x1p200);
}

START_TEST(clipping_uses_the_norm_of_all_pieces)
{
    on_ranks(3, clip);
    on_ranks(2, clip_extremes);
}
END_TEST

/* -------------------------------------------------------------- faults -- */

static void refuse(core_comm *comm)
{
    const int64_t wide[2] = {4, 4};
    core_shard_options options = {.struct_size = 8};
    core_tensor *all, *gaps;
    core_shard *shard;

    OK(core_ones(wide, 2, CORE_F32, core_comm_device(comm), &all));
    OK(core_narrow(all, 1, 0, 2, &gaps));
    OK(core_tensor_set_requires_grad(gaps, true));
    ck_assert_int_eq(core_shard_create(comm, &gaps, 1, NULL, &shard),
                     CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("core_shard_create: parameter 0 is not dense");
    ck_assert_int_eq(core_shard_create(comm, &gaps, 1, &options, &shard),
                     CORE_ERROR_INVALID_ARGUMENT);
    ck_assert_int_eq(core_shard_create(comm, &all, 1, NULL, &shard),
                     CORE_ERROR_AUTOGRAD);
    options = (core_shard_options){.struct_size = sizeof options, .level = 2};
    ck_assert_int_eq(core_shard_create(comm, &all, 1, &options, &shard),
                     CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("core_shard_create: the level is 2");
    ck_assert_ptr_null(shard);
    core_tensor_release(all);
    core_tensor_release(gaps);
}

static void last_rank_leaves(core_comm *comm)
{
    model m = sharded(comm, &small);

    step(&m, 1);
    backward(&m, 1, 0);
    OK(core_comm_synchronize(core_reducer_comm(core_shard_reducer(m.shard))));
    if (core_comm_rank(comm) != 2) {
        core_status status = core_shard_gather(m.shard);

        if (status == CORE_OK)
            status = core_comm_synchronize(
                core_reducer_comm(core_shard_reducer(m.shard)));
        ck_assert_int_eq(status, CORE_ERROR_IO);
        MESSAGE("all_gather of");
        MESSAGE("2 ended");
    }
    end(&m);
}

/* `user`: the operator that fails. */
static core_status fail_one(core_call *call, const core_value *args,
                            uint32_t nargs, core_value *results,
                            uint32_t nresults)
{
    if (strcmp(core_op_name(call->op), call->user) != 0)
        return core_redispatch_below(call, args, nargs, results, nresults);
    core_error_set(CORE_ERROR_OUT_OF_MEMORY, "out of memory for the test");
    return CORE_ERROR_OUT_OF_MEMORY;
}

static core_status clip_or_gather(const model *m, bool clip)
{
    core_status status = clip ? core_shard_clip_grad_norm(m->shard, 1, NULL)
                              : core_shard_gather(m->shard);

    if (status == CORE_OK)
        status = core_comm_synchronize(
            core_reducer_comm(core_shard_reducer(m->shard)));
    return status;
}

/* An operator of rank 0 alone fails, and the other rank does not wait for the
 * timeout. */
static void one_rank_fails(core_comm *comm, bool clip)
{
    char *failing = clip ? "linalg_vector_norm" : "copy_";
    bool fails = core_comm_rank(comm) == 0;
    model m = sharded(comm, &small);
    core_mode *mode = NULL;
    core_status status;

    backward(&m, 1, 0);
    OK(core_comm_synchronize(core_reducer_comm(core_shard_reducer(m.shard))));
    if (fails)
        OK(core_mode_push(CORE_MODE_API, fail_one, failing, &mode));
    status = clip_or_gather(&m, clip);
    if (fails) {
        ck_assert_int_eq(status, CORE_ERROR_OUT_OF_MEMORY);
        MESSAGE("out of memory for the test");
        OK(core_mode_pop(mode));
    } else {
        ck_assert_int_eq(status, CORE_ERROR_IO);
        MESSAGE("rank 0 has failed (CORE_ERROR_OUT_OF_MEMORY)");
    }
    end(&m);
}

static void one_rank_fails_to_clip(core_comm *comm)
{
    one_rank_fails(comm, true);
}

static void one_rank_fails_to_gather(core_comm *comm)
{
    one_rank_fails(comm, false);
}

START_TEST(error_of_one_rank_is_one_of_all)
{
    rank_device = rank_devices[_i];
    on_ranks(2, one_rank_fails_to_clip);
    on_ranks(2, one_rank_fails_to_gather);
}
END_TEST

START_TEST(wrong_parameters_and_missing_ranks_are_errors)
{
    rank_device = rank_devices[_i];
    on_ranks(2, refuse);
    on_ranks(3, last_rank_leaves);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        each_element_belongs_to_one_rank,
        memory_of_averaged_gradients_is_freed,
        gradients_of_a_bucket_may_be_on_several_streams,
        what_sharded_gradients_cannot_do_is_an_error,
        clipping_uses_the_norm_of_all_pieces,
    };
    const suite_loop loops[] = {
        {sharded_steps_compute_what_whole_ones_do, 0, 2},
        {grads_are_summed_before_they_are_averaged, 0, 2},
        {wrong_parameters_and_missing_ranks_are_errors, 0, 2},
        {error_of_one_rank_is_one_of_all, 0, 2},
    };
    const test_suite suites[] = {
        {"comm/shard", SUITE_TESTS(tests), SUITE_LOOPS(loops)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
