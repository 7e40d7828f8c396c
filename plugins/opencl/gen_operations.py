#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""Writes the table of element-wise operators from backends/expressions, with
the expressions in OpenCL C, and a list of the functions that they call.

    gen_operations.py FILE

A function without a suffix is OpenCL's own or that of kernels/elementwise.cl;
special functions are those of kernels/special.cl, in f64."""

import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "..", "backends"))

from expressions.expansion import HEADER, number, variants  # noqa: E402
from expressions.table import OPERATORS  # noqa: E402

# Functions whose names OpenCL gives to others, or spells otherwise.
FUNCTIONS = {"abs": "fabs", "FMA": "fma", "clamp": "clamped",
             "remainder": "floor_modulo", "INFINITE": "(T)INFINITY",
             "NOT": "(T)NAN"}
SPECIAL = {
    "digamma": "digamma", "erfinv": "erfinv", "special_erfcx": "erfcx",
    "special_log_ndtr": "log_ndtr", "special_ndtri": "ndtri",
    "i0": "bessel_i0", "special_i0e": "bessel_i0e", "special_i1": "bessel_i1",
    "special_i1e": "bessel_i1e", "special_modified_bessel_k0": "bessel_k0",
    "special_scaled_modified_bessel_k0": "bessel_k0e",
    "special_modified_bessel_k1": "bessel_k1",
    "special_scaled_modified_bessel_k1": "bessel_k1e",
    "special_spherical_bessel_j0": "spherical_j0", "special_zeta": "zeta",
    "polygamma": "polygamma", "igamma": "igamma", "igammac": "igammac",
    "special_hermite_polynomial_h": "hermite_h",
    "special_hermite_polynomial_he": "hermite_he",
    "special_chebyshev_polynomial_t": "chebyshev_t",
    "special_chebyshev_polynomial_u": "chebyshev_u",
    "special_chebyshev_polynomial_v": "chebyshev_v",
    "special_chebyshev_polynomial_w": "chebyshev_w",
    "special_shifted_chebyshev_polynomial_t": "shifted_chebyshev_t",
    "special_shifted_chebyshev_polynomial_u": "shifted_chebyshev_u",
    "special_shifted_chebyshev_polynomial_v": "shifted_chebyshev_v",
    "special_shifted_chebyshev_polynomial_w": "shifted_chebyshev_w"}
# Operators that need no f64 here.
PLAIN = {"angle": "a != a ? a : a < 0 ? (T)3.141592653589793 : 0"}

# What the kernel computes with instead of names that `setup` declares.
READ = {
    "round.decimals": ({"scale": "p0", "up": "p1 == 0"},
                       [(1, 0, "POWER_OF_10"), (1, 0, "IS_BELOW_0")]),
    "masked_fill.Scalar": ({"fill": "p0"}, None)}


def choose(operator, forms):
    """One expression of the variants."""
    texts = variants(forms)
    if operator.choice == "BOUND":
        return re.sub(r"\bp0\b", "rounded(p0)", texts[0])
    if len(texts) == 1:
        return texts[0]
    if operator.choice == "ALPHA":
        return texts[1]
    if operator.choice == "TANH":
        return "p0 != 0 ? %s : %s" % (texts[1], texts[0])
    if operator.choice == "ROUNDING":
        return "p0 == 0 ? %s : p0 == 1 ? %s : %s" % (
            texts[0], re.sub(r"^trunc@\((.*)\)$", r"trunc@(rounded(\1))",
                             texts[1]), texts[2])
    if operator.choice == "POWER":
        return "".join("b == (T)%s ? %s : " % case for case in zip(
            ("2", "3", "0.5", "-1", "-2", "-0.5"), texts[1:])) + texts[0]
    if operator.choice in ("CLAMP", "DTYPE"):
        return texts[0]
    raise KeyError(operator.choice)


def declared(setup):
    """Names that `setup` declares, and their values."""
    found = {}
    for statement in setup.split(";"):
        for name, value in re.findall(r"(\w+) = ((?:[^,(]|\([^)]*\))+)",
                                      statement):
            found[name] = value.strip()
    return found


def translate(operator, text):
    """The expression in OpenCL C."""
    names = READ[operator.name][0] if operator.name in READ else \
        declared(operator.setup)
    for name, value in names.items():
        text = re.sub(r"\b%s\b" % name,
                      value if value.isidentifier() else "(%s)" % value, text)
    if operator.name in PLAIN:
        return PLAIN[operator.name]
    if operator.special:
        return text.replace("special(", SPECIAL[operator.name] + "(")
    text = text.replace("(void)a, 0", "0")
    text = re.sub(r"q->i\[(\d)\]", r"p\1", text)
    text = text.replace("(double)", "(wide)")
    text = re.sub(r"(?<=\(wide\)a \* )([\d.]+)", r"(wide)\1", text)
    text = re.sub(r"(\w+)_[if]\d+\(", r"\1(", text)
    return re.sub(r"(\w+)@", lambda m: FUNCTIONS.get(m[1], m[1]), text)


def flags(operator, texts):
    found = []
    if operator.output == "bool":
        found.append("TO_BOOL")
    if operator.types is not None:
        found.append("SELECTS" if operator.types[1] == "bool" else "MASKS")
    if any("&bad" in text for text in texts if text):
        found.append("MAY_FAIL")
    if operator.name == "nextafter":
        found.append("NO_HALVES")
    if operator.choice == "CLAMP":
        found.append("OR_NEXT")
    if operator.special and operator.name not in PLAIN:
        found.append("SPECIAL")
    return " | ".join(found) or "0"


def parameters(operator):
    """(argument, default, how it is read)"""
    if operator.name in READ and READ[operator.name][1]:
        return READ[operator.name][1]
    if operator.choice in ("TANH", "ROUNDING"):
        how = {"TANH": "IS_TANH", "ROUNDING": "ROUNDING"}[operator.choice]
        return [(operator.inputs, 0, how)]
    return [(p[0], p[1], "NUMBER") for p in operator.parameters]


def row(name, inputs, texts, some_flags, some_parameters):
    cells = ['"%s"' % text if text else "NULL" for text in texts]
    listed = ", ".join("{%d, %s, READ_%s}" % (argument + 1, number(default), how)
                       for argument, default, how in some_parameters)
    return '    {"%s", %d, %s,\n     %s, {%s}},' % (
        name, inputs, ",\n     ".join(cells), some_flags,
        listed or "{0, 0, 0}")


def merged():
    """Operators by name: what two entries give is one row."""
    found = {}
    for operator in OPERATORS:
        known = found.setdefault(operator.name, (operator, {}))
        for class_name, forms in operator.forms.items():
            known[1].setdefault(class_name, (operator, forms))
    return found.values()


def rows():
    for operator, forms in merged():
        if operator.special and operator.name not in PLAIN and \
                operator.name not in SPECIAL:
            continue
        texts = []
        for classes in ("W", "F", "f32"), ("I",), ("B",):
            at = [forms[c] for c in classes if c in forms]
            texts.append(translate(at[0][0], choose(*at[0])) if at else None)
        yield row(operator.name, operator.inputs, texts,
                  flags(operator, texts), parameters(operator))
        if operator.choice == "CLAMP":
            # The next row is for one bound, given as b.
            one = [translate(operator, "p0 != 0 ? (%s) : (%s)" %
                             tuple(forms[c][1][1:])) for c in "FI"]
            yield row(operator.name + "/", operator.inputs - 1, one + [None],
                      "0", [(1, 0, "IS_PRESENT")])


def own_names():
    """Lines that give the functions of elementwise.cl a name for each T."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels",
                        "elementwise.cl")
    with open(path) as file:
        names = re.findall(r"^static \w+ (\w+)\(", file.read(), re.M)
    yield "const char opencl_own_names[] ="
    for name in sorted(set(names)):
        yield '    "#define %s OWN(%s_)\\n"' % (name, name)
    yield "    ;"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = [HEADER % "gen_operations.py", "#include <math.h>\n",
           "static const operation operations[] = {"]
    out += list(rows()) + ["};\n"] + list(own_names())
    with open(sys.argv[1], "w") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
