#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""Writes the element-wise kernels, and the table of them, from
backends/expressions.

    gen_kernels.py FAMILY FILE   kernels of elementwise_f32, _f64, _f16, _bf16
                                 or _whole
    gen_kernels.py table FILE    the table for the host side"""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))

from expressions.expansion import (  # noqa: E402
    BYTES, C_TYPE, CLASSES, CODE, HEADER, number, operand_types, used,
    used_setup, variants)
from expressions.table import OPERATORS, SHARED_SPECIAL  # noqa: E402

FAMILIES = {
    "elementwise_f32": ["f32"], "elementwise_f64": ["f64"],
    "elementwise_f16": ["f16"], "elementwise_bf16": ["bf16"],
    "elementwise_whole": ["i64", "i32", "i16", "i8", "u8", "bool", "w8",
                          "w16", "w32", "w64"],
}
COMPUTE = {"f16": "float", "bf16": "float"}
MEMORY = {"f16": "gpu_f16", "bf16": "gpu_bf16"}
HALVES = {"f32": ["f32", "f16", "bf16"]}
# Where the CPU has vector code for part of a range only.
NATIVE = {"sin": "sinf(a)", "cos": "cosf(a)", "tan": "tanf(a)"}


def stem_of(operator):
    return "ew_" + "".join(c if c.isalnum() else "_" for c in operator.name)


def family_of(type_name):
    for family, types in FAMILIES.items():
        if type_name in types:
            return family
    raise KeyError(type_name)


class Kernel:
    """One operator, one variant, one type."""

    def __init__(self, operator, type_name, compute_type, variant, expression):
        self.operator = operator
        self.type_name = type_name
        self.compute_type = compute_type  # whose functions it calls
        self.expression = expression
        self.name = "%s_%s" % (stem_of(operator), type_name)
        if variant > 0:
            self.name += "_%d" % variant

    def compute(self):
        return C_TYPE[self.compute_type]

    def memory(self, operand):
        if operand in ("f16", "bf16"):
            return MEMORY[operand]
        return C_TYPE[operand]

    def operands(self):
        types = operand_types(self.operator, self.compute_type)
        return [self.type_name if t == self.compute_type else t for t in types]

    def text(self):
        operator = self.operator
        expression = self.expression
        if self.compute_type == "f32" and operator.beyond is not None:
            expression = NATIVE[operator.name]
        if operator.special:
            expression = expression.replace(
                "special(", SHARED_SPECIAL[operator.name] + "(")
        setup = operator.setup if used_setup(operator, expression) else ""
        everything = expression + " " + setup
        operands = self.operands()
        result = operands[0]
        result = "float" if result in ("f16", "bf16") else C_TYPE[result]
        lines = ["struct %s_f {" % self.name,
                 "    typedef %s T;" % self.compute()]
        inputs = operands[1:] + ["u8"] * (3 - len(operands[1:]))
        for k, operand in enumerate([operands[0]] + inputs):
            lines.append("    typedef %s M%d;" % (self.memory(operand), k))
        lines.append("    enum { INPUTS = %d };" % operator.inputs)
        arguments = []
        for k, letter in enumerate("abc"):
            operand = inputs[k]
            kind = "float" if operand in ("f16", "bf16") else \
                C_TYPE[operand]
            arguments.append("%s %s" % (kind, letter))
        lines.append("    static GPU_DEVICE_MEMBER %s run(%s, "
                     "const gpu_parameters *q, int *failed)" %
                     (result, ", ".join(arguments)))
        lines.append("    {")
        for k in range(len(operator.parameters)):
            if used("p%d" % k, everything):
                field = "(T)q->d[%d]" if self.compute_type[0] == "f" else \
                    "(T)q->i[%d]"
                if operator.name.startswith(("clamp", "hardtanh")) and \
                        self.compute_type[0] in "iu":
                    field = "saturate@(q->i[%d])"
                lines.append("        const T p%d = %s;" % (k, field % k))
        if setup:
            lines.append("        " + setup)
        lines.append("        int bad = 0;")
        lines.append("        (void)a, (void)b, (void)c, (void)q;")
        lines.append("        %s value = (%s)(%s);" %
                     (result, result, expression))
        lines.append("        *failed |= bad;")
        lines.append("        return value;")
        lines.append("    }")
        lines.append("};")
        lines.append("GPU_ELEMENTWISE(%s)" % self.name)
        return "\n".join(lines).replace("@", "_" + self.compute_type) + "\n"


# What the CPU, which computes all of these in f32, chooses when it is called.
DTYPE_VARIANTS = {"f32": 0, "f16": 1, "bf16": 2}
TRUNC_VARIANTS = {"f16": 3, "bf16": 4}


def chosen(operator, type_name, expressions):
    """The variants of the expression that calls of this type choose from."""
    if operator.choice == "DTYPE":
        return [expressions[DTYPE_VARIANTS[type_name]]]
    if operator.choice == "ROUNDING":
        trunc = TRUNC_VARIANTS.get(type_name, 1)
        return [expressions[0], expressions[trunc], expressions[2]]
    return expressions


def rows():
    """(operator, type, [kernels]) for all that is served."""
    for operator in OPERATORS:
        if operator.special and operator.name not in SHARED_SPECIAL:
            continue
        for class_name, expressions in operator.forms.items():
            expressions = variants(expressions)
            for compute_type in CLASSES[class_name]:
                for type_name in HALVES.get(compute_type, [compute_type]):
                    yield operator, type_name, [
                        Kernel(operator, type_name, compute_type, k, e)
                        for k, e in enumerate(
                            chosen(operator, type_name, expressions))]


def write_kernels(family, out):
    out.append('#include <gpu/kernels/elementwise.h>\n')
    done = set()
    for operator, type_name, kernels in rows():
        if type_name not in FAMILIES[family]:
            continue
        for kernel in kernels:
            if kernel.name not in done:
                done.add(kernel.name)
                out.append(kernel.text())


def write_table(out):
    out.append("#include <math.h>\n")
    out.append("static const struct entry entries[] = {")
    for operator, type_name, kernels in rows():
        operands = kernels[0].operands()
        word = BYTES.get(type_name, 0)
        codes = []
        for operand in operands:
            codes.append({"f16": "CORE_F16", "bf16": "CORE_BF16"}.get(
                operand) or CODE[operand])
        parameters = operator.parameters
        choice = "NONE" if operator.choice == "DTYPE" else operator.choice
        out.append(
            '    {"%s", "%s", "%s", CHOICE_%s, %d, %d, %d,\n'
            "     {%s}, {%s}, {%s}}," % (
                operator.name, kernels[0].name, family_of(type_name),
                choice, word, len(operands), len(parameters),
                ", ".join(codes),
                ", ".join(str(p[0]) for p in parameters) or "0",
                ", ".join(number(p[1]) for p in parameters) or "0"))
    out.append("};")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    out = [HEADER % "gen_kernels.py"]
    if sys.argv[1] == "table":
        write_table(out)
    elif sys.argv[1] in FAMILIES:
        write_kernels(sys.argv[1], out)
    else:
        sys.exit(__doc__)
    with open(sys.argv[2], "w") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
