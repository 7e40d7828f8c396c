#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""float8-table: the values of the codes of f8e4m3 and f8e5m2, and the codes
that doubles round to, computed from the definition in exact fractions.

    float8-table > tests/support/float8_table.h

Standard: OCP 8-bit Floating Point Specification 1.0 (2023).  Independent of how
libcore converts.
"""

from fractions import Fraction
import struct

FORMATS = (("e4m3", 4, 3, 7), ("e5m2", 5, 2, 15))


def value(code, exponents, mantissas, bias):
    """Returns a Fraction, "inf" or "nan"."""
    exponent = code >> mantissas & ((1 << exponents) - 1)
    mantissa = code & ((1 << mantissas) - 1)
    if mantissas == 3 and code & 0x7f == 0x7f:
        return "nan"
    if mantissas == 2 and exponent == 31:
        return "nan" if mantissa else "inf"
    if exponent == 0:
        found = Fraction(mantissa, 1 << mantissas) * Fraction(2) ** (1 - bias)
    else:
        found = (1 + Fraction(mantissa, 1 << mantissas)) * \
            Fraction(2) ** (exponent - bias)
    return -found if code & 0x80 else found


def bits(number):
    """Returns the bits of the double that equals this fraction."""
    double = float(number)
    assert Fraction(double) == number
    return struct.unpack("<Q", struct.pack("<d", double))[0]


def rounded(number, values):
    """Returns the nearest of the codes 0 … most + 1, where most + 1 means
    overflow; ties go to the even code."""
    best = min(range(len(values)),
               key=lambda code: (abs(values[code] - number), code & 1))
    return best


def neighbours(number):
    at = bits(number)
    return [Fraction(struct.unpack("<d", struct.pack("<Q", at + d))[0])
            for d in (-1, 0, 1)]


def cases(finite):
    """Returns doubles worth testing: codes, ties, and their neighbours."""
    step = finite[-1] - finite[-2]
    beyond = finite + [finite[-1] + step]
    found = {Fraction(0), Fraction(1, 1 << 1074), finite[-1] + 2 * step,
             Fraction(2) ** 127, Fraction(2) ** 1023}
    for low, high in zip(beyond, beyond[1:]):
        found.update(neighbours((low + high) / 2))
        found.update(neighbours(high))
    return sorted(found)


def rows(items, each, form):
    for at in range(0, len(items), each):
        print("    " + " ".join(form % item for item in items[at:at + each]))


def table(name, exponents, mantissas, bias):
    codes = [value(code, exponents, mantissas, bias) for code in range(256)]
    words = []
    for code, number in enumerate(codes):
        if number == "inf":
            word = 0x7ff << 52 | (code & 0x80) << 56
        elif number == "nan":
            word = 0x7ff8 << 48
        elif number == 0:
            word = (code & 0x80) << 56
        else:
            word = bits(number)
        words.append(word)
    print("/* Bits of the doubles that the codes are. */")
    print("static const uint64_t %s_values[256] = {" % name)
    rows(words, 4, "0x%016x,")
    print("};\n")
    finite = [c for c in codes[:128] if isinstance(c, Fraction)]
    beyond = finite + [finite[-1] + (finite[-1] - finite[-2])]
    found = [(bits(c), rounded(c, beyond)) for c in cases(finite)]
    print("/* Doubles and the codes they round to; the code above the largest "
          "number\n * stands for what is too large. */")
    print("static const struct {\n    uint64_t bits;\n    uint8_t code;\n} "
          "%s_rounded[%d] = {" % (name, len(found)))
    rows(found, 5, "{0x%016x, 0x%02x},")
    print("};\n")


print("/* SPDX-License-Identifier: Apache-2.0\n"
      " * Copyright The libcore authors */\n")
print("/* Made by tests/float8-table.py. */\n")
print("/* clang-format off */\n")
print("#ifndef TESTS_UNIT_FLOAT8_TABLE_H\n#define TESTS_UNIT_FLOAT8_TABLE_H\n")
print("#include <stdint.h>\n")
for form in FORMATS:
    table(*form)
print("#endif")
