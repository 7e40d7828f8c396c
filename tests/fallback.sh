#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# A device with memory, copies and one kernel: loud without LIBCORE_FALLBACK,
# complete with it.
bare=$LIBCORE_BUILD/tests/fixtures/.libs/core_bare.so
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/fixtures/ok.sh
. "$LIBCORE_SOURCE/tests/fixtures/ok.sh"

golden() { # filter
    "$LIBCORE_BUILD/core-conformance" \
        --golden "$LIBCORE_SOURCE/tests/golden/public" --device bare "$@"
}

says() { # pattern, command...
    pattern=$1
    shift
    "$@" >"$work/out" 2>&1
    cat "$work/out"
    grep -qE "$pattern" "$work/out"
}

if [ ! -f "$bare" ]; then
    echo "1..0 # SKIP the fixtures are not built"
    exit 0
fi
mkdir "$work/plugins"
ln -s "$bare" "$work/plugins/core_bare.so"
LIBCORE_PLUGIN_PATH=$LIBCORE_BUILD/.libs:$work/plugins
export LIBCORE_PLUGIN_PATH

ok 'without the fallback a missing kernel is missing' \
    says '^0 passed, 0 failed, [1-9][0-9]* missing' golden --filter 'exp'
LIBCORE_FALLBACK=copy_
export LIBCORE_FALLBACK
ok 'its one kernel computes, with copies from the CPU' \
    says '^[1-9][0-9]* passed, 0 failed' golden --filter 'mul.Tensor'
LIBCORE_FALLBACK=count
ok 'with it every recorded case passes' \
    says '^[0-9]{4} passed, 0 failed, 0 missing' golden
LIBCORE_FALLBACK=exp,mull
ok 'a misspelt operator is told' says 'mull' golden --filter 'exp' --verbose
echo "1..$number"
