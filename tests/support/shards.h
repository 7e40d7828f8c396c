/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* shards.h: small models whose optimizers are sharded between ranks, or not. */

#ifndef TESTS_SUPPORT_SHARDS_H
#define TESTS_SUPPORT_SHARDS_H

#include "ranks.h"

#include <libcore/autograd.h>
#include <libcore/memory.h>
#include <libcore/mode.h>
#include <libcore/shard.h>
#include <libcore/stream.h>

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

static inline void make_parameters(core_comm *comm, model *m)
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

static inline core_optimizer *adam(core_tensor *const *parameters, size_t count)
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

static inline core_optimizer *adam_of_pieces(const core_shard *shard)
{
    core_tensor *pieces[COUNT];
    size_t count = core_shard_piece_count(shard);

    for (size_t i = 0; i < count; i++)
        pieces[i] = core_shard_piece(shard, i);
    return count ? adam(pieces, count) : NULL;
}

static inline model sharded(core_comm *comm, const core_shard_options *options)
{
    model m = {0};

    make_parameters(comm, &m);
    OK(core_shard_create(comm, m.parameters, COUNT, options, &m.shard));
    m.optimizer = adam_of_pieces(m.shard);
    return m;
}

static inline model whole(core_comm *comm)
{
    model m = {0};

    make_parameters(comm, &m);
    OK(core_reducer_create(comm, m.parameters, COUNT, NULL, &m.reducer));
    m.optimizer = adam(m.parameters, COUNT);
    return m;
}

static inline void end(model *m)
{
    core_optimizer_release(m->optimizer);
    core_shard_release(m->shard);
    core_reducer_release(m->reducer);
    for (int i = 0; i < COUNT; i++)
        core_tensor_release(m->parameters[i]);
}

/* Sum of weight * p * p over the parameters that are used: whole numbers at
 * first, then others. */
static inline core_tensor *loss_of(const model *m, double weight)
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

static inline void backward(model *m, double weight, uint32_t flags)
{
    core_tensor *loss = loss_of(m, weight);

    OK(m->shard ? core_shard_backward(m->shard, &loss, 1, NULL, flags)
                : core_reducer_backward(m->reducer, &loss, 1, NULL, flags));
    core_tensor_release(loss);
}

static inline void step(model *m, double weight)
{
    core_optimizer_zero_grad(m->optimizer);
    backward(m, weight, 0);
    if (m->optimizer)
        OK(core_optimizer_step(m->optimizer));
    if (m->shard)
        OK(core_shard_gather(m->shard));
}

static inline void expect_equal(core_tensor *a, core_tensor *b)
{
    float x[64], y[64];
    size_t size = (size_t)core_tensor_numel(a) * sizeof *x;

    OK(core_tensor_read(a, x, size));
    OK(core_tensor_read(b, y, size));
    ck_assert_int_eq(memcmp(x, y, size), 0);
}

static inline void expect_equal_models(const model *a, const model *b)
{
    for (int i = 0; i < COUNT; i++)
        expect_equal(a->parameters[i], b->parameters[i]);
}

#endif
