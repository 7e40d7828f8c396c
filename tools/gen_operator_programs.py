#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""Writes the element-wise operators as instructions of loop programs.

    gen_operator_programs.py FILE

The instructions are derived from the expressions in backends/expressions, from
which the backends' kernels are generated, so that both compute the same bits.
core/codegen/operator_programs.h describes the tables.  An operator whose
expression calls a function that is not made of instructions becomes one
instruction, FUNCTION, if it has no parameters; otherwise it has no program."""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "backends"))

from expressions.expansion import HEADER, INFINITY, variants  # noqa: E402
from expressions.table import OPERATORS  # noqa: E402

TYPES = {"F": "CORE__LOOP_FLOATS", "I": "CORE__LOOP_INTEGERS",
         "B": "CORE__LOOP_BOOL", "W": "CORE__LOOP_ANY",
         "f64": "CORE_DTYPE_MASK(CORE_F64)",
         "f32": "CORE_DTYPE_MASK(CORE_F32) | CORE_DTYPE_MASK(CORE_F16) | "
                "CORE_DTYPE_MASK(CORE_BF16)"}
BINARY = {"+": "ADD", "-": "SUB", "*": "MUL", "/": "DIV", "&": "AND",
          "|": "OR", "^": "XOR", "&&": "AND", "||": "OR", "==": "EQ",
          "!=": "NE", "<": "LT", "<=": "LE", ">": "GT", ">=": "GE"}
TESTS = ("EQ", "NE", "LT", "LE", "GT", "GE")
LEVELS = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="),
          ("<", "<=", ">", ">="), ("+", "-"), ("*", "/"))
# Functions of expressions that are instructions.
OPCODES = {
    "abs": "ABS", "sqrt": "SQRT", "ceil": "CEIL", "floor": "FLOOR",
    "trunc": "TRUNC", "rint": "ROUND", "fmod": "FMOD", "FMA": "FMA",
    "remainder": "REMAINDER", "floor_divide": "FLOOR_DIVIDE",
    "copysign": "COPYSIGN", "sign_bit": "SIGNBIT", "maximum": "MAXIMUM",
    "minimum": "MINIMUM", "divide_i64": "DIV", "modulo_i64": "FMOD",
    "floor_divide_i64": "FLOOR_DIVIDE", "floor_modulo_i64": "REMAINDER",
    "shift_left_i64": "SHIFT_LEFT", "shift_right_i64": "SHIFT_RIGHT"}
# Functions that are operators of another name.
RENAMED = {"power_i64": "pow.Tensor_Tensor", "pow": "pow.Tensor_Tensor",
           "gcd_i64": "gcd", "lcm_i64": "lcm"}
# Functions of functions.h, as expressions of their arguments.
EXPANDED = {
    "clamp": (("x", "low", "high"), "upper@(lower@(x, low), high)"),
    "lower": (("x", "low"), "(x < low || low != low) ? low : x"),
    "upper": (("x", "high"), "(x > high || high != high) ? high : x"),
    "lerp": (("x", "y", "w"), "w < (T)0.5 ? x + w * (y - x) : "
                              "y - (y - x) * (1 - w)"),
    "silu_slope": (("x",), "sigmoid@(x) * (1 + x * (1 - sigmoid@(x)))"),
    "tanh_of_softplus": (("x",), "x > 20 ? 1 : ratio@(exp@(x > 20 ? 20 : x))"),
    "ratio": (("e",), "quotient@(e * (e + 2))"),
    "quotient": (("n",), "n / (n + 2)"),
    "mish_slope": (("x",), "tanh_of_softplus@(x) + x * sigmoid@(x) * "
                           "(1 - tanh_of_softplus@(x) * "
                           "tanh_of_softplus@(x))"),
}
# Variants that are functions with a name of their own, which no operator has.
OWN_FUNCTIONS = {("gelu", 1): "gelu_tanh",
                 ("gelu_backward", 1): "gelu_backward_tanh"}
# What the setup of an operator declares.
SETUP = {
    "nan_to_num": {"high": "p1", "low": "p2"},
    "masked_fill.Scalar": {"fill": "p0"},
    "logit_backward": {"low": "(p0 < 0 ? 0 : p0)",
                       "outside": "(p0 < 0 ? NOT@ : 0)"},
}
ROUNDED = {"round_to_f16": "F16", "round_to_bf16": "BF16"}
TOKEN = re.compile(r"\s*(q->i\[0\] != 0|&bad|[A-Za-z_][A-Za-z_0-9]*@?|"
                   r"[0-9.]+(?:e-?[0-9]+)?|&&|\|\||[=!<>]=|[-+*/&|^<>!~?:(),])")


class Impossible(Exception):
    """The expression cannot be written as instructions."""


class Functions:
    """The names that FUNCTION takes, with arity and dtypes."""

    def __init__(self):
        self.rows = {}
        self.used = []

    def define(self, name, ninputs, types):
        known = self.rows.get(name)
        self.rows[name] = (ninputs, known[1] + " | " + types if known
                           else types)

    def index(self, name, ninputs):
        if name not in self.rows or self.rows[name][0] != ninputs:
            raise Impossible("%s of %d" % (name, ninputs))
        if name not in self.used:
            self.used.append(name)
        return self.used.index(name)


class Program:
    """The steps of one expression.  A value is (kind, reference): kind T, BOOL,
    or NUMBER, which becomes what is needed."""

    def __init__(self, operator, form, constants, functions):
        self.operator = operator
        self.kind = "BOOL" if form == "B" else "T"
        self.constants = constants
        self.functions = functions
        self.steps = []
        self.names = {}
        types = operator.types or [None] * (operator.inputs + 1)
        for k in range(operator.inputs):
            self.names["abc"[k]] = (
                "BOOL" if types[k + 1] == "bool" else self.kind, str(k))
        for k in range(len(operator.parameters)):
            self.names["p%d" % k] = ("NUMBER", "CORE__STEP_PARAMETER + %d" % k)

    def step(self, opcode, kind, *fields, type_name=None):
        code = type_name or ("BOOL" if kind == "BOOL" and self.kind != "BOOL"
                             else "COMPUTE")
        fields = list(fields) + ["0"] * (3 - len(fields))
        row = ("CORE_LOOP_" + opcode, "CORE__STEP_" + code) + tuple(fields)
        if row not in self.steps:
            self.steps.append(row)
        return (kind, "CORE__STEP_VALUE + %d" % self.steps.index(row))

    def number(self, value):
        if value not in self.constants:
            self.constants.append(value)
        return ("NUMBER",
                "CORE__STEP_CONSTANT + %d" % self.constants.index(value))

    def as_kind(self, value, kind):
        """The reference of a value as T or BOOL."""
        if value[0] in ("NUMBER", kind):
            return value[1]
        if kind == "T":
            return self.step("CONVERT", "T", value[1])[1]
        return self.step("NE", "BOOL", value[1], self.number(0)[1])[1]

    def binary(self, sign, a, b):
        opcode = BINARY[sign]
        if opcode in TESTS:
            kind = "BOOL" if "BOOL" in (a[0], b[0]) else self.kind
            if kind == "BOOL" and self.kind != "BOOL":
                raise Impossible("a comparison of tests")
            return self.step(opcode, "BOOL", self.as_kind(a, kind),
                             self.as_kind(b, kind))
        logical = sign in ("&&", "||") or (sign in "&|^" and
                                           a[0] == b[0] == "BOOL")
        kind = "BOOL" if logical else self.kind
        return self.step(opcode, kind, self.as_kind(a, kind),
                         self.as_kind(b, kind))

    def call(self, name, arguments):
        arguments = [a for a in arguments if a is not None]
        if name in ROUNDED:
            half = self.step("CONVERT", "T", self.as_kind(arguments[0], "T"),
                             type_name=ROUNDED[name])
            return self.step("CONVERT", "T", half[1])
        if name in OPCODES:
            kind = "BOOL" if OPCODES[name] == "SIGNBIT" else self.kind
            return self.step(OPCODES[name], kind,
                             *[self.as_kind(a, self.kind) for a in arguments])
        if name in EXPANDED:
            parameters, text = EXPANDED[name]
            return self.parse(text, dict(zip(parameters, arguments)))
        index = self.functions.index(RENAMED.get(name, name), len(arguments))
        fields = [self.as_kind(a, self.kind) for a in arguments]
        fields += ["0"] * (2 - len(fields)) + [str(index)]
        return self.step("FUNCTION", self.kind, *fields)

    # ------------------------------------------------------------ parsing --

    def parse(self, text, names=None):
        parser = Parser(self, text, dict(self.names, **(names or {})))
        value = parser.ternary()
        if parser.peek() is not None:
            raise Impossible("%r follows" % parser.peek())
        return value

    def finish(self, text):
        if text.startswith("(void)"):
            value = self.step("CONSTANT", "BOOL", self.number(0)[1])
        else:
            value = self.parse(text)
        wanted = "BOOL" if self.operator.output == "bool" else self.kind
        reference = self.as_kind(value, wanted)
        # The last step's value is the result.
        if reference != "CORE__STEP_VALUE + %d" % (len(self.steps) - 1):
            self.steps.append(("CORE_LOOP_CONVERT", "CORE__STEP_COMPUTE",
                               reference, "0", "0"))
        return self.steps


class Parser:
    def __init__(self, program, text, names):
        self.program = program
        self.names = names
        self.tokens = []
        at = 0
        while at < len(text):
            match = TOKEN.match(text, at)
            if not match:
                raise Impossible("%r is not a token" % text[at:at + 8])
            self.tokens.append(match.group(1))
            at = match.end()
        self.at = 0

    def peek(self, ahead=0):
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else None

    def take(self, wanted=None):
        token = self.peek()
        if token is None or wanted not in (None, token):
            raise Impossible("%r where %r belongs" % (token, wanted))
        self.at += 1
        return token

    def ternary(self):
        test = self.level(0)
        if self.peek() != "?":
            return test
        self.take()
        program = self.program
        first = self.ternary()
        self.take(":")
        second = self.ternary()
        kind = "BOOL" if first[0] == second[0] == "BOOL" else program.kind
        return program.step("SELECT", kind, program.as_kind(test, "BOOL"),
                            program.as_kind(first, kind),
                            program.as_kind(second, kind))

    def level(self, n):
        if n == len(LEVELS):
            return self.unary()
        value = self.level(n + 1)
        while self.peek() in LEVELS[n]:
            sign = self.take()
            value = self.program.binary(sign, value, self.level(n + 1))
        return value

    def unary(self):
        token, program = self.take(), self.program
        if token == "-":
            if self.peek() == "INFINITE@":
                self.take()
                return program.number(-INFINITY)
            return program.step("NEG", program.kind,
                                program.as_kind(self.unary(), program.kind))
        if token == "~":
            return program.step("NOT", program.kind,
                                program.as_kind(self.unary(), program.kind))
        if token == "!":
            return program.step("NOT", "BOOL",
                                program.as_kind(self.unary(), "BOOL"))
        if token == "(":
            if self.peek() == "T" and self.peek(1) == ")":
                self.at += 2
                value = self.unary()
                return (value if value[0] == "NUMBER" else
                        (program.kind, program.as_kind(value, program.kind)))
            if self.peek() in ("double", "void"):
                raise Impossible("a cast")
            value = self.ternary()
            self.take(")")
            return value
        return self.primary(token)

    def primary(self, token):
        program = self.program
        if token[0].isdigit():
            return program.number(float(token))
        if token == "&bad":
            return None
        if token == "q->i[0] != 0":
            return self.names["p0"]
        if token == "INFINITE@":
            return program.number(INFINITY)
        if token == "NOT@":
            return program.number("nan")
        if self.peek() != "(":
            if token not in self.names:
                raise Impossible(token)
            return self.names[token]
        self.take()
        arguments = [self.ternary()]
        while self.peek() == ",":
            self.take()
            arguments.append(self.ternary())
        self.take(")")
        return program.call(token.rstrip("@"), arguments)


def plain(operator):
    """Whether a call has no arguments besides its inputs that matter."""
    return not operator.parameters and \
        operator.choice in ("NONE", "DTYPE", "TANH", "POWER")


class Tables:
    def __init__(self):
        self.constants = []
        self.functions = Functions()
        self.steps = []
        self.rows = []
        self.missing = []
        for operator in OPERATORS:
            if operator.inputs > 2 or not plain(operator) or \
                    operator.output or operator.types:
                continue
            types = [TYPES[c] for c in operator.forms if c in TYPES]
            self.functions.define(operator.name, operator.inputs,
                                  " | ".join(types))
        for (name, _), own in OWN_FUNCTIONS.items():
            ninputs = self.functions.rows[name][0]
            self.functions.define(own, ninputs, TYPES["F"])

    def variant(self, operator, form, number, text):
        program = Program(operator, form, self.constants, self.functions)
        for name, meaning in SETUP.get(operator.name, {}).items():
            text = re.sub(r"\b%s\b" % name, meaning, text)
        own = OWN_FUNCTIONS.get((operator.name, number))
        try:
            if own:
                return program.finish("%s@(%s)" % (
                    own, ", ".join("abc"[:operator.inputs])))
            return program.finish(text)
        except Impossible as reason:
            self.reason = "%s (%s)" % (operator.name, reason)
        # The whole operator.
        if number == 0 and plain(operator) and operator.inputs <= 2 and \
                not operator.output:
            program = Program(operator, form, self.constants, self.functions)
            program.call(operator.name, [program.names["abc"[k]] for k in
                                         range(operator.inputs)])
            return program.steps
        return None

    def add(self, operator):
        choice = operator.choice
        for form, expressions in operator.forms.items():
            expressions = variants(expressions)
            if choice == "DTYPE" or (choice == "NONE" and operator.special):
                expressions = expressions[:1]
            first, count = [], []
            for number, text in enumerate(expressions):
                steps = self.variant(operator, form, number, text)
                if steps is None:
                    break
                first.append(self.place(steps))
                count.append(len(steps))
            if len(count) < len(expressions):
                self.missing.append(self.reason)
                continue
            self.rows.append(self.row(operator, form, first, count))

    def place(self, steps):
        """Where the steps begin; the same ones are written once."""
        for at in range(len(self.steps) - len(steps) + 1):
            if self.steps[at:at + len(steps)] == steps:
                return at
        self.steps += steps
        return len(self.steps) - len(steps)

    @staticmethod
    def row(operator, form, first, count):
        types = operator.types or [None] * 4
        bools = sum(1 << k for k in range(operator.inputs)
                    if types[k + 1] == "bool")
        arguments = [str(p[0]) for p in operator.parameters]
        otherwise = [number(p[1]) for p in operator.parameters]
        return ("    {\"%s\", %s, %d, CORE__CHOICE_%s, %d, %d, %d, %d,\n"
                "     {%s}, {%s}, {%s}, {%s}}," % (
                    operator.name, TYPES[form], operator.inputs,
                    operator.choice, len(first), bools,
                    operator.output == "bool", len(operator.parameters),
                    ", ".join(arguments) or "0", ", ".join(otherwise) or "0",
                    ", ".join(map(str, first)), ", ".join(map(str, count))))


def number(value):
    if value == "nan":
        return "__builtin_nan(\"\")"
    if value in (INFINITY, -INFINITY):
        return "-__builtin_inf()" if value < 0 else "__builtin_inf()"
    return repr(float(value))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    tables = Tables()
    for operator in OPERATORS:
        tables.add(operator)
    out = [HEADER % "gen_operator_programs.py",
           '#include "codegen/operator_programs.h"\n',
           "const core__loop_function core__loop_functions[] = {"]
    for name in tables.functions.used:
        out.append('    {"%s", %d, %s},' % ((name,) +
                                            tables.functions.rows[name]))
    out += ["};", "const uint32_t core__loop_nfunctions = %d;\n" %
            len(tables.functions.used),
            "const double core__step_constants[] = {"]
    out += ["    %s," % number(c) for c in tables.constants]
    out += ["};\n", "const core__step core__steps[] = {"]
    out += ["    {%s}," % ", ".join(s) for s in tables.steps]
    out += ["};\n",
            "const core__operator_program core__operator_programs[] = {"]
    out += tables.rows
    out += ["};", "const uint32_t core__noperator_programs = %d;" %
            len(tables.rows)]
    with open(sys.argv[1], "w") as file:
        file.write("\n".join(out) + "\n")
    if os.environ.get("GEN_VERBOSE"):
        print("without a program:", *tables.missing, sep="\n    ")


if __name__ == "__main__":
    main()
