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

void fall_back(const c10::OperatorHandle &op, torch::jit::Stack *stack)
{
    std::string name = c10::toString(op.operator_name());

    TORCH_CHECK_NOT_IMPLEMENTED(
        allowed, name,
        ": libcore does not have it, and libcore_torch.allow_fallback(False) "
        "was called");
    at::native::cpu_fallback(op, stack);
    std::lock_guard<std::mutex> guard(lock);
    counts[name]++;
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m)
{
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

} // namespace libcore_torch
