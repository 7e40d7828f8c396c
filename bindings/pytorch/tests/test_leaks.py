# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Steps of training, with copies, views, events, exchanges and errors, do not make
the process larger, on cpu, sim and opencl.  LIBCORE_TORCH_STEPS: how many steps
(1,000), after a tenth as many that are not measured."""

import os
import unittest

import torch
import torch.nn.functional as F

import libcore_torch

STEPS = int(os.environ.get("LIBCORE_TORCH_STEPS", "1000"))
MOST = 2 << 20  # bytes: less than 2,100 in each step

DEVICES = [device.device for device in libcore_torch.devices()
           if device.name in ("cpu", "sim", "opencl")]


def resident():
    """Bytes of the process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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


class Leaks(unittest.TestCase):
    def test_steps_do_not_grow_the_process(self):
        for device in DEVICES:
            with torch.accelerator.device_index(device.index):
                steps = Steps(device)
                for _ in range(max(STEPS // 10, 100)):
                    steps.step()
                before = resident()
                for _ in range(STEPS):
                    steps.step()
                growth = resident() - before
            print(f"{device}: {growth} bytes in {STEPS} steps")
            self.assertLess(growth, MOST)


if __name__ == "__main__":
    unittest.main()
