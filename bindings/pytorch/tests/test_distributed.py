# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""torch.distributed on libcore's devices: collectives, DDP and errors, with MPI
and, as torchrun starts processes, with the engine of tests/fixtures/sockets.c.
LIBCORE_BUILD names the build folder."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import torch

import libcore_torch
from libcore_torch import _distributed

BUILD = os.environ.get("LIBCORE_BUILD", "")
RANKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ranks.py")
PLUGINS = os.environ.get("LIBCORE_PLUGIN_PATH", BUILD + "/.libs")
NAMES = [device.name for device in libcore_torch.devices()]


def environment(*folders, **more):
    result = {name: value for name, value in os.environ.items()
              if name not in ("RANK", "WORLD_SIZE", "MASTER_ADDR")}
    result["LIBCORE_PLUGIN_PATH"] = ":".join(
        [PLUGINS] + [f"{BUILD}/{folder}/.libs" for folder in folders])
    return {**result, "OMP_NUM_THREADS": "1", "LIBCORE_THREADS": "1",
            **more}


def lines(text):
    return [json.loads(line.partition(" ")[2]) for line in text.splitlines()
            if line.startswith("result ")]


def finish(processes):
    """The outputs of processes, all of which must succeed; none is left."""
    try:
        outputs = [process.communicate(timeout=600)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, out in zip(processes, outputs):
        with process.errors as file:
            file.seek(0)
            err = file.read()
        if process.returncode != 0:
            raise AssertionError(f"status {process.returncode}: {out}{err}")
    return lines("".join(outputs))


def start(command, **environment):
    """Errors go to a file, as a pipe may fill up while another is read."""
    errors = tempfile.TemporaryFile("w+")
    process = subprocess.Popen(command, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=errors,
                               text=True, **environment)
    process.errors = errors
    return process


def mpirun(mpi, *arguments):
    """What two ranks print that an MPI has started."""
    if not (os.path.exists(f"{BUILD}/plugins/mpi/.libs/core_{mpi}.so")
            and shutil.which(f"mpirun.{mpi}")):
        raise unittest.SkipTest(f"{mpi} is not installed")
    more = {"openmpi": ["--oversubscribe"]}.get(mpi, [])
    with tempfile.TemporaryDirectory() as folder:
        env = environment("plugins/mpi", TMPDIR=folder,
                          OMPI_ALLOW_RUN_AS_ROOT="1",
                          OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                          OMPI_MCA_btl_vader_backing_directory=folder)
        return finish([start(["mpirun." + mpi, *more, "-n", "2",
                              sys.executable, RANKS, *arguments], env=env)])


def torchrun(*arguments, size=2, **more):
    """What ranks print with the environment that torchrun sets."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    return finish([start([sys.executable, RANKS, *arguments], env=environment(
        "tests/fixtures", RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size),
        MASTER_ADDR="localhost", MASTER_PORT=str(port), **more))
        for rank in range(size)])


needs_fixture = unittest.skipUnless(
    os.path.exists(f"{BUILD}/tests/fixtures/.libs/core_sockets.so"),
    "the fixture sockets is not built")


@unittest.skipUnless(BUILD, "LIBCORE_BUILD does not name a build folder")
class Distributed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gloo, = torchrun("gloo", "-", "train")

    def check_training(self, result):
        for name in ("losses", "weights"):
            torch.testing.assert_close(torch.tensor(result[name]),
                                       torch.tensor(self.gloo[name]),
                                       rtol=1e-5, atol=1e-6)
        self.assertEqual(result["fallbacks"], {})

    def check_device(self, mpi, device):
        results = mpirun(mpi, device, "-", "collectives", "train")
        self.assertEqual(results[0]["fallbacks"], {})
        self.check_training(results[1])

    def test_mpich_on_cpu(self):
        self.check_device("mpich", "cpu")

    def test_openmpi_on_cpu(self):
        self.check_device("openmpi", "cpu")

    @unittest.skipUnless("sim" in NAMES, "no device sim")
    def test_mpich_on_sim(self):
        self.check_device("mpich", "sim")

    @unittest.skipUnless("opencl" in NAMES, "no device opencl")
    def test_mpich_on_opencl(self):
        self.check_device("mpich", "opencl")

    @needs_fixture
    def test_an_engine_without_launcher_uses_the_variables_of_torchrun(self):
        results = torchrun("cpu", "sockets", "collectives", "train")
        self.check_training(results[1])

    @unittest.skipUnless(
        os.path.exists(f"{BUILD}/tests/fixtures/.libs/core_own_engine.so"),
        "the fixture own_engine is not built")
    def test_the_engine_of_a_device_is_that_of_its_plugin(self):
        self.assertEqual(torchrun("vendor", "-", "sum_of_one", size=1,
                                  LIBCORE_FALLBACK="count"), [[2, 3]])

    @needs_fixture
    def test_torchrun_itself_starts_the_ranks(self):
        result, = finish([start(
            [sys.executable, "-m", "torch.distributed.run", "--standalone",
             "--nproc-per-node=2", RANKS, "cpu", "sockets", "abandoned"],
            env=environment("tests/fixtures"))])
        self.assertEqual(result, [2, 2])

    def test_torchrun_without_an_engine_is_an_error(self):
        with self.assertRaisesRegex(AssertionError,
                                    'no engine "mpi" can be used'):
            torchrun("cpu", "-", "abandoned")

    @needs_fixture
    def test_calls_after_an_exception_in_a_batch_are_made(self):
        self.assertEqual(torchrun("cpu", "sockets", "abandoned"), [[2, 2]])

    @needs_fixture
    @unittest.skipUnless("sim:1" in NAMES, "no devices sim and sim:1")
    def test_the_end_of_a_group_has_all_errors(self):
        message, = torchrun("sim", "sockets", "several")
        self.assertIn("2 communicators failed", message or "")
        self.assertEqual(message.count("the ranks make different calls"), 2)

    @needs_fixture
    def test_timeouts_and_aborted_groups_are_errors(self):
        (late, waiting, after), = torchrun("cpu", "sockets", "failures")
        self.assertRegex(late, "the timeout passed")
        self.assertRegex(waiting, "abort")
        self.assertIn("the process group was aborted", after)

    def test_ended_groups_are_refused_and_no_error_is_lost(self):
        for device in ("cpu", "sim"):
            if device not in NAMES:
                continue
            seen, = mpirun("mpich", device, "-", "ended")
            self.assertIn("the process group was shut down", seen[0] or "")
            self.assertEqual(len(seen), 3 if device == "sim" else 1)
            for message in seen[1:]:
                self.assertIn("the ranks make different calls", message or "")

    def test_errors_say_what_is_wrong(self):
        for device in ("cpu", "sim"):
            if device not in NAMES:
                continue
            seen, = mpirun("mpich", device, "-", "errors")
            for message, expected in zip(seen, (
                    "SUM, AVG, PRODUCT, MIN and MAX", "dtype",
                    "have no tags", "does not support recvAnysource",
                    "No backend type", "does not consist of 2 tensors",
                    r"\[2, 1\] do not divide|do not divide 3 rows",
                    "have no tags", "are not like those of an input",
                    "does not consist of 1 tensors",
                    "the ranks make different calls")):
                self.assertRegex(message or "no error", expected)
            self.assertEqual(len(seen), 11)


class Meeting(unittest.TestCase):
    def own_address(self, master, sources):
        with mock.patch.dict(os.environ, MASTER_ADDR=master), \
                mock.patch.object(_distributed, "_source", sources.get):
            return _distributed._own_address()

    def test_the_announced_address_is_reached_from_other_machines(self):
        route = {"192.0.2.1": "10.1.2.3", "here": "127.0.1.1",
                 "there": "10.9.9.9"}
        for master, expected in (("", "10.1.2.3"), ("here", "10.1.2.3"),
                                 ("there", "10.9.9.9"),
                                 ("localhost", "127.0.0.1")):
            self.assertEqual(self.own_address(master, route), expected)
        self.assertEqual(self.own_address("", {}), "127.0.0.1")

    def test_torch_keeps_env_where_it_says_rank_or_size(self):
        handler = _distributed._extend(lambda url: "torch's")
        with mock.patch.dict(os.environ, OMPI_COMM_WORLD_RANK="0",
                             OMPI_COMM_WORLD_SIZE="1"), \
                mock.patch.object(_distributed, "_rendezvous",
                                  lambda url: "mpirun's"):
            for name in ("RANK", "WORLD_SIZE"):
                os.environ.pop(name, None)
            self.assertEqual(handler("env://"), "mpirun's")
            self.assertEqual(handler("env://?rank=0&world_size=1"), "torch's")
            os.environ["WORLD_SIZE"] = "1"
            self.assertEqual(handler("env://"), "torch's")


if __name__ == "__main__":
    unittest.main()
