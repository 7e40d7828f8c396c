#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""Writes the rows of the element-wise operators, and the table of them, from
backends/expressions.

    gen_kernels.py rows FILE     rows of every operator and type (C, compiled
                                 once per instruction set)
    gen_kernels.py table FILE    the table that elementwise.c includes

f16 and bf16 are computed in f32: in blocks, or where the operator is used much
with bf16 (halves) in a row that converts each number as it comes, or computes
with its bits."""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))

from expressions.expansion import (  # noqa: E402
    BYTES, C_TYPE, CLASSES, CODE, HEADER, number, operand_types, used,
    used_setup, variants)
from expressions.table import (  # noqa: E402
    OPERATORS, SPECIAL_BINARY, SPECIAL_UNARY)

NO_ARGUMENT = 99  # beyond every argument: the parameter is its default


def place_special(operator):
    """Special functions share rows, which call them through a table
    (special.c): the place there is one parameter more."""
    names = {1: SPECIAL_UNARY, 2: SPECIAL_BINARY}[operator.special]
    table = {1: "unary", 2: "binary"}[operator.special]
    operator.setup = "const cpu_special_%d special = cpu_special_%s[q->i[%d]];" \
        % (operator.special, table, len(operator.parameters))
    operator.parameters = list(operator.parameters) + [
        (NO_ARGUMENT, names.index(operator.name))]


class Rows:
    """All rows, numbered; a single row is not written twice."""

    def __init__(self):
        self.names = []
        self.text = []
        self.known = {}

    def add(self, operator, type_name, expressions):
        texts = [row_text(operator, type_name, e) for e in expressions]
        key = tuple(texts)
        if key in self.known:
            return self.known[key]
        index = len(self.names)
        self.known[key] = index
        stem = "".join(c if c.isalnum() else "_" for c in operator.name)
        for number, text in enumerate(texts):
            name = "row_%s_%s" % (stem, type_name)
            if number > 0:
                name += "_%d" % number
            while name in self.names:
                name += "x"
            self.names.append(name)
            self.text.append(text.replace("(ROW)", "(%s)" % name))
        return index


# In groups, whose input is kept: the output may be the same memory.
BEYOND_ROW = """ROW_FUNCTION(ROW)
{
    enum { GROUP = 64 };
    float *o = (float *)out;
    const float *in0 = (const float *)first;
    for (int64_t start = 0; start < n; start += GROUP) {
        const int64_t m = n - start < GROUP ? n - start : GROUP;
        float kept[GROUP];
        int outside = 0;
        memcpy(kept, in0 + start, (size_t)m * sizeof(float));
        for (int64_t k = 0; k < m; k++) {
            const float a = kept[k];
            outside |= !(abs_f32(a) <= LIMIT);
            o[start + k] = VECTOR;
        }
        for (int64_t k = 0; outside && k < m; k++) {
            const float a = kept[k];
            if (!(abs_f32(a) <= LIMIT))
                o[start + k] = SCALAR;
        }
    }
    return CORE_OK;
}
"""

# f32 expressions that a function of row_loop.h computes in groups, where there are
# wide vectors, and their second input.
GROUPED = {"fmod@(a, b)": ("row_rests", "second"),
           "remainder@(a, b)": ("row_floor_rests", "second"),
           "floor_divide@(a, b)": ("row_floor_quotients", "second"),
           "atan2@(a, b)": ("row_arcs", "second"),
           "atan@(a)": ("row_arcs", "NULL"),
           "asin@(a)": ("row_arcsines", "NULL"),
           "acos@(a)": ("row_arccosines", "NULL")}
GROUPED_ROW = """#if defined(__AVX2__)
ROW_FUNCTION(ROW)
{
    row_grouped(%s, out, first, %s, n);
    return CORE_OK;
}
#else
%s#endif
"""


def pair_lines(letters, expression):
    """The loop of a row of bf16, in pairs (bf16/pair.h)."""
    lines = ["    MATH_LOOP", "    for (int64_t k = 0; k < n / 2; k++) {"]
    for k in letters:
        lines.append("        const uint32_t w%d = "
                     "((const cpu_bf16_pair *)in%d)[k];" % (k, k))
    lines.append("        uint32_t first, second;")
    for half in "first", "second":
        lines.append("        {")
        for k in letters:
            lines.append("            const T %s = cpu_bf16_%s(w%d);" %
                         ("abc"[k], half, k))
        lines.append("            %s = row_rounded(%s);" % (half, expression))
        lines.append("        }")
    lines.append("        ((cpu_bf16_pair *)o)[k] = first >> 16 | "
                 "CPU_BF16_SECOND(second);")
    lines.append("    }")
    lines.append("    if (n & 1) {")
    for k in letters:
        lines.append("        const T %s = math_f32_of_bf16(in%d[n - 1]);" %
                     ("abc"[k], k))
    lines.append("        o[n - 1] = math_bf16_of_f32(%s);" % expression)
    lines.append("    }")
    return lines


def single_lines(letters, expression):
    """The same one by one, for functions whose code is long."""
    lines = ["    MATH_LOOP", "    for (int64_t k = 0; k < n; k++) {"]
    for k in letters:
        lines.append("        const T %s = math_f32_of_bf16(in%d[k]);" %
                     ("abc"[k], k))
    lines.append("        o[k] = math_bf16_of_f32(%s);" % expression)
    lines.append("    }")
    return lines


def row_text(operator, type_name, expression):
    if operator.beyond is not None and type_name == "f32":
        limit, scalar = operator.beyond
        return BEYOND_ROW.replace("LIMIT", limit).replace(
            "VECTOR", expression.replace("@", "_f32")).replace(
            "SCALAR", scalar)
    types = [C_TYPE[t] for t in operand_types(operator, type_name)]
    half = type_name == "bf16"
    bits = half and isinstance(operator.halves, str)
    if bits:
        expression, half = operator.halves, False
    number = "f32" if half else type_name  # what is computed with
    suffix = "_" + number
    setup = operator.setup if used_setup(operator, expression) else ""
    text = expression + " " + setup
    lines = ["ROW_FUNCTION(ROW)",
             "{", "    typedef %s T;" % C_TYPE[number],
             "    %s *o = (%s *)out;" % (types[0], types[0])]
    letters = [k for k in range(operator.inputs) if used("abc"[k], expression)]
    for k in letters:
        source = ("first", "second", "p[3]")[k]
        lines.append("    const %s *in%d = (const %s *)%s;" %
                     (types[k + 1], k, types[k + 1], source))
    for k in range(len(operator.parameters)):
        if used("p%d" % k, text):
            field = "(T)q->d[%d]" if number[0] == "f" else "(T)q->i[%d]"
            if operator.name.startswith(("clamp", "hardtanh")) and \
                    type_name[0] in "iu":
                field = "saturate%s(q->i[%%d])" % suffix
            lines.append("    const T p%d = %s;" % (k, field % k))
    if setup:
        lines.append("    " + setup)
    if used("bad", expression):
        lines.append("    int bad = 0;")
    if half:
        several = pair_lines if "pow@" not in expression else single_lines
        lines += several(letters, expression)
    else:
        lines.append("    MATH_LOOP")
        lines.append("    for (int64_t k = 0; k < n; k++) {")
        for k in letters:
            lines.append("        const %s %s = in%d[k];" %
                         (types[k + 1], "abc"[k], k))
        lines.append("        o[k] = (%s)(%s);" % (types[0], expression))
        lines.append("    }")
    if used("bad", expression):
        lines.append("    if (bad)")
        lines.append("        cpu_row_fail(q);")
    lines.append("    return CORE_OK;")
    lines.append("}")
    if "T" not in "".join(lines[3:]):
        del lines[2]
    elif not any(used("T", line) for line in lines[3:]):
        del lines[2]
    text = "\n".join(lines).replace("@", suffix) + "\n"
    if expression in GROUPED and type_name == "f32":
        return GROUPED_ROW % (GROUPED[expression] + (text,))
    return text


def launcher(operator, form):
    if operator.choice == "ALPHA" and form == "FORM_EXACT":
        return "CPU_LOOP_ALPHA"
    text = " ".join(e if isinstance(e, str) else " ".join(e)
                    for e in operator.forms.values())
    if operator.parameters or operator.choice != "NONE" or \
            form == "FORM_HALF" or used("bad", text):
        return "CPU_LOOP_GENERAL"
    return {1: "CPU_LOOP_PLAIN_1", 2: "CPU_LOOP_PLAIN_2"}.get(
        operator.inputs, "CPU_LOOP_PLAIN")


class Table:
    def __init__(self):
        self.rows = Rows()
        self.names = {}
        self.names_size = 0
        self.constants = []
        self.entries = []

    def name(self, text):
        if text not in self.names:
            self.names[text] = self.names_size
            self.names_size += len(text) + 1
        return self.names[text]

    def constant(self, value):
        if value not in self.constants:
            self.constants.append(value)
        return self.constants.index(value)

    def expand(self, operator):
        for class_name, expressions in operator.forms.items():
            expressions = variants(expressions)
            for type_name in CLASSES[class_name]:
                row_type = type_name
                if operator.wrap and type_name == "u8":
                    row_type = "i8"
                row = self.rows.add(operator, row_type, expressions)
                if type_name == "f32":
                    self.add(operator, type_name, row, "FORM_HALF")
                if type_name == "f32" and operator.halves:
                    limit = (None if operator.halves is True or
                             isinstance(operator.halves, str)
                             else operator.halves)
                    self.add(operator, "bf16", self.rows.add(
                        operator, "bf16", expressions[:limit]), "FORM_EXACT")
                form = "FORM_WORD" if class_name == "W" else "FORM_EXACT"
                self.add(operator, type_name, row, form)

    def add(self, operator, type_name, row, form):
        types = operand_types(operator, type_name)
        arguments = [str(p[0]) for p in operator.parameters]
        otherwise = [str(self.constant(p[1])) for p in operator.parameters]
        self.entries.append(
            "    {%d, %d, %s, %s, %d, %d, %d, CPU_CHOICE_%s, %d,\n"
            "     {%s}, {%s}, {%s}}," % (
                self.name(operator.name), row, launcher(operator, form), form,
                BYTES.get(type_name, 0), len(types), operator.cost,
                operator.choice, len(operator.parameters),
                ", ".join(CODE[t] for t in types),
                ", ".join(arguments) or "0", ", ".join(otherwise) or "0"))


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("rows", "table"):
        sys.exit(__doc__)
    table = Table()
    table.constant(0)
    for operator in OPERATORS:
        if operator.special:
            place_special(operator)
        table.expand(operator)
    out = [HEADER % "gen_kernels.py"]
    if sys.argv[1] == "rows":
        out.append('#include "loop/row_loop.h"\n')
        out.append("/* A misspelt function in table.py would otherwise fail "
                   "only when linked. */")
        out.append('#pragma GCC diagnostic error '
                   '"-Wimplicit-function-declaration"')
        out.append("/* One text serves signed and unsigned types. */")
        out.append('#pragma GCC diagnostic ignored "-Wtype-limits"\n')
        out.extend(table.rows.text)
        out.append("extern const cpu_row CPU_NAME(cpu_elementwise_rows)[];")
        out.append("const cpu_row CPU_NAME(cpu_elementwise_rows)[] = {")
        out.extend("    %s," % name for name in table.rows.names)
        out.append("};")
    else:
        out.append("#include <math.h>\n")
        out.append("static const char names[] =")
        out.extend('    "%s\\0"' % name for name in table.names)
        out.append("    ;\n")
        out.append("const double cpu_elementwise_constants[] = {%s};\n" %
                   ", ".join(number(c) for c in table.constants))
        out.append("static const entry entries[] = {")
        out.extend(table.entries)
        out.append("};")
    with open(sys.argv[2], "w") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
