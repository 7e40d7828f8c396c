#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""Generates the C sources and the JSON listing of operators from ops.yaml.

    gen_ops.py --ops core/ops/ops.yaml --out FOLDER    writes the files
    gen_ops.py --ops core/ops/ops.yaml --assign        assigns missing ids, and
                                                       adds `since` to the
                                                       entries
    gen_ops.py --ops core/ops/ops.yaml --doc FOLDER    writes operators.md and
                                                       calls.md

A file is rewritten only when its content changes."""

import argparse
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from ops import batching, doc, emit, expressions, samples  # noqa: E402
from ops.model import Model  # noqa: E402
from ops.schema import Problem  # noqa: E402


def write(folder, name, text):
    path = os.path.join(folder, name)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def current_abi(here):
    """The plugin ABI, "0.5"."""
    header = os.path.join(here, "..", "include", "libcore", "plugin.h")
    with open(header, encoding="utf-8") as file:
        text = file.read()
    return ".".join(re.search(r"#define %s (\d+)" % name, text)[1]
                    for name in ("CORE_ABI_MAJOR", "CORE_ABI_MINOR"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ops", required=True)
    parser.add_argument("--out")
    parser.add_argument("--assign", action="store_true")
    parser.add_argument("--doc")
    options = parser.parse_args()
    lock = os.path.join(os.path.dirname(options.ops), "ops.ids")
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        model = Model(options.ops)
        model.assign(lock, current_abi(here) if options.assign else None)
        if options.doc:
            write(options.doc, "operators.md", doc.text(model))
            write(options.doc, "calls.md", doc.calls(
                expressions.expressions(model, emit.constants(model))))
        if not options.out:
            return 0
        names = emit.constants(model)
        with open(os.path.join(here, "ops", "preamble.h"),
                  encoding="utf-8") as file:
            preamble = file.read()
        os.makedirs(options.out, exist_ok=True)
        write(options.out, "ops_ids.h", emit.ids(model, names))
        write(options.out, "ops_table.c", emit.table(model))
        write(options.out, "ops_gradients.c", emit.gradients(model))
        write(options.out, "ops_batching.c", batching.rows(model))
        write(options.out, "ops.h", emit.header(model, names, preamble))
        write(options.out, "ops_inline.h", emit.definitions(model, names))
        write(options.out, "expressions.h", expressions.header(model, names))
        write(options.out, "ops_expressions.h",
              expressions.checks(model, names))
        write(options.out, "ops_samples.h", samples.tests(model))
        write(options.out, "ops_conformance.c", samples.conformance(model))
        write(options.out, "operators.json", emit.listing(model))
    except Problem as problem:
        print("%s: %s" % (options.ops, problem), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
