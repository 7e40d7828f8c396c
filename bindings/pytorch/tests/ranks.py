# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""What each rank of test_distributed.py does.

    ranks.py DEVICE ENGINE TASK...

DEVICE: of libcore, or "gloo" for torch's CPU.  ENGINE: "-" for the default.
Rank 0 prints a line with a result, in JSON, for each task.
"""

import datetime
import json
import math
import os
import sys
import threading

import torch
import torch.distributed as dist
import torch.nn.functional as F

import libcore_torch
from libcore_torch import ProcessGroupOptions


def report(result):
    print("result", json.dumps(result), flush=True)


def device_of(name):
    return torch.device("cpu") if name == "gloo" else libcore_torch.device(name)


def collectives(device):
    """Every collective, with its expected result."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def full(value, *shape, dtype=torch.float32):
        return torch.full(shape, value, dtype=dtype, device=device)

    def check(tensor, expected):
        assert tensor.device == device
        wanted = torch.as_tensor(expected, dtype=tensor.dtype)
        assert torch.equal(tensor.cpu(), wanted.expand_as(tensor)), \
            (tensor, expected)

    every = range(size)
    total = sum(r + 1 for r in every)
    x = full(rank + 1, 3)
    dist.all_reduce(x)
    check(x, total)
    x = full(rank + 1, 3, 2).t()  # not contiguous
    dist.all_reduce(x, dist.ReduceOp.AVG)
    check(x, total / size)
    for operation, expected in ((dist.ReduceOp.MAX, size),
                                (dist.ReduceOp.MIN, 1),
                                (dist.ReduceOp.PRODUCT,
                                 math.factorial(size))):
        for dtype in (torch.int64, torch.bfloat16, torch.float64):
            x = full(rank + 1, 5, dtype=dtype)
            dist.all_reduce(x, operation)
            check(x, expected)
    x = torch.full((2,), 1j).to(device)  # torch makes it real
    dist.all_reduce(x)
    check(x, size * 1j)
    x = full(rank, 4)
    dist.broadcast(x, 1)
    check(x, 1)
    x = full(rank + 1, 2)
    dist.reduce(x, 1)
    check(x, total if rank == 1 else rank + 1)
    parts = [full(-1, 2) for _ in every]
    dist.all_gather(parts, full(rank, 2))
    for r in every:
        check(parts[r], r)
    parts = [full(-1, r + 1) for r in every]  # of different sizes
    dist.all_gather(parts, full(rank, rank + 1))
    for r in every:
        check(parts[r], r)
    x = full(-1, size, 2)
    dist.all_gather_into_tensor(x, full(rank, 2))
    check(x, torch.arange(size).view(size, 1))
    parts = [full(-1, 2) for _ in every] if rank == 1 else None
    dist.gather(full(rank, 2), parts, 1)
    for r in every if parts else ():
        check(parts[r], r)
    x = full(-1, 2)
    dist.scatter(x, [full(r, 2) for r in every] if rank == 0 else None, 0)
    check(x, rank)
    x = full(-1, 2)
    dist.reduce_scatter(x, [full(r + rank, 2) for r in every])
    check(x, sum(rank + r for r in every))
    x = full(-1, rank + 1)
    dist.reduce_scatter(x, [full(r + rank, r + 1) for r in every])
    check(x, sum(rank + r for r in every))
    x = full(-1, 1, 2)
    dist.reduce_scatter_tensor(x, torch.arange(size * 2.0, device=device
                                               ).view(size, 2))
    check(x, torch.arange(2.0) * size + 2 * rank * size)
    x = full(-1, size)
    dist.all_to_all_single(x, torch.arange(float(size), device=device)
                           + 10 * rank)
    check(x, [10 * r + rank for r in every])
    rows = [r + 1 for r in every]  # to rank r
    x = full(-1, size * (rank + 1), 2)
    dist.all_to_all_single(x, full(rank, sum(rows), 2), [rank + 1] * size, rows)
    check(x[:, 0], torch.arange(size).repeat_interleave(rank + 1))
    parts = [full(-1, 3) for _ in every]
    dist.all_to_all(parts, [full(10 * rank + r, 3) for r in every])
    for r in every:
        check(parts[r], 10 * r + rank)
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in every]
    x = full(-1, 3)
    work = dist.irecv(x, 1) if rank == 0 else dist.isend(full(7, 3), 0)
    if rank < 2:
        work.wait()
    check(x, 7 if rank == 0 else -1)
    x = full(-1, 100000)
    for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, full(rank, 100000), (rank + 1) % size),
             dist.P2POp(dist.irecv, x, (rank - 1) % size)]):
        work.wait()
    check(x, (rank - 1) % size)
    with torch.Stream(device):  # another than the collective's
        x = full(rank, 1000)
        work = dist.all_reduce(x, async_op=True)
    assert work.wait(datetime.timedelta(seconds=100)) and work.is_completed()
    check(x, sum(every))
    x = dist.all_reduce(full(2, 3), async_op=True).get_future().wait()[0]
    check(x, 2 * size)
    x = full(rank + 1, 3)
    with dist.distributed_c10d._coalescing_manager(device=device,
                                                   async_ops=True) as batch:
        dist.all_reduce(x)
    batch.wait()
    check(x, total)
    dist.barrier()
    return {"fallbacks": libcore_torch.fallbacks()}


def error_of(call):
    """The first line of the error of a call."""
    try:
        call()
    except (RuntimeError, ValueError, NotImplementedError) as error:
        return str(error).splitlines()[0]
    return None


def exchange(device, tag=0):
    """What a batch of a transfer to and from the other rank receives."""
    other, x = 1 - dist.get_rank(), torch.zeros(2, device=device)
    for work in dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, torch.full_like(x, other + 1), other,
                        tag=tag), dist.P2POp(dist.irecv, x, other, tag=tag)]):
        work.wait()
    return x.tolist()


def ended(device):
    """Groups after their end, and errors that were not reported before."""
    x = torch.ones(3, device=device)
    group = dist.new_group([0, 1])
    dist.all_reduce(x, group=group)
    backend = group._get_backend(device)
    backend.shutdown()
    seen = [error_of(lambda: dist.all_reduce(x, group=group))]
    group = dist.new_group([0, 1])
    other = torch.ones(3 + dist.get_rank(), device=device)
    if device.index != 0:  # which has streams
        work = dist.all_reduce(other, group=group, async_op=True)
        torch.accelerator.synchronize(device)
        seen.append(error_of(lambda: work.get_future().wait()))
        group = dist.new_group([0, 1])
        dist.all_reduce(other, group=group, async_op=True)
        seen.append(error_of(lambda: dist.destroy_process_group(group)))
        dist.destroy_process_group(group)  # which has been told
    return seen


def several(device):
    """A group whose communicators of two devices have failed."""
    group = dist.new_group([0, 1], pg_options=ProcessGroupOptions("sockets"))
    second = libcore_torch.device(libcore_torch.devices()[device.index].type
                                  + ":1")
    for one in (device, second):
        with torch.accelerator.device_index(one.index):
            dist.all_reduce(torch.ones(3 + dist.get_rank(), device=one),
                            group=group, async_op=True)
    message = error_of(lambda: dist.destroy_process_group(group))
    dist.destroy_process_group(group)  # which has been told
    return message


def abandoned(device):
    """Calls after batches in which something else than a call has failed."""
    rank = dist.get_rank()
    x = torch.full((2,), rank + 1.0, device=device)
    for batch, call in ((device, lambda: dist.isend(x, 1 - rank)),
                        (None, lambda: dist.all_reduce(x))):
        try:
            with dist.distributed_c10d._coalescing_manager(device=batch):
                call()
                raise KeyError
        except KeyError:
            pass
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
    dist.all_reduce(x)
    return x.tolist()


def sum_of_one(device):
    """Of a group of one rank, whose device has no kernels."""
    x = torch.tensor([2.0, 3.0]).to(device)
    dist.all_reduce(x)
    return x.cpu().tolist()


def errors(device):
    """What is refused, and a failed group."""
    x = torch.ones(3, device=device)
    seen = []
    for wrong in (lambda: dist.all_reduce(x.int(), dist.ReduceOp.BAND),
                  lambda: dist.all_reduce(x.to(torch.uint16)),
                  lambda: dist.send(x, 1 - dist.get_rank(), tag=3),
                  lambda: dist.recv(x),
                  lambda: dist.all_reduce(torch.ones(3)),
                  lambda: dist.all_gather_into_tensor(x, x),
                  lambda: dist.all_to_all_single(x, x, [1, 1], [2, 1]),
                  lambda: exchange(device, tag=3),
                  lambda: dist.all_to_all_single(
                      torch.ones(2, 4, device=device),
                      torch.ones(2, 1, device=device)),
                  lambda: dist.all_gather([x.repeat(2), x.clone()], x[:1])):
        seen.append(error_of(wrong))
    assert exchange(device) == [dist.get_rank() + 1] * 2

    def differ():  # the ranks make different calls
        dist.all_reduce(torch.ones(3 + dist.get_rank(), device=device))
        torch.accelerator.synchronize(device)
        dist.barrier()

    return seen + [error_of(differ)]


def failures(device, engine="sockets"):
    """Ranks that stay away from a collective of a group that has worked, within
    the timeout and until another thread aborts the group."""
    store, seen = dist.distributed_c10d._get_default_store(), []
    x = torch.ones(3, device=device)
    group = dist.new_group([0, 1], pg_options=ProcessGroupOptions(engine))
    dist.all_reduce(x, group=group)
    dist.group.WORLD.set_timeout(datetime.timedelta(seconds=2))
    dist.all_reduce(x)
    if dist.get_rank() == 1:
        store.wait(["seen"])
        store.set("left", "")
        os._exit(0)
    seen.append(error_of(lambda: dist.all_reduce(x)))
    aborting = threading.Thread(target=group.abort)
    aborting.start()
    seen.append(error_of(lambda: dist.all_reduce(x, group=group)))
    aborting.join()
    seen.append(error_of(lambda: dist.all_reduce(x, group=group)))
    report(seen)
    store.set("seen", "")
    store.wait(["left"])  # rank 0 serves the store
    os._exit(0)


def train(device):
    """DDP on the two halves of each batch."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)  # DDP copies the weights of rank 0
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(),
                                torch.nn.BatchNorm1d(16),
                                torch.nn.Linear(16, 4)).to(device)
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    torch.manual_seed(5)
    inputs, labels = torch.randn(10, 16, 8), torch.randint(0, 4, (10, 16))
    part, losses = slice(rank * 16 // size, (rank + 1) * 16 // size), []
    for batch, label in zip(inputs[:, part].to(device),
                            labels[:, part].to(device)):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch), label)
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach(), dist.ReduceOp.SUM)
        losses.append(loss.item() / size)
    weights = torch.cat([one.detach().flatten() for one in model.parameters()])
    others = [torch.empty_like(weights) for _ in range(size)]
    dist.all_gather(others, weights)
    assert all(torch.equal(other, weights) for other in others)
    return {"losses": losses, "weights": weights.tolist(),
            "fallbacks": libcore_torch.fallbacks()}


def main():
    name, engine, *tasks = sys.argv[1:]
    device = device_of(name)
    if name == "gloo":
        dist.init_process_group("gloo")
    else:
        torch.accelerator.set_device_index(device.index)
        dist.init_process_group(
            "libcore", timeout=datetime.timedelta(seconds=120),
            pg_options=None if engine == "-" else ProcessGroupOptions(engine))
    for task in tasks:
        result = globals()[task](device)
        if dist.get_rank() == 0:
            report(result)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
