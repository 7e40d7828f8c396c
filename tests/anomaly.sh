#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# Anomaly mode in a program that links the shared library.  Unit tests contain
# the library, so every stack frame there belongs to the program.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/program.c" <<'END'
#include <libcore/core.h>

#include <stdio.h>

int main(void)
{
    const float data[] = {-1};
    const int64_t size = 1;
    core_tensor *x = NULL, *root = NULL;

    core_anomaly_mode_set(true);
    if (core_tensor_from_data(data, CORE_F32, &size, 1, NULL, &x) ||
        core_tensor_set_requires_grad(x, true) || core_sqrt(x, &root) ||
        core_backward(&root, 1, NULL, 0))
        printf("%s\n", core_error_message());
    core_tensor_release(root);
    core_tensor_release(x);
    return 0;
}
END

names_the_program() {
    # shellcheck disable=SC2086 # CC may contain several words
    ${CC:-cc} -std=c11 -I"$LIBCORE_BUILD/include" -I"$LIBCORE_SOURCE/include" \
        -iquote "$LIBCORE_BUILD/include/libcore" \
        -iquote "$LIBCORE_SOURCE/include/libcore" \
        -o "$work/anomalous" "$work/program.c" \
        -L"$LIBCORE_BUILD/.libs" -lcore || return 1
    LD_LIBRARY_PATH=$LIBCORE_BUILD/.libs "$work/anomalous" >"$work/said"
    cat "$work/said"
    grep 'sqrt.*the forward made it at.*/anomalous)' "$work/said"
}

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

echo 1..1
if names_the_program >"$work/log" 2>&1; then
    echo 'ok 1 - the reported place in the forward pass is in the program'
else
    echo 'not ok 1 - the reported place in the forward pass is in the program'
    print_reason "$work/log"
fi
