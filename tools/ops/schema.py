# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""Operator schemas: parsing, in-place and out variants, C parameters."""

import copy
import re


class Problem(Exception):
    """An error in ops.yaml; the message names the operator."""


ARGUMENT = re.compile(
    r"^(?P<base>Tensor|Scalar|SymInt|int|float|bool|str|ScalarType|Device|"
    r"Layout|MemoryFormat|Generator)"
    r"(?:\((?P<alias>[a-z])(?P<write>!)?(?:\s*->\s*\*)?\))?"
    r"(?P<element>\?)?(?P<list>\[(?P<size>\d*)\])?(?P<optional>\?)?"
    r"(?:\s+(?P<name>\w+))?(?:\s*=\s*(?P<default>.+))?$")


def split(text):
    """Splits at commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    if text[start:].strip():
        parts.append(text[start:].strip())
    return parts


class Argument:
    """An argument or a result: base type, list, optional, alias, default."""

    def __init__(self, text, keyword_only=False):
        m = ARGUMENT.match(text)
        if not m:
            raise Problem("invalid argument '%s'" % text)
        self.base = {"SymInt": "int"}.get(m["base"], m["base"])
        self.list = m["list"] is not None
        self.size = int(m["size"]) if m["size"] else 0
        self.element_optional = bool(m["element"]) and self.list
        self.optional = bool(m["optional"]) or (
            bool(m["element"]) and not self.list)
        self.alias = m["alias"]
        self.write = bool(m["write"])
        self.name = m["name"]
        self.default = m["default"]
        self.keyword_only = keyword_only

    @property
    def kind(self):
        """The type in formulas: 'int', 'int?', 'int[]', 'Tensor[]?'"""
        return (self.base + ("[]" if self.list else "") +
                ("?" if self.optional else ""))

    @property
    def tensor(self):
        return self.base == "Tensor" and not self.list

    @property
    def tensors(self):
        return self.base == "Tensor" and self.list

    @property
    def omitted(self):
        """Not a parameter of the typed C call."""
        return self.base == "Layout" or self.name == "pin_memory"

    def text(self):
        base = self.base
        if self.alias:
            base += "(%s%s)" % (self.alias, "!" if self.write else "")
        if self.element_optional:
            base += "?"
        if self.list:
            base += "[%s]" % (self.size or "")
        if self.optional:
            base += "?"
        if self.name:
            base += " " + self.name
        if self.default is not None:
            base += "=" + self.default
        return base


class Schema:
    def __init__(self, text):
        m = re.match(r"^([\w:]+)(?:\.(\w+))?\((.*)\)\s*->\s*(.+)$", text)
        if not m:
            raise Problem("'%s' is not a schema" % text)
        self.base, self.overload = m[1], m[2] or ""
        self.arguments = []
        keyword_only = False
        for part in split(m[3]):
            if part == "*":
                keyword_only = True
                continue
            self.arguments.append(Argument(part, keyword_only))
        results = m[4].strip()
        if results.startswith("("):
            results = results[1:-1]
        self.results = [Argument(part) for part in split(results)]
        for argument in self.arguments:
            if not argument.name:
                raise Problem("an argument has no name")

    @property
    def name(self):
        return self.base + ("." + self.overload if self.overload else "")

    def text(self):
        parts, keyword_only = [], False
        for argument in self.arguments:
            if argument.keyword_only and not keyword_only:
                keyword_only = True
                parts.append("*")
            parts.append(argument.text())
        results = ", ".join(r.text() for r in self.results)
        if len(self.results) != 1:
            results = "(%s)" % results
        return "%s(%s) -> %s" % (self.name, ", ".join(parts), results)

    def position(self, name):
        for i, argument in enumerate(self.arguments):
            if argument.name == name:
                return i
        raise Problem("there is no argument '%s'" % name)

    def result_name(self, i):
        if self.results[i].name:
            return self.results[i].name
        return "result" if len(self.results) == 1 else "result%d" % i

    @property
    def inplace(self):
        return self.base.endswith("_") and not self.base.startswith("__")

    def inplace_variant(self, given=None):
        """given: the overload, or `default` for none, with the name of the
        first argument in parentheses."""
        variant = copy.deepcopy(self)
        variant.base += "_"
        m = re.match(r"^(\w*)(?:\((\w+)\))?$", given or "")
        if not m:
            raise Problem("invalid 'inplace: %s'" % given)
        if m[2]:
            variant.arguments[0].name = m[2]
        if m[1]:
            variant.overload = "" if m[1] == "default" else m[1]
        elif variant.overload == "int":
            variant.overload = ""
        self_argument = variant.arguments[0]
        if not self_argument.tensor or len(self.results) != 1:
            raise Problem("no in-place variant: the first argument is not "
                          "what results")
        self_argument.alias, self_argument.write = "a", True
        variant.results[0].alias, variant.results[0].write = "a", True
        return variant

    @property
    def options(self):
        """Position of dtype, layout, device and pin_memory, if present."""
        names = [a.name for a in self.arguments]
        for i in range(len(names)):
            if names[i:i + 4] == ["dtype", "layout", "device", "pin_memory"]:
                return i
        return None

    def out_names(self, given):
        """Names of the arguments that the out variant writes."""
        single = len(self.results) == 1
        names = [n.strip() for n in given.split(",")] if given else [
            r.name or ("out" if single else "out%d" % i)
            for i, r in enumerate(self.results)]
        if len(names) != len(self.results):
            raise Problem("%d results, but the out variant names %d" % (
                len(self.results), len(names)))
        return names

    def out_variant(self, taken, out=None):
        """out: the overload, with the names of its results in parentheses."""
        variant = copy.deepcopy(self)
        overload = self.overload
        m = re.match(r"^(\w+)(?:\((.+)\))?$", out or "out")
        if not m:
            raise Problem("invalid 'out: %s'" % out)
        if self.options is not None:
            del variant.arguments[self.options:self.options + 4]
        if out:
            variant.overload = m[1]
        elif overload == "" or (overload == "Tensor" and self.base not in taken):
            variant.overload = "out"
        else:
            variant.overload = overload + "_out"
        # ATen's letters: a to c are those of the functional form, if any.
        letters = "defg" if any(a.alias == "a" for a in self.arguments) \
            else "abcd"
        for i, name in enumerate(self.out_names(m[2])):
            if not self.results[i].tensor:
                raise Problem("no out variant: a result is a list")
            out = Argument("Tensor(%s!) %s" % (letters[i], name), True)
            if any(a.name == name for a in variant.arguments):
                out.name = "out_" + name
            variant.arguments.append(out)
            named = self.results[i].name or ""
            variant.results[i] = Argument(
                ("Tensor(%s!) %s" % (letters[i], named)).strip())
        return variant


# Parameters of typed C calls: (kind) -> (list of C declarations, packing).
# %s is the parameter's name.
C_PARAMETERS = {
    "Tensor": (["core_tensor *%s"], "core_pack_tensor(%s)"),
    "Tensor?": (["core_tensor *%s"], "core_pack_tensor(%s)"),
    "Tensor[]": (["core_tensor *const *%s", "size_t %s_count"],
                 "core_pack_tensors(%s, %s_count)"),
    "Scalar": (["core_scalar %s"], "%s"),
    "Scalar?": (["const core_scalar *%s"], "core_pack_scalar_optional(%s)"),
    "int": (["int64_t %s"], "core_pack_int(%s)"),
    "int?": (["const int64_t *%s"], "core_pack_int_optional(%s)"),
    "int[]": (["const int64_t *%s", "size_t %s_count"],
              "core_pack_ints(%s, %s_count)"),
    "int[]?": (["const int64_t *%s", "size_t %s_count"],
               "core_pack_ints_optional(%s, %s_count)"),
    "float": (["double %s"], "core_pack_float(%s)"),
    "float?": (["const double *%s"], "core_pack_float_optional(%s)"),
    "float[]": (["const double *%s", "size_t %s_count"],
                "core_pack_floats(%s, %s_count)"),
    "float[]?": (["const double *%s", "size_t %s_count"],
                 "core_pack_floats_optional(%s, %s_count)"),
    "bool": (["bool %s"], "core_pack_bool(%s)"),
    "bool?": (["const bool *%s"], "core_pack_bool_optional(%s)"),
    "bool[]": (["const uint8_t *%s", "size_t %s_count"],
               "core_pack_bools(%s, %s_count)"),
    "str": (["const char *%s"], "core_pack_string(%s)"),
    "str?": (["const char *%s"], "core_pack_string(%s)"),
    "ScalarType": (["core_dtype %s"], "core_pack_dtype(%s)"),
    "ScalarType?": (["core_dtype %s"], "core_pack_dtype(%s)"),
    "Device?": (["core_device *%s"], "core_pack_device(%s)"),
    "Device": (["core_device *%s"], "core_pack_device(%s)"),
    "MemoryFormat?": (["int32_t %s"], "core_pack_format(%s)"),
    "Generator?": (["core_generator *%s"], "core_pack_generator(%s)"),
}

C_WORDS = {"default", "int", "float", "bool", "long", "double", "register",
           "auto", "signed", "unsigned", "const", "static", "out", "args"}


def c_identifier(name):
    return name + "_" if name in C_WORDS else name


def c_parameters(argument):
    """(declarations, packing expression) of one argument."""
    if argument.omitted:
        return [], "core_pack_none()"
    if argument.kind not in C_PARAMETERS:
        raise Problem("no C type for '%s'" % argument.text())
    declarations, packing = C_PARAMETERS[argument.kind]
    name = c_identifier(argument.name)
    if argument.name == "out" and argument.write:
        name = "out"
    return ([d % name for d in declarations],
            packing.replace("%s", name))
