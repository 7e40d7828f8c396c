# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Autocast, fused attention, data loaders, serialization, and hostile programs,
on cpu and sim."""

import io
import math
import os
import pickle
import subprocess
import sys
import tempfile
import unittest
import weakref

import torch
import torch.nn.functional as F
import torch.utils.checkpoint

import libcore_torch

DEVICES = [device.device for device in libcore_torch.devices()
           if device.name in ("cpu", "sim")]
ALL = [device.device for device in libcore_torch.devices()]


def run(program, **environment):
    """Runs a program in a process of its own, which must exit by itself."""
    result = subprocess.run([sys.executable, "-c", program],
                            env={**os.environ, **environment},
                            capture_output=True, text=True, timeout=600)
    if result.returncode < 0:
        raise AssertionError(f"signal {-result.returncode}: {result.stderr}")
    return result


class Features(unittest.TestCase):
    def setUp(self):
        libcore_torch.reset_fallbacks()

    def test_autocast_chooses_dtypes_as_on_other_devices(self):
        for device in DEVICES:
            x = torch.randn(4, 4, device=device, requires_grad=True)
            with torch.autocast("libcore", torch.bfloat16):
                product = x @ x
                self.assertEqual(product.dtype, torch.bfloat16)
                self.assertEqual(F.softmax(product, 1).dtype, torch.float32)
                self.assertEqual((product + x).dtype, torch.float32)
                loss = F.mse_loss(F.linear(x, x), x)
                with torch.autocast("libcore", enabled=False):
                    self.assertEqual((x @ x).dtype, torch.float32)
            loss.backward()
            self.assertEqual(x.grad.dtype, torch.float32)
            with torch.autocast("libcore", torch.bfloat16):
                with self.assertRaisesRegex(RuntimeError, "unsafe to autocast"):
                    F.binary_cross_entropy(x.sigmoid(), x.sigmoid())

    def test_a_scaler_skips_steps_that_overflow(self):
        for device in DEVICES:
            weight = torch.ones(3, device=device, requires_grad=True)
            optimizer = torch.optim.SGD([weight], 0.5)
            scaler = torch.amp.GradScaler("libcore", init_scale=4.0)
            scaler.scale(weight.sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            self.assertEqual(weight.tolist(), [0.5] * 3)
            optimizer.zero_grad()
            scaler.scale((weight * float("inf")).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            self.assertEqual(weight.tolist(), [0.5] * 3)
            self.assertEqual(scaler.get_scale(), 2.0)

    def test_attention_is_fused(self):
        torch.manual_seed(2)
        tensors = [torch.randn(2, 3, n, 8) for n in (5, 7, 7)]
        mask = torch.randn(5, 7)
        for device in DEVICES:
            for causal, bias in ((False, None), (True, None), (False, mask),
                                 (False, mask > 0)):
                self._check_attention(device, tensors, bias, causal)
        self.assertEqual(libcore_torch.fallbacks(), {})

    def _check_attention(self, device, tensors, bias, causal):
        results = []
        for where in ("cpu", device):
            leaves = [one.detach().to(where).requires_grad_()
                      for one in tensors]
            extra = None if bias is None else bias.to(where)
            if extra is not None and extra.is_floating_point():
                extra.requires_grad_()
                leaves.append(extra)
            with torch.profiler.profile() as profile:
                out = F.scaled_dot_product_attention(
                    *leaves[:3], extra, is_causal=causal)
            results.append([out] + list(torch.autograd.grad(
                (out * out).sum(), leaves)))
        names = {event.key for event in profile.key_averages()}
        self.assertIn("aten::_scaled_dot_product_fused_attention_overrideable",
                      names)
        for one, other in zip(*results):
            torch.testing.assert_close(other.cpu(), one, rtol=1e-4, atol=1e-4)

    def test_what_is_not_fused_is_composed(self):
        torch.manual_seed(2)
        q, k = torch.randn(2, 4, 5, 8), torch.randn(1, 4, 5, 8)
        few = k[:, :2].expand(2, 2, 5, 8)
        math = [torch.nn.attention.SDPBackend.MATH]
        every = list(torch.nn.attention.SDPBackend.__members__.values())
        for device in DEVICES:
            for tensors, backends, grouped in (((q, k, k), every[1:], False),
                                               ((q, q, q), math, False),
                                               ((q, few, few), every[1:], True)):
                with torch.nn.attention.sdpa_kernel(backends):
                    self._check_composed(device, tensors, grouped)
        self.assertEqual(libcore_torch.fallbacks(), {})

    def _check_composed(self, device, tensors, grouped):
        results = []
        for where in ("cpu", device):
            leaves = [one.to(where, copy=True).requires_grad_()
                      for one in tensors]
            out = F.scaled_dot_product_attention(*leaves, enable_gqa=grouped)
            results.append([out] + list(torch.autograd.grad(
                (out * out).sum(), leaves)))
        for one, other in zip(*results):
            torch.testing.assert_close(other.cpu(), one, rtol=1e-4, atol=1e-5)

    def test_trying_the_fused_kernel_draws_no_numbers(self):
        for device in DEVICES:
            q = torch.ones(1, 2, 5, 24, device=device)  # a size of its own
            results = []
            for _ in range(2):
                torch.manual_seed(0)
                results.append(F.scaled_dot_product_attention(
                    q, q, q, dropout_p=0.5))
            self.assertTrue(torch.equal(*results))

    def test_checkpoints_repeat_the_dropout(self):
        for device in DEVICES:
            for reentrant in (False, True):
                x = torch.ones(1000, device=device, requires_grad=True)
                with torch.accelerator.device_index(device.index):
                    out = torch.utils.checkpoint.checkpoint(
                        F.dropout, x, use_reentrant=reentrant)
                    torch.rand(10, device=device)
                    out.sum().backward()
                self.assertTrue(torch.equal(x.grad, out.detach()))

    def test_products_see_changes_of_weights(self):
        """Devices keep packed weights that did not change."""
        x, change = torch.randn(8, 32), torch.randn(96, 32)
        for device in ALL:
            weight = torch.randn(96, 32).to(device)
            there, changed = x.to(device), change.to(device)
            for function in (lambda w: w.add_(1), lambda w: w.add_(changed),
                             lambda w: w.normal_(), lambda w: w.copy_(changed),
                             lambda w: torch.mul(w, 2, out=w),
                             lambda w: torch._foreach_add_([w], [changed])):
                for _ in range(3):
                    torch.testing.assert_close(
                        F.linear(there, weight).cpu(),
                        F.linear(x, weight.cpu()), rtol=1e-4, atol=1e-4)
                    function(weight)

    def test_modules_move_in_place(self):
        for device in DEVICES:
            model = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False),
                                        torch.nn.Linear(3, 3))
            model[1].weight = model[0].weight
            optimizer = torch.optim.SGD(model.parameters(), 1.0)
            known = list(model.parameters())
            model(torch.ones(2, 3)).sum().backward()
            for where in (device, torch.device("cpu"), device):
                model.to(where)
                self.assertEqual([id(one) for one in model.parameters()],
                                 [id(one) for one in known])
                self.assertIs(model[1].weight, model[0].weight)
                self.assertEqual(known[0].grad.device, where)
            before = model[0].weight.tolist()
            optimizer.zero_grad()
            model(torch.ones(2, 3, device=device)).sum().backward()
            optimizer.step()
            self.assertNotEqual(model[0].weight.tolist(), before)
            model.double().cpu()
            self.assertIs(model[1].weight, known[0])

    def test_parameters_that_cannot_move_are_replaced_with_a_warning(self):
        for device in DEVICES:
            model = torch.nn.Linear(2, 2, bias=False)
            held, old = weakref.ref(model.weight), model.weight
            with self.assertWarnsRegex(UserWarning, "cannot be moved in place"):
                model.to(device)
            self.assertEqual(model.weight.device, device)
            self.assertIs(held(), old)
            self.assertEqual(old.device.type, "cpu")

    def test_tensors_are_saved_and_loaded(self):
        for device in DEVICES:
            numbers = torch.randn(3, 4, device=device)
            file = io.BytesIO()
            torch.save({"all": numbers, "part": numbers[1]}, file)
            file.seek(0)
            loaded = torch.load(file)
            self.assertEqual(loaded["all"].device, device)
            self.assertTrue(torch.equal(loaded["all"], numbers))
            loaded["all"][1] = 0
            self.assertEqual(loaded["part"].sum().item(), 0)
            file.seek(0)
            moved = torch.load(file, map_location="cpu")
            self.assertTrue(torch.equal(moved["all"], numbers.cpu()))

    def test_storages_are_pickled_and_swapped_without_addresses(self):
        for device in DEVICES:
            x = torch.arange(3.0, device=device)
            again = pickle.loads(pickle.dumps(x))
            self.assertEqual(again.device, device)
            self.assertEqual(again.tolist(), [0, 1, 2])
            file = io.BytesIO()
            torch.save(x, file, _use_new_zipfile_serialization=False)
            file.seek(0)
            self.assertEqual(torch.load(file).tolist(), [0, 1, 2])
            x.untyped_storage().byteswap(torch.float32)
            expected = torch.arange(3.0)
            expected.untyped_storage().byteswap(torch.float32)
            self.assertTrue(torch.equal(x.cpu(), expected))

    def test_products_with_numbers_are_rounded_once(self):
        torch.manual_seed(0)
        for dtype in (torch.bfloat16, torch.float16):
            numbers = torch.randn(500).to(dtype)
            for device in DEVICES:
                for function in (
                        lambda x: x * 0.6931471805599453,
                        lambda x: x / 0.7, lambda x: 0.7 / x,
                        lambda x: x * 257, lambda x: 2049 * x,
                        lambda x: x / 1023, lambda x: 2049 / x,
                        lambda x: x * torch.tensor(257),
                        lambda x: torch.mul(torch.tensor(257), x),
                        lambda x: x[0] * torch.tensor(257),
                        lambda x: x[0] * torch.tensor(0.1),
                        lambda x: x + 257, lambda x: 0.1 + x,
                        lambda x: x - 2049, lambda x: 0.1 - x,
                        lambda x: torch.rsub(x, 257), lambda x: x.sub(0.1),
                        lambda x: x * torch.tensor(0.1),
                        lambda x: x.clone().mul_(0.3),
                        lambda x: x.clone().div_(0.7),
                        lambda x: torch.mul(x, 0.3, out=torch.empty_like(x)),
                        lambda x: x[::2] * 0.3, lambda x: x * -0.0,
                        lambda x: x * 1e-30, lambda x: x * float("inf")):
                    have = function(numbers.to(device))
                    expected = function(numbers)
                    self.assertEqual(have.dtype, expected.dtype)
                    torch.testing.assert_close(have.cpu(), expected, rtol=0,
                                               atol=0, equal_nan=True)
                zero = torch.zeros(1, dtype=dtype, device=device) * -0.3
                self.assertEqual(math.copysign(1, zero.item()), -1)

    def test_gradients_that_have_kernels_are_not_composed(self):
        for name in ("mish", "silu"):
            self.assertIn(f"aten::{name}_backward", libcore_torch.operators())
        for device in DEVICES:
            for function in (F.mish, F.silu):
                x = torch.linspace(-4, 4, 50, dtype=torch.bfloat16)
                wide = x.double().requires_grad_()
                x = x.to(device).requires_grad_()
                function(x).sum().backward()
                function(wide).sum().backward()
                torch.testing.assert_close(x.grad.cpu().double(), wide.grad,
                                           rtol=4e-3, atol=1e-6)
                second = x.detach().float().requires_grad_()
                slope, = torch.autograd.grad(function(second).sum(), second,
                                             create_graph=True)
                slope.sum().backward()
                self.assertIsNotNone(second.grad)

    def test_memory_may_be_used_on_another_stream(self):
        for device in DEVICES:
            stream = torch.Stream(device)
            x = torch.ones(1000, device=device)
            made = torch.accelerator.current_stream(device).record_event()
            with stream:
                stream.wait_event(made)
                total = x.sum()
                x.record_stream(stream)
                del x
            stream.synchronize()
            self.assertEqual(total.item(), 1000)
        if len(DEVICES) > 1:
            with self.assertRaisesRegex(RuntimeError, "record_stream: self is"):
                torch.ones(2, device=DEVICES[0]).record_stream(
                    torch.Stream(DEVICES[1]))

    def test_streams_of_each_priority_are_a_pool(self):
        for device in DEVICES:
            def ids(count, priority):
                streams = [torch.Stream(device, priority=priority)
                           for _ in range(count)]
                return [one.stream_id for one in streams]

            normal = ids(70, 0)
            self.assertEqual(len(set(normal)), 32)
            self.assertNotIn(0, normal)
            self.assertEqual(set(ids(32, 0)), set(normal))
            high = ids(70, -1)
            self.assertEqual(len(set(high)), 32)
            # Out of the range of the device: its highest one.
            self.assertEqual(len(set(ids(70, -100) + ids(70, -99))), 32)
            if device == libcore_torch.device("sim"):
                self.assertFalse(set(high) & set(normal))
            self.assertEqual(set(ids(32, 0)), set(normal))
            with torch.Stream(device, priority=-1):
                x = torch.ones(10, device=device).sum()
            torch.accelerator.synchronize(device)
            self.assertEqual(x.item(), 10)

    def test_events_measure_the_time_between_them(self):
        for device in DEVICES:
            first, second = (torch.Event(device, enable_timing=True)
                             for _ in range(2))
            with self.assertRaisesRegex(ValueError, "must be recorded"):
                first.elapsed_time(second)
            with torch.accelerator.device_index(device.index):
                first.record()
                x = torch.ones(100, 100, device=device)
                for _ in range(20):
                    x = x @ x / 100
                second.record()
            second.synchronize()
            self.assertTrue(first.query() and second.query())
            self.assertGreater(first.elapsed_time(second), 0)
            self.assertEqual(first.elapsed_time(first), 0)
            plain = torch.Event(device)
            plain.record(torch.accelerator.current_stream(device))
            with self.assertRaisesRegex(ValueError, "enable_timing=True"):
                first.elapsed_time(plain)

    def test_generators_have_states(self):
        for device in DEVICES:
            generator = torch.Generator(device).manual_seed(5)
            self.assertEqual(generator.device, device)
            self.assertEqual(generator.initial_seed(), 5)

            def draw(one=generator):
                return torch.rand(7, device=device, generator=one).tolist()

            first, state, second = draw(), generator.get_state(), draw()
            self.assertNotEqual(first, second)
            generator.set_state(state)
            copied = generator.clone_state()
            self.assertEqual(draw(), second)
            self.assertEqual(draw(copied), second)
            generator.manual_seed(5)
            self.assertEqual(draw(), first)
            self.assertNotEqual(generator.seed(), generator.seed())
            torch.manual_seed(5)
            self.assertEqual(torch.rand(7, device=device).tolist(), first)
            with self.assertRaisesRegex(RuntimeError, "a tensor of 16 bytes"):
                generator.set_state(torch.zeros(3, dtype=torch.uint8))

    def test_states_of_devices_are_kept(self):
        for device in DEVICES:
            state = torch.libcore.get_rng_state(device)
            first = torch.rand(5, device=device)
            torch.libcore.set_rng_state(state, device)
            self.assertTrue(torch.equal(torch.rand(5, device=device), first))
            torch.libcore.set_rng_state(state, device)
            with torch.random.fork_rng([device.index], device_type="libcore"):
                torch.rand(3, device=device)
                torch.manual_seed(99)
            self.assertTrue(torch.equal(torch.rand(5, device=device), first))

    def test_statistics_of_memory_have_peaks(self):
        device, size = libcore_torch.device("sim"), 1 << 20
        free, total = torch.accelerator.get_memory_info(device.index)
        self.assertTrue(0 < free <= total)
        torch.accelerator.empty_cache()
        torch.accelerator.reset_peak_memory_stats(device.index)
        before = torch.accelerator.memory_allocated(device.index)
        self.assertEqual(torch.accelerator.max_memory_allocated(device.index),
                         before)
        x = torch.ones(size, dtype=torch.uint8, device=device)
        self.assertEqual(torch.accelerator.memory_allocated(device.index),
                         before + size)
        self.assertGreaterEqual(torch.accelerator.memory_reserved(device.index),
                                before + size)
        del x
        self.assertEqual(torch.accelerator.memory_allocated(device.index),
                         before)
        self.assertEqual(torch.accelerator.max_memory_allocated(device.index),
                         before + size)
        torch.accelerator.reset_peak_memory_stats(device.index)
        self.assertEqual(torch.accelerator.max_memory_allocated(device.index),
                         before)

    def test_loaders_pin_memory_in_forked_workers(self):
        for device in DEVICES:
            data = torch.utils.data.TensorDataset(torch.arange(12.0))
            with torch.accelerator.device_index(device.index):
                loader = torch.utils.data.DataLoader(
                    data, batch_size=4, num_workers=2, pin_memory=True,
                    multiprocessing_context="fork")
                batches = [batch for batch, in loader]
            self.assertTrue(all(batch.is_pinned() for batch in batches))
            total = sum(batch.to(device, non_blocking=True).sum().item()
                        for batch in batches)
            self.assertEqual(total, 66)

    def test_a_worker_cannot_return_memory_of_a_device(self):
        """An error in the parent, which does not wait forever."""
        for device in DEVICES:
            for size in 0, 2:
                loader = torch.utils.data.DataLoader(
                    [torch.ones(size, device=device)], batch_size=None,
                    num_workers=1, multiprocessing_context="fork")
                with self.assertRaisesRegex(
                        RuntimeError,
                        f"{device} cannot be shared between processes"):
                    list(loader)

    def test_threads_use_devices_at_once(self):
        result = run("""
import os, threading, time, torch, libcore_torch
failed = []
def work(device, number):
    try:
        torch.accelerator.set_device_index(device.index)
        x = torch.full((8, 8), float(number), device=device,
                       requires_grad=True)
        with torch.Stream(device):
            for _ in range(20):
                y = (x @ x).relu().sum()
                x.grad = None
                y.backward()
                try:
                    x @ torch.ones(3, device=device)
                except RuntimeError:
                    pass
                else:
                    failed.append("no error")
            if y.item() != 512 * number ** 2:
                failed.append(y.item())
        if torch.accelerator.current_device_index() != device.index:
            failed.append("another current device")
    except BaseException as error:
        failed.append(error)
threads = [threading.Thread(target=work, args=(one.device, number))
           for one in libcore_torch.devices() for number in range(1, 5)]
for one in threads: one.start()
for one in threads: one.join()
assert not failed, failed
# torch 2.12 aborts if Python ends while a thread that used a stream releases its
# thread-local Python objects, which is after join() has returned.
while any(os.path.exists(f"/proc/self/task/{one.native_id}") for one in threads):
    time.sleep(0.01)
""")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_package_without_a_shim_for_this_torch_is_an_import_error(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/shim-2.9-cpython-311.so", "wb"):
                pass
            result = run("""
import torch
for _ in range(2):
    try:
        import libcore_torch
    except ImportError as error:
        print(error)
assert (torch.ones(2) + 1).tolist() == [2, 2]
""", LIBCORE_TORCH_SHIM=folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(.*was not built for torch and Python "
                         r"[\w.-]+, but for 2\.9-cpython-311.*\n){2}")

    def test_import_without_a_device_is_an_error(self):
        program = """
import torch
for _ in range(2):
    try:
        import libcore_torch
    except RuntimeError as error:
        print(error)
assert (torch.ones(2) + 1).tolist() == [2, 2]
"""
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/core_broken.so", "w") as file:
                file.write("no plugin")
            result = run(program, LIBCORE_PLUGIN_PATH=folder,
                         LIBCORE_DEVICE="broken")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(result.stdout, r'(no device "broken".*'
                             r"core_broken\.so: is not an ELF file.*\n){2}")
            path = os.environ.get("LIBCORE_PLUGIN_PATH", "")
            result = run("import libcore_torch\n"
                         "print(libcore_torch.devices())",
                         LIBCORE_PLUGIN_PATH=f"{folder}:{path}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("is cpu", result.stdout)

    def test_a_forked_child_gets_errors_and_not_crashes(self):
        result = run("""
import os, torch, libcore_torch
tensors = [torch.ones(100, device=one.device)
           for one in libcore_torch.devices()]
for one in tensors: (one + 1).sum().item()
child = os.fork()
for one in tensors:
    try:
        print((one * 2 + torch.ones(100, device=one.device)).sum().item())
    except RuntimeError as error:
        print(error)
if child:
    assert os.waitpid(child, 0)[1] == 0
""")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_child_is_forked_while_other_threads_hold_locks(self):
        """A child that waits for a lock is ended by its alarm."""
        result = run("""
import os, signal, threading, torch, libcore_torch
device = libcore_torch.devices()[0].device
stream, ended = torch.Stream(device), threading.Event()
x = torch.ones(4, device=device)
def use():
    stream.synchronize()
    torch.fft.rfft(x)
    torch.rand(2, device=device)
def wait():  # without Python's lock
    while not ended.is_set():
        stream.synchronize()
def compute():
    while not ended.is_set():
        use()
use()
threads = [threading.Thread(target=one)
           for one in (wait, wait, wait, compute)]
for one in threads: one.start()
try:
    for _ in range(100):
        child = os.fork()
        if not child:
            signal.alarm(60)
            libcore_torch.fallbacks()
            torch.Stream(device)
            stream.synchronize()
            libcore_torch._shim.default_generator(device.index)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
finally:
    ended.set()
for one in threads: one.join()
""")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_the_package_is_imported_twice(self):
        result = run("""
import sys, torch, libcore_torch
x = torch.ones(2, device="libcore:0")
for name in [name for name in sys.modules if name.startswith("libcore_torch")]:
    del sys.modules[name]
import libcore_torch
assert libcore_torch.devices()[0].device == x.device
assert (x + torch.ones(2, device="libcore:0")).tolist() == [2, 2]
import importlib
importlib.reload(libcore_torch)
assert (x + 1).tolist() == [2, 2]
""")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_process_exits_with_live_tensors(self):
        result = run("""
import torch, libcore_torch
keep = []
for one in libcore_torch.devices():
    x = torch.ones(1000, device=one.device, requires_grad=True)
    y = (x * 2).sum()
    stream = torch.Stream(one.device)
    keep += [x, y, stream, stream.record_event(),
             torch.Generator(one.device),
             x.detach().__dlpack__(max_version=(1, 0))]
torch.live = keep
""")
        self.assertEqual(result.returncode, 0, result.stderr)

    @unittest.skipUnless(len(DEVICES) > 1, "no device sim")
    def test_faults_of_a_device_are_exceptions(self):
        program = """
import torch, libcore_torch
sim = libcore_torch.device("sim")
for _ in range(30):
    try:
        there = torch.nn.Linear(4, 4).to(sim)
        optimizer = torch.optim.Adam(there.parameters())
        with torch.Stream(sim) as stream:
            loss = there(torch.ones(2, 4, device=sim)).square().mean()
            loss.backward()
            optimizer.step()
            stream.record_event().synchronize()
        loss.item()
        torch.accelerator.synchronize(sim)
    except RuntimeError as error:
        print(error)
        keep = there, loss if "loss" in globals() else None
x = torch.ones(3, device=libcore_torch.device("cpu"))
assert (x + 1).tolist() == [2, 2, 2]
"""
        faults = "alloc:2,copy:3,launch:30,async:60,event:4,stream:9,lost:300"
        result = run(program, LIBCORE_SIM_FAULT=faults)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("lost", result.stdout)

    @unittest.skipUnless(len(DEVICES) > 1, "no device sim")
    def test_exhausted_memory_is_an_out_of_memory_error(self):
        result = run("""
import torch, libcore_torch
sim, keep = libcore_torch.device("sim"), []
try:
    while True:
        keep.append(torch.ones(1 << 18, device=sim))
except torch.OutOfMemoryError as error:
    print(error)
keep.clear()
assert (torch.ones(1 << 18, device=sim) + 1).sum().item() == 1 << 19
""", LIBCORE_SIM_BYTES=str(8 << 20))
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_wrong_programs_get_exceptions(self):
        for device in DEVICES:
            x = torch.ones(3, device=device)
            part = torch.ones(3, requires_grad=True)
            shim, there = libcore_torch._shim, "there are .* devices"
            for kind, message, wrong in (
                    (RuntimeError, there,
                     lambda: torch.ones(2, device="libcore:99")),
                    (RuntimeError, there,
                     lambda: torch.ones(2, device="libcore:200")),
                    (RuntimeError, there, lambda: shim.set_device(1000)),
                    (TypeError, "'str' object", lambda: shim.describe("cpu")),
                    (RuntimeError, there, lambda: shim.describe(-7)),
                    (RuntimeError, there,
                     lambda: torch.Stream(stream_id=1, device_index=-56,
                                          device_type=20).query()),
                    (RuntimeError, "on the same device",
                     lambda: torch._fused_sgd_(
                         [part.detach()], [x], [], weight_decay=0.0,
                         momentum=0.0, lr=0.1, dampening=0.0, nesterov=False,
                         maximize=False, is_first_step=True)),
                    (RuntimeError, "more elements than can be addressed",
                     lambda: torch.empty(1 << 60, device=device)),
                    (IndexError, "contains 5, which is out of range",
                     lambda: x[torch.tensor([5], device=device)].cpu()),
                    (RuntimeError, "to a storage on different device",
                     lambda: x.set_(torch.ones(3).untyped_storage())),
                    (RuntimeError, "the size of dimension 0 is -1",
                     lambda: x.untyped_storage().resize_(-1)),
                    (TypeError, "can't convert libcore", lambda: x.numpy()),
                    (RuntimeError, there,
                     lambda: torch.accelerator.set_device_index(99)),
                    (RuntimeError, "are out of bounds for storage of size 12",
                     lambda: torch.as_strided(x, (10,), (1,)) + 1)):
                with self.assertRaisesRegex(kind, message):
                    wrong()
            self.assertEqual((x + 1).tolist(), [2, 2, 2])

    def test_tensors_of_other_kinds_are_refused_by_libcore(self):
        sparse = torch.eye(3).to_sparse()
        for device in DEVICES:
            x = torch.ones(3, 3, device=device)
            for kind, wrong in (
                    ("sparse", lambda: sparse.to(device)),
                    ("sparse", lambda: x.to_sparse()),
                    ("sparse", lambda: x.to_sparse_csr()._nnz()),
                    ("sparse", lambda: x.copy_(sparse)),
                    ("quantized", lambda: torch.quantize_per_tensor(
                        x, 1, 0, torch.qint8))):
                with self.assertRaisesRegex(
                        NotImplementedError,
                        f"libcore does not support {kind} tensors"):
                    wrong()


if __name__ == "__main__":
    unittest.main()
