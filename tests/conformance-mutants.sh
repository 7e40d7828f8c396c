#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# The test of the tester: a plugin that is wrong in one way is caught by the
# test that is meant for it, and the same plugin, right, passes that test.
# tests/fixtures/mutants/rules.txt has the ways.
conformance=$LIBCORE_BUILD/core-conformance
mutant=${MUTANT-$LIBCORE_BUILD/tests/fixtures/mutants/.libs/core_mutant.so}
rules=$LIBCORE_SOURCE/tests/fixtures/mutants/rules.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
# Work that is in time by luck is late so.
LIBCORE_SIM_DELAY_US=100
export LIBCORE_SIM_DELAY_US

# tell NAME GOOD: one line of TAP.
tell() {
    number=$((number + 1))
    if [ "$2" = yes ]; then
        echo "ok $number - $1"
    else
        echo "not ok $number - $1"
        tail -n 20 "$work/out" | sed 's/^/# /'
    fi
}

if [ ! -f "$mutant" ]; then
    echo "1..0 # SKIP the mutant was not built"
    exit 0
fi

sed -e 's/#.*//' -e '/^ *$/d' "$rules" >"$work/rules"
while read -r rule name verdict; do
    LIBCORE_MUTANT_RULE=$rule "$conformance" --plugin "$mutant" \
        --filter "$name" --timeout 10 >"$work/out" 2>&1
    status=$?
    good=no
    [ $status = 1 ] && good=yes
    grep -q "^not ok 1 - $name # ${verdict:-FAIL}\$" "$work/out" || good=no
    tell "$rule is caught by $name" $good
done <"$work/rules"

# Without a rule nothing is wrong with it.
sed 's/ *[^ ]* *\([^ ]*\).*/\1/' "$work/rules" | sort -u >"$work/names"
while read -r name; do
    "$conformance" --plugin "$mutant" --filter "$name" >"$work/out" 2>&1
    status=$?
    good=no
    [ $status = 0 ] && grep -q "^ok 1 - $name\$" "$work/out" && good=yes
    tell "$name passes what is right" $good
done <"$work/names"

# Every test that is no mere description has a mutant.
"$conformance" --plugin "$mutant" --only core --list >"$work/all"
grep -vxF -f "$work/names" "$work/all" >"$work/without"
cp "$work/without" "$work/out"
good=yes
while read -r name; do
    case $name in
    core/file/* | core/tensors/* | core/events/order-two-streams) ;;
    *) good=no ;;
    esac
done <"$work/without"
tell 'every test of level core has a mutant' $good
echo "1..$number"
