# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""The examples in ../examples on cpu, sim and opencl: the losses are those of
torch's CPU, and nothing falls back to it.

In f64 they agree closely: every operator computes the same.  In f32 training
enlarges the errors of rounding."""

import os
import sys
import unittest

import torch

import libcore_torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                os.pardir, "examples"))
import gpt  # noqa: E402
import resnet18  # noqa: E402

DEVICES = [device.device for device in libcore_torch.devices()
           if device.name in ("cpu", "sim", "opencl")]


class Examples(unittest.TestCase):
    def setUp(self):
        libcore_torch.reset_fallbacks()

    def tearDown(self):
        torch.set_default_dtype(torch.float32)

    def compare(self, train):
        for dtype, bound in (torch.float64, 1e-9), (torch.float32, 1e-2):
            torch.set_default_dtype(dtype)
            expected = train(torch.device("cpu"))
            for device in DEVICES:
                torch.testing.assert_close(train(device), expected, rtol=bound,
                                           atol=bound)
        self.assertEqual(libcore_torch.fallbacks(), {})
        self.assertLess(expected[-1], expected[0] - 0.3)

    def test_resnet18(self):
        self.compare(lambda device: resnet18.train(
            device, width=4, size=64, batch=16, steps=5))

    def test_gpt(self):
        self.compare(lambda device: gpt.Training(
            device, width=32, length=32).run(batch=4, steps=12))

    def test_the_gpt_writes_text(self):
        for device in DEVICES:
            text = gpt.Training(device, width=32, length=16).write(20)
            self.assertEqual(len(text), 20)


if __name__ == "__main__":
    unittest.main()
