/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What libcore lacks is computed on the CPU, and counted. */

#include "shim.h"

#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <atomic>
#include <mutex>

namespace libcore_torch
{

static std::mutex lock;
static std::map<std::string, uint64_t> counts;
static std::atomic<bool> allowed{true};

std::map<std::string, uint64_t> fallback_counts()
{
    std::lock_guard<std::mutex> guard(lock);

    return counts;
}

void reset_fallback_counts()
{
    std::lock_guard<std::mutex> guard(lock);

    counts.clear();
}

void allow_fallback(bool value)
{
    allowed = value;
}

static void check_device(const c10::OperatorName &name, const c10::IValue &out)
{
    TORCH_CHECK(!out.isTensor() || !out.toTensor().defined() ||
                    out.toTensor().device().type() == device_type,
                name,
                ": expected all tensors to be on the same device, but one that "
                "is written is on ",
                out.toTensor().device(), " and others are on ", device_type);
}

/* The CPU's results are copied to tensors of a device only. */
static void check_written(const c10::OperatorHandle &op,
                          c10::ArrayRef<c10::IValue> arguments)
{
    const std::vector<c10::Argument> &known = op.schema().arguments();

    for (size_t i = 0; i < known.size(); i++) {
        if (!known[i].alias_info() || !known[i].alias_info()->isWrite())
            continue;
        if (!arguments[i].isTensorList()) {
            check_device(op.operator_name(), arguments[i]);
            continue;
        }
        for (const at::Tensor &one : arguments[i].toTensorList())
            check_device(op.operator_name(), one);
    }
}

void fall_back(const c10::OperatorHandle &op, torch::jit::Stack *stack)
{
    std::string name = c10::toString(op.operator_name());

    TORCH_CHECK_NOT_IMPLEMENTED(
        allowed, name,
        ": libcore does not have it, and libcore_torch.allow_fallback(False) "
        "was called");
    check_written(op, torch::jit::last(*stack, op.schema().arguments().size()));
    at::native::cpu_fallback(op, stack);
    std::lock_guard<std::mutex> guard(lock);
    counts[name]++;
}

/* ------------------------------------------------ tensors of other kinds -- */

static void refuse(const char *kind, const c10::OperatorHandle &op)
{
    TORCH_CHECK_NOT_IMPLEMENTED(false, op.operator_name(),
                                ": libcore does not support ", kind,
                                " tensors");
}

static void refuse_sparse(const c10::OperatorHandle &op, torch::jit::Stack *)
{
    refuse("sparse", op);
}

static void refuse_quantized(const c10::OperatorHandle &op, torch::jit::Stack *)
{
    refuse("quantized", op);
}

static void refuse_nested(const c10::OperatorHandle &op, torch::jit::Stack *)
{
    refuse("nested", op);
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m)
{
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_sparse>());
}

TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m)
{
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_sparse>());
}

TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m)
{
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_quantized>());
}

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m)
{
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_nested>());
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m)
{
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

} // namespace libcore_torch
