/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Scaled dot product attention with the fused kernel of a device, where it has
 * one that takes the call; torch composes it of other operators elsewhere. */

#include "fork.h"
#include "shim.h"

#include <ATen/Context.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/SDPBackend.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include <array>

namespace libcore_torch
{

/* -------------------------------------------------------------- support -- */

/* What a kernel's support may depend on. */
using Call = std::array<int64_t, 7>;

/* Restores the state of a device's generator. */
struct KeptState {
    explicit KeptState(c10::DeviceIndex index)
        : generator(generator_of(default_generator(index)))
    {
        core_generator_state(generator, &seed, &offset);
    }

    ~KeptState()
    {
        core_generator_set_state(generator, seed, offset);
    }

    core_generator *generator;
    uint64_t seed = 0, offset = 0;
};

/* Calls both operators once, with one query and one key.  Draws nothing that the
 * program would notice. */
static bool works(const at::Tensor &query, const at::Tensor &value,
                  const std::optional<at::Tensor> &mask, double dropout,
                  bool causal)
{
    int64_t width = query.size(3);
    at::Tensor q = empty({1, 1, 1, width}, query.scalar_type(), query.device());
    at::Tensor v =
        empty({1, 1, 1, value.size(3)}, query.scalar_type(), query.device());
    std::optional<at::Tensor> bias;
    KeptState state(query.device().index());

    q.zero_();
    v.zero_();
    if (mask)
        bias = empty({1, 1, 1, 1}, query.scalar_type(), query.device()).zero_();
    try {
        auto [out, sums, seed, offset] =
            at::_scaled_dot_product_efficient_attention(q, q, v, bias, true,
                                                        dropout, causal);
        at::_scaled_dot_product_efficient_attention_backward(
            out, q, q, v, bias.value_or(at::Tensor()), out, sums, seed, offset,
            dropout, {true, true, true, mask.has_value()}, causal);
    } catch (const c10::NotImplementedError &) {
        return false;
    }
    return true;
}

static ForkMutex lock; /* guards what is known */
static std::map<Call, bool> known;

static bool is_supported(const at::Tensor &query, const at::Tensor &value,
                         const std::optional<at::Tensor> &mask, double dropout,
                         bool causal)
{
    Call call = {query.device().index(),
                 static_cast<int64_t>(query.scalar_type()),
                 query.size(3),
                 value.size(3),
                 mask.has_value(),
                 dropout > 0,
                 causal};

    {
        std::lock_guard<ForkMutex> guard(lock);
        auto found = known.find(call);

        if (found != known.end())
            return found->second;
    }
    bool result = works(query, value, mask, dropout, causal);
    std::lock_guard<ForkMutex> guard(lock);
    known[call] = result;
    return result;
}

/* --------------------------------------------------------------- choice -- */

/* Whether the sizes fit without broadcasting. */
static bool fits(const at::Tensor &q, const at::Tensor &k, const at::Tensor &v)
{
    return q.dim() == 4 && k.dim() == 4 && v.dim() == 4 &&
           k.scalar_type() == q.scalar_type() &&
           v.scalar_type() == q.scalar_type() && q.is_floating_point() &&
           q.numel() > 0 && k.numel() > 0 && v.numel() > 0 &&
           k.sizes().slice(0, 2) == q.sizes().slice(0, 2) &&
           v.sizes().slice(0, 3) == k.sizes().slice(0, 3) &&
           k.size(3) == q.size(3) &&
           dtype_of(q.scalar_type()) != CORE_DTYPE_NONE;
}

/* torch makes a mask of bool one of the dtype of query. */
static bool mask_fits(const at::Tensor &mask, const at::Tensor &q,
                      const at::Tensor &k)
{
    std::array<int64_t, 4> full = {q.size(0), q.size(1), q.size(2), k.size(2)};

    if (mask.dim() > 4 || (mask.scalar_type() != c10::ScalarType::Bool &&
                           mask.scalar_type() != q.scalar_type()))
        return false;
    for (int64_t i = 1; i <= mask.dim(); i++)
        if (mask.size(-i) != 1 &&
            mask.size(-i) != full[static_cast<size_t>(4 - i)])
            return false;
    return true;
}

static int64_t choose(const at::Tensor &query, const at::Tensor &key,
                      const at::Tensor &value,
                      const std::optional<at::Tensor> &mask, double dropout,
                      bool causal, std::optional<double>, bool grouped)
{
    bool fused = at::globalContext().userEnabledOverrideableSDP() && !grouped &&
                 fits(query, key, value) &&
                 (!mask || mask_fits(*mask, query, key)) && dropout >= 0 &&
                 dropout <= 1 &&
                 is_supported(query, value, mask, dropout, causal);

    return static_cast<int64_t>(fused ? at::SDPBackend::overrideable
                                      : at::SDPBackend::math);
}

/* ------------------------------------------------------------ operators -- */

static at::Tensor expanded(const at::Tensor &mask, const at::Tensor &query,
                           const at::Tensor &key)
{
    return mask.expand(
        {query.size(0), query.size(1), query.size(2), key.size(2)});
}

using Forward =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt,
               c10::SymInt, at::Tensor, at::Tensor, at::Tensor>;

static Forward attention(const at::Tensor &query, const at::Tensor &key,
                         const at::Tensor &value,
                         const std::optional<at::Tensor> &mask, double dropout,
                         bool causal, bool, std::optional<double> scale)
{
    std::optional<at::Tensor> bias;

    if (mask && mask->defined())
        bias = expanded(*mask, query, key);
    auto [out, sums, seed, offset] =
        at::_scaled_dot_product_efficient_attention(
            query, key, value, bias, true, dropout, causal, scale);
    return {out,         sums, at::Tensor(), at::Tensor(), query.size(2),
            key.size(2), seed, offset,       at::Tensor()};
}

using Backward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

static Backward attention_backward(
    const at::Tensor &grad, const at::Tensor &query, const at::Tensor &key,
    const at::Tensor &value, const at::Tensor &mask, std::array<bool, 4> wanted,
    const at::Tensor &out, const at::Tensor &sums, const at::Tensor &,
    const at::Tensor &, c10::SymInt, c10::SymInt, double dropout, bool causal,
    const at::Tensor &seed, const at::Tensor &offset,
    std::optional<double> scale)
{
    at::Tensor bias = mask.defined() ? expanded(mask, query, key) : mask;

    wanted[3] = wanted[3] && mask.defined();
    Backward result = at::_scaled_dot_product_efficient_attention_backward(
        grad, query, key, value, bias, out, sums, seed, offset, dropout, wanted,
        causal, scale);
    if (wanted[3])
        std::get<3>(result) = std::get<3>(result).sum_to_size(mask.sizes());
    return result;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m)
{
    m.impl("_scaled_dot_product_fused_attention_overrideable", attention);
    m.impl("_scaled_dot_product_fused_attention_overrideable_backward",
           attention_backward);
}

} // namespace libcore_torch

namespace at::native
{

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &libcore_torch::choose)

} // namespace at::native
