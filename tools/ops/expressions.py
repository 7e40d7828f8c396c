# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""The calls that return their result: expressions.h, and their test."""

import re

from .emit import HEAD, c_string, comment, wrap
from .schema import Problem, c_identifier

# Parameters of calls of expressions.h: kind -> (declaration, packing, whether
# the typed C argument can be wrong, so that core_op_call must check it, and what
# a test makes of a core_value).
PARAMETERS = {
    "Tensor": ("core_tensor *%s", "core_pack_tensor(%s)", False),
    "Tensor?": ("core_tensor *%s", "core_pack_tensor(%s)", False),
    "Tensor[]": ("core_list %s",
                 "core_pack_tensors(%s.items, %s.count)", True),
    "Scalar": ("core_scalar %s", "%s", False),
    "Scalar?": ("core_scalar %s", "%s", False),
    "int": ("int64_t %s", "core_pack_int(%s)", False),
    "int?": ("core_scalar %s", "%s", True),
    "int[]": ("core_sizes %s", "core_pack_ints(%s.items, %s.count)", True),
    "int[]?": ("core_sizes %s",
               "core_pack_ints_optional(%s.items, %s.count)", True),
    "float": ("double %s", "core_pack_float(%s)", False),
    "float?": ("core_scalar %s", "%s", True),
    "float[]": ("core_floats %s",
                "core_pack_floats(%s.items, %s.count)", True),
    "float[]?": ("core_floats %s",
                 "core_pack_floats_optional(%s.items, %s.count)", True),
    "bool": ("bool %s", "core_pack_bool(%s)", False),
    "bool?": ("core_scalar %s", "%s", True),
    "bool[]": ("core_bools %s", "core_pack_bools(%s.items, %s.count)", True),
    "str": ("const char *%s", "core_pack_string(%s)", True),
    "str?": ("const char *%s", "core_pack_string(%s)", True),
    "ScalarType": ("core_dtype %s", "core_pack_dtype(%s)", False),
    "ScalarType?": ("core_dtype %s", "core_pack_dtype(%s)", False),
    "Device?": ("core_device *%s", "core_pack_device(%s)", False),
    "Device": ("core_device *%s", "core_pack_device(%s)", False),
    "MemoryFormat?": ("int32_t %s", "core_pack_format(%s)", False),
    "Generator?": ("core_generator *%s", "core_pack_generator(%s)", False),
}
# Omitted arguments whose default is None.
ABSENT = {"Tensor?": "NULL", "Scalar?": "core_none()", "int?": "core_none()",
          "float?": "core_none()", "bool?": "core_none()",
          "int[]?": "CORE_NO_SIZES", "float[]?": "CORE_NO_FLOATS",
          "str?": "NULL", "ScalarType?": "CORE_DTYPE_NONE", "Device?": "NULL",
          "MemoryFormat?": "-1", "Generator?": "NULL"}
# Results: C type, and what it is made of.
RESULTS = {"Tensor": ("core_tensor *", "core_unpack_tensor(&results_[%d])"),
           "Tensor[]": ("core_list ",
                        "core_x_unpack_list(&results_[%d])"),
           "Scalar": ("core_scalar ", "results_[%d]"),
           "bool": ("bool ", "results_[%d].u.i != 0"),
           "int": ("int64_t ", "results_[%d].u.i")}
PREAMBLE = """\
/* expressions.h: a call for every operator that returns its result.
 *
 * A result belongs to the innermost scope of the thread (scope.h), which also
 * keeps the first error:
 *
 *     y = core_x_add(x, core_x_linear(core_x_gelu(h), weight, bias));
 *
 * The comment above a call is the schema of its operator.  Arguments are
 * borrowed.  Trailing arguments that have a default may be omitted.  A list is
 * written CORE_SIZES(2, 3), CORE_FLOATS(0.5, 1), CORE_LIST(a, b); where the
 * schema says int[2], CORE_SIZES(1) means CORE_SIZES(1, 1).  A number is a number
 * of C, or core_int(2), core_float(0.5), core_bool(true).  Where ATen has an
 * operator for tensors and for numbers, such as mul.Tensor and mul.Scalar, one
 * call accepts both: core_x_mul(x, y), core_x_mul(x, 2).  The number is the second
 * argument.  core_x_repeat_interleave accepts both, too: (repeats) with a tensor,
 * without output_size, or (x, repeats, dim, output_size).
 *
 * To omit an argument before others, pass NULL for a tensor, a text, a device or
 * a generator, core_none() for a number, CORE_NO_SIZES, CORE_NO_FLOATS or
 * CORE_NO_LIST for a list, CORE_DTYPE_NONE for a dtype, and -1 for a memory
 * format.
 *
 * A call returns a tensor, borrowed, or NULL after an error; of an operator with
 * several results, a struct of them; a list, of which core_list_at returns the
 * tensors; or a number, which is 0 after an error.  A call whose name ends in
 * `_` changes its first argument in place, and returns it.
 *
 * A call is a macro, which adds the file and the line to the message of an
 * error, and calls the function whose name ends in `_at`.  Calls that write into
 * tensors of the caller are in ops.h only. */

#ifndef LIBCORE_EXPRESSIONS_H
#define LIBCORE_EXPRESSIONS_H

#include "ops.h"
#include "scope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The number of arguments, from 1 to 16. */
#define CORE_X_COUNT(...)                                                    \\
    CORE_X_COUNT_(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, \\
                  3, 2, 1, 0)
#define CORE_X_COUNT_(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, count, \\
                      ...)                                                   \\
    count
#define CORE_X_JOIN_(a, b) a##b
#define CORE_X_JOIN(a, b) CORE_X_JOIN_(a, b)

/* Calls the macro for this number of arguments. */
#define CORE_X_CALL(name, ...) \\
    CORE_X_JOIN(name, CORE_X_COUNT(__VA_ARGS__))(__VA_ARGS__)

/* Returns the tensors of a list result, or an empty list. */
static inline core_list core_x_unpack_list(const core_value *value)
{
    size_t count;
    core_tensor **items = core_unpack_tensors(value, &count);

    return core_list_from(items, count);
}

/* Returns a list of integers, or NONE, for the default, if it is empty. */
static inline core_value core_x_pack_sizes(core_sizes list)
{
    return list.count ? core_pack_ints(list.items, list.count)
                      : core_pack_none();
}

/* Does the same for a list of a given length, for which one number stands
 * too. */
static inline core_value core_x_pack_pair(core_sizes list)
{
    return list.count == 1 && list.items ? core_pack_int(list.items[0])
                                         : core_x_pack_sizes(list);
}

/* Returns a number as it is. */
static inline core_scalar core_x_same(core_scalar number)
{
    return number;
}

/* Returns a tensor as it is. */
static inline core_tensor *core_x_same_tensor(core_tensor *tensor)
{
    return tensor;
}

/* Whether an argument that is a tensor or a number is a number. */
static inline bool core_x_is_number(const core_value *value)
{
    return value->tag == CORE_VALUE_INT || value->tag == CORE_VALUE_FLOAT ||
           value->tag == CORE_VALUE_BOOL;
}

/* The value of a number: an integer or a bool is converted. */
static inline double core_x_real_of(core_scalar number)
{
    return number.tag == CORE_VALUE_FLOAT ? number.u.f : (double)number.u.i;
}

/* The value of a number; an error of the scope if it is not an integer. */
static inline int64_t core_x_integer_of(const char *where, core_scalar number)
{
    const double limit = 9223372036854775808.0, x = number.u.f;

    if (number.tag != CORE_VALUE_FLOAT)
        return number.u.i;
    if (x >= -limit && x < limit && (double)(int64_t)x == x)
        return (int64_t)x;
    (void)core_scope_check_at(
        where, "an argument",
        core_error_set(CORE_ERROR_INVALID_ARGUMENT,
                       "an argument is not a whole number; it must be an "
                       "integer or a tensor"));
    return 0;
}

/* Convert an argument, which is evaluated once: a number of C, or a core_scalar,
 * to a core_scalar, and to one with a floating-point number or a bool; a tensor or
 * a number to a core_value, of which a number is an integer or not as in C, or
 * has floating point. */
#ifdef __cplusplus
}

static inline core_scalar core_x_number(core_scalar x) { return x; }
static inline core_scalar core_x_number(double x) { return core_float(x); }
static inline core_scalar core_x_number(bool x) { return core_bool(x); }
static inline core_scalar core_x_number(int x) { return core_int(x); }
static inline core_scalar core_x_number(long x) { return core_int(x); }
static inline core_scalar core_x_number(long long x) { return core_int(x); }
static inline core_scalar core_x_number(unsigned x) { return core_int(x); }
static inline core_scalar core_x_number(unsigned long x)
{
    return core_int((int64_t)x);
}
static inline core_scalar core_x_number(unsigned long long x)
{
    return core_int((int64_t)x);
}
static inline core_scalar core_x_real(core_scalar x) { return x; }
static inline core_scalar core_x_real(double x) { return core_float(x); }
static inline core_scalar core_x_truth(core_scalar x) { return x; }
static inline core_scalar core_x_truth(bool x) { return core_bool(x); }
static inline core_value core_x_operand(core_tensor *x)
{
    return core_pack_tensor(x);
}
template <typename number> static inline core_value core_x_operand(number x)
{
    return core_x_number(x);
}
static inline core_value core_x_real_operand(core_tensor *x)
{
    return core_pack_tensor(x);
}
template <typename number>
static inline core_value core_x_real_operand(number x)
{
    return core_x_real(x);
}

#define CORE_X_NUMBER(x) core_x_number(x)
#define CORE_X_REAL(x) core_x_real(x)
#define CORE_X_TRUTH(x) core_x_truth(x)
#define CORE_X_OPERAND(x) core_x_operand(x)
#define CORE_X_REAL_OPERAND(x) core_x_real_operand(x)
#define CORE_X_SELF(x) x
extern "C" {
#else
#define CORE_X_SELF(x)                                             \\
    CORE_X_CONVERT(x, __COUNTER__, core_tensor * : core_x_same_tensor, \\
                   void * : core_x_same_tensor)
#define CORE_X_NUMBER(x) CORE_X_CONVERT(x, __COUNTER__, CORE_X_NUMBERS)
#define CORE_X_REAL(x) \\
    CORE_X_CONVERT(x, __COUNTER__, core_scalar : core_x_same, default : core_float)
#define CORE_X_TRUTH(x) \\
    CORE_X_CONVERT(x, __COUNTER__, core_scalar : core_x_same, default : core_bool)
#define CORE_X_OPERAND(x)           \\
    CORE_X_CONVERT(x, __COUNTER__, CORE_X_TENSORS, CORE_X_NUMBERS)
#define CORE_X_REAL_OPERAND(x)                                        \\
    CORE_X_CONVERT(x, __COUNTER__, CORE_X_TENSORS,                     \\
                   core_scalar : core_x_same, default : core_float)
#define CORE_X_TENSORS \\
    core_tensor * : core_pack_tensor, void * : core_pack_tensor
#define CORE_X_NUMBERS                                                    \\
    core_scalar : core_x_same, float : core_float, double : core_float,   \\
    long double : core_float, bool : core_bool, CORE_X_INTEGERS
/* Not `default`: a type with another value, such as _Float16, is an error. */
#define CORE_X_INTEGERS                                                     \\
    char : core_int, signed char : core_int, unsigned char : core_int,      \\
    short : core_int, unsigned short : core_int, int : core_int,            \\
    unsigned : core_int, long : core_int, unsigned long : core_int,         \\
    long long : core_int, unsigned long long : core_int
#define CORE_X_CONVERT(x, number, ...) \\
    CORE_X_CONVERT_(x, CORE_X_JOIN(core_x_value_, number), __VA_ARGS__)
/* The variable keeps calls in calls short: x is not written twice. */
#define CORE_X_CONVERT_(x, value, ...)     \\
    __extension__({                        \\
        __auto_type value = (x);           \\
        _Generic(value, __VA_ARGS__)(value); \\
    })
#endif

"""


# What a macro makes of an argument, so that numbers may be those of C.
NUMBERS = {"Scalar": "CORE_X_NUMBER(%s)", "Scalar?": "CORE_X_NUMBER(%s)",
           "int?": "CORE_X_NUMBER(%s)", "float?": "CORE_X_REAL(%s)",
           "bool?": "CORE_X_TRUTH(%s)"}
# The same of an argument that is a tensor or a number of this kind, and the
# number that the call for numbers gets.
OPERANDS = {"Scalar": ("CORE_X_OPERAND(%s)", "%s"),
            "float": ("CORE_X_REAL_OPERAND(%s)", "core_x_real_of(%s)"),
            "int": ("CORE_X_OPERAND(%s)", "core_x_integer_of(where_, %s)")}


def default(argument):
    """The C expression of an omitted argument."""
    text = argument.default
    if text == "None":
        return ABSENT[argument.kind]
    if argument.list:
        return {"int": "CORE_NO_SIZES", "Tensor": "CORE_NO_LIST"}[argument.base]
    if argument.base == "bool":
        return text.lower()
    if argument.base == "str":
        return c_string(text.strip("'\""))
    if argument.base == "ScalarType":
        return "CORE_" + text.upper()
    if argument.base == "Scalar":
        return "core_%s(%s)" % (
            "float" if re.search(r"[.e]", text) else "int", text)
    if argument.base in ("int", "float"):
        return text
    raise Problem("no C default for '%s'" % argument.text())


def packing(argument):
    """The core_value of an argument."""
    name = c_identifier(argument.name)
    if argument.kind == "int[]" and argument.default is not None:
        pack = "core_x_pack_sizes(%s)"
    else:
        pack = PARAMETERS[argument.kind][1]
    if argument.base == "int" and argument.list and argument.size > 1:
        pack = "core_x_pack_pair(%s)"
    return pack.replace("%s", name)


class Expression:
    """A call of expressions.h."""

    def __init__(self, operator, names):
        self.operator = operator
        self.id = names[operator.name]
        self.name = operator.c.replace("core_", "core_x_", 1)
        self.arguments = [a for a in operator.schema.arguments
                          if not a.omitted]
        self.results = (operator.schema.results
                        if operator.variant == "FUNCTIONAL" else [])
        self.inplace = operator.variant == "INPLACE"
        kinds = [r.kind for r in self.results]
        self.single = kinds == ["Tensor"]
        self.checked = any(PARAMETERS[a.kind][2] for a in self.arguments)
        self.either = None  # the other call of a pair, see pair()
        self.longer = None  # the call with one more argument in front
        if self.inplace:
            self.type = "core_tensor *"
        elif not kinds:
            self.type = "core_status "
        elif len(kinds) == 1:
            self.type = RESULTS[kinds[0]][0]
        else:
            self.type = self.name + "_result "

    @property
    def required(self):
        """How many arguments must be given."""
        count = len(self.arguments)
        while count and self.arguments[count - 1].default is not None:
            count -= 1
        return count

    def field(self, i):
        name = self.results[i].name
        return c_identifier(name) if name else "result%d" % i

    def struct(self):
        fields = "".join("    %s%s;\n" % (RESULTS[r.kind][0], self.field(i))
                         for i, r in enumerate(self.results))
        return "typedef struct %s_result {\n%s} %s_result;\n" % (
            self.name, fields, self.name)

    def body(self, packed):
        count = len(packed)
        lines = ["    core_value args_[%d];" % count]
        if not self.single and self.results:
            lines.append("    core_value results_[%d];" % len(self.results))
        if len(self.results) > 1:
            lines.append("    %sresult_;" % self.type)
        lines.append("")
        lines += ["    args_[%d] = %s;" % item for item in enumerate(packed)]
        if self.single:
            return lines + ["    " + wrap(
                "return core_scope_call%s(where_, %s, args_, %d);" % (
                    "_checked" if self.checked else "", self.id, count),
                "        ", 75)]
        call = "core_scope_call_results(where_, %s, args_, %d, %s, %d)" % (
            self.id, count, "results_" if self.results else "NULL",
            len(self.results))
        if self.inplace:
            first = c_identifier(self.arguments[0].name)
            return lines + [
                "    if (" + wrap(call + " == CORE_OK)", "        ", 71),
                "        return %s;" % first, "    return NULL;"]
        if not self.results:
            return lines + ["    " + wrap("return %s;" % call, "        ", 75)]
        lines.append("    " + wrap("(void)%s;" % call, "        ", 75))
        values = [RESULTS[r.kind][1] % i for i, r in enumerate(self.results)]
        if len(values) == 1:
            return lines + ["    return %s;" % values[0]]
        lines += ["    result_.%s = %s;" % (self.field(i), value)
                  for i, value in enumerate(values)]
        return lines + ["    return result_;"]

    def function(self):
        packed = [packing(a) if not a.omitted else "core_pack_none()"
                  for a in self.operator.schema.arguments]
        parameters = ["const char *where_"]
        parameters += [PARAMETERS[a.kind][0] % c_identifier(a.name)
                       for a in self.arguments]
        head = wrap("static inline %s%s_at(%s)" % (
            self.type, self.name, ", ".join(parameters)), "    ")
        return "\n".join([head, "{"] + self.body(packed) + ["}", ""])

    # ---------------------------------------------- tensors or numbers
    def differs(self, other):
        """The position where one call has a tensor and the other a number, or
        None: they are equal, or differ otherwise."""
        if len(self.arguments) != len(other.arguments) or \
                self.type != other.type:
            return None
        found = [i for i, (a, b) in
                 enumerate(zip(self.arguments, other.arguments))
                 if (a.kind, a.default) != (b.kind, b.default)]
        kinds = {c.arguments[i].kind for c in (self, other) for i in found}
        if len(found) == 1 and any(kinds == {"Tensor", kind}
                                   for kind in OPERANDS):
            return found[0]
        return None

    def pair(self, calls):
        """Finds the call for numbers, or for tensors, that this one also
        makes."""
        stem = self.name[:-1] if self.name.endswith("_") else self.name
        for suffix in ("_scalar", "_tensor"):
            other = calls.get(stem + suffix + self.name[len(stem):])
            if other and self.differs(other) is not None:
                self.either = other
        longer = calls.get(stem + "_self_tensor")
        number = calls.get(stem + "_self_int")
        if longer and number and longer.differs(number) is not None:
            longer.either = number
            self.longer = longer

    def either_function(self):
        """Makes the call of the pair that the argument needs."""
        at = self.differs(self.either)
        tensor, number = ((self, self.either)
                          if self.arguments[at].kind == "Tensor"
                          else (self.either, self))
        parameters = [PARAMETERS[a.kind][0] % c_identifier(a.name)
                      for a in self.arguments]
        names = [c_identifier(a.name) for a in self.arguments]
        own = names[at]
        parameters[at] = "core_value " + own
        head = wrap("static inline %s%s_either_at(%s)" % (
            self.type, self.name,
            ", ".join(["const char *where_"] + parameters)), "    ")
        calls = []
        for call, value in ((number, OPERANDS[number.arguments[at].kind][1] %
                             own),
                            (tensor, "core_unpack_tensor(&%s)" % own)):
            names[at] = value
            calls.append(wrap("return %s_at(where_, %s);" % (
                call.name, ", ".join(names)), "            ", 70))
        return "%s\n{\n    if (core_x_is_number(&%s))\n        %s\n    %s\n}\n" \
            % (head, own, calls[0], calls[1])

    # ------------------------------------------------------------ macros
    def passed(self):
        """What macros pass to the function, if it is not what they get."""
        names = [c_identifier(a.name) for a in self.arguments]
        values = [NUMBERS.get(a.kind, "%s") % name
                  for a, name in zip(self.arguments, names)]
        if self.either:
            at = self.differs(self.either)
            kind = self.arguments[at].kind
            if kind == "Tensor":
                kind = self.either.arguments[at].kind
            values[at] = OPERANDS[kind][0] % names[at]
            # Else a number there is only a warning of the C compiler.
            if at > 0 and self.arguments[0].kind == "Tensor":
                values[0] = "CORE_X_SELF(%s)" % names[0]
        return (names, values) if names != values else (None, None)

    def macro(self, name, given):
        """A macro with this number of arguments."""
        names, values = self.passed()
        omitted = [default(a) for a in self.arguments[given:]]
        function = self.name + ("_either_at" if self.either else "_at")
        if names is None:
            names, values = ["..."], ["__VA_ARGS__"]
        call = wrap("%s(%s)" % (function, ", ".join(
            ["CORE_HERE"] + values[:given] + omitted)), "        ", 73)
        line = "#define %s(%s)" % (name, ", ".join(names[:given]))
        if len(line) + len(call) < 75 and "\n" not in call:
            return line + " " + call
        return wrap(line, "        ", 73).replace("\n", " \\\n") + \
            " \\\n    " + call.replace("\n", " \\\n")

    def macros(self):
        count = len(self.arguments)
        if self.longer:
            call = self.longer
            return ["#define %s(...) \\\n"
                    "    CORE_X_CALL(%s_with_, __VA_ARGS__)" %
                    (self.name, self.name)] + [
                self.macro("%s_with_%d" % (self.name, given), given)
                for given in range(self.required, call.required)] + [
                call.macro("%s_with_%d" % (self.name, given), given)
                for given in range(call.required, len(call.arguments) + 1)]
        if self.required == count:
            return [self.macro(self.name, count)]
        lines = ["#define %s(...) \\\n    CORE_X_CALL(%s_with_, __VA_ARGS__)" %
                 (self.name, self.name)]
        return lines + [self.macro("%s_with_%d" % (self.name, given), given)
                        for given in range(max(self.required, 1), count + 1)]

    def text(self):
        text = self.operator.schema.text()
        if self.longer:
            text += ".  Of two or more arguments: the call of %s and %s." % (
                self.longer.operator.name, self.longer.either.operator.name)
        parts = [comment(text)]
        parts += self.macros() + [""]
        if len(self.results) > 1:
            parts.append(self.struct() + "\n" + self.function())
        else:
            parts.append(self.function())
        return "\n".join(parts)


def expressions(model, names):
    """Of every operator and in-place variant."""
    return paired(model.guard(o.name, lambda: Expression(o, names))
                  for o in model.operators if o.variant != "OUT")


def paired(calls):
    calls = list(calls)
    by_name = {call.name: call for call in calls}
    for call in calls:
        call.pair(by_name)
    return calls


def header(model, names):
    """expressions.h"""
    calls = expressions(model, names)
    parts = [HEAD + PREAMBLE]
    parts += [call.text() for call in calls]
    parts.append("/* Calls for a tensor or a number. */\n")
    parts += [call.either_function() for call in calls if call.either]
    parts.append("#ifdef __cplusplus\n}\n#endif\n\n#endif\n")
    return "\n".join(parts)


# ----------------------------------------------------------------- test
def given(argument, i):
    """The C expression of a test for argument i of a call."""
    value = "args[%d]" % i
    kind = argument.kind
    if kind in ("Tensor", "Tensor?"):
        return "core_unpack_tensor(&%s)" % value
    if kind == "Tensor[]":
        return ("core_list_from((core_tensor *const *)%s.u.tensors, "
                "%s.count)" % (value, value))
    if argument.list:
        return "%s_of(&%s)" % ({"int": "sizes", "float": "floats",
                                "bool": "bools"}[argument.base], value)
    if kind in ("float", "int", "bool"):
        return "%s_of(&%s)" % (kind, value)
    if argument.base in ("Scalar", "int", "float", "bool"):
        return value
    if argument.base == "str":
        return "text_of(&%s)" % value
    if argument.base == "ScalarType":
        return "dtype_of(&%s)" % value
    if argument.base == "MemoryFormat":
        return "format_of(&%s)" % value
    return "%s.u.%s" % (value, argument.base.lower())


class Check(Expression):
    """A function that makes a call of expressions.h from core_values."""

    def call(self, count):
        places = [i for i, a in enumerate(self.operator.schema.arguments)
                  if not a.omitted][:count]
        values = [given(self.operator.schema.arguments[i], i) for i in places]
        if self.longer and count >= self.longer.required:
            return "%s_at(CORE_HERE, %s)" % (self.name, ", ".join(values))
        return "%s(%s)" % (self.name, ", ".join(values))

    def assignment(self, count):
        call = self.call(count)
        if self.inplace:
            return "results[0] = core_pack_tensor(%s);" % call
        if not self.results:
            return "(void)%s;" % call
        kinds = [r.kind for r in self.results]
        make = {"Tensor": "core_pack_tensor(%s)", "Tensor[]": "list_of(%s)",
                "Scalar": "%s", "bool": "core_pack_bool(%s)",
                "int": "core_pack_int(%s)"}
        if len(kinds) == 1:
            return "results[0] = %s;" % (make[kinds[0]] % call)
        return "\n        ".join(["all = %s;" % call] + [
            "results[%d] = %s;" % (i, make[kind] % ("all." + self.field(i)))
            for i, kind in enumerate(kinds)])

    def counts(self):
        """(number of values, number of arguments that a call has)"""
        found, count = {}, 0
        for i, argument in enumerate(self.operator.schema.arguments):
            count += not argument.omitted
            if count >= max(self.required, 1):
                found.setdefault(count, i + 1)
        return [(n, count) for count, n in sorted(found.items())]

    def text(self):
        lines = ["static void call_%d(const core_value *args, uint32_t nargs, "
                 "core_value *results)" % self.operator.id, "{"]
        if len(self.results) > 1:
            lines.append("    %sall;" % self.type)
        last = self.counts()[-1][1]
        for values, count in self.counts():
            if count < last:
                lines.append("    if (nargs <= %d) {" % values)
                lines.append("        %s\n        return;\n    }" %
                             self.assignment(count))
            else:
                lines.append("    (void)nargs;\n    (void)results;")
                lines.append("    " + self.assignment(count))
        return "\n".join(lines + ["}", ""])


def checks(model, names):
    """The table that tests/unit/scope/test_expressions.c includes."""
    found = paired(model.guard(o.name, lambda: Check(o, names))
                   for o in model.operators if o.variant != "OUT")
    for check in found:
        if check.either:  # the call of both is made instead of the other's
            check.either.name = check.name
    for check in found:
        if check.longer:
            check.longer.name = check.longer.either.name = check.name
    parts = [HEAD] + [check.text() for check in found]
    parts.append("static const expression expressions[] = {")
    parts += ["    {%s, %s, call_%d}," % (
        c_string(check.operator.name), c_string(check.operator.base.name),
        check.operator.id) for check in found]
    return "\n".join(parts + ["};", ""])
