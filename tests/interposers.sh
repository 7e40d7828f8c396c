#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# Interposers around whole plugins: the shipped plugins violate no rule, every
# call can be traced, and an injected failure is returned as an error.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

golden() {
    "$LIBCORE_BUILD/core-conformance" \
        --golden "$LIBCORE_SOURCE/tests/golden/public" "$@" >"$work/out" 2>&1
    got=$?
    cat "$work/out"
    return $got
}

# Every case passes, and validate reports nothing.
validated() {
    LIBCORE_INTERPOSERS=validate golden --device "$1" || return 1
    grep -E '^[0-9]{4} passed, 0 failed, 0 missing' "$work/out" &&
        ! grep 'validate:' "$work/out"
}

traced() {
    LIBCORE_INTERPOSERS=trace golden --device sim --filter exp || return 1
    grep 'trace: sim <- sim.exp(' "$work/out" &&
        grep 'trace: sim -> host.call_copy(' "$work/out" &&
        grep 'trace: sim <- sim.copy_from_host(' "$work/out"
}

failed() {
    LIBCORE_INTERPOSERS=fault LIBCORE_FAULT=launch:3 golden --verbose --filter exp
    grep 'call 3 of kind "launch" fails because of LIBCORE_FAULT' "$work/out"
}

# The kernel that changes process state is named.
changes_state() { # rule, pattern
    LIBCORE_PLUGIN_PATH=$LIBCORE_PLUGIN_PATH:$LIBCORE_BUILD/tests/fixtures/mutants/.libs \
        LIBCORE_INTERPOSERS=validate LIBCORE_MUTANT_RULE=$1 \
        golden --device mutant --filter exp
    grep "validate: mutant: mutant.exp: $2" "$work/out"
}

echo 1..8
ok 'cpu violates no rule' validated cpu
ok 'sim violates no rule' validated sim
ok 'calls of both directions are traced' traced
ok 'the third launch fails with a reason' failed
ok 'a changed signal handler is reported' changes_state changes-signal-handler \
    'changes the handler of signal 10'
ok 'a changed locale is reported' changes_state changes-locale \
    'changes the locale'
ok 'a changed x87 control word is reported' changes_state changes-x87-precision \
    'changes the floating-point control word of the x87'
ok 'a changed rounding mode is reported' changes_state changes-rounding \
    'changes the floating-point control word'
