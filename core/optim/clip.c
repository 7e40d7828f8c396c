/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Clipping gradients by norm and by value.  Waits for a device only to check
 * that the norm is finite. */

#include "base/error.h"
#include "base/memory.h"

#include <libcore/autograd.h>
#include <libcore/ops.h>
#include <libcore/optim.h>

#include <math.h>

static core_status check_list(core_tensor *const *parameters, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!parameters[i])
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "clipping gradients: parameter %zu is NULL", i);
        if (!core_dtype_is_floating(core_tensor_dtype(parameters[i])))
            return core__error(
                CORE_ERROR_DTYPE,
                "clipping gradients: parameter %zu is %s; only floating "
                "tensors have gradients",
                i, core_dtype_name(core_tensor_dtype(parameters[i])));
    }
    return CORE_OK;
}

/* The norm of one gradient, in f32 or wider, on the device that combines the
 * norms. */
static core_status norm_of(core_tensor *grad, double order, core_device *device,
                           core_tensor **out_norm)
{
    core_dtype dtype = core_tensor_dtype(grad);
    core_tensor *here = NULL;
    core_status status;

    dtype = dtype == CORE_F64 ? CORE_F64 : CORE_F32;
    status = core_linalg_vector_norm(grad, core_float(order), NULL, 0, false,
                                     dtype, &here);
    if (status == CORE_OK && core_tensor_device(grad) == device) {
        *out_norm = here;
        return CORE_OK;
    }
    if (status == CORE_OK)
        status = core_to(here, dtype, device, false, false, -1, out_norm);
    core_tensor_release(here);
    return status;
}

/* The norm of all gradients as if they were one vector, to which empty ones add
 * nothing: of some orders they have no norm.  Of nothing at all it is 0. */
static core_status total_norm(core_tensor *const *grads, size_t count,
                              double order, core_tensor **out_norm)
{
    core_tensor **norms = core__alloc_zero(count * sizeof(core_tensor *));
    core_device *device = core_tensor_device(grads[0]);
    core_tensor *stacked = NULL;
    core_status status = CORE_OK;
    size_t full = 0;

    *out_norm = NULL;
    if (!norms)
        return core__error_memory(count * sizeof *norms);
    for (size_t i = 0; status == CORE_OK && i < count; i++)
        if (core_tensor_numel(grads[i]) > 0)
            status = norm_of(grads[i], order, device, &norms[full++]);
    if (status == CORE_OK && full > 0)
        status = core_stack(norms, full, 0, &stacked);
    else if (status == CORE_OK)
        status = core_zeros(NULL, 0, CORE_F32, device, out_norm);
    if (status == CORE_OK && stacked)
        status = core_linalg_vector_norm(stacked, core_float(order), NULL, 0,
                                         false, CORE_DTYPE_NONE, out_norm);
    core_tensor_release(stacked);
    for (size_t i = 0; i < full; i++)
        core_tensor_release(norms[i]);
    core__free(norms);
    return status;
}

/* grads *= min(1, largest / (norm + 1e-6)); the factor stays on its device. */
static core_status scale_all(core_tensor *const *grads, size_t count,
                             double largest, core_tensor *norm)
{
    const core_scalar one = core_float(1);
    core_tensor *sum = NULL, *factor = NULL, *clamped = NULL;
    core_device *device = core_tensor_device(norm);
    core_status status;

    status = core_add_scalar(norm, core_float(1e-6), core_int(1), &sum);
    if (status == CORE_OK)
        status = core_reciprocal(sum, &factor);
    if (status == CORE_OK)
        status = core_mul_scalar_(factor, core_float(largest));
    if (status == CORE_OK)
        status = core_clamp(factor, NULL, &one, &clamped);
    for (size_t i = 0; status == CORE_OK && i < count; i++) {
        core_tensor *there = NULL;

        if (core_tensor_device(grads[i]) == device) {
            status = core_mul_(grads[i], clamped);
            continue;
        }
        status = core_to(clamped, CORE_DTYPE_NONE, core_tensor_device(grads[i]),
                         false, false, -1, &there);
        if (status == CORE_OK)
            status = core_mul_(grads[i], there);
        core_tensor_release(there);
    }
    core_tensor_release(sum);
    core_tensor_release(factor);
    core_tensor_release(clamped);
    return status;
}

static core_status refuse_infinite(core_tensor *norm)
{
    double value;

    CORE_TRY(core_tensor_item_float(norm, &value));
    if (!isfinite(value))
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "clipping gradients: the norm is %g; it must be "
                           "finite, no gradient was changed",
                           value);
    return CORE_OK;
}

static core_status clip(core_tensor *const *grads, size_t count, double largest,
                        double order, bool refuse, core_tensor **out_norm)
{
    core_tensor *norm = NULL;
    core_status status;

    if (count > 0)
        status = total_norm(grads, count, order, &norm);
    else
        status =
            core_tensor_from_data(&(float){0}, CORE_F32, NULL, 0, NULL, &norm);
    if (status == CORE_OK && refuse)
        status = refuse_infinite(norm);
    if (status == CORE_OK && count > 0)
        status = scale_all(grads, count, largest, norm);
    if (status == CORE_OK && out_norm) {
        *out_norm = norm;
        norm = NULL;
    }
    core_tensor_release(norm);
    return status;
}

/* Collects the existing gradients, borrowed; the caller frees the array. */
static core_status collect(core_tensor *const *parameters, size_t count,
                           core_tensor ***out_grads, size_t *out_count)
{
    core_tensor **grads = core__alloc((count + 1) * sizeof *grads);

    *out_grads = grads;
    *out_count = 0;
    if (!grads)
        return core__error_memory((count + 1) * sizeof *grads);
    for (size_t i = 0; i < count; i++) {
        core_tensor *grad = core_tensor_grad(parameters[i]);

        if (grad)
            grads[(*out_count)++] = grad;
    }
    return CORE_OK;
}

core_status core_clip_grad_norm(core_tensor *const *parameters, size_t count,
                                double max_norm, double norm_type,
                                bool error_if_nonfinite, core_tensor **out_norm)
{
    core_tensor **grads = NULL;
    core_status status;
    size_t found;
    bool before;

    if (out_norm)
        *out_norm = NULL;
    if (count > 0)
        CORE__NOT_NULL(parameters);
    if (!(max_norm >= 0) || !(norm_type > 0))
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "clipping gradients: max_norm is %g and norm_type %g; max_norm "
            "must be 0 or more and norm_type above 0",
            max_norm, norm_type);
    CORE_TRY(check_list(parameters, count));
    CORE_TRY(collect(parameters, count, &grads, &found));
    before = core_grad_mode_set(false);
    status =
        clip(grads, found, max_norm, norm_type, error_if_nonfinite, out_norm);
    core_grad_mode_set(before);
    core__free(grads);
    return status;
}

core_status core_clip_grad_value(core_tensor *const *parameters, size_t count,
                                 double max_value)
{
    const core_scalar least = core_float(-max_value);
    const core_scalar most = core_float(max_value);
    core_tensor **grads = NULL;
    core_status status;
    size_t found;
    bool before;

    if (count > 0)
        CORE__NOT_NULL(parameters);
    if (!(max_value >= 0))
        return core__error(
            CORE_ERROR_INVALID_ARGUMENT,
            "clipping gradients: max_value is %g; it must be 0 or more",
            max_value);
    CORE_TRY(check_list(parameters, count));
    CORE_TRY(collect(parameters, count, &grads, &found));
    before = core_grad_mode_set(false);
    status = CORE_OK;
    for (size_t i = 0; status == CORE_OK && i < found; i++)
        status = core_clamp_(grads[i], &least, &most);
    core_grad_mode_set(before);
    core__free(grads);
    return status;
}
