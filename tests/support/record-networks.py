#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
r"""Computes the seven networks of networks.h with PyTorch, written here a second
time with its modules and functions, and prints their results, which
network_results.h contains:

    python3 tests/support/record-networks.py \
        | clang-format --assume-filename=x.h >tests/support/network_results.h

The numbers of a tensor follow from its name (numbers), in C as well."""

import math

import torch
import torch.nn.functional as F


def numbers(name, *sizes):
    """A parameter or buffer: a linear congruential generator that begins with a
    hash (FNV-1a) of the name; in 0.5 to 1.5 for what scales, else in -0.5 to
    0.5."""
    state = 2166136261
    for byte in name.encode():
        state = (state ^ byte) * 16777619 % 2**32
    values = []
    for _ in range(math.prod(sizes)):
        state = (state * 1664525 + 1013904223) % 2**32
        values.append((state >> 8) / 2**24 - 0.5)
    x = torch.tensor(values, dtype=torch.float64).reshape(sizes)
    if name.endswith("running_var") or \
            (name.endswith("weight") and len(sizes) == 1):
        x = x + 1
    return x.float()


def sine(*sizes):
    return torch.sin(torch.arange(math.prod(sizes)).float()).reshape(sizes)


def filled(module, prefix):
    """A module of torch.nn with the numbers of its names, in inference."""
    state = {name: numbers(prefix + name, *tensor.shape)
             for name, tensor in module.state_dict().items()
             if tensor.is_floating_point()}
    module.load_state_dict(state, strict=False)
    return module.eval()


LEADS = []


def argmax(x, dim, keepdim=False):
    """As x.argmax.  Notes by how much the greatest element of each row leads, relative
    to the greatest magnitude: a lead within the tolerance of the results could
    give another index, and then other results, without an error."""
    first, second = x.topk(2, dim).values.unbind(dim)
    LEADS.append(((first - second).min() / x.abs().max()).item())
    return x.argmax(dim, keepdim)


# ------------------------------------------------------------------ GPT-2
def gpt2():
    width, heads = 8, 2
    wte, wpe = numbers("wte.weight", 11, 8), numbers("wpe.weight", 8, 8)

    def dense(name, x, outputs):
        return x @ numbers(name + ".weight", x.shape[-1], outputs) + \
            numbers(name + ".bias", outputs)

    def norm(name, x):
        return filled(torch.nn.LayerNorm(width), name + ".")(x)

    def whole(tokens):
        """Of all tokens at once: a cache changes no number."""
        count = tokens.shape[1]
        x = wte[tokens] + wpe[:count]
        y = dense("h.0.attn.c_attn", norm("h.0.ln_1", x), 3 * width)
        q, k, v = (p.reshape(1, count, heads, -1).transpose(1, 2)
                   for p in y.split(width, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + dense("h.0.attn.c_proj",
                      y.transpose(1, 2).reshape(1, count, width), width)
        y = dense("h.0.mlp.c_fc", norm("h.0.ln_2", x), 4 * width)
        x = x + dense("h.0.mlp.c_proj", F.gelu(y, approximate="tanh"), width)
        return norm("ln_f", x[:, -1:]) @ wte.T

    tokens = torch.arange(3)[None]
    tokens = torch.cat([tokens, argmax(whole(tokens), -1)], 1)
    return whole(tokens)


# ------------------------------------------------------------------ Llama
def llama():
    width, size = 16, 4

    def dense(name, x, outputs):
        return F.linear(x, numbers(name + ".weight", outputs, x.shape[-1]))

    def norm(name, x):
        return F.rms_norm(x, (width,), numbers(name + ".weight", width), 1e-5)

    def heads(name, x, count, rotated=True):
        x = dense(name, x, count * size)
        x = x.reshape(1, -1, count, size).transpose(1, 2)
        if not rotated:
            return x
        inverse = 10000 ** -(torch.arange(0, size, 2).float() / size)
        angle = torch.outer(torch.arange(x.shape[2]).float(), inverse)
        turn = torch.polar(torch.ones_like(angle), angle)
        a, b = x.chunk(2, -1)
        z = torch.complex(a, b) * turn
        return torch.cat([z.real, z.imag], -1)

    def whole(tokens):
        x = numbers("model.embed_tokens.weight", 11, width)[tokens]
        layer = "model.layers.0."
        y = norm(layer + "input_layernorm", x)
        q = heads(layer + "self_attn.q_proj", y, 4)
        k = heads(layer + "self_attn.k_proj", y, 2)
        v = heads(layer + "self_attn.v_proj", y, 2, False)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                           enable_gqa=True)
        x = x + dense(layer + "self_attn.o_proj",
                      y.transpose(1, 2).flatten(2), width)
        y = norm(layer + "post_attention_layernorm", x)
        gate = F.silu(dense(layer + "mlp.gate_proj", y, 24))
        x = x + dense(layer + "mlp.down_proj",
                      gate * dense(layer + "mlp.up_proj", y, 24), width)
        return dense("lm_head", norm("model.norm", x[:, -1:]), 11)

    tokens = torch.arange(3)[None]
    tokens = torch.cat([tokens, argmax(whole(tokens), -1)], 1)
    return whole(tokens)


# -------------------------------------------------------------- ResNet-18
class Block(torch.nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(outputs)
        self.conv2 = torch.nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(outputs)
        self.downsample = torch.nn.Sequential(
            torch.nn.Conv2d(inputs, outputs, 1, stride, bias=False),
            torch.nn.BatchNorm2d(outputs)) if inputs != outputs else None

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 2, 7, 2, 3, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(2)
        for i in range(4):
            inputs, outputs = max(2, 2 << i >> 1), 2 << i
            self.add_module("layer%d" % (i + 1), torch.nn.Sequential(
                Block(inputs, outputs, 2 if i else 1),
                Block(outputs, outputs, 1)))
        self.fc = torch.nn.Linear(16, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3))).softmax(1)


def resnet18():
    return filled(ResNet(), "")(sine(2, 3, 16, 16))


# ------------------------------------------------------------------ CREPE
def crepe():
    x = F.pad(sine(100), (64, 64)).unfold(0, 128, 40)
    x = x - x.mean(1, keepdim=True)
    x = x / x.std(1, keepdim=True).clamp(1e-10)
    x = x[:, None, :, None]
    for i in (1, 2):
        conv = filled(torch.nn.Conv2d(x.shape[1], 4, (8, 1),
                                      (4 if i == 1 else 1, 1)), "conv%d." % i)
        norm = filled(torch.nn.BatchNorm2d(4, 0.001), "conv%d_BN." % i)
        x = norm(F.relu(conv(F.pad(x, (0, 0, 3, 4)))))
        x = F.max_pool2d(x, (2, 1))
    x = x.permute(0, 2, 1, 3).flatten(1)
    x = filled(torch.nn.Linear(x.shape[1], 30), "classifier.")(x).sigmoid()
    best, bins = argmax(x, 1, True), torch.arange(30)
    p = x * ((bins - best).abs() <= 4)
    cents = (p * (bins * 20 + 1997.379)).sum(1) / p.sum(1)
    return 10 * 2 ** (cents / 1200) + x.max(1).values


# ---------------------------------------------------------------- speaker
def speaker():
    x = sine(20, 5).unfold(0, 8, 4).transpose(1, 2)
    lstm = filled(torch.nn.LSTM(5, 6, 3, batch_first=True), "lstm.")
    h = lstm(x)[1][0][-1]
    h = F.normalize(F.relu(filled(torch.nn.Linear(6, 6), "linear.")(h)), dim=1)
    return F.normalize(h.mean(0), dim=0)


# ------------------------------------------------------------- silero-vad
def spectrum(x):
    x = F.pad(x[:, None], (6, 6), "reflect")
    real, imaginary = F.conv1d(x, numbers("basis", 10, 1, 8),
                               stride=4).chunk(2, 1)
    return torch.hypot(real, imaginary)


def conv1d(name, x, outputs, kernel, stride=1, padding=0, groups=1):
    return filled(torch.nn.Conv1d(x.shape[1], outputs, kernel, stride, padding,
                                  groups=groups), name + ".")(x)


def silero5():
    cell, state, speech = filled(torch.nn.LSTMCell(4, 4), "rnn."), None, []
    for x in sine(40).unfold(0, 16, 12):
        x = spectrum(x[None])
        for k in range(2):
            x = F.relu(conv1d("encoder.%d" % k, x, 4, 3, k + 1, 1))
        state = cell(x[:, :, 0], state)
        x = conv1d("out.1", F.relu(state[0][:, :, None]), 1, 1).sigmoid()
        speech.append(x.mean(2))
    return torch.cat(speech)


def silero4():
    lstm, state, speech = filled(torch.nn.LSTM(4, 4, 2), "lstm."), None, []
    for x in sine(32).unfold(0, 16, 16):
        x = spectrum(x[None])
        y = torch.log1p(x * 2**20)
        mean = F.pad(y.mean(1, keepdim=True), (1, 1), "reflect")
        mean = F.conv1d(mean, numbers("filter", 1, 1, 3))
        x = torch.cat([x, y - mean.mean(2, keepdim=True)], 1)
        y = F.relu(conv1d("first_layer.0.dw_conv.0", x, x.shape[1], 5,
                          padding=2, groups=x.shape[1]))
        y = conv1d("first_layer.0.pw_conv.0", y, 4, 1)
        x = F.relu(y + conv1d("first_layer.0.proj", x, 4, 1))
        x = conv1d("encoder.0", x, 4, 1, 2)
        x = F.relu(filled(torch.nn.BatchNorm1d(4), "encoder.1.")(x))
        x, state = lstm(x.permute(2, 0, 1), state)
        x = conv1d("decoder.1", F.relu(x.permute(1, 2, 0)), 1, 1).sigmoid()
        speech.append(x.mean(2))
    return torch.cat(speech)


def main():
    print("""/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* network_results.h: what PyTorch %s computes for the networks of networks.h,
 * by record-networks.py. */

#ifndef TESTS_SUPPORT_NETWORK_RESULTS_H
#define TESTS_SUPPORT_NETWORK_RESULTS_H

static const struct {
    const char *name;
    double lead; /* the least of an argmax's greatest element, relative; 1: no
                    argmax */
    int count;
    double values[16];
} network_results[] = {""" % torch.__version__.split("+")[0])
    for network in (gpt2, llama, resnet18, crepe, speaker, silero5, silero4):
        LEADS[:] = [1]
        with torch.no_grad():
            values = network().flatten().tolist()
        print('    {"%s",\n     %.3g,\n     %d,\n     {%s}},' % (
            network.__name__, min(LEADS), len(values),
            ",\n      ".join("%.9g" % value for value in values)))
    print("};\n\n#endif")


main()
