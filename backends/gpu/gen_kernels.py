#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""Writes the element-wise kernels, and the table of them, from the expressions
of the CPU's backend (its gen_kernels.py): an operator is written once.

    gen_kernels.py CPU_FOLDER FAMILY FILE   kernels of elementwise_f32, _f64,
                                            _f16, _bf16 or _whole
    gen_kernels.py CPU_FOLDER table FILE    the table for the host side"""

import importlib.util
import os
import sys

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


def load(folder):
    spec = importlib.util.spec_from_file_location(
        "cpu_kernels", os.path.join(folder, "gen_kernels.py"))
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module


def stem_of(operator):
    return "ew_" + "".join(c if c.isalnum() else "_" for c in operator.name)


def family_of(type_name):
    for family, types in FAMILIES.items():
        if type_name in types:
            return family
    raise KeyError(type_name)


class Kernel:
    """One operator, one variant, one type."""

    def __init__(self, cpu, operator, type_name, cpu_type, variant,
                 expression):
        self.cpu = cpu
        self.operator = operator
        self.type_name = type_name
        self.cpu_type = cpu_type  # the type whose functions compute
        self.expression = expression
        self.name = "%s_%s" % (stem_of(operator), type_name)
        if variant > 0:
            self.name += "_%d" % variant

    def compute(self):
        return self.cpu.C_TYPE[self.cpu_type]

    def memory(self, operand):
        if operand in ("f16", "bf16"):
            return MEMORY[operand]
        return self.cpu.C_TYPE[operand]

    def operands(self):
        types = self.cpu.operand_types(self.operator, self.cpu_type)
        return [self.type_name if t == self.cpu_type else t for t in types]

    def text(self):
        cpu, operator = self.cpu, self.operator
        expression = self.expression
        if self.cpu_type == "f32" and operator.beyond is not None:
            expression = NATIVE[operator.name]
        setup = operator.setup if cpu.used_setup(operator, expression) else ""
        everything = expression + " " + setup
        operands = self.operands()
        result = operands[0]
        result = "float" if result in ("f16", "bf16") else cpu.C_TYPE[result]
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
                cpu.C_TYPE[operand]
            arguments.append("%s %s" % (kind, letter))
        lines.append("    static GPU_DEVICE_MEMBER %s run(%s, "
                     "const gpu_parameters *q, int *failed)" %
                     (result, ", ".join(arguments)))
        lines.append("    {")
        for k in range(len(operator.parameters)):
            if cpu.used("p%d" % k, everything):
                field = "(T)q->d[%d]" if self.cpu_type[0] == "f" else \
                    "(T)q->i[%d]"
                if operator.name.startswith(("clamp", "hardtanh")) and \
                        self.cpu_type[0] in "iu":
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
        return "\n".join(lines).replace("@", "_" + self.cpu_type) + "\n"


# What the CPU, which computes all of these in f32, chooses when it is called.
DTYPE_VARIANTS = {"f32": 0, "f16": 1, "bf16": 2}


def rows(cpu):
    """(operator, type, [kernels]) for all that is served."""
    for operator in cpu.OPERATORS:
        if "cpu_special" in operator.setup:
            continue
        for class_name, expressions in operator.forms.items():
            if isinstance(expressions, str):
                expressions = [expressions]
            for cpu_type in cpu.CLASSES[class_name]:
                for type_name in HALVES.get(cpu_type, [cpu_type]):
                    variants = expressions
                    if operator.choice == "DTYPE":
                        variants = [expressions[DTYPE_VARIANTS[type_name]]]
                    yield operator, type_name, [
                        Kernel(cpu, operator, type_name, cpu_type, k, e)
                        for k, e in enumerate(variants)]


def write_kernels(cpu, family, out):
    out.append('#include <gpu/kernels/elementwise.h>\n')
    done = set()
    for operator, type_name, kernels in rows(cpu):
        if type_name not in FAMILIES[family]:
            continue
        for kernel in kernels:
            if kernel.name not in done:
                done.add(kernel.name)
                out.append(kernel.text())


def write_table(cpu, out):
    out.append("#include <math.h>\n")
    out.append("static const struct entry entries[] = {")
    for operator, type_name, kernels in rows(cpu):
        operands = kernels[0].operands()
        word = cpu.BYTES.get(type_name, 0)
        codes = []
        for operand in operands:
            codes.append({"f16": "CORE_F16", "bf16": "CORE_BF16"}.get(
                operand) or cpu.CODE[operand])
        parameters = operator.parameters
        choice = "NONE" if operator.choice == "DTYPE" else operator.choice
        out.append(
            '    {"%s", "%s", "%s", CHOICE_%s, %d, %d, %d,\n'
            "     {%s}, {%s}, {%s}}," % (
                operator.name, kernels[0].name, family_of(type_name),
                choice, word, len(operands), len(parameters),
                ", ".join(codes),
                ", ".join(str(p[0]) for p in parameters) or "0",
                ", ".join(cpu.number(p[1]) for p in parameters) or "0"))
    out.append("};")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    cpu = load(sys.argv[1])
    out = [cpu.HEADER]
    if sys.argv[2] == "table":
        write_table(cpu, out)
    elif sys.argv[2] in FAMILIES:
        write_kernels(cpu, sys.argv[2], out)
    else:
        sys.exit(__doc__)
    with open(sys.argv[3], "w") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
