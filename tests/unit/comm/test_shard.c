/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Shards: parts of optimizer states on each rank, and files of them. */

#include "support/ranks.h"

#include <libcore/autograd.h>
#include <libcore/memory.h>
#include <libcore/mode.h>
#include <libcore/shard.h>
#include <libcore/stream.h>

#include <math.h>
#include <sys/stat.h>

enum { COUNT = 5, UNUSED = 2 };

/* Some are divided between ranks, and some ranks have none of the last. */
static const int64_t sizes[COUNT][2] = {{5, 1}, {3, 7}, {4, 1}, {1, 1}, {9, 5}};

static const core_shard_options small = {
    .struct_size = sizeof small, .bucket_bytes = 400, .first_bucket_bytes = 60};

static const core_shard_options gradients = {.struct_size = sizeof gradients,
                                             .level = CORE_SHARD_GRADIENTS,
                                             .bucket_bytes = 400,
                                             .first_bucket_bytes = 60};

static const core_shard_options gradients_of_any_size = {
    .struct_size = sizeof gradients_of_any_size, .level = CORE_SHARD_GRADIENTS};

/* With a shard, or with a reducer that leaves everything on all ranks. */
typedef struct model {
    core_tensor *parameters[COUNT];
    core_shard *shard;
    core_reducer *reducer;
    core_optimizer *optimizer;
} model;

static void make_parameters(core_comm *comm, model *m)
{
    for (int i = 0; i < COUNT; i++) {
        float values[64];

        for (int k = 0; k < 64; k++)
            values[k] = (float)((k * 7 + i) % 11) - 5;
        OK(core_tensor_from_data(values, CORE_F32, sizes[i], 2,
                                 core_comm_device(comm), &m->parameters[i]));
        OK(core_tensor_set_requires_grad(m->parameters[i], true));
    }
}

static core_optimizer *adam(core_tensor *const *parameters, size_t count)
{
    const core_adam_options options = {.struct_size = sizeof options,
                                       .decoupled = 1,
                                       .learning_rate = 0.25,
                                       .beta1 = 0.5,
                                       .beta2 = 0.75,
                                       .epsilon = 0.5,
                                       .weight_decay = 0.125};
    core_optimizer *optimizer;

    OK(core_adam_create(parameters, count, &options, &optimizer));
    return optimizer;
}

static core_optimizer *adam_of_pieces(const core_shard *shard)
{
    core_tensor *pieces[COUNT];
    size_t count = core_shard_piece_count(shard);

    for (size_t i = 0; i < count; i++)
        pieces[i] = core_shard_piece(shard, i);
    return count ? adam(pieces, count) : NULL;
}

static model sharded(core_comm *comm, const core_shard_options *options)
{
    model m = {0};

    make_parameters(comm, &m);
    OK(core_shard_create(comm, m.parameters, COUNT, options, &m.shard));
    m.optimizer = adam_of_pieces(m.shard);
    return m;
}

static model whole(core_comm *comm)
{
    model m = {0};

    make_parameters(comm, &m);
    OK(core_reducer_create(comm, m.parameters, COUNT, NULL, &m.reducer));
    m.optimizer = adam(m.parameters, COUNT);
    return m;
}

static void end(model *m)
{
    core_optimizer_release(m->optimizer);
    core_shard_release(m->shard);
    core_reducer_release(m->reducer);
    for (int i = 0; i < COUNT; i++)
        core_tensor_release(m->parameters[i]);
}

/* Sum of weight * p * p over the parameters that are used: whole numbers at
 * first, then others. */
static core_tensor *loss_of(const model *m, double weight)
{
    core_tensor *loss = NULL;

    for (int i = 0; i < COUNT; i++) {
        core_tensor *square, *sum, *scaled, *added;

        if (i == UNUSED)
            continue;
        OK(core_mul(m->parameters[i], m->parameters[i], &square));
        OK(core_sum(square, CORE_DTYPE_NONE, &sum));
        OK(core_mul_scalar(sum, core_float(weight), &scaled));
        core_tensor_release(square);
        core_tensor_release(sum);
        if (!loss) {
            loss = scaled;
            continue;
        }
        OK(core_add(loss, scaled, core_int(1), &added));
        core_tensor_release(loss);
        core_tensor_release(scaled);
        loss = added;
    }
    return loss;
}

static void backward(model *m, double weight, uint32_t flags)
{
    core_tensor *loss = loss_of(m, weight);

    OK(m->shard ? core_shard_backward(m->shard, &loss, 1, NULL, flags)
                : core_reducer_backward(m->reducer, &loss, 1, NULL, flags));
    core_tensor_release(loss);
}

static void step(model *m, double weight)
{
    core_optimizer_zero_grad(m->optimizer);
    backward(m, weight, 0);
    if (m->optimizer)
        OK(core_optimizer_step(m->optimizer));
    if (m->shard)
        OK(core_shard_gather(m->shard));
}

static void expect_equal(core_tensor *a, core_tensor *b)
{
    float x[64], y[64];
    size_t size = (size_t)core_tensor_numel(a) * sizeof *x;

    OK(core_tensor_read(a, x, size));
    OK(core_tensor_read(b, y, size));
    ck_assert_int_eq(memcmp(x, y, size), 0);
}

static void expect_equal_models(const model *a, const model *b)
{
    for (int i = 0; i < COUNT; i++)
        expect_equal(a->parameters[i], b->parameters[i]);
}

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

/* -------------------------------------------------------------- files -- */

static temporary_path folder;
static char path[4200];

static void train_and_save(core_comm *comm)
{
    model m = sharded(comm, NULL);

    for (int i = 0; i < 2; i++)
        step(&m, 1);
    OK(core_shard_save(m.shard, m.optimizer, path));
    end(&m);
}

/* Averages of equal numbers are exact, so the number of ranks does not
 * matter. */
static void load_and_train(core_comm *comm)
{
    model a = sharded(comm, &small), b = whole(comm);

    for (int i = 0; i < 2; i++)
        step(&b, 1);
    for (int i = 0; i < COUNT; i++) {
        core_grad_mode_set(false);
        OK(core_copy_(a.parameters[i], b.parameters[i], false));
        core_grad_mode_set(true);
    }
    OK(core_shard_load(a.shard, a.optimizer, path));
    for (int i = 0; i < 2; i++) {
        step(&a, 1);
        step(&b, 1);
        expect_equal_models(&a, &b);
    }
    end(&a);
    end(&b);
}

START_TEST(states_load_on_another_number_of_ranks)
{
    temporary_folder(folder, "libcore-shard");
    snprintf(path, sizeof path, "%s/states", folder);
    on_ranks(4, train_and_save);
    on_ranks(2, load_and_train);
    on_ranks(1, load_and_train);
    on_ranks(2, train_and_save);
    on_ranks(4, load_and_train);
    temporary_remove(folder);
}
END_TEST

/* One parameter, of 6 elements in either order in memory. */
static core_tensor *matrix(core_comm *comm, const int64_t *dims, bool columns)
{
    core_tensor *parameter;
    const int64_t turned[2] = {dims[1], dims[0]};

    if (columns) {
        core_tensor *other;

        OK(core_ones(turned, 2, CORE_F32, core_comm_device(comm), &other));
        OK(core_transpose(other, 0, 1, &parameter));
        core_tensor_release(other);
    } else {
        OK(core_ones(dims, 2, CORE_F32, core_comm_device(comm), &parameter));
    }
    OK(core_tensor_set_requires_grad(parameter, true));
    return parameter;
}

static core_status save_or_load(core_comm *comm, const int64_t *dims,
                                bool columns, bool save)
{
    core_tensor *parameter = matrix(comm, dims, columns);
    core_optimizer *optimizer;
    core_shard *shard;
    core_status status;

    OK(core_shard_create(comm, &parameter, 1, NULL, &shard));
    optimizer = adam_of_pieces(shard);
    status = save ? core_shard_save(shard, optimizer, path)
                  : core_shard_load(shard, optimizer, path);
    core_optimizer_release(optimizer);
    core_shard_release(shard);
    core_tensor_release(parameter);
    return status;
}

/* The state of an element is found by its place in memory. */
static void refuse_other_layouts(core_comm *comm)
{
    const int64_t dims[2] = {2, 3}, turned[2] = {3, 2};

    OK(save_or_load(comm, dims, false, true));
    OK(save_or_load(comm, dims, false, false));
    ck_assert_int_eq(save_or_load(comm, dims, true, false), CORE_ERROR_CORRUPT);
    MESSAGE("\"parameters\" is");
    ck_assert_int_eq(save_or_load(comm, turned, false, false),
                     CORE_ERROR_CORRUPT);
}

static void expect_load(const model *m, core_status expected, const char *text)
{
    ck_assert_int_eq(core_shard_load(m->shard, m->optimizer, path), expected);
    MESSAGE(text);
}

static void copy_file(uint32_t from, uint32_t to)
{
    char command[9000];

    snprintf(command, sizeof command, "cp '%s.%u' '%s.%u'", path, from, path,
             to);
    ck_assert_int_eq(system(command), 0);
}

static void load_what_is_wrong(core_comm *comm)
{
    model m = sharded(comm, NULL);
    core_sgd_options options = {.struct_size = sizeof options,
                                .learning_rate = 1};
    core_optimizer *other;

    OK(core_sgd_create(m.parameters, COUNT, &options, &other));
    ck_assert_int_eq(core_shard_load(m.shard, other, path),
                     CORE_ERROR_INVALID_ARGUMENT);
    MESSAGE("core_shard_load: the optimizer's parameters are not the 5 pieces");
    expect_load(&m, CORE_ERROR_NOT_FOUND, "nowhere");
    core_optimizer_release(other);
    ck_assert_int_eq(core_shard_save(m.shard, m.optimizer, path),
                     CORE_ERROR_IO);
    snprintf(path, sizeof path, "%s/states", folder);
    OK(core_shard_load(m.shard, m.optimizer, path));
    copy_file(0, 2);
    copy_file(1, 0);
    expect_load(&m, CORE_ERROR_CORRUPT, "the state of a parameter is not");
    copy_file(2, 0);
    step(&m, 1);
    OK(core_shard_save(m.shard, m.optimizer, path));
    copy_file(0, 1);
    OK(core_shard_load(m.shard, m.optimizer, path));
    end(&m);
}

/* One of three ranks cannot write. */
static void save_what_cannot_be(core_comm *comm)
{
    model m = sharded(comm, NULL);
    char file[5000];

    snprintf(file, sizeof file, "%s.1", path);
    if (core_comm_rank(comm) == 1)
        ck_assert_int_eq(mkdir(file, 0700), 0);
    OK(core_barrier(comm));
    ck_assert_int_eq(core_shard_save(m.shard, m.optimizer, path),
                     CORE_ERROR_IO);
    if (core_comm_rank(comm) != 1)
        MESSAGE("core_shard_save: rank 1 could not save its pieces");
    OK(core_barrier(comm));
    rmdir(file);
    OK(core_shard_save(m.shard, m.optimizer, path));
    end(&m);
}

START_TEST(damaged_files_are_refused)
{
    temporary_folder(folder, "libcore-shard");
    snprintf(path, sizeof path, "%s/states", folder);
    on_ranks(2, train_and_save);
    snprintf(path, sizeof path, "%s/nowhere/states", folder);
    on_ranks(1, load_what_is_wrong);
    snprintf(path, sizeof path, "%s/others", folder);
    on_ranks(3, save_what_cannot_be);
    on_ranks(1, refuse_other_layouts);
    temporary_remove(folder);
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

/* All ranks get an error if one of them finds no file. */
static void one_rank_fails_to_load(core_comm *comm)
{
    model m = sharded(comm, &small);
    core_status status = core_shard_load(m.shard, m.optimizer, "/no/folder/x");

    ck_assert_int_eq(status, CORE_ERROR_NOT_FOUND);
    OK(core_shard_save(m.shard, m.optimizer, path));
    status = core_shard_load(m.shard, m.optimizer,
                             core_comm_rank(comm) == 0 ? path : "/no/folder/x");
    if (core_comm_rank(comm) == 0) {
        ck_assert_int_eq(status, CORE_ERROR_IO);
        MESSAGE("core_shard_load: rank 1 could not load the state");
    } else {
        ck_assert_int_eq(status, CORE_ERROR_NOT_FOUND);
    }
    end(&m);
}

START_TEST(error_of_one_rank_is_one_of_all)
{
    rank_device = rank_devices[_i];
    on_ranks(2, one_rank_fails_to_clip);
    on_ranks(2, one_rank_fails_to_gather);
    temporary_folder(folder, "libcore-shard");
    snprintf(path, sizeof path, "%s/states", folder);
    on_ranks(2, one_rank_fails_to_load);
    temporary_remove(folder);
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
        states_load_on_another_number_of_ranks,
        damaged_files_are_refused,
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
