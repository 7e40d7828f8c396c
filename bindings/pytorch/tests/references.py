# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Exact results in f64 of functions that torch's CPU computes with errors of up to
1e-5, with mpmath, which torch installs."""

import torch

try:
    import mpmath
except ImportError:
    mpmath = None

PRECISION = 40  # decimal digits


def polygamma(order, x):
    """At the poles what torch's formula, (-1)^(order+1) order! zeta, has."""
    if x <= 0 and x == mpmath.floor(x):
        if order == 0:
            return -mpmath.inf if x == 0 else mpmath.nan
        return mpmath.inf if order % 2 else -mpmath.inf
    return mpmath.polygamma(order, x) if order else mpmath.digamma(x)


def hardsigmoid(x):
    return max(mpmath.mpf(0), min(mpmath.mpf(1), (x + 3) / 6))


def hardsigmoid_slope(x):
    return mpmath.mpf(1) / 6 if -3 < x < 3 else mpmath.mpf(0)


# By entry of op_db: the function and its derivative, of a number and the integer
# arguments of the sample.
FUNCTIONS = {
    "digamma": (lambda x: polygamma(0, x), lambda x: polygamma(1, x)),
    "polygamma": (lambda x, n: polygamma(n, x),
                  lambda x, n: polygamma(n + 1, x)),
    "special.polygamma": (lambda x, n: polygamma(n, x),
                          lambda x, n: polygamma(n + 1, x)),
    "nn.functional.hardsigmoid": (hardsigmoid, hardsigmoid_slope),
    "special.airy_ai": (lambda x: mpmath.airyai(x),
                        lambda x: mpmath.airyai(x, derivative=1)),
    "special.bessel_j0": (lambda x: mpmath.besselj(0, x),
                          lambda x: mpmath.besselj(0, x, 1)),
    "special.bessel_j1": (lambda x: mpmath.besselj(1, x),
                          lambda x: mpmath.besselj(1, x, 1)),
    "special.bessel_y0": (lambda x: mpmath.bessely(0, x),
                          lambda x: mpmath.bessely(0, x, 1)),
    "special.bessel_y1": (lambda x: mpmath.bessely(1, x),
                          lambda x: mpmath.bessely(1, x, 1)),
}


def number(function, x, args):
    try:
        return float(function(mpmath.mpf(x), *args))
    except (ValueError, ZeroDivisionError, TypeError):  # a pole, or complex
        return float("nan")


def exact(op, sample, seeds, part):
    """The result (part 0) or the gradient (1), or None for other functions."""
    if mpmath is None or op.name not in FUNCTIONS:
        return None
    function = FUNCTIONS[op.name][part]
    args = [one for one in sample.args if isinstance(one, int)]
    with mpmath.workdps(PRECISION):
        values = [number(function, x, args)
                  for x in sample.input.detach().flatten().tolist()]
    result = torch.tensor(values, dtype=torch.float64)
    result = result.reshape(sample.input.shape)
    return result * seeds[0] if part else result
