#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# Layers around whole plugins: what the shipped ones do breaks no rule, every
# call can be traced, and a failure that was asked for comes as an error.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/fixtures/ok.sh
. "$LIBCORE_SOURCE/tests/fixtures/ok.sh"

golden() {
    "$LIBCORE_BUILD/core-conformance" \
        --golden "$LIBCORE_SOURCE/tests/golden/public" "$@" >"$work/out" 2>&1
    got=$?
    cat "$work/out"
    return $got
}

# Every case passes, and validate says nothing.
validated() {
    LIBCORE_LAYERS=validate golden --device "$1" || return 1
    grep -E '^[0-9]{4} passed, 0 failed, 0 missing' "$work/out" &&
        ! grep 'validate:' "$work/out"
}

traced() {
    LIBCORE_LAYERS=trace golden --device sim --filter exp || return 1
    grep 'trace: sim <- sim.exp(' "$work/out" &&
        grep 'trace: sim -> host.call_copy(' "$work/out" &&
        grep 'trace: sim <- sim.copy_from_host(' "$work/out"
}

failed() {
    LIBCORE_LAYERS=fault LIBCORE_FAULT=launch:3 golden --verbose --filter exp
    grep 'call 3 of kind "launch" fails because of LIBCORE_FAULT' "$work/out"
}

# The kernel that changes something is named.
rude() { # rule, pattern
    LIBCORE_PLUGIN_PATH=$LIBCORE_PLUGIN_PATH:$LIBCORE_BUILD/tests/fixtures/mutants/.libs \
        LIBCORE_LAYERS=validate LIBCORE_MUTANT_RULE=$1 \
        golden --device mutant --filter exp
    grep "validate: mutant: mutant.exp: $2" "$work/out"
}

echo 1..8
ok 'the cpu breaks no rule' validated cpu
ok 'sim breaks no rule' validated sim
ok 'calls of both directions are traced' traced
ok 'the third launch fails and says why' failed
ok 'who changes a handler is told' rude changes-signal-handler \
    'changes the handler of signal 10'
ok 'who changes the locale is told' rude changes-locale 'changes the locale'
ok 'who changes the x87 unit is told' rude changes-x87-precision \
    'changes the floating-point control word of the x87'
ok 'who changes the rounding is told' rude changes-rounding \
    'changes the floating-point control word'
