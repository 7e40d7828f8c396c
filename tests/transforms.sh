#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# The program in docs/transforms.md compiles, and prints what its comment says.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0 # of the cases so far, for tap.sh
echo 1..1
# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

example_runs() {
    path=$(cd "$LIBCORE_BUILD/.libs" && pwd) || return
    awk '/^```c$/ { inside = 1; next } /^```/ { inside = 0 } inside' \
        "$LIBCORE_SOURCE/docs/transforms.md" >"$work/example.c"
    ${CC:-cc} -std=gnu11 -I"$LIBCORE_SOURCE/include" \
        -I"$LIBCORE_BUILD/include" -iquote "$LIBCORE_SOURCE/include/libcore" \
        -iquote "$LIBCORE_BUILD/include/libcore" -o "$work/example" \
        "$work/example.c" -L"$path" -lcore -Wl,-rpath,"$path" &&
        "$work/example" >"$work/out" || return
    printf '2 0\n0 4\n6 6\n' | diff - "$work/out"
}

ok 'the example of docs/transforms.md prints the gradients of each sample' \
    example_runs
