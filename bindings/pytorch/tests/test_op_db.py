# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""PyTorch's own sample inputs (op_db), forward and backward, on a device of
libcore beside torch's CPU.

LIBCORE_TORCH_DEVICE names the device, "cpu" by default, and LIBCORE_TORCH_DTYPE
the dtype, "float32" by default.  The last line counts the entries by outcome:
passed without the CPU's help, passed with it (fallback), failed, excluded, and
entries that gave no input.  An operator that is computed on the CPU and is not in
fallbacks.txt, or fallbacks-opencl.txt on opencl, is a failure.  With
LIBCORE_TORCH_FALLBACKS=1 each entry with a fallback is printed with the operators
that the CPU computed.
"""

import atexit
import contextlib
import dataclasses
import os

import torch

import judges
import libcore_torch  # first: the next import looks for devices
import references
from nested import mapped, tensors_of
from steps import Steps

from torch.testing._internal.common_device_type import (
    instantiate_device_type_tests, ops)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, run_tests

DEVICE_NAME = os.environ.get("LIBCORE_TORCH_DEVICE", "cpu")
DEVICE = libcore_torch.device(DEVICE_NAME)
DTYPE = getattr(torch, os.environ.get("LIBCORE_TORCH_DTYPE", "float32"))
PRINTS_FALLBACKS = os.environ.get("LIBCORE_TORCH_FALLBACKS") == "1"
SAMPLES = 40
OUTCOMES = {"passed": 0, "fallback": 0, "failed": 0, "excluded": 0,
            "without input": 0}


def read_exclusions():
    """How an entry is tested, by its name."""
    lines = [line.split(None, 2) for line in judges.lines_of("exclusions.txt")]
    return {name: (how, reason.strip()) for name, how, reason in lines}


EXCLUSIONS = read_exclusions()


def name_of(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name
                      else "")


def how_of(op):
    return EXCLUSIONS.get(name_of(op), ("numbers", ""))[0]


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
    wanted = result[1].get("dtype")
    if dtype and isinstance(wanted, torch.dtype) and wanted.is_floating_point:
        result[1]["dtype"] = dtype
    return result


def valid(sample):
    """The sample with arguments that libcore accepts and that ask for the same
    on all devices.  torch takes random samples of pooling outside of 0 to 1 too,
    which its documentation excludes, and sums linear_cross_entropy in f32 by
    default on the CPU only."""
    given = sample.kwargs.get("_random_samples")
    if given is not None:
        sample.kwargs["_random_samples"] = given.sigmoid()
    options = sample.kwargs.get("options")
    if getattr(options, "acc_policy", None) == "auto":
        sample.kwargs["options"] = dataclasses.replace(options,
                                                       acc_policy="accurate")
    return sample


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


# The position after the input of the chance of dropout, where it has one.
DROPOUT = {"nn.functional.multi_head_attention_forward": 9}


def draws(op, sample):
    """Whether a sample of attention drops elements at random."""
    at = DROPOUT.get(op.name, len(sample.args))
    chance = (sample.args[at] if at < len(sample.args)
              else sample.kwargs.get("dropout_p", 0))
    return chance > 0 and sample.kwargs.get("training", True)


class OperatorSamples(TestCase):
    def compare(self, have, expected):
        """Whether there are as many tensors, of the same dtypes and sizes."""
        self.assertEqual(len(have), len(expected))
        for one, other in zip(have, expected):
            self.assertEqual(one is None, other is None)
            if one is not None:
                self.assertEqual(one.dtype, other.dtype)
                self.assertEqual(one.shape, other.shape)

    def compare_numbers(self, op, have, expected, exact):
        for part, both in enumerate(zip(have, expected)):
            for index, (one, other) in enumerate(zip(*both)):
                if one is not None:
                    judges.check(one, other, lambda: exact(part, index),
                                 how_of(op) == "largest", self.errors,
                                 ("results", "gradients")[part])

    def run_sample(self, op, sample, backward):
        arguments = ((sample.input,) + tuple(sample.args), dict(sample.kwargs))
        expected = evaluate(op, sample, copies(arguments, "cpu"), backward)
        moved = copies(arguments, DEVICE)
        with self.steps or contextlib.nullcontext():
            have = evaluate(op, sample, moved, backward)
        for one, other in zip(have, expected):
            self.compare(one, other)
        how = how_of(op)
        if how == "sizes" or (how == "dropout" and draws(op, sample)):
            return
        have, expected = fetched(have[:2]), fetched(expected)
        order = judges.order_of(op, sample, expected[2])
        if order:
            judges.check_ordered(order, have, expected)
            return

        def exact(part, index):
            known = (references.exact(op, sample, expected[2], part)
                     if DTYPE == torch.float64 else None)
            if known is not None:
                return known
            try:
                return evaluate(op, sample,
                                copies(arguments, "cpu", torch.float64),
                                backward, expected[2])[part][index]
            except Exception:  # torch cannot compute it in f64
                return None

        self.compare_numbers(op, have[:2], expected[:2], exact)

    def run_samples(self, op, dtype):
        """The number of samples."""
        backward = (op.supports_autograd
                    and dtype in op.supported_backward_dtypes("cpu"))
        short = dtype.itemsize == 2 and dtype.is_floating_point
        how = how_of(op)
        self.errors = judges.Errors(by_sum=how != "steps") if (
            short and how in ("rounding", "dropout", "steps")) else None
        self.steps = Steps() if short and how == "steps" else None
        torch.manual_seed(1)
        count = 0
        for sample in op.sample_inputs("cpu", dtype, requires_grad=backward):
            if count == SAMPLES:
                break
            self.run_sample(op, valid(sample), backward)
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
        if how_of(op) == "skip":
            OUTCOMES["excluded"] += 1
            self.skipTest(EXCLUSIONS[name_of(op)][1])
        libcore_torch.reset_fallbacks()
        outcome = "failed"
        try:
            outcome = self.outcome_of(op, dtype)
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
