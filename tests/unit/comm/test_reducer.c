/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Gradients averaged over ranks: buckets, accumulation, unused parameters,
 * buffers. */

#include "support/ranks.h"

#include "tensor/tensor.h"

#include <libcore/autograd.h>
#include <libcore/optim.h>
#include <libcore/reducer.h>

enum { LAYERS = 4, WIDTH = 8, PAIR = 2 * 4 * WIDTH * WIDTH };

/* ---------------------------------------------------------------- model -- */

/* Weights of a chain of linear layers, and what a test has made. */
typedef struct model {
    core_comm *comm;
    core_tensor *weights[LAYERS];
    core_reducer *reducer;
} model;

static core_tensor *filled(core_comm *comm, const int64_t *sizes, size_t ndim,
                           double value)
{
    core_tensor *tensor;

    OK(core_full(sizes, ndim, core_float(value), CORE_F32,
                 core_comm_device(comm), &tensor));
    return tensor;
}

/* The weights of other ranks than 0 are wrong at first. */
static core_tensor *weight(core_comm *comm, int layer)
{
    int64_t sizes[2] = {WIDTH, WIDTH};
    float values[WIDTH * WIDTH];
    core_tensor *tensor;

    for (int i = 0; i < WIDTH * WIDTH; i++)
        values[i] = core_comm_rank(comm)
                        ? 77
                        : (float)((i * 7 + layer * 3) % 11 - 5) / 16;
    OK(core_tensor_from_data(values, CORE_F32, sizes, 2, core_comm_device(comm),
                             &tensor));
    OK(core_tensor_set_requires_grad(tensor, true));
    return tensor;
}

/* Two buckets of two weights. */
static model begin(core_comm *comm, core_dtype dtype)
{
    const core_reducer_options options = {.struct_size = sizeof options,
                                          .dtype = dtype,
                                          .bucket_bytes = PAIR,
                                          .first_bucket_bytes = PAIR};
    model m = {.comm = comm};

    for (int i = 0; i < LAYERS; i++)
        m.weights[i] = weight(comm, i);
    OK(core_reducer_create(comm, m.weights, LAYERS, &options, &m.reducer));
    return m;
}

static void end(model *m)
{
    core_reducer_release(m->reducer);
    for (int i = 0; i < LAYERS; i++)
        core_tensor_release(m->weights[i]);
}

static void zero_grads(model *m)
{
    for (int i = 0; i < LAYERS; i++)
        OK(core_tensor_set_grad(m->weights[i], NULL));
}

/* Sample s is a row that depends on s; the loss is the mean over samples from
 * `first` on, of the sum of a chain of the layers in `mask`. */
static core_tensor *loss_of(model *m, int first, int samples, unsigned mask)
{
    int64_t sizes[2] = {samples, WIDTH};
    float values[16 * WIDTH];
    core_tensor *x, *next;

    for (int i = 0; i < samples * WIDTH; i++)
        values[i] = (float)((i + first * WIDTH) * 5 % 13 - 6) / 8;
    OK(core_tensor_from_data(values, CORE_F32, sizes, 2,
                             core_comm_device(m->comm), &x));
    for (int i = 0; i < LAYERS; i++) {
        if (!(mask >> i & 1))
            continue;
        OK(core_linear(x, m->weights[i], NULL, &next));
        core_tensor_release(x);
        OK(core_tanh(next, &x));
        core_tensor_release(next);
    }
    OK(core_sum(x, CORE_DTYPE_NONE, &next));
    core_tensor_release(x);
    OK(core_mul_scalar(next, core_float(1.0 / samples), &x));
    core_tensor_release(next);
    return x;
}

static core_status backward(model *m, int first, int samples, unsigned mask,
                            uint32_t flags)
{
    core_tensor *loss = loss_of(m, first, samples, mask);
    core_status status =
        core_reducer_backward(m->reducer, &loss, 1, NULL, flags);

    core_tensor_release(loss);
    return status;
}

/* The gradient of a weight for a loss of one process. */
static void expected(model *m, int first, int samples, unsigned mask, int layer,
                     float *out)
{
    core_tensor *loss = loss_of(m, first, samples, mask), *gradient;

    OK(core_grad(&loss, 1, NULL, &m->weights[layer], 1, 0, &gradient));
    OK(core_tensor_read(gradient, out, WIDTH * WIDTH * sizeof *out));
    core_tensor_release(gradient);
    core_tensor_release(loss);
}

static void near(core_tensor *tensor, const float *values, double factor)
{
    float found[WIDTH * WIDTH];

    ck_assert_ptr_nonnull(tensor);
    OK(core_tensor_read(tensor, found, sizeof found));
    for (int i = 0; i < WIDTH * WIDTH; i++)
        ck_assert_float_eq_tol(found[i], (float)(factor * values[i]), 1e-5f);
}

static core_reducer_counts counts_of(const model *m)
{
    core_reducer_counts counts = {.struct_size = sizeof counts};

    OK(core_reducer_get_counts(m->reducer, &counts));
    return counts;
}

/* Every rank has the same bits. */
static void same_on_all(core_comm *comm, core_tensor *tensor)
{
    core_tensor *least, *most;
    bool equal;

    OK(core_all_reduce(comm, tensor, CORE_REDUCE_MIN, &least));
    OK(core_all_reduce(comm, tensor, CORE_REDUCE_MAX, &most));
    OK(core_equal(least, most, &equal));
    ck_assert(equal);
    core_tensor_release(least);
    core_tensor_release(most);
}

static bool in_bucket(const model *m, core_tensor *grad)
{
    core_tensor *bucket;

    for (size_t i = 0; (bucket = core_reducer_bucket(m->reducer, i)) != NULL;
         i++)
        if (bucket->storage == grad->storage)
            return true;
    return false;
}

/* ---------------------------------------------------------------- tests -- */

static void average(core_comm *comm)
{
    model m = begin(comm, 0);
    int rank = (int)core_comm_rank(comm), size = (int)core_comm_size(comm);
    float whole[WIDTH * WIDTH];

    ck_assert_uint_eq(counts_of(&m).buckets, 2);
    for (int step = 0; step < 4; step++) {
        zero_grads(&m);
        OK(backward(&m, 2 * rank, 2, 15, 0));
        for (int i = 0; i < LAYERS; i++) {
            core_tensor *grad = core_tensor_grad(m.weights[i]);

            expected(&m, 0, 2 * size, 15, i, whole);
            near(grad, whole, 1);
            same_on_all(comm, grad);
            ck_assert(in_bucket(&m, grad));
        }
        ck_assert_uint_eq(counts_of(&m).copied, 0);
        ck_assert_uint_eq(counts_of(&m).early, 2 * ((unsigned)step + 1));
    }
    ck_assert_uint_eq(counts_of(&m).in_place, 16);
    ck_assert_uint_eq(counts_of(&m).steps, 4);
    ck_assert((counts_of(&m).communicated_ns > 0) ==
              (strcmp(rank_device, "cpu") == 0));
    end(&m);
}

static void accumulate(core_comm *comm)
{
    model m = begin(comm, 0);
    int rank = (int)core_comm_rank(comm), size = (int)core_comm_size(comm);
    float whole[WIDTH * WIDTH];
    uint64_t before;

    for (int step = 0; step < 3; step++) {
        zero_grads(&m);
        before = core_comm_sequence(core_reducer_comm(m.reducer));
        OK(backward(&m, 2 * rank, 1, 15, CORE_REDUCER_NO_SYNC));
        ck_assert_uint_eq(core_comm_sequence(core_reducer_comm(m.reducer)),
                          before);
        OK(backward(&m, 2 * rank + 1, 1, 15, 0));
        for (int i = 0; i < LAYERS; i++) {
            expected(&m, 0, 2 * size, 15, i, whole);
            near(core_tensor_grad(m.weights[i]), whole, 2);
        }
    }
    /* Gradients are added to averages, too, and to what the program set. */
    OK(backward(&m, 2 * rank, 2, 15, 0));
    near(core_tensor_grad(m.weights[3]), whole, 3);
    end(&m);
}

static void replace_grads(core_comm *comm)
{
    model m = begin(comm, 0);
    int rank = (int)core_comm_rank(comm);
    int64_t sizes[2] = {WIDTH, WIDTH};
    core_tensor *ones = filled(comm, sizes, 2, 1);
    float whole[WIDTH * WIDTH];

    OK(core_tensor_set_grad(m.weights[1], ones));
    OK(backward(&m, 2 * rank, 2, 15, 0));
    expected(&m, 0, 2 * (int)core_comm_size(comm), 15, 1, whole);
    for (int i = 0; i < WIDTH * WIDTH; i++)
        whole[i] += 1;
    near(core_tensor_grad(m.weights[1]), whole, 1);
    ck_assert(in_bucket(&m, core_tensor_grad(m.weights[1])));
    core_tensor_release(ones);
    end(&m);
}

/* Rank r does not use layer r; no rank uses the last one. */
static void leave_out(core_comm *comm)
{
    model m = begin(comm, 0);
    unsigned rank = core_comm_rank(comm), size = core_comm_size(comm);
    float part[WIDTH * WIDTH], whole[WIDTH * WIDTH];

    for (int step = 0; step < 3; step++) {
        zero_grads(&m);
        OK(backward(&m, 0, 2, 7u & ~(1u << rank), 0));
        for (int i = 0; i < 3; i++) {
            memset(whole, 0, sizeof whole);
            for (unsigned r = 0; r < size; r++) {
                if ((int)r == i)
                    continue;
                expected(&m, 0, 2, 7u & ~(1u << r), i, part);
                for (int e = 0; e < WIDTH * WIDTH; e++)
                    whole[e] += part[e] / (float)size;
            }
            near(core_tensor_grad(m.weights[i]), whole, 1);
            same_on_all(comm, core_tensor_grad(m.weights[i]));
        }
        ck_assert_ptr_null(core_tensor_grad(m.weights[3]));
    }
    /* All are used again. */
    zero_grads(&m);
    OK(backward(&m, 0, 2, 15, 0));
    expected(&m, 0, 2, 15, 3, whole);
    near(core_tensor_grad(m.weights[3]), whole, 1);
    end(&m);
}

/* The loss sum(a) + sum(b), or sum(b) alone. */
static core_status backward_of_sums(core_reducer *reducer, core_tensor **w,
                                    bool both)
{
    core_tensor *parts[2] = {NULL, NULL};
    core_status status;

    OK(core_sum(w[1], CORE_DTYPE_NONE, &parts[0]));
    if (both)
        OK(core_sum(w[0], CORE_DTYPE_NONE, &parts[1]));
    status = core_reducer_backward(reducer, parts, both ? 2 : 1, NULL, 0);
    core_tensor_release(parts[0]);
    core_tensor_release(parts[1]);
    return status;
}

/* In f16, a flag that is halved in each step is 0 after 25 steps. */
static void leave_out_for_long(core_comm *comm)
{
    const core_reducer_options options = {.struct_size = sizeof options,
                                          .bucket_bytes = 1,
                                          .first_bucket_bytes = 1};
    const int64_t size = 4;
    core_tensor *w[2];
    core_reducer *reducer;

    for (int i = 0; i < 2; i++) {
        OK(core_ones(&size, 1, CORE_F16, core_comm_device(comm), &w[i]));
        OK(core_tensor_set_requires_grad(w[i], true));
    }
    OK(core_reducer_create(comm, w, 2, &options, &reducer));
    for (int step = 0; step < 40; step++) {
        OK(core_tensor_set_grad(w[0], NULL));
        OK(core_tensor_set_grad(w[1], NULL));
        OK(backward_of_sums(reducer, w, core_comm_rank(comm) == 0));
        ck_assert_msg(core_tensor_grad(w[0]) != NULL, "step %d", step);
        same_on_all(comm, core_tensor_grad(w[0]));
    }
    core_reducer_release(reducer);
    core_tensor_release(w[0]);
    core_tensor_release(w[1]);
}

/* The batch has one sample less than there are ranks. */
static void without_loss(core_comm *comm)
{
    model m = begin(comm, 0);
    int rank = (int)core_comm_rank(comm), size = (int)core_comm_size(comm);
    float whole[WIDTH * WIDTH];

    for (int step = 0; step < 2; step++) {
        zero_grads(&m);
        if (rank == size - 1)
            OK(core_reducer_backward(m.reducer, NULL, 0, NULL, 0));
        else
            OK(backward(&m, rank, 1, 15, 0));
        expected(&m, 0, size - 1, 15, 2, whole);
        near(core_tensor_grad(m.weights[2]), whole, (double)(size - 1) / size);
        same_on_all(comm, core_tensor_grad(m.weights[2]));
    }
    end(&m);
}

/* The loss reaches the weights in the opposite order of that of creation. */
static void reorder(core_comm *comm)
{
    model m = begin(comm, 0);
    core_tensor *first;
    core_reducer *reducer;

    core_reducer_release(m.reducer);
    for (int i = 0; i < LAYERS / 2; i++) {
        core_tensor *other = m.weights[i];

        m.weights[i] = m.weights[LAYERS - 1 - i];
        m.weights[LAYERS - 1 - i] = other;
    }
    {
        const core_reducer_options options = {.struct_size = sizeof options,
                                              .bucket_bytes = 1,
                                              .first_bucket_bytes = 1};

        OK(core_reducer_create(comm, m.weights, LAYERS, &options, &reducer));
    }
    for (int i = 0; i < LAYERS / 2; i++) {
        core_tensor *other = m.weights[i];

        m.weights[i] = m.weights[LAYERS - 1 - i];
        m.weights[LAYERS - 1 - i] = other;
    }
    m.reducer = reducer;
    OK(backward(&m, 0, 1, 15, 0));
    first = core_reducer_bucket(reducer, 0);
    ck_assert_ptr_eq(core_tensor_grad(m.weights[0])->storage, first->storage);
    zero_grads(&m);
    OK(backward(&m, 0, 1, 15, 0));
    first = core_reducer_bucket(reducer, 0);
    ck_assert_ptr_eq(core_tensor_grad(m.weights[3])->storage, first->storage);
    end(&m);
}

static void half_weights(core_comm *comm, core_dtype buckets)
{
    int64_t one = 1;
    core_tensor *full = filled(comm, &one, 1, 1), *weight, *factor, *loss;
    const core_reducer_options options = {.struct_size = sizeof options,
                                          .dtype = buckets};
    core_reducer *reducer;
    double grad;

    OK(core_to_copy(full, CORE_BF16, NULL, false, -1, &weight));
    OK(core_tensor_set_requires_grad(weight, true));
    OK(core_reducer_create(comm, &weight, 1, &options, &reducer));
    /* 256 + 1 has no bf16: only a sum in f32 keeps the ones. */
    for (int i = 0; i < 9; i++) {
        core_tensor_release(full);
        full = filled(comm, &one, 1, i == 0 ? 256 : 1);
        OK(core_to_copy(full, CORE_BF16, NULL, false, -1, &factor));
        OK(core_mul(weight, factor, &loss));
        OK(core_reducer_backward(reducer, &loss, 1, NULL,
                                 i < 8 ? CORE_REDUCER_NO_SYNC : 0));
        core_tensor_release(factor);
        core_tensor_release(loss);
    }
    ck_assert_int_eq(core_tensor_dtype(core_tensor_grad(weight)), CORE_BF16);
    OK(core_tensor_item_float(core_tensor_grad(weight), &grad));
    ck_assert_double_eq(grad, buckets == CORE_F32 ? 264 : 256);
    core_tensor_release(full);
    core_tensor_release(weight);
    core_reducer_release(reducer);
}

/* The first step changes the order of the buckets, whose f32 content is kept:
 * 256 + 1 has no bf16, but 256 + 1 + 1 has. */
static void keep_sum(core_comm *comm)
{
    int64_t one = 1;
    core_tensor *full = filled(comm, &one, 1, 1), *weights[2], *sum, *loss;
    const core_reducer_options options = {.struct_size = sizeof options,
                                          .dtype = CORE_F32,
                                          .bucket_bytes = 1,
                                          .first_bucket_bytes = 1};
    core_reducer *reducer;
    double grad;

    for (int i = 0; i < 2; i++) {
        OK(core_to_copy(full, CORE_BF16, NULL, false, -1, &weights[i]));
        OK(core_tensor_set_requires_grad(weights[i], true));
    }
    core_tensor_release(full);
    OK(core_reducer_create(comm, weights, 2, &options, &reducer));
    for (int i = 0; i < 3; i++) {
        OK(core_add(weights[0], weights[1], core_int(1), &sum));
        OK(core_mul_scalar(sum, core_float(i == 0 ? 256 : 1), &loss));
        /* 256 + 1 in the first step, whose grad is 256. */
        OK(core_reducer_backward(reducer, &loss, 1, NULL,
                                 i == 0 ? CORE_REDUCER_NO_SYNC : 0));
        core_tensor_release(sum);
        core_tensor_release(loss);
    }
    for (int i = 0; i < 2; i++) {
        OK(core_tensor_item_float(core_tensor_grad(weights[i]), &grad));
        ck_assert_double_eq(grad, 258);
        core_tensor_release(weights[i]);
    }
    core_reducer_release(reducer);
}

static void halves(core_comm *comm)
{
    half_weights(comm, CORE_F32);
    half_weights(comm, 0);
    keep_sum(comm);
}

/* Buffers, one of which is not contiguous. */
static void copy_buffers(core_comm *comm)
{
    int64_t sizes[2] = {2, 3};
    double mine = core_comm_rank(comm) + 5;
    core_tensor *one = filled(comm, sizes, 1, mine),
                *two = filled(comm, sizes, 2, mine), *turned,
                *weight = filled(comm, sizes, 2, 1);
    core_tensor *buffers[2];
    core_reducer_options options = {
        .struct_size = sizeof options, .buffers = buffers, .nbuffers = 2};
    core_reducer *reducer;

    OK(core_t(two, &turned));
    buffers[0] = one;
    buffers[1] = turned;
    OK(core_tensor_set_requires_grad(weight, true));
    OK(core_reducer_create(comm, &weight, 1, &options, &reducer));
    rank_expect(one, (float[]){5, 5}, 2);
    rank_expect(turned, (float[]){5, 5, 5, 5, 5, 5}, 6);
    OK(core_mul_scalar_(turned, core_float(mine)));
    OK(core_reducer_broadcast_buffers(reducer));
    rank_expect(two, (float[]){25, 25, 25, 25, 25, 25}, 6);
    core_tensor_release(one);
    core_tensor_release(two);
    core_tensor_release(turned);
    core_tensor_release(weight);
    core_reducer_release(reducer);
}

/* Training keeps the weights equal, and the grads outlive the reducer. */
static void train(core_comm *comm)
{
    model m = begin(comm, 0);
    const core_sgd_options sgd = {
        .struct_size = sizeof sgd, .learning_rate = .1, .momentum = .9};
    int rank = (int)core_comm_rank(comm);
    core_optimizer *optimizer;

    OK(core_sgd_create(m.weights, LAYERS, &sgd, &optimizer));
    for (int step = 0; step < 10; step++) {
        core_optimizer_zero_grad(optimizer);
        OK(backward(&m, rank + step, 3, 15, 0));
        OK(core_optimizer_step(optimizer));
        for (int i = 0; i < LAYERS; i++) {
            core_tensor *copy;

            OK(core_detach(m.weights[i], &copy));
            same_on_all(comm, copy);
            core_tensor_release(copy);
        }
    }
    core_reducer_release(m.reducer);
    m.reducer = NULL;
    OK(core_optimizer_step(optimizer));
    core_optimizer_release(optimizer);
    end(&m);
}

START_TEST(gradients_are_the_average_over_all_ranks)
{
    rank_device = rank_devices[_i];
    on_ranks(3, average);
    on_ranks(1, average);
}
END_TEST

START_TEST(gradients_accumulate_without_communication)
{
    rank_device = rank_devices[_i];
    on_ranks(2, accumulate);
    on_ranks(2, replace_grads);
}
END_TEST

START_TEST(unused_parameters_may_differ_by_rank)
{
    rank_device = rank_devices[_i];
    on_ranks(3, leave_out);
    on_ranks(3, without_loss);
    on_ranks(2, leave_out_for_long);
}
END_TEST

START_TEST(buckets_get_the_order_of_the_first_step)
{
    rank_device = rank_devices[_i];
    on_ranks(2, reorder);
}
END_TEST

/* Parameters of 1 KB, and the numbers of them in the buckets. */
static void divide(core_comm *comm)
{
    static const int64_t counts[] = {1, 16, 16, 15, 8, 4, 2, 1, 1};
    enum { PARAMETERS = 64, BUCKETS = sizeof counts / sizeof *counts };
    const core_reducer_options options = {.struct_size = sizeof options,
                                          .bucket_bytes = 16 * 1024,
                                          .first_bucket_bytes = 1024};
    const int64_t size = 256;
    core_tensor *parameters[PARAMETERS];
    core_reducer *reducer;

    for (int i = 0; i < PARAMETERS; i++) {
        OK(core_zeros(&size, 1, CORE_F32, core_comm_device(comm),
                      &parameters[i]));
        OK(core_tensor_set_requires_grad(parameters[i], true));
    }
    OK(core_reducer_create(comm, parameters, PARAMETERS, &options, &reducer));
    for (size_t i = 0; i < BUCKETS; i++)
        ck_assert_int_eq(core_tensor_numel(core_reducer_bucket(reducer, i)),
                         counts[i] * (size + 1)); /* and one flag for each */
    ck_assert_ptr_null(core_reducer_bucket(reducer, BUCKETS));
    core_reducer_release(reducer);
    for (int i = 0; i < PARAMETERS; i++)
        core_tensor_release(parameters[i]);
}

START_TEST(last_buckets_become_smaller)
{
    on_ranks(1, divide);
}
END_TEST

START_TEST(buckets_of_f32_accumulate_gradients_of_halves)
{
    rank_device = rank_devices[_i];
    on_ranks(2, halves);
}
END_TEST

START_TEST(buffers_are_those_of_rank_0)
{
    rank_device = rank_devices[_i];
    on_ranks(2, copy_buffers);
}
END_TEST

START_TEST(training_keeps_weights_equal)
{
    rank_device = rank_devices[_i];
    on_ranks(3, train);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        last_buckets_become_smaller,
    };
    const suite_loop loops[] = {
        {gradients_are_the_average_over_all_ranks, 0, 2},
        {gradients_accumulate_without_communication, 0, 2},
        {unused_parameters_may_differ_by_rank, 0, 2},
        {buckets_get_the_order_of_the_first_step, 0, 2},
        {buckets_of_f32_accumulate_gradients_of_halves, 0, 2},
        {buffers_are_those_of_rank_0, 0, 2},
        {training_keeps_weights_equal, 0, 2},
    };
    const test_suite suites[] = {
        {"comm/reducer", SUITE_TESTS(tests), SUITE_LOOPS(loops)},
    };

    return suite_run(suites, sizeof suites / sizeof *suites);
}
