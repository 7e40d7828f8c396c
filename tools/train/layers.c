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

core_tensor *train_layer(core_module *layer, core_tensor *x)
{
    return core_x_module(layer,
                         train_beside(x, core_module_tensor(layer, "weight")));
}

core_tensor *train_linear(const train_model *model, core_module *layer,
                          core_tensor *x)
{
    core_tensor *weight = core_module_tensor(layer, "weight"), *y = NULL;

    if (!model->fp8)
        return train_layer(layer, x);
    return core_scope_own(
        train_fp8_linear(model, train_beside(x, weight), weight,
                         core_module_tensor(layer, "bias"), &y),
        &y);
}

core_tensor *train_dropout(core_tensor *x, double p, bool training)
{
    return training && p > 0 ? core_x_dropout(x, p, true) : x;
}
