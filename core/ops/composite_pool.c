/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Pooling operators that are made of others: those of one dimension are those
 * of two for images of height 1. */

#include "ops/expression.h"
#include "ops/infer.h"
#include "ops/shape.h"

/* ------------------------------------------------------- one dimension -- */

/* self [C, L] or [N, C, L] as an image [.., C, 1, L], after a check of the
 * arguments by the inference of the operator of images, whose errors thus speak
 * of the caller's arguments. */
static core_tensor *image_of(core__scope *scope, core_operator *op,
                             const core_value *args,
                             core_status (*check)(core__inference *))
{
    core__inference infer;

    infer.op = op;
    infer.args = args;
    infer.nargs = op->nargs;
    CORE__RUN(scope, check(&infer));
    return core__x_unsqueeze(scope, args[0].u.tensor, -2);
}

/* A window's numbers of an image: `beside` for the height, and the argument. */
static core_status window(const core_operator *op, const char *name,
                          const core_value *value, int64_t beside,
                          int64_t absent, int64_t out[2])
{
    out[0] = beside;
    return core__ints_fill(op, name, value, 1, absent, &out[1]);
}

/* The stride of a window: its size, if the list is empty. */
static core_status stride_of(const core_operator *op, const core_value *value,
                             const int64_t kernel[2], int64_t out[2])
{
    if (value->tag != CORE_VALUE_INT_LIST || value->count > 0)
        return window(op, "stride", value, 1, kernel[1], out);
    out[0] = 1;
    out[1] = kernel[1];
    return CORE_OK;
}

static core_status line_result(core__scope *scope, core_tensor *image,
                               core_value *result)
{
    return core__scope_result(
        scope, CORE__DO(scope, core_squeeze_dim, image, -2), result);
}

/* The maxima of windows and where they are; `both`, or the maxima alone. */
static core_status maxima(core__scope *scope, core_call *call,
                          const core_value *args, bool both,
                          core_value *results)
{
    int64_t kernel[2], stride[2], padding[2], dilation[2];
    core_tensor *image = image_of(scope, call->op, args, core__infer_max_pool);
    core_tensor *values = NULL, *indices = NULL;

    if (scope->status != CORE_OK)
        return scope->status;
    CORE_TRY(window(call->op, "kernel_size", &args[1], 1, 1, kernel));
    CORE_TRY(stride_of(call->op, &args[2], kernel, stride));
    CORE_TRY(window(call->op, "padding", &args[3], 0, 0, padding));
    CORE_TRY(window(call->op, "dilation", &args[4], 1, 1, dilation));
    CORE_TRY(core_max_pool2d_with_indices(
        image, kernel, 2, stride, 2, padding, 2, dilation, 2,
        core__arg_bool(args, 5, false), &values, &indices));
    values = core__scope_keep(scope, values);
    indices = core__scope_keep(scope, indices);
    CORE_TRY(line_result(scope, values, &results[0]));
    return both ? line_result(scope, indices, &results[1]) : CORE_OK;
}

/* max_pool1d_with_indices(self, kernel_size, stride, padding, dilation,
 * ceil_mode) -> (values, positions) */
CORE__COMPOSITE(max_pool1d_with_indices)
{
    return maxima(scope, call, args, true, results);
}

CORE__COMPOSITE(max_pool1d)
{
    return maxima(scope, call, args, false, results);
}

/* avg_pool1d(self, kernel_size, stride, padding, ceil_mode,
 * count_include_pad) */
CORE__COMPOSITE(avg_pool1d)
{
    int64_t kernel[2], stride[2], padding[2];
    core_tensor *image = image_of(scope, call->op, args, core__infer_avg_pool);

    if (scope->status != CORE_OK)
        return scope->status;
    CORE_TRY(window(call->op, "kernel_size", &args[1], 1, 1, kernel));
    CORE_TRY(stride_of(call->op, &args[2], kernel, stride));
    CORE_TRY(window(call->op, "padding", &args[3], 0, 0, padding));
    image = CORE__DO(scope, core_avg_pool2d, image, kernel, 2, stride, 2,
                     padding, 2, core__arg_bool(args, 4, false),
                     core__arg_bool(args, 5, true), NULL);
    return line_result(scope, image, &results[0]);
}

/* adaptive_avg_pool1d(self, output_size) */
CORE__COMPOSITE(adaptive_avg_pool1d)
{
    int64_t sizes[2];
    core_tensor *image =
        image_of(scope, call->op, args, core__infer_adaptive_pool);

    if (scope->status != CORE_OK)
        return scope->status;
    CORE_TRY(window(call->op, "output_size", &args[1], 1, 1, sizes));
    image = CORE__DO(scope, core_adaptive_avg_pool2d, image, sizes, 2);
    return line_result(scope, image, &results[0]);
}

/* adaptive_max_pool1d(self, output_size) -> (values, positions) */
CORE__COMPOSITE(adaptive_max_pool1d)
{
    int64_t sizes[2];
    core_tensor *image =
        image_of(scope, call->op, args, core__infer_adaptive_max_pool);
    core_tensor *values = NULL, *indices = NULL;

    if (scope->status != CORE_OK)
        return scope->status;
    CORE_TRY(window(call->op, "output_size", &args[1], 1, 1, sizes));
    CORE_TRY(core_adaptive_max_pool2d(image, sizes, 2, &values, &indices));
    values = core__scope_keep(scope, values);
    indices = core__scope_keep(scope, indices);
    CORE_TRY(line_result(scope, values, &results[0]));
    return line_result(scope, indices, &results[1]);
}

/* ---------------------------------------------------- three dimensions -- */

/* max_pool3d(self, kernel_size, stride, padding, dilation, ceil_mode) */
CORE__COMPOSITE(max_pool3d)
{
    size_t counts[4];
    const int64_t *lists[4];
    core_tensor *values = NULL, *indices = NULL;

    for (int i = 0; i < 4; i++)
        lists[i] = core__ints_of(&args[i + 1], &counts[i]);
    CORE_TRY(core_max_pool3d_with_indices(
        args[0].u.tensor, lists[0], counts[0], lists[1], counts[1], lists[2],
        counts[2], lists[3], counts[3], core__arg_bool(args, 5, false), &values,
        &indices));
    core__scope_keep(scope, indices);
    return core__scope_result(scope, core__scope_keep(scope, values),
                              &results[0]);
}
