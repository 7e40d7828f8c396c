# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""PyTorch's own sample inputs (op_db), forward and backward, on a device of
libcore beside torch's CPU.

samples.py says which environment variables name the device and the dtype.  The last
line counts the entries by outcome:
passed without the CPU's help, passed with it (fallback), failed, excluded, and
entries that gave no input.  An operator that is computed on the CPU and is not in
fallbacks.txt, or fallbacks-opencl.txt on opencl, is a failure.  With
LIBCORE_TORCH_FALLBACKS=1 each entry with a fallback is printed with the operators
that the CPU computed.
"""

import atexit
import contextlib
import os

import torch

import judges
import libcore_torch  # first: the next import looks for devices
import references
from nested import tensors_of
import samples
from samples import (DEVICE, DEVICE_NAME, DTYPE, copies, how_of,
                     is_judged_by_sizes, name_of, valid)
from steps import Steps, largest_of

from torch.testing._internal.common_device_type import (
    instantiate_device_type_tests, ops)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, run_tests

PRINTS_FALLBACKS = os.environ.get("LIBCORE_TORCH_FALLBACKS") == "1"
SAMPLES = 40


def evaluate(op, sample, arguments, backward, seeds=None):
    """The results, the gradients and those of the results, without gauge.  seeds:
    the gradients of the results, which are drawn if they are not given."""
    args, kwargs = arguments
    torch.manual_seed(7)
    results = sample.output_process_fn_grad(op(*args, **kwargs))
    results = tensors_of(results)
    roots = [one for one in results
             if one.requires_grad and one.is_floating_point()]
    leaves = [one for one in tensors_of(args) + tensors_of(kwargs)
              if one.requires_grad]
    if not (backward and roots and leaves):
        return results, [], []
    if seeds:
        seeds = [one.to(root) for one, root in zip(seeds, roots, strict=True)]
    else:
        torch.manual_seed(3)
        seeds = [torch.randn(one.shape).to(one) for one in roots]
    return results, torch.autograd.grad(roots, leaves, seeds,
                                        allow_unused=True), seeds


def fetched(evaluated):
    """Copies on the CPU."""
    return [[one if one is None else one.detach().cpu() for one in part]
            for part in evaluated]


@contextlib.contextmanager
def results_in_f64():
    """What torch computes of integers has the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def slack_of(arguments):
    """16 units of rounding of the largest element of the arguments."""
    args, kwargs = arguments
    return 16 * torch.finfo(torch.float32).eps * largest_of(
        tensors_of(list(args)) + tensors_of(kwargs))


class OperatorSamples(TestCase):
    def compare(self, have, expected):
        """Whether there are as many tensors, of the same dtypes and sizes."""
        self.assertEqual(len(have), len(expected))
        for one, other in zip(have, expected):
            self.assertEqual(one is None, other is None)
            if one is not None:
                self.assertEqual(one.dtype, other.dtype)
                self.assertEqual(one.shape, other.shape)

    def compare_numbers(self, have, expected, exact, slack):
        for part, both in enumerate(zip(have, expected)):
            for index, (one, other) in enumerate(zip(*both)):
                if one is not None:
                    judges.check(one, other, lambda: exact(part, index),
                                 self.errors,
                                 ("results", "gradients")[part], slack)

    def run_sample(self, op, sample, backward):
        arguments = ((sample.input,) + tuple(sample.args), dict(sample.kwargs))
        expected = evaluate(op, sample, copies(op, arguments, "cpu"), backward)
        moved = copies(op, arguments, DEVICE)
        with self.steps or contextlib.nullcontext():
            have = evaluate(op, sample, moved, backward)
        for one, other in zip(have, expected):
            self.compare(one, other)
        if is_judged_by_sizes(op, sample):
            return
        have, expected = fetched(have[:2]), fetched(expected)
        order = judges.order_of(op, sample, expected[2])
        if order:
            judges.check_ordered(order, have, expected)
            return

        def exact(part, index):
            known = (references.exact(op, sample, expected[2], part)
                     if DTYPE.itemsize > 2 or not DTYPE.is_floating_point
                     else None)
            if known is not None:
                return known
            try:
                with results_in_f64():
                    return evaluate(op, sample, copies(
                        op, arguments, "cpu", torch.float64), backward,
                        expected[2])[part][index]
            except Exception:  # torch cannot compute it in f64
                return None

        slack = slack_of(arguments) if "cancels" in how_of(op) else None
        self.compare_numbers(have[:2], expected[:2], exact, slack)

    def run_samples(self, op, dtype):
        """The number of samples."""
        backward = (op.supports_autograd
                    and dtype in op.supported_backward_dtypes("cpu"))
        short = dtype.itemsize == 2 and dtype.is_floating_point
        how = how_of(op)
        self.errors = judges.Errors(by_sum="steps" not in how) if (
            short and how & {"rounding", "steps"}) else None
        self.steps = Steps() if short and "steps" in how else None
        torch.manual_seed(1)
        count = 0
        for sample in op.sample_inputs("cpu", dtype, requires_grad=backward):
            if count == SAMPLES:
                break
            self.run_sample(op, valid(op, sample), backward)
            count += 1
        if self.errors:
            self.errors.check()
        if self.steps:
            self.steps.check()
        return count

    def outcome_of(self, op, dtype):
        if self.run_samples(op, dtype) == 0:
            return "without input"
        fallbacks = libcore_torch.fallbacks()
        if PRINTS_FALLBACKS and fallbacks:
            print(name_of(op), fallbacks)
        judges.check_fallbacks(name_of(op), fallbacks,
                               DEVICE_NAME.partition(":")[0])
        return "fallback" if fallbacks else "passed"

    @ops(op_db, allowed_dtypes=(DTYPE,))
    def test_as_on_the_cpu(self, device, dtype, op):
        samples.count(self, op, lambda: self.outcome_of(op, dtype))


atexit.register(samples.report)


instantiate_device_type_tests(OperatorSamples, globals(),
                              only_for=("libcore",))
if not any(name.startswith("OperatorSamples") for name in globals()):
    raise SystemExit("test_op_db.py: torch made no test for libcore")

if __name__ == "__main__":
    run_tests()
