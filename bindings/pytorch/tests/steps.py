# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Judges of each operator that a program calls, with dtypes of 16 bits.

Where a program subtracts numbers that are nearly equal, what one operator rounds is
large in the end, and which of two right programs is nearer to the exact result is
chance.  Each operator, however, has one right result of its operands: the exact one,
rounded once."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from nested import tensors_of

SHORT = (torch.float16, torch.bfloat16)

# What a result computed in f32 and rounded once may be away from the exact one: half a
# unit in the last place, a little more, and what f32 rounds of the largest operand.
UNITS = 0.51
F32 = 4 * torch.finfo(torch.float32).eps


def is_short(tensor):
    return tensor.dtype in SHORT


def unit_of(have, best):
    """The distance between numbers of have's dtype, near the smaller of both."""
    info = torch.finfo(have.dtype)
    smaller = torch.minimum(have.double().abs(), best.abs())
    exponent = torch.frexp(smaller.clamp(min=info.tiny)).exponent
    return info.eps * torch.exp2(exponent.double() - 1)


def largest_of(tensors):
    """The largest finite element."""
    finite = [one.detach()[one.isfinite()].abs() for one in tensors
              if one.is_floating_point()]
    return max([float(one.max()) for one in finite if one.numel()], default=0)


def rounded_once(have, best, largest):
    """Which elements are best, in f64, computed in f32 from operands up to largest
    and rounded once."""
    right = (have == best.to(have.dtype)) | (have.isnan() & best.isnan())
    allowed = UNITS * unit_of(have, best) + F32 * largest
    return right | (have.isfinite() & best.isfinite() & (
        (have.double() - best).abs() <= allowed))


def in_f64(value):
    """Operands for the call in f64."""
    if isinstance(value, torch.Tensor):
        copy = value.detach().cpu()
        return copy.double() if is_short(copy) else copy.clone()
    if isinstance(value, (list, tuple)):
        return type(value)(in_f64(item) for item in value)
    if isinstance(value, dict):
        return {key: in_f64(item) for key, item in value.items()}
    if value in SHORT and isinstance(value, torch.dtype):
        return torch.float64
    return torch.device("cpu") if isinstance(value, torch.device) else value


class Steps(TorchDispatchMode):
    """judged: how many results of 16 bits were judged.  wrong: a line for each wrong
    one.  Operators outside of ATen, which torch writes in Python, are not judged."""

    def __init__(self):
        super().__init__()
        self.judged = 0
        self.wrong = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        operands = tensors_of([list(args), kwargs])
        if function.namespace != "aten" or not any(map(is_short, operands)):
            return function(*args, **kwargs)
        copies = in_f64(tuple(args)), in_f64(dict(kwargs))
        largest = largest_of(tensors_of([list(copies[0]), copies[1]]))
        result = function(*args, **kwargs)
        best = function(*copies[0], **copies[1])
        for one, other in zip(tensors_of(result), tensors_of(best),
                              strict=True):
            if is_short(one):
                self.judge(str(function), one.detach().cpu(),
                           other.detach().double(), largest)
        return result

    def judge(self, name, have, best, largest):
        self.judged += 1
        right = rounded_once(have, best, largest)
        if not right.all():
            self.wrong.append(f"{name}: {have[~right].tolist()[:4]} instead of "
                              f"{best[~right].tolist()[:4]}")

    def check(self):
        if self.wrong:
            raise AssertionError("not rounded once: " + "; ".join(self.wrong))
        if self.judged == 0:
            raise AssertionError("no operator was judged")
