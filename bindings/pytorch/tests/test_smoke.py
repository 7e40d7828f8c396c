# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""A quick test of the devices for PyTorch, on cpu, sim and opencl."""

import copy
import unittest
import warnings

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
        with self.assertRaisesRegex(
                ValueError, "no device 'absent'; the devices are .*cpu.*; "
                            'no device "absent": no plugin provides it'):
            libcore_torch.device("absent")
        with self.assertRaisesRegex(ValueError, 'device "cpu:7" does not exist'):
            libcore_torch.device("cpu:7")

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

    def test_complex_numbers_are_converted_by_the_devices(self):
        real, whole = torch.randn(3, 4), torch.arange(3)
        numbers = torch.randn(3, 4, dtype=torch.complex64)
        numbers[0, 0], numbers[1, 1] = 0, 2j
        half = torch.complex32
        libcore_torch.allow_fallback(False)
        try:
            for device in DEVICES:
                there = numbers.to(device)
                self.assertTrue(torch.equal(
                    torch.view_as_real(there.to(half).cpu()),
                    torch.view_as_real(numbers.to(half))))
                for dtype in torch.complex64, torch.complex128:
                    self.assertTrue(torch.equal(real.to(device).to(dtype).cpu(),
                                                real.to(dtype)))
                    self.assertTrue(torch.equal(whole.to(device).to(dtype).cpu(),
                                                whole.to(dtype)))
                    for view in (lambda x: x, lambda x: x.conj(),
                                 lambda x: x.t()[1:], lambda x: x.conj()[:, 2],
                                 lambda x: x[1].conj().expand(2, 4)):
                        have, expected = view(there), view(numbers)
                        self.assertTrue(torch.equal(
                            have.to(dtype).cpu().resolve_conj(),
                            expected.to(dtype).resolve_conj()))
                        self.assertTrue(torch.equal(
                            have.to("cpu", dtype), expected.to(dtype)))
                self.assertEqual(there.bool().tolist(), numbers.bool().tolist())
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self.assertTrue(torch.equal(there.conj().double().cpu(),
                                                numbers.conj().double()))
                self.assertEqual(there[1, 1].item(), 2j)
        finally:
            libcore_torch.allow_fallback(True)
        self.assertEqual(libcore_torch.fallbacks(), {})

    def test_views_of_complex_tensors_change_them(self):
        numbers = torch.randn(3, 4, dtype=torch.complex64)
        for device in DEVICES:
            results = []
            for where in "cpu", device:
                x = numbers.to(where, copy=True)
                x.real.add_(1)
                x.imag[1] = 5
                x.conj().imag.mul_(2)
                torch.view_as_real(x)[0, 1] = 7
                x.conj()[2, :2].copy_(x[0, :2])
                x[:, 3].copy_(x.conj()[:, 0])
                pairs = torch.arange(4.0, device=where).view(2, 2)
                torch.view_as_complex(pairs).imag.zero_()
                results.append([x.cpu(), torch.view_as_real(x).cpu(),
                                x.conj().cpu(), pairs.cpu()])
            for one, other in zip(*results):
                torch.testing.assert_close(one, other)
        self.assertEqual(libcore_torch.fallbacks(), {})

    def test_conjugated_numbers_arrive_in_pinned_memory(self):
        """Also if the caller does not wait, after other work of the stream."""
        numbers = torch.randn(1 << 16, dtype=torch.complex64)
        for device in DEVICES:
            with torch.accelerator.device_index(device.index):
                x, busy = numbers.to(device), torch.ones(300, 300, device=device)
                for there in torch.zeros_like(numbers).pin_memory(), \
                        torch.zeros_like(numbers).pin_memory().conj():
                    for _ in range(8):
                        busy = busy @ busy * 1e-3
                    there.copy_(x.conj(), non_blocking=True)
                    torch.accelerator.synchronize()
                    self.assertTrue(torch.equal(there.resolve_conj(),
                                                numbers.conj().resolve_conj()))

    def test_negated_views_take_numbers_without_a_sign(self):
        for device in DEVICES:
            for source in (torch.tensor([1, 2, 200], dtype=torch.uint8),
                           torch.tensor([1, 2, -128], dtype=torch.int8),
                           torch.tensor([True, False, True])):
                results = []
                for where in "cpu", device:
                    z = torch.zeros(3, dtype=torch.complex64, device=where)
                    z.conj().imag.copy_(source.to(where))
                    results.append(z.cpu())
                self.assertTrue(torch.equal(*results), source)

    def test_conversions_on_the_cpu_are_counted_and_can_be_refused(self):
        for device in DEVICES:
            libcore_torch.reset_fallbacks()
            x = torch.arange(3.0).to(device)
            whole = x.to(torch.uint16)
            self.assertEqual(libcore_torch.fallbacks(), {"aten::_copy_from": 1})
            # Copies without computation are none.
            self.assertEqual(whole.clone().cpu().tolist(), [0, 1, 2])
            self.assertEqual(whole[1].item(), 1)
            self.assertEqual(libcore_torch.fallbacks(), {"aten::_copy_from": 1})
            libcore_torch.allow_fallback(False)
            try:
                with self.assertRaisesRegex(NotImplementedError, "_copy_from"):
                    whole.to(torch.float32)
                with self.assertRaisesRegex(NotImplementedError, "_copy_from"):
                    x.to(torch.uint32)
            finally:
                libcore_torch.allow_fallback(True)
            self.assertEqual(whole.float().tolist(), [0, 1, 2])

    def test_copies_of_other_sizes_are_errors(self):
        for device in DEVICES:
            for size in (0,), (2, 0), (3,):
                with self.assertRaisesRegex(
                        RuntimeError, "must (match|be greater or equal)"):
                    torch.empty(size, device=device).copy_(torch.ones(2, 2))

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
