# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""PyTorch's own sample inputs (op_db), forward and backward, on a device of
libcore beside torch's CPU.

LIBCORE_TORCH_DEVICE names the device, "cpu" by default, and LIBCORE_TORCH_DTYPE
the dtype, "float32" by default.  The last line counts the entries by outcome:
passed without the CPU's help, passed with it (fallback), failed, excluded.  With
LIBCORE_TORCH_FALLBACKS=1 each entry with a fallback is printed with the operators
that the CPU computed.
"""

import atexit
import os

import torch

import libcore_torch  # first: the next import looks for devices

from torch.testing._internal.common_device_type import (
    instantiate_device_type_tests, ops)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, run_tests

DEVICE = libcore_torch.device(os.environ.get("LIBCORE_TORCH_DEVICE", "cpu"))
DTYPE = getattr(torch, os.environ.get("LIBCORE_TORCH_DTYPE", "float32"))
PRINTS_FALLBACKS = os.environ.get("LIBCORE_TORCH_FALLBACKS") == "1"
SAMPLES = 40
# How far results may be from torch's, relative and absolute.
TOLERANCE = {torch.float16: 5e-3, torch.bfloat16: 4e-2}.get(DTYPE, 1e-4)
OUTCOMES = {"passed": 0, "fallback": 0, "failed": 0, "excluded": 0}


def read_exclusions():
    """How an entry is tested, by its name."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                        "exclusions.txt")
    with open(path) as file:
        lines = [line.split(None, 2) for line in file
                 if line.strip() and not line.startswith("#")]
    return {name: (how, reason.strip()) for name, how, reason in lines}


EXCLUSIONS = read_exclusions()


def name_of(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name
                      else "")


def mapped(value, function):
    """A copy of nested arguments with function applied to the tensors."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(mapped(item, function) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, function) for key, item in value.items()}
    return value


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [found for item in value for found in tensors_of(item)]
    return []


def copies(arguments, device, dtype=None):
    """Leaves with the same numbers elsewhere, or in another floating dtype."""
    def copy(tensor):
        wanted = (dtype if dtype and tensor.is_floating_point()
                  else tensor.dtype)
        made = tensor.detach().to(device, wanted, copy=True)
        return made.requires_grad_(tensor.requires_grad)
    result = mapped(arguments, copy)
    if "device" in result[1]:
        result[1]["device"] = device
    return result


def valid(sample):
    """The sample with arguments that libcore accepts: torch takes random samples
    of pooling outside of 0 to 1 too, which its documentation excludes."""
    given = sample.kwargs.get("_random_samples")
    if given is not None:
        sample.kwargs["_random_samples"] = given.sigmoid()
    return sample


def evaluate(op, sample, arguments, backward):
    """The results and the gradients, without gauge."""
    args, kwargs = arguments
    torch.manual_seed(7)
    results = sample.output_process_fn_grad(op(*args, **kwargs))
    results = tensors_of(results)
    roots = [one for one in results
             if one.requires_grad and one.is_floating_point()]
    leaves = [one for one in tensors_of(args) + tensors_of(kwargs)
              if one.requires_grad]
    if not (backward and roots and leaves):
        return results, []
    torch.manual_seed(3)
    seeds = [torch.randn(one.shape).to(one) for one in roots]
    return results, torch.autograd.grad(roots, leaves, seeds,
                                        allow_unused=True)


# The dimension argument of operators that order elements, by its position after
# the input; equal elements are in no order unless `stable` asks for one.
ORDERING = {"argsort": 0, "kthvalue": 1, "mode": 0, "msort": None, "sort": 0,
            "topk": 1}


def has_ties(op, sample):
    return (op.name in ORDERING and not sample.kwargs.get("stable")
            and sample.input.unique().numel() < sample.input.numel())


def without_ties(op, sample, results, gradients):
    """The results and the gradient whichever of equal elements were chosen: what
    indices select instead of the indices, and the sum of the gradient."""
    at, given = ORDERING[op.name], sample.input.detach()
    dim = 0 if at is None else (
        sample.args[at] if len(sample.args) > at
        else sample.kwargs.get("dim", -1))
    selected = []
    for one in results:
        index = one.detach().cpu()
        if index.dtype == torch.int64 and op.name != "msort" and (
                one is results[-1]):
            wide = (index.unsqueeze(dim) if index.dim() < given.dim()
                    else index)
            index = given.gather(dim, wide).reshape(index.shape)
        selected.append(index)
    return (selected, [one.sum(dim if one.dim() else None)
                       for one in gradients])


class OperatorSamples(TestCase):
    def compare(self, have, expected, exact, numbers):
        """exact: a function that returns the tensor in f64, or None."""
        self.assertEqual(have is None, expected is None)
        if have is None:
            return
        self.assertEqual(have.dtype, expected.dtype)
        self.assertEqual(have.shape, expected.shape)
        if not numbers:
            return
        have, expected = have.detach().cpu(), expected.detach().cpu()
        try:
            torch.testing.assert_close(have, expected, rtol=TOLERANCE,
                                       atol=TOLERANCE, equal_nan=True)
        except AssertionError:
            # torch's f32 may be the one that is less exact.
            best = exact() if have.is_floating_point() else None
            if best is None:
                raise
            self.compare_exact(have.double(), expected.double(), best.detach(),
                               torch.finfo(have.dtype).eps)

    def compare_exact(self, have, expected, best, unit):
        """Passes what is nearer to the exact result than torch's is, which a
        result that amplifies rounding may be without being near to it, and
        errors of one unit of rounding of the largest element."""
        ours, theirs = (have - best).abs().max(), (expected - best).abs().max()
        if not (ours < theirs or ours <= unit * best.abs().max()):
            torch.testing.assert_close(have, best, rtol=TOLERANCE,
                                       atol=TOLERANCE, equal_nan=True)

    def run_sample(self, op, sample, backward, numbers):
        arguments = ((sample.input,) + tuple(sample.args), dict(sample.kwargs))
        expected = evaluate(op, sample, copies(arguments, "cpu"), backward)
        have = evaluate(op, sample, copies(arguments, DEVICE), backward)
        if has_ties(op, sample):
            have, expected = (without_ties(op, sample, *both)
                              for both in (have, expected))

        def exact(part, index):
            try:
                return evaluate(op, sample,
                                copies(arguments, "cpu", torch.float64),
                                backward)[part][index]
            except Exception:  # torch cannot compute it in f64
                return None

        for part, (ours, theirs) in enumerate(zip(have, expected)):
            self.assertEqual(len(ours), len(theirs))
            for index, (one, other) in enumerate(zip(ours, theirs)):
                self.compare(one, other,
                             lambda: exact(part, index), numbers)

    def run_samples(self, op, dtype, numbers):
        backward = (op.supports_autograd
                    and dtype in op.supported_backward_dtypes("cpu"))
        torch.manual_seed(1)
        for count, sample in enumerate(
                op.sample_inputs("cpu", dtype, requires_grad=backward)):
            if count == SAMPLES:
                break
            self.run_sample(op, valid(sample), backward, numbers)

    @ops(op_db, allowed_dtypes=(DTYPE,))
    def test_as_on_the_cpu(self, device, dtype, op):
        how, reason = EXCLUSIONS.get(name_of(op), ("numbers", ""))
        if how == "skip":
            OUTCOMES["excluded"] += 1
            self.skipTest(reason)
        libcore_torch.reset_fallbacks()
        outcome = "failed"
        try:
            self.run_samples(op, dtype, how == "numbers")
            outcome = "fallback" if libcore_torch.fallbacks() else "passed"
            if PRINTS_FALLBACKS and libcore_torch.fallbacks():
                print(name_of(op), libcore_torch.fallbacks())
        finally:
            OUTCOMES[outcome] += 1


@atexit.register
def report():
    print(", ".join(f"{count} {name}" for name, count in OUTCOMES.items()))


instantiate_device_type_tests(OperatorSamples, globals(),
                              only_for=("libcore",))
if not any(name.startswith("OperatorSamples") for name in globals()):
    raise SystemExit("test_op_db.py: torch made no test for libcore")

if __name__ == "__main__":
    run_tests()
