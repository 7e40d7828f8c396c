# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""A quick test of the devices for PyTorch, on cpu, sim and opencl."""

import copy
import unittest

import torch
import torch.nn.functional as F

import libcore_torch

DEVICES = [device.device for device in libcore_torch.devices()
           if device.name in ("cpu", "sim", "opencl")]


def losses(model, inputs, labels, steps=20):
    """The losses of some steps of Adam."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    result = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        result.append(loss.item())
    return result


class Smoke(unittest.TestCase):
    def setUp(self):
        libcore_torch.reset_fallbacks()

    def test_devices_are_found_by_name(self):
        self.assertEqual(libcore_torch.device("cpu").type, "libcore")
        self.assertEqual(libcore_torch.device("cpu:0"),
                         libcore_torch.device("cpu"))
        with self.assertRaisesRegex(ValueError, "no device 'absent'"):
            libcore_torch.device("absent")

    def test_copies_return_the_same_numbers(self):
        numbers = torch.randn(3, 4)
        for device in DEVICES:
            there = numbers.to(device)
            self.assertTrue(torch.equal(there.cpu(), numbers))
            self.assertTrue(torch.equal(there.t()[1:].cpu(), numbers.t()[1:]))
            self.assertTrue(torch.equal(there.double().cpu(),
                                        numbers.double()))

    def test_conjugated_and_negated_views_are_copied(self):
        numbers = torch.randn(4, dtype=torch.complex64)
        for device in DEVICES:
            there = numbers.to(device).conj()
            self.assertTrue(torch.equal(there.cpu(), numbers.conj()))
            part = numbers.conj().imag
            self.assertTrue(part.is_neg())
            self.assertTrue(torch.equal(part.to(device).cpu(), part))

    def test_resize_keeps_the_elements(self):
        for device in DEVICES:
            tensor = torch.arange(4.0, device=device)
            tensor.resize_(8)
            self.assertEqual(tensor[:4].tolist(), [0, 1, 2, 3])

    def test_out_tensors_are_resized(self):
        for device in DEVICES:
            out = torch.empty(0, device=device)
            torch.add(torch.ones(3, device=device), 1, out=out)
            self.assertEqual(out.tolist(), [2, 2, 2])

    def test_seeds_repeat_numbers(self):
        for device in DEVICES:
            torch.manual_seed(3)
            first = torch.rand(5, device=device)
            torch.manual_seed(3)
            self.assertTrue(torch.equal(first, torch.rand(5, device=device)))

    def test_errors_have_the_message_of_libcore(self):
        for device in DEVICES:
            with self.assertRaisesRegex(RuntimeError, "dot: self has sizes"):
                torch.dot(torch.ones(2, device=device),
                          torch.ones(3, device=device))
        with self.assertRaisesRegex(RuntimeError, "on the same device"):
            torch.ones(2, device=DEVICES[0]) + torch.ones(2)

    def test_fallbacks_are_counted_and_can_be_refused(self):
        numbers = torch.ones(4, device=DEVICES[0])
        torch.fft.rfft(numbers)
        self.assertEqual(libcore_torch.fallbacks(), {"aten::_fft_r2c": 1})
        libcore_torch.allow_fallback(False)
        try:
            with self.assertRaisesRegex(NotImplementedError, "_fft_r2c"):
                torch.fft.rfft(numbers)
        finally:
            libcore_torch.allow_fallback(True)

    def test_streams_and_events_order_work(self):
        for device in DEVICES:
            stream = torch.Stream(device)
            with stream:
                numbers = torch.ones(1000, device=device) + 1
                event = stream.record_event()
            torch.accelerator.current_stream(device).wait_event(event)
            self.assertEqual(numbers.sum().item(), 2000)

    def test_a_network_trains_to_the_losses_of_the_cpu(self):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(),
                                    torch.nn.LayerNorm(16),
                                    torch.nn.Linear(16, 4))
        inputs, labels = torch.randn(32, 8), torch.randint(0, 4, (32,))
        models = [copy.deepcopy(model).to(device) for device in DEVICES]
        expected = losses(model, inputs, labels)
        for device, there in zip(DEVICES, models):
            have = losses(there, inputs.to(device), labels.to(device))
            torch.testing.assert_close(have, expected, rtol=1e-4, atol=1e-5)
        self.assertEqual(libcore_torch.fallbacks(), {})


if __name__ == "__main__":
    unittest.main()
