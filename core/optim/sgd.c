/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Stochastic gradient descent with momentum. */

#include "optim/optimizer.h"

#include "base/error.h"

#include <libcore/ops.h>

enum { MOMENTUM_BUFFER };

/* Temporary tensors of a step. */
typedef struct temporaries {
    core_tensor *decayed;  /* the gradient with weight decay, or NULL */
    core_tensor *first;    /* the new buffer, in the first step */
    core_tensor *combined; /* Nesterov's direction, unless it is `decayed` */
} temporaries;

static core_status prepare(const core_sgd_options *options,
                           const core__parameter *parameter, core_tensor *grad,
                           temporaries *temporary)
{
    if (options->weight_decay != 0) {
        CORE_TRY(core_add(grad, parameter->tensor,
                          core_float(options->weight_decay),
                          &temporary->decayed));
        grad = temporary->decayed;
    }
    if (options->momentum != 0 && !parameter->state[MOMENTUM_BUFFER])
        CORE_TRY(core__optimizer_check_capture(parameter,
                                               "the first step of SGD with "
                                               "momentum"));
    if (options->momentum != 0 && !parameter->state[MOMENTUM_BUFFER])
        CORE_TRY(core_clone(grad, -1, &temporary->first));
    if (options->nesterov && !temporary->decayed)
        CORE_TRY(core_empty_like(grad, CORE_DTYPE_NONE, NULL, -1,
                                 &temporary->combined));
    return CORE_OK;
}

static core_status change(const core_optimizer *optimizer,
                          core__parameter *parameter, core_tensor *grad,
                          const temporaries *temporary)
{
    const core_sgd_options *options =
        &core__group_of(optimizer, parameter)->options.sgd;
    core_tensor *direction = temporary->decayed ? temporary->decayed : grad;
    core_tensor *buffer = parameter->state[MOMENTUM_BUFFER];
    double number;

    if (options->momentum != 0 && buffer) {
        CORE_TRY(core_mul_scalar_(buffer, core_float(options->momentum)));
        CORE_TRY(core__step_number_next(optimizer, parameter,
                                        CORE__STEP_FRACTION, 2, &number));
        CORE_TRY(core_add_(buffer, direction, core_float(number)));
    } else {
        buffer = temporary->first;
    }
    if (options->nesterov && temporary->combined) {
        CORE_TRY(core_add_out(direction, buffer, core_float(options->momentum),
                              temporary->combined));
        direction = temporary->combined;
    } else if (options->nesterov) {
        CORE_TRY(core_add_(direction, buffer, core_float(options->momentum)));
    } else if (options->momentum != 0) {
        direction = buffer;
    }
    CORE_TRY(core__step_number_next(optimizer, parameter, CORE__STEP_MINUS_RATE,
                                    2, &number));
    return core_add_(parameter->tensor, direction, core_float(number));
}

static core_status step(const core_optimizer *optimizer,
                        core__parameter *parameter, core_tensor *grad)
{
    temporaries temporary = {NULL, NULL, NULL};
    core_status status;

    status = prepare(&core__group_of(optimizer, parameter)->options.sgd,
                     parameter, grad, &temporary);
    if (status == CORE_OK)
        status = change(optimizer, parameter, grad, &temporary);
    if (status == CORE_OK && temporary.first) {
        parameter->state[MOMENTUM_BUFFER] = temporary.first;
        temporary.first = NULL;
    }
    core_tensor_release(temporary.decayed);
    core_tensor_release(temporary.first);
    core_tensor_release(temporary.combined);
    return status;
}

static core_status fused(const core_optimizer *optimizer,
                         const core__parameter *first,
                         const core__fused_lists *lists)
{
    const core__group *group = core__group_of(optimizer, first);
    const core_sgd_options *options = &group->options.sgd;
    size_t buffers = options->momentum != 0 ? lists->count : 0;

    if (buffers && lists->begins)
        CORE_TRY(core__optimizer_check_capture(first, "the first step of SGD "
                                                      "with momentum"));
    CORE_TRY(core__step_numbers_next(
        optimizer, first, CORE__STEP_RATE, 3,
        buffers ? CORE__STEP_IS_FIRST : CORE__STEP_NONE, 8));
    return core_fused_sgd_step(
        lists->parameters, lists->count, lists->grads, lists->count,
        lists->state[MOMENTUM_BUFFER], buffers, group->learning_rate,
        options->momentum, options->dampening, options->weight_decay,
        options->nesterov != 0, lists->begins, NULL, NULL);
}

static const core__optimizer_table plain = {
    .slots = {NULL},
    .step = step,
    .fused = fused,
    .fused_op = CORE_OP_FUSED_SGD_STEP,
    .one_operator = true,
};
static const core__optimizer_table with_decay = {
    .slots = {NULL},
    .step = step,
    .fused = fused,
    .fused_op = CORE_OP_FUSED_SGD_STEP,
};
static const core__optimizer_table with_momentum = {
    .slots = {[MOMENTUM_BUFFER] = "momentum_buffer"},
    .step = step,
    .fused = fused,
    .fused_op = CORE_OP_FUSED_SGD_STEP,
};

static core_status group_of(const char *function,
                            const core_sgd_options *options,
                            core__group *out_group)
{
    const core__optimizer_table *table = &plain;

    if (!options)
        return core__error_null(function, "options");
    if (options->struct_size < sizeof *options)
        return core__error_struct_size(function, "core_sgd_options",
                                       options->struct_size, sizeof *options);
    CORE_TRY(core__optimizer_check_option(options->momentum, "momentum"));
    CORE_TRY(
        core__optimizer_check_option(options->weight_decay, "weight decay"));
    CORE_TRY(core__optimizer_check_option(options->dampening, "dampening"));
    if (options->nesterov > 1 ||
        (options->nesterov &&
         (options->momentum == 0 || options->dampening != 0)))
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "%s: nesterov is %u, momentum %g and dampening %g; nesterov must "
            "be 0, or 1 with momentum above 0 and dampening 0",
            function, options->nesterov, options->momentum, options->dampening);
    if (options->momentum != 0)
        table = &with_momentum;
    else if (options->weight_decay != 0)
        table = &with_decay;
    *out_group =
        (core__group){table, {.sgd = *options}, options->learning_rate};
    return CORE_OK;
}

core_status core_sgd_create(core_tensor *const *parameters, size_t count,
                            const core_sgd_options *options,
                            core_optimizer **out_optimizer)
{
    core__group group;

    CORE__NOT_NULL(out_optimizer);
    *out_optimizer = NULL;
    CORE_TRY(group_of(__func__, options, &group));
    return core__optimizer_create(__func__, &group, parameters, count,
                                  out_optimizer);
}

core_status core_sgd_set_group(core_optimizer *optimizer,
                               core_tensor *const *parameters, size_t count,
                               const core_sgd_options *options)
{
    core__group group;

    CORE_TRY(group_of(__func__, options, &group));
    return core__optimizer_set_group(__func__, optimizer, &group, parameters,
                                     count);
}
