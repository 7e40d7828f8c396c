/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Adam and AdamW. */

#include "optim/optimizer.h"

#include "base/error.h"

#include <libcore/ops.h>

enum { EXP_AVG, EXP_AVG_SQ };

typedef struct temporaries {
    core_tensor *decayed; /* the gradient with weight decay, or NULL */
    core_tensor *average; /* the new state, in the first step */
    core_tensor *square;
    core_tensor *denominator;
} temporaries;

static core_status prepare(const core_adam_options *options,
                           const core__parameter *parameter, core_tensor *grad,
                           temporaries *temporary)
{
    CORE_TRY(core__optimizer_check_capture(parameter, "a step of Adam"));
    if (options->weight_decay != 0 && !options->decoupled)
        CORE_TRY(core_add(grad, parameter->tensor,
                          core_float(options->weight_decay),
                          &temporary->decayed));
    if (!parameter->state[EXP_AVG]) {
        CORE_TRY(core_zeros_like(parameter->tensor, CORE_DTYPE_NONE, NULL, -1,
                                 &temporary->average));
        CORE_TRY(core_zeros_like(parameter->tensor, CORE_DTYPE_NONE, NULL, -1,
                                 &temporary->square));
    }
    return core_empty_like(parameter->tensor, CORE_DTYPE_NONE, NULL, -1,
                           &temporary->denominator);
}

static core_status change(const core_optimizer *optimizer,
                          core__parameter *parameter, core_tensor *grad,
                          const temporaries *temporary)
{
    const core_adam_options *options =
        &core__group_of(optimizer, parameter)->options.adam;
    double number;
    bool begins = temporary->average != NULL;
    core_tensor *average =
        begins ? temporary->average : parameter->state[EXP_AVG];
    core_tensor *square =
        begins ? temporary->square : parameter->state[EXP_AVG_SQ];
    core_tensor *denominator = temporary->denominator;

    if (temporary->decayed)
        grad = temporary->decayed;
    if (options->weight_decay != 0 && options->decoupled) {
        CORE_TRY(core__step_number_next(optimizer, parameter, CORE__STEP_DECAY,
                                        1, &number));
        CORE_TRY(core_mul_scalar_(parameter->tensor, core_float(number)));
    }
    CORE_TRY(core_mul_scalar_(average, core_float(options->beta1)));
    CORE_TRY(core_add_(average, grad, core_float(1 - options->beta1)));
    CORE_TRY(core_mul_scalar_(square, core_float(options->beta2)));
    CORE_TRY(core_addcmul_(square, grad, grad, core_float(1 - options->beta2)));
    CORE_TRY(core_sqrt_out(square, denominator));
    CORE_TRY(core__step_number_next(optimizer, parameter,
                                    CORE__STEP_DENOMINATOR, 1, &number));
    CORE_TRY(core_div_scalar_(denominator, core_float(number)));
    CORE_TRY(core_add_scalar_(denominator, core_float(options->epsilon),
                              core_int(1)));
    CORE_TRY(core__step_number_next(optimizer, parameter, CORE__STEP_SIZE, 3,
                                    &number));
    return core_addcdiv_(parameter->tensor, average, denominator,
                         core_float(number));
}

static core_status step(const core_optimizer *optimizer,
                        core__parameter *parameter, core_tensor *grad)
{
    temporaries temporary = {NULL, NULL, NULL, NULL};
    core_status status;

    status = prepare(&core__group_of(optimizer, parameter)->options.adam,
                     parameter, grad, &temporary);
    if (status == CORE_OK)
        status = change(optimizer, parameter, grad, &temporary);
    if (status == CORE_OK && temporary.average) {
        parameter->state[EXP_AVG] = temporary.average;
        parameter->state[EXP_AVG_SQ] = temporary.square;
        temporary.average = temporary.square = NULL;
    }
    core_tensor_release(temporary.decayed);
    core_tensor_release(temporary.average);
    core_tensor_release(temporary.square);
    core_tensor_release(temporary.denominator);
    return status;
}

static core_status fused(const core_optimizer *optimizer,
                         const core__parameter *first,
                         const core__fused_lists *lists)
{
    const core__group *group = core__group_of(optimizer, first);
    const core_adam_options *options = &group->options.adam;
    size_t n = lists->count;

    CORE_TRY(core__optimizer_check_capture(first, "a step of Adam"));
    CORE_TRY(core__step_numbers_next(optimizer, first, CORE__STEP_COUNT, 4,
                                     CORE__STEP_RATE, 5));
    return core_fused_adam_step(
        lists->parameters, n, lists->grads, n, lists->state[EXP_AVG], n,
        lists->state[EXP_AVG_SQ], n, (int64_t)first->steps + 1,
        group->learning_rate, options->beta1, options->beta2, options->epsilon,
        options->weight_decay, options->decoupled != 0, NULL, NULL);
}

static const core__optimizer_table table = {
    .slots = {[EXP_AVG] = "exp_avg", [EXP_AVG_SQ] = "exp_avg_sq"},
    .step = step,
    .fused = fused,
    .fused_op = CORE_OP_FUSED_ADAM_STEP,
};

static core_status group_of(const char *function,
                            const core_adam_options *options,
                            core__group *out_group)
{
    if (!options)
        return core__error_null(function, "options");
    if (options->struct_size < sizeof *options)
        return core__error_struct_size(function, "core_adam_options",
                                       options->struct_size, sizeof *options);
    CORE_TRY(core__optimizer_check_option(options->epsilon, "epsilon"));
    CORE_TRY(
        core__optimizer_check_option(options->weight_decay, "weight decay"));
    if (options->decoupled > 1)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: decoupled is %u; it must be 0 or 1", function,
                           options->decoupled);
    if (!(options->beta1 >= 0) || !(options->beta1 < 1) ||
        !(options->beta2 >= 0) || !(options->beta2 < 1))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "%s: the betas are %g and %g; they must be at least "
                           "0 and below 1",
                           function, options->beta1, options->beta2);
    *out_group =
        (core__group){&table, {.adam = *options}, options->learning_rate};
    return CORE_OK;
}

core_status core_adam_create(core_tensor *const *parameters, size_t count,
                             const core_adam_options *options,
                             core_optimizer **out_optimizer)
{
    core__group group;

    CORE__NOT_NULL(out_optimizer);
    *out_optimizer = NULL;
    CORE_TRY(group_of(__func__, options, &group));
    return core__optimizer_create(__func__, &group, parameters, count,
                                  out_optimizer);
}

core_status core_adam_set_group(core_optimizer *optimizer,
                                core_tensor *const *parameters, size_t count,
                                const core_adam_options *options)
{
    core__group group;

    CORE_TRY(group_of(__func__, options, &group));
    return core__optimizer_set_group(__func__, optimizer, &group, parameters,
                                     count);
}
