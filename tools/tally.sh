# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# tally.sh: sourced by run-tests, which has set $work and $full.  What was tested
# is counted, and what failed is told when it does and again at the end, with
# what explains it: a failure on another machine is understood from the last
# lines.
# shellcheck disable=SC2154 # work, full
passed=0 failed=0 skipped=0
failures= # of the end

explain() { # [--plain], log
    tools/explain "$@" | sed 's/^/    /'
}

failed_too() { # what, explanation
    failures="$failures    $1
"
    [ -z "$2" ] || failures="$failures$(printf '%s\n' "$2" | sed 's/^/    /')
"
}

pass() { passed=$((passed + ${2-1})); say "PASS: $1"; }
skip() { skipped=$((skipped + ${3-1})); say "SKIP: $1: $2"; }
fail() { # what, [log]
    failed=$((failed + 1))
    why=
    [ -z "${2-}" ] || [ ! -f "$2" ] || why=$(explain --plain "$2")
    failed_too "$1" "$why"
    [ -z "$why" ] || say "$why"
    say "FAIL: $1"
}

# Runs a command as one test; its output is shown if it fails.
try() { # what, command...
    what=$1
    shift
    log=$work/$(printf '%s' "$what" | tr -c 'a-zA-Z0-9\n' '_').txt
    if "$@" >"$log" 2>&1 </dev/null; then
        pass "$what"
    else
        fail "$what" "$log"
        return 1
    fi
}

# Adds a line "N passed, N failed, N skipped" (or missing) of a log.
add_counts() { # what, log
    counts=$(sed -n 's/^.*\b\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed, \([0-9][0-9]*\) \(skipped\|missing\).*$/\1 \2 \3 \4/p' "$2" | tail -n 1)
    if [ -z "$counts" ]; then
        fail "$1: no line with its counts" "$2"
        return 1
    fi
    # shellcheck disable=SC2086 # words are meant
    set -- "$1" "$2" $counts
    say "$1: $3 passed, $4 failed, $5 $6"
    [ $(($3 + $4 + $5)) -gt 0 ] || fail "$1: ran nothing" "$2"
    passed=$((passed + $3))
    failed=$((failed + $4))
    skipped=$((skipped + $5))
    [ "$4" = 0 ] || failed_too "$1: $4" "$(explain --plain "$2")"
}

# What the compiler warns of fails, in tests as elsewhere.
warned() { # what, log
    if grep 'warning: ' "$2" | sort -u | sed 's/^/    /' >"$work/warned.txt" &&
        [ -s "$work/warned.txt" ]; then
        fail "$1: the compiler warns" "$work/warned.txt"
        return 1
    fi
}

# Of a `make check`: each test that failed, and why, of 20 of them.
why_of_check() { # folder
    find "$1/tests" -name '*.trs' -exec \
        grep -lE '^:test-result: *(FAIL|XPASS|ERROR)' {} + | sort |
        sed 's/\.trs$//' >"$1/failed.txt"
    head -n 20 "$1/failed.txt" | while IFS= read -r test; do
        say "    $(basename "$test"):"
        explain "$test.log"
    done
    sed -n '21,$s,.*/,    and ,p' "$1/failed.txt"
}

# The tests of a tree that was built, by cases, not programs.
check() { # what, folder, make's arguments...
    check_what=$1
    check_dir=$2
    shift 2
    # A log's age is the test's: it is made when that begins.
    [ ! -d "$check_dir/tests" ] ||
        find "$check_dir/tests" \( -name '*.trs' -o -name '*.log' \) \
            -exec rm -f {} +
    logs="$logs $check_dir/tests"
    # One more than there are processors: tests wait, some of them long.
    make -C "$check_dir" -k -j"$((jobs + 1))" check "$@" \
        >"$check_dir/check.txt" 2>&1 </dev/null
    status=$?
    find "$check_dir/tests" -name '*.trs' -exec cat {} + \
        >"$check_dir/results.txt"
    good=$(grep -c '^:test-result: *\(PASS\|XFAIL\)' "$check_dir/results.txt")
    bad=$(grep -c '^:test-result: *\(FAIL\|XPASS\|ERROR\)' \
        "$check_dir/results.txt")
    left=$(grep -c '^:test-result: *SKIP' "$check_dir/results.txt")
    passed=$((passed + good))
    failed=$((failed + bad))
    skipped=$((skipped + left))
    say "$check_what: $good passed, $bad failed, $left skipped"
    find "$check_dir/tests" -name '*.log' |
        while IFS= read -r log; do
            grep -hE '^(not ok|ok .*# SKIP|Bail out)' "$log" |
                sed "s,^,    $(basename "$log" .log): ,"
        done
    [ "$bad" = 0 ] ||
        failed_too "$check_what: $bad" "$(why_of_check "$check_dir")"
    grep -h '^ERROR:' "$check_dir/check.txt" | sed 's/^/    /'
    warned "$check_what" "$check_dir/check.txt"
    if [ $status != 0 ] && [ "$bad" = 0 ]; then
        fail "$check_what: make check" "$check_dir/check.txt"
    elif [ "$good" = 0 ]; then
        fail "$check_what: no test ran" "$check_dir/check.txt"
    fi
}

# From here on what is temporary lies in a folder of ours.  Valgrind's pipes for
# debuggers stay where a test kills its child.
use_temporary() {
    TMPDIR=$work/tmp
    VALGRIND_OPTS="--vgdb=no ${VALGRIND_OPTS-}"
    export TMPDIR VALGRIND_OPTS
    rm -rf "$TMPDIR"
    mkdir -p "$TMPDIR"
}

# What a section leaves there is told, and fails under --full: what a compiler
# that was killed leaves is no fault of the code's.
nothing_is_left() { # section
    find "$TMPDIR" -mindepth 1 2>/dev/null | head -n 100 >"$work/left.txt"
    [ -s "$work/left.txt" ] || return 0
    if [ "$full" = yes ]; then
        fail "$1 leaves something in the temporary folder" "$work/left.txt"
    else
        say "$1 leaves something in the temporary folder:"
        sed 's/^/    /' "$work/left.txt"
    fi
    use_temporary
}
