# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Tensors that are shared with numpy and torch's CPU: DLPack and buffers."""

import gc
import io
import sys
import unittest

import torch

import libcore_torch

try:
    import numpy
except ImportError:
    print("skipped: this Python has no numpy")
    sys.exit(0)

NAMES = {device.name: device.device for device in libcore_torch.devices()}
CPU = NAMES["cpu"]
SIM = NAMES.get("sim")
EXTENSION = 12  # DLPack's number of devices that it does not know


class Exchange(unittest.TestCase):
    def test_numpy_and_torch_share_the_memory_of_the_cpu(self):
        there = torch.arange(6.0, device=CPU).reshape(2, 3)
        self.assertEqual(there.__dlpack_device__(), (1, 0))
        array = numpy.from_dlpack(there.t())
        tensor = torch.from_dlpack(there)
        self.assertEqual(tensor.device.type, "cpu")
        array[1, 0] = 7
        self.assertEqual(there.tolist(), [[0, 7, 2], [3, 4, 5]])
        self.assertTrue(torch.equal(tensor, there.cpu()))

    def test_consumers_keep_the_memory(self):
        array = numpy.from_dlpack(torch.full((1000,), 3.0, device=CPU))
        gc.collect()
        torch.full((1000,), 4.0, device=CPU)
        self.assertTrue((array == 3).all())

    def test_arrays_become_tensors_without_a_copy(self):
        array = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)[:, 1:]
        for there in (libcore_torch.from_dlpack(array),
                      torch.from_dlpack(array, device=CPU)):
            self.assertEqual(there.device, CPU)
            self.assertEqual(there.stride(), (4, 1))
            there += 1
        self.assertEqual(array[0].tolist(), [3, 4, 5])
        there = libcore_torch.from_dlpack(torch.ones(4))
        self.assertEqual((there + 1).tolist(), [2, 2, 2, 2])

    def test_memory_of_an_array_lives_as_long_as_the_tensor(self):
        there = libcore_torch.from_dlpack(numpy.full(1000, 3.0))
        gc.collect()
        numpy.full(1000, 4.0)
        self.assertEqual(there.sum().item(), 3000)

    def test_capsules_are_used_once(self):
        capsule = torch.ones(2).__dlpack__()
        self.assertEqual(libcore_torch.from_dlpack(capsule, CPU).tolist(),
                         [1, 1])
        with self.assertRaisesRegex(ValueError, "not used yet"):
            libcore_torch.from_dlpack(capsule, CPU)
        torch.ones(2, device=CPU).__dlpack__()  # is not used at all

    def test_a_read_only_array_is_not_changed(self):
        array = numpy.ones(3)
        array.flags.writeable = False
        there = libcore_torch.from_dlpack(array)
        with self.assertRaisesRegex(RuntimeError, "read-only"):
            there.add_(1)
        self.assertEqual(array.tolist(), [1, 1, 1])

    def test_copies_on_request(self):
        there = torch.ones(3, device=CPU)
        copy = torch.from_dlpack(there, copy=True)
        copy += 1
        moved = torch.from_dlpack(there.cpu(), device=CPU, copy=True)
        moved += 1
        self.assertEqual(there.tolist(), [1, 1, 1])

    def test_devices_of_their_own_exchange_with_themselves(self):
        if SIM is None:
            self.skipTest("no device sim")
        there = torch.arange(4.0, device=SIM)
        self.assertEqual(there.__dlpack_device__()[0], EXTENSION)
        for same in (torch.from_dlpack(there[1:]),
                     libcore_torch.from_dlpack(there[1:])):
            self.assertEqual(same.device, SIM)
            same += 1
        self.assertEqual(there.tolist(), [0, 3, 4, 5])
        with self.assertRaisesRegex(ValueError, "name the device"):
            libcore_torch.from_dlpack(_Foreign(there))
        with self.assertRaises(ValueError):
            torch.from_dlpack(there, device=CPU, copy=False)
        self.assertEqual(torch.from_dlpack(there, device=CPU).tolist(),
                         [0, 3, 4, 5])

    def test_work_of_streams_comes_before_the_consumer(self):
        if SIM is None:
            self.skipTest("no device sim")
        stream = torch.Stream(SIM)
        there = torch.zeros(100000, device=SIM)
        torch.accelerator.synchronize(SIM)
        with stream:
            for _ in range(20):
                there += 1
            capsule = there.__dlpack__(stream=None, max_version=(1, 0))
        same = libcore_torch.from_dlpack(capsule, SIM)
        self.assertEqual((same * 1).max().item(), 20)
        self.assertEqual((same * 1).min().item(), 20)

    def test_what_cannot_be_exported_is_refused(self):
        with self.assertRaisesRegex(BufferError, "gradient"):
            torch.ones(2, device=CPU, requires_grad=True).__dlpack__()
        with self.assertRaises(TypeError):
            torch.ones(2, device=CPU).__dlpack__(stream="first")
        with self.assertRaisesRegex(BufferError, "without a copy"):
            torch.ones(2, device=CPU).__dlpack__(dl_device=(2, 0))
        with self.assertRaises(TypeError):
            libcore_torch.buffer(3)
        with self.assertRaises(ValueError):
            libcore_torch.buffer(torch.ones(2))
        with self.assertRaises(ValueError):
            libcore_torch.from_dlpack(object(), CPU)

    def test_buffers_share_the_memory_of_the_cpu(self):
        there = torch.arange(6, device=CPU).reshape(2, 3)
        array = numpy.asarray(libcore_torch.buffer(there.t()))
        self.assertEqual(array.dtype, numpy.int64)
        self.assertEqual(array.shape, (3, 2))
        array[2, 1] = 9
        self.assertEqual(there[1, 2].item(), 9)
        del there
        gc.collect()
        self.assertEqual(array.sum(), 19)
        self.assertEqual(
            memoryview(libcore_torch.buffer(torch.ones((), device=CPU)))
            .tolist(), 1)
        for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16,
                      torch.int32, torch.float16, torch.float64):
            one = numpy.asarray(
                libcore_torch.buffer(torch.ones(2, 0, dtype=dtype,
                                                device=CPU)))
            self.assertEqual(str(one.dtype), str(dtype)[len("torch."):])

    def test_buffers_of_other_memory_are_refused(self):
        with self.assertRaisesRegex(TypeError, "BFloat16"):
            libcore_torch.buffer(torch.ones(2, dtype=torch.bfloat16,
                                            device=CPU))
        part = libcore_torch.buffer(torch.ones(2, 3, device=CPU).t())
        with self.assertRaisesRegex(BufferError, "not contiguous"):
            io.BytesIO().write(part)
        if "opencl" in NAMES:
            with self.assertRaisesRegex(ValueError, "cannot access"):
                libcore_torch.buffer(torch.ones(2, device=NAMES["opencl"]))


class _Foreign:
    """A tensor of another library on an extension device."""

    def __init__(self, tensor):
        self._tensor = tensor

    def __dlpack_device__(self):
        return self._tensor.__dlpack_device__()

    def __dlpack__(self, **keywords):
        return self._tensor.__dlpack__(**keywords)


if __name__ == "__main__":
    unittest.main()
