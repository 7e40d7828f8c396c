/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Connectionist temporal classification: the loss, and lengths that are given as
 * tensors. */

#include "base/memory.h"
#include "base/thread.h"
#include "dispatch/structured.h"
#include "ops/expression.h"
#include "ops/shape.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

static core_status check_lengths(const core_operator *op,
                                 const core_tensor *tensor)
{
    if (tensor->ndim == 1 && core__dtype_is_integer(tensor->dtype))
        return CORE_OK;
    return core__op_error(CORE_ERROR_SHAPE, op,
                          "lengths have %u dimensions and dtype %s; they must "
                          "have 1, and an integer dtype",
                          tensor->ndim, core__dtype_name(tensor->dtype));
}

/* The elements of a tensor of lengths, on the host; freed by the caller. */
static core_status lengths_read(const core_operator *op, core_tensor *tensor,
                                core_value *out)
{
    core_tensor *whole = NULL;
    size_t bytes = (size_t)tensor->numel * sizeof(int64_t);
    int64_t *lengths;
    core_status status;

    if (tensor->numel > UINT32_MAX)
        return core__error_memory(SIZE_MAX);
    CORE_TRY(check_lengths(op, tensor));
    lengths = core__alloc(bytes + 1);
    if (!lengths)
        return core__error_memory(bytes);
    status = core_to(tensor, CORE_I64, NULL, false, false, -1, &whole);
    if (status == CORE_OK)
        status = core_tensor_read(whole, lengths, bytes);
    core__tensor_release(whole);
    *out = (core_value){
        CORE_VALUE_INT_LIST, (uint32_t)tensor->numel, {.ints = lengths}};
    if (status == CORE_OK)
        return CORE_OK;
    core__free(lengths);
    *out = (core_value){0};
    return status;
}

/* Calls the operator that takes lists, with the tensors of lengths read, which
 * are at `first` and after it. */
static core_status with_lengths(const core_operator *op, uint32_t id,
                                const core_value *args, uint32_t nargs,
                                uint32_t first, core_value *results,
                                uint32_t nresults)
{
    core_value own[9], lists[2] = {{0}, {0}};
    core_status status = CORE_OK;

    memcpy(own, args, nargs * sizeof *own);
    for (uint32_t i = 0; status == CORE_OK && i < 2; i++) {
        status = lengths_read(op, args[first + i].u.tensor, &lists[i]);
        own[first + i] = lists[i];
    }
    if (status == CORE_OK)
        status = core_op_invoke_on(&core__operators[id], own, nargs, results,
                                   nresults);
    for (int i = 0; i < 2; i++)
        if (lists[i].tag == CORE_VALUE_INT_LIST)
            core__free((void *)lists[i].u.ints);
    return status;
}

CORE__OP(ctc_loss_forward_tensor)
{
    return with_lengths(call->op, CORE_OP_CTC_LOSS, args, nargs, 2, results,
                        nresults);
}

CORE__OP(ctc_loss_backward_tensor)
{
    return with_lengths(call->op, CORE_OP_CTC_LOSS_BACKWARD, args, nargs, 3,
                        results, nresults);
}

/* ------------------------------------------------------------ in programs -- */

/* The size of log_alpha depends on the lengths, that of the losses does not.  So
 * a program has nodes without log_alpha, which read the lengths in each run. */

/* What does not depend on the lengths themselves. */
static core_status check_by_lengths(const core_operator *op,
                                    const core_value *args, int64_t blank)
{
    const core_tensor *probs = args[0].u.tensor, *targets = args[1].u.tensor;

    CORE_TRY(core__ctc_check(op, probs, targets, blank));
    for (int i = 2; i < 4; i++) {
        const core_tensor *lengths = args[i].u.tensor;

        CORE_TRY(check_lengths(op, lengths));
        if (lengths->numel != probs->sizes[1])
            return core__op_error(
                CORE_ERROR_SHAPE, op,
                "%s has %lld entries; there are %lld sequences",
                i == 2 ? "input_lengths" : "target_lengths",
                (long long)lengths->numel, (long long)probs->sizes[1]);
    }
    if (targets->ndim == 1 || targets->sizes[0] == probs->sizes[1])
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_SHAPE, op, "targets has %lld rows; there are %lld sequences",
        (long long)targets->sizes[0], (long long)probs->sizes[1]);
}

/* _ctc_loss_by_lengths(log_probs, targets, input_lengths, target_lengths, blank,
 * zero_infinity): the losses of _ctc_loss.Tensor */
CORE__OP(ctc_loss_by_lengths)
{
    core_tensor *log_probs = args[0].u.tensor, *losses = NULL, *alpha = NULL;
    core_status status;

    if (log_probs->storage)
        status = core_ctc_loss_forward_tensor(
            log_probs, args[1].u.tensor, args[2].u.tensor, args[3].u.tensor,
            core__arg_int(args, 4, 0), core__arg_bool(args, 5, false), &losses,
            &alpha);
    else
        status = check_by_lengths(call->op, args, core__arg_int(args, 4, 0));
    if (status == CORE_OK && !log_probs->storage)
        status = core_new_empty(log_probs, &log_probs->sizes[1], 1,
                                CORE_DTYPE_NONE, NULL, &losses);
    core_tensor_release(alpha);
    if (status == CORE_OK)
        results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = losses}};
    return status;
}

/* The gradient, with log_alpha computed again. */
static core_status gradient_by_lengths(const core_value *args,
                                       core_tensor **out)
{
    core_tensor *losses = NULL, *alpha = NULL;
    bool zero_infinity = core__arg_bool(args, 6, false);
    core_status status = core_ctc_loss_forward_tensor(
        args[1].u.tensor, args[2].u.tensor, args[3].u.tensor, args[4].u.tensor,
        args[5].u.i, zero_infinity, &losses, &alpha);

    if (status == CORE_OK)
        status = core_ctc_loss_backward_tensor(
            args[0].u.tensor, args[1].u.tensor, args[2].u.tensor,
            args[3].u.tensor, args[4].u.tensor, losses, alpha, args[5].u.i,
            zero_infinity, out);
    core_tensor_release(losses);
    core_tensor_release(alpha);
    return status;
}

/* _ctc_loss_by_lengths_backward(grad, log_probs, targets, input_lengths,
 * target_lengths, blank, zero_infinity) */
CORE__OP(ctc_loss_by_lengths_backward)
{
    core_tensor *log_probs = args[1].u.tensor, *out = NULL;
    core_status status = log_probs->storage
                             ? gradient_by_lengths(args, &out)
                             : core_empty_like(log_probs, CORE_DTYPE_NONE, NULL,
                                               CORE_FORMAT_CONTIGUOUS, &out);

    if (status == CORE_OK)
        results[0] = (core_value){CORE_VALUE_TENSOR, 0, {.tensor = out}};
    return status;
}

/* ---------------------------------------------------------------- the loss -- */

/* A tensor of one length without dimensions gets one. */
static core_tensor *as_list(core__scope *scope, core_tensor *lengths)
{
    return lengths->ndim ? lengths : core__x_unsqueeze(scope, lengths, 0);
}

/* losses, reduced: a mean is one of losses that are divided by their target
 * lengths.  With zero_infinity, losses of targets that are too long are 0. */
static core_status reduced(core__scope *scope, core_tensor *losses,
                           core_tensor *lengths, int64_t reduction,
                           bool zero_infinity, core_value *result)
{
    if (zero_infinity)
        losses = core__x_zero_where(scope, losses,
                                    core__x_eq_scalar(scope, losses, INFINITY));
    if (reduction == CORE_REDUCTION_MEAN) {
        lengths = CORE__DO(scope, core_clamp_min, lengths, core_int(1));
        losses = core__x_mean(scope, core__x_div(scope, losses, lengths));
    } else if (reduction == CORE_REDUCTION_SUM) {
        losses = core__x_sum(scope, losses);
    }
    return core__scope_result(scope, losses, result);
}

/* ctc_loss.IntList and ctc_loss.Tensor(log_probs, targets, input_lengths,
 * target_lengths, blank, reduction, zero_infinity): log_probs may lack a
 * batch. */
CORE__COMPOSITE(ctc_loss)
{
    core_tensor *log_probs = args[0].u.tensor;
    bool tensors = args[2].tag == CORE_VALUE_TENSOR;
    bool batched = log_probs->ndim != 2;
    bool zero_infinity = core__arg_bool(args, 6, false);
    int64_t blank = core__arg_int(args, 4, 0);
    int64_t reduction = core__arg_int(args, 5, CORE_REDUCTION_MEAN);
    core_tensor *losses = NULL, *alpha = NULL, *lengths = NULL;
    size_t counts[2] = {0, 0};
    const int64_t *lists[2] = {NULL, NULL};

    CORE_TRY(core__reduction_check(call->op, reduction));
    if (!batched)
        log_probs = core__x_unsqueeze(scope, log_probs, 1);
    if (tensors) {
        core_tensor *times = as_list(scope, args[2].u.tensor);

        lengths = as_list(scope, args[3].u.tensor);
        CORE_TRY(scope->status);
        CORE_TRY(core__thread_self()->trace
                     ? core_ctc_loss_by_lengths(log_probs, args[1].u.tensor,
                                                times, lengths, blank,
                                                zero_infinity, &losses)
                     : core_ctc_loss_forward_tensor(
                           log_probs, args[1].u.tensor, times, lengths, blank,
                           zero_infinity, &losses, &alpha));
    } else {
        CORE_TRY(scope->status);
        for (int i = 0; i < 2; i++)
            lists[i] = core__ints_of(&args[2 + i], &counts[i]);
        CORE_TRY(core_ctc_loss_forward(log_probs, args[1].u.tensor, lists[0],
                                       counts[0], lists[1], counts[1], blank,
                                       zero_infinity, &losses, &alpha));
    }
    if (alpha)
        core__scope_keep(scope, alpha);
    losses = core__scope_keep(scope, losses);
    if (!tensors && reduction == CORE_REDUCTION_MEAN) {
        int64_t count = (int64_t)counts[1];

        lengths = NULL;
        CORE_TRY(core_tensor_from_data(lists[1], CORE_I64, &count, 1,
                                       core_tensor_device(log_probs),
                                       &lengths));
        lengths = core__scope_keep(scope, lengths);
    } else if (tensors) {
        lengths = CORE__DO(scope, core_to, lengths, CORE_I64,
                           core_tensor_device(log_probs), false, false, -1);
    }
    if (!batched)
        losses = CORE__DO(scope, core_squeeze_dim, losses, 0);
    return reduced(scope, losses, lengths, reduction, zero_infinity,
                   &results[0]);
}
