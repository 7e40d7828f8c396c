# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""docs/operators.md: what users ask of the operators as a whole."""

import re

HEAD = """\
# What operators do not do

Made from core/ops/ops.yaml by `tools/gen_ops.py --doc`; a test sees that it is
true. core/ops/README.md says how an operator is described.

## Derivatives that are refused

An operator without a formula is recorded like any other, and raises when a
gradient is to go through it: nothing is silently zero. What is not in these
lists has derivatives, of any order by the same formulas, or is constant almost
everywhere or of integers, and then its results require no gradient.

No gradient at all:

"""

REASONS = (
    (r"floor_divide|heaviside",
     "jumps; the slope between the jumps would pass for one"),
    (r"nextafter", "a step of the dtype, not a function of numbers"),
    (r"special_airy_ai|.*_polynomial_.*",
     "no formula yet; differentiate its definition"),
    (r"grid_sampler_2d_backward",
     "the second derivative of grid_sampler_2d"),
    (r"histogram.*|bincount", "counts jump"),
    (r"_unique2|unique_consecutive", "which values are equal jumps"),
    (r"linalg_ldl.*|_linalg_ldl.*|geqrf",
     "factors in LAPACK's own packing; solve, or use linalg_qr"),
)

ONE = """
No gradient of one argument, the others have theirs:

"""

SOME = """
Not for all arguments:

- `_linalg_det`: no third derivative where the matrix is singular, or nearly so
- `_linalg_eigh`, `_linalg_svd`: none without the vectors (`compute_v`,
  `compute_uv`)
- `embedding`: no second one with `scale_grad_by_freq`
- `linalg_qr`: none in mode "r", nor in mode "complete" where there are more rows
  than columns
- `scatter_reduce`, `index_reduce` with "prod": no second one where several
  sources of one element are 0
"""

OUT = """
## Operators without an out variant

Views and what may answer with a view write nothing; of a composite its last
step can write into a tensor that is given. Names that begin with `_` are parts
of other operators.

"""


def reason(name):
    for pattern, text in REASONS:
        if re.fullmatch(pattern, name):
            return text
    return "no formula"


def refused(operator):
    """Arguments whose formula only says that there is none."""
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
