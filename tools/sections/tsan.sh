# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# tsan: the tests that use threads, or devices that do, under the thread
# sanitizer.
section_tsan() {
    quieter
    build "thread sanitizer" "$work/tsan" --enable-sanitize=thread \
        CFLAGS='-O1 -g1' || return
    tests=$(tsan_tests)
    if [ -z "$tests" ]; then
        skip "thread sanitizer" "no unit test uses threads"
        return
    fi
    check "thread sanitizer" "$work/tsan" TESTS="$tests" \
        check_PROGRAMS="$(programs "$tests")" ${kernels:+"$kernels"}
    use_build "$work/tsan"
    try "training under the thread sanitizer" "$work/tsan/core-train" \
        --model mlp --epochs 1 --limit 2000 --threads 2 --json
}

tsan_tests() {
    # Threads of an emulated kernel are fibers, which the sanitizer takes for
    # one stack: it crashes.
    left=test_gpu_order
    [ $full = yes ] ||
        left="$left|"'test_cpu_bf16$|test_ops_memory|test_autograd_deep'
    {
        find tests/unit -name 'test_*.c' -exec grep -lE 'pthread|thread' {} +
        find tests/unit -name 'test_*.c' |
            grep -E 'stream|event|sim_|capture|memory|engine|fork|test_cpu_conv'
    } | sed 's/\.c$//' | grep -vE "$left" | sort -u | tr '\n' ' '
}
