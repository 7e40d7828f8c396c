# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""PyTorch's own modules (module_db) and optimizers (optim_db) in f32, on a device
of libcore beside torch's CPU.

LIBCORE_TORCH_DEVICE names the device, "cpu" by default.  The last line counts the
tests by outcome: passed without the CPU's help, passed with it (fallback), failed,
excluded.  A fallback that is not in fallbacks.txt is a failure.
"""

import atexit
import copy
import functools
import os
import unittest

import torch

import judges
import libcore_torch  # first: the next imports look for devices
from nested import mapped, tensors_of
from steps import largest_of

from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db

DEVICE = libcore_torch.device(os.environ.get("LIBCORE_TORCH_DEVICE", "cpu"))
OUTCOMES = {"passed": 0, "fallback": 0, "failed": 0, "excluded": 0}
# Only sizes and dtypes are compared where these are active.
RANDOM = (torch.nn.Dropout, torch.nn.Dropout1d, torch.nn.Dropout2d,
          torch.nn.Dropout3d, torch.nn.AlphaDropout,
          torch.nn.FeatureAlphaDropout, torch.nn.RReLU,
          torch.nn.FractionalMaxPool2d, torch.nn.FractionalMaxPool3d)


def draws(part):
    """Pooling draws its regions when it is evaluated, too."""
    if isinstance(part, RANDOM):
        return (getattr(part, "p", 1) > 0
                and (part.training or "Pool" in type(part).__name__))
    dropout = getattr(part, "dropout", 0.0)
    return part.training and isinstance(dropout, float) and dropout > 0


def is_random(module):
    return any(draws(part) for part in module.modules())


def moved(value, device, dtype=None):
    """A copy on a device, with gradients where there were some; floating-point
    numbers in a dtype, if it is given."""
    def move(tensor):
        wanted = (dtype if dtype and tensor.is_floating_point()
                  else tensor.dtype)
        made = tensor.detach().to(device, wanted, copy=True)
        return made.requires_grad_(tensor.requires_grad)
    return mapped(value, move)


def evaluate(module, arguments):
    """Results, gradients of inputs and parameters, and buffers."""
    args, kwargs = arguments
    results = tensors_of(module(*args, **kwargs))
    roots = [one for one in results if one.requires_grad]
    leaves = [one for one in tensors_of(args) + tensors_of(kwargs)
              + list(module.parameters()) if one.requires_grad]
    gradients = ()
    if roots and leaves:
        torch.manual_seed(3)
        seeds = [torch.randn(one.shape).to(one) for one in roots]
        gradients = torch.autograd.grad(roots, leaves, seeds,
                                        allow_unused=True)
    return results, list(gradients) + list(module.buffers())


def slack_of(module, arguments):
    """Modules of several layers round in each: 16 units of rounding of the largest
    argument, or of 1, are right there, and in CTCLoss, whose gradient is a
    difference of chances."""
    if not (any(module.children()) or isinstance(module, torch.nn.CTCLoss)):
        return None
    args, kwargs = arguments
    largest = largest_of(tensors_of(list(args)) + tensors_of(kwargs))
    return 16 * torch.finfo(torch.float32).eps * max(largest, 1)


class Judge(unittest.TestCase):
    def compare(self, have, expected, exact, slack=None):
        """exact: a function that returns the list in f64, or None if there are no
        numbers to compare.  slack: that of judges.check."""
        self.assertEqual(len(have), len(expected))
        for index, (one, other) in enumerate(zip(have, expected)):
            self.assertEqual(one is None, other is None)
            if one is None:
                continue
            self.assertEqual(one.dtype, other.dtype)
            self.assertEqual(one.shape, other.shape)
            if exact:
                judges.check(one.detach().cpu(), other.detach(),
                             lambda: exact()[index], slack=slack)

    def judge(self, function, *arguments):
        libcore_torch.reset_fallbacks()
        outcome = "failed"
        try:
            function(*arguments)
            fallbacks = libcore_torch.fallbacks()
            judges.check_fallbacks(self.id().split(".test_")[1], fallbacks)
            outcome = "fallback" if fallbacks else "passed"
        except unittest.SkipTest:
            outcome = "excluded"
            raise
        finally:
            OUTCOMES[outcome] += 1


class Modules(Judge):
    def run_module(self, info):
        for training in (True, False):
            torch.manual_seed(1)
            for given in info.module_inputs_func(
                    info, device="cpu", dtype=torch.float32,
                    requires_grad=True, training=training):
                self.run_input(info, given, training)

    def run_input(self, info, given, training):
        torch.manual_seed(5)
        module = info.module_cls(*given.constructor_input.args,
                                 **given.constructor_input.kwargs)
        module.to(torch.float32).train(training)
        forward = given.forward_input
        if forward is None:
            return
        arguments = (forward.args, forward.kwargs)
        if info.is_lazy:
            with torch.no_grad():
                module(*moved(forward.args, "cpu"),
                       **moved(forward.kwargs, "cpu"))
        there = copy.deepcopy(module).to(DEVICE)
        wide = copy.deepcopy(module).double()
        expected = evaluate(module, moved(arguments, "cpu"))
        have = evaluate(there, moved(arguments, DEVICE))

        @functools.cache
        def exact():
            try:
                return evaluate(wide, moved(arguments, "cpu", torch.float64))
            except RuntimeError:  # torch cannot compute it in f64
                return [[None] * len(one) for one in expected]

        slack = slack_of(module, arguments)
        for part, (one, other) in enumerate(zip(have, expected)):
            self.compare(one, other, None if is_random(module)
                         else lambda: exact()[part], slack)


class Optimizers(Judge):
    def run_optimizer(self, info):
        if info.only_supports_sparse_grads:
            self.skipTest("sparse gradients")
        for given in info.optim_inputs_func(device="cpu"):
            for way in (None, "foreach", "fused"):
                if way in info.supported_impls or way is None:
                    self.run_way(info, given, way)

    def run_way(self, info, given, way):
        kwargs = dict(given.kwargs)
        if way:
            if kwargs.get("differentiable") or kwargs.get("capturable"):
                return
            kwargs[way] = True
        self.compare(
            self.steps(info, DEVICE, kwargs), self.steps(info, "cpu", kwargs),
            lambda: self.steps(info, "cpu", kwargs, torch.float64))

    def steps(self, info, device, kwargs, dtype=torch.float32):
        """The parameters after some steps."""
        torch.manual_seed(2)
        start = [torch.randn(3, 4), torch.randn(4, 5), torch.randn(2, 2)]
        pulls = [[torch.randn_like(one) for one in start] for _ in range(4)]
        pulls = [[one.to(dtype) for one in step] for step in pulls]
        parameters = [one.to(device, dtype, copy=True).requires_grad_()
                      for one in start]
        kwargs = moved(kwargs, device, dtype)
        sign = -1 if kwargs.get("maximize") else 1
        optimizer = info.optim_cls(parameters, **kwargs)

        def closure():
            optimizer.zero_grad()
            loss = sum(((one - pull.to(device)) ** 2).sum() * sign
                       for one, pull in zip(parameters, pulls[step]))
            loss.backward()
            return loss

        # With a closure one step is many, to the minimum: after it rounding
        # decides.
        for step in range(1 if info.step_requires_closure else 4):
            if info.step_requires_closure:
                optimizer.step(closure)
            else:
                closure()
                optimizer.step()
        return [one.detach().cpu() for one in parameters]


def add(case, method, info, name):
    def test(self):
        self.judge(getattr(self, method), info)
    setattr(case, f"test_{name}", test)


for one in module_db:
    add(Modules, "run_module", one, one.formatted_name)
for one in optim_db:
    add(Optimizers, "run_optimizer", one, one.name.replace(".", "_"))
if len(module_db) < 100 or len(optim_db) < 10:
    raise SystemExit("test_module_db.py: torch has fewer modules than expected")


@atexit.register
def report():
    print(", ".join(f"{count} {name}" for name, count in OUTCOMES.items()))


if __name__ == "__main__":
    unittest.main()
