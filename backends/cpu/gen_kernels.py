#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""Writes the rows of the element-wise operators, and the table of them.

    gen_kernels.py rows FILE     rows of every operator and type (C, compiled
                                 once per instruction set)
    gen_kernels.py table FILE    the table that elementwise.c includes

An operator is given by expressions in C on its inputs a, b, c, of the type T
that it is expanded for, and its parameters p0 … p3, of type T too.  An @ stands
for the type's suffix: exp@(a) becomes exp_f32(a).  Inputs and output have one
type, the output may be bool.  A float expression serves f64 and f32, and f16
and bf16 through f32: in blocks, or where the operator is used much with bf16
(halves=True) in a row that converts each number as it comes."""

import sys

C_TYPE = {
    "f64": "double", "f32": "float", "i64": "int64_t", "i32": "int32_t",
    "i16": "int16_t", "i8": "int8_t", "u8": "uint8_t", "bool": "uint8_t",
    "w8": "uint8_t", "w16": "uint16_t", "w32": "uint32_t", "w64": "uint64_t",
    "bf16": "uint16_t",
}
CODE = {
    "f64": "CORE_F64", "f32": "CORE_F32", "i64": "CORE_I64",
    "i32": "CORE_I32", "i16": "CORE_I16", "i8": "CORE_I8", "u8": "CORE_U8",
    "bool": "CORE_BOOL", "bf16": "CORE_BF16", "w8": "0", "w16": "0", "w32": "0", "w64": "0",
}
BYTES = {"w8": 1, "w16": 2, "w32": 4, "w64": 8}
CLASSES = {
    "F": ["f64", "f32"],
    "I": ["i64", "i32", "i16", "i8", "u8"],
    "B": ["bool"],
    "W": ["w8", "w16", "w32", "w64"],
    "f64": ["f64"],
    "f32": ["f32"],
}
INFINITY = float("inf")


class Operator:
    """One operator: its expressions by class of types, and what else it is
    given.  An expression may be a list: the variants that `choice` chooses
    from."""

    def __init__(self, name, inputs, forms, output=None, parameters=(),
                 choice="NONE", cost=0, types=None, outputs=1, setup="",
                 wrap=False, beyond=None, halves=False):
        self.name = name
        self.inputs = inputs
        self.forms = forms
        self.output = output
        self.parameters = parameters
        self.choice = choice
        self.cost = cost
        self.types = types
        self.outputs = outputs
        self.setup = setup
        self.wrap = wrap
        self.halves = halves  # bf16 has a row of its own
        self.beyond = beyond  # (limit, expression) for f32 elements above it


OPERATORS = []


def op(name, inputs, forms, **options):
    OPERATORS.append(Operator(name, inputs, forms, **options))


def unary(name, expression, cost=0, **options):
    op(name, 1, {"F": expression}, cost=cost, **options)


def compare(name, operator):
    expression = "a %s b" % operator
    op(name, 2, {"F": expression, "I": expression, "B": expression},
       output="bool")


# ------------------------------------------------------------- arithmetic --

op("abs", 1, {"F": "abs@(a)", "I": "(T)(a < 0 ? -a : a)"})
op("neg", 1, {"F": "-a", "I": "(T)-a"}, wrap=True)
for name in "sign", "sgn":
    op(name, 1, {"F": "(T)((a > 0) - (a < 0))",
                 "I": "(T)((a > 0) - (a < 0))", "B": "a"})
for name in "ceil", "floor", "trunc", "round":
    op(name, 1, {"F": "%s@(a)" % name.replace("round", "rint"), "I": "a"},
       wrap=True)
op("round.decimals", 1,
   {"F": "up ? rint@(a * scale) / scale : rint@(a / scale) * scale",
    "I": "a"},
   parameters=[(1, 0)], cost=1,
   setup="const int up = q->i[0] >= 0; "
         "const T scale = (T)cpu_power_of_ten(up ? q->i[0] : -q->i[0]);")
unary("frac", "a - trunc@(a)")
unary("reciprocal", "1 / a")
unary("sqrt", "sqrt@(a)")
unary("rsqrt", "1 / sqrt@(a)")
unary("deg2rad", "a * (T)0.017453292519943295")
unary("rad2deg", "a * (T)57.29577951308232")

ALPHA = {"parameters": [(2, 1)], "choice": "ALPHA"}
op("add.Tensor", 2,
   {"F": ["a + b", "FMA@(p0, b, a)"], "I": ["(T)(a + b)", "(T)(a + p0 * b)"],
    "B": ["a | b", "a | (b & (q->i[0] != 0))"]}, wrap=True, halves=True,
   **ALPHA)
op("sub.Tensor", 2,
   {"F": ["a - b", "FMA@(-p0, b, a)"],
    "I": ["(T)(a - b)", "(T)(a - p0 * b)"]}, wrap=True, **ALPHA)
op("rsub.Tensor", 2,
   {"F": ["b - a", "FMA@(-p0, a, b)"],
    "I": ["(T)(b - a)", "(T)(b - p0 * a)"]}, wrap=True, **ALPHA)
op("mul.Tensor", 2, {"F": "a * b", "I": "(T)(a * b)", "B": "a & b"},
   wrap=True, halves=True)
op("div.Tensor", 2, {"F": "a / b"})
op("div.Tensor_mode", 2,
   {"F": ["a / b", "trunc@(a / b)", "floor_divide@(a, b)"],
    "I": ["divide_i64(a, b, &bad)", "divide_i64(a, b, &bad)",
          "floor_divide_i64(a, b, &bad)"]},
   choice="ROUNDING", cost=2)
op("floor_divide", 2,
   {"F": "floor_divide@(a, b)", "I": "floor_divide_i64(a, b, &bad)"}, cost=2)
op("fmod.Tensor", 2, {"F": "fmod@(a, b)", "I": "modulo_i64(a, b, &bad)"},
   cost=3)
op("remainder.Tensor", 2,
   {"F": "remainder@(a, b)", "I": "floor_modulo_i64(a, b, &bad)"}, cost=3)
op("pow.Tensor_Tensor", 2,
   {"F": ["pow@(a, b)", "a * a", "a * a * a", "sqrt@(a)", "1 / a",
          "1 / (a * a)", "1 / sqrt@(a)"]}, choice="POWER", cost=3)
op("pow.Tensor_Tensor", 2, {"I": "(T)power_i64(a, b)"}, cost=3)
unary2 = lambda name, expression, cost=0: op(
    name, 2, {"F": expression}, cost=cost)
unary2("atan2", "atan2@(a, b)", 4)
unary2("hypot", "hypot@(a, b)", 3)
unary2("copysign.Tensor", "copysign@(a, b)")
op("nextafter", 2, {"f64": "nextafter_f64(a, b)"}, cost=3)
op("nextafter", 2, {"f32": ["nextafter_f32(a, b)", "nextafter_f16(a, b)",
                            "nextafter_bf16(a, b)"]}, choice="DTYPE", cost=3)
op("heaviside", 2, {"F": "a == 0 ? b : (T)(a > 0)",
                    "I": "a == 0 ? b : (T)(a > 0)", "B": "a | b"})
MAXIMUM = "(a > b || a != a) ? a : b"
MINIMUM = "(a < b || a != a) ? a : b"
op("maximum", 2, {"F": MAXIMUM, "I": "a > b ? a : b", "B": "a | b"})
op("minimum", 2, {"F": MINIMUM, "I": "a < b ? a : b", "B": "a & b"})
op("fmax", 2, {"F": "(a > b || b != b) ? a : b", "I": "a > b ? a : b",
               "B": "a | b"})
op("fmin", 2, {"F": "(a < b || b != b) ? a : b", "I": "a < b ? a : b",
               "B": "a & b"})
op("lerp.Scalar", 2, {"F": "lerp@(a, b, p0)"}, parameters=[(2, 0)])
op("lerp.Tensor", 3, {"F": "lerp@(a, b, c)"})
op("addcmul", 3, {"F": "FMA@(p0 * b, c, a)", "I": "(T)(a + p0 * b * c)"},
   parameters=[(3, 1)])
op("addcdiv", 3, {"F": "FMA@(p0, b / c, a)"}, parameters=[(3, 1)])
op("gcd", 2, {"I": "(T)gcd_i64(a, b)"}, cost=4)
op("lcm", 2, {"I": "(T)lcm_i64(a, b)"}, cost=4)

# ------------------------------------------------- bits, logic, comparison --

op("bitwise_not", 1, {"I": "(T)~a", "B": "!a"}, wrap=True)
for name, operator in ("and", "&"), ("or", "|"), ("xor", "^"):
    expression = "(T)(a %s b)" % operator
    op("bitwise_%s.Tensor" % name, 2, {"I": expression, "B": expression},
       wrap=True)
op("bitwise_left_shift.Tensor", 2, {"I": "(T)shift_left_i64(a, b)"})
op("bitwise_right_shift.Tensor", 2, {"I": "(T)shift_right_i64(a, b)"})
for name, operator in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="),
                       ("gt", ">"), ("ge", ">=")):
    compare(name + ".Tensor", operator)
op("logical_not", 1, {"F": "a == 0", "I": "a == 0", "B": "a == 0"},
   output="bool")
for name, operator in ("and", "&"), ("or", "|"), ("xor", "^"):
    expression = "(a != 0) %s (b != 0)" % operator
    op("logical_" + name, 2,
       {"F": expression, "I": expression, "B": expression}, output="bool")
NEVER = "(void)a, 0"
op("isnan", 1, {"F": "a != a", "I": NEVER, "B": NEVER}, output="bool")
op("isinf", 1, {"F": "abs@(a) == INFINITE@", "I": NEVER, "B": NEVER},
   output="bool")
op("isposinf", 1, {"F": "a == INFINITE@", "I": NEVER, "B": NEVER},
   output="bool")
op("isneginf", 1, {"F": "a == -INFINITE@", "I": NEVER, "B": NEVER},
   output="bool")
op("signbit", 1, {"F": "sign_bit@(a)", "I": "a < 0", "B": NEVER},
   output="bool")
op("where.self", 3, {"W": "a ? b : c"}, types=["W", "bool", "W", "W"])
op("masked_fill.Scalar", 2, {"W": "b ? fill : a"}, types=["W", "W", "bool"],
   parameters=[(2, 0)], choice="BITS", setup="const T fill = (T)q->bits;")
op("masked_fill.Tensor", 3, {"W": "b ? c : a"},
   types=["W", "W", "bool", "W"])

# ------------------------------------------------------------------ bounds --

BOUNDS = {"parameters": [(1, -INFINITY), (2, INFINITY)]}
CLAMP = {"F": "clamp@(a, p0, p1)", "I": "a < p0 ? (p0 < p1 ? p0 : p1) : "
                                        "a > p1 ? p1 : a"}
op("clamp", 1, CLAMP, **BOUNDS)
op("hardtanh", 1, CLAMP, parameters=[(1, -1), (2, 1)])
op("clamp_min", 1, {"F": "(a > p0 || a != a) ? a : p0",
                    "I": "a > p0 ? a : p0"}, parameters=[(1, -INFINITY)])
op("clamp_max", 1, {"F": "(a < p0 || a != a) ? a : p0",
                    "I": "a < p0 ? a : p0"}, parameters=[(1, INFINITY)])
op("clamp_min.Tensor", 2, {"F": MAXIMUM, "I": "a > b ? a : b", "B": "a | b"})
op("clamp_max.Tensor", 2, {"F": MINIMUM, "I": "a < b ? a : b", "B": "a & b"})
op("clamp.Tensor", 3,
   {"F": ["minimum@(maximum@(a, b), c)", MAXIMUM, MINIMUM],
    "I": ["a < b ? (b < c ? b : c) : a > c ? c : a", "a > b ? a : b",
          "a < b ? a : b"]}, choice="CLAMP")
op("nan_to_num", 1,
   {"F": "a != a ? p0 : a == INFINITE@ ? high : a == -INFINITE@ ? low : a",
    "I": "a", "B": "a"},
   parameters=[(1, 0), (2, INFINITY), (3, -INFINITY)], choice="FINITE",
   setup="const T high = finite@(p1), low = finite@(p2);")

# ------------------------------------------------- exponentials and friends --

for name in "sin", "cos", "tan":
    unary(name, name + "@(a)", 2, beyond=("CPU_TURNS", name + "f(a)"))
for name, cost in (("exp", 1), ("exp2", 1), ("expm1", 1), ("log", 1),
                   ("log2", 1), ("log10", 1), ("log1p", 1), ("asin", 4), ("acos", 4),
                   ("atan", 4), ("sinh", 2), ("cosh", 2), ("tanh", 1),
                   ("asinh", 4), ("acosh", 4), ("atanh", 4), ("erf", 2),
                   ("erfc", 4), ("sigmoid", 1), ("lgamma", 5)):
    unary(name, name + "@(a)", cost)
unary("logit", "log@(z / (1 - z))".replace(
    "z", "(p0 < 0 ? a : clamp@(a, p0, 1 - p0))"), 1, parameters=[(1, -1)])
unary2("logaddexp", "logaddexp@(a, b)", 2)
unary2("logaddexp2", "logaddexp2@(a, b)", 2)
unary2("xlogy.Tensor", "b != b ? b : a == 0 ? 0 : a * log@(b)", 1)
unary2("special_xlog1py", "b != b ? b : a == 0 ? 0 : a * log1p@(b)", 1)
unary("sinc", "a == 0 ? 1 : (T)sin((double)a * 3.141592653589793) / "
              "(a * (T)3.141592653589793)", 4)
unary("special_entr", "a > 0 ? -a * log@(a) : a == 0 ? 0 : "
                      "a != a ? a : -INFINITE@", 1)

# Special functions: one row calls them all, through a table (special.c).
SPECIAL_UNARY = [
    "digamma", "erfinv", "special_erfcx", "special_log_ndtr", "special_ndtri",
    "i0", "special_i0e", "special_i1", "special_i1e",
    "special_modified_bessel_k0", "special_scaled_modified_bessel_k0",
    "special_modified_bessel_k1", "special_scaled_modified_bessel_k1",
    "special_bessel_j0", "special_bessel_j1", "special_bessel_y0",
    "special_bessel_y1", "special_airy_ai", "special_spherical_bessel_j0",
    "angle"]
SPECIAL_BINARY = [
    "polygamma", "special_zeta", "igamma", "igammac",
    "special_chebyshev_polynomial_t", "special_chebyshev_polynomial_u",
    "special_chebyshev_polynomial_v", "special_chebyshev_polynomial_w",
    "special_shifted_chebyshev_polynomial_t",
    "special_shifted_chebyshev_polynomial_u",
    "special_shifted_chebyshev_polynomial_v",
    "special_shifted_chebyshev_polynomial_w",
    "special_hermite_polynomial_h", "special_hermite_polynomial_he",
    "special_laguerre_polynomial_l", "special_legendre_polynomial_p"]
NO_ARGUMENT = 99  # beyond every argument: the parameter is its default


def special(name, function, inputs, expression, **options):
    table, kind = ("unary", 1) if name in SPECIAL_UNARY else ("binary", 2)
    place = (SPECIAL_UNARY if kind == 1 else SPECIAL_BINARY).index(function)
    op(name, inputs, {"F": expression}, cost=6,
       setup="const cpu_special_%d special = cpu_special_%s[q->i[0]];" % (
           kind, table),
       parameters=[(NO_ARGUMENT, place)] + options.get("parameters", []))


for name in SPECIAL_UNARY:
    special(name, name, 1, "(T)special((double)a)")
for name in SPECIAL_BINARY[1:]:
    special(name, name, 2, "(T)special((double)a, (double)b)")
special("polygamma", "polygamma", 1, "(T)special((double)p1, (double)a)",
        parameters=[(0, 0)])

# ------------------------------------------------------------- activations --

op("relu", 1, {"F": "a <= 0 ? 0 : a", "I": "a < 0 ? 0 : a"})
op("gelu", 1, {"F": ["gelu@(a)", "gelu_tanh@(a)"]}, choice="TANH", cost=2)
unary("silu", "a * sigmoid@(a)", 1)
unary("mish", "a * tanh_of_softplus@(a)", 2)
unary("elu", "a <= 0 ? p0 * p1 * expm1@(a * p2) : a * p1", 1,
      parameters=[(1, 1), (2, 1), (3, 1)])
unary("leaky_relu", "a > 0 ? a : a * p0", parameters=[(1, 0.01)])
unary("hardsigmoid", "clamp@(a + 3, 0, 6) / 6")
unary("hardswish", "a * clamp@(a + 3, 0, 6) / 6")
unary("hardshrink", "(a >= -p0 && a <= p0) ? 0 : a", parameters=[(1, 0.5)],
      choice="BOUND")
unary("softshrink", "a > p0 ? a - p0 : a < -p0 ? a + p0 : a * 0",
      parameters=[(1, 0.5)], choice="BOUND")
unary("softplus", "a * p0 > p1 ? a : log1p@(exp@(a * p0)) / p0", 2,
      parameters=[(1, 1), (2, 20)])
op("threshold", 1, {"F": "a <= p0 ? p1 : a", "I": "a <= p0 ? p1 : a"},
   parameters=[(1, 0), (2, 0)])

# --------------------------------------------------- gradients; a: of output --

op("threshold_backward", 2, {"F": "b <= p0 ? 0 : a", "I": "b <= p0 ? 0 : a"},
   parameters=[(2, 0)])
unary2("sigmoid_backward", "a * (1 - b) * b")
unary2("tanh_backward", "a * (1 - b * b)")
op("gelu_backward", 2,
   {"F": ["a * gelu_slope@(b)", "a * gelu_tanh_slope@(b)"]}, choice="TANH",
   cost=2)
unary2("silu_backward", "a * silu_slope@(b)", 1)
unary2("mish_backward", "a * mish_slope@(b)", 2)
op("hardtanh_backward", 2, {"F": "(b <= p0 || b >= p1) ? 0 : a"},
   parameters=[(2, -1), (3, 1)])
op("leaky_relu_backward", 2, {"F": "b > 0 ? a : a * p0"},
   parameters=[(2, 0.01)])
op("elu_backward", 2,
   {"F": "b > 0 ? a * p1 : a * p2 * (p3 != 0 ? b + p0 * p1 : "
         "p0 * p1 * exp@(b * p2))"},
   parameters=[(1, 1), (2, 1), (3, 1), (4, 0)], cost=1)
op("softplus_backward", 2,
   {"F": "b * p0 > p1 ? a : a * sigmoid@(b * p0)"},
   parameters=[(2, 1), (3, 20)], cost=1)
unary2("hardsigmoid_backward", "(b > -3 && b < 3) ? a / 6 : 0")
unary2("hardswish_backward",
       "b < -3 ? 0 : b >= 3 ? a : a * (b / 3 + (T)0.5)")
op("hardshrink_backward", 2, {"F": "(b >= -p0 && b <= p0) ? 0 : a"},
   parameters=[(2, 0.5)], choice="BOUND")
op("softshrink_backward", 2, {"F": "(b >= -p0 && b <= p0) ? 0 : a"},
   parameters=[(2, 0.5)], choice="BOUND")
op("logit_backward", 2,
   {"F": "(b < low || b > 1 - low) ? outside : a / abs@(b * (1 - b))"},
   parameters=[(2, -1)],
   setup="const T low = p0 < 0 ? 0 : p0, outside = p0 < 0 ? NOT@ : 0;")


# ---------------------------------------------------------------- expansion --

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
            self.text.append(text.replace("(ROW)", "(%s)" % name, 1))
        return index


def operand_types(operator, type_name):
    if operator.types is not None:
        return [type_name if t == "W" else t for t in operator.types]
    return ([operator.output or type_name] * operator.outputs +
            [type_name] * operator.inputs)


def used(word, text):
    parts = "".join(c if c.isalnum() or c == "_" else " " for c in text)
    return word in parts.split()


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


def row_text(operator, type_name, expression):
    if operator.beyond is not None and type_name == "f32":
        limit, scalar = operator.beyond
        return BEYOND_ROW.replace("LIMIT", limit).replace(
            "VECTOR", expression.replace("@", "_f32")).replace(
            "SCALAR", scalar)
    types = [C_TYPE[t] for t in operand_types(operator, type_name)]
    half = type_name == "bf16"
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
    lines.append("    CPU_LOOP")
    lines.append("    for (int64_t k = 0; k < n; k++) {")
    for k in letters:
        if half:
            lines.append("        const T %s = cpu_f32_of_bf16(in%d[k]);" %
                         ("abc"[k], k))
        else:
            lines.append("        const %s %s = in%d[k];" %
                         (types[k + 1], "abc"[k], k))
    lines.append("        o[k] = %s(%s);" % (
        "cpu_bf16_of_f32" if half else "(%s)" % types[0], expression))
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
    return "\n".join(lines).replace("@", suffix) + "\n"


def used_setup(operator, expression):
    """Whether the expression uses a name that the setup declares."""
    names = []
    for statement in operator.setup.split(";"):
        for part in statement.split(","):
            if "=" in part:
                names.append(part.split("=")[0].split()[-1])
    return any(used(name, expression) for name in names)


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
            if isinstance(expressions, str):
                expressions = [expressions]
            for type_name in CLASSES[class_name]:
                row_type = type_name
                if operator.wrap and type_name == "u8":
                    row_type = "i8"
                row = self.rows.add(operator, row_type, expressions)
                if type_name == "f32":
                    self.add(operator, type_name, row, "FORM_HALF")
                if type_name == "f32" and operator.halves:
                    self.add(operator, "bf16", self.rows.add(
                        operator, "bf16", expressions), "FORM_EXACT")
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


HEADER = """/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Written by gen_kernels.py; do not edit. */
"""


def number(value):
    if value in (INFINITY, -INFINITY):
        return "-HUGE_VAL" if value < 0 else "HUGE_VAL"
    return repr(float(value))


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("rows", "table"):
        sys.exit(__doc__)
    table = Table()
    table.constant(0)
    for operator in OPERATORS:
        table.expand(operator)
    out = [HEADER]
    if sys.argv[1] == "rows":
        out.append('#include "loop/rows.h"\n')
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
