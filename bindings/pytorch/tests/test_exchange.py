# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Tensors that are shared with numpy and torch's CPU: DLPack and buffers."""

import ctypes
import gc
import io
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import torch

import libcore_torch

try:
    import numpy
except ImportError:
    print("skipped: this Python has no numpy")
    sys.exit(77)

NAMES = {device.name: device.device for device in libcore_torch.devices()}
CPU = NAMES["cpu"]
SIM = NAMES.get("sim")
TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 3)
EXTENSION = 12  # DLPack's number of devices that it does not know


def without_preload():
    """The environment of programs that the address sanitizer need not see."""
    return {name: value for name, value in os.environ.items()
            if name != "LD_PRELOAD"}


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
        with self.assertRaisesRegex(BufferError, "copy=True"):
            torch.from_dlpack(there)
        torch.from_dlpack(there, copy=True).add_(1)
        libcore_torch.from_dlpack(array).clone().add_(1)
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
        torch.from_dlpack(_Foreign(there), device=SIM).add_(1)
        with torch.accelerator.device_index(SIM.index):
            torch.from_dlpack(there, device="libcore", copy=False).sub_(1)
        self.assertEqual(there.tolist(), [0, 3, 4, 5])
        with self.assertRaisesRegex(ValueError, "name the device"):
            libcore_torch.from_dlpack(_Foreign(there))
        with self.assertRaises(ValueError):
            torch.from_dlpack(there, device=CPU, copy=False)
        self.assertEqual(torch.from_dlpack(there, device=CPU).tolist(),
                         [0, 3, 4, 5])

    def test_capsules_of_their_own_devices_are_not_of_another(self):
        if SIM is None:
            self.skipTest("no device sim")
        capsule = torch.arange(4.0, device=SIM).__dlpack__()
        for take in (torch.from_dlpack, torch.utils.dlpack.from_dlpack,
                     libcore_torch.from_dlpack):
            with self.assertRaisesRegex(ValueError, "name the device"):
                take(capsule)
        there = torch.from_dlpack(capsule, device=SIM)
        self.assertEqual(there.device, SIM)
        self.assertEqual(there.tolist(), [0, 1, 2, 3])
        capsule = torch.ones(2, device=CPU).__dlpack__()
        self.assertEqual(torch.from_dlpack(capsule).device.type, "cpu")
        capsule = torch.ones(2).__dlpack__()
        self.assertEqual(libcore_torch.from_dlpack(capsule).device, CPU)

    def test_streams_are_ordered_by_the_protocol(self):
        """sim reports accesses that nothing orders."""
        if SIM is None:
            self.skipTest("no device sim")
        result = subprocess.run(
            [sys.executable, "-c", STREAMS], capture_output=True, text=True,
            env={**os.environ, "LIBCORE_SIM_CHECK": "1"}, timeout=600)
        self.assertEqual(result.stdout.split(), ["ordered"] * 5 + ["race"],
                         result.stderr)

    def test_the_older_function_exports_what_is_imported(self):
        for device in (CPU, SIM or CPU):
            there = torch.arange(3.0, device=device)
            for capsule in (torch.utils.dlpack.to_dlpack(there),
                            torch.to_dlpack(there)):
                libcore_torch.from_dlpack(capsule, device).add_(1)
            self.assertEqual(there.tolist(), [2, 3, 4])
            copied = torch.to_dlpack(there, copy=True)
            libcore_torch.from_dlpack(copied, device).add_(1)
            self.assertEqual(there.tolist(), [2, 3, 4])
        capsule = torch.to_dlpack(there, dl_device=(1, 0))
        self.assertEqual(torch.from_dlpack(capsule).tolist(), [2, 3, 4])
        here = torch.ones(2)
        torch.from_dlpack(torch.to_dlpack(here, copy=True)).add_(1)
        self.assertEqual(here.tolist(), [1, 1])
        with self.assertRaisesRegex(TypeError, "unknown"):
            torch.to_dlpack(here, unknown=1)

    def test_the_table_of_functions_shares_tensors_of_all_devices(self):
        table = Table.of(torch.Tensor)
        for device in NAMES.values():
            x = torch.arange(6.0, device=device).reshape(2, 3).t()
            y = table.to_object(table.managed(x))
            self.assertEqual(y.device, torch.device("cpu") if device == CPU
                             else device)
            y[1, 0] = 7
            self.assertEqual(x.tolist(), [[0, 3], [7, 4], [2, 5]])
            lent = table.lend(x)
            self.assertEqual((lent.type, lent.index), x.__dlpack_device__())
            self.assertEqual(lent.shape[:lent.ndim], [3, 2])
            self.assertEqual(lent.strides[:lent.ndim], [1, 3])
            made = table.to_object(table.allocated(lent))
            self.assertEqual((made.device, made.shape, made.dtype),
                             (y.device, x.shape, x.dtype))
            made.fill_(2)
            self.assertEqual(made.tolist(), [[2, 2]] * 3)
            self.assertEqual(table.stream(lent), libcore_torch._shim.
                             dlpack_stream(device.index))

    def test_the_table_of_functions_lends_no_read_only_memory(self):
        table = Table.of(torch.Tensor)
        array = numpy.ones(3)
        array.flags.writeable = False
        there = libcore_torch.from_dlpack(array)
        with self.assertRaisesRegex(RuntimeError, "read-only"):
            table.lend(there)
        again = table.to_object(table.managed(there.clone()))
        self.assertEqual(again.tolist(), [1, 1, 1])

    def test_the_table_of_functions_has_no_older_one(self):
        self.assertIsNone(Table.of(torch.Tensor).older)

    def test_the_table_of_functions_leaves_other_tensors_to_torch(self):
        table = Table.of(torch.nn.Parameter)
        x = torch.arange(3.0)
        table.to_object(table.managed(x))[0] = 5
        self.assertEqual(x.tolist(), [5, 1, 2])
        self.assertEqual(table.lend(x).data, x.data_ptr())

    def test_the_table_of_functions_refuses_what_dlpack_cannot_express(self):
        table = Table.of(torch.Tensor)
        for device in NAMES.values():
            x = torch.ones(2, dtype=torch.complex64).imag
            negated = x.to(device)._neg_view()
            for function in (table.managed, table.lend):
                with self.assertRaisesRegex(RuntimeError, "negated"):
                    function(negated)
                with self.assertRaisesRegex(NotImplementedError, "dtype"):
                    function(torch.ones(2, dtype=torch.complex64,
                                        device=device))
            lent = table.lend(torch.ones(2, device=device))
            lent.bits = 3
            with self.assertRaisesRegex(RuntimeError, "RuntimeError|Type"):
                table.allocated(lent)

    def test_two_plugins_may_have_one_number(self):
        """As sim and the template of plugins, neither of which DLPack knows."""
        compiler = shlex.split(os.environ.get("CC", "cc"))
        if SIM is None or not shutil.which(compiler[0]):
            self.skipTest("no device sim, or no compiler of C")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                [*compiler, "-std=gnu11", "-fPIC", "-fvisibility=hidden",
                 "-shared", "-I", os.path.join(TOP, "include"), "-o",
                 os.path.join(folder, "core_template.so"),
                 os.path.join(TOP, "plugins", "template", "template.c"), "-lm"],
                check=True, env=without_preload())
            paths = [os.environ.get("LIBCORE_PLUGIN_PATH"), folder]
            result = subprocess.run(
                [sys.executable, "-c", TWINS], capture_output=True, text=True,
                env={**os.environ, "LIBCORE_FALLBACK": "count",
                     "LIBCORE_PLUGIN_PATH": ":".join(filter(None, paths))},
                cwd=os.path.dirname(os.path.abspath(__file__)), timeout=600)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_keywords_are_passed_to_torch_as_they_are(self):
        with self.assertRaisesRegex(TypeError, "unknown"):
            torch.ones(2).__dlpack__(unknown=1)
        module = sys.modules["libcore_torch._exchange"]
        given, before = [], module._tensor_dlpack
        try:
            module._tensor_dlpack = lambda one, **rest: given.append(rest)
            torch.ones(2).__dlpack__()
            torch.ones(2).__dlpack__(stream=None)
        finally:
            module._tensor_dlpack = before
        self.assertEqual(given, [{}, {"stream": None}])

    def test_what_cannot_be_exported_is_refused(self):
        with self.assertRaisesRegex(BufferError, "gradient"):
            torch.ones(2, device=CPU, requires_grad=True).__dlpack__()
        with self.assertRaises(TypeError):
            torch.ones(2, device=CPU).__dlpack__(stream="first")
        with self.assertRaisesRegex(BufferError, "without a copy"):
            torch.ones(2, device=CPU).__dlpack__(dl_device=(2, 0))
        with self.assertRaises(TypeError):
            libcore_torch.buffer(3)
        with self.assertRaisesRegex(ValueError, r"with to\(\)"):
            libcore_torch.buffer(torch.ones(2))
        with self.assertRaisesRegex(ValueError, r"pass torch\.zeros"):
            libcore_torch.buffer(torch._efficientzerotensor(2, device=CPU))
        leaf = torch.ones(2, device=CPU, requires_grad=True)
        with self.assertRaisesRegex(ValueError, r"detach\(\)"):
            libcore_torch.buffer(leaf)
        libcore_torch.buffer(leaf.detach())
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


    def test_requests_for_contiguous_buffers_are_kept(self):
        rows = libcore_torch.buffer(torch.ones(2, 3, device=CPU))
        columns = libcore_torch.buffer(torch.ones(2, 3, device=CPU).t())
        spaced = libcore_torch.buffer(torch.ones(4, 3, device=CPU)[::2, ::2])
        for of, taken in ((rows, {C, ANY, ND, STRIDES, SIMPLE}),
                          (columns, {F, ANY, STRIDES}), (spaced, {STRIDES})):
            for flags in (C, F, ANY, ND, STRIDES, SIMPLE):
                if flags in taken:
                    shape, strides = view_of(of, flags)
                    self.assertEqual(bool(shape), bool(flags & ND))
                    self.assertEqual(bool(strides),
                                     flags & STRIDES == STRIDES)
                else:
                    with self.assertRaisesRegex(BufferError, "contiguous"):
                        view_of(of, flags)


# Work of one stream is used on another, as the consumer names it.
STREAMS = """
import torch, libcore_torch

sim = libcore_torch.device("sim")
first, second = torch.Stream(sim), torch.Stream(sim)
keep = []

class Source:
    def __init__(self, tensor, stream):
        self.tensor, self.stream = tensor, stream
    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()
    def __dlpack__(self, **keywords):
        with self.stream:
            return self.tensor.__dlpack__(**keywords)

def exchange(stream, take):
    with first:
        x = torch.ones(1000, device=sim) * 3
    with stream:
        y = take(x)
        y.add_(1)
    keep.extend((x, y))
    try:
        torch.accelerator.synchronize(sim)
        assert y[0].item() == 4
        print("ordered")
    except RuntimeError as error:
        assert "nothing orders them" in str(error), error
        print("race")

def take_on(**keywords):
    def take(x):
        with first:
            capsule = x.__dlpack__(**keywords)
        return libcore_torch.from_dlpack(capsule, sim)
    return take

default = torch.accelerator.current_stream(sim)
exchange(second, lambda x: torch.from_dlpack(Source(x, first), device=sim))
exchange(default, lambda x: torch.from_dlpack(Source(x, first), device=sim))
exchange(default, take_on())
exchange(default, take_on(stream=None))
exchange(default, take_on(stream=0))
exchange(default, take_on(stream=-1))
"""

# DLPack cannot tell two devices apart, and nothing takes one for the other.
TWINS = """
import gc, torch, libcore_torch
from test_exchange import EXTENSION, NAMES, Table

table = Table.of(torch.Tensor)

def error_of(kind, function, *given):
    try:
        function(*given)
    except kind as error:
        return str(error)
    raise AssertionError("no error")

def use(x):
    assert x.__dlpack_device__() == (EXTENSION, 0), x.__dlpack_device__()
    lent = table.lend(x)
    for function, given in ((table.to_object, table.managed(x)),
                            (table.allocated, lent), (table.stream, lent)):
        text = error_of(RuntimeError, function, given)
        assert both in text and "device=" in text, text
    for take in (torch.from_dlpack, libcore_torch.from_dlpack):
        text = error_of(ValueError, take, x.__dlpack__())
        assert "name the device" in text, text
    for y in (torch.from_dlpack(x), libcore_torch.from_dlpack(x),
              libcore_torch.from_dlpack(x.__dlpack__(), x.device)):
        assert y.device == x.device
        y[0] += 1

first, second = sorted((NAMES["sim"], NAMES["template"]),
                       key=lambda device: device.index)
both = f"({EXTENSION}, 0) is {first} or {second}"
for device in first, second:
    x = torch.arange(3.0).to(device)
    use(x)
    assert x.tolist() == [3, 1, 2]
del x
other = torch.arange(3.0).to(NAMES["sim:1"])
assert table.to_object(table.managed(other)).device == other.device
del other
gc.collect()
for name in "sim", "sim:1":
    kept = torch.accelerator.memory_stats(NAMES[name])
    assert kept["allocated_bytes.all.current"] == 0, kept
"""

# Python's numbers of requests for buffers.
SIMPLE, ND, STRIDES, C, F, ANY = 0, 0x8, 0x18, 0x38, 0x58, 0x98


class _View(ctypes.Structure):
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p),
                ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
                ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_void_p), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p),
                ("internal", ctypes.c_void_p)]


def view_of(exporter, flags):
    """The addresses of sizes and strides in the answer to a request."""
    view = _View()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(exporter),
                                        ctypes.byref(view), flags)
    result = view.shape, view.strides
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    return result


class _Tensor(ctypes.Structure):
    """DLTensor."""
    _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_int32),
                ("index", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


_ADDRESS = ctypes.POINTER(ctypes.c_void_p)
_SET_ERROR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p,
                              ctypes.c_char_p)


class Table(ctypes.Structure):
    """DLPackExchangeAPI: the functions in C that a type of tensors offers."""
    _fields_ = [
        ("version", ctypes.c_uint32 * 2), ("older", ctypes.c_void_p),
        ("allocate", ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(_Tensor), _ADDRESS, ctypes.c_void_p,
            _SET_ERROR)),
        ("from_python", ctypes.PYFUNCTYPE(
            ctypes.c_int, ctypes.py_object, _ADDRESS)),
        ("to_python", ctypes.PYFUNCTYPE(
            ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.py_object))),
        ("lent_from_python", ctypes.PYFUNCTYPE(
            ctypes.c_int, ctypes.py_object, ctypes.POINTER(_Tensor))),
        ("current_stream", ctypes.PYFUNCTYPE(
            ctypes.c_int, ctypes.c_int32, ctypes.c_int32, _ADDRESS))]

    @staticmethod
    def of(kind):
        address = ctypes.pythonapi.PyCapsule_GetPointer
        address.restype = ctypes.c_void_p
        address.argtypes = ctypes.py_object, ctypes.c_char_p
        return Table.from_address(address(kind.__dlpack_c_exchange_api__,
                                          b"dlpack_exchange_api"))

    def managed(self, tensor):
        """The functions raise what they return -1 for."""
        result = ctypes.c_void_p()
        self.from_python(tensor, ctypes.byref(result))
        return result

    def to_object(self, managed):
        result = ctypes.py_object()
        self.to_python(managed, ctypes.byref(result))
        tensor = result.value
        ctypes.pythonapi.Py_DecRef(result)  # ctypes counts its own
        return tensor

    def lend(self, tensor):
        result = _Tensor()
        self.lent_from_python(tensor, ctypes.byref(result))
        return result

    def allocated(self, prototype):
        result, errors = ctypes.c_void_p(), []
        failed = self.allocate(
            ctypes.byref(prototype), ctypes.byref(result), None,
            _SET_ERROR(lambda context, kind, text: errors.append(
                (kind + b": " + text).decode())))
        if failed:
            raise RuntimeError(*errors)
        return result

    def stream(self, lent):
        result = ctypes.c_void_p()
        self.current_stream(lent.type, lent.index, ctypes.byref(result))
        return result.value


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
