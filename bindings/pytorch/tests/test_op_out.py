# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""PyTorch's own sample inputs (op_db) with `out=`, on a device of libcore beside
torch's CPU, which decides what is an error.  The tensors to write to are

empty    of no elements
strided  of the right sizes, with other strides and gaps, which stay as they are
wrong    of other sizes: torch warns and resizes them
wide     of another dtype, to which the results may be converted or not
whole    of int32, to which floating-point results are not converted
cpu      on another device, which is an error (scalar: of no dimensions)

exclusions-out.txt lists what is not tried, with a reason each.  samples.py says
which environment variables name the device and the dtype.  The last line counts the
entries as that of test_op_db.py.
"""

import atexit
import collections
import warnings

import torch

import judges
import libcore_torch  # first: the next import looks for devices
from nested import tensors_of
import samples
from samples import (DEVICE, DEVICE_NAME, DTYPE, copies, is_judged_by_sizes,
                     name_of, valid, with_strides)

from torch.testing._internal.common_device_type import (
    instantiate_device_type_tests, ops)
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, run_tests

SAMPLES = 4
FILL = 1  # what tensors to write to have before
WIDE = {torch.float32: torch.float64, torch.float64: torch.float32,
        torch.bfloat16: torch.float32, torch.float16: torch.float32}


def read_exclusions():
    """The forms that are not tried, by entry; * is each entry."""
    forms = collections.defaultdict(set)
    for line in judges.lines_of("exclusions-out.txt"):
        name, words, _ = line.split(None, 2)
        forms[name] |= set(words.split(","))
    return forms


EXCLUDED = read_exclusions()


def filled(sizes, dtype):
    return torch.full(sizes, FILL, dtype=dtype)


def empty(result):
    return torch.empty(0, dtype=result.dtype)


def strided(result):
    """Every second element of every second row, with the dimensions in reverse."""
    whole = filled([2 * size for size in reversed(result.shape)], result.dtype)
    view = whole.permute(tuple(reversed(range(result.dim()))))
    return view[tuple(slice(None, None, 2) for _ in result.shape)]


def wrong(result):
    return filled((*result.shape, 2), result.dtype)


def wide(result):
    return filled(result.shape, WIDE.get(result.dtype, torch.float32))


def whole(result):
    return filled(result.shape, torch.int32)


FORMS = {"empty": empty, "strided": strided, "wrong": wrong, "wide": wide,
         "whole": whole}


def outs_of(form, results):
    """What `out` is for the results, on the CPU: a tensor or a tuple."""
    if isinstance(results, torch.Tensor):
        return FORMS[form](results)
    return tuple(outs_of(form, one) for one in results)


def on_device(out):
    """The same views of storages of the device."""
    if isinstance(out, torch.Tensor):
        return with_strides(out, DEVICE, out.dtype)
    return tuple(map(on_device, out))


def converts(results, out):
    """Whether the results may be converted to the dtypes of out."""
    return all(torch.can_cast(one.dtype, other.dtype)
               for one, other in zip(tensors_of(results), tensors_of(out)))


def evaluate(op, arguments, out=None):
    args, kwargs = arguments
    torch.manual_seed(7)
    if out is not None:
        kwargs = {**kwargs, "out": out}
    with torch.no_grad():
        return op(*args, **kwargs)


def resizes(caught):
    return any("was resized since it had shape" in str(one.message)
               for one in caught)


def written(op, arguments, out):
    """The results and whether torch warned of resizing, or the error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            return evaluate(op, arguments, out), resizes(caught), None
        except Exception as error:
            return None, False, error


def place_of(tensor):
    return tensor.data_ptr(), tensor.stride(), tensor.storage_offset()


def memory_of(tensor):
    """All elements of the storage."""
    count = tensor.untyped_storage().nbytes() // tensor.itemsize
    return tensor.as_strided((count,), (1,), 0).cpu()


def gaps(tensor):
    """The elements of the storage that are not the tensor's."""
    mask = torch.ones(memory_of(tensor).shape, dtype=torch.bool)
    mask.as_strided(tensor.size(), tensor.stride(),
                    tensor.storage_offset()).fill_(False)
    return memory_of(tensor)[mask]


def without_overload(name):
    """The operator, whichever form of it writes to a tensor."""
    return name.partition(".")[0]


class OperatorOutputs(TestCase):
    def setUp(self):
        super().setUp()
        self.wrong = []

    def write(self, op, sample, results, form):
        arguments = ((sample.input,) + tuple(sample.args), dict(sample.kwargs))
        other = outs_of(form, results)
        out = on_device(other)
        places = [place_of(one) for one in tensors_of(other)]
        starts = [place_of(one) for one in tensors_of(out)]
        expected, warned, refused = written(op, copies(op, arguments, "cpu"),
                                            other)
        have, warns, error = written(op, copies(op, arguments, DEVICE), out)
        if error and not refused:
            raise AssertionError(f"an error: {error}")
        if refused and not error and not converts(results, other):
            raise AssertionError(f"no error: {refused}")
        if error:
            return
        if refused:  # torch's CPU has no conversion, and libcore has one
            expected = other = outs_of(form, results)
            places = [place_of(one) for one in tensors_of(other)]
            for one, two in zip(tensors_of(other), tensors_of(results)):
                one.resize_(two.shape) if form in ("empty", "wrong") else None
                one.copy_(two)
        elif warned and not warns:  # torch resizes some without a warning
            raise AssertionError("no warning of resizing")
        if have is None and (refused or expected is None):  # of a list
            have, expected = out, other
        stayed = [place_of(one) == place
                  for one, place in zip(tensors_of(other), places)]
        self.compare_places(form, have, out, other, starts, stayed)
        if not is_judged_by_sizes(op, sample):
            self.compare_numbers(op, sample, arguments, have, expected)

    def compare_places(self, form, have, out, other, starts, stayed):
        """The tensors given are returned, and written to in place where torch
        does so."""
        have, out, other = tensors_of(have), tensors_of(out), tensors_of(other)
        if not all(one is two for one, two in zip(have, out, strict=True)):
            raise AssertionError("other tensors are returned")
        for one, two, start, stays in zip(out, other, starts, stayed):
            if (one.dtype, one.shape) != (two.dtype, two.shape):
                raise AssertionError(f"{one.dtype}, {tuple(one.shape)} instead "
                                     f"of {two.dtype}, {tuple(two.shape)}")
            if stays and place_of(one) != start:
                raise AssertionError(f"moved from {start} to {place_of(one)}")
            if form == "strided" and not (gaps(one) == FILL).all():
                raise AssertionError("wrote to the elements between")

    def compare_numbers(self, op, sample, arguments, have, expected):
        have, expected = ([one.cpu() for one in tensors_of(both)]
                          for both in (have, expected))
        order = judges.order_of(op, sample)
        if order:
            judges.check_ordered(order, (have, []), (expected, []))
            return

        def exact(index):
            try:
                wider = copies(op, arguments, "cpu", torch.float64)
                return tensors_of(evaluate(op, wider))[index]
            except Exception:  # torch cannot compute it in f64
                return None

        for index, (one, two) in enumerate(zip(have, expected, strict=True)):
            if one.dtype == WIDE.get(DTYPE):  # computed in DTYPE
                one, two = one.to(DTYPE), two.to(DTYPE)
            judges.check(one, two, lambda: exact(index))

    def refuse_another_device(self, op, sample, results):
        arguments = ((sample.input,) + tuple(sample.args), dict(sample.kwargs))
        with self.assertRaises((RuntimeError, TypeError)):
            evaluate(op, copies(op, arguments, DEVICE),
                     outs_of("strided", results))

    def try_form(self, op, form, function, *arguments):
        if form in EXCLUDED[name_of(op)] | EXCLUDED["*"]:
            return
        try:
            function(*arguments)
        except AssertionError as error:
            text = " ".join(str(error).split())
            self.wrong.append(f"{form}: {text}")

    def try_sample(self, op, sample):
        """Whether it has tensors as results."""
        arguments = ((sample.input,) + tuple(sample.args), dict(sample.kwargs))
        results = evaluate(op, copies(op, arguments, "cpu"))
        tensors = tensors_of(results)
        if not tensors:
            return False
        for form in FORMS:
            self.try_form(op, form, self.write, op, sample, results, form)
        if tensors_of(list(arguments[0])) and all(
                one.numel() for one in tensors):
            self.try_form(op, "cpu" if tensors[0].dim() else "scalar",
                          self.refuse_another_device, op, sample, results)
        return True

    def outcome_of(self, op, dtype):
        number = 0
        torch.manual_seed(1)
        for sample in op.sample_inputs("cpu", dtype):
            if number == SAMPLES:
                break
            number += self.try_sample(op, valid(op, sample))
        if self.wrong:
            raise AssertionError("; ".join(self.wrong))
        fallbacks = libcore_torch.fallbacks()
        judges.check_fallbacks(name_of(op), fallbacks,
                               DEVICE_NAME.partition(":")[0], without_overload)
        return ("without input" if number == 0 else
                "fallback" if fallbacks else "passed")

    @ops([op for op in op_db if op.supports_out], allowed_dtypes=(DTYPE,))
    def test_out_as_on_the_cpu(self, device, dtype, op):
        samples.count(self, op, lambda: self.outcome_of(op, dtype))


atexit.register(samples.report)


instantiate_device_type_tests(OperatorOutputs, globals(),
                              only_for=("libcore",))
if not any(name.startswith("OperatorOutputs") for name in globals()):
    raise SystemExit("test_op_out.py: torch made no test for libcore")

if __name__ == "__main__":
    run_tests()
