# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""The text of the generated files."""

import json
import re

from .model import AUTOCAST, FAMILIES, NOWHERE
from .schema import c_parameters

HEAD = """/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Generated from ops.yaml by gen_ops.py. */

"""


def c_string(text):
    return '"%s"' % text.replace("\\", "\\\\").replace('"', '\\"')


def constant(operator):
    name = operator.name.upper().replace(".", "_").replace(":", "_")
    return "CORE_OP_" + name.lstrip("_")


def constants(model):
    """Enum names, made unique where operators differ only in case or
    underscores."""
    names, taken = {}, set()
    for operator in model.operators:
        name = constant(operator)
        while name in taken:
            name += "_"
        taken.add(name)
        names[operator.name] = name
    return names


def ids(model, names):
    lines = [HEAD + "/* Ids of the built-in operators.  They are frozen. */\n",
             "#ifndef LIBCORE_OPS_IDS_H", "#define LIBCORE_OPS_IDS_H", "",
             "enum {"]
    for operator in model.operators:
        lines.append("    %s = %d," % (names[operator.name], operator.id))
    lines += ["    CORE_OP_COUNT = %d" % len(model.operators), "};", "",
              "#endif", ""]
    return "\n".join(lines)


# ------------------------------------------------------------------- table
def fnv(text):
    value = 2166136261
    for byte in text.encode():
        value = ((value ^ byte) * 16777619) & 0xffffffff
    return value


def all_names(model):
    """The names of operators by id, followed by former names."""
    return [o.name for o in model.operators] + [n for n, _ in model.former]


def name_text(model):
    found = all_names(model)
    lines = ["/* Names, contiguous, since a plugin looks up hundreds. */",
             "static const struct {"]
    lines += ["    char n%d[%d];" % (i, len(name) + 1)
              for i, name in enumerate(found)]
    lines += ["} names = {"]
    lines += ["    %s," % c_string(name) for name in found]
    return lines + ["};", ""]


def numbers(declaration, values):
    lines = ["static const %s[%d] = {" % (declaration, len(values))]
    for i in range(0, len(values), 12):
        lines.append("    " + ", ".join(map(str, values[i:i + 12])) + ",")
    return lines + ["};", ""]


def name_hash(model):
    size = 1
    found = all_names(model)
    while size < 2 * len(found):
        size *= 2
    table, at, places = [0] * size, 0, []
    for i, name in enumerate(found):
        slot = fnv(name) & (size - 1)
        while table[slot]:
            slot = (slot + 1) & (size - 1)
        table[slot] = i + 1
        places.append(at)
        at += len(name) + 1
    count = len(model.operators)
    lines = ["/* Ids of operators that were renamed. */"]
    lines += numbers("uint16_t former", [n for _, n in model.former] or [0])
    lines += ["/* The offset of each name in `names`. */"]
    lines += numbers("uint16_t places", places)
    lines += ["/* FNV-1a hash table, open addressing; 0: free, else number + 1. */"]
    lines += numbers("uint16_t slots", table)
    lines += ["""\
core_operator *core__operator_builtin(const char *name, size_t size)
{
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (uint8_t)name[i]) * 16777619u;
    for (uint32_t slot = hash & %du; slots[slot]; slot = (slot + 1) & %du) {
        uint32_t id = slots[slot] - 1;
        const char *known = (const char *)&names + places[id];

        if (strncmp(known, name, size) == 0 && known[size] == 0)
            return &core__operators[id < %d ? id : former[id - %d]];
    }
    return NULL;
}
""" % (size - 1, size - 1, count, count)]
    return "\n".join(lines)


def data_row(operator):
    o, base = operator, operator.base
    operands = o.operands()
    row = [".schema = " + c_string(o.schema.text()),
           ".name = names.n%d" % o.id,
           ".base = %d" % base.id, ".kernel = %d" % base.kernel.id,
           ".family = CORE__FAMILY_" + FAMILIES[o.family],
           ".variant = CORE__VARIANT_" + o.variant]
    if o.loop:
        row += [".promotion = %d" % o.promotion(),
                ".operands = %d" % len(operands),
                ".operand = {%s}" % ", ".join(map(str, operands or [0]))]
        if o.keep_dtype():
            row.append(".keep_dtype = %d" % o.keep_dtype())
        if "integral_alpha" in base.entry:
            row.append(".integral_alpha = %d" % o.column("integral_alpha"))
    if o.base.writes():
        row.append(".writes = 0x%xu" % o.base.writes())
    for key in ("dim", "keepdim", "dtype"):
        row.append(".%s = %d" % (key, o.column(key)))
    if o.infer():
        row.append(".infer = " + o.infer())
    if o.function():
        row.append(".function = " + o.function())
    if o.implicit and o.function():
        row.append(".implicit = true")
    autocast = AUTOCAST[base.entry.get("autocast", "none")]
    if autocast:
        row.append(".autocast = %d" % autocast)
    if base.formulas:
        row.append(".gradient = &core__gradient_%d" % base.id)
    if o.no_gradient:
        row.append(".no_gradient = true")
    return row


def operator_row(operator):
    o = operator
    tensors = required = lists = numbers = absent = 0
    place = NOWHERE
    for i, argument in enumerate(o.schema.arguments):
        if argument.tensor:
            tensors |= 1 << i
            if not argument.optional:
                required |= 1 << i
        if argument.tensors:
            lists |= 1 << i
        if argument.base == "Device":
            place = i
        if argument.base == "Scalar" and not argument.list:
            numbers |= 1 << i
            if argument.optional:
                absent |= 1 << i
    return [".table = UNRESOLVED", ".mask = " + o.mask(),
            ".tensors = 0x%xu" % tensors, ".required = 0x%xu" % required,
            ".lists = 0x%xu" % lists, ".numbers = 0x%xu" % numbers,
            ".absent_numbers = 0x%xu" % absent, ".id = %d" % o.id,
            ".flags = 0x%x" % o.flags,
            ".place = %d" % place,
            ".nargs = %d" % len(o.schema.arguments),
            ".nresults = %d" % len(o.schema.results),
            ".variant = CORE__VARIANT_" + o.variant,
            ".family = CORE__FAMILY_" + FAMILIES[o.family],
            ".data = &rows[%d]" % o.id]


def rows(items):
    lines = []
    for row in items:
        text = "    {" + ", ".join(row) + "},"
        lines.append(text)
    return lines


def table(model):
    functions = sorted({o.function() for o in model.operators if o.function()})
    infers = sorted({o.infer() for o in model.operators if o.infer()})
    lines = [HEAD + "#include \"autograd/graph/gradient.h\"\n"
             "#include \"dispatch/operator.h\"\n"
             "#include \"ops/infer.h\"\n\n#include <string.h>\n"]
    for function in functions:
        lines.append("core_status %s(core_call *call, const core_value *args,\n"
                     "    uint32_t nargs, core_value *results, "
                     "uint32_t nresults);" % function)
    for infer in infers:
        lines.append("core_status %s(core__inference *inference);" % infer)
    for operator in model.operators:
        if operator.formulas:
            lines.append("extern const core__gradient core__gradient_%d;" %
                         operator.id)
    lines += [""] + name_text(model)
    lines += ["static const core__operator_data rows[%d] = {" %
              len(model.operators)]
    lines += rows(model.guard(o.name, lambda: data_row(o))
                  for o in model.operators)
    lines += ["};", "",
              "/* Of an operator that was not called yet. */",
              "extern const core__entry *_Atomic "
              "core__table_unresolved[CORE__TABLE_SIZE];",
              "#define UNRESOLVED core__table_unresolved", "",
              "core_operator core__operators[%d] = {" % len(model.operators)]
    lines += rows(operator_row(o) for o in model.operators)
    lines += ["};", "", "const uint32_t core__operator_count = %d;" %
              len(model.operators), "",
              name_hash(model), "",
              "/* Minors of the ABI, 0.N, with which operators came. */",
              "const uint8_t core__operator_since[] = {"]
    since = [str(o.base.entry.get("since", "0.1")).split(".")[1]
             for o in model.operators]
    for at in range(0, len(since), 24):
        lines.append("    " + ", ".join(since[at:at + 24]) + ",")
    lines.append("};")
    return "\n".join(lines)


# --------------------------------------------------------------- gradients
def gradient(operator):
    f, o = operator.formulas, operator
    lines = ["/* %s */" % o.schema.text()]
    saved = sorted(f.saved.items(), key=lambda item: item[1][0])
    if saved:
        lines.append("static const core__saving saved_%d[] = {" % o.id)
        for (kind, position), (_, mask) in saved:
            argument = (None if kind == "RESULT" else
                        o.schema.arguments[position])
            is_array = argument and (argument.list or argument.base == "str")
            lines.append("    {CORE__SAVE_%s, %d, %d, 0x%x}," % (
                kind, position, bool(is_array), mask))
        lines.append("};")
    lines += ["", "static core_status backward_%d(core__formula_context *context)" %
              o.id, "{"]
    if f.temporaries:
        lines += ["    core_tensor **t = context->temporaries + context->ntemporaries;", "",
                  "    memset(t, 0, %d * sizeof *t);" % f.temporaries,
                  "    context->ntemporaries += %d;" % f.temporaries]
    lines += f.lines + ["    return CORE_OK;", "}", ""]
    results = 0
    for i in o.differentiable_results():
        results |= 1 << i
    lines += ["const core__gradient core__gradient_%d = {" % o.id,
              "    .name = %s," % c_string(o.name + " backward"),
              "    .ngradients = %d," % len(o.gradients),
              "    .nsaved = %d," % len(saved),
              "    .arguments = {%s}," % ", ".join(map(str, o.gradients)),
              "    .results = 0x%x," % results]
    if saved:
        lines.append("    .saved = saved_%d," % o.id)
    lines += ["    .backward = backward_%d," % o.id, "};", ""]
    return "\n".join(lines)


def gradients(model):
    lines = [HEAD + "#include \"autograd/formulas/formulas.h\"\n\n#include <math.h>\n"
             "#include <string.h>\n"]
    for operator in model.operators:
        if operator.formulas:
            lines.append("extern const core__gradient core__gradient_%d;" %
                         operator.id)
    lines.append("")
    for operator in model.operators:
        if operator.formulas:
            lines.append(gradient(operator))
    return "\n".join(lines)


# ------------------------------------------------------------- typed calls
def wrap(text, indent, width=79):
    """Breaks a declaration at commas."""
    words = text.split(", ")
    lines, current = [], words[0]
    for word in words[1:]:
        if len(current) + 2 + len(word) > width:
            lines.append(current + ",")
            current = indent + word
        else:
            current += ", " + word
    return "\n".join(lines + [current])


def comment(text):
    lines, current = [], "/*"
    for word in text.split(" "):
        if len(current) + 1 + len(word) > 76:
            lines.append(current)
            current = " *"
        current += " " + word
    return "\n".join(lines + [current + " */"])


def refuse(condition, operator, text):
    """A check of a typed call.  It has braces since otherwise GCC compares its
    indentation, which takes half a second in a file of this length."""
    return ("    if (%s) {\n"
            "        return core_error_set(CORE_ERROR_INVALID_ARGUMENT,\n"
            "            \"%s: the argument %s\");\n"
            "    }" % (condition, operator.c, text))


def address_checks(operator):
    """The checks of a typed call: strings and lists that are NULL, and lists
    that are too long for a value."""
    checks = []
    for argument in operator.schema.arguments:
        parameters, packing = c_parameters(argument)
        if not parameters:
            continue
        name = re.search(r"(\w+)$", parameters[0]).group(1)
        if argument.kind == "str":
            checks.append(refuse("!" + name, operator, name + " is NULL"))
        if len(parameters) < 2:
            continue
        if "optional" not in packing:
            checks.append(refuse("!%s && %s_count > 0" % (name, name),
                                 operator, name + " is NULL"))
        checks.append(refuse("%s_count > CORE_PACK_MOST" % name, operator,
                             name + " is longer than a list can be"))
    return checks


def out_checks(operator, outs):
    """The checks of a typed call for output pointers that are NULL.  They cost
    nothing if the caller passes the address of a variable."""
    checks = []
    if len(outs) > 1:
        checks += ["    if (%s) {\n        *%s = %s;\n    }" % (name, name, empty)
                   for name, empty in outs if empty]
    return checks + [refuse("!" + name, operator, name + " is NULL")
                     for name, _ in outs]


# Results that are numbers: C type, value before the call, value after it.
NUMBERS = {"Scalar": ("core_scalar", None, "%s"),
           "bool": ("bool", "false", "%s.u.i != 0"),
           "int": ("int64_t", "0", "%s.u.i")}


class Call:
    """A typed call: its C declaration and its body."""

    def __init__(self, operator, names):
        self.operator = operator
        self.id = names[operator.name]
        self.parameters, self.packed = [], []
        for argument in operator.schema.arguments:
            parameters, packing = c_parameters(argument)
            self.parameters += parameters
            self.packed.append(packing)
        results = operator.schema.results
        self.results = results if operator.variant == "FUNCTIONAL" else []
        self.outs = [self.out_name(i) for i in range(len(self.results))]
        for name, result in zip(self.outs, self.results):
            if result.list:
                self.parameters += ["core_tensor ***" + name,
                                    "size_t *%s_count" % name]
            elif result.base in NUMBERS:
                self.parameters.append(
                    "%s *%s" % (NUMBERS[result.base][0], name))
            else:
                self.parameters.append("core_tensor **" + name)

    def out_name(self, i):
        if len(self.results) == 1:
            return "out"
        name = self.results[i].name
        return "out_" + name if name else "out%d" % i

    def head(self):
        return wrap("CORE_OPS_CALL core_status %s(%s)" % (
            self.operator.c, ", ".join(self.parameters) or "void"), "    ")

    def prototype(self):
        return "%s\n%s;\n" % (comment(self.operator.schema.text()),
                              self.head())

    def initial_values(self):
        """The names of the outputs, and what each is before the call."""
        values = []
        for name, result in zip(self.outs, self.results):
            number = not result.list and NUMBERS.get(result.base)
            values.append((name, number[1] if number else "NULL"))
            if result.list:
                values.append((name + "_count", "0"))
        return values

    def definition(self):
        checks = address_checks(self.operator)
        arguments = "NULL"
        lines = [self.head(), "{"]
        if self.packed:
            arguments = "args_"
            lines.append("    core_value args_[%d];" % len(self.packed))
        single = (len(self.outs) == 1 and not checks and
                  not self.results[0].list and
                  self.results[0].base not in NUMBERS)
        if self.outs and not single:
            lines += ["    core_value results_[%d];" % len(self.outs),
                      "    core_status status_;"]
        lines.append("")
        if self.outs and not single:
            lines += self.preparation(checks)
        else:
            lines += checks
        for i, packing in enumerate(self.packed):
            lines.append("    args_[%d] = %s;" % (i, packing))
        if single:
            lines.append("    " + wrap(
                "return core_pack_call(%s, %s, %s, %d, out);" % (
                    self.id, c_string(self.operator.c +
                                      ": the argument out is NULL"),
                    arguments, len(self.packed)), "        ", 75))
        else:
            lines += self.invocation(arguments)
        return "\n".join(lines + ["}", ""])

    def preparation(self, checks):
        """Refuses outputs that are NULL and sets the others."""
        values = self.initial_values()
        lines = out_checks(self.operator, values)
        if checks:
            lines += ["    *%s = %s;" % value for value in values if value[1]]
        return lines + checks

    def invocation(self, arguments):
        call = "core_op_invoke(%s, %s, %d, %s, %d)" % (
            self.id, arguments, len(self.packed),
            "results_" if self.outs else "NULL", len(self.outs))
        if not self.outs:
            return ["    " + wrap("return %s;" % call, "        ", 75)]
        lines = ["    core_pack_nothing(results_, %d);" % len(self.outs),
                 "    " + wrap("status_ = %s;" % call, "        ", 75)]
        for i, name in enumerate(self.outs):
            if self.results[i].list:
                lines.append("    *%s = core_unpack_tensors(&results_[%d], "
                             "%s_count);" % (name, i, name))
            elif self.results[i].base in NUMBERS:
                lines.append("    *%s = %s;" % (
                    name, NUMBERS[self.results[i].base][2] %
                    ("results_[%d]" % i)))
            else:
                lines.append("    *%s = core_unpack_tensor(&results_[%d]);" % (
                    name, i))
        return lines + ["    return status_;"]


def calls(model, names):
    return [model.guard(operator.name, lambda: Call(operator, names))
            for operator in model.operators]


def header(model, names, preamble):
    """ops.h: declarations."""
    parts = [HEAD + preamble]
    parts += [call.prototype() for call in calls(model, names)]
    parts.append("""#ifdef __cplusplus
}
#endif

#if !defined CORE_OPS_EXTERN || defined CORE_OPS_IMPLEMENTATION
#include "ops_inline.h"
#endif

#endif
""")
    return "\n".join(parts)


def definitions(model, names):
    """ops_inline.h: what ops.h declares."""
    parts = [HEAD + """/* ops_inline.h: the functions that ops.h declares.  Include ops.h. */

#ifndef LIBCORE_OPS_INLINE_H
#define LIBCORE_OPS_INLINE_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif
"""]
    parts += [call.definition() for call in calls(model, names)]
    parts.append("#ifdef __cplusplus\n}\n#endif\n\n#endif\n")
    return "\n".join(parts)


def listing(model):
    items = []
    for o in model.operators:
        items.append({
            "id": o.id, "name": o.name, "schema": o.schema.text(),
            "since": str(o.base.entry.get("since", "0.1")), "c": o.c,
            "family": o.family, "variant": o.variant.lower(),
            "base": o.base.name,
            "kernel": o.base.kernel.name
            if o.family in ("elementwise", "reduction", "kernel") else None,
            "autocast": o.autocast(),
            "differentiable": bool(o.base.formulas) or o.base.implicit,
            "dynamic_output": bool(o.flags & 1)})
    text = ",\n".join("  " + json.dumps(item) for item in items)
    return '{"version": 1, "operators": [\n%s\n]}\n' % text
