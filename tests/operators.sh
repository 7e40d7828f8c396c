#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# docs/operators.md matches ops.yaml.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"
name="docs/operators.md is the output of gen_ops.py"
echo 1..1
if ! python3 -c 'import yaml' 2>/dev/null; then
    echo "ok 1 - $name # SKIP no python3 with PyYAML"
    exit 0
fi
python3 "$LIBCORE_SOURCE/tools/gen_ops.py" \
    --ops "$LIBCORE_SOURCE/core/ops/ops.yaml" --doc "$work" >"$work/log" 2>&1
if diff -u "$LIBCORE_SOURCE/docs/operators.md" "$work/operators.md" \
    >>"$work/log" 2>&1; then
    echo "ok 1 - $name"
else
    echo "not ok 1 - $name"
    print_reason "$work/log"
fi
