# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""A wheel of the package, installed by pip in a folder, works without the build
folder that LIBCORE_BUILD names.  LIBCORE_TORCH_PYTHONS names other Pythons,
separated by colons, whose torch gets a shim in it, too."""

import base64
import csv
import glob
import hashlib
import io
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile

import torch

BUILD = os.environ.get("LIBCORE_BUILD", "")
OTHERS = list(filter(None, os.environ.get("LIBCORE_TORCH_PYTHONS",
                                          "").split(":")))
PACK = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir,
                    "wheel.py")

PROGRAM = """
import os, sys, torch, libcore_torch
assert libcore_torch.__file__.startswith(sys.argv[1]), libcore_torch.__file__
x = torch.arange(4.0, device=libcore_torch.device("cpu"), requires_grad=True)
x.square().sum().backward()
assert x.grad.tolist() == [0, 2, 4, 6]
with open("/proc/self/maps") as maps:
    used = {line.split()[-1] for line in maps
            if os.path.basename(line.split()[-1]).startswith(
                ("libcore", "core_", "shim-"))}
assert len(used) >= 3 and all(name.startswith(sys.argv[1]) for name in used), \\
    used
print(libcore_torch.version(), torch.__version__)
"""


def run(*command):
    names = [name for name in os.environ
             if not name.startswith(("LIBCORE_", "PYTHONPATH"))]
    result = subprocess.run(command, capture_output=True, text=True,
                            env={name: os.environ[name] for name in names})
    if result.returncode != 0:
        raise AssertionError(result.stdout + result.stderr)
    return result.stdout


@unittest.skipUnless(BUILD, "LIBCORE_BUILD does not name a build folder")
class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = os.path.realpath(holder.name)
        others = [part for python in OTHERS for part in ("--python", python)]
        # One that no source has made any more.
        stale = (f"{BUILD}/bindings/pytorch/libcore_torch/"
                 "shim-2.9-cpython-311.so")
        with open(stale, "wb"):
            cls.addClassCleanup(os.remove, stale)
        run(sys.executable, PACK, BUILD, cls.folder, *others)
        cls.wheel, = glob.glob(cls.folder + "/*.whl")

    def test_the_list_of_files_is_complete(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            names = set(wheel.namelist())
            name, = [name for name in names if name.endswith("/RECORD")]
            rows = list(csv.reader(io.StringIO(wheel.read(name).decode())))
            self.assertEqual({row[0] for row in rows}, names)
            for path, digest, size in rows:
                if path != name:
                    data = wheel.read(path)
                    expected = base64.urlsafe_b64encode(
                        hashlib.sha256(data).digest()).decode().rstrip("=")
                    self.assertEqual(digest, "sha256=" + expected)
                    self.assertEqual(int(size), len(data))

    def test_it_says_what_it_is_for_and_under_which_license(self):
        minor = ".".join(torch.__version__.split(".")[:2])
        with zipfile.ZipFile(self.wheel) as wheel:
            names = wheel.namelist()
            text, = [wheel.read(name).decode() for name in names
                     if name.endswith("/METADATA")]
            self.assertEqual(len([name for name in names
                                  if name.endswith("/LICENSE")]), 1)
            shims = [name for name in names if "/shim-" in name]
        self.assertEqual(len(shims), 1 + len(OTHERS))
        self.assertFalse([name for name in shims if "shim-2.9-" in name])
        if not OTHERS:
            major, number = minor.split(".")
            self.assertIn(f"Requires-Dist: torch>={minor},<{major}."
                          f"{int(number) + 1}\n", text)

    def test_it_works_where_pip_installs_it(self):
        without = [python for python in [sys.executable] + OTHERS
                   if subprocess.run([python, "-c", "import pip"],
                                     capture_output=True).returncode != 0]
        if without:
            self.skipTest("no module pip: " + ", ".join(without))
        for number, python in enumerate([sys.executable] + OTHERS):
            target = f"{self.folder}/installed{number}"
            run(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps",
                "--target", target, self.wheel)
            run(python, "-c", f"import sys; sys.path.insert(0, {target!r})\n"
                + PROGRAM, target)


class NoPlugins(unittest.TestCase):
    def test_a_build_without_plugins_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            result = subprocess.run([sys.executable, PACK, folder, folder],
                                    capture_output=True, text=True)
            self.assertEqual(os.listdir(folder), [])
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("has no plugins", result.stderr)


if __name__ == "__main__":
    unittest.main()
