#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# Tests the tests of collectives: core-conformance --collectives detects each of the
# faults that the fixture "sockets" can have (SOCKETS_MUTANT), with a message that
# says which.

work=$(mktemp -d "${TMPDIR:-/tmp}/libcore-comm-XXXXXX")
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

plugin=$LIBCORE_BUILD/tests/fixtures/.libs/core_sockets.so

conforms() { # ARGUMENT...
    timeout -k 5 100 "$LIBCORE_BUILD/core-conformance" --collectives 3 \
        --plugin "$plugin" "$@" >"$work/out" 2>&1 </dev/null
}

# A test fails with the text.
is_detected() { # MUTANT TEST TEXT
    ! SOCKETS_MUTANT=$1 conforms --timeout 10 --filter "collectives/$2" &&
        grep "^# .*$3" "$work/out" && grep '1 failed' "$work/out"
}

# The test passes, with a remark.
is_remarked() { # MUTANT TEST TEXT
    SOCKETS_MUTANT=$1 conforms --timeout 10 --filter "collectives/$2" &&
        grep "^# .*$3" "$work/out"
}

passes_all() {
    mkdir "$work/ranks" || return
    TMPDIR=$work/ranks conforms "$@" && grep '^1..24$' "$work/out" &&
        ! grep '^not ok' "$work/out" && ! grep '^# rank' "$work/out" &&
        rmdir "$work/ranks"
}

streams_pass() {
    conforms --device sim --timeout 20 --filter \
        'collectives/all_reduce,*streams,*late-ranks,*barrier,*ends-a-coll*' &&
        grep '^# 5 passed, 0 failed' "$work/out"
}

refuses() { # TEXT ARGUMENT...
    text=$1
    shift
    conforms "$@"
    [ $? = 2 ] && grep "$text" "$work/out"
}

ok 'without a fault, all tests pass, and no file is left' passes_all --timeout 20
ok "and on a device that has streams" streams_pass
while read -r mutant test text; do
    ok "$mutant" is_detected "$mutant" "$test" "$text"
done <<'END'
reorders all_gather all_gather of 12 f64: element 1 is 1, not 2
drops all_reduce all_reduce, sum in f64: element 0 is 2, not 3
returns-early waits-for-late-ranks broadcast of 12 f32 from rank 0: element 1
forgets-root broadcast broadcast of 12 f64 from rank 1: element 1
mixes-parts reduce_scatter reduce_scatter, sum in f64: element 0
misses-root reduce reduce, sum in f64: element 0
swaps-parts all_to_all_rows all_to_all_rows in f64: element 0
hangs missing-rank-ends-a-collective barrier that rank 2 does not make: it hangs
END
ok 'rounds' is_remarked rounds halves-are-rounded-once 'the sum is 3, .* 3.01562'
ok 'nameless' is_remarked nameless missing-rank-is-an-error 'does not name rank 2'

ok 'a filter that matches nothing is refused' refuses 'no test: x' --filter x
ok 'an unknown engine is refused' refuses 'has no engine carrier-pigeon' \
    --engine carrier-pigeon
ok 'an unknown device is refused' refuses 'no device "nope"' --device nope
ok 'an unknown flag is refused' refuses 'with --collectives: --seed' --seed 1
ok 'a number of ranks is checked' refuses '17; accepted .*: 2 to 16' \
    --collectives 17
ok 'a plugin without an engine is refused' refuses 'has no engine (core.coll' \
    --plugin "$LIBCORE_BUILD/.libs/core_sim.so"

echo "1..$number"
