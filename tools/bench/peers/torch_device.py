#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""Measures the rows of `core-bench --device` with PyTorch (bench-vs-torch).

    torch_device.py [--device cuda] [--trial]

--trial makes everything small, as a check that it runs.
"""
import argparse
import statistics
import time

import torch
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--trial", action="store_true")
options = parser.parse_args()
device = torch.device(options.device)
on_gpu = device.type == "cuda"
TYPES = [("f32", torch.float32), ("f16", torch.float16), ("bf16", torch.bfloat16)]


def attend(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):  # 2.0 and newer
        return F.scaled_dot_product_attention(q, k, v)
    return torch.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, -1) @ v


def sized(size, small):
    return small if options.trial else size


def wait():
    if on_gpu:
        torch.cuda.synchronize()


def timed(row, n):
    begin = time.perf_counter()
    for _ in range(n):
        row()
    wait()
    return time.perf_counter() - begin


def seconds_of(row):
    """Seconds per call, including the device's work."""
    timed(row, 1 if options.trial else 3)
    if options.trial:
        return timed(row, 1)
    n = 1
    while (seconds := timed(row, n)) < 0.05:
        n = n * 10 if seconds < 0.0025 else int(n * 0.05 / seconds * 1.1) + 1
    return statistics.median(timed(row, n) / n for _ in range(9))


def host_seconds_of(row):
    """Seconds of the host per call, while the device's queue is short."""
    timed(row, 3)
    values = []
    for _ in range(1 if options.trial else 31):
        begin = time.perf_counter()
        for _ in range(200):
            row()
        values.append((time.perf_counter() - begin) / 200)
        wait()
    return statistics.median(values)


def out(name, value, unit):
    print(f"{name:<44} {value:12.3f} {unit}", flush=True)


def gb(name, row, count):
    try:
        out(name, 1e-9 * count / seconds_of(row), "GB/s")
    except RuntimeError as error:
        print(f"# {name}: {str(error).splitlines()[0]}")


def gflop(name, row, flop):
    try:
        out(name, 1e-9 * flop / seconds_of(row), "GFLOP/s")
    except RuntimeError as error:
        print(f"# {name}: {str(error).splitlines()[0]}")


def rand(*sizes, dtype=torch.float32):
    return torch.rand(sizes, dtype=torch.float32, device=device).to(dtype)


def empty(*sizes, dtype=torch.float32):
    return torch.zeros(sizes, dtype=dtype, device=device)


def launches():
    a, b, o = rand(1), rand(1), empty(1)
    leaf = rand(1).requires_grad_()
    out("dev.host.add1_out", host_seconds_of(lambda: torch.add(a, b, out=o)) * 1e6, "us")
    out("dev.host.add1", host_seconds_of(lambda: a + b) * 1e6, "us")
    with torch.enable_grad():
        out("dev.host.add1_grad", host_seconds_of(lambda: leaf + b) * 1e6, "us")
    out("dev.add1", seconds_of(lambda: a + b) * 1e6, "us")
    out("dev.wait_idle", seconds_of(wait) * 1e6, "us")


def flat():
    n = sized(64 << 20, 1000)
    for name, dtype in TYPES:
        a, b, o = rand(n, dtype=dtype), rand(n, dtype=dtype), empty(n, dtype=dtype)
        count = n * a.element_size()
        if name == "f32":
            gb("dev.copy_64M_f32", lambda: o.copy_(a), 2 * count)
        gb(f"dev.add_out_64M_{name}", lambda: torch.add(a, b, out=o), 3 * count)
        gb(f"dev.exp_out_64M_{name}", lambda: torch.exp(a, out=o), 2 * count)
        gb(f"dev.gelu_out_64M_{name}", lambda: F.gelu(a), 2 * count)
        gb(f"dev.sum_64M_{name}", lambda: a.sum(), count)


def rows():
    m, n = sized(65536, 8), sized(1024, 16)
    for name, dtype in TYPES:
        a, b, o = rand(m, n, dtype=dtype), rand(n, dtype=dtype), empty(m, n, dtype=dtype)
        weight, bias = rand(n, dtype=dtype), rand(n, dtype=dtype)
        count = m * n * a.element_size()
        gb(f"dev.softmax_out_65536x1024_{name}", lambda: torch.softmax(a, -1, out=o), 2 * count)
        gb(f"dev.layer_norm_65536x1024_{name}",
           lambda: F.layer_norm(a, (n,), weight, bias), 2 * count)
        gb(f"dev.add_row_out_65536x1024_{name}", lambda: torch.add(a, b, out=o), 2 * count)
        gb(f"dev.sum_rows_65536x1024_{name}", lambda: a.sum(1), count)
        gb(f"dev.sum_columns_65536x1024_{name}", lambda: a.sum(0), count)


def moved():
    side = sized(8192, 40)
    a, o = rand(side, side).t(), empty(side, side)
    gb("dev.transpose_copy_8192x8192_f32", lambda: o.copy_(a), 8 * side * side)
    m, n = sized(65536, 8), sized(1024, 16)
    part, to = rand(m, n)[:, : n - 8], empty(m, n - 8)
    gb("dev.add_out_65536x1016_of_1024_f32",
       lambda: torch.add(part, part, out=to), 12 * m * (n - 8))
    table, picked = rand(sized(50000, 100), sized(1024, 8)), sized(65536, 50)
    indices = torch.randint(0, table.shape[0], (picked,), device=device)
    gb("dev.embedding_65536_of_50000x1024_f32",
       lambda: F.embedding(indices, table), 8 * picked * table.shape[1])
    keys = rand(sized(16 << 20, 100))
    out("dev.sort_16M_f32", 1e-6 * keys.numel() / seconds_of(lambda: torch.sort(keys)),
        "million/s")


def square(name, side, dtype):
    n = sized(side, 24)
    a, b, o = (rand(n, n, dtype=dtype) for _ in range(3))
    gflop(name, lambda: torch.mm(a, b, out=o), 2.0 * n**3)


def products():
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    square("dev.mm_out_1024^3_f32", 1024, torch.float32)
    square("dev.mm_out_4096^3_f32", 4096, torch.float32)
    torch.backends.cuda.matmul.allow_tf32 = True
    square("dev.mm_out_4096^3_tf32", 4096, torch.float32)
    torch.backends.cuda.matmul.allow_tf32 = False
    square("dev.mm_out_4096^3_f64", 4096, torch.float64)
    square("dev.mm_out_4096^3_f16", 4096, torch.float16)
    square("dev.mm_out_1024^3_bf16", 1024, torch.bfloat16)
    square("dev.mm_out_4096^3_bf16", 4096, torch.bfloat16)
    square("dev.mm_out_8192^3_bf16", 8192, torch.bfloat16)
    batch, n = sized(64, 2), sized(512, 8)
    a, b, o = (rand(batch, n, n, dtype=torch.bfloat16) for _ in range(3))
    gflop("dev.bmm_out_64x512^3_bf16", lambda: torch.bmm(a, b, out=o), 2.0 * batch * n**3)


def convolutions():
    images, side = sized(32, 1), sized(56, 6)
    flop = 2.0 * 64 * 64 * 9 * images * side * side
    for name, dtype in TYPES:
        x = rand(images, 64, side, side, dtype=dtype)
        w, bias, grad = rand(64, 64, 3, 3, dtype=dtype), rand(64, dtype=dtype), torch.rand_like(x)
        gflop(f"dev.conv2d_32x64x56x56_k3p1_64_{name}",
              lambda: F.conv2d(x, w, bias, padding=1), flop)
        leaves = [t.clone().requires_grad_() for t in (x, w, bias)]

        def both():
            with torch.enable_grad():
                F.conv2d(leaves[0], leaves[1], leaves[2], padding=1).backward(grad)
            for leaf in leaves:
                leaf.grad = None

        gflop(f"dev.conv2d_same_fwd+bwd_{name}", both, 3 * flop)


def attentions():
    sizes = (sized(4, 1), sized(16, 2), sized(2048, 20), 64)
    flop = 4.0 * sizes[0] * sizes[1] * sizes[2] ** 2 * sizes[3]
    for name, dtype in TYPES:
        q, k, v, grad = (rand(*sizes, dtype=dtype) for _ in range(4))
        gflop(f"dev.attention_B4H16T2048D64_{name}",
              lambda: attend(q, k, v), flop)
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]

        def both():
            with torch.enable_grad():
                attend(*leaves).backward(grad)
            for leaf in leaves:
                leaf.grad = None

        gflop(f"dev.attention_same_fwd+bwd_{name}", both, 3.5 * flop)


def adam():
    n, count = sized(1 << 20, 10), sized(64, 2)
    parameters = [rand(n).requires_grad_() for _ in range(count)]
    for parameter in parameters:
        parameter.grad = rand(n)
    optimizer = torch.optim.Adam(parameters, fused=True) if on_gpu \
        else torch.optim.Adam(parameters)
    gb("dev.adam_64x1M_f32", optimizer.step, 28.0 * n * count)


def perceptron(name, widths, batch):
    weights, biases = [], []
    for i, o in zip(widths, widths[1:]):
        weights.append((torch.randn(o, i, device=device) * 0.85 / i**0.5).requires_grad_())
        biases.append(torch.zeros(o, device=device, requires_grad=True))
    x = torch.randn(batch, widths[0], device=device)
    y = torch.randint(0, widths[-1], (batch,), device=device)
    leaves = weights + biases

    def step():
        with torch.enable_grad():
            h = x
            for i, (w, b) in enumerate(zip(weights, biases)):
                h = F.linear(h, w, b)
                if i + 1 < len(weights):
                    h = torch.relu(h)
            F.cross_entropy(h, y).backward()
        for leaf in leaves:
            leaf.add_(leaf.grad, alpha=-0.01)
            leaf.grad = None

    eager = seconds_of(step)
    out(name, eager * 1e6, "us")
    if not on_gpu:
        return
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        step()
    replayed = seconds_of(graph.replay)
    out(f"{name}_graph", replayed * 1e6, "us")
    out(f"{name}_graph_speedup", eager / replayed, "times")


class Block:
    """Norm, attention in 8 heads, norm, two linear layers."""

    B, T, C, H = 8, 128, 256, 8

    def __init__(self):
        C = self.C

        def leaf(*sizes, scale):
            return (torch.randn(*sizes, device=device) * scale).requires_grad_()

        self.g1, self.g2 = leaf(C, scale=1), leaf(C, scale=1)
        self.b1, self.b2 = leaf(C, scale=0), leaf(C, scale=0)
        self.qkv, self.qkv_bias = leaf(3 * C, C, scale=0.06), leaf(3 * C, scale=0)
        self.out, self.out_bias = leaf(C, C, scale=0.06), leaf(C, scale=0)
        self.up, self.up_bias = leaf(4 * C, C, scale=0.06), leaf(4 * C, scale=0)
        self.down, self.down_bias = leaf(C, 4 * C, scale=0.03), leaf(C, scale=0)
        self.x = leaf(self.B, self.T, C, scale=1)
        self.grad = torch.randn(self.B, self.T, C, device=device)
        self.leaves = [v for v in vars(self).values() if v.requires_grad]

    def forward(self):
        B, T, C, H = self.B, self.T, self.C, self.H
        y = F.layer_norm(self.x, (C,), self.g1, self.b1)
        joint = F.linear(y, self.qkv, self.qkv_bias).view(B, T, 3, H, C // H)
        q, k, v = joint.permute(2, 0, 3, 1, 4)
        y = attend(q, k, v).transpose(1, 2).reshape(B, T, C)
        y = self.x + F.linear(y, self.out, self.out_bias)
        m = F.layer_norm(y, (C,), self.g2, self.b2)
        m = F.gelu(F.linear(m, self.up, self.up_bias))
        return y + F.linear(m, self.down, self.down_bias)

    def step(self):
        with torch.enable_grad():
            self.forward().backward(self.grad)
        for leaf in self.leaves:
            leaf.grad = None

    def step_bf16(self):
        with torch.enable_grad():
            with torch.autocast(device.type, torch.bfloat16):
                y = self.forward()
            y.backward(self.grad.to(y.dtype))
        for leaf in self.leaves:
            leaf.grad = None


def training():
    adam()
    perceptron("dev.mlp_step_64-64-10_b32", [64, 64, 10], 32)
    perceptron("dev.mlp_step_784-512-256-10_b128", [784, 512, 256, 10], sized(128, 2))
    block = Block()
    out("dev.xfmr_block_fwd+bwd_B8T128C256H8", seconds_of(block.step) * 1e6, "us")
    out("dev.xfmr_block_fwd+bwd_bf16", seconds_of(block.step_bf16) * 1e6, "us")


torch.set_grad_enabled(False)
where = torch.cuda.get_device_name(device) if on_gpu else "the CPU"
print(f"# PyTorch {torch.__version__} on {where}")
for part in (launches, flat, rows, moved, products, convolutions, attentions, training):
    part()
