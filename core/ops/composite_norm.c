/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Batch normalisation under the names of ATen's newer operators, normalisation
 * of instances, by root mean squares, and of weights. */

#include "ops/expression.h"
#include "ops/shape.h"
#include "tensor/dtype.h"

#include <float.h>
#include <string.h>

/* ------------------------------------------------------ batch statistics -- */

static core_status normalized(const core_value *args, core_tensor *mean,
                              core_tensor *var, bool training,
                              const core_value *numbers, core_value *results)
{
    core_tensor *out[3] = {NULL, NULL, NULL};
    core_status status = core_native_batch_norm(
        args[0].u.tensor, core__tensor_of(&args[1]), core__tensor_of(&args[2]),
        mean, var, training, core__double_of(&numbers[0]),
        core__double_of(&numbers[1]), &out[0], &out[1], &out[2]);

    for (int i = 0; status == CORE_OK && i < 3; i++)
        core__result_tensor(&results[i], out[i]);
    return status;
}

/* _native_batch_norm_legit(input, weight, bias, running_mean, running_var,
 * training, momentum, eps) */
CORE__COMPOSITE(native_batch_norm_legit)
{
    return normalized(args, core__tensor_of(&args[3]),
                      core__tensor_of(&args[4]), core__arg_bool(args, 5, true),
                      &args[6], results);
}

/* _native_batch_norm_legit.no_stats(input, weight, bias, training, momentum,
 * eps) */
CORE__COMPOSITE(native_batch_norm_legit_no_stats)
{
    return normalized(args, NULL, NULL, core__arg_bool(args, 3, true), &args[4],
                      results);
}

/* _batch_norm_with_update(input, weight, bias, running_mean, running_var,
 * momentum, eps): in training; the reserve is empty. */
CORE__COMPOSITE(batch_norm_with_update)
{
    CORE_TRY(normalized(args, args[3].u.tensor, args[4].u.tensor, true,
                        &args[5], results));
    return core__scope_result(scope,
                              CORE__DO(scope, core_new_empty, args[0].u.tensor,
                                       (const int64_t[]){0}, 1, CORE_U8, NULL),
                              &results[3]);
}

/* batch_norm_backward(grad_out, input, weight, running_mean, running_var,
 * save_mean, save_var, update, eps, output_mask, reserve) */
CORE__COMPOSITE(batch_norm_backward)
{
    core_tensor *out[3] = {NULL, NULL, NULL};
    core_status status = core_native_batch_norm_backward(
        args[0].u.tensor, args[1].u.tensor, core__tensor_of(&args[2]),
        core__tensor_of(&args[3]), core__tensor_of(&args[4]),
        core__tensor_of(&args[5]), core__tensor_of(&args[6]),
        core__arg_bool(args, 7, true), core__double_of(&args[8]),
        args[9].u.bools, args[9].count, &out[0], &out[1], &out[2]);

    for (int i = 0; status == CORE_OK && i < 3; i++)
        core__result_tensor(&results[i], out[i]);
    return status;
}

static void update(core__scope *scope, core_tensor *running, core_tensor *now,
                   double momentum)
{
    core_tensor *x = core__x_mul_scalar(scope, running, 1 - momentum);

    now = core__x_detach(scope, now);
    x = core__x_add(scope, x,
                    core__x_cast(scope,
                                 core__x_mul_scalar(scope, now, momentum),
                                 running->dtype));
    CORE__RUN(scope, core_copy_(running, x, false));
}

/* batch_norm_update_stats(input, running_mean, running_var, momentum): mean and
 * biased variance of each channel; running_var takes the unbiased one. */
CORE__COMPOSITE(batch_norm_update_stats)
{
    core_tensor *input = args[0].u.tensor;
    core_tensor *means = core__tensor_of(&args[1]);
    core_tensor *variances = core__tensor_of(&args[2]);
    double momentum = core__double_of(&args[3]);
    int64_t dims[CORE_MAX_NDIM];
    core_tensor *mean, *var;
    double n, unbiased;

    if (input->ndim < 2 || !core__dtype_is_floating(input->dtype))
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "input has %u dimensions and dtype %s; it must "
                              "have at least 2 and a floating dtype",
                              input->ndim, core__dtype_name(input->dtype));
    CORE_TRY(core__sizes_check_equal(call->op, "running_mean", means, 1,
                                     &input->sizes[1]));
    CORE_TRY(core__sizes_check_equal(call->op, "running_var", variances, 1,
                                     &input->sizes[1]));
    dims[0] = 0;
    for (uint32_t i = 2; i < input->ndim; i++)
        dims[i - 1] = i;
    mean = CORE__DO(scope, core_mean_dim, input, dims, input->ndim - 1, false,
                    CORE_DTYPE_NONE);
    var = CORE__DO(scope, core_var, input, dims, input->ndim - 1,
                   &(const core_scalar){.tag = CORE_VALUE_INT}, false);
    n = input->sizes[1] ? (double)input->numel / (double)input->sizes[1] : 0;
    unbiased = n > 1 ? n / (n - 1) : 1;
    if (means)
        update(scope, means, mean, momentum);
    if (variances)
        update(scope, variances, core__x_mul_scalar(scope, var, unbiased),
               momentum);
    CORE_TRY(core__scope_result(scope, mean, &results[0]));
    return core__scope_result(scope, var, &results[1]);
}

/* -------------------------------------------------------------- instances -- */

/* x [C] for each of n samples: [n C] */
static core_tensor *for_samples(core__scope *scope, core_tensor *x, int64_t n)
{
    return x ? CORE__DO(scope, core_repeat, x, &n, 1) : NULL;
}

/* running = the mean over samples of each channel's new statistics */
static void average_samples(core__scope *scope, core_tensor *running,
                            core_tensor *of_samples, int64_t n)
{
    int64_t sizes[2] = {n, -1}, dim = 0;

    if (!running)
        return;
    of_samples = core__x_reshape(scope, of_samples, sizes, 2);
    of_samples = CORE__DO(scope, core_mean_dim, of_samples, &dim, 1, false,
                          CORE_DTYPE_NONE);
    CORE__RUN(scope, core_copy_(running, of_samples, false));
}

/* instance_norm(input, weight, bias, running_mean, running_var,
 * use_input_stats, momentum, eps): batch_norm with the channels of all samples
 * as channels */
CORE__COMPOSITE(instance_norm)
{
    core_tensor *input = args[0].u.tensor;
    core_tensor *running_mean = core__tensor_of(&args[3]);
    core_tensor *running_var = core__tensor_of(&args[4]);
    bool training = core__arg_bool(args, 5, true);
    int64_t sizes[CORE_MAX_NDIM];
    core_tensor *mean, *var, *x;
    int64_t n;

    if (input->ndim < 2)
        return core__op_error(CORE_ERROR_SHAPE, call->op,
                              "input has %u dimensions; it must have at least "
                              "2",
                              input->ndim);
    if (!training && (!running_mean || !running_var))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, call->op,
                              "running_mean and running_var are needed without "
                              "use_input_stats");
    for (int i = 1; i <= 4; i++)
        CORE_TRY(core__sizes_check_equal(
            call->op,
            (const char *const[]){"weight", "bias", "running_mean",
                                  "running_var"}[i - 1],
            core__tensor_of(&args[i]), 1, &input->sizes[1]));
    n = input->sizes[0];
    memcpy(sizes, input->sizes, input->ndim * sizeof *sizes);
    sizes[0] = 1;
    sizes[1] *= n;
    mean = for_samples(scope, running_mean, n);
    var = for_samples(scope, running_var, n);
    x = CORE__DO(scope, core_batch_norm,
                 core__x_reshape(scope, input, sizes, input->ndim),
                 for_samples(scope, core__tensor_of(&args[1]), n),
                 for_samples(scope, core__tensor_of(&args[2]), n), mean, var,
                 training, core__double_of(&args[6]),
                 core__double_of(&args[7]));
    if (training) {
        average_samples(scope, running_mean, mean, n);
        average_samples(scope, running_var, var, n);
    }
    return core__scope_result(
        scope, core__x_reshape(scope, x, input->sizes, input->ndim),
        &results[0]);
}

/* -------------------------------------------------------- root mean squares -- */

/* rms_norm(input, normalized_shape, weight, eps): input / sqrt(mean(input^2) +
 * eps) * weight, computed in f32 for f16 and bf16.  Without eps, it is the
 * rounding unit of the dtype in which the norm is computed. */
CORE__COMPOSITE(rms_norm)
{
    core_tensor *input = args[0].u.tensor;
    core_tensor *weight = core__tensor_of(&args[2]);
    core_dtype dtype = input->dtype;
    int64_t dims[CORE_MAX_NDIM];
    const int64_t *shape;
    core_tensor *x, *scale;
    size_t count;
    double eps;

    shape = core__ints_of(&args[1], &count);
    if (!core__dtype_is_floating(dtype))
        return core__op_error(CORE_ERROR_DTYPE, call->op,
                              "input has dtype %s; it must be floating",
                              core__dtype_name(dtype));
    CORE_TRY(core__normalized_shape_check(call->op, input, count, shape));
    CORE_TRY(core__sizes_check_equal(call->op, "weight", weight,
                                     (uint32_t)count, shape));
    if (dtype != CORE_F64)
        dtype = CORE_F32;
    eps = args[3].tag == CORE_VALUE_NONE
              ? (dtype == CORE_F64 ? DBL_EPSILON : (double)FLT_EPSILON)
              : core__double_of(&args[3]);
    for (size_t i = 0; i < count; i++)
        dims[i] = (int64_t)i - (int64_t)count;
    x = core__x_cast(scope, input, dtype);
    scale = CORE__DO(scope, core_mean_dim, core__x_mul(scope, x, x), dims,
                     count, true, CORE_DTYPE_NONE);
    scale = CORE__DO(scope, core_rsqrt, core__x_add_scalar(scope, scale, eps));
    x = core__x_mul(scope, x, scale);
    if (weight)
        x = core__x_mul(scope, x, weight);
    return core__scope_result(scope, core__x_cast(scope, x, input->dtype),
                              &results[0]);
}

/* ---------------------------------------------------------------- weights -- */

/* The dimensions other than the first or the last, the only ones allowed. */
static core_status others(const core_operator *op, const core_tensor *v,
                          int64_t dim, int64_t *dims, size_t *count)
{
    if (v->ndim == 0 || (dim != 0 && dim != (int64_t)v->ndim - 1))
        return core__op_error(CORE_ERROR_INVALID_ARGUMENT, op,
                              "dim is %lld; it must be the first or the last "
                              "of the %u dimensions",
                              (long long)dim, v->ndim);
    *count = 0;
    for (uint32_t i = 0; i < v->ndim; i++)
        if (i != (uint32_t)dim)
            dims[(*count)++] = i;
    return CORE_OK;
}

/* _weight_norm_interface(v, g, dim) -> (g v / |v|, |v|): the norms of the slices
 * at each index of dim */
CORE__COMPOSITE(weight_norm_interface)
{
    core_tensor *v = args[0].u.tensor;
    int64_t dims[CORE_MAX_NDIM];
    core_tensor *norms;
    core_tensor *x;
    size_t count;

    CORE_TRY(others(call->op, v, core__arg_int(args, 2, 0), dims, &count));
    if (count > 0)
        norms = CORE__DO(scope, core_linalg_vector_norm, v, core_int(2), dims,
                         count, true, CORE_DTYPE_NONE);
    else
        norms = core__x_abs(scope, v);
    x = core__x_mul(scope, v, core__x_div(scope, args[1].u.tensor, norms));
    CORE_TRY(core__scope_result(scope, x, &results[0]));
    return core__scope_result(scope, norms, &results[1]);
}

/* _weight_norm_interface_backward(grad_w, saved_v, saved_g, saved_norms, dim)
 * -> (grad_v, grad_g) */
CORE__COMPOSITE(weight_norm_interface_backward)
{
    core_tensor *grad = args[0].u.tensor;
    core_tensor *v = args[1].u.tensor;
    core_tensor *g = args[2].u.tensor;
    core_tensor *norms = args[3].u.tensor;
    int64_t dims[CORE_MAX_NDIM];
    core_tensor *along, *x;
    size_t count;

    CORE_TRY(others(call->op, v, args[4].u.i, dims, &count));
    along = core__x_mul(scope, grad, v);
    if (count > 0)
        along = core__x_sum_dim(scope, along, dims, count, true);
    x = core__x_div(scope, along, core__x_mul(scope, norms, norms));
    x = core__x_sub(scope, grad, core__x_mul(scope, v, x));
    x = core__x_mul(scope, x, core__x_div(scope, g, norms));
    CORE_TRY(core__scope_result(scope, x, &results[0]));
    return core__scope_result(scope, core__x_div(scope, along, norms),
                              &results[1]);
}
