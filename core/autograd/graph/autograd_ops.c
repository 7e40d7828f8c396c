/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Calls of the operators that autograd itself needs. */

#include "autograd/graph/autograd_ops.h"

#include "dispatch/dispatch.h"
#include "tensor/layout.h"

#include <string.h>

typedef enum which {
    ADD,
    ADD_TO,
    CLONE,
    COPY,
    CAST,
    SUM,
    VIEW,
    FILL,
    AS_STRIDED,
    AS_STRIDED_SCATTER,
    EMPTY_STRIDED,
    OPERATORS
} which;

static const char *const names[OPERATORS] = {
    [ADD] = "add.Tensor",
    [ADD_TO] = "add_.Tensor",
    [CLONE] = "clone",
    [COPY] = "copy_",
    [CAST] = "_to_copy",
    [SUM] = "sum.dim_IntList",
    [VIEW] = "view",
    [FILL] = "fill_.Scalar",
    [AS_STRIDED] = "as_strided",
    [AS_STRIDED_SCATTER] = "as_strided_scatter",
    [EMPTY_STRIDED] = "empty_strided",
};

static core_operator *_Atomic operators[OPERATORS];

static core_status find(which which, core_operator **out_op)
{
    *out_op = atomic_load_explicit(&operators[which], memory_order_acquire);
    if (core__likely(*out_op != NULL))
        return CORE_OK;
    *out_op = core__operator_find(names[which], strlen(names[which]));
    if (!*out_op)
        return core__error(
            CORE_ERROR_INTERNAL,
            "autograd needs the operator %s, which is not registered",
            names[which]);
    atomic_store_explicit(&operators[which], *out_op, memory_order_release);
    return CORE_OK;
}

static core_status call(which which, const core_value *args, uint32_t nargs,
                        core_tensor **out_tensor)
{
    core_value result = {0};
    core_operator *op;
    core_status status;

    *out_tensor = NULL;
    CORE_TRY(find(which, &op));
    status = core__call(op, args, nargs, &result, 1);
    if (status == CORE_OK)
        *out_tensor = result.u.tensor;
    return status;
}

/* for operators that change their first argument */
static core_status call_in_place(which which, const core_value *args,
                                 uint32_t nargs)
{
    core_operator *op;

    CORE_TRY(find(which, &op));
    return core__call(op, args, nargs, NULL, 0);
}

static core_value of_tensor(core_tensor *tensor)
{
    return (core_value){CORE_VALUE_TENSOR, 0, {.tensor = tensor}};
}

static core_value of_int(int64_t i)
{
    return (core_value){CORE_VALUE_INT, 0, {.i = i}};
}

static core_value of_bool(bool b)
{
    return (core_value){CORE_VALUE_BOOL, 0, {.i = b}};
}

static core_value of_ints(const int64_t *ints, uint32_t count)
{
    return (core_value){CORE_VALUE_INT_LIST, count, {.ints = ints}};
}

core_status core__autograd_op_add(core_tensor *a, core_tensor *b,
                                  core_tensor **out_tensor)
{
    core_value args[] = {of_tensor(a), of_tensor(b), of_int(1)};

    return call(ADD, args, 3, out_tensor);
}

core_status core__autograd_op_add_in_place(core_tensor *a, core_tensor *b)
{
    core_value args[] = {of_tensor(a), of_tensor(b), of_int(1)};

    return call_in_place(ADD_TO, args, 3);
}

core_status core__autograd_op_copy_in_place(core_tensor *a, core_tensor *b)
{
    core_value args[] = {of_tensor(a), of_tensor(b), of_bool(false)};

    return call_in_place(COPY, args, 3);
}

core_status core__autograd_op_clone(core_tensor *tensor,
                                    core_tensor **out_tensor)
{
    core_value args[] = {of_tensor(tensor), {0}};

    return call(CLONE, args, 2, out_tensor);
}

/* A tensor with undefined content; while a program is recorded, a result of the
 * program.  strides NULL: row-major. */
static core_status new_tensor(core_device *device, core_dtype dtype,
                              uint32_t ndim, const int64_t *sizes,
                              const int64_t *strides, core_tensor **out_tensor)
{
    int64_t row_major[CORE_MAX_NDIM];
    core_value args[6] = {of_ints(sizes, ndim)};

    if (core__likely(!core__thread_self()->trace))
        return core__tensor_new(device, dtype, ndim, sizes, strides,
                                out_tensor);
    if (!strides)
        core__layout_contiguous(ndim, sizes, row_major);
    args[1] = of_ints(strides ? strides : row_major, ndim);
    args[2] = (core_value){CORE_VALUE_DTYPE, 0, {.i = dtype}};
    args[4] = (core_value){CORE_VALUE_DEVICE, 0, {.device = device}};
    return call(EMPTY_STRIDED, args, 6, out_tensor);
}

core_status core__autograd_op_copy_strided(core_tensor *tensor,
                                           const int64_t *strides,
                                           core_tensor **out_tensor)
{
    core_tensor *copy;
    core_value args[] = {{0}, of_tensor(tensor), of_bool(false)};
    core_status status;

    *out_tensor = NULL;
    CORE_TRY(new_tensor(tensor->device, tensor->dtype, tensor->ndim,
                        tensor->sizes, strides, &copy));
    args[0] = of_tensor(copy);
    status = call_in_place(COPY, args, 3);
    if (status != CORE_OK) {
        core__tensor_release(copy);
        return status;
    }
    *out_tensor = copy;
    return CORE_OK;
}

core_status core__autograd_op_cast(core_tensor *tensor, core_dtype dtype,
                                   core_tensor **out_tensor)
{
    core_value args[7] = {of_tensor(tensor),
                          {CORE_VALUE_DTYPE, 0, {.i = dtype}}};

    args[5] = of_bool(false);
    return call(CAST, args, 7, out_tensor);
}

core_status core__autograd_op_to_device(core_tensor *tensor,
                                        core_device *device,
                                        core_tensor **out_tensor)
{
    core_value args[7] = {of_tensor(tensor)};

    args[3] = (core_value){CORE_VALUE_DEVICE, 0, {.device = device}};
    args[5] = of_bool(false);
    return call(CAST, args, 7, out_tensor);
}

static core_status view(core_tensor *tensor, uint32_t ndim,
                        const int64_t *sizes, core_tensor **out_tensor)
{
    core_value args[] = {of_tensor(tensor), of_ints(sizes, ndim)};

    return call(VIEW, args, 2, out_tensor);
}

core_status core__autograd_op_sum_to_size(core_tensor *tensor, uint32_t ndim,
                                          const int64_t *sizes,
                                          core_tensor **out_tensor)
{
    uint32_t lead = tensor->ndim - ndim;
    int64_t dims[CORE_MAX_NDIM];
    core_tensor *sum = NULL;
    core_status status;
    uint32_t count = 0;

    *out_tensor = NULL;
    for (uint32_t i = 0; i < tensor->ndim; i++)
        if (i < lead || sizes[i - lead] != tensor->sizes[i])
            dims[count++] = i;
    if (count) {
        core_value args[] = {
            of_tensor(tensor), of_ints(dims, count), of_bool(true), {0}};

        CORE_TRY(call(SUM, args, 4, &sum));
    } else {
        core__tensor_retain(tensor);
        sum = tensor;
    }
    if (lead == 0) {
        *out_tensor = sum;
        return CORE_OK;
    }
    /* The leading dimensions have size 1 now, so any layout can be viewed. */
    status = view(sum, ndim, sizes, out_tensor);
    core__tensor_release(sum);
    return status;
}

core_status core__autograd_op_full(core_device *device, core_dtype dtype,
                                   uint32_t ndim, const int64_t *sizes,
                                   double value, core_tensor **out_tensor)
{
    core_tensor *tensor;
    core_value args[] = {{0}, {CORE_VALUE_FLOAT, 0, {.f = value}}};
    core_status status;

    *out_tensor = NULL;
    CORE_TRY(new_tensor(device, dtype, ndim, sizes, NULL, &tensor));
    args[0] = of_tensor(tensor);
    status = call_in_place(FILL, args, 2);
    if (status != CORE_OK) {
        core__tensor_release(tensor);
        return status;
    }
    *out_tensor = tensor;
    return CORE_OK;
}

core_status core__autograd_op_as_strided(core_tensor *tensor, uint32_t ndim,
                                         const int64_t *sizes,
                                         const int64_t *strides, int64_t offset,
                                         core_tensor **out_tensor)
{
    core_value args[] = {of_tensor(tensor), of_ints(sizes, ndim),
                         of_ints(strides, ndim), of_int(offset)};

    return call(AS_STRIDED, args, 4, out_tensor);
}

core_status core__autograd_op_as_strided_scatter(
    core_tensor *tensor, core_tensor *source, uint32_t ndim,
    const int64_t *sizes, const int64_t *strides, int64_t offset,
    core_tensor **out_tensor)
{
    core_value args[] = {of_tensor(tensor), of_tensor(source),
                         of_ints(sizes, ndim), of_ints(strides, ndim),
                         of_int(offset)};

    return call(AS_STRIDED_SCATTER, args, 5, out_tensor);
}
