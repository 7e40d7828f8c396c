/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Checks a tensor for NaN on behalf of anomaly mode and LIBCORE_NAN_CHECK. */

#include "ops/has_nan.h"

#include "base/thread.h"
#include "base/keys.h"
#include "tensor/dtype.h"

#include <libcore/ops.h>

static core_status find_nan(core_tensor *tensor, bool *out_has)
{
    core_tensor *mask = NULL, *any = NULL;
    core_scalar has_nan = {0};
    core_status status = core_isnan(tensor, &mask);

    if (status == CORE_OK)
        status = core_any(mask, &any);
    if (status == CORE_OK)
        status = core_item(any, &has_nan);
    *out_has = status == CORE_OK && has_nan.u.i;
    core__tensor_release(any);
    core__tensor_release(mask);
    return status;
}

core_status core__tensor_has_nan(core_tensor *tensor, bool *out_has)
{
    core__thread *self = core__thread_self();
    uint64_t excluded = self->excluded;
    bool no_grad = self->no_grad;
    core_status status;

    *out_has = false;
    if (!core__dtype_is_floating(tensor->dtype) || tensor->numel == 0 ||
        core__tensor_is_meta(tensor))
        return CORE_OK;
    self->no_grad = true;
    self->excluded |= CORE__KEY_AUTOGRAD | CORE__KEY_AUTOCAST |
                      CORE__KEY_PROFILER | CORE__KEYS_MODE;
    status = find_nan(tensor, out_has);
    self->no_grad = no_grad;
    self->excluded = excluded;
    return status;
}
