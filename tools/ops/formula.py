# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""Compiles the gradient formulas of ops.yaml to C.

A formula is a Python expression of arguments, results, gradients, operators
and helpers.  Every value has a kind ('Tensor', 'Scalar', 'int', 'int[]?', …)
and a C text: lists have two, the pointer and the count."""

import ast

from .schema import Problem, Schema

OPERATORS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div",
             ast.Pow: "pow"}
SYMBOLS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
COMPARISONS = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
               ast.Eq: "eq", ast.NotEq: "ne"}
COMPARISON_SYMBOLS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
                      ast.Eq: "==", ast.NotEq: "!="}
NUMBERS = ("int", "float", "bool", "Scalar")


class Value:
    def __init__(self, kind, text, count=None):
        self.kind, self.text, self.count = kind, text, count


class Helper:
    """A C function core__formula_<name>; a schema like an operator's."""

    def __init__(self, text):
        self.schema = Schema(text)
        self.c = "core__formula_" + self.schema.base
        self.helper = True

    @property
    def name(self):
        return self.schema.name


def convertible(value, argument):
    """The cost of passing value for argument; None: impossible."""
    want, have = argument.kind, value.kind
    if have == want or have == want + "?" and want == "Tensor":
        return 0
    if have == "None":
        return 0 if argument.optional else None
    plain = want.rstrip("?")
    if have == plain or have.rstrip("?") == plain and argument.list:
        return 1
    if have == "Tensor?" and plain == "Tensor":
        return 1
    if have == "ScalarType" and plain == "ScalarType":
        return 0
    if plain == "Scalar" and have in NUMBERS:
        return 2
    if plain == "float" and have in ("int", "Scalar"):
        return 3
    if plain == "int" and have == "Scalar":
        return 5
    if plain == "bool" and have == "int":
        return 6
    if plain == "int[]" and have == "int":
        return 4
    return None


def number(value):
    """A Scalar as a C number; other values unchanged."""
    if value.kind == "Scalar":
        return "core__scalar_double(%s)" % value.text
    return value.text


def scalar(value):
    if value.kind == "Scalar":
        return value.text
    return "core_%s(%s)" % (value.kind, value.text)


def c_arguments(value, argument):
    """The C arguments that pass value for argument."""
    kind = argument.kind
    plain = kind.rstrip("?")
    if argument.omitted:
        return []
    if value.kind == "None":
        if argument.list:
            return ["NULL", "0"]
        return {"ScalarType?": ["CORE_DTYPE_NONE"],
                "MemoryFormat?": ["-1"]}.get(kind, ["NULL"])
    if argument.list:
        if value.kind == "int":
            return ["(const int64_t[]){%s}" % value.text, "1"]
        return [value.text, value.count]
    text = value.text
    if plain == "Scalar" and value.kind != kind:
        text = scalar(value)
        return ["&(core_scalar){%s}" % text] if kind == "Scalar?" and \
            value.kind != "Scalar" else \
            ["&" + text] if kind == "Scalar?" else [text]
    if plain in ("int", "float", "bool") and value.kind != kind:
        c = {"int": "int64_t", "float": "double", "bool": "bool"}[plain]
        if value.kind == "Scalar":
            text = "(%s)%s" % (c, number(value))
        if kind.endswith("?"):
            text = "&(%s){%s}" % (c, text)
    return [text]


def c_default(argument):
    """The value of an argument that a formula omits."""
    text = argument.default
    if text is None:
        if argument.optional:
            return Value("None", "NULL")
        raise Problem("argument '%s' is missing" % argument.name)
    if text == "None":
        return Value("None", "NULL")
    if argument.list:
        items = text.strip("[]")
        items = [i.strip() for i in items.split(",") if i.strip()]
        if not text.startswith("["):
            items = items * max(argument.size, 1)
        c = {"int": "int64_t", "float": "double", "bool": "uint8_t"}
        if not items:
            return Value(argument.kind.rstrip("?"), "NULL", "0")
        return Value(argument.kind.rstrip("?"), "(const %s[]){%s}" % (
            c[argument.base], ", ".join(items)), str(len(items)))
    if text in ("True", "False"):
        return Value("bool", text.lower())
    if argument.base == "str":
        return Value("str", '"%s"' % text.strip("\"'"))
    if argument.base == "ScalarType":
        return Value("ScalarType", "CORE_" + text.upper())
    if any(c in text for c in ".e"):
        return Value("float", text + "0" if text.endswith(".") else text)
    return Value("int", text)


class Formulas:
    """Compiles the backward entry of one operator."""

    def __init__(self, operator, model):
        self.operator, self.model = operator, model
        self.schema = operator.schema
        self.saved = {}        # (kind, position) -> [row, mask]
        self.lines, self.depth = [], 1
        self.temporaries, self.integers = 0, 0
        self.mask = 0          # of the gradients now compiled

    # ---------------------------------------------------------- variables
    def save(self, kind, position):
        row = self.saved.setdefault((kind, position), [len(self.saved), 0])
        row[1] |= self.mask
        return "context->values[%d]" % row[0]

    def variable(self, name):
        grads = self.operator.grad_names()
        if name in grads:
            return Value("Tensor", "context->grads[%d]" % grads[name])
        if name == "output_mask":
            return Value("bool[]", "output_mask", str(self.mask_count))
        for i in range(len(self.schema.results)):
            if name == self.schema.result_name(i) or name == "result%d" % i:
                if not any(a.name == name for a in self.schema.arguments):
                    saved = self.save("RESULT", i)
                    return Value("Tensor", "core__value_tensor(&%s)" % saved)
        position = self.schema.position(name)
        argument = self.schema.arguments[position]
        if argument.tensor or argument.tensors:
            saved = self.save("ARGUMENT", position)
        else:
            saved = self.save("VALUE", position)
        return self.read(argument, saved)

    @staticmethod
    def read(argument, saved):
        kind, base = argument.kind, argument.base
        if argument.tensor:
            return Value(kind, "core__value_tensor(&%s)" % saved)
        if argument.tensors:
            return Value("Tensor[]", saved + ".u.tensors", saved + ".count")
        if argument.list:
            return Value(kind, "core__value_%ss(&%s)" % (base, saved),
                         "core__value_count(&%s)" % saved)
        if base == "ScalarType":
            return Value(kind, "core__value_dtype(&%s)" % saved)
        if kind == "Scalar":
            return Value(kind, saved)
        if kind in ("Scalar?", "int?", "float?", "bool?"):
            return Value(kind, "core__value_%s_optional(&%s)" % (
                base.lower(), saved))
        if base == "str":
            return Value(kind, "core__value_string(&%s)" % saved)
        if base == "float":
            return Value(kind, "core__scalar_double(%s)" % saved)
        if base in ("int", "bool"):
            text = saved + ".u.i"
            return Value(kind, "(%s != 0)" % text if base == "bool" else text)
        raise Problem("a formula cannot use '%s'" % argument.text())

    def attribute(self, node):
        if not isinstance(node.value, ast.Name):
            raise Problem("only arguments have attributes")
        name = node.value.id
        grads = self.operator.grad_names()
        if name in grads:
            raise Problem("attributes of gradients are not supported")
        position = self.schema.position(name)
        argument = self.schema.arguments[position]
        if not argument.tensor and not argument.tensors:
            raise Problem("'%s' is not a tensor" % name)
        if node.attr == "sizes":
            saved = self.save("SIZES", position)
            return Value("int[]", "core__value_ints(&%s)" % saved,
                         "core__value_count(&%s)" % saved)
        if node.attr == "layout" and argument.tensor:
            saved = self.save("LAYOUT", position)
            return Value("int[]", "core__value_ints(&%s)" % saved,
                         "core__value_count(&%s)" % saved)
        if node.attr == "dtype":
            saved = self.save("DTYPE", position)
            return Value("ScalarType", "core__value_dtype(&%s)" % saved)
        if node.attr == "device":
            return Value("Device", self.save("DEVICE", position) +
                         ".u.device")
        if node.attr == "ndim":
            return Value("int", self.save("NDIM", position) + ".u.i")
        raise Problem("unknown attribute '%s'" % node.attr)

    # ----------------------------------------------------------- emission
    def emit(self, text):
        indent = "    " * self.depth
        line = indent + text
        if len(line) <= 80 or "(" not in text:
            self.lines.append(line)
            return
        # wrap at commas
        words = text.split(", ")
        current = indent + words[0]
        for word in words[1:]:
            if len(current) + 2 + len(word) > 79:
                self.lines.append(current + ",")
                current = indent + "    " + word
            else:
                current += ", " + word
        self.lines.append(current)

    def temporary(self):
        if self.temporaries == 16:
            raise Problem("the formula needs more than 16 temporaries")
        self.temporaries += 1
        return "t[%d]" % (self.temporaries - 1)

    # -------------------------------------------------------- expressions
    def compile(self, node, target=None):
        """target: the variable for a tensor result, owned."""
        value = self.expression(node, target)
        if target and value.text != target:
            if value.kind not in ("Tensor", "Tensor?"):
                raise Problem("the formula yields '%s', not a tensor" %
                              value.kind)
            self.emit("%s = core__formula_same(%s);" % (target, value.text))
        return value

    def expression(self, node, target):
        if isinstance(node, ast.Constant):
            value = node.value
            if value is None:
                return Value("None", "NULL")
            if isinstance(value, bool):
                return Value("bool", str(value).lower())
            if isinstance(value, str):
                return Value("str", '"%s"' % value)
            if isinstance(value, int):
                return Value("int", str(value))
            return Value("float", repr(value))
        if isinstance(node, ast.Name):
            return self.variable(node.id)
        if isinstance(node, ast.Attribute):
            return self.attribute(node)
        if isinstance(node, ast.Subscript):
            return self.element(node)
        if isinstance(node, (ast.List, ast.Tuple)):
            return self.list(node)
        if isinstance(node, ast.UnaryOp):
            value = self.expression(node.operand, None)
            if isinstance(node.op, ast.Not):
                return Value("bool", "!" + value.text)
            if value.kind.startswith("Tensor"):
                return self.call("neg", [value], {}, target)
            if value.kind == "int" and isinstance(node.operand, ast.Constant):
                return Value("int", "-" + value.text)
            if value.kind == "int":
                return self.checked("sub", "0", value.text)
            return Value("float", "-%s" % number(value))
        if isinstance(node, ast.BinOp):
            return self.binary(node, target)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self.compare(node, target)
        if isinstance(node, ast.BoolOp):
            values = [self.expression(v, None).text for v in node.values]
            symbol = " && " if isinstance(node.op, ast.And) else " || "
            return Value("bool", "(%s)" % symbol.join(values))
        if isinstance(node, ast.IfExp):
            return self.conditional(node, target)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            arguments = [self.expression(a, None) for a in node.args]
            keywords = {k.arg: self.expression(k.value, None)
                        for k in node.keywords}
            return self.call(node.func.id, arguments, keywords, target)
        raise Problem("unsupported expression '%s'" % ast.unparse(node))

    def element(self, node):
        value = self.expression(node.value, None)
        index = ast.literal_eval(node.slice)
        if not value.kind.startswith("int[]"):
            raise Problem("only lists of integers have elements")
        if index < 0:
            return Value("int", "%s[%s - %d]" % (
                value.text, value.count, -index))
        return Value("int", "%s[%d]" % (value.text, index))

    def list(self, node):
        values = [self.expression(e, None) for e in node.elts]
        if all(v.kind == "int" for v in values):
            if not values:
                return Value("int[]", "NULL", "0")
            return Value("int[]", "(const int64_t[]){%s}" % ", ".join(
                v.text for v in values), str(len(values)))
        if all(v.kind.startswith("Tensor") for v in values):
            return Value("Tensor[]", "(core_tensor *const[]){%s}" % ", ".join(
                v.text for v in values), str(len(values)))
        raise Problem("the elements of a list must have the same kind")

    def binary(self, node, target):
        a = self.expression(node.left, None)
        b = self.expression(node.right, None)
        kind = type(node.op)
        if kind not in OPERATORS:
            raise Problem("unsupported operator in '%s'" % ast.unparse(node))
        if a.kind in NUMBERS and b.kind in NUMBERS:
            if kind not in SYMBOLS:
                return Value("float", "pow(%s, %s)" % (number(a), number(b)))
            if a.kind == "int" and b.kind == "int" and kind is not ast.Div:
                return self.checked(OPERATORS[kind], a.text, b.text)
            left = number(a)
            if kind is ast.Div and a.kind == "int":
                left = "(double)" + left
            return Value("float", "(%s %s %s)" % (
                left, SYMBOLS[kind], number(b)))
        if a.kind in NUMBERS and kind in (ast.Add, ast.Mult):
            a, b = b, a
        if a.kind in NUMBERS and kind is ast.Sub:
            return self.call("rsub", [b, a], {}, target)
        if a.kind in NUMBERS and kind is ast.Div:
            inverse = self.call("reciprocal", [b], {}, None)
            return self.call("mul", [inverse, a], {}, target)
        return self.call(OPERATORS[kind], [a, b], {}, target)

    def checked(self, operation, left, right):
        """Integers, whose sum, difference or product may not fit."""
        result = "n%d" % self.integers
        self.integers += 1
        self.emit("int64_t %s = 0;" % result)
        self.emit("CORE_TRY(core__formula_int_%s(%s, %s, &%s));" % (
            operation, left, right, result))
        return Value("int", result)

    def compare(self, node, target):
        a = self.expression(node.left, None)
        b = self.expression(node.comparators[0], None)
        kind = type(node.ops[0])
        if a.kind.startswith("Tensor") and b.kind != "None":
            return self.call(COMPARISONS[kind], [a, b], {}, target)
        if kind in (ast.Is, ast.IsNot):
            return Value("bool", "%s %s NULL" % (
                a.text, "==" if kind is ast.Is else "!="))
        if "str" in (a.kind, b.kind):
            return Value("bool", "%score__string_equal(%s, %s)" % (
                "" if kind is ast.Eq else "!", a.text, b.text))
        return Value("bool", "%s %s %s" % (
            number(a), COMPARISON_SYMBOLS[kind], number(b)))

    def conditional(self, node, target):
        condition = self.expression(node.test, None)
        slot = target or self.temporary()
        self.emit("if (%s) {" % condition.text)
        for i, branch in enumerate((node.body, node.orelse)):
            if i:
                self.emit("} else {")
            self.depth += 1
            self.compile(branch, slot)
            self.depth -= 1
        self.emit("}")
        return Value("Tensor", slot)

    # -------------------------------------------------------------- calls
    @staticmethod
    def bind(function, arguments, keywords):
        """(cost, values by parameter), or None if they do not fit."""
        parameters = function.schema.arguments
        if len(arguments) > len(parameters):
            return None
        values, cost = [], 0
        names = {p.name for p in parameters}
        if any(k not in names for k in keywords):
            return None
        for i, parameter in enumerate(parameters):
            if i < len(arguments):
                value = arguments[i]
            elif parameter.name in keywords:
                value = keywords[parameter.name]
            else:
                try:
                    value = c_default(parameter)
                except Problem:
                    return None
                values.append(value)
                continue
            fit = convertible(value, parameter)
            if fit is None:
                return None
            cost += fit
            values.append(value)
        return cost, values

    def resolve(self, name, arguments, keywords):
        candidates = self.model.helpers.get(name, []) + \
            self.model.by_base.get(name, [])
        if not candidates:
            raise Problem("there is no operator or helper '%s'" % name)
        best = None
        for function in candidates:
            bound = self.bind(function, arguments, keywords)
            if bound and (best is None or bound[0] < best[0]):
                best = (bound[0], bound[1], function)
        if not best:
            raise Problem("no overload of '%s' accepts (%s)" % (
                name, ", ".join([a.kind for a in arguments] + [
                    "%s=%s" % (k, v.kind) for k, v in keywords.items()])))
        return best[2], best[1]

    def c_call(self, function, values, outputs):
        parameters = []
        for value, argument in zip(values, function.schema.arguments):
            parameters += c_arguments(value, argument)
        self.emit("CORE_TRY(%s(%s));" % (
            function.c, ", ".join(parameters + outputs)))

    def call(self, name, arguments, keywords, target):
        function, values = self.resolve(name, arguments, keywords)
        results = function.schema.results
        if len(results) == 1 and results[0].list:
            raise Problem("'%s' returns a list" % name)
        slots = [target or self.temporary()]
        slots += [self.temporary() for _ in results[1:]]
        self.c_call(function, values, ["&" + s for s in slots])
        return Value("Tensor", slots[0])

    # ------------------------------------------------------------ entries
    @staticmethod
    def parse(text):
        try:
            return ast.parse(str(text).strip(), mode="eval").body
        except SyntaxError:
            raise Problem("invalid formula '%s'" % text)

    def entry(self, names, text, indices):
        """One line of `backward:`; indices: of the gradients it computes."""
        self.mask = 0
        for i in indices:
            self.mask |= 1 << i
        self.mask_count = len(indices)
        node = self.parse(text)
        self.emit("if (context->needed & %s) {" % hex(self.mask))
        self.depth += 1
        position = self.schema.position(names[0])
        is_list = self.schema.arguments[position].tensors
        if len(indices) > 1:
            self.joint(node, indices)
        elif is_list:
            self.into_list(node, indices[0])
        else:
            self.compile(node, "context->gradients[context->first_edge[%d]]" %
                         indices[0])
        self.depth -= 1
        self.emit("}")

    def joint(self, node, indices):
        if not isinstance(node, ast.Call):
            raise Problem("a formula for several gradients must be one call")
        if "output_mask" in ast.dump(node):
            self.emit("const uint8_t output_mask[] = {%s};" % ", ".join(
                "(context->needed >> %d) & 1" % i for i in indices))
        arguments = [self.expression(a, None) for a in node.args]
        keywords = {k.arg: self.expression(k.value, None)
                    for k in node.keywords}
        function, values = self.resolve(node.func.id, arguments, keywords)
        if len(function.schema.results) != len(indices):
            raise Problem("'%s' does not have %d results" % (
                node.func.id, len(indices)))
        self.c_call(function, values, [
            "&context->gradients[context->first_edge[%d]]" % i
            for i in indices])

    def into_list(self, node, index):
        arguments = [self.expression(a, None) for a in node.args]
        function, values = self.resolve(node.func.id, arguments, {})
        if not getattr(function, "helper", False) or \
                not function.schema.results[0].list:
            raise Problem("gradients of a list need a helper that returns one")
        self.c_call(function, values, [
            "context->needed_edges + context->first_edge[%d]" % index,
            "context->edge_count[%d]" % index,
            "context->gradients + context->first_edge[%d]" % index])
