#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# A device with memory, copies and one kernel: other operators are errors without
# LIBCORE_FALLBACK, and all of them work with it.
minimal=$LIBCORE_BUILD/tests/fixtures/.libs/core_minimal.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

golden() { # filter
    "$LIBCORE_BUILD/core-conformance" \
        --golden "$LIBCORE_SOURCE/tests/golden/public" --device minimal "$@"
}

says() { # pattern, command...
    pattern=$1
    shift
    "$@" >"$work/out" 2>&1
    cat "$work/out"
    grep -qE "$pattern" "$work/out"
}

if [ ! -f "$minimal" ]; then
    echo "1..0 # SKIP the fixtures are not built"
    exit 0
fi
mkdir "$work/plugins"
ln -s "$minimal" "$work/plugins/core_minimal.so"
LIBCORE_PLUGIN_PATH=$LIBCORE_BUILD/.libs:$work/plugins
export LIBCORE_PLUGIN_PATH

ok 'a missing kernel is an error without the fallback' \
    says '^0 passed, 0 failed, [1-9][0-9]* missing' golden --filter 'exp'
ok 'the error names the kernel that the operator uses' \
    says '"minimal" has no kernel of sub.Tensor; loaded backends that have one: cpu\.' \
    golden --filter 'sub.Scalar' \
    --verbose
LIBCORE_FALLBACK=copy_
export LIBCORE_FALLBACK
ok 'the only kernel computes, with copies through the CPU' \
    says '^[1-9][0-9]* passed, 0 failed' golden --filter 'mul.Tensor'
LIBCORE_FALLBACK=count
ok 'every recorded case passes with the fallback' \
    says '^[0-9]{4} passed, 0 failed, 0 missing' golden
ok 'the calls of each operator are reported at exit' \
    says '^libcore info: fallback: +[1-9][0-9]*  exp of f(16|32|64)$' golden --filter 'exp'
ok 'the report names the kernel that an operator uses' \
    says '[1-9][0-9]*  sub.Scalar \(kernel sub.Tensor\) of f32$' golden \
    --filter 'sub.Scalar'
LIBCORE_FALLBACK=exp,copy_
# shellcheck disable=SC2016 # the inner shell expands
ok 'nothing is reported at exit without LIBCORE_FALLBACK=count' \
    sh -c '"$@" >"$0" 2>&1 && ! grep "fallback:" "$0"' "$work/silent" \
    "$LIBCORE_BUILD/core-conformance" --golden \
    "$LIBCORE_SOURCE/tests/golden/public" --device minimal --filter exp
LIBCORE_FALLBACK=exp,mull
ok 'a misspelt operator is reported' says 'mull' golden --filter 'exp' --verbose
echo "1..$number"
