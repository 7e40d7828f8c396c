# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""What operators and a training step cost on a device of libcore, beside torch's CPU.

    bench.py [--device NAME] [--rounds N] [--calls N] [--steps N]

--device: as libcore names it [cpu].  Operators have tensors of one element: their time
is the cost of a call.  Both sides alternate in N rounds [50] of N calls [2000]; a row
gives the least time of a round on both, in nanoseconds a call, and the ratio.  Times are
processor time of the process, since torch runs the backward of a device in a thread.  The last row is a step of the ResNet-18 of examples/ (width 64, 8
pictures of 64 by 64), in milliseconds, the least of N alternating steps [10]; 0 leaves
it out.  One thread on both sides.  On a device with streams a row is the time to
enqueue, and every round ends with a synchronization that is not counted.
"""

import argparse
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("LIBCORE_THREADS", "1")

import torch
import torch.nn.functional as F

import libcore_torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "examples"))
import resnet18


def rows(device):
    """Names of rows, and functions that call the operator once."""
    a, b, m = (torch.ones(size, device=device) for size in (1, 1, (1, 1)))
    out, leaf = torch.empty_like(a), torch.ones(1, device=device,
                                                requires_grad=True)
    return {
        "add": lambda: torch.add(a, b),
        "add of a number": lambda: torch.add(a, 1),
        "add, out=": lambda: torch.add(a, b, out=out),
        "add_": lambda: out.add_(b),
        "mul": lambda: torch.mul(a, b),
        "exp": lambda: torch.exp(a),
        "relu": lambda: torch.relu(a),
        "lt": lambda: torch.lt(a, b),
        "where": lambda: torch.where(a > 0, a, b),
        "sum": lambda: torch.sum(a),
        "softmax": lambda: torch.softmax(m, 1),
        "mm": lambda: torch.mm(m, m),
        "linear": lambda: F.linear(m, m, a),
        "cat": lambda: torch.cat((a, b)),
        "transpose": lambda: m.t(),
        "a[0]": lambda: a[0],
        "empty": lambda: torch.empty(1, device=device),
        "zeros": lambda: torch.zeros(1, device=device),
        "clone": lambda: a.clone(),
        "to(bfloat16)": lambda: a.to(torch.bfloat16),
        "item": lambda: a.item(),
        "mul, recorded": lambda: torch.mul(leaf, b),
        "mul and backward": lambda: torch.autograd.grad(torch.mul(leaf, b),
                                                        leaf),
    }


def finish(device):
    if device.type == "libcore":
        torch.accelerator.synchronize(device)


def time_of(call, count):
    """Seconds of processor time."""
    began = time.process_time_ns()
    for _ in range(count):
        call()
    return (time.process_time_ns() - began) / 1e9


def least(device, sides, rounds, calls):
    times = [[], []]
    for _ in range(rounds):
        for side, (call, where) in enumerate(zip(sides, (torch.device("cpu"),
                                                         device))):
            times[side].append(time_of(call, calls))
            finish(where)
    return [min(side) / calls for side in times]


def training_step(device):
    torch.manual_seed(0)
    model = resnet18.ResNet18().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    images, labels = (part.to(device) for part in resnet18.pictures(8, 64))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        finish(device)
    return step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = libcore_torch.device(options.device)
    libcore_torch.allow_fallback(False)
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, "
          f"libcore's {options.device}")
    line = "{:18} {:>10} {:>10} {:>6}"
    print(line.format("row", "torch", "libcore", "ratio"))
    theirs, ours = rows("cpu"), rows(device)
    for name in theirs:
        a, b = least(device, (theirs[name], ours[name]), options.rounds,
                     options.calls)
        print(line.format(name, f"{a * 1e9:.0f}", f"{b * 1e9:.0f}",
                          f"{b / a:.2f}"), flush=True)
    if options.steps > 0:
        steps = training_step(torch.device("cpu")), training_step(device)
        for step in steps:
            step()
        a, b = least(device, steps, options.steps, 1)
        print(line.format("ResNet-18, ms", f"{a * 1e3:.1f}", f"{b * 1e3:.1f}",
                          f"{b / a:.2f}"))


if __name__ == "__main__":
    main()
