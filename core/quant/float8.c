/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* core_float8_cast: conversion to float8 with optional saturation and
 * stochastic rounding. */

#include "base/error.h"
#include "quant/quantizer.h"

#include <libcore/autograd.h>
#include <libcore/float8.h>
#include <libcore/ops.h>

double core_float8_max(core_dtype dtype)
{
    return dtype == CORE_F8E4M3 ? 448 : dtype == CORE_F8E5M2 ? 57344 : 0;
}

/* Clamps to the dtype's largest numbers and rounds to the nearest. */
static core_status saturate(core_tensor *tensor, core_dtype dtype,
                            core_tensor **out_tensor)
{
    core_scalar least = core_float(-core_float8_max(dtype));
    core_scalar most = core_float(core_float8_max(dtype));
    core_tensor *within = NULL;
    core_status status = core_clamp(tensor, &least, &most, &within);

    if (status == CORE_OK)
        status = core_to_copy(within, dtype, NULL, false, -1, out_tensor);
    core_tensor_release(within);
    return status;
}

core_status core_float8_cast(core_tensor *tensor, core_dtype dtype,
                             uint32_t flags, core_generator *generator,
                             core_tensor **out_tensor)
{
    const uint32_t known = CORE_FLOAT8_SATURATE | CORE_FLOAT8_STOCHASTIC;
    core_status status;
    bool before;

    CORE__NOT_NULL(out_tensor);
    *out_tensor = NULL;
    CORE__NOT_NULL(tensor);
    if (flags & ~known)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_float8_cast: the flags are 0x%x; accepted: "
                           "CORE_FLOAT8_SATURATE and CORE_FLOAT8_STOCHASTIC",
                           flags);
    if (!core_float8_max(dtype) ||
        !core_dtype_is_floating(core_tensor_dtype(tensor)))
        return core__error(
            CORE_ERROR_DTYPE,
            "core_float8_cast: the dtypes are %s and %s; the cast must be from "
            "a floating dtype to f8e4m3 or f8e5m2",
            core_dtype_name(core_tensor_dtype(tensor)), core_dtype_name(dtype));
    before = core_grad_mode_set(false);
    if (flags & CORE_FLOAT8_STOCHASTIC)
        status = core_stochastic_round(
            tensor, dtype, flags & CORE_FLOAT8_SATURATE, generator, out_tensor);
    else if (flags & CORE_FLOAT8_SATURATE)
        status = saturate(tensor, dtype, out_tensor);
    else
        status = core_to_copy(tensor, dtype, NULL, false, -1, out_tensor);
    core_grad_mode_set(before);
    return status;
}
