# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# delays (--full, or by name): the unit tests while their threads are delayed at
# random (tests/fixtures/delays.c), to find tests, and code, that depend on the
# order in which threads run.  LIBCORE_DELAYS_SEED is the first of three seeds, by
# default 1.
section_delays() {
    use_build "$main"
    preloaded=$main/tests/fixtures/.libs/libdelays.so
    if [ ! -f "$preloaded" ]; then
        fail "there is no $preloaded"
        return
    fi
    # It removes the variable, so that compilers that a test starts are not delayed.
    # shellcheck disable=SC2016 # the inner shell expands
    try "threads are delayed by a preloaded library" env LD_PRELOAD="$preloaded" \
        sh -c '[ -z "${LD_PRELOAD-}" ]' || return
    tests=$(cd "$source" && find tests/unit -name 'test_*.c' |
        sed 's/\.c$//' | sort | tr '\n' ' ')
    # Many at a time, without make's job slots, since they sleep for most of the time.
    unset MAKEFLAGS
    jobs=$((jobs * 4))
    first=${LIBCORE_DELAYS_SEED:-1}
    for number in "$first" $((first + 1)) $((first + 2)); do
        check "threads delayed with seed $number" "$main" TESTS="$tests" \
            LOG_COMPILER="env LIBCORE_DELAYS_SEED=$number LD_PRELOAD=$preloaded"
    done
}
