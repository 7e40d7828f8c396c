/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Copies and casts between layouts and dtypes, and fills. */

#include "opencl.h"
#include "opencl_kernels.h"

static const opencl_source source = {"copy", opencl_copy_cl, NULL, NULL};

static core_status copy(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    const core_loop *loop = call->loop;
    const core_operand *to = &loop->operands[0], *from = &loop->operands[1];
    core_dtype types[2] = {to->dtype, from->dtype};
    opencl_launch l;
    opencl_loop shape;
    core_status status = opencl_loop_fill(loop, &shape);

    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    if (status != CORE_OK || loop->numel == 0)
        return status;
    if (to->dtype == from->dtype)
        types[0] = types[1] = opencl_bits_of(to->dtype);
    if ((loop->flags & CORE_LOOP_CONTIGUOUS) && shape.immediates == 0) {
        l = opencl_begin(call, &source, types, 2, "dense");
        opencl_buffer(&l, to->memory);
        opencl_buffer(&l, from->memory);
        opencl_long(&l, loop->numel);
    } else {
        l = opencl_begin(call, &source, types, 2, "spaced");
        opencl_buffer(&l, to->memory);
        if (shape.immediates)
            opencl_null_buffer(&l);
        else
            opencl_buffer(&l, from->memory);
        opencl_bytes(&l, &from->immediate, 8);
        opencl_bytes(&l, &shape, sizeof shape);
    }
    return opencl_run(&l, (uint64_t)loop->numel, 2 * OPENCL_GROUP);
}

static core_status fill_with(core_call *call, uint64_t bits)
{
    const core_loop *loop = call->loop;
    const core_operand *to = &loop->operands[0];
    core_dtype types[2] = {opencl_bits_of(to->dtype),
                           opencl_bits_of(to->dtype)};
    opencl_launch l;
    opencl_loop shape;
    core_status status = opencl_loop_fill(loop, &shape);

    if (status != CORE_OK || loop->numel == 0)
        return status;
    l = opencl_begin(call, &source, types, 2, "fill");
    opencl_buffer(&l, to->memory);
    opencl_bytes(&l, &bits, 8);
    opencl_bytes(&l, &shape, sizeof shape);
    return opencl_run(&l, (uint64_t)loop->numel, 2 * OPENCL_GROUP);
}

static core_status fill(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    (void)results;
    (void)nresults;
    if (nargs < 2)
        return opencl_refuse(CORE_ERROR_INTERNAL, "fill_ without a value");
    return fill_with(
        call, opencl_scalar_bits(&args[1], call->loop->operands[0].dtype));
}

static core_status zero(core_call *call, const core_value *args, uint32_t nargs,
                        core_value *results, uint32_t nresults)
{
    (void)args;
    (void)nargs;
    (void)results;
    (void)nresults;
    return fill_with(call, 0);
}

core_status opencl_convert_window(core_call *call, uint32_t ndim,
                                  const int64_t *sizes, core_dtype to_dtype,
                                  core_memory to, const int64_t *to_strides,
                                  core_dtype from_dtype, core_memory from,
                                  const int64_t *from_strides)
{
    core_dtype types[2] = {to_dtype, from_dtype};
    opencl_loop shape = {.numel = 1, .ndim = ndim};
    uint64_t none = 0;
    opencl_launch l;

    if (to_dtype == from_dtype)
        types[0] = types[1] = opencl_bits_of(to_dtype);
    for (uint32_t d = 0; d < ndim; d++) {
        uint32_t k = ndim - 1 - d;

        shape.numel *= (cl_ulong)sizes[d];
        shape.sizes[k] = (cl_uint)sizes[d];
        shape.strides[0][k] = to_strides[d] * core_sdk_itemsize(to_dtype);
        shape.strides[1][k] = from_strides[d] * core_sdk_itemsize(from_dtype);
    }
    if (shape.numel == 0)
        return CORE_OK;
    l = opencl_begin(call, &source, types, 2, "spaced");
    opencl_buffer(&l, to);
    opencl_buffer(&l, from);
    opencl_bytes(&l, &none, 8);
    opencl_bytes(&l, &shape, sizeof shape);
    return opencl_run(&l, shape.numel, 2 * OPENCL_GROUP);
}

core_status opencl_copy_window(core_call *call, core_dtype dtype, uint32_t ndim,
                               const int64_t *sizes, core_memory to,
                               const int64_t *to_strides, core_memory from,
                               const int64_t *from_strides)
{
    return opencl_convert_window(call, ndim, sizes, dtype, to, to_strides,
                                 dtype, from, from_strides);
}

core_status opencl_fill_view(core_call *call, const core_view *to,
                             uint64_t bits)
{
    core_dtype types[2] = {opencl_bits_of(to->dtype),
                           opencl_bits_of(to->dtype)};
    opencl_loop shape = {.numel = (cl_ulong)to->numel, .ndim = to->ndim};
    opencl_launch l;

    if (to->numel == 0)
        return CORE_OK;
    for (uint32_t d = 0; d < to->ndim; d++) {
        uint32_t k = to->ndim - 1 - d;

        shape.sizes[k] = (cl_uint)to->sizes[d];
        shape.strides[0][k] =
            to->strides[d] * (int64_t)core_sdk_itemsize(to->dtype);
    }
    l = opencl_begin(call, &source, types, 2, "fill");
    opencl_buffer(&l, to->memory);
    opencl_bytes(&l, &bits, 8);
    opencl_bytes(&l, &shape, sizeof shape);
    return opencl_run(&l, shape.numel, 2 * OPENCL_GROUP);
}

#define ALL                                                   \
    (CORE_DTYPE_MASK(CORE_F64) | CORE_DTYPE_MASK(CORE_F32) |  \
     CORE_DTYPE_MASK(CORE_F16) | CORE_DTYPE_MASK(CORE_BF16) | \
     CORE_DTYPE_MASK(CORE_I64) | CORE_DTYPE_MASK(CORE_I32) |  \
     CORE_DTYPE_MASK(CORE_I16) | CORE_DTYPE_MASK(CORE_I8) |   \
     CORE_DTYPE_MASK(CORE_U8) | CORE_DTYPE_MASK(CORE_BOOL))

core_status opencl_register_copy(core_registry *registry)
{
    static const opencl_row rows[] = {
        {"copy_", copy, NULL, {ALL, ALL}, 0},
        {"fill_.Scalar", fill, NULL, {ALL}, 0},
        {"zero_", zero, NULL, {ALL}, 0},
    };

    return opencl_register(registry, rows, sizeof rows / sizeof *rows,
                           OPENCL_MAX_NDIM);
}
