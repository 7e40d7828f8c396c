#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# docs/compile.md: the examples compile without warnings from the public headers
# and do what the page says.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

has_programs() { # count
    count=$1
    set -- "$work"/*.c
    test $# = "$count"
}

# Example N to N.c.
awk -v work="$work" '
    /^```c$/ { file = work "/" ++n ".c"; next }
    /^```/ { file = ""; next }
    file { print > file }
' "$LIBCORE_SOURCE/docs/compile.md"

# A program that compiles the function `scale`, calls it three times and prints
# what explain says.
calls_scale() { # file
    {
        printf '#include <libcore/core.h>\n#include <stdio.h>\n'
        cat "$1"
        cat <<'END'
int main(void)
{
    int64_t sizes[] = {4, 4};
    core_compiled *compiled = NULL;
    core_tensor *x = NULL, *y = NULL;
    char *text = NULL;

    core_ones(sizes, 2, CORE_F32, NULL, &x);
    core_compile(scale, NULL, NULL, &compiled);
    for (int i = 0; i < 3; i++) {
        if (core_compiled_call(compiled, &x, 1, &y, 1) != CORE_OK)
            return 1;
        core_tensor_release(y);
    }
    core_compiled_explain(compiled, &text);
    puts(text);
    core_text_free(text);
    core_compiled_release(compiled);
    core_tensor_release(x);
    return 0;
}
END
    }
}

builds() { # name
    # shellcheck disable=SC2086 # CC may have arguments
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror -o "$work/$1" "$work/$1.c" \
        -I"$LIBCORE_BUILD/include" -I"$LIBCORE_SOURCE/include" \
        -iquote "$LIBCORE_BUILD/include/libcore" \
        -iquote "$LIBCORE_SOURCE/include/libcore" \
        -L"$LIBCORE_BUILD/.libs" -lcore \
        -Wl,-rpath,"$LIBCORE_BUILD/.libs"
}

prints() { # name text...
    builds "$1" || return
    "$work/$1" >"$work/out" || return
    shift
    for text; do
        grep -qF -e "$text" "$work/out" || {
            cat "$work/out"
            return 1
        }
    done
}

echo 1..4
ok 'the page has the three examples' \
    has_programs 3
calls_scale "$work/2.c" >"$work/break.c"
calls_scale "$work/3.c" >"$work/mended.c"
ok 'the first example runs a program' \
    prints 1 '"compiled_calls": 3' '"breaks": []' '"traces": 1'
ok 'the second has a graph break, which explain names' \
    prints break '"operator": "core_tensor_item"' '"count": 3'
ok 'the third has mended it' prints mended '"compiled_calls": 3' '"breaks": []'
