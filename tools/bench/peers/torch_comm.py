#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""Measures the rows of `core-bench comm` with PyTorch on gloo (bench-vs-torch comm).

    torch_comm.py [--ranks N] [--trial]

Starts N processes, which all_reduce as core-bench does, and train its model with
DistributedDataParallel: comm.step_reducer_32MB.  Each row is the fastest of 15
repeats.  --trial calls everything once, as a check that it runs.
"""
import argparse
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel

LAYERS, WIDTH, ROWS, REPEATS = 8, 1024, 16, 15


def fastest(row, calls, trial):
    """Seconds of a call; all ranks make as many."""
    least = float("inf")
    for _ in range(1 if trial else REPEATS):
        dist.barrier()
        row()
        begin = time.perf_counter()
        for _ in range(1 if trial else calls):
            row()
        least = min(least, (time.perf_counter() - begin) / (1 if trial else calls))
    return least


def model():
    layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
    for layer in layers:
        torch.nn.init.constant_(layer.weight, 1 / WIDTH)
    return torch.nn.Sequential(*layers)


def step(network):
    sample = torch.ones(ROWS, WIDTH)

    def row():
        for parameter in network.parameters():
            parameter.grad = None
        network(sample).sum().backward()

    return row


def run(rank, ranks, store, trial):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method="file://" + store, rank=rank, world_size=ranks
    )
    rows = {}
    for name, count, calls in (
        ("4KB", 1 << 10, 200),
        ("1MB", 1 << 18, 20),
        ("64MB", 1 << 24, 1),
    ):
        numbers = torch.zeros(count)
        rows["all_reduce_" + name] = fastest(
            lambda: dist.all_reduce(numbers), calls, trial
        )
    rows["step_reducer_32MB"] = fastest(
        step(DistributedDataParallel(model())), 2, trial
    )
    rows["step_alone"] = fastest(step(model()), 2, trial)
    if rank == 0:
        for name, seconds in rows.items():
            print(f"comm.{name}/{ranks} {seconds * 1e6:.3f} us")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--trial", action="store_true")
    options = parser.parse_args()
    print(f"# PyTorch {torch.__version__}, gloo", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(
            run,
            (options.ranks, os.path.join(folder, "store"), options.trial),
            options.ranks,
        )


if __name__ == "__main__":
    main()
