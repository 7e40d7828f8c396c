#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""Measures the rows of `core-bench compile` with jax.jit (bench-vs-torch).

    jax_compile.py [--trial]

NAME.compiled is a call of the function that jax.jit made, until its results are
there, and NAME.compile_ms its first call, with no kernels on disk.  A training
step is compiled as a whole: loss, gradients and update.  The rows of N threads
run in a process of their own on N processors.  --trial calls everything once,
on small operands, as a check that it runs.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--trial", action="store_true")
parser.add_argument("--threads", type=int)
options = parser.parse_args()

if not options.threads:
    from importlib.metadata import version

    print(f"# JAX {version('jax')}", flush=True)
    for threads in (1, 2):
        if threads > len(os.sched_getaffinity(0)):
            print(f"jax_compile.py: no {threads} processors", file=sys.stderr)
            break
        command = [sys.executable, __file__, "--threads", str(threads)]
        subprocess.run(command + (["--trial"] if options.trial else []), check=True)
    sys.exit()

os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)

import jax  # noqa: E402
import jax.numpy as np  # noqa: E402

BATCH, TIME, WIDTH, HEADS = 8, 128, 256, 8
SUFFIX = f"/t{options.threads}"
random = jax.random


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


def measure(name, suffix, function, arguments, scale, unit, next_arguments=None):
    """next_arguments(results) makes the arguments of the next call."""
    state = [arguments]

    def call():
        results = jax.block_until_ready(fast(*state[0]))
        if next_arguments:
            state[0] = next_arguments(results)

    jax.clear_caches()
    fast = jax.jit(lambda *a: function(*a))
    begin = time.perf_counter()
    call()
    first = time.perf_counter() - begin
    out(f"{name}.compiled{suffix}", seconds_of(call, 0.02) * scale, unit)
    out(f"{name}.compile_ms{suffix}", first * 1e3, "ms")


def descend(parameters, grads, rate=0.01):
    return jax.tree.map(lambda p, g: p - rate * g, parameters, grads)


def uniform(*sizes):
    return random.uniform(random.key(sum(sizes)), sizes)


def smallest():
    wide, narrow = np.ones((1, 8)), np.ones((1, 4))
    weights = [np.full((8, 16), 0.01), np.full((16, 4), 0.01)]

    def loss(w):
        return np.mean((np.maximum(wide @ w[0], 0) @ w[1] - narrow) ** 2)

    def step(w):
        value, grads = jax.value_and_grad(loss)(w)
        return descend(w, grads), value

    measure("compile.chain3", "", lambda x: np.maximum(x * x + x, 0), (np.ones((4, 4)),), 1e9, "ns")
    measure("compile.mlp_tiny_8-16-4_b1_step", "", step, (weights,), 1e9, "ns", lambda r: (r[0],))
    measure("compile.mlp_tiny_8-16-4_b1_loss_and_grad", "", jax.value_and_grad(loss), (weights,), 1e9, "ns")


def chains():
    def chain13(y):
        y = np.tanh(np.maximum(y + 1, 0) * 0.5)
        y = np.exp(jax.nn.sigmoid(y + 1) * 0.5)
        return np.sin(np.sqrt(np.abs(-y) + 1))

    for name, size in (("16M", 1 << 24), ("16K", 1 << 14)):
        x = np.full(1 << 10 if options.trial else size, 0.5)
        measure(f"compile.chain13_{name}", SUFFIX, chain13, (x,), 1e3, "ms")


def norm_of(x, weight, bias):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * weight + bias


def gelu(x):
    return jax.nn.gelu(x, approximate=False)


def norm():
    rows = 8 if options.trial else 4096
    x = [uniform(rows, 1024), uniform(rows, 1024) + 1] + [uniform(1024) + i for i in range(3)]
    measure("compile.norm_gelu_residual_4096x1024", SUFFIX,
            lambda x, y, w, b, s: gelu(norm_of(x + y, w, b) * s) + x, x, 1e3, "ms")


def attention_weights():
    heads = 1 if options.trial else 64
    mask = uniform(128, 128)

    def weights(x, mask, key):
        key, draw = random.split(key)
        kept = random.bernoulli(draw, 0.9, x.shape)
        return np.where(kept, jax.nn.softmax(x / 8 + mask) / 0.9, 0) * 2, key

    x = uniform(heads, 128, 128)
    measure("compile.softmax_mask_dropout_64x128x128", SUFFIX, weights, (x, mask, random.key(1)), 1e3, "ms",
            lambda r: (x, mask, r[1]))


def convolutions():
    batch = 1 if options.trial else 32
    x, y = uniform(batch, 3, 32, 32), uniform(batch, 10)
    parameters = [uniform(16, 3, 3, 3), uniform(32, 16, 3, 3), uniform(16), uniform(16), uniform(8192, 10)]

    def conv(x, w):
        return jax.lax.conv_general_dilated(x, w, (1, 1), ((1, 1), (1, 1)))

    def loss(p, x, y):
        t = conv(x, p[0])
        mean = t.mean((0, 2, 3), keepdims=True)
        variance = ((t - mean) ** 2).mean((0, 2, 3), keepdims=True)
        t = (t - mean) / np.sqrt(variance + 1e-5)
        t = jax.nn.silu(t * p[2].reshape(1, 16, 1, 1) + p[3].reshape(1, 16, 1, 1))
        t = jax.lax.reduce_window(t, -np.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        t = conv(t, p[1])
        return np.mean(((t * t).reshape(batch, -1) @ p[4] - y) ** 2)

    def step(p, x, y):
        value, grads = jax.value_and_grad(loss)(p, x, y)
        return descend(p, grads, 1e-6), value

    measure("compile.cnn_step_b32", SUFFIX, step, (parameters, x, y), 1e3, "ms", lambda r: (r[0], x, y))


def perceptron_parameters():
    parameters = []
    for last, width in ((784, 512), (512, 256), (256, 10)):
        parameters.append((uniform(width, last) - 0.5) * 2 / last ** 0.5)
        parameters.append(np.zeros(width))
    return parameters


def perceptron():
    x, y = uniform(128, 784), np.arange(128) % 10

    def loss(p, x, y):
        h = np.maximum(x @ p[0].T + p[1], 0)
        h = jax.nn.log_softmax(np.maximum(h @ p[2].T + p[3], 0) @ p[4].T + p[5])
        return -np.mean(np.take_along_axis(h, y[:, None], 1))

    def step(p, x, y):
        value, grads = jax.value_and_grad(loss)(p, x, y)
        return descend(p, grads), value

    measure("compile.mlp_step_784-512-256-10_b128", SUFFIX, step, (perceptron_parameters(), x, y), 1e3, "ms",
            lambda r: (r[0], x, y))


def adam():
    parameters = perceptron_parameters()
    grads = jax.tree.map(lambda p: np.full_like(p, 0.001), parameters)
    zeros = jax.tree.map(np.zeros_like, parameters)

    def step(p, m, v, grads, count):
        count = count + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
        size, scale = 1e-3 / (1 - 0.9 ** count), 1 / np.sqrt(1 - 0.999 ** count)
        p = jax.tree.map(lambda p, m, v: p - size * m / (np.sqrt(v) * scale + 1e-8), p, m, v)
        return p, m, v, grads, count

    measure("compile.adam_step_784-512-256-10", SUFFIX, step, (parameters, zeros, zeros, grads, np.float32(0)), 1e3, "ms",
            lambda r: r)


def block():
    c = WIDTH
    sizes = [(3 * c, c), (3 * c,), (c, c), (c,), (4 * c, c), (4 * c,), (c, 4 * c), (c,)]
    parameters = [np.ones(c), np.zeros(c), np.ones(c), np.zeros(c)]
    parameters += [(uniform(*s) - 0.5) * 0.1 if len(s) > 1 else np.zeros(s) for s in sizes]
    parameters.append(uniform(BATCH, TIME, c))
    grad = uniform(BATCH, TIME, c)

    def forward(g1, b1, g2, b2, wq, bq, wo, bo, wu, bu, wd, bd, x):
        y = norm_of(x, g1, b1) @ wq.T + bq
        q, k, v = y.reshape(BATCH, TIME, 3, HEADS, c // HEADS).transpose(2, 0, 3, 1, 4)
        a = jax.nn.softmax(q @ k.swapaxes(-2, -1) * (c / HEADS) ** -0.5) @ v
        y = x + a.swapaxes(1, 2).reshape(BATCH, TIME, c) @ wo.T + bo
        return y + gelu(norm_of(y, g2, b2) @ wu.T + bu) @ wd.T + bd

    def gradients(p, grad):
        value, backward = jax.vjp(lambda p: forward(*p), p)
        return value, backward(grad)[0]

    def step(p, grad):
        value, grads = gradients(p, grad)
        return value, descend(p, grads)

    measure("compile.xfmr_block_step_B8T128C256H8", SUFFIX, step, (parameters, grad), 1e3, "ms",
            lambda r: (r[1], grad))
    measure("compile.xfmr_block_fwd+bwd_B8T128C256H8", SUFFIX, gradients, (parameters, grad), 1e3, "ms")


if options.threads == 1:
    smallest()
for rows in (chains, perceptron, adam, block, norm, attention_weights, convolutions):
    rows()
