/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "train.h"

#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------- data -- */

/* Mean and standard deviation of the data set's training images. */
static const double pixel_mean = 0.2860, pixel_deviation = 0.3530;

core_status train_set_upload(train_set *set, const train_images *images,
                             core_device *device)
{
    const int64_t sizes[2] = {images->count, TRAIN_PIXELS};
    size_t pixels = (size_t)images->count * TRAIN_PIXELS;
    float *values = malloc(pixels * sizeof *values);
    int64_t *labels = malloc((size_t)images->count * sizeof *labels);
    core_status status = CORE_OK;
    float table[256];

    *set = (train_set){images->count, NULL, NULL};
    for (int i = 0; i < 256; i++)
        table[i] = (float)((i / 255.0 - pixel_mean) / pixel_deviation);
    if (!values || !labels)
        status =
            train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for %lld images",
                        (long long)images->count);
    for (size_t i = 0; status == CORE_OK && i < pixels; i++)
        values[i] = table[images->pixels[i]];
    for (int64_t i = 0; status == CORE_OK && i < images->count; i++)
        labels[i] = images->labels[i];
    if (status == CORE_OK)
        status = core_tensor_from_data(values, CORE_F32, sizes, 2, device,
                                       &set->images);
    if (status == CORE_OK)
        status = core_tensor_from_data(labels, CORE_I64, sizes, 1, device,
                                       &set->labels);
    free(values);
    free(labels);
    return status;
}

void train_set_release(train_set *set)
{
    core_tensor_release(set->images);
    core_tensor_release(set->labels);
    *set = (train_set){0, NULL, NULL};
}

/* ------------------------------------------------------------ optimizer -- */

core_status trainer_create_optimizer(trainer *t)
{
    const train_options *options = &t->options;
    const core_adam_options adam = {
        .struct_size = sizeof adam,
        .decoupled = options->optimizer == TRAIN_ADAMW,
        .learning_rate = options->lr,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .epsilon = 1e-8,
        .weight_decay = options->weight_decay,
    };
    const core_sgd_options sgd = {
        .struct_size = sizeof sgd,
        .learning_rate = options->lr,
        .momentum = options->momentum,
        .weight_decay = options->weight_decay,
    };

    if (options->optimizer != TRAIN_SGD)
        return core_adam_create(t->model.parameters, t->model.count, &adam,
                                &t->optimizer);
    return core_sgd_create(t->model.parameters, t->model.count, &sgd,
                           &t->optimizer);
}

/* ---------------------------------------------------------------- steps -- */

/* Adds to *correct how many of the logits are largest at their label. */
static core_status count_correct(core_tensor *logits, core_tensor *labels,
                                 core_tensor *correct)
{
    const int64_t classes = 1;
    core_tensor *best = NULL, *hits = NULL, *sum = NULL;
    core_status status;

    status = core_argmax(logits, &classes, false, &best);
    if (status == CORE_OK)
        status = core_eq(best, labels, &hits);
    if (status == CORE_OK)
        status = core_sum(hits, CORE_I64, &sum);
    if (status == CORE_OK)
        status = core_add_(correct, sum, core_int(1));
    core_tensor_release(best);
    core_tensor_release(hits);
    core_tensor_release(sum);
    return status;
}

static core_status cross_entropy(core_tensor *logits, core_tensor *labels,
                                 core_tensor **out_loss)
{
    enum { MEAN = 1, NOTHING_IGNORED = -100 };

    return core_cross_entropy_loss(logits, labels, NULL, MEAN, NOTHING_IGNORED,
                                   0, out_loss);
}

/* What the epoch's score is made of stays on the device: reading it would make
 * every batch wait. */
static core_status account(trainer *t, core_tensor *loss, core_tensor *logits,
                           core_tensor *labels, int64_t count)
{
    bool before = core_grad_mode_set(false);
    core_status status;

    status = core_add_(t->loss_sum, loss, core_float((double)count));
    if (status == CORE_OK)
        status = count_correct(logits, labels, t->correct);
    core_grad_mode_set(before);
    return status;
}

core_status trainer_batch(trainer *t)
{
    int64_t left = t->train.count - t->position;
    int64_t count = left < t->options.batch ? left : t->options.batch;
    core_tensor *index = NULL, *images = NULL, *labels = NULL;
    core_tensor *logits = NULL, *loss = NULL;
    core_status status;

    status = core_narrow(t->order_on_device, 0, t->position, count, &index);
    if (status == CORE_OK)
        status = core_index_select(t->train.images, 0, index, &images);
    if (status == CORE_OK)
        status = core_index_select(t->train.labels, 0, index, &labels);
    if (status == CORE_OK)
        status = t->model.kind->forward(&t->model, images, &logits);
    if (status == CORE_OK)
        status = cross_entropy(logits, labels, &loss);
    if (status == CORE_OK) {
        core_optimizer_zero_grad(t->optimizer);
        status = core_backward(&loss, 1, NULL, 0);
    }
    if (status == CORE_OK)
        status = core_optimizer_step(t->optimizer);
    if (status == CORE_OK)
        status = account(t, loss, logits, labels, count);
    if (status == CORE_OK)
        t->position += count;
    core_tensor_release(index);
    core_tensor_release(images);
    core_tensor_release(labels);
    core_tensor_release(logits);
    core_tensor_release(loss);
    return status;
}

/* --------------------------------------------------------------- epochs -- */

core_status trainer_begin_epoch(trainer *t)
{
    int64_t count = t->train.count;
    double lr = t->options.lr;

    /* Depends on the epoch alone, so that a resumed run has the same. */
    for (int64_t i = 0; i < t->epoch; i++)
        lr *= t->options.lr_decay;
    CORE_TRY(core_optimizer_set_learning_rate(t->optimizer, lr));
    if (!t->order)
        t->order = malloc((size_t)count * sizeof *t->order);
    if (!t->order)
        return train_error(CORE_ERROR_OUT_OF_MEMORY,
                           "no memory for the order of the images");
    train_shuffle(t->order, count, t->options.seed, (uint64_t)t->epoch);
    if (t->order_on_device)
        return core_tensor_write(t->order_on_device, t->order,
                                 (size_t)count * sizeof *t->order);
    return core_tensor_from_data(t->order, CORE_I64, &count, 1, t->device,
                                 &t->order_on_device);
}

static core_status read_score(core_tensor *loss_sum, core_tensor *correct,
                              int64_t count, train_score *out_score)
{
    double loss = 0;
    int64_t right = 0;

    CORE_TRY(core_tensor_item_float(loss_sum, &loss));
    CORE_TRY(core_tensor_item_int(correct, &right));
    out_score->loss = loss / (double)count;
    out_score->accuracy = (double)right / (double)count;
    return CORE_OK;
}

core_status trainer_epoch_score(trainer *t, train_score *out_score)
{
    return read_score(t->loss_sum, t->correct, t->position, out_score);
}

core_status trainer_end_epoch(trainer *t)
{
    CORE_TRY(core_zero_(t->loss_sum));
    CORE_TRY(core_zero_(t->correct));
    t->position = 0;
    t->epoch++;
    return CORE_OK;
}

/* ----------------------------------------------------------- evaluation -- */

static core_status evaluate_part(const trainer *t, int64_t first, int64_t count,
                                 core_tensor *loss_sum, core_tensor *correct)
{
    core_tensor *images = NULL, *labels = NULL, *logits = NULL, *loss = NULL;
    core_status status;

    status = core_narrow(t->test.images, 0, first, count, &images);
    if (status == CORE_OK)
        status = core_narrow(t->test.labels, 0, first, count, &labels);
    if (status == CORE_OK)
        status = t->model.kind->forward(&t->model, images, &logits);
    if (status == CORE_OK)
        status = cross_entropy(logits, labels, &loss);
    if (status == CORE_OK)
        status = core_add_(loss_sum, loss, core_float((double)count));
    if (status == CORE_OK)
        status = count_correct(logits, labels, correct);
    core_tensor_release(images);
    core_tensor_release(labels);
    core_tensor_release(logits);
    core_tensor_release(loss);
    return status;
}

core_status trainer_evaluate(const trainer *t, train_score *out_score)
{
    enum { PART = 1000 };
    bool before = core_grad_mode_set(false);
    core_tensor *loss_sum = NULL, *correct = NULL;
    core_status status;

    status = core_zeros_like(t->loss_sum, CORE_DTYPE_NONE, NULL, -1, &loss_sum);
    if (status == CORE_OK)
        status =
            core_zeros_like(t->correct, CORE_DTYPE_NONE, NULL, -1, &correct);
    for (int64_t first = 0; status == CORE_OK && first < t->test.count;
         first += PART) {
        int64_t left = t->test.count - first;

        status = evaluate_part(t, first, left < PART ? left : PART, loss_sum,
                               correct);
    }
    if (status == CORE_OK)
        status = read_score(loss_sum, correct, t->test.count, out_score);
    core_tensor_release(loss_sum);
    core_tensor_release(correct);
    core_grad_mode_set(before);
    return status;
}

void trainer_release(trainer *t)
{
    core_optimizer_release(t->optimizer);
    train_model_release(&t->model);
    train_set_release(&t->train);
    train_set_release(&t->test);
    core_tensor_release(t->loss_sum);
    core_tensor_release(t->correct);
    core_tensor_release(t->order_on_device);
    free(t->order);
    core_device_release(t->device);
    memset(t, 0, sizeof *t);
}
