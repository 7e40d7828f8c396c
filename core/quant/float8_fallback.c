/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Operators on float8 tensors for devices without a kernel for them: bytes are
 * moved and filled as u8, converted by integer operators (float8_emulation.c),
 * and multiplied in f32 (product_fallback.c). */

#include "device/device.h"
#include "dispatch/dispatch.h"
#include "ops/functions.h"
#include "ops/infer.h"
#include "quant/float8_fallback.h"
#include "quant/quantizer.h"
#include "tensor/dtype.h"
#include "tensor/float8.h"
#include "tensor/tensor.h"

#include <libcore/autograd.h>
#include <libcore/ops.h>

static bool is_float8(const core_tensor *tensor)
{
    return core__dtype_is_storage((core_dtype)tensor->dtype);
}

/* The same memory as u8. */
static core_status bytes_of(core_tensor *tensor, core_tensor **out_bytes)
{
    return core__tensor_alias(tensor, CORE_U8, tensor->ndim, tensor->sizes,
                              tensor->strides, tensor->offset, out_bytes);
}

/* Calls the operator again with other first arguments, below all layers, which
 * have already run. */
static core_status call_operator(core_call *call, const core_value *args,
                                 uint32_t nargs, core_tensor *self,
                                 core_tensor *src)
{
    core_value given[4];

    for (uint32_t i = 0; i < nargs; i++)
        given[i] = args[i];
    given[0].u.tensor = self;
    if (src)
        given[1].u.tensor = src;
    return core__redispatch(call->op, self->device->keys | CORE__KEY_BACKEND,
                            given, nargs, NULL, 0);
}

static core_status fill(core_call *call, const core_value *args, uint32_t nargs)
{
    core_tensor *self = args[0].u.tensor, *bytes;
    core_value given[2] = {args[0], {0}};
    core_status status;

    if (nargs > 1) {
        double value =
            args[1].tag == CORE_VALUE_FLOAT ? args[1].u.f : (double)args[1].u.i;

        given[1] =
            core_int(core__float8_encode((core_dtype)self->dtype, value));
    }
    CORE_TRY(bytes_of(self, &bytes));
    status = call_operator(call, given, nargs, bytes, NULL);
    core__tensor_release(bytes);
    return status;
}

/* Converts src to self's dtype; as u8 if that is a float8 dtype. */
static core_status convert(core_tensor *self, core_tensor *src,
                           core_tensor **out_tensor)
{
    core_tensor *wide = NULL, *low = NULL;
    core_status status = CORE_OK;

    if (is_float8(src) && src->dtype == self->dtype)
        return bytes_of(src, out_tensor);
    if (is_float8(src))
        status = core__float8_emulate_decode(src, &wide);
    if (status == CORE_OK && !is_float8(self)) {
        *out_tensor = wide;
        return CORE_OK;
    }
    if (status == CORE_OK)
        status = core__float8_emulate_encode(wide ? wide : src,
                                             (core_dtype)self->dtype, &low);
    if (status == CORE_OK)
        status = bytes_of(low, out_tensor);
    core__tensor_release(wide);
    core__tensor_release(low);
    return status;
}

static core_status copy(core_call *call, const core_value *args, uint32_t nargs)
{
    core_tensor *self = args[0].u.tensor, *src = args[1].u.tensor;
    core_tensor *to = NULL, *from = NULL;
    core_status status = convert(self, src, &from);

    if (status == CORE_OK && is_float8(self))
        status = bytes_of(self, &to);
    if (status == CORE_OK)
        status = call_operator(call, args, nargs, to ? to : self, from);
    core__tensor_release(to);
    core__tensor_release(from);
    return status;
}

static core_status stochastic_round(const core_value *args, core_value *result)
{
    core_generator *generator =
        args[3].tag == CORE_VALUE_GENERATOR ? args[3].u.generator : NULL;
    core_tensor *rounded;

    CORE_TRY(core__float8_emulate_stochastic(
        args[0].u.tensor, (core_dtype)args[1].u.i, args[2].u.i != 0, generator,
        &rounded));
    core__result_tensor(result, rounded);
    return CORE_OK;
}

/* Without a kernel of any backend, the arguments were not checked yet. */
static core_status product(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *result)
{
    core__inference infer = {.op = call->op, .args = args, .nargs = nargs};
    core_tensor *tensor;

    CORE_TRY(call->op->data->infer(&infer));
    CORE_TRY(core__float8_emulate_matmul(
        args[0].u.tensor, args[1].u.tensor, args[2].u.tensor, args[3].u.tensor,
        core__arg_tensor(args, 4), infer.results[0].dtype, &tensor));
    core__result_tensor(result, tensor);
    return CORE_OK;
}

static core_status emulate(core_call *call, const core_value *args,
                           uint32_t nargs, core_value *results,
                           uint32_t nresults)
{
    core_status status;

    if (call->op->id == CORE_OP_STOCHASTIC_ROUND)
        return stochastic_round(args, &results[0]);
    if (call->op->id == CORE_OP_SCALED_MM)
        return product(call, args, nargs, &results[0]);
    if (call->op->id == CORE_OP_COPY_)
        status = copy(call, args, nargs);
    else
        status = fill(call, args, nargs);
    if (status == CORE_OK && nresults > 0) {
        core__tensor_retain(args[0].u.tensor);
        core__result_tensor(&results[0], args[0].u.tensor);
    }
    return status;
}

static bool is_emulated(const core_call *call, const core_value *args)
{
    if (args[0].tag != CORE_VALUE_TENSOR)
        return false;
    switch (call->op->id) {
    case CORE_OP_STOCHASTIC_ROUND:
    case CORE_OP_SCALED_MM:
        return true;
    case CORE_OP_FILL__SCALAR:
    case CORE_OP_ZERO_:
        return is_float8(args[0].u.tensor);
    case CORE_OP_COPY_:
        return args[1].tag == CORE_VALUE_TENSOR &&
               (is_float8(args[0].u.tensor) || is_float8(args[1].u.tensor));
    default:
        return false;
    }
}

core_status core__float8_fallback(core_call *call, const core_value *args,
                                  uint32_t nargs, core_value *results,
                                  uint32_t nresults)
{
    core_status status;
    bool before;

    if (nargs == 0 || !is_emulated(call, args))
        return CORE_ERROR_NO_KERNEL;
    before = core_grad_mode_set(false);
    status = emulate(call, args, nargs, results, nresults);
    core_grad_mode_set(before);
    return status;
}
