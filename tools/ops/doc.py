# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""docs/operators.md: what the operators do not support.
docs/calls.md: the call of expressions.h for each operator."""

import re

from . import expressions

HEAD = """\
# What operators do not support

Generated from core/ops/ops.yaml by `tools/gen_ops.py --doc`; a test compares them.
core/ops/README.md explains how an operator is described.

## Refused derivatives

An operator without a gradient formula is recorded like any other. A backward pass
that reaches it is an error; it never produces a silent zero. All operators that are
not listed here have derivatives, of any order by the same formulas, or are constant
almost everywhere or integer-valued, so that their results do not require grad.

No gradient at all:

"""

REASONS = (
    (r"floor_divide|heaviside",
     "has jumps; the slope between them would look like its derivative"),
    (r"special_airy_ai|.*_polynomial_.*",
     "no formula yet; differentiate its definition instead"),
    (r"grid_sampler_2d_backward",
     "would be the second derivative of grid_sampler_2d"),
    (r"histogram.*|bincount", "counts are discrete"),
    (r"_unique2|unique_consecutive", "equality of values is discrete"),
    (r"linalg_ldl.*|_linalg_ldl.*|geqrf",
     "factors in LAPACK's packed form; use linalg_lu_solve or linalg_qr"),
)

ONE = """
No gradient for some arguments; the others have one:

"""

SOME = """
Only in some cases:

- `_linalg_det`: no third derivative at or near singular matrices
- `_linalg_eigh`, `_linalg_svd`: no gradient without the vectors (`compute_v`,
  `compute_uv`)
- `embedding`: no second derivative with `scale_grad_by_freq`
- `linalg_qr`: no gradient in mode "r", nor in mode "complete" with more rows than
  columns
- `scatter_reduce`, `index_reduce` with "prod": no second derivative where several
  sources of one element are 0
"""

OUT = """
## Operators without an out variant

Views, and operators that may return a view, cannot write into a given tensor; a
composite can if its last step can. Names that begin with `_` are parts of other
operators.

"""


def reason(name):
    for pattern, text in REASONS:
        if re.fullmatch(pattern, name):
            return text
    return "no formula"


def refused(operator):
    """Arguments whose formula is only a refusal."""
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


CALLS = """\
# Calls of operators

Generated from core/ops/ops.yaml by `tools/gen_ops.py --doc`; a test compares them.

The operators of ATen, and the calls of `expressions.h` that compute them
([expressions.md](expressions.md)). Arguments with a default may be omitted at the end;
before others they are given as it is written here. *number*: the call takes a tensor or a number there,
for which ATen has two operators. *in place*: there is also a call with `_` at the end,
which changes its first argument.

"""


def argument(a):
    """The default is what a call in C gives, which accepts plain numbers."""
    if a.default is None:
        return a.name
    return "%s=%s" % (a.name, re.sub(r"^core_(?:int|float)\((.*)\)$", r"\1",
                                     expressions.default(a)))


def calls(all_calls):
    found = {call.name: call for call in all_calls}
    merged = {call.either.operator.name for call in found.values()
              if call.either}
    merged |= {call.longer.operator.name for call in found.values()
               if call.longer}
    lines = []
    for call in found.values():
        if call.inplace or call.operator.name in merged:
            continue
        operators = [call.operator.name]
        arguments = call.arguments
        notes = []
        if call.longer:  # of more arguments, the macro makes the other call
            longer = call.longer
            arguments = arguments[:call.required]
            lines.append("- `%s`, `%s`: `%s(%s)`; %s: number\n" % (
                longer.operator.name, longer.either.operator.name, call.name,
                ", ".join(argument(a) for a in longer.arguments),
                longer.arguments[longer.differs(longer.either)].name))
        if call.either:
            operators.append(call.either.operator.name)
            notes.append("%s: number" % call.arguments[
                call.differs(call.either)].name)
        if call.name + "_" in found:
            notes.append("in place")
        lines.append("- %s: `%s(%s)`%s\n" % (
            ", ".join("`%s`" % name for name in operators), call.name,
            ", ".join(argument(a) for a in arguments),
            "".join("; " + note for note in notes)))
    return CALLS + "".join(sorted(lines, key=lambda line: line.lstrip("- `_")))
