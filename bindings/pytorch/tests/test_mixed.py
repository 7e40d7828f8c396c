# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Calls with tensors of several devices: torch's own CPU, cpu and sim.  What torch's
other devices refuse is an exception, and changes nothing."""

import unittest

import torch

import libcore_torch

DEVICES = [device.device for device in libcore_torch.devices()
           if device.name in ("cpu", "sim")]
PAIRS = [(one, other) for one in DEVICES for other in DEVICES if one != other]
MIXED = "Expected all tensors to be on the same device, but found at least two " \
        "devices, "
INDEXED = r"indices should be either on cpu or on the same device as the indexed " \
          r"tensor \(cpu\)"


class Mixed(unittest.TestCase):
    def refused(self, message, function, *written):
        """The tensors of torch's CPU that would be written stay as they are."""
        before = [one.clone() for one in written]
        with self.assertRaisesRegex(RuntimeError, message):
            function(*written)
        for one, kept in zip(written, before):
            self.assertTrue(torch.equal(one, kept))

    def test_operators_do_not_write_to_the_cpu(self):
        for device in DEVICES:
            x = torch.arange(1.0, 4.0, device=device)
            total, number = x.sum(), torch.tensor(2.0)
            for function in (
                    lambda a: a.add_(total), lambda a: a.mul_(total),
                    lambda a: a.div_(total), lambda a: a.copysign_(total),
                    lambda a: torch._foreach_add_([a], [total]),
                    lambda a: torch._foreach_mul_([a], total),
                    lambda a: torch.add(total, total, out=a),
                    lambda a: torch.add(x, x, out=a),
                    lambda a: torch.add(x, number, out=a),
                    lambda a: torch.sum(x, 0, out=a),
                    lambda a: torch.linalg.eigvals(x.diag(), out=a),
                    lambda a: torch.abs(x, out=a)):
                self.refused(MIXED, function, torch.tensor(0.0))
                self.refused(MIXED, function, torch.empty(0))
            self.refused(MIXED, lambda a: torch.add(x, x, out=a), torch.ones(3))
            self.refused(MIXED, lambda v, i: torch.max(x, 0, out=(v, i)),
                         torch.tensor(0.0), torch.tensor(0))
            self.refused(MIXED, lambda i: torch.max(
                x, 0, out=(torch.empty((), device=device), i)), torch.tensor(0))
        self.assertEqual(number.item(), 2)

    def test_an_index_of_a_device_does_not_write_to_the_cpu(self):
        for device in DEVICES:
            index = torch.tensor([1], device=device)
            one = torch.ones(1, device=device)

            def assign(a):
                a[index] = 5

            self.refused(INDEXED, assign, torch.zeros(3))
            self.refused(INDEXED, lambda a: a[index], torch.zeros(3))
            self.refused(INDEXED, lambda a: a.index_put_(
                (index,), torch.tensor(5.0)), torch.zeros(3))
            for function in (lambda a: a.index_add_(0, index, one),
                             lambda a: a.index_copy_(0, index, one),
                             lambda a: a.index_fill_(0, index, 5),
                             lambda a: a.scatter_(0, index, one),
                             lambda a: torch.index_select(
                                 torch.ones(3, device=device), 0, index,
                                 out=a),
                             lambda a: a.index_select(0, index)):
                self.refused(MIXED, function, torch.zeros(3))

    def test_indices_may_be_on_the_cpu_and_nothing_else(self):
        index = torch.tensor([2, 0])
        for device in DEVICES:
            x = torch.arange(3.0, device=device)
            self.assertEqual(x[index].tolist(), [2, 0])
            x[index] = 7
            self.assertEqual(x.tolist(), [7, 1, 7])
            x[index] = torch.tensor(8.0)
            self.assertEqual(x.tolist(), [8, 1, 8])

            def assign(values):
                x[index] = values

            self.refused(MIXED, assign, torch.ones(2))
            there = index.to(device)
            for function in (lambda a: x.index_add_(0, there, a),
                             lambda a: x.index_copy_(0, there, a),
                             lambda a: x.index_add(0, index, x[:2]),
                             lambda a: x.index_select(0, index),
                             lambda a: x.gather(0, index)):
                self.refused(MIXED, function, torch.ones(2))
            self.assertEqual(x.tolist(), [8, 1, 8])

    def test_operands_of_two_devices_are_refused(self):
        mixed = f"{MIXED}|fft expects out tensor on device|[Aa]ttempted to set"
        for device, other in PAIRS + [(one, torch.device("cpu"))
                                      for one in DEVICES]:
            x, y = torch.ones(3, device=device), torch.ones(3, device=other)
            z, w = x.to(torch.complex64), y.to(torch.complex64)
            for function in (
                    lambda: x + y, lambda: y + x, lambda: x.add_(y),
                    lambda: torch.cat([x, y]), lambda: torch.where(x > 0, x, y),
                    lambda: torch._foreach_add([x], [y]),
                    lambda: torch.complex(x, y), lambda: torch.polar(y, x),
                    lambda: torch.complex(x, x, out=w),
                    lambda: z + w, lambda: z.mul_(w), lambda: w.mul_(z),
                    lambda: torch.fft.fft(x, out=w),
                    lambda: torch.add(x, x, out=y),
                    lambda: torch.add(x, x, out=y[:0].clone()),
                    lambda: x.set_(y), lambda: x.set_(y.untyped_storage()),
                    lambda: torch.nn.functional.linear(x, y.view(1, 3)),
                    lambda: torch.nn.functional.layer_norm(x, (3,), y)):
                with self.assertRaisesRegex(RuntimeError, mixed):
                    function()
            self.assertEqual([x.tolist(), y.tolist()], [[1] * 3] * 2)
            self.assertEqual(z.tolist(), w.tolist())

    def test_devices_exchange_by_copies(self):
        for device, other in PAIRS:
            x = torch.arange(3.0, device=device)
            y = torch.zeros(3, device=other)
            y.copy_(x)
            self.assertEqual(y.tolist(), [0, 1, 2])
            self.assertEqual(x.to(other, torch.int64).tolist(), [0, 1, 2])
            x[1:] = y[:2]
            self.assertEqual(x.tolist(), [0, 0, 1])

    def test_numbers_of_the_cpu_are_operands(self):
        number = torch.tensor(2.0)
        for device in DEVICES:
            x = torch.arange(3.0, device=device)
            self.assertEqual((x * number).tolist(), [0, 2, 4])
            self.assertEqual((number - x).tolist(), [2, 1, 0])
            self.assertEqual(x.add_(number).tolist(), [2, 3, 4])
            self.assertEqual(torch._foreach_mul([x], number)[0].tolist(),
                             [4, 6, 8])
            self.assertEqual(torch._foreach_addcmul(
                [x, x], [x, x], [x, x], torch.tensor([1.0, 0.0]))[0].tolist(),
                [6, 12, 20])
            self.assertEqual((x.to(torch.complex64) + number).tolist(),
                             [4, 5, 6])

    def test_what_takes_tensors_of_several_devices_gets_them(self):
        library = torch.library.Library("libcore_mixed", "DEF")
        library.define("first(Tensor x, Tensor lengths) -> Tensor")
        library.impl("first", lambda x, lengths: x[:int(lengths[1])].clone(),
                     "CPU")
        for device in DEVICES:
            x = torch.arange(3.0, device=device)
            self.assertFalse(x.is_set_to(torch.arange(3.0)))
            have = torch.ops.libcore_mixed.first(x, torch.tensor([0, 2]))
            self.assertEqual((have.device, have.tolist()), (device, [0, 1]))

    def test_sequences_are_packed_by_lengths_on_the_cpu(self):
        for device in DEVICES:
            x = torch.arange(6.0).view(3, 2, 1)
            packed = torch.nn.utils.rnn.pack_padded_sequence(
                x.to(device), torch.tensor([3, 1]))
            self.assertEqual(packed.data.device, device)
            self.assertEqual(packed.data.flatten().tolist(), [0, 1, 2, 4])
            model = torch.nn.LSTM(1, 2)
            expected = model(torch.nn.utils.rnn.pack_padded_sequence(
                x, torch.tensor([3, 1])))[0].data
            have = model.to(device)(packed)[0].data
            torch.testing.assert_close(have.cpu(), expected)

    def test_generators_are_of_the_device(self):
        for device in DEVICES:
            others = [torch.Generator("cpu")] + [
                torch.Generator(other) for one, other in PAIRS if one == device]
            for other in others:
                for function in (
                        lambda: torch.rand(3, device=device, generator=other),
                        lambda: torch.randint(9, (), device=device,
                                              generator=other),
                        lambda: torch.randperm(5, device=device,
                                               generator=other),
                        lambda: torch.ones(3, device=device).multinomial(
                            2, generator=other),
                        lambda: torch.ones((), device=device).normal_(
                            generator=other)):
                    with self.assertRaisesRegex(
                            RuntimeError, f"[Ee]xpected a generator of {device} "
                                          f"but found one of {other.device}"):
                        function()
            own = torch.Generator(device)
            for shape in (), (3,):
                with self.assertRaisesRegex(
                        RuntimeError, f"Expected a generator of cpu but found "
                                      f"one of {device}"):
                    torch.rand(shape, generator=own)


if __name__ == "__main__":
    unittest.main()
