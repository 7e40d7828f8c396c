/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Products and quotients of numbers of 16 bits and one number.  torch computes
 * them in f32; libcore takes the number in the dtype of the tensor, of which 0.1
 * and 257 are up to 0.4 % away in bf16.  It does not round alpha, so this is
 * -0 - (-factor) self.  A quotient is the product with 1 / number in f32, where
 * torch divides in f32: they differ, by one unit of the result, where the
 * quotient is within two units of f32 of the middle between two results.
 *
 * torch's CPU takes the number in the dtype of the tensor, too, in sums and
 * differences, and where a product's first factor is the number. */

#include "plan.h"

#include <cmath>

namespace libcore_torch
{

Scaling scaling_of(const c10::FunctionSchema &schema)
{
    const std::string &name = schema.name();

    if (schema.overload_name() != "Tensor" &&
        schema.overload_name() != "Scalar" && schema.overload_name() != "out")
        return Scaling::none;
    if (name == "aten::mul" || name == "aten::mul_")
        return Scaling::product;
    return name == "aten::div" || name == "aten::div_" ? Scaling::quotient
                                                       : Scaling::none;
}

static bool is_halved(const c10::IValue &value)
{
    return value.isTensor() && value.toTensor().defined() &&
           value.toTensor().device().type() == device_type &&
           (value.toTensor().scalar_type() == c10::ScalarType::BFloat16 ||
            value.toTensor().scalar_type() == c10::ScalarType::Half);
}

/* Whether the number in a tensor leaves the result in the dtype of self. */
static bool keeps_dtype(const at::Tensor &tensor, const at::Tensor &self)
{
    if (tensor.is_complex())
        return false;
    return tensor.unsafeGetTensorImpl()->is_wrapped_number() ||
           !tensor.is_floating_point() || self.dim() > 0;
}

/* The number in an argument: one of Python's, or a tensor of the CPU without
 * dimensions, where that does not decide the result's dtype. */
static std::optional<double> number_in(const c10::IValue &value,
                                       const at::Tensor &self)
{
    if (value.isDouble())
        return value.toDouble();
    if (value.isInt())
        return static_cast<double>(value.toInt());
    if (!value.isTensor() || !value.toTensor().defined())
        return std::nullopt;
    const at::Tensor &tensor = value.toTensor();

    if (!tensor.is_cpu() || tensor.dim() > 0 || !keeps_dtype(tensor, self))
        return std::nullopt;
    return tensor.item<double>();
}

static bool is_rounded(double number, c10::ScalarType type)
{
    float single = static_cast<float>(number);

    return type == c10::ScalarType::Half
               ? static_cast<float>(c10::Half(single)) != single
               : static_cast<float>(c10::BFloat16(single)) != single;
}

/* The factor, if a product with it is more exact. */
static std::optional<double> factor_of(const Plan &plan,
                                       c10::ArrayRef<c10::IValue> arguments)
{
    if (!is_halved(arguments[0]))
        return std::nullopt;
    const at::Tensor &self = arguments[0].toTensor();
    auto number = number_in(arguments[1], self);

    if (!number || !std::isfinite(*number) ||
        !is_rounded(*number, self.scalar_type()))
        return std::nullopt;
    if (plan.scaling == Scaling::product)
        return std::fabs(*number) < 1e38 ? number : std::nullopt;
    double magnitude = std::fabs(*number);
    return magnitude > 1e-37 && magnitude < 1e37 ? std::optional(1 / *number)
                                                 : std::nullopt;
}

/* Where the result is to be written, or an undefined tensor; nothing if it is
 * to be converted or resized, too. */
static std::optional<at::Tensor> target_of(const Plan &plan,
                                           c10::ArrayRef<c10::IValue> arguments)
{
    const at::Tensor &self = arguments[0].toTensor();

    if (plan.written.empty())
        return at::Tensor();
    const at::Tensor &out = arguments[plan.written[0]].toTensor();
    if (out.device() != self.device() ||
        out.scalar_type() != self.scalar_type() || out.sizes() != self.sizes())
        return std::nullopt;
    return out;
}

/* An undefined tensor, if the device has no kernel for it. */
static at::Tensor scaled(const at::Tensor &self, double factor, at::Tensor out)
{
    core_tensor *from = import_tensor(self), *to = nullptr;
    uint64_t modes;
    core_status status;

    try {
        to = out.defined() ? import_tensor(out) : nullptr;
    } catch (...) {
        core_tensor_release(from);
        throw;
    }
    modes = core_inference_begin();
    status =
        to ? core_rsub_scalar_out(from, core_float(-0.0), core_float(-factor),
                                  to)
           : core_rsub_scalar(from, core_float(-0.0), core_float(-factor), &to);
    core_inference_end(modes);
    core_tensor_release(from);
    if (status == CORE_OK && !out.defined())
        return export_tensor(to);
    core_tensor_release(out.defined() ? to : nullptr);
    if (is_lacking(status))
        return at::Tensor();
    check(status);
    return out;
}

bool scale(const Plan &plan, torch::jit::Stack *stack)
{
    auto arguments = torch::jit::last(*stack, plan.arguments);
    auto factor = factor_of(plan, arguments);
    auto out = factor ? target_of(plan, arguments) : std::nullopt;

    if (!out)
        return false;
    at::Tensor result = scaled(arguments[0].toTensor(), *factor, *out);
    if (!result.defined())
        return false;
    torch::jit::drop(*stack, plan.arguments);
    stack->push_back(std::move(result));
    return true;
}

} // namespace libcore_torch
