/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Inference for a recurrent layer in one direction. */

#include "dispatch/structured.h"
#include "ops/functions.h"
#include "ops/recurrent.h"
#include "ops/shape.h"
#include "tensor/dtype.h"

/* Positions of arguments that both operators have. */
typedef struct places {
    uint32_t rows, hx, cx, weight, sizes;
} places;

typedef struct shape {
    int64_t mode, batch, n, rows, gates, saved;
    const core_tensor *hx, *weight;
} shape;

static core_status check_dtypes(const core__inference *infer, uint32_t tensors,
                                uint32_t workspaces, core_dtype dtype)
{
    core_dtype sums = dtype == CORE_F64 ? CORE_F64 : CORE_F32;

    if (!core__dtype_is_floating(dtype))
        return core__op_error(CORE_ERROR_DTYPE, infer->op,
                              "hx must have a floating dtype, not %s",
                              core__dtype_name(dtype));
    for (uint32_t i = 0; i < tensors; i++) {
        const core_tensor *tensor = core__arg_tensor(infer->args, i);
        core_dtype want = workspaces >> i & 1 ? sums : dtype;

        if (tensor && tensor->dtype != want)
            return core__op_error(
                CORE_ERROR_DTYPE, infer->op, "%s is %s; it must be %s",
                core__argument_name(infer->op, i),
                core__dtype_name(tensor->dtype), core__dtype_name(want));
    }
    return CORE_OK;
}

static core_status check_size(const core__inference *infer, const shape *s,
                              const int64_t *size, size_t i)
{
    bool grows = i > 0 ? size[i] > size[i - 1] : size[i] != s->batch;

    if (size[i] >= 1 && !grows)
        return CORE_OK;
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                          "batch_sizes[%zu] is %lld; sizes must be positive "
                          "and not grow, and the first be %lld as in hx",
                          i, (long long)size[i], (long long)s->batch);
}

/* The samples of each step: all at the first one, and never more than at the
 * step before.  rows: the argument that has so many in all. */
static core_status check_sizes(const core__inference *infer, const shape *s,
                               uint32_t rows, const core_value *sizes)
{
    const char *name = core__argument_name(infer->op, rows);
    size_t count, i = 0;
    const int64_t *size = core__ints_of(sizes, &count);
    int64_t total = 0;

    for (; i < count && total <= s->rows; i++) {
        CORE_TRY(check_size(infer, s, size, i));
        total += size[i];
    }
    if (count > 0 && total != s->rows)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "%s has %lld rows; %zu batch_sizes sum to %lld",
                              name, (long long)s->rows, i, (long long)total);
    if (count > 0 || (s->batch > 0 ? s->rows % s->batch == 0 : s->rows == 0))
        return CORE_OK;
    return core__op_error(CORE_ERROR_SHAPE, infer->op,
                          "%s has %lld rows; without batch_sizes it must have "
                          "a multiple of the %lld of hx",
                          name, (long long)s->rows, (long long)s->batch);
}

static core_status shape_of(const core__inference *infer, const places *at,
                            shape *s)
{
    static const uint8_t gates[] = {1, 1, 4, 3}, saved[] = {0, 0, 5, 4};
    const core_tensor *rows = core__arg_tensor(infer->args, at->rows);
    const core_tensor *cx = core__arg_tensor(infer->args, at->cx);

    *s = (shape){.mode = core__arg_int(infer->args, at->sizes + 1, 0),
                 .hx = core__arg_tensor(infer->args, at->hx),
                 .weight = core__arg_tensor(infer->args, at->weight)};
    if (s->mode < 0 || s->mode > CORE__RECURRENT_GRU)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "mode is %lld; accepted: 0 to 3",
                              (long long)s->mode);
    if (s->hx->ndim != 2 || rows->ndim != 2)
        return core__op_error(CORE_ERROR_SHAPE, infer->op,
                              "%s and hx have %u and %u dimensions; they must "
                              "have 2",
                              core__argument_name(infer->op, at->rows),
                              rows->ndim, s->hx->ndim);
    if ((cx != NULL) != (s->mode == CORE__RECURRENT_LSTM))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, infer->op,
                              "cx is %s; only mode 2, LSTM, has it",
                              cx ? "given" : "absent");
    s->gates = gates[s->mode];
    s->saved = saved[s->mode];
    s->batch = s->hx->sizes[0];
    s->n = s->hx->sizes[1];
    s->rows = rows->sizes[0];
    CORE_TRY(core__sizes_check_equal(infer->op, "cx", cx, 2, s->hx->sizes));
    CORE_TRY(core__sizes_check_equal(infer->op, "w_hh", s->weight, 2,
                                     (const int64_t[]){s->gates * s->n, s->n}));
    CORE_TRY(
        core__sizes_check(infer->op, 2, (const int64_t[]){s->rows, 5 * s->n}));
    return check_sizes(infer, s, at->rows, &infer->args[at->sizes]);
}

/* (input, hx, cx, w_hh, b_hh, batch_sizes, mode, reverse) -> (output, hy, cy,
 * workspace) */
CORE__INFER(recurrent_layer)
{
    const places at = {0, 1, 2, 3, 5};
    core_dtype dtype;
    int64_t width;
    shape s;

    CORE_TRY(shape_of(infer, &at, &s));
    dtype = s.hx->dtype;
    width = s.gates * s.n;
    CORE_TRY(check_dtypes(infer, 5, 0, dtype));
    CORE_TRY(core__sizes_check_equal(infer->op, "input",
                                     core__arg_tensor(infer->args, 0), 2,
                                     (const int64_t[]){s.rows, width}));
    CORE_TRY(core__sizes_check_equal(
        infer->op, "b_hh", core__arg_tensor(infer->args, 4), 1, &width));
    core__result_set(&infer->results[0], dtype, 2,
                     (const int64_t[]){s.rows, s.n});
    core__result_set(&infer->results[1], dtype, 2, s.hx->sizes);
    core__result_set(
        &infer->results[2], dtype, 2,
        (const int64_t[]){s.batch, s.mode == CORE__RECURRENT_LSTM ? s.n : 0});
    core__result_set(&infer->results[3],
                     dtype == CORE_F64 ? CORE_F64 : CORE_F32, 2,
                     (const int64_t[]){s.rows, s.saved * s.n});
    return CORE_OK;
}

/* (grad_output, grad_hy, grad_cy, grad_workspace, output, hx, cx, w_hh,
 * workspace, batch_sizes, mode, reverse) -> (grad_input, grad_hidden, grad_hx,
 * grad_cx) */
CORE__INFER(recurrent_layer_backward)
{
    const places at = {4, 5, 6, 7, 9};
    shape s;

    CORE_TRY(shape_of(infer, &at, &s));
    CORE_TRY(check_dtypes(infer, 9, 1u << 3 | 1u << 8, s.hx->dtype));
    for (uint32_t i = 0; i < 9; i++) {
        bool lstm = s.mode == CORE__RECURRENT_LSTM;
        const int64_t sizes[2] = {i == 1 || i == 2 ? s.batch : s.rows,
                                  i == 3 || i == 8  ? s.saved * s.n
                                  : i == 2 && !lstm ? 0
                                                    : s.n};

        if (i < 5 || i == 8)
            CORE_TRY(core__sizes_check_equal(
                infer->op, core__argument_name(infer->op, i),
                core__arg_tensor(infer->args, i), 2, sizes));
    }
    core__result_set(&infer->results[0], s.hx->dtype, 2,
                     (const int64_t[]){s.rows, s.gates * s.n});
    if (s.mode == CORE__RECURRENT_GRU)
        infer->results[1] = infer->results[0];
    else
        infer->results[1].dtype = CORE_DTYPE_NONE;
    core__result_like(&infer->results[2], s.hx);
    if (s.mode == CORE__RECURRENT_LSTM)
        core__result_like(&infer->results[3], s.hx);
    else
        infer->results[3].dtype = CORE_DTYPE_NONE;
    return CORE_OK;
}
