# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""docs/operators.md: limits of the operators, for users."""

import re

HEAD = """\
# Limits of the operators

Generated from core/ops/ops.yaml by `tools/gen_ops.py --doc`; a test checks
that it is current. core/ops/README.md describes the format of ops.yaml.

## Operators without derivatives

An operator without a gradient formula is recorded like any other, and returns
an error when a gradient reaches it: no gradient is silently zero. All other
operators have derivatives of any order, or results that do not require grad
because they are piecewise constant or integers.

No gradient at all:

"""

REASONS = (
    (r"floor_divide|heaviside",
     "piecewise constant; a gradient of 0 would be misleading"),
    (r"nextafter", "depends on the dtype's spacing of numbers"),
    (r"special_airy_ai|.*_polynomial_.*",
     "no formula yet"),
    (r"grid_sampler_2d_backward",
     "the second derivative of grid_sampler_2d"),
    (r"histogram.*|bincount", "counts are piecewise constant"),
    (r"_unique2|unique_consecutive", "equality is not differentiable"),
    (r"linalg_ldl.*|_linalg_ldl.*|geqrf",
     "factors packed as by LAPACK; use a solve or linalg_qr"),
)

ONE = """
No gradient for these arguments; the others have one:

"""

SOME = """
Not in all cases:

- `_linalg_det`: no third derivative for singular or nearly singular
  matrices
- `_linalg_eigh`, `_linalg_svd`: none without vectors (`compute_v`,
  `compute_uv`)
- `embedding`: no second derivative with `scale_grad_by_freq`
- `linalg_qr`: none in mode "r", nor in mode "complete" for matrices with more
  rows than columns
- `scatter_reduce`, `index_reduce` with "prod": no second derivative where
  several sources of an element are 0
"""

OUT = """
## Operators without an out variant

Views, and operators that may return a view, write nothing; for a composite use
the out variant of its last step. Names that begin with `_` are parts of other
operators.

"""


def reason(name):
    for pattern, text in REASONS:
        if re.fullmatch(pattern, name):
            return text
    return "no formula"


def refused(operator):
    """Arguments whose formula is only an error."""
    backward = operator.entry.get("backward") or {}
    return [key for key, text in backward.items()
            if str(text).startswith("refused(")]


def wrapped(words):
    lines, line = [], ""
    for word in words:
        if len(line) + len(word) + 2 > 79:
            lines.append(line.rstrip())
            line = ""
        line += word + " "
    return "\n".join(lines + [line.rstrip()]) + "\n"


def text(model):
    own = [o for o in model.functional if o.variant == "FUNCTIONAL"]
    parts = [HEAD]
    for o in own:
        if o.no_gradient:
            parts.append("- `%s`: %s\n" % (o.name, reason(o.name)))
    parts.append(ONE)
    for o in own:
        names = refused(o)
        if names:
            parts.append("- `%s`: %s\n" % (o.name, ", ".join(
                "`%s`" % n for n in names)))
    parts += [SOME, OUT]
    without = ["`%s`" % o.name for o in own
               if "out" not in (o.entry.get("variants") or [])]
    parts.append(wrapped([w + "," for w in without[:-1]] + without[-1:]))
    return "".join(parts)
