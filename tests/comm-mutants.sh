#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# Tests the tests of collectives: comm_ranks detects each of the faults that the
# fixture "sockets" can have (SOCKETS_MUTANT), with a message that says which.

work=$(mktemp -d "${TMPDIR:-/tmp}/libcore-comm-XXXXXX")
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

ranks() { # TEST
    timeout -k 5 60 "$LIBCORE_BUILD/tests/comm_ranks" sockets cpu "$1" 3 \
        "$LIBCORE_BUILD/tests/fixtures/.libs/core_sockets.so" \
        >"$work/out" 2>&1 </dev/null
}

# In `results`, comm_ranks fails with the text.
is_detected() { # MUTANT TEXT
    ! SOCKETS_MUTANT=$1 ranks results && grep "$2" "$work/out"
}

is_missing_rank_named() {
    SOCKETS_MUTANT=$1 ranks unchecked
    [ "$(grep -c '^error.*waiting for rank 2' "$work/out")" -eq 2 ]
}

names_no_rank() {
    ! is_missing_rank_named nameless && grep '^error.*waiting for a rank' \
        "$work/out"
}

hangs() {
    ! COMM_WATCHDOG=5 SOCKETS_MUTANT=hangs ranks unchecked &&
        grep 'Alarm clock' "$work/out" && ! grep '^error' "$work/out"
}

ok "without a fault, the results are right" ranks results
ok "without a fault, the missing rank is named" is_missing_rank_named ''
while read -r mutant text; do
    ok "$mutant" is_detected "$mutant" "$text"
done <<'END'
reorders all_gather in f64: element
drops sum in f64: element
returns-early broadcast in f64: element
rounds sum that is rounded once in bf16: element 0 is 3, not 3.01562
forgets-root broadcast in f64: element
mixes-parts sum in f64: element
misses-root reduce in f64: element
swaps-parts all_to_all_rows in f64: element
END
ok "hangs" hangs
ok "nameless" names_no_rank

echo "1..$number"
