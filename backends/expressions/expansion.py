# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""What the generators of all backends share: types, and words in text."""

from .table import INFINITY

HEADER = """/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Written by %s; do not edit. */
"""

C_TYPE = {
    "f64": "double", "f32": "float", "i64": "int64_t", "i32": "int32_t",
    "i16": "int16_t", "i8": "int8_t", "u8": "uint8_t", "bool": "uint8_t",
    "w8": "uint8_t", "w16": "uint16_t", "w32": "uint32_t", "w64": "uint64_t",
    "bf16": "uint16_t",
}
CODE = {
    "f64": "CORE_F64", "f32": "CORE_F32", "i64": "CORE_I64",
    "i32": "CORE_I32", "i16": "CORE_I16", "i8": "CORE_I8", "u8": "CORE_U8",
    "bool": "CORE_BOOL", "bf16": "CORE_BF16",
    "w8": "0", "w16": "0", "w32": "0", "w64": "0",
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


def variants(forms):
    """An expression, or several, as a list."""
    return [forms] if isinstance(forms, str) else forms


def operand_types(operator, type_name):
    if operator.types is not None:
        return [type_name if t == "W" else t for t in operator.types]
    return ([operator.output or type_name] * operator.outputs +
            [type_name] * operator.inputs)


def used(word, text):
    parts = "".join(c if c.isalnum() or c == "_" else " " for c in text)
    return word in parts.split()


def used_setup(operator, expression):
    """Whether the expression uses a name that the setup declares."""
    names = []
    for statement in operator.setup.split(";"):
        for part in statement.split(","):
            if "=" in part:
                names.append(part.split("=")[0].split()[-1])
    return any(used(name, expression) for name in names)


def number(value):
    if value in (INFINITY, -INFINITY):
        return "-HUGE_VAL" if value < 0 else "HUGE_VAL"
    return repr(float(value))
