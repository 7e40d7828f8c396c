# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# mutants.sh: sourced by mutate-engine and mutate-memory, which set `folder`
# (of core/), `tests` (the test programs) and the arguments' build folder.
#
# A mutant is a source file changed by one sed command and linked with the named
# test, before the build's own objects.  It is detected if a test fails or
# crashes.  A timeout, which a busy machine may cause, is a failure of this
# check unless the mutant is expected to hang.
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
export LIBCORE_PLUGIN_PATH="${LIBCORE_PLUGIN_PATH:-$build/.libs}"
export LIBCORE_BUILD="$build" LIBCORE_SOURCE="$source"
export CK_VERBOSITY=normal CK_DEFAULT_TIMEOUT=60

variable() { sed -n "s/^$1 = //p" "$build/Makefile" | head -n 1; }
cc=$(variable CC)
flags=$(variable CFLAGS)
libraries=$(variable CHECK_LIBS)

# shellcheck disable=SC2154 # the script that sources this sets them
build_tests() {
    targets=libcore_objects.la
    for name in $tests; do
        targets="$targets tests/unit/${folder%%/*}/$name"
    done
    # shellcheck disable=SC2086 # split into words on purpose
    make -s -C "$build" $targets >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        exit 1
    }
}

# shellcheck disable=SC2086 # split into words on purpose
link() { # test
    $cc $flags -o "$work/test" "$build/tests/unit/${folder%%/*}/$1.o" \
        "$work/mutant.o" "$build/.libs/libcore_objects.a" $libraries \
        -ldl -lm -lpthread 2>"$work/log"
}

# shellcheck disable=SC2086
compile() { # file
    $cc $flags -w -D_GNU_SOURCE -DLIBCORE_VERSION='""' \
        -DLIBCORE_PLUGIN_DIR='""' -I"$build/include" -I"$source/include" \
        -iquote "$build/include/libcore" -iquote "$source/include/libcore" \
        -I"$source/core" -I"$build/core/ops/generated" \
        -c -o "$work/mutant.o" "$work/$1" 2>"$work/log"
}

# Prints the first failure that is not a timeout, otherwise the first timeout.
first_failure() {
    grep -v 'Test timeout expired' "$work/log" | grep -m 1 ':[FE]:' ||
        grep -m 1 'Test timeout expired' "$work/log" || tail -n 1 "$work/log"
}

mutant() { # what is removed, file, sed command, test, [hangs]
    original=$(find "$source/core/$folder" -name "$2")
    sed "$3" "$original" >"$work/$2"
    result=
    if [ "$1" != nothing ] && cmp -s "$original" "$work/$2"; then
        result="the sed command changes nothing"
    elif ! compile "$2" || ! link "$4"; then
        result="does not build: $(tail -n 1 "$work/log")"
    elif "$work/test" >"$work/log" 2>&1; then
        [ "$1" = nothing ] || result="no test of $4 fails"
    elif [ "$1" = nothing ]; then
        result="$4 fails: $(first_failure)"
    elif [ "${5-}" != hangs ] && first_failure | grep -q 'timeout expired'; then
        result="undecided: $(first_failure)"
    fi
    if [ -z "$result" ]; then
        passed=$((passed + 1))
        echo "PASS: $2 without $1"
    else
        failed=$((failed + 1))
        echo "FAIL: $2 without $1: $result"
    fi
}
