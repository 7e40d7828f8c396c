# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# sanitize: the tests under the address and undefined-behaviour sanitizers.
section_sanitize() {
    quieter
    build "address and undefined sanitizers" "$work/asan" \
        --enable-sanitize=address,undefined CFLAGS='-O1 -g1' || return
    check "address and undefined sanitizers" "$work/asan" \
        TESTS="$(sanitize_tests | tr '\n' ' ')" ${kernels:+"$kernels"}
    use_build "$work/asan"
    try "training under the sanitizers" "$work/asan/core-train" \
        --model mlp --epochs 1 --limit 2000 --json
}

sanitize_tests() {
    left='anomaly|configure-gpu|conformance-mutants|compare-pytorch|fuzz|guide'
    left="$left|template|test_fork"
    [ $full = yes ] || left="$left|core-bench|test_gpu_nvrtc|train-amp"
    find tests -maxdepth 1 -name '*.sh' >"$logs/tests.txt"
    find tests/unit -name 'test_*.c' >>"$logs/tests.txt"
    sed 's/\.c$//' "$logs/tests.txt" | grep -vE "$left" | sort
}
