/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Float8 products of quantized factors with the device's kernel.  On devices
 * without one the products are computed in f32, which dequantizes each factor
 * once. */

#include "dispatch/structured.h"
#include "linear/linear.h"
#include "ops/functions.h"
#include "tensor/tensor.h"

#include <libcore/ops.h>

#include <string.h>

core_status core__linear_as_matrix(core_tensor *tensor,
                                   core_tensor **out_matrix)
{
    const int64_t sizes[2] = {core__linear_row_count(tensor),
                              core_tensor_size(tensor, -1)};

    if (core_tensor_ndim(tensor) == 2) {
        *out_matrix = core_tensor_retain(tensor);
        return CORE_OK;
    }
    return core_reshape(tensor, sizes, 2, out_matrix);
}

static bool is_one(core_tensor *scales)
{
    return core_tensor_dtype(scales) == CORE_F32 &&
           core_tensor_ndim(scales) == 0;
}

bool core__linear_quantized_supported(const core__linear_quantized_factor *a,
                                      const core__linear_quantized_factor *b,
                                      core_tensor *bias, core_dtype dtype)
{
    const core_value args[8] = {core_pack_tensor(a->data),
                                core_pack_tensor(b->data),
                                core_pack_tensor(a->scales),
                                core_pack_tensor(b->scales),
                                bias ? core_pack_tensor(bias)
                                     : core_pack_none(),
                                core_pack_none(),
                                core_pack_dtype(dtype),
                                core_pack_bool(false)};

    return is_one(a->scales) && is_one(b->scales) &&
           core__kernel_exists(core_op_at(CORE_OP_SCALED_MM), args, 8, &dtype,
                               1);
}

core_status core__linear_quantized_matmul(
    const core__linear_quantized_factor *a,
    const core__linear_quantized_factor *b, core_tensor *bias, core_dtype dtype,
    core_tensor **out_product)
{
    *out_product = NULL;
    if (!core__linear_quantized_supported(a, b, bias, dtype))
        return CORE_OK;
    return core_scaled_mm(a->data, b->data, a->scales, b->scales, bias, NULL,
                          dtype, false, out_product);
}

/* Reshapes the rows of a matrix to the leading sizes of input.  Not as a view,
 * since the result is recorded. */
static core_status as_rows_of(core_tensor *input, core_tensor *matrix,
                              core_tensor **out_tensor)
{
    uint32_t ndim = core_tensor_ndim(input);
    int64_t sizes[CORE_MAX_NDIM], strides[CORE_MAX_NDIM], step = 1;

    memcpy(sizes, core_tensor_sizes(input), ndim * sizeof *sizes);
    sizes[ndim - 1] = core_tensor_size(matrix, 1);
    for (uint32_t d = ndim; d-- > 0; step *= sizes[d])
        strides[d] = step;
    return core__tensor_alias(matrix, core_tensor_dtype(matrix), ndim, sizes,
                              strides, matrix->offset, out_tensor);
}

core_status core__linear_quantized_forward(
    const core_linear_forward_args *args,
    const core_linear_intermediates *intermediates, core_tensor **out_product)
{
    core__linear_quantized_factor x = {NULL, intermediates->input_scales};
    core__linear_quantized_factor w = {NULL, intermediates->weight_scales};
    core_tensor *matrix = NULL;
    core_status status;

    *out_product = NULL;
    status = core__linear_as_matrix(intermediates->input_data, &x.data);
    if (status == CORE_OK)
        status = core_t(intermediates->weight_data, &w.data);
    if (status == CORE_OK)
        status = core__linear_quantized_matmul(
            &x, &w, args->bias, core_tensor_dtype(args->input), &matrix);
    if (status == CORE_OK && matrix)
        status = as_rows_of(args->input, matrix, out_product);
    core_tensor_release(x.data);
    core_tensor_release(w.data);
    core_tensor_release(matrix);
    return status;
}
