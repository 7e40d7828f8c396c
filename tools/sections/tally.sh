# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# tally.sh: sourced by common.sh.  Counts and prints results.  Failures are
# printed when they happen and again at the end, each with its explanation, so
# that the last lines of a log from another machine are enough.
# shellcheck disable=SC2154 # variables of common.sh
passed=0 failed=0 skipped=0
failures= # printed at the end

# Turns the second line of `times` into seconds.
seconds='FNR == 2 { gsub(/s/, ""); sum = 0; for (i = 1; i <= 2; i++) {
    split($i, t, "m"); sum += 60 * t[1] + t[2] } '

# Begins a section: creates its folders of logs and temporary files, and starts
# its clock.
use_section() { # name
    section=$1
    logs=$work/logs/$section
    mkdir -p "$logs"
    passed=0 failed=0 skipped=0 failures=
    then=$(date +%s)
    count_processors
    before_section=$total
    use_temporary_folder
}

# Sets $total to the processor time of the ended child processes, in seconds.
count_processors() {
    times >"$logs/times.txt" # a subshell would print its own
    total=$(awk "$seconds"'print int(sum) }' "$logs/times.txt")
}

# Ends a section, and writes what summarize reads.
report() {
    wall=$(($(date +%s) - then))
    count_processors
    spent=$((total - before_section))
    say "== $section: $wall s ($spent s of processors)"
    echo "$passed $failed $skipped $wall $spent" >"$reports/$section.counts"
    printf '%s' "$failures" >"$reports/$section.failures"
}

# Prints the tests that need most processor time.
slowest() {
    [ -d "$work/times" ] || return 0
    say "longest tests, in processor time:"
    find "$work/times" -type f -exec awk -v at="$work/times/" "$seconds"'
        name = FILENAME; sub(at, "", name)
        printf "%8.1f s  %s\n", sum, name }' {} + | sort -rn | head -n 10
}

# Prints the last lines.  Fails if a test failed, or if a section did not end.
summarize() { # sections...
    slowest
    say "   wall    processors  section"
    passed=0 failed=0 skipped=0 all=0
    : >"$reports/failures"
    for section in "$@"; do
        if [ ! -f "$reports/$section.counts" ]; then
            cat "$reports/$section.txt" 2>/dev/null
            failed=$((failed + 1))
            say "    $section: did not end" >>"$reports/failures"
            continue
        fi
        read -r good bad left wall spent <"$reports/$section.counts"
        passed=$((passed + good)) failed=$((failed + bad))
        skipped=$((skipped + left)) all=$((all + spent))
        printf '%7s %13s  %s\n' "$wall s" "$spent s" "$section"
        cat "$reports/$section.failures" >>"$reports/failures"
    done
    printf '%7s %13s  all\n' "$(($(date +%s) - began)) s" "$all s"
    if [ -s "$reports/failures" ]; then
        echo "failed:"
        cat "$reports/failures"
    fi
    say "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ]
}

explain() { # [--plain], log
    tools/explain "$@" | sed 's/^/    /'
}

add_failure() { # what, explanation
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
    add_failure "$1" "$why"
    [ -z "$why" ] || say "$why"
    say "FAIL: $1"
}

# Runs a command as one test; its output is shown if it fails.
try() { # what, command...
    what=$1
    shift
    log=$logs/$(printf '%s' "$what" | tr -c 'a-zA-Z0-9\n' '_').txt
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
        fail "$1: no line with counts" "$2"
        return 1
    fi
    # shellcheck disable=SC2086 # split into words on purpose
    set -- "$1" "$2" $counts
    say "$1: $3 passed, $4 failed, $5 $6"
    [ $(($3 + $4 + $5)) -gt 0 ] || fail "$1: ran nothing" "$2"
    passed=$((passed + $3))
    failed=$((failed + $4))
    skipped=$((skipped + $5))
    [ "$4" = 0 ] || add_failure "$1: $4" "$(explain --plain "$2")"
}

# Compiler warnings are failures, also in tests.
warned() { # what, log
    if grep 'warning: ' "$2" | sort -u | sed 's/^/    /' >"$logs/warned.txt" &&
        [ -s "$logs/warned.txt" ]; then
        fail "$1: compiler warnings" "$logs/warned.txt"
        return 1
    fi
}

# Prints the failed tests of a `make check`, the first 20 with an explanation.
explain_check() { # folder
    find "$1/tests" -name '*.trs' -exec \
        grep -lE '^:test-result: *(FAIL|XPASS|ERROR)' {} + | sort |
        sed 's/\.trs$//' >"$1/failed.txt"
    head -n 20 "$1/failed.txt" | while IFS= read -r test; do
        say "    $(basename "$test"):"
        explain "$test.log"
    done
    sed -n '21,$s,.*/,    and ,p' "$1/failed.txt"
}

# Adds the results of a `make check`.
count_check() { # what, folder, make's exit status
    find "$2/tests" -name '*.trs' -exec cat {} + >"$2/results.txt"
    good=$(grep -c '^:test-result: *\(PASS\|XFAIL\)' "$2/results.txt")
    bad=$(grep -c '^:test-result: *\(FAIL\|XPASS\|ERROR\)' "$2/results.txt")
    left=$(grep -c '^:test-result: *SKIP' "$2/results.txt")
    passed=$((passed + good))
    failed=$((failed + bad))
    skipped=$((skipped + left))
    say "$1: $good passed, $bad failed, $left skipped"
    find "$2/tests" -name '*.log' |
        while IFS= read -r log; do
            grep -hE '^(not ok|ok .*# SKIP|Bail out)' "$log" |
                sed "s,^,    $(basename "$log" .log): ,"
        done
    [ "$bad" = 0 ] || add_failure "$1: $bad" "$(explain_check "$2")"
    grep -h '^ERROR:' "$2/check.txt" | sed 's/^/    /'
    warned "$1" "$2/check.txt"
    if [ "$3" != 0 ] && [ "$bad" = 0 ]; then
        fail "$1: make check" "$2/check.txt"
    elif [ "$good" = 0 ]; then
        fail "$1: no test ran" "$2/check.txt"
    fi
}

# Creates a temporary folder for the section.  Without --vgdb=no valgrind leaves
# pipes for debuggers there when a test kills a child.
use_temporary_folder() {
    TMPDIR=$work/tmp/$section
    VALGRIND_OPTS="--vgdb=no ${VALGRIND_OPTS-}"
    export TMPDIR VALGRIND_OPTS
    rm -rf "$TMPDIR"
    mkdir -p "$TMPDIR"
}

# Prints the temporary files that a section leaves.  They are a failure only
# under --full, since a compiler that was killed leaves some.
report_leftovers() { # section
    find "$TMPDIR" -mindepth 1 2>/dev/null | head -n 100 >"$logs/left.txt"
    [ -s "$logs/left.txt" ] || return 0
    if [ "$full" = yes ]; then
        fail "$1 leaves files in the temporary folder" "$logs/left.txt"
    else
        say "$1 leaves files in the temporary folder:"
        sed 's/^/    /' "$logs/left.txt"
    fi
}
