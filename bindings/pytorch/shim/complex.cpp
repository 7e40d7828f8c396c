/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Complex numbers made of real ones: libcore computes the parts. */

#include "shim.h"

#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/ScalarType.h>
#include <torch/library.h>

namespace libcore_torch
{

static void check_parts(const char *name, const at::Tensor &first,
                        const at::Tensor &second, const at::Tensor &out)
{
    for (const at::Tensor &other : {second, out})
        TORCH_CHECK(other.device() == first.device(),
                    "Expected all tensors to be on the same device, but found "
                    "at least two devices, ",
                    first.device(), " and ", other.device(), "!");
    TORCH_CHECK(first.is_floating_point() &&
                    first.scalar_type() == second.scalar_type(),
                name, ": expected two tensors of one floating dtype, found ",
                first.scalar_type(), " and ", second.scalar_type());
    TORCH_CHECK(out.scalar_type() == c10::toComplexType(first.scalar_type()),
                name, ": expected out to be ",
                c10::toComplexType(first.scalar_type()), ", found ",
                out.scalar_type());
}

static at::Tensor &set_parts(const at::Tensor &real, const at::Tensor &imag,
                             at::Tensor &out)
{
    at::native::resize_output(out, at::infer_size(real.sizes(), imag.sizes()));
    at::Tensor parts = at::view_as_real(out);
    parts.select(-1, 0).copy_(real);
    parts.select(-1, 1).copy_(imag);
    return out;
}

static at::Tensor &complex_out(const at::Tensor &real, const at::Tensor &imag,
                               at::Tensor &out)
{
    check_parts("complex", real, imag, out);
    return set_parts(real, imag, out);
}

static at::Tensor &polar_out(const at::Tensor &abs, const at::Tensor &angle,
                             at::Tensor &out)
{
    check_parts("polar", abs, angle, out);
    /* The factors of f16 are not rounded: what is copied to out is. */
    c10::ScalarType type = abs.scalar_type() == c10::ScalarType::Half
                               ? c10::ScalarType::Float
                               : abs.scalar_type();
    at::Tensor radius = abs.to(type), phase = angle.to(type);
    return set_parts(at::mul(radius, at::cos(phase)),
                     at::mul(radius, at::sin(phase)), out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m)
{
    m.impl("complex.out", complex_out);
    m.impl("polar.out", polar_out);
}

} // namespace libcore_torch
