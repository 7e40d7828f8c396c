#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""Measures the rows of `core-bench compile` with PyTorch (bench-vs-torch).

    torch_compile.py [--trial]

NAME.eager is a function as it is, NAME.compiled with torch.compile, and
NAME.compile_ms its first call, with no kernels on disk.  In a training step,
torch.compile gets the loss, or the optimizer's step; gradients are taken and
applied outside of it.  --trial compiles without generated code, and calls
everything once, as a check that it runs.
"""
import argparse
import os
import statistics
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("--trial", action="store_true")
options = parser.parse_args()
cache = tempfile.TemporaryDirectory()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name

import torch  # noqa: E402
import torch._inductor.config  # noqa: E402
import torch.nn.functional as F  # noqa: E402

torch._inductor.config.force_disable_caches = True

BATCH, TIME, WIDTH, HEADS = 8, 128, 256, 8


def seconds_of(row, least):
    row()
    row()
    n = 1
    while not options.trial:
        begin = time.perf_counter()
        for _ in range(n):
            row()
        seconds = time.perf_counter() - begin
        if seconds >= least:
            break
        n = n * 10 if seconds < least / 20 else int(n * least / seconds * 1.1) + 1
    values = []
    for _ in range(1 if options.trial else 15):
        begin = time.perf_counter()
        for _ in range(n):
            row()
        values.append((time.perf_counter() - begin) / n)
    return statistics.median(values)


def out(name, value, unit):
    print(f"{name:<44} {value:12.3f} {unit}", flush=True)


def compiled(function):
    torch._dynamo.reset()
    backend = "eager" if options.trial else "inductor"
    return torch.compile(function, backend=backend)


def measure(name, suffix, function, step, scale, unit):
    """step(f) does the whole, with f in place of the function."""
    out(f"{name}.eager{suffix}", seconds_of(lambda: step(function), 0.02) * scale, unit)
    fast = compiled(function)
    begin = time.perf_counter()
    step(fast)
    first = time.perf_counter() - begin
    out(f"{name}.compiled{suffix}", seconds_of(lambda: step(fast), 0.02) * scale, unit)
    out(f"{name}.compile_ms{suffix}", first * 1e3, "ms")
    return fast


def descend(loss, parameters, seed=None):
    grads = torch.autograd.grad(loss, parameters, seed)
    with torch.no_grad():
        torch._foreach_add_(parameters, grads, alpha=-0.01)


def smallest():
    x = torch.ones(4, 4)
    measure("compile.chain3", "", lambda: torch.relu(x * x + x), lambda f: f(), 1e9, "ns")
    wide, narrow = torch.ones(1, 8), torch.ones(1, 4)
    weights = [torch.full((8, 16), 0.01), torch.full((16, 4), 0.01)]
    for weight in weights:
        weight.requires_grad_()

    def loss(first, second):
        return F.mse_loss(torch.mm(torch.relu(torch.mm(wide, first)), second), narrow)

    measure("compile.mlp_tiny_8-16-4_b1_step", "", loss, lambda f: descend(f(*weights), weights), 1e9, "ns")
    measure("compile.mlp_tiny_8-16-4_b1_loss_and_grad", "", loss,
            lambda f: torch.autograd.grad(f(*weights), weights), 1e9, "ns")


def chain(suffix):
    def chain13(y):
        y = torch.tanh(torch.relu(y + 1) * 0.5)
        y = torch.exp(torch.sigmoid(y + 1) * 0.5)
        return torch.sin(torch.sqrt(torch.abs(-y) + 1))

    for name, size in (("16M", 1 << 24), ("16K", 1 << 14)):
        x = torch.full((1 << 10 if options.trial else size,), 0.5)
        measure(f"compile.chain13_{name}", suffix, chain13, lambda f: f(x), 1e3, "ms")


def norm(suffix):
    rows = 8 if options.trial else 4096
    x, y = torch.rand(rows, 1024), torch.rand(rows, 1024)
    weight, bias, scale = torch.rand(1024), torch.rand(1024), torch.rand(1024)

    def residual(x, y):
        return F.gelu(F.layer_norm(x + y, (1024,), weight, bias) * scale) + x

    measure("compile.norm_gelu_residual_4096x1024", suffix, residual, lambda f: f(x, y), 1e3, "ms")


def attention_weights(suffix):
    x, mask = torch.rand(1 if options.trial else 64, 128, 128), torch.rand(128, 128)

    def weights(x):
        return F.dropout(torch.softmax(x * 0.125 + mask, -1), 0.1, True) * 2

    measure("compile.softmax_mask_dropout_64x128x128", suffix, weights, lambda f: f(x), 1e3, "ms")


def convolutions(suffix):
    batch = 1 if options.trial else 32
    x, y = torch.rand(batch, 3, 32, 32), torch.rand(batch, 10)
    sizes = ((16, 3, 3, 3), (32, 16, 3, 3), (16,), (16,), (8192, 10))
    parameters = [torch.rand(size).requires_grad_() for size in sizes]

    def loss(first, second, weight, bias, last):
        t = F.batch_norm(F.conv2d(x, first, padding=1), None, None, weight, bias, True)
        t = F.conv2d(F.max_pool2d(F.silu(t), 2), second, padding=1)
        return F.mse_loss((t * t).reshape(batch, -1) @ last, y)

    measure("compile.cnn_step_b32", suffix, loss, lambda f: descend(f(*parameters), parameters), 1e3, "ms")


class Perceptron:
    def __init__(self):
        self.parameters = []
        for last, width in ((784, 512), (512, 256), (256, 10)):
            self.parameters.append((torch.randn(width, last) * 0.85 / last ** 0.5).requires_grad_())
            self.parameters.append(torch.zeros(width).requires_grad_())
        self.x = torch.randn(128, 784)
        self.y = torch.randint(10, (128,))

    def loss(self, a, b, c, d, e, f):
        h = torch.relu(F.linear(self.x, a, b))
        return F.cross_entropy(F.linear(torch.relu(F.linear(h, c, d)), e, f), self.y)


def perceptron(suffix):
    p = Perceptron()
    measure("compile.mlp_step_784-512-256-10_b128", suffix, p.loss,
            lambda f: descend(f(*p.parameters), p.parameters), 1e3, "ms")


def adam(suffix):
    p = Perceptron()
    for parameter in p.parameters:
        parameter.grad = torch.full_like(parameter, 0.001)
    name = "compile.adam_step_784-512-256-10"
    fused = torch.optim.Adam(p.parameters, lr=1e-3, fused=True)
    out(f"{name}.eager{suffix}", seconds_of(fused.step, 0.02) * 1e3, "ms")
    optimizer = torch.optim.Adam(p.parameters, lr=1e-3, foreach=True)
    step = compiled(optimizer.step)
    begin = time.perf_counter()
    step()
    first = time.perf_counter() - begin
    out(f"{name}.compiled{suffix}", seconds_of(step, 0.02) * 1e3, "ms")
    out(f"{name}.compile_ms{suffix}", first * 1e3, "ms")


class Block:
    def __init__(self):
        c = WIDTH
        sizes = [(3 * c, c), (3 * c,), (c, c), (c,), (4 * c, c), (4 * c,), (c, 4 * c), (c,)]
        self.x = torch.randn(BATCH, TIME, c).requires_grad_()
        norms = [torch.ones(c), torch.zeros(c), torch.ones(c), torch.zeros(c)]
        weights = [torch.randn(s) * 0.05 if len(s) > 1 else torch.zeros(s) for s in sizes]
        self.parameters = [t.requires_grad_() for t in norms + weights] + [self.x]
        self.grad = torch.randn(BATCH, TIME, c)

    def forward(self, g1, b1, g2, b2, wq, bq, wo, bo, wu, bu, wd, bd, x):
        y = F.linear(F.layer_norm(x, (WIDTH,), g1, b1), wq, bq)
        q, k, v = y.view(BATCH, TIME, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        a = torch.softmax(q @ k.transpose(-2, -1) * (WIDTH / HEADS) ** -0.5, -1) @ v
        y = x + F.linear(a.transpose(1, 2).reshape(BATCH, TIME, WIDTH), wo, bo)
        m = F.gelu(F.linear(F.layer_norm(y, (WIDTH,), g2, b2), wu, bu))
        return y + F.linear(m, wd, bd)


def block(suffix):
    b = Block()
    fast = measure("compile.xfmr_block_step_B8T128C256H8", suffix, b.forward,
                   lambda f: descend(f(*b.parameters), b.parameters, b.grad), 1e3, "ms")
    for name, forward in (("eager", b.forward), ("compiled", fast)):
        seconds = seconds_of(lambda: torch.autograd.grad(forward(*b.parameters), b.parameters, b.grad), 0.02)
        out(f"compile.xfmr_block_fwd+bwd_B8T128C256H8.{name}{suffix}", seconds * 1e3, "ms")


print(f"# PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}", flush=True)
torch.manual_seed(1)
torch.set_num_threads(1)
smallest()
for threads in (1, 2):
    torch.set_num_threads(threads)
    for rows in (chain, perceptron, adam, block, norm, attention_weights, convolutions):
        rows(f"/t{threads}")
