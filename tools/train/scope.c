/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "scope.h"

/* result: a pointer, because it is set while the arguments are evaluated. */
static core_tensor *keep(train_scope *s, core_status status,
                         core_tensor *const *result)
{
    core_tensor *tensor = *result;

    s->status = status;
    if (status != CORE_OK)
        return NULL;
    if (s->count == TRAIN_SCOPE) {
        core_tensor_release(tensor);
        s->status = train_error(CORE_ERROR_INTERNAL,
                                "a part of a model has more than %d steps",
                                TRAIN_SCOPE);
        return NULL;
    }
    s->kept[s->count++] = tensor;
    return tensor;
}

core_status train_scope_end(train_scope *s, core_tensor *result,
                            core_tensor **out_result)
{
    *out_result = s->status == CORE_OK ? core_tensor_retain(result) : NULL;
    while (s->count > 0)
        core_tensor_release(s->kept[--s->count]);
    return s->status;
}

core_tensor *train_to(train_scope *s, core_tensor *x, core_device *device)
{
    core_tensor *y = NULL;

    if (s->status != CORE_OK || core_tensor_device(x) == device)
        return x;
    return keep(s, core_to(x, CORE_DTYPE_NONE, device, false, false, -1, &y),
                &y);
}

/* Moves x to the weight's device. */
static core_tensor *beside(train_scope *s, core_tensor *x, core_tensor *weight)
{
    return train_to(s, x, core_tensor_device(weight));
}

core_tensor *train_linear(train_scope *s, core_tensor *x, core_tensor *weight,
                          core_tensor *bias)
{
    core_tensor *y = NULL;

    x = beside(s, x, weight);
    if (s->status != CORE_OK)
        return NULL;
    if (s->model && s->model->fp8)
        return keep(s, train_fp8_linear(s->model, x, weight, bias, &y), &y);
    return keep(s, core_linear(x, weight, bias, &y), &y);
}

core_tensor *train_relu(train_scope *s, core_tensor *x)
{
    core_tensor *y = NULL;

    return s->status == CORE_OK ? keep(s, core_relu(x, &y), &y) : NULL;
}

core_tensor *train_gelu(train_scope *s, core_tensor *x)
{
    core_tensor *y = NULL;

    return s->status == CORE_OK ? keep(s, core_gelu(x, "none", &y), &y) : NULL;
}

core_tensor *train_add(train_scope *s, core_tensor *x, core_tensor *y)
{
    core_tensor *z = NULL;

    if (s->status == CORE_OK)
        x = train_to(s, x, core_tensor_device(y));
    return s->status == CORE_OK ? keep(s, core_add(x, y, core_int(1), &z), &z)
                                : NULL;
}

core_tensor *train_dropout(train_scope *s, core_tensor *x, double p,
                           bool training)
{
    core_tensor *y = NULL;

    if (!training || p == 0)
        return x;
    return s->status == CORE_OK ? keep(s, core_dropout(x, p, true, &y), &y)
                                : NULL;
}

core_tensor *train_conv(train_scope *s, core_tensor *x, core_tensor *weight,
                        core_tensor *bias)
{
    const int64_t one[2] = {1, 1};
    core_tensor *y = NULL;

    x = beside(s, x, weight);
    return s->status == CORE_OK ? keep(s,
                                       core_conv2d(x, weight, bias, one, 2, one,
                                                   2, one, 2, 1, &y),
                                       &y)
                                : NULL;
}

core_tensor *train_pool(train_scope *s, core_tensor *x)
{
    const int64_t none[2] = {0, 0}, one[2] = {1, 1}, two[2] = {2, 2};
    core_tensor *y = NULL;

    return s->status == CORE_OK ? keep(s,
                                       core_max_pool2d(x, two, 2, two, 2, none,
                                                       2, one, 2, false, &y),
                                       &y)
                                : NULL;
}

core_tensor *train_reshape(train_scope *s, core_tensor *x, const int64_t *sizes,
                           size_t ndim)
{
    core_tensor *y = NULL;

    return s->status == CORE_OK ? keep(s, core_reshape(x, sizes, ndim, &y), &y)
                                : NULL;
}

core_tensor *train_permute(train_scope *s, core_tensor *x,
                           const int64_t *dimensions, size_t ndim)
{
    core_tensor *y = NULL;

    return s->status == CORE_OK
               ? keep(s, core_permute(x, dimensions, ndim, &y), &y)
               : NULL;
}

core_tensor *train_select(train_scope *s, core_tensor *x, int64_t dimension,
                          int64_t index)
{
    core_tensor *y = NULL;

    return s->status == CORE_OK
               ? keep(s, core_select(x, dimension, index, &y), &y)
               : NULL;
}

core_tensor *train_narrow(train_scope *s, core_tensor *x, int64_t dimension,
                          int64_t first, int64_t count)
{
    core_tensor *y = NULL;

    return s->status == CORE_OK
               ? keep(s, core_narrow(x, dimension, first, count, &y), &y)
               : NULL;
}

core_tensor *train_embed(train_scope *s, core_tensor *table,
                         core_tensor *numbers)
{
    core_tensor *y = NULL;

    numbers = beside(s, numbers, table);
    return s->status == CORE_OK
               ? keep(s, core_embedding(table, numbers, -1, false, false, &y),
                      &y)
               : NULL;
}

core_tensor *train_norm(train_scope *s, core_tensor *x, core_tensor *weight,
                        core_tensor *bias)
{
    core_tensor *y = NULL;

    x = beside(s, x, weight);
    return s->status == CORE_OK
               ? keep(s,
                      core_layer_norm(x, core_tensor_sizes(weight), 1, weight,
                                      bias, 1e-5, &y),
                      &y)
               : NULL;
}

core_tensor *train_attend(train_scope *s, core_tensor *query, core_tensor *key,
                          core_tensor *value, double dropout)
{
    core_tensor *y = NULL;

    return s->status == CORE_OK
               ? keep(s,
                      core_scaled_dot_product_attention(query, key, value, NULL,
                                                        dropout, true, NULL,
                                                        false, &y),
                      &y)
               : NULL;
}
