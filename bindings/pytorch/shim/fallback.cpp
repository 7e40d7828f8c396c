/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* What libcore lacks is computed on the CPU, and counted. */

#include "fallback.h"

#include "fork.h"
#include "same_device.h"
#include "shim.h"

#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <atomic>

namespace libcore_torch
{

static ForkMutex lock;
static std::map<std::string, uint64_t> counts;
static std::atomic<bool> allowed{true};

std::map<std::string, uint64_t> fallback_counts()
{
    std::lock_guard<ForkMutex> guard(lock);

    return counts;
}

void reset_fallback_counts()
{
    std::lock_guard<ForkMutex> guard(lock);

    counts.clear();
}

void allow_fallback(bool value)
{
    allowed = value;
}

void count_fallback(const std::string &name)
{
    TORCH_CHECK_NOT_IMPLEMENTED(
        allowed, name,
        ": libcore does not have it, and libcore_torch.allow_fallback(False) "
        "was called");
    std::lock_guard<ForkMutex> guard(lock);
    counts[name]++;
}

void fall_back(const c10::OperatorHandle &op, torch::jit::Stack *stack)
{
    check_same_device(op,
                      torch::jit::last(*stack, op.schema().arguments().size()));
    count_fallback(c10::toString(op.operator_name()));
    at::native::cpu_fallback(op, stack);
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
