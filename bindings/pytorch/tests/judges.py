# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""What is a right result: judges of tensors beside torch's, all on the CPU.

They raise AssertionError.  test_judges.py has results that each must refuse.
"""

import collections
import os

import torch

# How far results may be from torch's: relative, absolute.  Others are equal.  The
# absolute one is that of a tensor whose largest element is 1 or larger.
TOLERANCES = {torch.float16: (5e-3, 1e-5), torch.bfloat16: (4e-2, 1e-5),
              torch.complex32: (5e-3, 1e-5),
              torch.float32: (1e-5, 1e-6), torch.complex64: (1e-5, 1e-6),
              torch.float64: (1e-10, 1e-10), torch.complex128: (1e-10, 1e-10)}


def tolerances(expected):
    """Of a tensor of small numbers the absolute one is smaller, so that 0 is not
    near to all of them."""
    rtol, atol = TOLERANCES.get(expected.dtype, (0, 0))
    if expected.dtype in (torch.float32, torch.complex64):
        finite = expected[expected.isfinite()].abs()
        atol *= min(1.0, float(finite.max())) if finite.numel() else 1.0
    return rtol, atol


def path_of(name):
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), name)


def lines_of(name):
    """The lines of a file of this folder, without comments."""
    with open(path_of(name)) as file:
        return [line.strip() for line in file
                if line.strip() and not line.startswith("#")]


def check_fallbacks(entry, counts, device="", known_as=str):
    """The CPU may compute only what fallbacks.txt lists for the entry, or the file
    of the device, if it has one.  known_as: a function of the names of operators;
    those of which it makes the same name are the same."""
    unknown = set(map(known_as, counts))
    files = [name for name in ("fallbacks.txt", f"fallbacks-{device}.txt")
             if os.path.exists(path_of(name))]
    for name in files:
        listed = dict(line.split(None, 1) for line in lines_of(name))
        unknown -= set(map(known_as, listed.get(entry, "").split()))
    if unknown:
        raise AssertionError(f"{entry}: computed on the CPU, and not in "
                             f"{' or '.join(files)}: "
                             + " ".join(sorted(unknown)))


# ------------------------------------------------------------------ numbers --

def check(have, expected, exact=lambda: None, errors=None, part="results",
          slack=None):
    """exact: a function that returns the result in f64, or None.  errors: the
    Errors of the entry, if they are judged together, those of a part of it.
    slack: where terms cancel in f32, an absolute error that is right, too, and so
    are errors of torch's size, however many units of rounding they are."""
    rtol, atol = tolerances(expected)
    if (have.dtype, have.shape) != (expected.dtype, expected.shape):
        raise AssertionError(f"{have.dtype}, {have.shape} instead of "
                             f"{expected.dtype}, {expected.shape}")
    best = exact_like(have, exact) if errors else None
    bounded = best is not None and errors.add(have, expected, best, part)
    try:
        torch.testing.assert_close(have, expected, rtol=rtol, atol=atol,
                                   equal_nan=True)
    except AssertionError:
        # torch's f32 may be the one that is less exact.
        best = exact_like(have, exact) if best is None else best
        if best is None:
            raise
        right = near_exact(have, expected, best, slack)
        if not (bounded or right.all()):
            raise


def exact_like(have, exact):
    """The result in f64, or None; infinite where the dtype cannot represent it."""
    best = exact() if have.is_floating_point() else None
    if best is None or best.shape != have.shape:
        return None
    best = best.detach().double()
    rounded = best.to(have.dtype).double()
    return torch.where(rounded.isinf(), rounded, best)


# In f32: how many times torch's largest error in a tensor an error may be, up to how
# many units of rounding of its largest element.
F32_BOUND, F32_UNITS = 4, 16


def near_exact(have, expected, best, slack=None):
    """The elements that are within the tolerance of torch's or of the exact
    result, or as near to the exact result as torch's are, which a result that
    amplifies rounding may be without being near to it.  In f32 any element may
    have a small multiple of the largest error that torch's have."""
    rtol, atol = tolerances(expected)
    unit = torch.finfo(have.dtype).eps
    single = expected.dtype == torch.float32
    have, expected = have.double(), expected.double()
    right = (torch.isclose(have, expected, rtol, atol, equal_nan=True)
             | torch.isclose(have, best, rtol, atol, equal_nan=True))
    finite = have.isfinite() & expected.isfinite() & best.isfinite()
    error, torchs = (have - best).abs(), (expected - best).abs()
    right |= finite & (error <= torchs)
    if single and finite.any():
        bound = F32_BOUND * float(torchs[finite].max())
        units = F32_UNITS * unit * float(best[finite].abs().max())
        bound = min(bound, units) if slack is None else max(bound, slack)
        right |= finite & (error <= bound)
    return right


class Errors:
    """The errors of all results of an entry beside those of torch's, for dtypes of
    16 bits.  Where results are sums of roundings, one is further from the exact
    result in this element and the other in that one.

    A result may have an error of torch's largest, and of BOUND times that up to
    UNITS units of rounding of the largest element.  The mean square of the errors of
    all results, relative to the largest elements, may be SLACK times torch's, for
    the results and for the gradients.  Where torch's are infinite or NaN and
    the exact result is finite, they say nothing: a result is to be near to the
    exact one, or to have an error of half a unit of the largest element."""

    BOUND, SLACK, UNITS = 4, 1.25, 8

    def __init__(self, by_sum=True):
        """by_sum: whether all errors together are judged too."""
        self.by_sum = by_sum
        self.squares = collections.defaultdict(lambda: [0.0, 0.0])

    def add(self, have, expected, best, part):
        """Whether the errors of a result are bounded."""
        unit = torch.finfo(have.dtype).eps
        rtol, atol = TOLERANCES[have.dtype]
        have, expected = have.double(), expected.double()
        known = best.isfinite()
        if not (known.any() and have[known].isfinite().all()):
            return False
        largest = best[known].abs().max()
        judged = known & expected.isfinite()
        right = torch.isclose(have, best, rtol, atol, equal_nan=True) | (
            known & ((have - best).abs() <= unit / 2 * largest))
        if not right[~judged].all():
            return False
        if not judged.any():
            return True
        errors, torchs = ((one - best)[judged].abs()
                          for one in (have, expected))
        if largest > 0:
            for i, one in enumerate((errors, torchs)):
                self.squares[part][i] += float(
                    (one / largest).square().sum())
        least = torchs.max()
        return bool(errors.max() <= min(self.BOUND * least, max(
            least, self.UNITS * unit * largest)))

    def check(self):
        for part, squares in self.squares.items() if self.by_sum else ():
            have, expected = (square ** 0.5 for square in squares)
            if have > self.SLACK * expected:
                raise AssertionError(f"the errors of all {part} are "
                                     f"{have / max(expected, 1e-300):.3g} "
                                     "times torch's")


# --------------------------------------------------------------------- ties --

# The position after the input of the dimension of operators that order elements;
# equal elements are in no order unless `stable` asks for one.
ORDERING = {"argsort": 0, "kthvalue": 1, "mode": 0, "msort": None, "sort": 0,
            "topk": 1}

# given: the input; dim: along which it is ordered; seeds: the gradients of the
# results that have one, in their order.
Order = collections.namedtuple("Order", "name given dim seeds")


def order_of(op, sample, seeds=()):
    """The order that the sample asks for, if it leaves elements in no order."""
    if op.name not in ORDERING or sample.kwargs.get("stable"):
        return None
    given = sample.input.detach()
    if given.unique().numel() == given.numel():
        return None
    at = ORDERING[op.name]
    dim = 0 if at is None else (
        sample.args[at] if len(sample.args) > at
        else sample.kwargs.get("dim", -1))
    return Order(op.name, given, dim, seeds)


def check_ordered(order, have, expected):
    """Judges (results, gradients) whichever of equal elements were chosen."""
    index = None
    results, others = list(have[0]), list(expected[0])
    if order.name != "msort":
        index = results.pop()
        check_indices(order, index, others.pop())
    for one, other in zip(results, others):
        check(one, other)
    for one, other in zip(have[1], expected[1]):
        if index is None:
            check_permuted(order, one, other)
        else:
            check(one, selected_gradient(order, index))


def wide(order, index):
    return index.unsqueeze(order.dim) if (
        index.dim() < order.given.dim()) else index


def check_indices(order, have, expected):
    """They select the same elements, each at most once."""
    have, expected = wide(order, have), wide(order, expected)
    torch.testing.assert_close(have.shape, expected.shape)
    size = order.given.size(order.dim) if order.given.dim() else 1
    if have.numel() and not (0 <= have.min() and have.max() < size):
        raise AssertionError("an index is outside of the input")
    torch.testing.assert_close(order.given.gather(order.dim, have),
                               order.given.gather(order.dim, expected),
                               rtol=0, atol=0, equal_nan=True)
    places = have.sort(order.dim).values
    if have.dim() and (places.diff(dim=order.dim) == 0).any():
        raise AssertionError("an index is repeated")


def selected_gradient(order, index):
    """The gradient where these indices are the right ones."""
    leaf = order.given.clone().requires_grad_()
    picked = leaf.gather(order.dim, wide(order, index)).reshape(index.shape)
    return torch.autograd.grad(picked, leaf, order.seeds[0])[0]


def check_permuted(order, have, expected):
    """Gradients of equal elements are in any order."""
    def sorted_of(gradient):
        first = gradient.sort(order.dim)
        values = order.given.gather(order.dim, first.indices)
        second = values.sort(dim=order.dim, stable=True).indices
        return first.values.gather(order.dim, second)
    check(sorted_of(have), sorted_of(expected))
