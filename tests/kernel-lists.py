#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

"""Compares a list of operators without kernels in the documentation with the
plugins: of `core-info --kernels --json`, what the CPU has and a device has not.

    core-info --kernels --json | kernel-lists.py DEVICE OPERATORS.json FILE.md
    core-info --kernels --json | kernel-lists.py … --update

The list is between the lines <!-- no kernels: DEVICE --> and <!-- end -->.
Overloads and gradients are not listed apart from their operator if that has no
kernel either, nor are operators that libcore makes of others.  A CPU plugin that
found no OpenBLAS has fewer kernels than the list expects, which is not an error."""

import json
import re
import sys
import textwrap


def kernels_of(kernels, device):
    for row in kernels["backends"]:
        if row["device_type"] == device:
            return set(row["kernels_by_operator"])
    sys.exit(f"core-info reports no backend {device}")


def missing(kernels, operators, device):
    families = {row["name"]: row["family"] for row in operators["operators"]}
    present = kernels_of(kernels, device)
    names = {
        name
        for name in kernels_of(kernels, "cpu") - present
        if not families[name].startswith("composite")
    }
    partly = {name.split(".")[0] for name in present}
    short = {
        name if name.split(".")[0] in partly else name.split(".")[0]
        for name in names
    }
    return sorted(
        (
            name
            for name in short
            if re.sub("_(backward|grad)$", "", name) == name
            or re.sub("_(backward|grad)$", "", name) not in short
        ),
        key=lambda name: (name.lstrip("_"), name),
    )


def main():
    device, operators, path = sys.argv[1:4]
    with open(operators, encoding="utf-8") as file:
        operators = json.load(file)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    kernels = json.load(sys.stdin)
    names = missing(kernels, operators, device)
    wanted = "\n".join(
        textwrap.wrap(
            ", ".join(f"`{name}`" for name in names) + ".",
            88,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )
    begin, end = f"<!-- no kernels: {device} -->\n\n", "\n\n<!-- end -->"
    before, rest = text.split(begin)
    listed, after = rest.split(end, 1)
    if listed == wanted:
        return 0
    if "--update" in sys.argv[4:]:
        with open(path, "w", encoding="utf-8") as file:
            file.write(before + begin + wanted + end + after)
        return 0
    listed = set(re.findall("`([^`]*)`", listed))
    wrong = [
        f"{name} is listed, but has a kernel on {device}"
        for name in sorted(listed & kernels_of(kernels, device))
    ] + [
        f"{name} has no kernel on {device}, and is not listed"
        for name in sorted(set(names) - listed)
    ]
    for line in wrong:
        print(f"{path}: {line}; update it with tests/kernel-lists.py … --update")
    return 1 if wrong else 0


sys.exit(main())
