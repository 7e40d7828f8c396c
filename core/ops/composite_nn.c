/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Public neural network operators, composed of others. */

#include "dispatch/structured.h"
#include "ops/expression.h"
#include "ops/infer.h"
#include "ops/shape.h"
#include "tensor/dtype.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------- softmax -- */

CORE__COMPOSITE(softmax)
{
    core_dtype dtype = core__arg_dtype(args, 2, args[0].u.tensor->dtype);

    return core__scope_result(
        scope,
        CORE__DO(scope, core_softmax_forward,
                 core__x_cast(scope, args[0].u.tensor, dtype), args[1].u.i,
                 false),
        &results[0]);
}

CORE__COMPOSITE(log_softmax)
{
    core_dtype dtype = core__arg_dtype(args, 2, args[0].u.tensor->dtype);

    return core__scope_result(
        scope,
        CORE__DO(scope, core_log_softmax_forward,
                 core__x_cast(scope, args[0].u.tensor, dtype), args[1].u.i,
                 false),
        &results[0]);
}

/* _safe_softmax(self, dim, dtype): 0 along dim where all elements are -inf */
CORE__COMPOSITE(safe_softmax)
{
    core_tensor *x =
        core__x_masked_softmax(scope, args[0].u.tensor, args[1].u.i,
                               core__arg_dtype(args, 2, CORE_DTYPE_NONE));

    return core__scope_result(scope, x, &results[0]);
}

/* The mask of _masked_softmax in the shape of self: mask_type 0 is [L, L], 1
 * [batch, L], 2 that of self. */
static core_status mask_like(core__scope *scope, const core_operator *op,
                             core_tensor *self, core_tensor *mask,
                             const core_value *type, core_tensor **out)
{
    int64_t kind = type->tag == CORE_VALUE_NONE ? 2 : type->u.i;
    int64_t sizes[CORE_MAX_NDIM];

    if (mask->dtype != CORE_BOOL || kind < 0 || kind > 2)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "mask is %s and mask_type %lld; mask must be "
                              "bool, and mask_type 0, 1 or 2",
                              core__dtype_name(mask->dtype), (long long)kind);
    if (kind == 1 && mask->ndim == 2 && self->ndim >= 2) {
        for (uint32_t i = 0; i < self->ndim; i++)
            sizes[i] = 1;
        sizes[0] = mask->sizes[0];
        sizes[self->ndim - 1] = mask->sizes[1];
        mask = core__x_reshape(scope, mask, sizes, self->ndim);
    }
    *out = CORE__DO(scope, core_expand, mask, self->sizes, self->ndim, false);
    return scope->status;
}

/* _masked_softmax(self, mask, dim, mask_type): without the elements where mask
 * is true; NaN where it hides all */
CORE__COMPOSITE(masked_softmax)
{
    core_tensor *self = args[0].u.tensor;
    int64_t dim = core__arg_int(args, 2, -1);
    core_tensor *mask = NULL;
    core_tensor *x;

    CORE_TRY(
        mask_like(scope, call->op, self, args[1].u.tensor, &args[3], &mask));
    x = CORE__DO(scope, core_masked_fill, self, mask, core_float(-INFINITY));
    x = CORE__DO(scope, core_softmax, x, dim, CORE_DTYPE_NONE);
    return core__scope_result(scope, x, &results[0]);
}

/* _masked_softmax_backward(grad_output, output, mask, dim) */
CORE__COMPOSITE(masked_softmax_backward)
{
    core_tensor *output = args[1].u.tensor;
    int64_t dim = core__arg_int(args, 3, -1);
    core_tensor *grad = args[0].u.tensor;
    core_tensor *x;

    grad = core__x_zero_where(scope, grad, args[2].u.tensor);
    x = CORE__DO(scope, core_softmax_backward_data, grad, output, dim,
                 output->dtype);
    return core__scope_result(
        scope, core__x_zero_where(scope, x, args[2].u.tensor), &results[0]);
}

/* Whether the given tensor could be the kernel's result, so that the kernel can
 * write into it; otherwise the result is copied. */
static bool can_write_rows(const core_value *args)
{
    const core_tensor *self = args[0].u.tensor, *out = args[3].u.tensor;

    return core__arg_dtype(args, 2, self->dtype) == self->dtype &&
           out->dtype == self->dtype && out->device == self->device &&
           out->storage != self->storage && out->ndim == self->ndim &&
           memcmp(out->sizes, self->sizes, self->ndim * sizeof *self->sizes) ==
               0;
}

static core_status rows_into(core_call *call, const core_value *args,
                             core_value *results, uint32_t nresults,
                             core_status (*forward)(core_tensor *self,
                                                    int64_t dim,
                                                    bool half_to_float,
                                                    core_tensor *out))
{
    core_tensor *out = args[3].u.tensor;

    if (!can_write_rows(args))
        return core__op_variant(call, args, 4, results, nresults);
    CORE_TRY(core__overlap_check(call->op, args, 4));
    CORE_TRY(forward(args[0].u.tensor, args[1].u.i, false, out));
    if (nresults > 0) {
        core__tensor_retain(out);
        core__result_tensor(&results[0], out);
    }
    return CORE_OK;
}

CORE__OP(softmax_out)
{
    return rows_into(call, args, results, nresults, core_softmax_forward_out);
}

CORE__OP(log_softmax_out)
{
    return rows_into(call, args, results, nresults,
                     core_log_softmax_forward_out);
}

/* --------------------------------------------------------- normalization -- */

/* Keeps the first of several results. */
static core_status first_of(core_status status, core_tensor *first,
                            core_tensor *second, core_tensor *third,
                            core_value *result)
{
    core__tensor_release(second);
    core__tensor_release(third);
    if (status == CORE_OK)
        core__result_tensor(result, first);
    return status;
}

CORE__OP(layer_norm)
{
    size_t count;
    const int64_t *shape = core__ints_of(&args[1], &count);
    core_tensor *out = NULL;
    core_tensor *mean = NULL;
    core_tensor *rstd = NULL;
    core_status status = core_native_layer_norm(
        args[0].u.tensor, shape, count, core__tensor_of(&args[2]),
        core__tensor_of(&args[3]), core__double_of(&args[4]), &out, &mean,
        &rstd);

    return first_of(status, out, mean, rstd, &results[0]);
}

CORE__OP(group_norm)
{
    core_tensor *input = args[0].u.tensor;
    int64_t groups = args[1].u.i;
    int64_t inner = 1;
    core_tensor *out = NULL;
    core_tensor *mean = NULL;
    core_tensor *rstd = NULL;
    core_status status;

    if (input->ndim < 2)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "input must have at least 2 dimensions, not %u",
                              input->ndim);
    for (uint32_t i = 2; i < input->ndim; i++)
        inner *= input->sizes[i];
    status = core_group_norm_forward(
        input, core__tensor_of(&args[2]), core__tensor_of(&args[3]),
        input->sizes[0], input->sizes[1], inner, groups,
        core__double_of(&args[4]), &out, &mean, &rstd);
    return first_of(status, out, mean, rstd, &results[0]);
}

CORE__OP(batch_norm)
{
    core_tensor *out = NULL;
    core_tensor *mean = NULL;
    core_tensor *rstd = NULL;
    core_status status = core_native_batch_norm(
        args[0].u.tensor, core__tensor_of(&args[1]), core__tensor_of(&args[2]),
        core__tensor_of(&args[3]), core__tensor_of(&args[4]), args[5].u.i != 0,
        core__double_of(&args[6]), core__double_of(&args[7]), &out, &mean,
        &rstd);

    return first_of(status, out, mean, rstd, &results[0]);
}

/* -------------------------------------------------------- convolutions -- */

/* Padding by name: "valid" is none; "same" gives the result the sizes of the
 * input, which gets a zero more at the end where the kernel's size is even. */
static core_status named_padding(core__scope *scope, const core_operator *op,
                                 const char *name, const core_tensor *weight,
                                 uint32_t spatial, const int64_t *stride,
                                 const int64_t *dilation, int64_t *out_padding,
                                 core_tensor **input)
{
    int64_t extra[6] = {0};
    bool uneven = false;

    memset(out_padding, 0, spatial * sizeof *out_padding);
    if (strcmp(name, "valid") == 0)
        return CORE_OK;
    if (strcmp(name, "same") != 0)
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "padding must be \"valid\" or \"same\", not "
                              "\"%s\"",
                              name);
    for (uint32_t i = 0; i < spatial; i++) {
        int64_t kernel = weight->sizes[i + 2];
        int64_t total;

        if (stride[i] != 1)
            return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                                  "padding is \"same\" and stride %lld; the "
                                  "stride must be 1",
                                  (long long)stride[i]);
        CORE_TRY(core__size_operand_check(op, "dilation", dilation[i]));
        if (kernel < 1 || kernel > CORE__SIZE_OPERAND_MAX ||
            dilation[i] > CORE__SIZE_OPERAND_MAX / kernel)
            return core__op_error(CORE_ERROR_SHAPE, op,
                                  "the kernel's size is %lld and dilation "
                                  "%lld; they must be positive, and their "
                                  "product small",
                                  (long long)kernel, (long long)dilation[i]);
        total = dilation[i] * (kernel - 1);
        out_padding[i] = total / 2;
        extra[2 * (spatial - 1 - i) + 1] = total % 2;
        uneven = uneven || total % 2;
    }
    if (uneven)
        *input = CORE__DO(scope, core_constant_pad_nd, *input, extra,
                          2 * spatial, core_int(0));
    return scope->status;
}

/* conv1d, conv2d, conv3d(input, weight, bias, stride, padding, dilation,
 * groups): the weight's rank decides. */
CORE__COMPOSITE(conv)
{
    core_tensor *input = args[0].u.tensor;
    core_tensor *weight = args[1].u.tensor;
    uint32_t spatial = (uint32_t)(call->op->data->name[4] - '0');
    bool batched = input->ndim == spatial + 2;
    int64_t stride[3];
    int64_t padding[3];
    int64_t dilation[3];
    static const int64_t none[3];
    core_tensor *out;

    if (weight->ndim != spatial + 2 || (!batched && input->ndim != spatial + 1))
        return core__op_shapes_error(
            call->op, "input", input, "weight", weight,
            "input must have %u dimensions (%u without a batch) and weight %u",
            spatial + 2, spatial + 1, spatial + 2);
    CORE_TRY(core__ints_fill(call->op, "stride", &args[3], spatial, 1, stride));
    CORE_TRY(
        core__ints_fill(call->op, "dilation", &args[5], spatial, 1, dilation));
    if (args[4].tag == CORE_VALUE_STRING)
        CORE_TRY(named_padding(scope, call->op, args[4].u.string, weight,
                               spatial, stride, dilation, padding, &input));
    else
        CORE_TRY(core__ints_fill(call->op, "padding", &args[4], spatial, 0,
                                 padding));
    if (!batched)
        input = core__x_unsqueeze(scope, input, 0);
    out = CORE__DO(scope, core_convolution, input, weight,
                   core__tensor_of(&args[2]), stride, spatial, padding, spatial,
                   dilation, spatial, false, none, spatial, args[6].u.i);
    if (core__unlikely(scope->status != CORE_OK) && input != args[0].u.tensor)
        core__scope_replace_error(
            scope, core__convolution_check(
                       call->op, &(core__convolution){
                                     args[0].u.tensor, weight,
                                     core__tensor_of(&args[2]), stride, padding,
                                     dilation, none, false, args[6].u.i}));
    if (!batched)
        out = CORE__DO(scope, core_squeeze_dim, out, 0);
    return core__scope_result(scope, out, &results[0]);
}

/* ------------------------------------------------------------- pooling -- */

CORE__OP(max_pool2d)
{
    size_t kernel_count;
    size_t stride_count;
    size_t padding_count;
    size_t dilation_count;
    const int64_t *kernel = core__ints_of(&args[1], &kernel_count);
    const int64_t *stride = core__ints_of(&args[2], &stride_count);
    const int64_t *padding = core__ints_of(&args[3], &padding_count);
    const int64_t *dilation = core__ints_of(&args[4], &dilation_count);
    core_tensor *out = NULL;
    core_tensor *indices = NULL;
    core_status status = core_max_pool2d_with_indices(
        args[0].u.tensor, kernel, kernel_count, stride, stride_count, padding,
        padding_count, dilation, dilation_count, args[5].u.i != 0, &out,
        &indices);

    return first_of(status, out, indices, NULL, &results[0]);
}

CORE__COMPOSITE(adaptive_avg_pool3d)
{
    size_t count;
    const int64_t *sizes = core__ints_of(&args[1], &count);

    return core__scope_result(scope,
                              CORE__DO(scope, core_adaptive_avg_pool3d_forward,
                                       args[0].u.tensor, sizes, count),
                              &results[0]);
}

CORE__COMPOSITE(adaptive_avg_pool2d)
{
    size_t count;
    const int64_t *sizes = core__ints_of(&args[1], &count);

    return core__scope_result(scope,
                              CORE__DO(scope, core_adaptive_avg_pool2d_forward,
                                       args[0].u.tensor, sizes, count),
                              &results[0]);
}

/* ------------------------------------------------------------- dropout -- */

static core_status probability(const core_operator *op, double p)
{
    if (p >= 0 && p <= 1)
        return CORE_OK;
    return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                          "p is %g; a probability must be from 0 to 1", p);
}

/* native_dropout(input, p, train) -> (result, mask) */
CORE__COMPOSITE(native_dropout)
{
    core_tensor *input = args[0].u.tensor;
    double p = core__double_of(&args[1]);
    core_tensor *mask;
    core_tensor *out;

    CORE_TRY(probability(call->op, p));
    if (!core__arg_bool(args, 2, true)) {
        mask = CORE__DO(scope, core_ones_like, input, CORE_BOOL, NULL, -1);
        out = CORE__DO(scope, core_clone, input, -1);
    } else {
        mask = CORE__DO(scope, core_empty_like, input, CORE_BOOL, NULL, -1);
        CORE__RUN(scope, core_bernoulli_float_(mask, 1 - p, NULL));
        out = CORE__DO(scope, core_native_dropout_backward, input, mask,
                       p == 1 ? 0 : 1 / (1 - p));
    }
    CORE_TRY(core__scope_result(scope, out, &results[0]));
    return core__scope_result(scope, mask, &results[1]);
}

/* grad where the mask is set, times scale; also used by the forward */
CORE__COMPOSITE(native_dropout_backward)
{
    core_tensor *x = core__x_mul(scope, args[0].u.tensor, args[1].u.tensor);

    return core__scope_result(
        scope, core__x_mul_scalar(scope, x, core__double_of(&args[2])),
        &results[0]);
}

CORE__OP(dropout)
{
    core_tensor *input = args[0].u.tensor;
    core_tensor *out = NULL;
    core_tensor *mask = NULL;
    core_status status;

    CORE_TRY(probability(call->op, core__double_of(&args[1])));
    if (args[2].u.i == 0 || core__double_of(&args[1]) == 0) {
        core__tensor_retain(input);
        core__result_tensor(&results[0], input);
        return CORE_OK;
    }
    status = core_native_dropout(input, core__double_of(&args[1]),
                                 &(const bool){true}, &out, &mask);
    return first_of(status, out, mask, NULL, &results[0]);
}

/* ---------------------------------------------------------- resampling -- */

/* The scaled size, or the given one if there is no factor. */
static core_status scaled(const core_operator *op, int64_t size,
                          const double *factor, const int64_t *wanted,
                          int64_t *out)
{
    double product = factor ? floor((double)size * *factor) : 0;

    if (factor && !(*factor > 0 && product < 0x1p62))
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, op,
            "a scale factor is %g for a dimension of size %lld; it must be "
            "above 0 and the scaled size less than 2^62",
            *factor, (long long)size);
    *out = factor ? (int64_t)product : *wanted;
    return CORE_OK;
}

/* upsample_….vec(input, output_size?, [align_corners,] scale_factors?): calls
 * the operator of the same name without .vec with sizes computed from the
 * factors. */
CORE__OP(upsample_vec)
{
    core_tensor *input = args[0].u.tensor;
    const char *name = call->op->data->name;
    bool aligned = nargs == 4;
    const core_value *scales = &args[nargs - 1];
    core_value inner[6]; /* input, size, alignment, one scale per dimension */
    int64_t sizes[3];
    size_t count;
    const int64_t *wanted = core__ints_of(&args[1], &count);
    uint32_t spatial = input->ndim > 2 ? input->ndim - 2 : 0;
    uint32_t n = 2;
    core_operator *op;

    if (spatial == 0 || spatial > 3 || (wanted && count != spatial) ||
        (scales->tag == CORE_VALUE_FLOAT_LIST && scales->count != spatial) ||
        !wanted == (scales->tag == CORE_VALUE_NONE))
        return core__op_error(
            CORE_ERROR_INVALID_ARGUMENT, call->op,
            "either output_size or scale_factors must be given, with one entry "
            "for each dimension after the second");
    for (uint32_t i = 0; i < spatial; i++)
        CORE_TRY(scaled(call->op, input->sizes[i + 2],
                        wanted ? NULL : &scales->u.floats[i],
                        wanted ? &wanted[i] : &sizes[i], &sizes[i]));
    op = core__operator_builtin(name, strcspn(name, "."));
    if (!op)
        return core__op_error(
            CORE_ERROR_INTERNAL, call->op,
            "the operator of the same name without \".vec\" is missing");
    inner[0] = args[0];
    inner[1] = (core_value){CORE_VALUE_INT_LIST, spatial, {.ints = sizes}};
    if (aligned)
        inner[n++] = args[2];
    for (uint32_t i = 0; i < spatial; i++)
        inner[n++] =
            wanted ? core_pack_none() : core_pack_float(scales->u.floats[i]);
    return core_op_invoke_on(op, inner, n, results, 1);
}
