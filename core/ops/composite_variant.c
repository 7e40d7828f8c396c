/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The in-place and out variants of operators that have a function instead of a
 * kernel. */

#include "base/memory.h"
#include "device/device.h"
#include "dispatch/dispatch.h"
#include "dispatch/structured.h"
#include "ops/expression.h"
#include "ops/infer.h"

#include <math.h>
#include <string.h>

/* The position of the argument that result i is written to. */
static uint32_t position_of(const core_operator *op, const core_operator *base,
                            uint32_t nargs, uint32_t i)
{
    return op->variant == CORE__VARIANT_INPLACE ? i
                                                : nargs - base->nresults + i;
}

static core_status variant_write(core_operator *op, uint32_t position,
                                 core_tensor *target, core_tensor *value)
{
    if (op->variant == CORE__VARIANT_OUT)
        CORE_TRY(core__out_resize(op, position, target, value->dtype,
                                  value->ndim, value->sizes));
    else if (core__dtype_category(target->dtype) <
             core__dtype_category(value->dtype))
        return core__op_error(
            CORE_ERROR_DTYPE, op,
            "the result has dtype %s, which a tensor of dtype %s cannot hold",
            core__dtype_name(value->dtype), core__dtype_name(target->dtype));
    return core_copy_(target, value, false);
}

/* Whether autograd records a call that changes self in place. */
static bool needs_copies(const core_operator *op, const core_value *args,
                         uint32_t nargs)
{
    const core__thread *thread = core__thread_self();
    bool records = false;

    if (op->variant != CORE__VARIANT_INPLACE || thread->no_grad ||
        thread->excluded & CORE__KEY_AUTOGRAD ||
        args[0].tag != CORE_VALUE_TENSOR)
        return false;
    for (uint32_t i = 0; i < nargs; i++) {
        if (args[i].tag == CORE_VALUE_TENSOR)
            records = records || core__tensor_requires_grad(args[i].u.tensor);
        if (args[i].tag != CORE_VALUE_TENSOR_LIST)
            continue;
        for (uint32_t k = 0; k < args[i].count; k++)
            records =
                records || (args[i].u.tensors[k] &&
                            core__tensor_requires_grad(args[i].u.tensors[k]));
    }
    return records;
}

/* Calls the functional operator.  It saves arguments whose content is about to
 * change: where autograd records, it gets copies of self and of what shares
 * its storage. */
static core_status variant_call(const core_operator *op, core_operator *base,
                                const core_value *args, core_value *values)
{
    core_tensor *copies[32] = {NULL};
    core_value own[32];
    core_status status = CORE_OK;

    if (!needs_copies(op, args, base->nargs))
        return core_op_invoke_on(base, args, base->nargs, values,
                                 base->nresults);
    memcpy(own, args, base->nargs * sizeof *own);
    for (uint32_t i = 0; status == CORE_OK && i < base->nargs; i++) {
        if (args[i].tag != CORE_VALUE_TENSOR ||
            args[i].u.tensor->storage != args[0].u.tensor->storage)
            continue;
        status = core_clone(args[i].u.tensor, -1, &copies[i]);
        own[i].u.tensor = copies[i];
    }
    if (status == CORE_OK)
        status =
            core_op_invoke_on(base, own, base->nargs, values, base->nresults);
    for (uint32_t i = 0; i < base->nargs; i++)
        core__tensor_release(copies[i]);
    return status;
}

/* --------------------------------------------------- checks before work -- */

/* The arguments of a call with tensors of the device "meta" in their place,
 * which have no elements to compute. */
typedef struct meta_call {
    core_value values[32];
    core_tensor **tensors; /* owned; the lists point into it */
    uint32_t count;
} meta_call;

static core_status meta_like(meta_call *m, core_tensor *tensor,
                             core_device *meta, core_tensor **out)
{
    *out = NULL;
    if (!tensor)
        return CORE_OK;
    CORE_TRY(core__tensor_new(meta, tensor->dtype, tensor->ndim, tensor->sizes,
                              tensor->strides, out));
    m->tensors[m->count++] = *out;
    return CORE_OK;
}

static core_status meta_arguments(meta_call *m, const core_value *args,
                                  uint32_t nargs, core_tensor **lists)
{
    core_device *meta;

    CORE_TRY(core_device_find("meta", &meta));
    for (uint32_t i = 0; i < nargs; i++) {
        core_value *value = &m->values[i];

        *value = args[i];
        if (value->tag == CORE_VALUE_TENSOR)
            CORE_TRY(meta_like(m, args[i].u.tensor, meta, &value->u.tensor));
        if (value->tag != CORE_VALUE_TENSOR_LIST)
            continue;
        for (uint32_t k = 0; k < value->count; k++)
            CORE_TRY(meta_like(m, args[i].u.tensors[k], meta, &lists[k]));
        value->u.tensors = lists;
        lists += value->count;
    }
    return CORE_OK;
}

/* With fewer elements a call that fails late has computed little. */
enum { FEW_ELEMENTS = 1 << 22 };

/* a b, or FEW_ELEMENTS if that is less; both are at least 1. */
static int64_t capped_product(int64_t a, int64_t b)
{
    return a > FEW_ELEMENTS / b ? FEW_ELEMENTS : a * b;
}

/* The product of the numbers that may be sizes, or FEW_ELEMENTS. */
static int64_t sizes_given(const core_operator *op, const core_value *args,
                           uint32_t nargs)
{
    int64_t product = 1;

    for (uint32_t i = 0; i < nargs; i++) {
        const int64_t *sizes = &args[i].u.i;
        size_t count = 1;

        if (args[i].tag == CORE_VALUE_INT_LIST)
            sizes = core__ints_of(&args[i], &count);
        else if (args[i].tag != CORE_VALUE_INT || op->numbers >> i & 1)
            continue;
        for (size_t k = 0; k < count; k++)
            if (sizes[k] > 1)
                product = capped_product(product, sizes[k]);
    }
    return product;
}

/* The product of the numbers of elements of all tensors, which no outer product
 * exceeds, or FEW_ELEMENTS. */
static int64_t elements_given(const core_value *args, uint32_t nargs)
{
    int64_t product = 1;

    for (uint32_t i = 0; i < nargs; i++) {
        bool list = args[i].tag == CORE_VALUE_TENSOR_LIST;
        core_tensor *const *tensors =
            list ? args[i].u.tensors : &args[i].u.tensor;
        uint32_t n = list ? args[i].count : args[i].tag == CORE_VALUE_TENSOR;

        for (uint32_t k = 0; k < n; k++)
            if (tensors[k] && tensors[k]->numel > 1)
                product = capped_product(product, tensors[k]->numel);
    }
    return product;
}

static uint32_t tensors_given(const core_value *args, uint32_t nargs)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < nargs; i++)
        if (args[i].tag == CORE_VALUE_TENSOR_LIST)
            count += args[i].count;
        else
            count += args[i].tag == CORE_VALUE_TENSOR;
    return count;
}

/* Whether some target may not fit: an empty out tensor takes any sizes, and on
 * "meta" the call itself computes nothing. */
static bool may_not_fit(const core_operator *op, const core_operator *base,
                        const core_value *args, uint32_t nargs)
{
    for (uint32_t i = 0; i < base->nresults; i++) {
        const core_tensor *target =
            args[position_of(op, base, nargs, i)].u.tensor;

        if (core__tensor_is_meta(target))
            return false;
        if (op->variant == CORE__VARIANT_INPLACE || target->numel > 0)
            return true;
    }
    return false;
}

/* Runs the variant with tensors of "meta".  Fails only if the targets do not fit:
 * if the result cannot be inferred, the call itself reports why. */
static core_status meta_run(core_operator *op, meta_call *m, uint32_t nargs)
{
    core_operator *base = &core__operators[op->data->base];
    core_value made[CORE__RESULTS_MAX] = {0};
    core_status status = CORE_OK;

    if (core_op_invoke_on(base, m->values, base->nargs, made, base->nresults) !=
        CORE_OK)
        return CORE_OK;
    for (uint32_t i = 0; status == CORE_OK && i < base->nresults; i++) {
        uint32_t position = position_of(op, base, nargs, i);
        core_tensor *target = m->values[position].u.tensor;

        if (made[i].tag == CORE_VALUE_TENSOR && made[i].u.tensor != target)
            status = variant_write(op, position, target, made[i].u.tensor);
    }
    for (uint32_t i = 0; i < base->nresults; i++)
        core_value_release(&made[i]);
    return status;
}

/* The layers that observe calls do not see the check, nor does it change the
 * caller's error record. */
static core_status check_on_meta(core_operator *op, const core_value *args,
                                 uint32_t nargs)
{
    core__thread *self = core__thread_self();
    uint32_t count = tensors_given(args, nargs);
    uint32_t excluded = self->excluded;
    core__error_record earlier;
    meta_call m = {.count = 0};
    core_status status;

    m.tensors = core__alloc(2 * count * sizeof *m.tensors);
    if (!m.tensors)
        return core__error_memory(2 * count * sizeof *m.tensors);
    core__error_save(&earlier);
    self->excluded |= CORE__KEY_TRACE | CORE__KEY_PROFILER |
                      CORE__KEY_AUTOGRAD | CORE__KEYS_MODE;
    status = meta_arguments(&m, args, nargs, m.tensors + count);
    if (status == CORE_OK)
        status = meta_run(op, &m, nargs);
    self->excluded = excluded;
    while (m.count > 0)
        core__tensor_release(m.tensors[--m.count]);
    core__free(m.tensors);
    return core__error_restore_on_success(&earlier, status);
}

/* Checks that the result fits the targets, before a long computation of it. */
static core_status check_first(core_operator *op, const core_value *args,
                               uint32_t nargs)
{
    const core_operator *base = core__operator_base(op);

    if (capped_product(elements_given(args, base->nargs),
                       sizes_given(base, args, base->nargs)) < FEW_ELEMENTS ||
        !may_not_fit(op, base, args, nargs))
        return CORE_OK;
    return check_on_meta(op, args, nargs);
}

/* ------------------------------------------------------------- the calls -- */

/* Checks all targets before one is resized. */
static core_status check_targets(const core_operator *op,
                                 const core_operator *base,
                                 const core_value *args, uint32_t nargs,
                                 const core_value *values)
{
    for (uint32_t i = 0; i < base->nresults; i++) {
        uint32_t position = position_of(op, base, nargs, i);
        const core_tensor *value = values[i].u.tensor;

        if (values[i].tag != CORE_VALUE_TENSOR)
            continue; /* not requested */
        CORE_TRY(core__out_check_shape(op, position, args[position].u.tensor,
                                       value->dtype, value->ndim,
                                       value->sizes));
    }
    return CORE_OK;
}

/* Calls the functional operator, then copies its result into the tensor to be
 * changed; autograd records both. */
core_status core__op_variant(core_call *call, const core_value *args,
                             uint32_t nargs, core_value *results,
                             uint32_t nresults)
{
    core_operator *op = call->op;
    core_operator *base = &core__operators[op->data->base];
    core_value values[CORE__RESULTS_MAX] = {0};
    core_status status;

    CORE_TRY(core__overlap_check(op, args, nargs));
    CORE_TRY(check_first(op, args, nargs));
    status = variant_call(op, base, args, values);
    if (status == CORE_OK && op->variant == CORE__VARIANT_OUT)
        status = check_targets(op, base, args, nargs, values);
    for (uint32_t i = 0; status == CORE_OK && i < base->nresults; i++) {
        uint32_t position = position_of(op, base, nargs, i);
        core_tensor *target = args[position].u.tensor;

        if (values[i].tag == CORE_VALUE_TENSOR && values[i].u.tensor != target)
            status = variant_write(op, position, target, values[i].u.tensor);
        if (status == CORE_OK && i < nresults) {
            core__tensor_retain(target);
            core__result_tensor(&results[i], target);
        }
    }
    for (uint32_t i = 0; i < base->nresults; i++)
        core_value_release(&values[i]);
    return status;
}

/* The arguments of the functional operator: dtype, layout and device of the new
 * tensor are those of the given one. */
static void given_args(const core_operator *op, const core_value *args,
                       const core_tensor *out, core_value *own)
{
    const core_operator *base = core__operator_base(op);
    uint32_t at = op->data->dtype;

    memcpy(own, args, at * sizeof *own);
    own[at] = core_pack_dtype(out->dtype);
    own[at + 1] = core_pack_none();
    own[at + 2] = core_pack_device(out->device);
    own[at + 3] = core_pack_none();
    memcpy(own + at + 4, args + at, (base->nargs - at - 4) * sizeof *own);
}

/* Whether a factory with these arguments may make many elements.  Numbers are
 * sizes, or ends and steps of ranges. */
static bool may_make_many(const core_operator *base, const core_value *own)
{
    int64_t elements = sizes_given(base, own, base->nargs);

    for (uint32_t i = 0; i < base->nargs; i++) {
        double size = 1;

        if (own[i].tag == CORE_VALUE_FLOAT)
            size = fabs(own[i].u.f);
        else if (own[i].tag == CORE_VALUE_INT && base->numbers >> i & 1)
            size = fabs((double)own[i].u.i);
        else if (own[i].tag == CORE_VALUE_TENSOR)
            size = (double)own[i].u.tensor->numel;
        if (size > 0 && size < 1)
            size = 1 / size;
        if (size > 1)
            elements = size < FEW_ELEMENTS
                           ? capped_product(elements, (int64_t)ceil(size))
                           : FEW_ELEMENTS;
    }
    return elements >= FEW_ELEMENTS;
}

/* Makes the tensor on the device "meta": its sizes, without elements. */
static core_status made_on_meta(core_operator *base, core_value *own,
                                uint32_t device_at, core_value *out_made)
{
    core__thread *self = core__thread_self();
    uint32_t excluded = self->excluded;
    core_value kept = own[device_at];
    core_device *meta;
    core_status status;

    *out_made = core_pack_none();
    CORE_TRY(core_device_find("meta", &meta));
    own[device_at] = core_pack_device(meta);
    self->excluded |= CORE__KEY_TRACE | CORE__KEY_PROFILER | CORE__KEYS_MODE;
    status = core_op_invoke_on(base, own, base->nargs, out_made, 1);
    self->excluded = excluded;
    own[device_at] = kept;
    return status;
}

/* Checks that the given tensor has the sizes of the new one, or resizes it to
 * them. */
static core_status fit_given(core_operator *op, uint32_t position,
                             core_tensor *out, core_value *own, bool resize)
{
    core_value made;
    core_status status;

    status = made_on_meta(&core__operators[op->data->base], own,
                          op->data->dtype + 2u, &made);
    if (status == CORE_OK && resize)
        status = core__out_resize(op, position, out, out->dtype,
                                  made.u.tensor->ndim, made.u.tensor->sizes);
    else if (status == CORE_OK)
        status =
            core__out_check_shape(op, position, out, out->dtype,
                                  made.u.tensor->ndim, made.u.tensor->sizes);
    core_value_release(&made);
    return status;
}

/* The out variant of factories: the new tensor is copied into the given one. */
CORE__OP(given_variant)
{
    core_operator *op = call->op;
    core_operator *base = &core__operators[op->data->base];
    core_tensor *out = args[nargs - 1].u.tensor;
    /* The content is undefined, so only the sizes matter. */
    bool empty = strstr(base->data->name, "empty") != NULL;
    core_value own[32];
    core_value made = {0};
    core_status status = CORE_OK;

    CORE_TRY(core__overlap_check(op, args, nargs));
    given_args(op, args, out, own);
    if (empty || (out->numel > 0 && may_make_many(base, own)))
        CORE_TRY(fit_given(op, nargs - 1, out, own, empty));
    if (!empty) {
        CORE_TRY(core_op_invoke_on(base, own, base->nargs, &made, 1));
        status = variant_write(op, nargs - 1, out, made.u.tensor);
        core_value_release(&made);
    }
    if (status == CORE_OK && nresults > 0) {
        core__tensor_retain(out);
        core__result_tensor(&results[0], out);
    }
    return status;
}
