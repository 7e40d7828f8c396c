# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""torch.compile, torch.accelerator, profilers and data loaders on libcore's
devices."""

import copy
import json
import tempfile
import unittest

import torch
import torch.nn.functional as F

import libcore_torch

DEVICES = [device.device for device in libcore_torch.devices()
           if device.name in ("cpu", "sim")]
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


def small_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(),
                               torch.nn.LayerNorm(8), torch.nn.Dropout(0.0),
                               torch.nn.Linear(8, 3))


class Compile(unittest.TestCase):
    def tearDown(self):
        torch._dynamo.reset()

    def check_training(self, backend):
        """The losses and gradients of a compiled model are the model's."""
        for device in DEVICES:
            plain = small_model().to(device)
            compiled = torch.compile(copy.deepcopy(plain), backend=backend,
                                     fullgraph=True)
            x = torch.randn(4, 6).to(device)
            y = torch.tensor([0, 2, 1, 0]).to(device)
            libcore_torch.reset_fallbacks()
            for model in plain, compiled:
                F.cross_entropy(model(x), y).backward()
            for one, other in zip(plain.parameters(), compiled.parameters()):
                torch.testing.assert_close(other.grad, one.grad)
            self.assertEqual(libcore_torch.fallbacks(), {})

    def test_aot_eager_trains(self):
        self.check_training("aot_eager")

    def test_eager_trains(self):
        self.check_training("eager")

    def test_functions_are_compiled(self):
        for device in DEVICES:
            calls = []

            def count(graph, inputs):
                calls.append(len(inputs))
                return graph

            @torch.compile(backend=count)
            def function(x, y):
                z = torch.zeros(3, device=x.device).add_(x)  # in place
                return (z * y).sum(), x.view(3, 1)

            x = torch.arange(3.0, device=device)
            for _ in range(2):
                total, view = function(x, x + 1)
                self.assertEqual(total.item(), 8)
                self.assertEqual(view.device, device)
            self.assertEqual(len(calls), 1)

    def test_inductor_is_refused(self):
        x = torch.ones(3, device=DEVICES[0])
        with self.assertRaises(Exception) as raised:
            torch.compile(lambda x: x.sin() + x.cos())(x)
        self.assertIn("libcore", str(raised.exception))


class Accelerator(unittest.TestCase):
    def test_the_current_device_and_stream(self):
        accelerator = torch.accelerator
        self.assertTrue(accelerator.is_available())
        self.assertEqual(accelerator.current_accelerator().type, "libcore")
        self.assertEqual(accelerator.device_count(),
                         len(libcore_torch.devices()))
        for device in DEVICES:
            with accelerator.device_index(device.index):
                self.assertEqual(accelerator.current_device_index(),
                                 device.index)
                self.assertEqual(torch.ones(2, device="libcore").device, device)
                stream = torch.Stream(device)
                before = accelerator.current_stream()
                accelerator.set_stream(stream)
                self.assertEqual(accelerator.current_stream(), stream)
                accelerator.set_stream(before)
                accelerator.synchronize()
            self.assertEqual(accelerator.current_device_index(), 0)

    def test_memory_is_counted(self):
        accelerator = torch.accelerator
        devices = [device.device for device in libcore_torch.devices()
                   if device.name == "sim"]  # memory of cpu is the C library's
        self.assertTrue(devices, "there is no device sim")
        for device in devices:
            index = device.index
            before = accelerator.memory_allocated(index)
            x = torch.ones(1 << 16, device=device)
            self.assertGreaterEqual(accelerator.memory_allocated(index),
                                    before + (1 << 18))
            self.assertGreaterEqual(accelerator.max_memory_allocated(index),
                                    accelerator.memory_allocated(index))
            self.assertGreaterEqual(accelerator.memory_reserved(index),
                                    accelerator.memory_allocated(index))
            del x
            self.assertEqual(accelerator.memory_allocated(index), before)
            accelerator.empty_cache()


class Profiler(unittest.TestCase):
    def test_operators_are_recorded(self):
        for device in DEVICES:
            x = torch.ones(8, 8, device=device)
            with torch.profiler.profile(record_shapes=True) as profile:
                (x @ x).relu()
            events = {event.key: event for event in profile.key_averages()}
            self.assertEqual(events["aten::mm"].count, 1)
            self.assertGreater(events["aten::relu"].cpu_time_total, 0)

    def test_times_on_the_device_are_recorded(self):
        for device in DEVICES:
            x = torch.ones(256, 256, device=device)
            with torch.accelerator.device_index(device.index):
                with torch.autograd.profiler.profile(
                        use_device="libcore", use_kineto=False) as profile:
                    for _ in range(3):
                        x @ x
            event, = [event for event in profile.key_averages()
                      if event.key == "aten::mm"]
            self.assertEqual(event.count, 3)
            self.assertGreater(event.device_time_total, 0)
            self.assertIn("LIBCORE", profile.key_averages().table().upper())

    @unittest.skipIf(VERSION < (2, 12), "torch has it from 2.12")
    def test_activities_of_devices_are_recorded(self):
        kinds = torch.profiler.ProfilerActivity
        for device in DEVICES:
            x = torch.ones(256, 256, device=device)
            for _ in range(2):  # a session after another
                with torch.profiler.profile(
                        activities=[kinds.CPU, kinds.PrivateUse1]) as profile:
                    for _ in range(3):
                        x @ x
                    x.cpu()
            events = [event for event in profile.events()
                      if event.device_type != torch.autograd.DeviceType.CPU]
            names = [event.name for event in events]
            self.assertEqual((names.count("mm"), names.count("copy")), (3, 1))
            for event in events:
                self.assertEqual(event.device_index, device.index)
                self.assertGreaterEqual(event.time_range.elapsed_us(), 0)
            average, = [event for event in profile.key_averages()
                        if event.key == "aten::mm"]
            self.assertGreater(average.device_time_total, 0)
            with tempfile.NamedTemporaryFile(suffix=".json") as file:
                profile.export_chrome_trace(file.name)
                with open(file.name) as text:
                    trace = json.load(text)["traceEvents"]
            kernels = [event for event in trace if event.get("name") == "mm"]
            self.assertEqual(len(kernels), 3)
            calls = [event for event in trace if event["ph"] == "X"
                     and event["name"] == "aten::mm"]
            for kernel, call in zip(kernels, calls):  # one clock for both
                self.assertGreaterEqual(kernel["ts"] + kernel["dur"],
                                        call["ts"] - 1000)


class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.full((2, 2), float(index)), {"label": index}


class Loaders(unittest.TestCase):
    def test_batches_of_workers_get_to_the_device(self):
        for device in DEVICES:
            for workers, pin in ((0, False), (0, True), (2, True)):
                loader = torch.utils.data.DataLoader(
                    Pictures(), batch_size=4, num_workers=workers,
                    pin_memory=pin, persistent_workers=workers > 0)
                for _ in range(2):  # epochs
                    labels = []
                    for images, rest in loader:
                        there = images.to(device, non_blocking=True)
                        expected = [4.0 * label for label in rest["label"]]
                        self.assertEqual(there.sum((1, 2)).tolist(), expected)
                        self.assertEqual(images.is_pinned(), pin)
                        labels += rest["label"].tolist()
                    self.assertEqual(labels, list(range(12)))

    def test_the_order_follows_the_seed(self):
        orders = []
        for _ in range(2):
            torch.manual_seed(3)
            loader = torch.utils.data.DataLoader(Pictures(), 3, shuffle=True)
            orders.append([batch["label"].tolist() for _, batch in loader])
        self.assertEqual(*orders)


if __name__ == "__main__":
    unittest.main()
