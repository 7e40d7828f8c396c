# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""The rules by which core_vmap computes all samples of an operator at once:
the key `vmap`, or what the family implies."""

from .emit import HEAD
from .schema import Problem

# core/transform/batch.h
RULES = ("loop", "refuse", "decompose", "elementwise", "reduction", "dims",
         "leading", "pointwise", "merge", "same", "factory", "new", "like",
         "copy", "view", "expand", "permute", "t", "squeeze", "as_strided",
         "cat", "roll", "median", "mm", "bmm", "mv", "dot", "addmm", "addbmm",
         "baddbmm", "addmv", "addr", "index", "index_put", "index_select",
         "index_add", "index_write", "take", "search", "embedding",
         "embedding_backward", "convolution", "convolution_backward",
         "layer_norm", "layer_norm_backward", "group_norm",
         "group_norm_backward", "batch_norm", "batch_norm_backward", "nll_loss",
         "nll_loss_backward", "attention", "attention_backward")
FAMILIES = {"elementwise": "elementwise", "reduction": "reduction",
            "composite": "decompose", "composite_explicit": "decompose"}
# Arguments that count dimensions.
DIMENSIONS = ("dim", "dims", "dim0", "dim1", "dim2", "dimension", "axis")
RANDOM = 1 << 7


def rule(operator):
    """(name of the rule, dimensions of one sample or 0)"""
    entry = operator.base.entry
    flags = set(entry.get("flags", []))
    if "dynamic_output" in flags or \
            ("host_wait" in flags and "vmap" not in entry):
        return "refuse", 0
    name, _, rank = str(entry.get("vmap", "")).partition(" ")
    if name == "random":
        name, _, rank = rank.partition(" ")
    if not name:
        name = FAMILIES.get(operator.base.family, "loop")
    if name not in RULES:
        raise Problem("vmap: unknown rule '%s'" % name)
    if bool(rank) != (name == "merge"):
        raise Problem("vmap: merge, and only it, is followed by the number of "
                      "dimensions of one sample")
    return name, int(rank or 0)


def row(operator):
    name, rank = rule(operator)
    if str(operator.base.entry.get("vmap", "")).startswith("random") or \
            "random" in operator.base.entry.get("flags", []):
        rank |= RANDOM
    dims = 0
    for i, argument in enumerate(operator.base.schema.arguments):
        if argument.name in DIMENSIONS and i < 16:
            dims |= 1 << i
    return "    {CORE__BATCH_%s, %d, 0x%x}, /* %s */\n" % (
        name.upper(), rank, dims, operator.name)


def rows(model):
    """The table of core/transform."""
    return (HEAD + '#include "transform/batch.h"\n\n'
            "const core__batch_row core__batch_rows[] = {\n%s};\n" %
            "".join(model.guard(o.name, lambda: row(o))
                    for o in model.operators))
