/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Steps of optimizers under ATen's names.  The new parameters, gradients and
 * states are results; the given ones do not change.  The formulas are those of
 * PyTorch's fused kernels. */

#include "base/memory.h"
#include "base/thread.h"
#include "dispatch/structured.h"
#include "ops/expression.h"
#include "ops/shape.h"

enum { LISTS_MAX = 6, GRADS = 1 };

typedef struct step step;

/* Replaces the tensors x of one parameter, one from each list, by the new ones.
 * grad is the gradient to descend; x[GRADS] is not changed.  A tensor of a list
 * that is empty is NULL. */
typedef void update_fn(core__scope *s, const step *step, core_tensor *grad,
                       core_tensor **x);

struct step {
    const core_operator *op;
    const core_value *args;
    update_fn *update;
    uint32_t lists;    /* arguments that are lists; they come first */
    uint32_t results;  /* the first lists of these are results */
    uint32_t counters; /* the list of step counters, or 0 */
    uint32_t optional; /* a list that may be empty, or 0 */
    uint32_t lr;
    bool maximize;
    core_tensor *grad_scale, *found_inf; /* may be NULL */
};

/* ---------------------------------------------------------------- checks -- */

static core_status check_tensor(const step *step, uint32_t list, uint32_t k)
{
    const core_tensor *self = step->args[0].u.tensors[k];
    const core_tensor *tensor = step->args[list].u.tensors[k];
    const char *name = core__argument_name(step->op, list);

    if (!tensor || !core__dtype_is_floating(tensor->dtype))
        return core__op_error(
            CORE_ERROR_DTYPE, step->op,
            "%s[%u] must be a tensor with a floating dtype, "
            "not %s",
            name, k, tensor ? core__dtype_name(tensor->dtype) : "none");
    if (list == step->counters && list > 0) {
        if (tensor->numel == 1)
            return CORE_OK;
        return core__op_error(CORE_ERROR_SHAPE, step->op,
                              "%s[%u] has %lld elements; it must have one",
                              name, k, (long long)tensor->numel);
    }
    return core__sizes_check_equal(step->op, name, tensor, self->ndim,
                                   self->sizes);
}

static core_status check_one_element(const step *step, const char *name,
                                     const core_tensor *tensor)
{
    if (!tensor || tensor->numel == 1)
        return CORE_OK;
    return core__op_error(CORE_ERROR_SHAPE, step->op,
                          "%s has %lld elements; it must have one", name,
                          (long long)tensor->numel);
}

static core_status check(const step *step)
{
    uint32_t count = step->args[0].count;

    for (uint32_t list = 1; list < step->lists; list++) {
        uint32_t n = step->args[list].count;

        if (n != count && !(n == 0 && list == step->optional))
            return core__op_error(
                CORE_ERROR_INVALID_ARGUMENT, step->op,
                "%s has %u tensors and self %u; both must have the same number",
                core__argument_name(step->op, list), n, count);
    }
    for (uint32_t list = 0; list < step->lists; list++)
        for (uint32_t k = 0; k < step->args[list].count; k++)
            CORE_TRY(check_tensor(step, list, k));
    CORE_TRY(check_one_element(step, "grad_scale", step->grad_scale));
    CORE_TRY(check_one_element(step, "found_inf", step->found_inf));
    return check_one_element(step, "lr",
                             core__arg_tensor(step->args, step->lr));
}

/* -------------------------------------------------------------- one step -- */

/* A tensor with one element as f64 without dimensions, on the device of like:
 * 1 - beta^step would lose digits in f32. */
static core_tensor *number(core__scope *s, core_tensor *tensor,
                           const core_tensor *like)
{
    tensor =
        CORE__DO(s, core_to, tensor, CORE_F64, like->device, false, false, -1);
    return core__x_reshape(s, tensor, NULL, 0);
}

static core_tensor *times_lr(core__scope *s, const step *step, core_tensor *x)
{
    core_tensor *lr = core__arg_tensor(step->args, step->lr);

    if (!lr)
        return core__x_mul_scalar(s, x,
                                  core__arg_float(step->args, step->lr, 0));
    return s->status == CORE_OK ? core__x_mul(s, x, number(s, lr, x)) : NULL;
}

/* weight x + (1 - weight) y */
static core_tensor *mixed(core__scope *s, double weight, core_tensor *x,
                          core_tensor *y)
{
    return core__x_add(s, core__x_mul_scalar(s, x, weight),
                       core__x_mul_scalar(s, y, 1 - weight));
}

/* x + weight y */
static core_tensor *plus(core__scope *s, core_tensor *x, double weight,
                         core_tensor *y)
{
    return CORE__DO(s, core_add, x, y, core_float(weight));
}

/* (self, grads, momentum_buffer_list, *, weight_decay, momentum, lr, dampening,
 * nesterov, maximize, is_first_step) */
static void update_sgd(core__scope *s, const step *step, core_tensor *grad,
                       core_tensor **x)
{
    const core_value *args = step->args;
    double decay = core__arg_float(args, 3, 0);
    double momentum = core__arg_float(args, 4, 0);
    double dampening = core__arg_float(args, 6, 0);

    if (decay != 0)
        grad = plus(s, grad, decay, x[0]);
    if (x[2]) {
        x[2] = core__arg_bool(args, 9, false)
                   ? CORE__DO(s, core_clone, grad, -1)
                   : plus(s, core__x_mul_scalar(s, x[2], momentum),
                          1 - dampening, grad);
        grad = core__arg_bool(args, 7, false) ? plus(s, grad, momentum, x[2])
                                              : x[2];
    }
    x[0] = core__x_sub(s, x[0], times_lr(s, step, grad));
}

/* 1 - beta^count */
static core_tensor *bias_correction(core__scope *s, double beta,
                                    core_tensor *count)
{
    core_tensor *power =
        CORE__DO(s, core_pow_of_scalar, core_float(beta), count);

    return core__x_rsub_scalar(s, 1, power);
}

/* (self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *, lr,
 * beta1, beta2, weight_decay, eps, amsgrad, maximize).  AdamW subtracts the
 * decay from the parameter, Adam adds it to the gradient. */
static void update_adam_with(core__scope *s, const step *step,
                             core_tensor *grad, core_tensor **x, bool decoupled)
{
    const core_value *args = step->args;
    double beta1 = core__arg_float(args, 7, 0);
    double beta2 = core__arg_float(args, 8, 0);
    double decay = core__arg_float(args, 9, 0);
    core_tensor *size, *root, *second;

    if (decay != 0 && !decoupled)
        grad = plus(s, grad, decay, x[0]);
    if (decay != 0 && decoupled)
        x[0] = plus(s, x[0], -decay, times_lr(s, step, x[0]));
    x[2] = mixed(s, beta1, x[2], grad);
    x[3] = mixed(s, beta2, x[3], core__x_mul(s, grad, grad));
    second = x[3];
    if (core__arg_bool(args, 11, false))
        second = x[4] = CORE__DO(s, core_maximum, x[4], x[3]);
    size = core__x_div(s, x[2], bias_correction(s, beta1, x[5]));
    root = core__x_sqrt(s, bias_correction(s, beta2, x[5]));
    root = core__x_div(s, core__x_sqrt(s, second), root);
    root = core__x_add_scalar(s, root, core__arg_float(args, 10, 0));
    size = core__x_div(s, times_lr(s, step, size), root);
    x[0] = core__x_sub(s, x[0], size);
}

static void update_adam(core__scope *s, const step *step, core_tensor *grad,
                        core_tensor **x)
{
    update_adam_with(s, step, grad, x, false);
}

static void update_adamw(core__scope *s, const step *step, core_tensor *grad,
                         core_tensor **x)
{
    update_adam_with(s, step, grad, x, true);
}

/* (self, grads, state_sums, state_steps, *, lr, lr_decay, weight_decay, eps,
 * maximize) */
static void update_adagrad(core__scope *s, const step *step, core_tensor *grad,
                           core_tensor **x)
{
    const core_value *args = step->args;
    double decay = core__arg_float(args, 6, 0);
    core_tensor *slower, *root;

    if (decay != 0)
        grad = plus(s, grad, decay, x[0]);
    slower = core__x_add_scalar(s, x[3], -1);
    slower = core__x_mul_scalar(s, slower, core__arg_float(args, 5, 0));
    slower = core__x_add_scalar(s, slower, 1);
    x[2] = core__x_add(s, x[2], core__x_mul(s, grad, grad));
    root = core__x_sqrt(s, x[2]);
    root = core__x_add_scalar(s, root, core__arg_float(args, 7, 0));
    grad = core__x_div(s, times_lr(s, step, grad), slower);
    x[0] = core__x_sub(s, x[0], core__x_div(s, grad, root));
}

/* --------------------------------------------------------- all parameters -- */

/* Halves are computed in f32. */
static core_dtype computed_dtype(const core_tensor *self)
{
    return self->dtype == CORE_F64 ? CORE_F64 : CORE_F32;
}

/* The result of list l: x in the dtype of the given tensor, or that tensor
 * where the step is skipped. */
static core_status finished(core__scope *s, const step *step, core_tensor *skip,
                            core_tensor *given, core_tensor *x,
                            core_tensor **out)
{
    if (s->status == CORE_OK)
        x = core__x_cast(s, x, given->dtype);
    if (step->found_inf)
        x = core__x_where(s, skip, given, x);
    if (x == given)
        x = CORE__DO(s, core_clone, given, -1);
    if (s->status != CORE_OK)
        return s->status;
    core__tensor_retain(x);
    *out = x;
    return CORE_OK;
}

static core_status parameter(core__scope *s, const step *step, uint32_t k,
                             core_value *results)
{
    core_tensor *self = step->args[0].u.tensors[k];
    core_tensor *x[LISTS_MAX] = {NULL};
    core_tensor *skip = NULL, *grad;

    for (uint32_t l = 0; l < step->lists; l++) {
        if (k >= step->args[l].count)
            continue;
        x[l] = step->args[l].u.tensors[k];
        x[l] = l == step->counters && l > 0
                   ? number(s, x[l], self)
                   : core__x_cast(s, x[l], computed_dtype(self));
    }
    if (step->grad_scale)
        x[GRADS] = core__x_div(s, x[GRADS], number(s, step->grad_scale, self));
    if (step->found_inf)
        skip = core__x_eq_scalar(s, number(s, step->found_inf, self), 1);
    grad = step->maximize ? core__x_neg(s, x[GRADS]) : x[GRADS];
    if (s->status != CORE_OK)
        return s->status;
    step->update(s, step, grad, x);
    for (uint32_t l = 0; s->status == CORE_OK && l < step->results; l++)
        if (x[l])
            CORE_TRY(finished(s, step, skip, step->args[l].u.tensors[k], x[l],
                              (core_tensor **)&results[l].u.tensors[k]));
    return s->status;
}

static core_status run_checked(const step *step, core_value *results)
{
    for (uint32_t l = 0; l < step->results; l++) {
        uint32_t count = step->args[l].count;
        core_tensor **out = core__alloc_zero((count + 1) * sizeof *out);

        if (!out)
            return core__error_memory((count + 1) * sizeof *out);
        results[l] =
            (core_value){CORE_VALUE_TENSOR_LIST, count, {.tensors = out}};
    }
    for (uint32_t k = 0; k < step->args[0].count; k++) {
        core__scope scope;
        core_status status;

        core__scope_begin(&scope);
        status = parameter(&scope, step, k, results);
        core__scope_end(&scope);
        CORE_TRY(status);
    }
    return CORE_OK;
}

/* Results are lists as long as the given ones, without history. */
static core_status run(const step *step, core_value *results)
{
    core__thread *thread = core__thread_self();
    bool no_grad = thread->no_grad;
    core_status status;

    CORE_TRY(check(step));
    thread->no_grad = true;
    status = run_checked(step, results);
    thread->no_grad = no_grad;
    return status;
}

CORE__COMPOSITE(fused_sgd)
{
    const step step = {.op = call->op,
                       .args = args,
                       .update = update_sgd,
                       .lists = 3,
                       .results = 3,
                       .optional = core__arg_float(args, 4, 0) != 0 ? 0 : 2,
                       .lr = 5,
                       .maximize = core__arg_bool(args, 8, false),
                       .grad_scale = core__arg_tensor(args, 10),
                       .found_inf = core__arg_tensor(args, 11)};

    return run(&step, results);
}

static core_status run_adam(core_call *call, const core_value *args,
                            update_fn *update, core_value *results)
{
    bool amsgrad = core__arg_bool(args, 11, false);
    const step step = {.op = call->op,
                       .args = args,
                       .update = update,
                       .lists = 6,
                       .results = 5,
                       .counters = 5,
                       .optional = amsgrad ? 0 : 4,
                       .lr = 6,
                       .maximize = core__arg_bool(args, 12, false),
                       .grad_scale = core__arg_tensor(args, 13),
                       .found_inf = core__arg_tensor(args, 14)};

    return run(&step, results);
}

CORE__COMPOSITE(fused_adam)
{
    return run_adam(call, args, update_adam, results);
}

CORE__COMPOSITE(fused_adamw)
{
    return run_adam(call, args, update_adamw, results);
}

/* The form with lr as a tensor does not return the counters. */
CORE__COMPOSITE(fused_adagrad)
{
    const step step = {.op = call->op,
                       .args = args,
                       .update = update_adagrad,
                       .lists = 4,
                       .results = core__arg_tensor(args, 4) ? 3 : 4,
                       .counters = 3,
                       .lr = 4,
                       .maximize = core__arg_bool(args, 8, false),
                       .grad_scale = core__arg_tensor(args, 9),
                       .found_inf = core__arg_tensor(args, 10)};

    return run(&step, results);
}
