/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Inference for fused attention, forward and backward. */

#include "dispatch/structured.h"
#include "ops/functions.h"
#include "ops/shape.h"

/* [batch, heads, queries] with `inner` elements per query; [batch, heads, keys]
 * with `outer` elements per value. */
typedef struct shape {
    const core_tensor *query, *key, *value, *bias;
    int64_t batch, heads, queries, keys, inner, outer;
} shape;

static core_status four(const core__inference *infer, uint32_t position)
{
    const core_tensor *tensor = core__arg_tensor(infer->args, position);

    if (tensor->ndim == 4)
        return CORE_OK;
    return core__op_error(
        CORE_ERROR_SHAPE, infer->op,
        "%s must have 4 dimensions (batch, head, position, feature), not %u",
        core__argument_name(infer->op, position), tensor->ndim);
}

static core_status same_dtypes(const core__inference *infer, const shape *s,
                               uint32_t first)
{
    core_dtype dtype = s->query->dtype;

    if (!core__dtype_is_floating(dtype))
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "query must have a floating dtype, not %s",
                              core__dtype_name(dtype));
    for (uint32_t i = first + 1; i < first + 4; i++) {
        const core_tensor *tensor = core__arg_tensor(infer->args, i);

        if (tensor && tensor->dtype != dtype &&
            !(tensor == s->bias && tensor->dtype == CORE_BOOL))
            return core__op_error(CORE_ERROR_DTYPE, infer->op,
                                  "%s is %s; it must be %s like query%s",
                                  core__argument_name(infer->op, i),
                                  core__dtype_name(tensor->dtype),
                                  core__dtype_name(dtype),
                                  tensor == s->bias ? ", or bool" : "");
    }
    return CORE_OK;
}

/* query, key, value and bias begin at argument `first`. */
static core_status shape_of(const core__inference *infer, uint32_t first,
                            shape *s)
{
    const core_value *args = infer->args + first;

    *s = (shape){.query = core__arg_tensor(args, 0),
                 .key = core__arg_tensor(args, 1),
                 .value = core__arg_tensor(args, 2),
                 .bias = core__arg_tensor(args, 3)};
    for (uint32_t i = first; i < first + 3; i++)
        CORE_TRY(four(infer, i));
    CORE_TRY(same_dtypes(infer, s, first));
    s->batch = s->query->sizes[0];
    s->heads = s->query->sizes[1];
    s->queries = s->query->sizes[2];
    s->inner = s->query->sizes[3];
    s->keys = s->key->sizes[2];
    s->outer = s->value->sizes[3];
    CORE_TRY(core__sizes_check_equal(
        infer->op, "key", s->key, 4,
        (const int64_t[]){s->batch, s->heads, s->keys, s->inner}));
    CORE_TRY(core__sizes_check_equal(
        infer->op, "value", s->value, 4,
        (const int64_t[]){s->batch, s->heads, s->keys, s->outer}));
    return core__sizes_check_equal(
        infer->op, "attn_bias", s->bias, 4,
        (const int64_t[]){s->batch, s->heads, s->queries, s->keys});
}

static core_status probability(const core__inference *infer, uint32_t position)
{
    double p = core__arg_float(infer->args, position, 0);

    if (p >= 0 && p <= 1)
        return CORE_OK;
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                          "dropout_p is %g; a probability must be from 0 to 1",
                          p);
}

/* If the heads of a position are adjacent in `like`, they are in the result
 * too, so that it can be viewed as [batch, position, heads x elements] without
 * a copy. */
static void set_result(core__result_spec *result, const core_tensor *like,
                       core_dtype dtype, const int64_t *sizes)
{
    core__result_set(result, dtype, 4, sizes);
    if (like->sizes[1] == 1 || like->sizes[2] == 1 ||
        like->strides[2] <= like->strides[1])
        return;
    result->has_strides = true;
    result->strides[3] = 1;
    result->strides[1] = sizes[3];
    result->strides[2] = sizes[3] * sizes[1];
    result->strides[0] = result->strides[2] * sizes[2];
}

/* (query, key, value, attn_bias, compute_log_sumexp, dropout_p, is_causal,
 * scale) -> (output, log_sumexp, philox_seed, philox_offset) */
CORE__INFER(attention)
{
    bool compute = core__arg_bool(infer->args, 4, false);
    bool drops = core__arg_float(infer->args, 5, 0) > 0;
    core_dtype sums;
    int64_t scores;
    shape s;

    CORE_TRY(shape_of(infer, 0, &s));
    CORE_TRY(probability(infer, 5));
    sums = s.query->dtype == CORE_F64 ? CORE_F64 : CORE_F32;
    set_result(&infer->results[0], s.query, s.query->dtype,
               (const int64_t[]){s.batch, s.heads, s.queries, s.outer});
    core__result_set(
        &infer->results[1], sums, 3,
        (const int64_t[]){s.batch, s.heads, compute ? s.queries : 0});
    core__result_set(&infer->results[2], CORE_I64, 0, NULL);
    core__result_set(&infer->results[3], CORE_I64, 0, NULL);
    CORE_TRY(core__sizes_numel(
        4, (const int64_t[]){s.batch, s.heads, s.queries, s.keys}, &scores));
    infer->draws = drops ? (uint64_t)scores : 0;
    return CORE_OK;
}

static core_status check_saved(const core__inference *infer, const shape *s)
{
    const int64_t output[] = {s->batch, s->heads, s->queries, s->outer};
    static const char *const names[] = {"philox_seed", "philox_offset"};

    for (uint32_t i = 0; i < 6; i += 5) {
        const core_tensor *tensor = core__arg_tensor(infer->args, i);

        CORE_TRY(core__sizes_check_equal(
            infer->op, i == 0 ? "grad_out_" : "out", tensor, 4, output));
        if (tensor->dtype != s->query->dtype)
            return core__op_error(CORE_ERROR_DTYPE, infer->op,
                                  "%s is %s; it must be %s like query",
                                  i == 0 ? "grad_out_" : "out",
                                  core__dtype_name(tensor->dtype),
                                  core__dtype_name(s->query->dtype));
    }
    CORE_TRY(core__sizes_check_equal(
        infer->op, "logsumexp", core__arg_tensor(infer->args, 6), 3, output));
    for (uint32_t i = 0; i < 2; i++)
        CORE_TRY(core__sizes_check_equal(infer->op, names[i],
                                         core__arg_tensor(infer->args, 7 + i),
                                         0, NULL));
    return CORE_OK;
}

/* (grad_out, query, key, value, attn_bias, out, logsumexp, philox_seed,
 * philox_offset, dropout_p, grad_input_mask, is_causal, scale) */
CORE__INFER(attention_backward)
{
    shape s;

    CORE_TRY(shape_of(infer, 1, &s));
    CORE_TRY(probability(infer, 9));
    CORE_TRY(check_saved(infer, &s));
    set_result(&infer->results[0], s.query, s.query->dtype, s.query->sizes);
    set_result(&infer->results[1], s.key, s.key->dtype, s.key->sizes);
    set_result(&infer->results[2], s.value, s.value->dtype, s.value->sizes);
    if (s.bias && s.bias->dtype != CORE_BOOL)
        core__result_set(&infer->results[3], s.bias->dtype, 4, s.bias->sizes);
    else
        infer->results[3].dtype = CORE_DTYPE_NONE;
    return core__results_mask(infer, &infer->args[10], 4);
}
