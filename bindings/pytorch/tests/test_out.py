# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Tensors that are given for results: their sizes, their dtypes, and lists of them,
on cpu and sim."""

import unittest
import warnings

import torch

import libcore_torch

DEVICES = [device.device for device in libcore_torch.devices()
           if device.name in ("cpu", "sim")]
RESIZED = "An output with one or more elements was resized"


class Out(unittest.TestCase):
    def setUp(self):
        libcore_torch.reset_fallbacks()

    def normalize(self, device, sizes, training=True):
        """Batch normalization into tensors of these sizes."""
        x = torch.arange(12.0).view(4, 3).square().to(device)
        weight = torch.arange(1.0, 4.0).to(device)
        mean = torch.zeros(3, device=device)
        variance = torch.ones(3, device=device)
        outs = [torch.full(size, -1.0, device=device) for size in sizes]
        returned = torch.ops.aten._native_batch_norm_legit.out(
            x, weight, None, mean, variance, training, 0.5, 1e-5, out=outs[0],
            save_mean=outs[1], save_invstd=outs[2])
        for one, other in zip(returned, outs, strict=True):
            self.assertIs(one, other)
        return [one.cpu() for one in (mean, variance, *outs)]

    def test_running_statistics_do_not_hide_which_tensors_are_resized(self):
        fitting, empty = [(4, 3), (3,), (3,)], [(0,)] * 3
        expected = self.normalize("cpu", fitting)
        for device in DEVICES:
            for sizes in (fitting, empty, [(4, 3), (0,), (3,)]):
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    have = self.normalize(device, sizes)
                torch.testing.assert_close(have, expected)
            with self.assertWarnsRegex(UserWarning, RESIZED):
                have = self.normalize(device, [(2, 2), (7,), (3,)])
            torch.testing.assert_close(have, expected)
        self.assertEqual(libcore_torch.fallbacks(), {})

    def test_ranges_fill_tensors_of_as_many_elements(self):
        for device in DEVICES:
            out = torch.zeros(2, 3, dtype=torch.int64, device=device)
            self.assertIs(torch.arange(6, out=out), out)
            self.assertEqual(out.tolist(), [[0, 1, 2], [3, 4, 5]])
            out = torch.zeros(3, 2, device=device).t()
            torch.linspace(0, 5, 6, out=out)
            self.assertEqual(out.tolist(), [[0, 1, 2], [3, 4, 5]])

    def test_wrong_sizes_are_resized_with_a_warning(self):
        for device in DEVICES:
            x = torch.arange(4.0, device=device)
            out = torch.zeros(2, device=device)
            with self.assertWarnsRegex(UserWarning, RESIZED):
                torch.add(x, x, out=out)
            self.assertEqual(out.tolist(), [0, 2, 4, 6])
            values, indices = out[:3], torch.zeros(2, 2, dtype=torch.int64,
                                                   device=device)
            with self.assertWarnsRegex(UserWarning, RESIZED):
                torch.sort(x, descending=True, out=(values, indices))
            self.assertEqual(values.tolist(), [3, 2, 1, 0])
            self.assertEqual(indices.tolist(), [3, 2, 1, 0])

    def test_lists_are_written(self):
        for device in DEVICES:
            x = torch.arange(6.0, device=device).view(3, 2)

            def make(*sizes, dtype=torch.float32):
                return [torch.full(size, -1, dtype=dtype, device=device)
                        for size in sizes]

            for sizes in (((1, 2), (2, 2)), ((0,), (0,)), ((1, 2), (0,))):
                outs = make(*sizes)
                torch.split_with_sizes_copy(x, [1, 2], out=outs)
                self.assertEqual([one.tolist() for one in outs],
                                 [[[0, 1]], [[2, 3], [4, 5]]])
                outs = make(*sizes, (0,))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    torch.unbind_copy(x, out=outs)
                self.assertEqual([one.tolist() for one in outs],
                                 [[0, 1], [2, 3], [4, 5]])
            outs = make((0,), (0,), dtype=torch.float64)
            torch.split_with_sizes_copy(x, [2, 1], out=outs)
            self.assertEqual(outs[0].dtype, torch.float64)
            self.assertEqual(outs[1].tolist(), [[4, 5]])
            outs = make((2,), (5,))
            with self.assertWarnsRegex(UserWarning, RESIZED):
                torch.unbind_copy(x, 1, out=outs)
            self.assertEqual(outs[1].tolist(), [1, 3, 5])
            with self.assertRaisesRegex(
                    RuntimeError, "expected an out= argument of size 3, got "
                                  "size 2"):
                torch.unbind_copy(x, out=outs)
            with self.assertRaisesRegex(RuntimeError, "can't be cast"):
                torch.unbind_copy(x, 1, out=make((3,), (3,),
                                                 dtype=torch.int64))
            with self.assertRaisesRegex(RuntimeError, "on the same device"):
                torch.unbind_copy(x, 1, out=[outs[0], torch.empty(3)])
        self.assertEqual(libcore_torch.fallbacks(), {})

    def test_lists_are_written_by_foreach(self):
        for device in DEVICES:
            x = [torch.ones(2, device=device), torch.ones(3, device=device)]
            outs = [torch.zeros(2, device=device), torch.zeros(3, device=device)]
            torch.ops.aten._foreach_add.Scalar_out(x, 2, out=outs)
            self.assertEqual([one.tolist() for one in outs], [[3] * 2, [3] * 3])


if __name__ == "__main__":
    unittest.main()
