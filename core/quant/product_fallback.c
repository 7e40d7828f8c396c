/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Float8 matrix products for devices without a kernel for them. */

#include "base/keys.h"
#include "base/thread.h"
#include "quant/quantizer.h"

#include <libcore/ops.h>

/* a, b: f32. */
static core_status multiply(core_tensor *a, core_tensor *b, core_tensor *bias,
                            core_tensor **out_product)
{
    core_tensor *wide = NULL;
    core_status status;

    if (!bias)
        return core_mm(a, b, out_product);
    status = core_to(bias, CORE_F32, NULL, false, false, -1, &wide);
    if (status == CORE_OK)
        status =
            core_addmm(wide, a, b, core_float(1), core_float(1), out_product);
    core_tensor_release(wide);
    return status;
}

static core_status product(core_tensor *self, core_tensor *mat2,
                           core_tensor *scale_a, core_tensor *scale_b,
                           core_tensor *bias, core_dtype dtype,
                           core_tensor **out_tensor)
{
    core_tensor *a = NULL, *b = NULL, *product = NULL;
    core_status status = core_dequantize(self, scale_a, CORE_F32, &a);

    if (status == CORE_OK)
        status = core_dequantize(mat2, scale_b, CORE_F32, &b);
    if (status == CORE_OK)
        status = multiply(a, b, bias, &product);
    if (status == CORE_OK)
        status = core_to(product, dtype, NULL, false, false, -1, out_tensor);
    core_tensor_release(a);
    core_tensor_release(b);
    core_tensor_release(product);
    return status;
}

core_status core__float8_emulate_matmul(core_tensor *self, core_tensor *mat2,
                                        core_tensor *scale_a,
                                        core_tensor *scale_b, core_tensor *bias,
                                        core_dtype dtype,
                                        core_tensor **out_tensor)
{
    core__thread *thread = core__thread_self();
    uint32_t excluded = thread->excluded;
    core_status status;

    /* An autocast region would multiply in its own dtype. */
    thread->excluded |= CORE__KEY_AUTOCAST;
    status = product(self, mat2, scale_a, scale_b, bias, dtype, out_tensor);
    thread->excluded = excluded;
    return status;
}
