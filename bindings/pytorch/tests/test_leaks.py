# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Steps of training, with copies, views, events, exchanges and errors, do not leave
memory in use, on cpu, sim and opencl: of the C library, which is that of the device
cpu, too, of the device's allocator, and of the process.  LIBCORE_TORCH_STEPS: how many
steps (1,000), after a tenth as many that are not measured."""

import ctypes
import gc
import os
import unittest

import torch
import torch.nn.functional as F

import libcore_torch

STEPS = int(os.environ.get("LIBCORE_TORCH_STEPS", "1000"))
PARTS = 4
MOST = 16  # bytes of a step, half of malloc's smallest block
PAGES = 1 << 16  # bytes by which the process may grow besides
KINDS = "malloc", "allocated", "resident"

DEVICES = [device.device for device in libcore_torch.devices()
           if device.name in ("cpu", "sim", "opencl")]


class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks "
        "keepcost").split()]


def in_use():
    """Bytes that malloc has given out."""
    gc.collect()
    function = ctypes.CDLL(None).mallinfo2
    function.restype = Mallinfo
    now = function()
    return now.uordblks + now.hblkhd


def resident():
    """Bytes of the process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measured():
    """Bytes by KINDS.  The statistics of cpu have no bytes."""
    kept = in_use()
    stats = torch.accelerator.memory_stats()
    return kept, stats.get("allocated_bytes.all.current", 0), resident()


class Steps:
    def __init__(self, device):
        self.device = device
        self.model = torch.nn.Sequential(
            torch.nn.Linear(8, 8), torch.nn.LayerNorm(8),
            torch.nn.Dropout(0.1), torch.nn.Linear(8, 4)).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.stream = torch.Stream(device)

    def step(self):
        x = torch.randn(4, 8).to(self.device, non_blocking=True)
        self.optimizer.zero_grad()
        with torch.autocast("libcore", torch.bfloat16):
            y = self.model(x)
        loss = F.cross_entropy(y.float(), torch.arange(4, device=self.device))
        loss.backward()
        self.optimizer.step()
        event = torch.accelerator.current_stream(self.device).record_event()
        self.stream.wait_event(event)
        with self.stream:
            x.view(-1)[::2].add_(1)
            x.record_stream(self.stream)
        self.stream.synchronize()
        libcore_torch.from_dlpack(x, device=self.device)
        try:
            torch.dot(x[0], x[0, :3])
        except RuntimeError:
            return loss.item()
        raise AssertionError("there was no error")


@unittest.skipUnless(hasattr(ctypes.CDLL(None), "mallinfo2"),
                     "the C library has no mallinfo2")
class Leaks(unittest.TestCase):
    def take(self, steps, count):
        """Freed memory that another stream has used waits, with an event, until
        memory is needed or the statistics are read."""
        for number in range(count):
            steps.step()
            if number % 50 == 0:
                torch.accelerator.memory_stats()
        torch.accelerator.synchronize()
        torch.accelerator.memory_stats()

    def test_steps_leave_no_memory_in_use(self):
        """What is kept once grows in some part of the steps; a leak in each."""
        for device in DEVICES:
            with torch.accelerator.device_index(device.index):
                steps = Steps(device)
                self.take(steps, max(STEPS // 10, 100))
                growth = []
                for _ in range(PARTS):
                    before = measured()
                    self.take(steps, STEPS // PARTS)
                    growth.append([now - then for now, then in
                                   zip(measured(), before)])
            least = dict(zip(KINDS, map(min, zip(*growth))))
            print(f"{device}: {growth} bytes ({', '.join(KINDS)}) in "
                  f"{STEPS // PARTS} steps each", flush=True)
            most = MOST * STEPS // PARTS
            self.assertLess(least["malloc"], most)
            self.assertLessEqual(least["allocated"], 0)
            self.assertLess(least["resident"], most + PAGES)


if __name__ == "__main__":
    unittest.main()
