#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# docs/modes.md: every program compiles without warnings from the public headers
# and prints what the page says.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

has_programs() { # count
    count=$1
    set -- "$work"/*.c
    test $# = "$count"
}

# Program N to N.c, what it prints to N.expected.
awk -v work="$work" '
    /^```c$/ { file = work "/" ++n ".c"; next }
    /^```output$/ { file = work "/" n ".expected"; next }
    /^```/ { file = ""; next }
    file { print > file }
' "$LIBCORE_SOURCE/docs/modes.md"

runs() { # number
    # shellcheck disable=SC2086 # CC may have arguments
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror -o "$work/$1" "$work/$1.c" \
        -I"$LIBCORE_BUILD/include" -I"$LIBCORE_SOURCE/include" \
        -iquote "$LIBCORE_BUILD/include/libcore" \
        -iquote "$LIBCORE_SOURCE/include/libcore" \
        -L"$LIBCORE_BUILD/.libs" -lcore \
        -Wl,-rpath,"$LIBCORE_BUILD/.libs" || return
    "$work/$1" >"$work/out" || return
    diff -u "$work/$1.expected" "$work/out"
}

# Without them the other cases would be about nothing.
echo 1..5
ok 'the page has four programs' has_programs 4
for program in 1 2 3 4; do
    ok "program $program prints what the page says" runs $program
done
