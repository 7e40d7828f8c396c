# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""Samples: calls of operators, one line each in ops.yaml, as tables in C.

    WORDS [in LOW HIGH] [; NOTE]...

core/ops/README.md explains the words and the notes."""

import re

from .emit import HEAD, c_string
from .schema import Problem

LINE = re.compile(r"^(?P<words>.*?)(?: in (?P<low>\S+) (?P<high>\S+))?$")
# A note that takes a reason is followed by ": REASON".
NOTES = {"in place": False, "out": False, "conformance only": False,
         "no conformance": False, "forward only": False, "large": False,
         "dense": False,
         "sized": False, "third order": False, "first order": True,
         "no gradient": True}
VARIANTS = {"in place": "INPLACE", "out": "OUT"}
FLAGS = {"dense": "SAMPLE_DENSE", "sized": "SAMPLE_SIZED",
         "first order": "SAMPLE_FIRST_ORDER",
         "third order": "SAMPLE_THIRD_ORDER",
         "no gradient": "SAMPLE_NO_GRADIENT",
         "forward only": "SAMPLE_FORWARD_ONLY"}
WORD = {
    "tensor": re.compile(r"^[tupqmyhvc]:(\d+(,\d+)*)?$"),
    "index": re.compile(
        r"^x:(\d+(,\d+)*)?/\d+(=\d+(,\d+)*)?$|^x:(\d+(,\d+)*)?$"),
    "value": re.compile(r"^([ifbsldgk]:\S*|n|[%@\[\]])$"),
}


class Sample:
    """A call of an operator, and who makes it."""

    def __init__(self, operator, text):
        self.operator = operator
        call, *notes = text.split("; ")
        self.words, self.low, self.high = LINE.match(call).groups()
        if self.low is None:
            self.low, self.high = "-1", "1"
        self.notes = {}
        for note in notes:
            name, _, reason = note.partition(": ")
            if name not in NOTES:
                raise Problem("sample '%s': unknown note '%s'" % (text, note))
            if bool(reason) != NOTES[name]:
                raise Problem("sample '%s': the note '%s' %s" % (
                    text, name, "needs a reason: '%s: REASON'" % name
                    if NOTES[name] else "takes no reason"))
            self.notes[name] = reason
            if name in VARIANTS:
                self.operator = self.variant(text, VARIANTS[name])
        for word in self.words.split(" "):
            if not any(form.match(word) for form in WORD.values()):
                raise Problem("sample '%s': unknown word '%s'" % (text, word))
        self.check_count(text)
        try:
            good = float(self.low) < float(self.high)
        except ValueError:
            good = False
        if not good:
            raise Problem("sample '%s': the interval must be two numbers, the "
                          "smaller one first" % text)

    def check_count(self, text):
        """The arguments without a default are given, and no more than all."""
        schema = self.operator.schema
        count = depth = 0
        for word in self.words.split(" "):
            count += depth == 0
            depth += (word == "[") - (word == "]")
        required = [i + 1 for i, a in enumerate(schema.arguments)
                    if a.default is None]
        if count < max(required, default=0):
            raise Problem("sample '%s': the argument '%s' is missing" % (
                text, schema.arguments[count].name))
        if count > len(schema.arguments):
            raise Problem("sample '%s': %d arguments, %s takes %d" % (
                text, count, self.operator.name, len(schema.arguments)))

    def variant(self, text, kind):
        for other in self.operator.model.operators:
            if other.base is self.operator and other.variant == kind and \
                    other is not self.operator:
                return other
        raise Problem("sample '%s': no such variant" % text)

    @property
    def in_tests(self):
        return not {"conformance only", "large"} & set(self.notes)

    @property
    def in_conformance(self):
        return not {"no conformance", "forward only",
                    "large"} & set(self.notes)

    @property
    def is_large(self):
        """core-conformance makes the call once in each dtype."""
        return "large" in self.notes

    @property
    def has_other_arguments(self):
        """core-conformance makes the call once, without variations."""
        return "forward only" in self.notes and not (
            {"no conformance", "in place", "out"} & set(self.notes))

    def row(self, columns=()):
        return "    {%s},\n" % ", ".join(
            [c_string(self.operator.name), c_string(self.words), self.low,
             self.high] + list(columns))


def samples(model):
    """All samples, sorted by operator."""
    found = []
    for operator in model.functional:
        entries = operator.entry.get("samples") or []
        if isinstance(entries, str):
            entries = [entries]
        for text in entries:
            found.append(model.guard(operator.name,
                                     lambda: Sample(operator, text)))
    calls = [sample.row() for sample in found]
    if len(set(calls)) < len(calls):
        twice = next(call for call in calls if calls.count(call) > 1)
        raise Problem("sample given twice: " + twice.strip(" ,\n"))
    return sorted(found, key=lambda sample: sample.operator.name)


def tests(model):
    """The table that tests/support/ops.h includes."""
    rows = []
    for sample in samples(model):
        if not sample.in_tests:
            continue
        flags = [FLAGS[note] for note in sample.notes if note in FLAGS]
        reason = "".join(sample.notes.values())
        rows.append(sample.row([" | ".join(flags) or "0",
                                c_string(reason) if reason else "NULL"]))
    return HEAD + "static const sample samples[] = {\n%s};\n" % "".join(rows)


def conformance(model):
    """The table of core-conformance."""
    rows = [s.row() for s in samples(model) if s.in_conformance]
    others = [s.row() for s in samples(model) if s.has_other_arguments]
    large = [s.row() for s in samples(model) if s.is_large]
    kernels = ["    {%s, %s},\n" % (c_string(o.name), c_string(o.base.kernel.name))
               for o in sorted(model.operators, key=lambda o: o.name)
               if o.base.kernel is not o]
    structured = ("elementwise", "reduction", "kernel")
    used = {o.base.kernel.name for o in model.operators if o.family in structured}
    composed = ["    %s,\n" % c_string(o.name)
                for o in sorted(model.operators, key=lambda o: o.name)
                if o.family not in structured and o.name not in used]
    return (HEAD + '#include "conformance/samples.h"\n\n'
            "const sample sample_table[] = {\n%s};\n\n"
            "const size_t sample_count =\n"
            "    sizeof sample_table / sizeof *sample_table;\n\n"
            "const sample argument_sample_table[] = {\n%s};\n\n"
            "const size_t argument_sample_count =\n"
            "    sizeof argument_sample_table / sizeof *argument_sample_table;\n"
            "\n"
            "const sample large_sample_table[] = {\n%s};\n\n"
            "const size_t large_sample_count =\n"
            "    sizeof large_sample_table / sizeof *large_sample_table;\n\n"
            "const kernel_name kernel_name_table[] = {\n%s};\n\n"
            "const size_t kernel_name_count =\n"
            "    sizeof kernel_name_table / sizeof *kernel_name_table;\n\n"
            "const char *const composed_table[] = {\n%s};\n\n"
            "const size_t composed_count =\n"
            "    sizeof composed_table / sizeof *composed_table;\n" %
            tuple("".join(of) for of in (rows, others, large, kernels,
                                         composed)))
