/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "layers.h"

#include <libcore/profiler.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void train_set_release(train_set *set)
{
    core_tensor_release(set->data);
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
    core_tensor *const *tensors;
    size_t count = train_shard_optimized(t, &tensors);
    const core_sgd_options sgd = {
        .struct_size = sizeof sgd,
        .learning_rate = options->lr,
        .momentum = options->momentum,
        .weight_decay = options->weight_decay,
    };

    if (count == 0) /* this rank's part is empty */
        return CORE_OK;
    if (options->optimizer != TRAIN_SGD)
        return core_adam_create(tensors, count, &adam, &t->optimizer);
    return core_sgd_create(tensors, count, &sgd, &t->optimizer);
}

/* ---------------------------------------------------------------- steps -- */

/* Returns the loss of some samples; the innermost scope owns it and the
 * logits. */
static core_tensor *forward(const trainer *t, core_tensor *inputs,
                            core_tensor *labels, bool training,
                            core_tensor **out_logits)
{
    *out_logits = train_logits(t, inputs, training);
    return core_x_cross_entropy_loss(*out_logits, labels);
}

/* Adds to the sums of a score, which stay on the device: reading them would make
 * every batch wait.  A row is correct whose largest logit is at the label. */
static void account(core_tensor *loss, core_tensor *logits, core_tensor *labels,
                    int64_t count, core_tensor *loss_sum, core_tensor *correct)
{
    bool before = core_grad_mode_set(false);
    core_tensor *hits = core_x_eq(core_x_argmax(logits, core_int(1)), labels);

    core_x_add_(loss_sum, loss, core_float((double)count));
    core_x_add_(correct, core_x_sum(hits, CORE_I64));
    core_grad_mode_set(before);
}

/* The learning rate depends on the step number alone, so that a resumed run has
 * the same. */
static core_status set_rate(trainer *t)
{
    const train_options *options = &t->options;
    uint64_t step = (uint64_t)trainer_steps(t);
    uint64_t warmup = (uint64_t)options->warmup;
    double lr = options->lr;

    if (options->schedule == TRAIN_COSINE) {
        lr = core_schedule_cosine(
            lr, 0.1 * lr, warmup,
            (uint64_t)(trainer_steps_per_epoch(t) * options->epochs), step);
    } else {
        for (int64_t i = 0; i < t->epoch; i++)
            lr *= options->lr_decay;
        lr = core_schedule_warmup(lr, warmup, step);
    }
    return t->optimizer ? core_optimizer_set_learning_rate(t->optimizer, lr)
                        : CORE_OK;
}

/* Backward and optimizer step. */
static core_status update_parameters(trainer *t, core_tensor *loss)
{
    if (t->compiled) {
        CORE_TRY(train_compile_backward(t, loss));
    } else {
        core_optimizer_zero_grad(t->optimizer);
        CORE_TRY(train_amp_backward(t, loss));
    }
    if (t->options.clip > 0 && (t->tensor || t->model.pieces))
        CORE_TRY(train_clip(t, t->options.clip));
    else if (t->options.clip > 0 && t->shard)
        CORE_TRY(core_shard_clip_grad_norm(t->shard, t->options.clip, NULL));
    else if (t->options.clip > 0)
        CORE_TRY(core_clip_grad_norm(t->model.parameters, t->model.count,
                                     t->options.clip, 2, false, NULL));
    if (t->optimizer)
        CORE_TRY(train_amp_step(t));
    return t->shard ? core_shard_gather(t->shard) : CORE_OK;
}

/* Reports what to do, and that the last checkpoint is intact. */
static core_status diverged(const trainer *t, const char *what,
                            const char *name)
{
    const char *save = t->options.save;

    return train_error(CORE_ERROR_INVALID_ARGUMENT,
                       "training diverged in epoch %lld: %s%s is infinite or "
                       "NaN; try a smaller --lr, or --clip 1%s%s%s",
                       (long long)t->epoch + 1, what, name, save ? " (" : "",
                       save ? save : "", save ? " was not changed)" : "");
}

/* A sample that does not count, on a rank that has none: it takes part in the
 * collectives of the forward and backward pass. */
static void take_any_sample(const trainer *t, core_tensor **inputs,
                            core_tensor **labels)
{
    int64_t length = t->model.context;

    *inputs = core_x_zeros(CORE_SIZES(1, length), CORE_I64, t->device);
    *labels = core_x_zeros(CORE_SIZES(length), CORE_I64, t->device);
}

/* Pieces of parameters have sums of gradients, of losses that are parts of the
 * mean. */
static core_tensor *compute_with_pieces(trainer *t, core_tensor *inputs,
                                        core_tensor *labels, int64_t whole)
{
    int64_t count = core_x_size(inputs, 0);
    core_tensor *loss, *weighted, *logits;

    if (count == 0)
        take_any_sample(t, &inputs, &labels);
    loss = forward(t, inputs, labels, true, &logits);
    weighted =
        core_x_mul_scalar(loss, core_float((double)count / (double)whole));
    CORE_CHECK(update_parameters(t, weighted));
    if (count > 0)
        account(loss, logits, labels, count, t->loss_sum, t->correct);
    return weighted;
}

/* Trains this rank's part of a batch and returns its share of the mean loss. */
static core_tensor *compute_and_update(trainer *t, core_tensor *inputs,
                                       core_tensor *labels, int64_t whole)
{
    int64_t count = core_x_size(inputs, 0);
    double weight = t->comm ? train_distributed_weight(t, count, whole) : 1;
    core_tensor *loss, *weighted, *logits;

    if (count == 0) {
        CORE_CHECK(update_parameters(t, NULL));
        return core_x_zeros_like(t->loss_sum);
    }
    loss = forward(t, inputs, labels, true, &logits);
    weighted = weight == 1 ? loss : core_x_mul_scalar(loss, core_float(weight));
    CORE_CHECK(update_parameters(t, weighted));
    account(loss, logits, labels, count, t->loss_sum, t->correct);
    return t->comm ? core_x_mul_scalar(weighted, core_float(1.0 / t->ranks))
                   : loss;
}

core_status trainer_step(trainer *t, core_tensor *inputs, core_tensor *labels,
                         int64_t whole, core_tensor **out_loss)
{
    core_scope scope = core_scope_begin();
    core_tensor *loss = t->model.pieces
                            ? compute_with_pieces(t, inputs, labels, whole)
                            : compute_and_update(t, inputs, labels, whole);
    core_status status =
        core_scope_end_with(scope, core_x_detach(loss), out_loss);

    if (status == CORE_ERROR_INVALID_ARGUMENT && t->model.fp8)
        status = diverged(t, "a tensor to be quantized", "");
    return status;
}

core_status trainer_batch(trainer *t, bool log)
{
    int64_t left = t->train.count - t->position;
    int64_t count = left < t->options.batch ? left : t->options.batch;
    core_tensor *batch[2] = {NULL, NULL}, *loss = NULL, *whole = NULL;
    size_t tensors = 2;
    core_status status;

    status = core_data_loader_next(t->loader, batch, &tensors);
    if (status == CORE_OK)
        status = set_rate(t);
    if (status == CORE_OK && t->compiled)
        status = core_compiled_call(t->compiled, batch, 2, &loss, 1);
    else if (status == CORE_OK)
        status = trainer_step(t, batch[0], batch[1], count, &loss);
    if (status == CORE_OK && log)
        status = train_distributed_sum(t, loss, &whole);
    if (status == CORE_OK && log)
        status = core_tensor_item_float(whole, &t->last_loss);
    if (status == CORE_OK)
        t->position += count;
    if (status == CORE_OK && t->options.verifies)
        status = train_distributed_verify(t);
    core_tensor_release(batch[0]);
    core_tensor_release(batch[1]);
    core_tensor_release(loss);
    core_tensor_release(whole);
    return status;
}

/* --------------------------------------------------------------- epochs -- */

int64_t trainer_steps_per_epoch(const trainer *t)
{
    return (t->train.count + t->options.batch - 1) / t->options.batch;
}

int64_t trainer_steps(const trainer *t)
{
    return t->epoch * trainer_steps_per_epoch(t) +
           (t->position + t->options.batch - 1) / t->options.batch;
}

core_status trainer_begin_epoch(trainer *t)
{
    int64_t count = t->train.count;

    core_data_loader_release(t->loader); /* its threads read the order */
    t->loader = NULL;
    if (!t->order)
        t->order = malloc((size_t)count * sizeof *t->order);
    if (!t->order)
        return train_error(CORE_ERROR_OUT_OF_MEMORY,
                           "no memory for the order of the %s",
                           t->task->samples);
    train_shuffle(t->order, count, (uint64_t)t->options.seed,
                  (uint64_t)t->epoch);
    if (t->task->places)
        t->task->places(t, t->order, count, t->epoch);
    return train_loader_begin(t);
}

/* Read sums over all ranks. */
static core_status sum_float(const trainer *t, core_tensor *local, double *out)
{
    core_tensor *sum;
    core_status status;

    CORE_TRY(train_distributed_sum(t, local, &sum));
    status = core_tensor_item_float(sum, out);
    core_tensor_release(sum);
    return status;
}

static core_status sum_int(const trainer *t, core_tensor *local, int64_t *out)
{
    core_tensor *sum;
    core_status status;

    CORE_TRY(train_distributed_sum(t, local, &sum));
    status = core_tensor_item_int(sum, out);
    core_tensor_release(sum);
    return status;
}

static core_status read_score(const trainer *t, core_tensor *loss_sum,
                              core_tensor *correct, int64_t count,
                              train_score *out_score)
{
    double loss = 0;
    int64_t right = 0;

    CORE_TRY(sum_float(t, loss_sum, &loss));
    CORE_TRY(sum_int(t, correct, &right));
    out_score->loss = loss / (double)count;
    out_score->accuracy = (double)right / (double)(count * t->task->labels(t));
    return CORE_OK;
}

core_status trainer_epoch_score(trainer *t, train_score *out_score)
{
    return read_score(t, t->loss_sum, t->correct, t->position, out_score);
}

/* Of one parameter, or, with --shard, of a piece of one. */
static core_status check_state(const trainer *t, size_t index)
{
    const core_optimizer *optimizer = t->optimizer;
    bool finite;

    if (core_optimizer_steps(optimizer, index) == 0)
        return CORE_OK;
    for (size_t k = 0; core_optimizer_state_name(optimizer, k); k++) {
        CORE_TRY(train_tensor_finite(core_optimizer_state(optimizer, index, k),
                                     &finite));
        if (!finite)
            return diverged(t, "the optimizer's state of ",
                            t->shard ? "a piece" : t->model.names[index]);
    }
    return CORE_OK;
}

static core_status check_parameter(const trainer *t, size_t index)
{
    bool finite;

    CORE_TRY(train_tensor_finite(t->model.parameters[index], &finite));
    return finite ? CORE_OK : diverged(t, "weight ", t->model.names[index]);
}

core_status trainer_check(const trainer *t, bool loss)
{
    double sum = 0;

    CORE_TRY(sum_float(t, t->loss_sum, &sum));
    if (!isfinite(sum))
        return diverged(t, "the loss", "");
    for (size_t i = 0; !loss && i < t->model.count; i++)
        CORE_TRY(check_parameter(t, i));
    if (loss || !t->optimizer)
        return CORE_OK;
    for (size_t i = 0; i < core_optimizer_parameter_count(t->optimizer); i++)
        CORE_TRY(check_state(t, i));
    return CORE_OK;
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
    core_tensor *places, *inputs, *labels, *logits, *loss;
    int64_t *numbers = malloc((size_t)count * sizeof *numbers);
    core_scope scope;

    if (!numbers)
        return train_error(CORE_ERROR_OUT_OF_MEMORY, "no memory for a test");
    for (int64_t i = 0; i < count; i++)
        numbers[i] = first + i;
    if (t->task->places)
        t->task->places(t, numbers, count, -1);
    scope = core_scope_begin();
    places = core_x_from_data(numbers, CORE_I64, CORE_SIZES(count), t->device);
    free(numbers);
    t->task->batch(t, &t->test, places, &inputs, &labels);
    loss = forward(t, inputs, labels, false, &logits);
    account(loss, logits, labels, count, loss_sum, correct);
    return core_scope_end(scope);
}

/* Whether the last turn has no samples for this rank. */
static bool has_fewer_turns(const trainer *t)
{
    int64_t part = t->task->part;
    int64_t parts = (t->test.count + part - 1) / part;

    return parts % t->ranks != 0 && t->rank >= parts % t->ranks;
}

/* A forward pass of which only the collectives count. */
static void run_for_others(const trainer *t)
{
    core_tensor *inputs, *labels;

    take_any_sample(t, &inputs, &labels);
    train_logits(t, inputs, false);
}

core_status trainer_evaluate(const trainer *t, train_score *out_score)
{
    bool before = core_grad_mode_set(false);
    core_range range = core_range_begin("evaluation");
    core_scope scope = core_scope_begin();
    core_tensor *loss_sum = core_x_zeros_like(t->loss_sum);
    core_tensor *correct = core_x_zeros_like(t->correct);
    int64_t part = t->task->part;
    core_status status;

    /* The ranks take turns. */
    for (int64_t first = t->rank * part; first < t->test.count;
         first += t->ranks * part) {
        int64_t left = t->test.count - first;

        CORE_CHECK(evaluate_part(t, first, left < part ? left : part, loss_sum,
                                 correct));
    }
    if (t->model.pieces && has_fewer_turns(t))
        run_for_others(t);
    CORE_CHECK(read_score(t, loss_sum, correct, t->test.count, out_score));
    status = core_scope_end(scope);
    if (status == CORE_OK && !isfinite(out_score->loss))
        status = diverged(t, "the loss of the half for ", t->task->half);
    core_range_end(range);
    core_grad_mode_set(before);
    return status;
}

void trainer_release(trainer *t)
{
    core_profiler_release(t->profiler);
    core_compiled_release(t->compiled);
    core_reducer_release(t->reducer);
    core_shard_release(t->shard);
    free(t->pieces);
    core_event_release(t->answered);
    core_tensor_release(t->noticed);
    core_comm_release(t->comm);
    core_comm_release(t->tensor);
    free(t->points);
    core_grad_scaler_release(t->scaler);
    core_optimizer_release(t->optimizer);
    train_model_release(&t->model);
    core_data_loader_release(t->loader); /* before what its threads read */
    train_set_release(&t->train);
    train_set_release(&t->test);
    train_text_free(&t->text);
    core_tensor_release(t->loss_sum);
    core_tensor_release(t->correct);
    free(t->order);
    memset(t, 0, sizeof *t);
}
