/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "layers.h"

core_tensor *train_beside(core_tensor *x, const core_tensor *other)
{
    core_device *device = other ? core_tensor_device(other) : NULL;

    if (!x || !other || core_tensor_device(x) == device)
        return x;
    return core_x_to(x, CORE_DTYPE_NONE, device);
}

core_tensor *train_linear(const train_model *model, core_tensor *x,
                          core_tensor *weight, core_tensor *bias)
{
    core_tensor *y = NULL;

    x = train_beside(x, weight);
    if (!model->fp8)
        return core_x_linear(x, weight, bias);
    return core_scope_own(train_fp8_linear(model, x, weight, bias, &y), &y);
}

core_tensor *train_norm(core_tensor *x, core_tensor *weight, core_tensor *bias)
{
    return core_x_layer_norm(train_beside(x, weight),
                             CORE_SIZES(core_x_size(weight, 0)), weight, bias);
}

core_tensor *train_dropout(core_tensor *x, double p, bool training)
{
    return training && p > 0 ? core_x_dropout(x, p, true) : x;
}
