# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""What C++ asks torch for the devices, by a library that is built here with the
compiler that CXX names, or c++."""

import ctypes
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

import torch

os.environ["LIBCORE_SIM_MEMORY"] = "flat"  # addresses instead of tokens
import libcore_torch

SOURCE = r"""
#include <ATen/Context.h>
#include <ATen/ops/add.h>
#include <ATen/ops/from_blob.h>

#include <string>

static std::string message;

template <typename Function> static int index_or_error(Function function)
{
    try {
        return function().index();
    } catch (const c10::Error &error) {
        message = error.what_without_backtrace();
        return -1;
    }
}

extern "C" const char *error_message()
{
    return message.c_str();
}

extern "C" int device_of(void *data)
{
    return index_or_error([=] {
        return at::globalContext().getDeviceFromPtr(data, at::kPrivateUse1);
    });
}

/* wanted: -1 for the device that torch finds, else the one of the options. */
extern "C" int device_of_blob(void *data, int wanted)
{
    return index_or_error([=] {
        c10::Device device(at::kPrivateUse1,
                           static_cast<c10::DeviceIndex>(wanted));
        return at::for_blob(data, {2}).options(device).make_tensor().device();
    });
}

/* Squares two elements of the memory of a device that is named. */
extern "C" int square_blob(void *data, int device)
{
    return index_or_error([=] {
        c10::Device target(at::kPrivateUse1,
                           static_cast<c10::DeviceIndex>(device));
        at::Tensor blob = at::for_blob(data, {2})
                              .options(target)
                              .target_device(target)
                              .make_tensor();

        return blob.mul_(at::add(blob, blob).sub_(blob)).device();
    });
}
"""

COMPILER = shlex.split(os.environ.get("CXX", "c++"))
FLAGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir,
                     "torch_flags.py")
# Where sim has no addresses, as by default.
TOKENS = """
import ctypes, sys, torch, libcore_torch
native = ctypes.CDLL(sys.argv[1])
there = torch.zeros(8, device=libcore_torch.device("sim"))
sys.exit(native.device_of(ctypes.c_void_p(there.data_ptr())) != -1)
"""
DEVICES = {device.name: device.device for device in libcore_torch.devices()}


def flags(kind):
    return subprocess.run([sys.executable, FLAGS, kind], check=True,
                          capture_output=True, text=True).stdout.split()


@unittest.skipUnless(shutil.which(COMPILER[0]), "no compiler of C++")
@unittest.skipUnless("sim:1" in DEVICES, "no devices sim and sim:1")
class Native(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        source, library = (os.path.join(holder.name, name)
                           for name in ("native.cpp", "native.so"))
        with open(source, "w") as file:
            file.write(SOURCE)
        result = subprocess.run(
            [*COMPILER, "-std=c++20", "-O0", "-fPIC", "-shared", "-o", library,
             *flags("cppflags"), source, *flags("libs")],
            capture_output=True, text=True)
        if result.returncode != 0:
            raise AssertionError(result.stderr)
        cls.library, cls.native = library, ctypes.CDLL(library)
        cls.native.error_message.restype = ctypes.c_char_p

    def call(self, function, address, *rest):
        index = getattr(self.native, function)(ctypes.c_void_p(address), *rest)
        if index < 0:
            raise RuntimeError(self.native.error_message().decode())
        return index

    def test_addresses_say_of_which_device_they_are(self):
        for number in range(2):
            device = DEVICES["sim:1" if number else "sim"]
            for size in (1, 1000, 1 << 22):
                there = torch.zeros(size, device=device)
                for address in (there.data_ptr(), there[-1:].data_ptr()):
                    self.assertEqual(self.call("device_of", address),
                                     device.index)
                    self.assertEqual(
                        self.call("device_of_blob", address, -1), device.index)
                    self.assertEqual(
                        self.call("device_of_blob", address, device.index),
                        device.index)
            with self.assertRaisesRegex(RuntimeError, "does not match device"):
                self.call("device_of_blob", address, DEVICES["cpu"].index)

    def test_memory_on_a_stream_of_its_own_is_found(self):
        device = DEVICES["sim"]
        with torch.Stream(device):
            there = torch.zeros(8, device=device)
            self.assertEqual(self.call("device_of", there.data_ptr()),
                             device.index)
            torch.accelerator.synchronize(device)

    def test_tokens_are_no_addresses(self):
        others = dict(os.environ)
        del others["LIBCORE_SIM_MEMORY"]
        subprocess.run([sys.executable, "-c", TOKENS, self.library], env=others,
                       check=True)

    def test_operators_do_not_use_memory_of_others(self):
        host = torch.ones(2)
        there = torch.zeros(8, device=DEVICES["sim"])
        for name, memory in ("cpu", host), ("sim", there):
            with self.assertRaisesRegex(RuntimeError, "from_dlpack"):
                self.call("square_blob", memory.data_ptr(), DEVICES[name].index)
        self.assertEqual(host.tolist(), [1, 1])

    def test_memory_of_nobody_is_an_error_that_says_so(self):
        device = DEVICES["sim"]
        host, there = torch.zeros(8), torch.zeros(8, device=DEVICES["cpu"])
        for address in (host.data_ptr(), there.data_ptr(), 0, 8, 1 << 63):
            for function, rest in (("device_of", ()), ("device_of_blob", (-1,))):
                with self.assertRaisesRegex(RuntimeError, r"target_device\(\)"):
                    self.call(function, address, *rest)
        given = torch.zeros(1 << 22, device=device)
        address = given.data_ptr()
        del given
        torch.accelerator.synchronize(device)
        torch.accelerator.empty_cache()
        with self.assertRaisesRegex(RuntimeError, r"target_device\(\)"):
            self.call("device_of", address)


if __name__ == "__main__":
    unittest.main()
