/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* LIBCORE_NAN_CHECK: checks the operands and results of operator calls for
 * NaN. */

#include "profiler/nan_check.h"

#include "base/error.h"
#include "base/settings.h"
#include "device/stream.h"
#include "dispatch/dispatch.h"
#include "dispatch/operator.h"
#include "dispatch/schema.h"
#include "ops/has_nan.h"
#include "tensor/dtype.h"

#include <libcore/ops.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static _Atomic bool checked;

bool core__nan_check_enabled(void)
{
    return atomic_load_explicit(&checked, memory_order_relaxed);
}

void core__nan_check_set(bool on)
{
    if (atomic_exchange(&checked, on) != on)
        core__dispatch_observe(on);
}

static bool leaves_unwritten(const core_operator *op)
{
    static const char *const names[] = {"empty", "empty_strided", "empty_like",
                                        "new_empty", "new_empty_strided"};
    const char *name = core__operator_name(op);

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return !(op->flags & CORE__OP_CUSTOM);
    return false;
}

/* Views, memory that was never written, and calls during a capture, which
 * must not wait, cannot be checked. */
static bool is_checked(const core_operator *op, core_device *device)
{
    return op->family != CORE__FAMILY_VIEW && !leaves_unwritten(op) && device &&
           (device->synchronous ||
            !atomic_load(&core__stream_current(device)->capture));
}

/* ---------------------------------------------------------------- values -- */

static core_tensor *const *tensors_of(const core_value *value, uint32_t *count)
{
    *count = value->tag == CORE_VALUE_TENSOR        ? value->u.tensor != NULL
             : value->tag == CORE_VALUE_TENSOR_LIST ? value->count
                                                    : 0;
    return value->tag == CORE_VALUE_TENSOR ? &value->u.tensor
                                           : value->u.tensors;
}

static core_status find_nan(const core_value *value, core_tensor **out_which)
{
    uint32_t count;
    core_tensor *const *tensors = tensors_of(value, &count);
    core_status status = CORE_OK;
    bool has = false;

    *out_which = NULL;
    for (uint32_t i = 0; i < count && !has && status == CORE_OK; i++) {
        if (tensors[i])
            status = core__tensor_has_nan(tensors[i], &has);
        if (has)
            *out_which = tensors[i];
    }
    if (status != CORE_OK)
        core__error_prefix("checking for NaN (LIBCORE_NAN_CHECK is set)");
    return status;
}

static bool number_is_nan(const core_value *value)
{
    if (value->tag == CORE_VALUE_FLOAT)
        return isnan(value->u.f);
    for (uint32_t i = 0;
         value->tag == CORE_VALUE_FLOAT_LIST && i < value->count; i++)
        if (isnan(value->u.floats[i]))
            return true;
    return false;
}

/* `changed`: bits of the arguments that are no longer operands. */
static core_status operands_have_nan(const core_value *args, uint32_t nargs,
                                     uint32_t changed, bool *out_came)
{
    core_tensor *which = NULL;

    *out_came = false;
    for (uint32_t i = 0; i < nargs && !which && !*out_came; i++) {
        *out_came = number_is_nan(&args[i]);
        if (!*out_came && (i >= 32 || !(changed >> i & 1)))
            CORE_TRY(find_nan(&args[i], &which));
    }
    *out_came |= which != NULL;
    return CORE_OK;
}

/* ------------------------------------------------------------- reporting -- */

static core_status report_nan(const core_operator *op,
                              const core_tensor *tensor)
{
    char shape[160] = "";
    size_t used = 0;

    for (uint32_t i = 0; i < tensor->ndim && used + 24 < sizeof shape; i++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%lld",
                                 i ? ", " : "", (long long)tensor->sizes[i]);
    return core__error(CORE_ERROR_REFUSED,
                       "%s: the result, %s [%s] on \"%s\", contains NaN, but "
                       "no operand does (LIBCORE_NAN_CHECK is set)",
                       core__operator_name(op), core_dtype_name(tensor->dtype),
                       shape, tensor->device->name);
}

core_status core__nan_check_before(const core_operator *op,
                                   const core_value *args, uint32_t nargs,
                                   bool *out_spoilt)
{
    /* A built-in operator only writes an out tensor. */
    bool reads =
        op->variant == CORE__VARIANT_INPLACE || op->flags & CORE__OP_CUSTOM;
    uint32_t changed = reads ? core__operator_changed_arguments(op, nargs) : 0;
    core_tensor *which = NULL;

    *out_spoilt = false;
    for (uint32_t i = 0; i < nargs && i < 32 && !which; i++) {
        uint32_t count;
        core_tensor *const *tensors = tensors_of(&args[i], &count);

        if (changed >> i & 1 && count > 0 && tensors[0] &&
            is_checked(op, tensors[0]->device))
            CORE_TRY(find_nan(&args[i], &which));
    }
    *out_spoilt = which != NULL;
    return CORE_OK;
}

/* Checks what the call returned or changed. */
static core_status check_result(const core_operator *op,
                                const core_value *given, const core_value *args,
                                uint32_t nargs, uint32_t changed)
{
    uint32_t count;
    core_tensor *const *tensors = tensors_of(given, &count);
    core_tensor *which = NULL;
    bool had_nan;

    if (count == 0 || !tensors[0] || !is_checked(op, tensors[0]->device))
        return CORE_OK;
    CORE_TRY(find_nan(given, &which));
    if (!which)
        return CORE_OK;
    CORE_TRY(operands_have_nan(args, nargs, changed, &had_nan));
    return had_nan ? CORE_OK : report_nan(op, which);
}

core_status core__nan_check_after(const core_operator *op,
                                  const core_value *args, uint32_t nargs,
                                  core_value *results, uint32_t nresults)
{
    uint32_t changed = core__operator_changed_arguments(op, nargs);
    core_status status = CORE_OK;

    for (uint32_t i = 0; i < nresults && status == CORE_OK; i++)
        status = check_result(op, &results[i], args, nargs, changed);
    for (uint32_t i = 0; i < nargs && i < 32 && status == CORE_OK; i++)
        if (changed >> i & 1)
            status = check_result(op, &args[i], args, nargs, changed);
    for (uint32_t i = 0; status != CORE_OK && i < nresults; i++) {
        core_value_release(&results[i]);
        results[i] = (core_value){0};
    }
    return status;
}
