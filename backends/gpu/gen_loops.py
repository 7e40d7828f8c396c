#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""Writes what kernels of loop programs are made of when the program runs.

    gen_loops.py expressions FILE   the expression of each operator and dtype, from
                                    which gen_kernels.py makes its kernels, too
    gen_loops.py prelude FILE       kernels/loop.h and all that it includes, as a
                                    string: the compiler needs no file"""

import os
import re
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
sys.path.insert(0, HERE)

from expressions.expansion import (  # noqa: E402
    CLASSES, HEADER, INFINITY, operand_types, used, used_setup, variants)
from expressions.table import OPERATORS, SHARED_SPECIAL  # noqa: E402
from gen_kernels import HALVES, NATIVE, chosen  # noqa: E402

# The forms of the table: a dtype, or all integers.
SLOTS = ["f64", "f32", "f16", "bf16", "i64", "bool"]
# Of operators with a choice, another variant than the first.
VARIANTS = {"gelu": ("gelu_tanh", 1), "gelu_backward": ("gelu_backward_tanh", 1)}
# The largest finite numbers, for CHOICE_FINITE.
LARGEST = {"f16": 65504.0, "bf16": float.fromhex("0x1.fep127")}


def float_text(value):
    if value in (INFINITY, -INFINITY):
        return "-INFINITE@" if value < 0 else "INFINITE@"
    return "(T)%r" % float(value)


def whole_text(operator, value):
    """As math_i64_nearest converts it, for any type of integers."""
    text = {INFINITY: "INT64_MAX", -INFINITY: "INT64_MIN"}.get(
        value, "%d" % int(value) if value not in (INFINITY, -INFINITY) else "")
    if operator.name.startswith(("clamp", "hardtanh")):
        return "saturate@(%s)" % text
    return "(T)%s" % text


def default_text(operator, type_name, k):
    value = operator.parameters[k][1]
    if type_name in ("i64", "bool"):
        return whole_text(operator, value)
    if operator.choice == "FINITE" and k > 0 and type_name in LARGEST:
        value = min(max(value, -LARGEST[type_name]), LARGEST[type_name])
    return float_text(value)


def text_of(operator, type_name, compute_type, expression):
    """Declarations and the expression, with parameters at their defaults."""
    if compute_type == "f32" and operator.beyond is not None:
        expression = NATIVE[operator.name]
    if operator.special:
        expression = expression.replace(
            "special(", SHARED_SPECIAL[operator.name] + "(")
    setup = operator.setup if used_setup(operator, expression) else ""
    setup = re.sub(
        r"q->i\[(\d)\]",
        lambda m: "%d" % int(operator.parameters[int(m.group(1))][1]), setup)
    expression = re.sub(
        r"q->i\[(\d)\]",
        lambda m: "%d" % int(operator.parameters[int(m.group(1))][1]),
        expression)
    lines = ["const T p%d = %s;" % (k, default_text(operator, type_name, k))
             for k in range(len(operator.parameters))
             if used("p%d" % k, expression + " " + setup)]
    return " ".join(lines + ([setup] if setup else []) + [expression])


def is_uniform(operator):
    """Whether all operands have one dtype, and the result too or bool."""
    return len(set(operand_types(operator, "f32")[1:])) == 1 and \
        operator.choice != "BITS" and operator.types is None


def rows():
    """name -> (operator, {slot: text}), sorted by name."""
    table = {}
    for operator in OPERATORS:
        if not is_uniform(operator) or \
                (operator.special and operator.name not in SHARED_SPECIAL):
            continue
        names = [(operator.name, 0)]
        if operator.name in VARIANTS:
            names.append(VARIANTS[operator.name])
        for name, variant in names:
            texts = table.setdefault(name, (operator, {}))[1]
            for class_name, forms in operator.forms.items():
                for compute in CLASSES[class_name]:
                    for dtype in HALVES.get(compute, [compute]):
                        if dtype in SLOTS:
                            forms_of = chosen(operator, dtype, variants(forms))
                            texts[dtype] = text_of(
                                operator, dtype, compute,
                                forms_of[min(variant, len(forms_of) - 1)])
    return sorted(table.items())


def write_expressions(out):
    out.append("static const gpu_loop_expression expressions[] = {")
    for name, (operator, texts) in rows():
        columns = ",\n      ".join(
            '"%s"' % texts[s] if s in texts else "NULL" for s in SLOTS)
        out.append('    {"%s", %d, %d, %d,\n     {%s}},' % (
            name, operator.inputs, operator.output == "bool",
            "&bad" in texts.get("i64", ""), columns))
    out.append("};")


# hipRTC has HIP's header built in.
LIBRARY = ("math.h", "stdint.h", "string.h")


def inlined(path, done):
    """The lines of a header and of those of this tree that it includes, each
    once."""
    root = os.path.join(HERE, "..")
    for line in open(os.path.join(root, path)):
        match = re.match(r'\s*#\s*include\s+([<"])([^>"]+)[>"]', line)
        if match is None:
            yield line
            continue
        name = match.group(2)
        if match.group(1) == '"':
            name = os.path.normpath(os.path.join(os.path.dirname(path), name))
        if name in LIBRARY or name.startswith("hip/"):
            continue
        if not os.path.exists(os.path.join(root, name)) or \
                "emulated" in name:
            yield line
        elif name not in done:
            done.add(name)
            yield from inlined(name, done)


def write_prelude(out):
    text = "#if defined(GPU_EMULATED)\n%s#endif\n" % "".join(
        "#include <%s>\n" % name for name in LIBRARY)
    text += "".join(inlined("gpu/kernels/loop.h", {"gpu/kernels/loop.h"}))
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = text.replace("\\\n", " ")
    out.append("static const char gpu_loop_prelude[] =")
    for line in text.splitlines():
        line = re.sub(r"\s+", " ", line).strip()
        if line:
            out.append('    "%s\\n"' % line.replace("\\", "\\\\").replace(
                '"', '\\"'))
    out.append("    ;")


def main():
    writers = {"expressions": write_expressions, "prelude": write_prelude}
    if len(sys.argv) != 3 or sys.argv[1] not in writers:
        sys.exit(__doc__)
    out = [HEADER % "gen_loops.py"]
    writers[sys.argv[1]](out)
    with open(sys.argv[2], "w") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
