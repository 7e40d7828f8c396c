/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The cells of LSTM and GRU, which torch expects of each accelerator, made of
 * other operators.  i, f, g, o; r, z, n: Hochreiter and Schmidhuber 1997; Cho et
 * al. 2014. */

#include "shim.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <torch/library.h>

#include <tuple>

namespace libcore_torch
{

using at::Tensor;
using Bias = std::optional<Tensor>;

static bool is_given(const Bias &tensor)
{
    return tensor && tensor->defined();
}

static Tensor biased(const Tensor &gates, const Bias &bias)
{
    return is_given(bias) ? gates.add(*bias) : gates;
}

/* 1 - x */
static Tensor complement(const Tensor &x)
{
    return at::rsub(x, 1);
}

/* x (1 - x) */
static Tensor sigmoid_slope(const Tensor &x)
{
    return x.mul(complement(x));
}

/* 1 - x² */
static Tensor tanh_slope(const Tensor &x)
{
    return complement(x.mul(x));
}

static Tensor bias_gradient(const Tensor &gates, bool has_bias)
{
    return has_bias ? gates.sum(0) : Tensor();
}

/* ---------------------------------------------------------------- LSTM -- */

static std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor &input,
                                                    const Tensor &hidden,
                                                    const Tensor &cx,
                                                    const Bias &input_bias,
                                                    const Bias &hidden_bias)
{
    auto gates =
        biased(biased(input, input_bias).add(hidden), hidden_bias).chunk(4, 1);
    Tensor i = at::sigmoid(gates[0]), f = at::sigmoid(gates[1]);
    Tensor g = at::tanh(gates[2]), o = at::sigmoid(gates[3]);
    Tensor cy = f.mul(cx).add(i.mul(g));

    return {o.mul(at::tanh(cy)), cy, at::cat({i, f, g, o}, 1)};
}

static std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(
    const Bias &grad_hy, const Bias &grad_cy, const Tensor &cx,
    const Tensor &cy, const Tensor &workspace, bool has_bias)
{
    if (!is_given(grad_hy) && !is_given(grad_cy))
        return {};
    auto gates = workspace.chunk(4, 1);
    const Tensor &i = gates[0], &f = gates[1], &g = gates[2], &o = gates[3];
    Tensor y = at::tanh(cy), through_o = o.mul(0), through_c;

    if (is_given(grad_hy)) {
        through_o = grad_hy->mul(y).mul(sigmoid_slope(o));
        through_c = grad_hy->mul(o).mul(tanh_slope(y));
        if (is_given(grad_cy))
            through_c = through_c.add(*grad_cy);
    } else {
        through_c = *grad_cy;
    }
    Tensor grad = at::cat({through_c.mul(g).mul(sigmoid_slope(i)),
                           through_c.mul(cx).mul(sigmoid_slope(f)),
                           through_c.mul(i).mul(tanh_slope(g)), through_o},
                          1);
    return {grad, through_c.mul(f), bias_gradient(grad, has_bias)};
}

/* ----------------------------------------------------------------- GRU -- */

static std::tuple<Tensor, Tensor> gru_cell(const Tensor &input,
                                           const Tensor &hidden,
                                           const Tensor &hx,
                                           const Bias &input_bias,
                                           const Bias &hidden_bias)
{
    auto in = biased(input, input_bias).chunk(3, 1);
    auto at_hidden = biased(hidden, hidden_bias).chunk(3, 1);
    Tensor r = at::sigmoid(in[0].add(at_hidden[0]));
    Tensor z = at::sigmoid(in[1].add(at_hidden[1]));
    Tensor n = at::tanh(in[2].add(r.mul(at_hidden[2])));

    return {hx.sub(n).mul(z).add(n), at::cat({r, z, n, hx, at_hidden[2]}, 1)};
}

static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(
    const Tensor &grad, const Tensor &workspace, bool has_bias)
{
    auto parts = workspace.chunk(5, 1);
    const Tensor &r = parts[0], &z = parts[1], &n = parts[2];
    Tensor through_z = grad.mul(parts[3].sub(n)).mul(sigmoid_slope(z));
    Tensor through_n = grad.mul(complement(z)).mul(tanh_slope(n));
    Tensor through_r = through_n.mul(parts[4]).mul(sigmoid_slope(r));
    Tensor input = at::cat({through_r, through_z, through_n}, 1);
    Tensor hidden = at::cat({through_r, through_z, through_n.mul(r)}, 1);

    return {input, hidden, grad.mul(z), bias_gradient(input, has_bias),
            bias_gradient(hidden, has_bias)};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m)
{
    m.impl("_thnn_fused_lstm_cell", lstm_cell);
    m.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
    m.impl("_thnn_fused_gru_cell", gru_cell);
    m.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
}

} // namespace libcore_torch
