# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""The checked content of ops.yaml, with the generated variants."""

import os

import yaml

from .formula import Formulas, Helper
from .schema import Problem, Schema

FAMILIES = {"elementwise": "ELEMENTWISE", "reduction": "REDUCTION",
            "kernel": "KERNEL", "view": "VIEW", "composite": "FUNCTION",
            "composite_explicit": "FUNCTION", "function": "FUNCTION"}
PROMOTIONS = {"none": 0, "common": 1, "float": 2, "bool": 3, "own": 4}
REDUCE_DTYPES = {"same": 0, "sum": 1, "float": 2, "bool": 3, "index": 4}
FLAGS = {"dynamic_output": 0, "factory": 1, "random": 2, "ordered": 3,
         "host_wait": 4, "multiple_views": 5, "no_identity": 6,
         "identity_view": 7, "eight_bits": 9, "primitive": 10}
AUTOCAST = {"none": 0, "lower": 1, "fp32": 2, "promote": 3}
KEYS = {"op", "since", "c", "family", "operands", "kernel", "promote", "dim",
        "keepdim", "dtype", "infer", "check", "function",
        "out_function", "inplace_function", "flags", "variants",
        "autocast", "backward", "not_differentiable", "differentiable_results",
        "keep_dtype", "integral_alpha", "out", "inplace", "writes", "samples"}
NOWHERE = 255
DROPPED_OVERLOADS = ("Tensor", "int", "self", "vec", "correction", "default")


class Operator:
    def __init__(self, entry, model):
        unknown = set(entry) - KEYS
        if unknown:
            raise Problem("unknown key '%s'" % sorted(unknown)[0])
        self.entry, self.model = entry, model
        self.schema = Schema(entry["op"])
        self.name = self.schema.name
        self.c = None
        self.variant = "INPLACE" if self.schema.inplace else "FUNCTIONAL"
        self.base = self
        self.id = None
        self.formulas = None
        self.gradients = []  # positions of differentiable arguments
        family = entry.get("family")
        if family not in FAMILIES:
            raise Problem("unknown family '%s'" % family)
        self.family = family
        self.loop = family in ("elementwise", "reduction")

    # ------------------------------------------------------------- columns
    @property
    def kernel(self):
        name = self.entry.get("kernel")
        if not name:
            return self.base
        if name not in self.model.by_name:
            raise Problem("kernel '%s' is not an operator" % name)
        return self.model.by_name[name]

    @property
    def given(self):
        """An out variant: the given tensor has dtype and device."""
        return (self.variant == "OUT" and
                self.base.schema.options is not None)

    @property
    def flags(self):
        bits = 0
        for flag in self.base.entry.get("flags", []):
            if flag in ("factory", "random") and self.given:
                continue
            if flag == "primitive" and self.variant != "FUNCTIONAL":
                continue
            if flag not in FLAGS:
                raise Problem("unknown flag '%s'" % flag)
            bits |= 1 << FLAGS[flag]
        return bits

    def operands(self):
        if not self.loop:
            return []
        entry, schema = self.base.entry, self.base.schema
        if "operands" in entry:
            return [schema.position(n) for n in entry["operands"]]
        if self.family == "reduction":
            return [0]
        return [i for i, a in enumerate(schema.arguments) if a.tensor]

    def keep_dtype(self):
        mask, operands = 0, self.operands()
        for name in self.base.entry.get("keep_dtype", []):
            mask |= 1 << operands.index(self.base.schema.position(name))
        return mask

    def writes(self):
        """Mask of arguments that are written but not marked in the schema."""
        mask = 0
        for name in self.entry.get("writes", []):
            position = self.schema.position(name)
            argument = self.schema.arguments[position]
            if not (argument.tensor or argument.tensors):
                raise Problem("writes '%s', which is not a tensor" % name)
            mask |= 1 << position
        return mask

    def promotion(self):
        name = self.base.entry.get("promote")
        table = REDUCE_DTYPES if self.family == "reduction" else PROMOTIONS
        if not self.loop:
            return 0
        if name is None:
            name = "same" if self.family == "reduction" else "none"
        if name not in table:
            raise Problem("unknown promotion '%s'" % name)
        return table[name]

    def column(self, key):
        """Position of the argument with the role `key`."""
        schema = self.base.schema
        if self.given and key == "dtype":
            return schema.options
        name = self.base.entry.get(key)
        if name is None and self.family == "reduction" and \
                any(a.name == key for a in schema.arguments):
            name = key
        return NOWHERE if name is None else schema.position(name)

    def function(self):
        """The C function, or None."""
        if self.given:
            return "core__op_given_variant"
        if self.family in ("view", "composite", "composite_explicit"):
            if self.variant != "FUNCTIONAL" and self.base is not self:
                own = self.base.entry.get(
                    "out_function" if self.variant == "OUT" else
                    "inplace_function")
                if own:
                    return "core__op_" + own
                if self.family == "view":
                    return "core__op_view_variant"
                return "core__op_variant"
            name = self.entry.get("function") or self.entry.get("c") or \
                self.default_c()
            return "core__op_" + name
        if self.entry.get("function"):
            return "core__op_" + self.entry["function"]
        return None

    def infer(self):
        if self.family in ("elementwise", "reduction") and \
                "check" in self.base.entry:
            return "core__infer_" + self.base.entry["check"]
        if self.family != "kernel":
            return None
        name = self.base.entry.get("infer")
        if not name:
            if "dynamic_output" in self.base.entry.get("flags", []):
                return None
            raise Problem("the kernel family needs the key 'infer'")
        return "core__infer_" + name

    @property
    def implicit(self):
        return self.family == "composite"

    @property
    def detaches(self):
        """Whether it changes only the tensor's history in place."""
        return (self.family == "view" and self.variant == "INPLACE" and
                bool(self.entry.get("not_differentiable")))

    def autocast(self):
        """Its rule; in-place and out variants are not cast."""
        if self.variant != "FUNCTIONAL":
            return "none"
        return self.base.entry.get("autocast", "none")

    def mask(self):
        """The dispatch keys that the operator does not fall through, in C."""
        fallthrough = set()
        entry = self.base.entry
        if self.variant == "FUNCTIONAL" and self.family != "view" and \
                not any(a.alias for a in self.schema.arguments):
            fallthrough.add("INPLACE_OR_VIEW")
        if self.autocast() == "none":
            fallthrough.add("AUTOCAST")
        if self.variant == "FUNCTIONAL" and entry.get("not_differentiable"):
            fallthrough.add("AUTOGRAD")
        if self.detaches:
            fallthrough |= {"INPLACE_OR_VIEW", "AUTOGRAD"}
        return " & ".join(["UINT64_MAX"] + ["~CORE__KEY_" + name
                                           for name in sorted(fallthrough)])

    # --------------------------------------------------------------- names
    def default_c(self):
        schema = self.schema
        name = schema.base.lstrip("_")
        overload = schema.overload
        if overload and overload not in DROPPED_OVERLOADS:
            last = "_" if schema.inplace else ""
            name = name.rstrip("_") + "_" + overload.lower() + last
        return name

    # ------------------------------------------------------------ gradient
    def differentiable_results(self):
        listed = self.entry.get("differentiable_results")
        if listed is not None:
            return listed
        return list(range(len(self.schema.results)))

    def grad_names(self):
        results = self.differentiable_results()
        names = {"grad": results[0]}
        for i in results:
            names["grad%d" % i] = i
            names["grad_" + self.schema.result_name(i)] = i
        return names

    def compile_gradient(self):
        backward = self.entry.get("backward")
        if not backward:
            return
        if self.entry.get("not_differentiable"):
            raise Problem("has both backward and not_differentiable")
        self.gradients = sorted(
            {self.schema.position(n.strip())
             for key in backward for n in key.strip("[] ").split(",")})
        if len(self.gradients) > 8:
            raise Problem("more than 8 gradients")
        formulas = Formulas(self, self.model)
        for key, text in backward.items():
            names = [n.strip() for n in key.strip("[] ").split(",")]
            indices = [self.gradients.index(self.schema.position(n))
                       for n in names]
            formulas.entry(names, text, indices)
        self.formulas = formulas

    @property
    def no_gradient(self):
        """Whether results may need a gradient but have no formula."""
        base = self.base
        return not (base.formulas or base.implicit or
                    base.entry.get("not_differentiable"))


class Model:
    def __init__(self, path):
        self.path = path
        with open(path, encoding="utf-8") as file:
            content = yaml.load(file, getattr(yaml, "CSafeLoader",
                                              yaml.SafeLoader))
        self.operators, self.by_name, self.by_base = [], {}, {}
        self.helpers, self.former = {}, []
        for text in content.get("helpers") or []:
            helper = Helper(text)
            self.helpers.setdefault(helper.schema.base, []).append(helper)
        for entry in content["ops"]:
            self.guard(entry.get("op", "?"), lambda: self.add(entry))
        self.functional = list(self.operators)
        self.variants()
        self.name_c()
        for operator in self.functional:
            self.guard(operator.name, operator.compile_gradient)

    @staticmethod
    def guard(name, call):
        try:
            return call()
        except Problem as problem:
            raise Problem("%s: %s" % (name.split("(")[0], problem)) from None

    def insert(self, operator):
        if operator.name in self.by_name:
            raise Problem("defined twice")
        self.operators.append(operator)
        self.by_name[operator.name] = operator

    def add(self, entry):
        operator = Operator(entry, self)
        self.insert(operator)
        self.by_base.setdefault(operator.schema.base, []).append(operator)

    def variants(self):
        taken = {o.schema.base for o in self.operators
                 if not o.schema.overload}
        for operator in self.functional:
            for kind in operator.entry.get("variants") or []:
                self.guard(operator.name,
                           lambda: self.add_variant(operator, kind, taken))

    def add_variant(self, operator, kind, taken):
        if kind not in ("inplace", "out"):
            raise Problem("unknown variant '%s'" % kind)
        variant = Operator(operator.entry, self)
        variant.base = operator
        if kind == "inplace":
            variant.schema = operator.schema.inplace_variant(
                operator.entry.get("inplace"))
            variant.variant = "INPLACE"
        else:
            variant.schema = operator.schema.out_variant(
                taken, operator.entry.get("out"))
            variant.variant = "OUT"
            if operator.schema.options is not None:
                variant.family, variant.loop = "composite_explicit", False
        variant.name = variant.schema.name
        self.insert(variant)

    def name_c(self):
        """core_… names: explicit or derived, and checked to be unique."""
        taken = {}
        for operator in self.functional:
            name = operator.entry.get("c") or operator.default_c()
            operator.c = "core_" + name
        for operator in self.operators:
            if operator.base is not operator:
                suffix = "_" if operator.variant == "INPLACE" else "_out"
                operator.c = operator.base.c + suffix
            if operator.c in taken:
                raise Problem("%s: the C name %s is taken by %s; set `c:`" % (
                    operator.name, operator.c, taken[operator.c]))
            taken[operator.c] = operator.name

    def add_since(self, new, release):
        """Adds `since` to the entries of new operators that lack it."""
        with open(self.path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        wanted = {o.entry["op"] for o in new if o.base is o and
                  "since" not in o.entry}
        found = []
        for line in lines:
            found.append(line)
            if line.startswith("- op: ") and \
                    yaml.safe_load(line)[0]["op"] in wanted:
                found.append("  since: " + release)
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            file.write("\n".join(found))
        os.replace(self.path + ".new", self.path)
        for operator in new:
            operator.entry.setdefault("since", release)

    def check_since(self, releases):
        """Compares `since` with the release that assigned the id, which is
        not known of the oldest."""
        known = set(releases.values())
        for operator in self.functional:
            since = operator.entry.get("since")
            assigned = releases[operator.id]
            if str(since) != assigned if assigned else str(since) in known:
                raise Problem("%s: since is %s, but its id is from %s" % (
                    operator.name, since,
                    "ABI " + assigned if assigned else "an earlier ABI"))

    def assign(self, path, release=None):
        """Reads ids from the lock file.  With a release, the current ABI,
        "0.5", adds missing ids and the release of these operators.  A
        number that occurs again has a new name; the old name still finds
        it, unless another operator has that name now.  A line "# ABI 0.5"
        is followed by the ids of that release."""
        ids, names, releases, reading = {}, {}, {}, None
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for line in file:
                    if line.startswith("# ABI "):
                        reading = line.split()[2]
                    elif line.strip() and not line.startswith("#"):
                        number, name = line.split()
                        if int(number) in names:
                            self.former.append((names[int(number)],
                                                int(number)))
                        names[int(number)] = name
                        releases.setdefault(int(number), reading)
        ids = {name: number for number, name in names.items()}
        self.former = [(name, number) for name, number in self.former
                       if name not in ids]
        missing = [o for o in self.operators if o.name not in ids]
        if missing and not release:
            raise Problem("%s: has no id; run gen_ops.py --assign" %
                          missing[0].name)
        if missing:
            self.add_since(missing, release)
            following = max(ids.values(), default=-1) + 1
            with open(path, "a", encoding="utf-8") as file:
                if release != reading:
                    file.write("# ABI %s\n" % release)
                for operator in missing:
                    ids[operator.name] = following
                    releases[following] = release
                    file.write("%d %s\n" % (following, operator.name))
                    following += 1
        gone = set(ids) - set(self.by_name)
        if gone:
            raise Problem("%s: has an id but is not in ops.yaml" %
                          sorted(gone)[0])
        for operator in self.operators:
            operator.id = ids[operator.name]
        self.check_since(releases)
        self.operators.sort(key=lambda o: o.id)
        if [o.id for o in self.operators] != list(range(len(ids))):
            raise Problem("the ids are not 0 to %d" % (len(ids) - 1))
