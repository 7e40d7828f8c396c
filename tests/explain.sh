#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# tools/explain prints the lines of a log that explain a failure, and nothing about
# what passed.
explain=$LIBCORE_SOURCE/tools/explain
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

# prints ARGUMENT…: expects exactly the contents of $work/expected.
prints() {
    "$explain" "$@" >"$work/out" 2>&1 || return
    diff -u "$work/expected" "$work/out"
}

cases() {
    cat >"$work/tap" <<'EOF'
TAP version 13
ok 1 - good FAIL
PASS: tests/x 1 - good FAIL
not ok 2 - bad
# the reason
# in two lines
FAIL: tests/x 2 - bad
ok 3 - good again
# of no interest
not ok 4 - worse: one line
the second line
1..4
EOF
    cat >"$work/expected" <<'EOF'
not ok 2 - bad
# the reason
# in two lines
not ok 4 - worse: one line
the second line
EOF
    prints "$work/tap"
}

# The report precedes earlier results, and contains a dump of shadow memory.
reports() {
    {
        echo '==12==ERROR: AddressSanitizer: heap-buffer-overflow'
        echo '    #0 in overflow x.c:1'
        echo 'Shadow bytes around the buggy address:'
        seq 50
        echo '==12==ABORTING'
        echo 'ok 1 - good'
        echo 'not ok 2 - bad: Early exit with return value 1'
        echo '1..2'
    } >"$work/tap"
    cat >"$work/expected" <<'EOF'
not ok 2 - bad: Early exit with return value 1
other output, of any case:
==12==ERROR: AddressSanitizer: heap-buffer-overflow
    #0 in overflow x.c:1
==12==ABORTING
EOF
    prints "$work/tap"
}

# A program that exits before its first result.
without_results() {
    echo 'error while loading shared libraries: libx.so.1' >"$work/tap"
    cp "$work/tap" "$work/expected"
    prints "$work/tap"
}

long() {
    {
        seq 300
        echo 'ok 7 - core/memory/FAIL'
        echo 'not ok 8 - core/memory/fills # CRASH'
        echo '# signal 11'
        seq 301 600
    } >"$work/log"
    "$explain" --plain "$work/log" >"$work/out" || return
    cat "$work/out"
    [ "$(grep -vc '^\[' "$work/out")" = 40 ] &&
        grep -q '^\[\.\.\.\] 301 more$' "$work/out" &&
        grep -A 1 '# CRASH$' "$work/out" | grep -q '^# signal 11$' &&
        [ "$(tail -n 1 "$work/out")" = 600 ] && ! grep FAIL "$work/out"
}

# Without failed results, lines that contain errors.
quiet() {
    {
        seq 100
        echo 'x.c:1:2: error: no semicolon'
        seq 101 200
    } >"$work/log"
    "$explain" --plain "$work/log" >"$work/out" && cat "$work/out" &&
        grep -qx 'x.c:1:2: error: no semicolon' "$work/out"
}

short() {
    seq 40 >"$work/log"
    cp "$work/log" "$work/expected"
    prints --plain "$work/log"
}

nameless() {
    "$explain" "$work/none" 2>"$work/err"
    [ $? = 2 ] && grep 'needs the name of a file' "$work/err"
}

ok 'failed cases are shown with the lines below them' cases
ok 'a sanitizer report is shown wherever it is' reports
ok 'a log without results is shown' without_results
ok 'a long log is reduced to its failures and its end' long
ok 'a log without failed results is reduced to its errors' quiet
ok 'a short log is shown completely' short
ok 'a missing file is refused' nameless
echo "1..$number"
