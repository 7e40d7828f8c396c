/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Autocast: torch's own lists of operators, for these devices. */

#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace
{

using namespace at; /* whose lists name its types without it */

#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define FP32_SET_OPT_DTYPE(...) \
    KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
#define DIFFERENT(...) \
    KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE(__VA_ARGS__)

Tensor refuse_binary_cross_entropy(const Tensor &, const Tensor &,
                                   const std::optional<Tensor> &, int64_t)
{
    TORCH_CHECK(false,
                "binary_cross_entropy and BCELoss are unsafe to autocast; use "
                "binary_cross_entropy_with_logits or BCEWithLogitsLoss");
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m)
{
    m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m)
{
    AT_FORALL_LOWER_PRECISION_FP(LOWER)
    AT_FORALL_FP32(FP32)
    AT_FORALL_FP32_SET_OPT_DTYPE(FP32_SET_OPT_DTYPE)
    AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(DIFFERENT)
    AT_FORALL_PROMOTE(PROMOTE)
    m.impl("binary_cross_entropy", refuse_binary_cross_entropy);
}

} // namespace
