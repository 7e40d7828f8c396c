/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "value_groups.h"

#include <math.h>
#include <string.h>

const double value_groups[VALUE_GROUPS][VALUE_GROUP] = {
    {0, 1, -1, .5, -.5, 0x1p-10, -0x1p-10, 1.5, -1.5, 2, -2, 2.75, -2.75, 3, -3,
     4, -4},
    {0, 5, -5, 6, -6, 7.5, -7.5, 10, -10, 15, -15, 21, -21, 50, -50, 80, -80},
    {(double)NAN, (double)INFINITY, -(double)INFINITY, 0, -0.0, 1, -1, .5, -.5,
     2, -2, 4, -4, 1.5, -1.5, 3, -3},
};

static const char *const operators[] = {
    "acos",
    "acosh",
    "add.Tensor",
    "addcdiv",
    "addcmul",
    "angle",
    "asin",
    "asinh",
    "atanh",
    "clamp",
    "clamp.Tensor",
    "clamp_max.Tensor",
    "clamp_min.Tensor",
    "cos",
    "cosh",
    "deg2rad",
    "digamma",
    "div.Tensor_mode",
    "elu",
    "elu_backward",
    "erfc",
    "erfinv",
    "floor_divide",
    "frac",
    "gelu",
    "gelu_backward",
    "hardshrink",
    "hardshrink_backward",
    "hardsigmoid",
    "hardsigmoid_backward",
    "hardswish",
    "hardswish_backward",
    "hardtanh",
    "hardtanh_backward",
    "heaviside",
    "i0",
    "leaky_relu",
    "leaky_relu_backward",
    "lerp.Scalar",
    "lerp.Tensor",
    "lgamma",
    "logaddexp",
    "logaddexp2",
    "logit",
    "logit_backward",
    "masked_fill.Scalar",
    "mish",
    "mish_backward",
    "nan_to_num",
    "rad2deg",
    "remainder.Tensor",
    "round.decimals",
    "rsub.Tensor",
    "sgn",
    "sigmoid_backward",
    "silu",
    "silu_backward",
    "sin",
    "sinc",
    "sinh",
    "softplus",
    "softplus_backward",
    "softshrink",
    "softshrink_backward",
    "sub.Tensor",
    "tan",
    "tanh_backward",
    "threshold",
    "threshold_backward",
    "xlogy.Tensor",
};

bool value_groups_serve(const char *op)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (strcmp(operators[i], op) == 0)
            return true;
    return false;
}
