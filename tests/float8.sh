#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# The table in tests/support/float8_table.h equals the output of its generator.
echo 1..1
name='the table of float8 values matches its generator'
if ! python3 -c '' 2>/dev/null; then
    echo "ok 1 - $name # SKIP python3 is missing"
elif python3 "$LIBCORE_SOURCE/tests/float8-table.py" |
    cmp - "$LIBCORE_SOURCE/tests/support/float8_table.h"; then
    echo "ok 1 - $name"
else
    echo "not ok 1 - $name"
fi
