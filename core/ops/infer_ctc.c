/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Inference for the loss of connectionist temporal classification. */

#include "ops/functions.h"
#include "ops/shape.h"

/* The lengths of all sequences, each from 0 to `most`; *out_sum and *out_most
 * get their sum, at most INT64_MAX, and the largest. */
static core_status check_lengths(const core_operator *op, const char *name,
                                 const core_value *value, int64_t sequences,
                                 int64_t most, int64_t *out_sum,
                                 int64_t *out_most)
{
    size_t count;
    const int64_t *lengths = core__ints_of(value, &count);

    *out_sum = *out_most = 0;
    if (value->tag != CORE_VALUE_INT_LIST || (int64_t)count != sequences)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "%s has %zu entries; there are %lld sequences",
                              name, count, (long long)sequences);
    for (size_t i = 0; i < count; i++) {
        if (lengths[i] < 0 || lengths[i] > most)
            return core__op_error(CORE_ERROR_SHAPE, op,
                                  "%s has the entry %lld; it must be from 0 to "
                                  "%lld",
                                  name, (long long)lengths[i], (long long)most);
        *out_sum = lengths[i] > INT64_MAX - *out_sum ? INT64_MAX
                                                     : *out_sum + lengths[i];
        if (lengths[i] > *out_most)
            *out_most = lengths[i];
    }
    return CORE_OK;
}

core_status core__ctc_check(const core_operator *op, const core_tensor *probs,
                            const core_tensor *targets, int64_t blank)
{
    if (probs->ndim != 3 || !core__dtype_is_floating(probs->dtype) ||
        (targets->ndim != 1 && targets->ndim != 2) ||
        (targets->dtype != CORE_I64 && targets->dtype != CORE_I32))
        return core__op_shapes_error(
            op, "log_probs", probs, "targets", targets,
            "log_probs must have 3 dimensions and a floating dtype, targets 1 "
            "or 2 and i64 or i32");
    if (blank < 0 || blank >= probs->sizes[2])
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "blank is %lld; it must be one of the %lld "
                              "classes",
                              (long long)blank, (long long)probs->sizes[2]);
    return CORE_OK;
}

/* args: log_probs [T, N, C], targets [N, S] or [sum of lengths],
 * input_lengths, target_lengths */
static core_status check_sequences(const core_operator *op,
                                   const core_value *args, int64_t blank,
                                   int64_t *out_positions)
{
    const core_tensor *probs = core__arg_tensor(args, 0);
    const core_tensor *targets = core__arg_tensor(args, 1);
    int64_t n, sum, most, ignored;

    CORE_TRY(core__ctc_check(op, probs, targets, blank));
    n = probs->sizes[1];
    CORE_TRY(check_lengths(op, "input_lengths", &args[2], n, probs->sizes[0],
                           &sum, &ignored));
    CORE_TRY(check_lengths(
        op, "target_lengths", &args[3], n,
        targets->ndim == 2 ? targets->sizes[1] : targets->numel, &sum, &most));
    if (targets->ndim == 2 ? targets->sizes[0] != n : sum > targets->numel)
        return core__op_error(CORE_ERROR_SHAPE, op,
                              "targets has %lld elements, which do not fit "
                              "%lld sequences with %lld labels",
                              (long long)targets->numel, (long long)n,
                              (long long)sum);
    *out_positions = most > INT64_MAX / 2 ? INT64_MAX : 2 * most + 1;
    return CORE_OK;
}

/* _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank,
 * zero_infinity) -> (neg_log_likelihood, log_alpha) */
CORE__INFER(ctc_loss)
{
    const core_tensor *probs = core__arg_tensor(infer->args, 0);
    int64_t sizes[3];

    CORE_TRY(
        check_sequences(infer->op, infer->args, infer->args[4].u.i, &sizes[2]));
    sizes[0] = probs->sizes[1];
    sizes[1] = probs->sizes[0];
    CORE_TRY(core__sizes_check(infer->op, 3, sizes));
    core__result_set(&infer->results[0], probs->dtype, 1, sizes);
    core__result_set(&infer->results[1], probs->dtype, 3, sizes);
    return CORE_OK;
}

/* _ctc_loss_backward(grad, log_probs, targets, input_lengths, target_lengths,
 * neg_log_likelihood, log_alpha, blank, zero_infinity) */
CORE__INFER(ctc_loss_backward)
{
    const core_tensor *probs = core__arg_tensor(infer->args, 1);
    int64_t sizes[3];

    CORE_TRY(check_sequences(infer->op, infer->args + 1, infer->args[7].u.i,
                             &sizes[2]));
    sizes[0] = probs->sizes[1];
    sizes[1] = probs->sizes[0];
    CORE_TRY(core__sizes_check_equal(
        infer->op, "grad", core__arg_tensor(infer->args, 0), 1, sizes));
    CORE_TRY(core__sizes_check_equal(infer->op, "neg_log_likelihood",
                                     core__arg_tensor(infer->args, 5), 1,
                                     sizes));
    CORE_TRY(core__sizes_check_equal(
        infer->op, "log_alpha", core__arg_tensor(infer->args, 6), 3, sizes));
    core__result_like(&infer->results[0], probs);
    return CORE_OK;
}
