#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# The table that the tests of eight-bit floats use is the one that its script
# makes.
echo 1..1
name='the table of eight-bit floats is what its definition gives'
if ! python3 -c '' 2>/dev/null; then
    echo "ok 1 - $name # SKIP there is no python3"
elif python3 "$LIBCORE_SOURCE/tests/float8-table.py" |
    cmp - "$LIBCORE_SOURCE/tests/support/float8_table.h"; then
    echo "ok 1 - $name"
else
    echo "not ok 1 - $name"
fi
