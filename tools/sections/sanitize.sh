# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# sanitize: tests under the address and undefined-behaviour sanitizers, which
# find what they do with memory in C.  Left out are
#
# - scripts whose subject is not C of this tree (checks, configure-gpu, explain,
#   quickstart, gpu-tests, operators) or that build their own (examples,
#   example-programs, fuzz, guide, template, typed-calls, opencl-objects);
# - scripts that run programs hundreds of times (conformance-mutants, anomaly,
#   compare-pytorch): the unit tests make the same calls;
# - comm-mutants, which waits for timeouts: test_collective* and test_comm_faults
#   make the same calls;
# - test_fork: in a child forked beside other threads the sanitizer's own
#   allocator may be locked, and what those threads had looks lost;
# - but with --full: core-bench, whose rows repeat calls; train, train-amp, train-compile,
#   train-reports and train-distributed, whose parts have unit tests, beside the
#   training below; opencl, whose plugin it builds without sanitizers; test_gpu_nvrtc and
#   test_gpu_loop_compilers, where vendors' compilers compute;
#   test_gpu_beyond_31_bits, whose results show what overflows.  Of the CPU's
#   kernels, the instruction set that this machine does not choose is not
#   instrumented, nor are the unit tests themselves.
section_sanitize() {
    sanitizer_options
    tests=$(sanitize_tests | tr '\n' ' ')
    # What no test here runs without --full is not built.
    opencl=
    [ $full = yes ] || opencl=--disable-opencl
    [ $full = yes ] || tools='core-info core-conformance core-train'
    # Arithmetic of pointers is checked where memory is accessed.  To check all of it
    # takes a quarter of the compiler's time.
    names=address,undefined
    [ $full = yes ] || names=$names,no-pointer-overflow
    # The undefined-behaviour sanitizer doubles the time that the emulated GPU's
    # kernels compile, to a minute and a half.
    if [ $full = no ]; then
        GPU_EMULATED_SANITIZE='-fsanitize=address -fno-omit-frame-pointer'
        export GPU_EMULATED_SANITIZE
    fi
    # shellcheck disable=SC2086 # a list, and empty or one option
    build "address and undefined sanitizers" "$work/asan" \
        --enable-sanitize=$names $opencl \
        CFLAGS="$little_optimized" CPU_OPTIMIZATION=-Og || return
    # Without --full the unit tests have the objects of the first build (ccache):
    # what they do to memory that they share with the library is still found.
    unit=
    [ $full = yes ] || unit="UNIT_SANITIZE= $unit_optimization"
    # shellcheck disable=SC2086 # a list
    check "address and undefined sanitizers" "$work/asan" TESTS="$tests" \
        check_PROGRAMS="tests/first_result $(programs "$tests")" \
        ${kernels:+"$kernels"} $unit
    use_build "$work/asan"
    try "training under the sanitizers" "$work/asan/core-train" \
        --model mlp --epochs 1 --limit 2000 --json
}

sanitize_tests() {
    left='checks|configure-gpu|explain|quickstart|gpu-tests|operators|fuzz|guide'
    left="$left|template|examples|example-programs|typed-calls|opencl-objects|conformance-mutants|anomaly"
    left="$left|compare-pytorch|test_fork|comm-mutants|no-compiler"
    [ $full = yes ] || left="$left|core-bench|opencl|train(-amp|-compile|-reports|-distributed)?"
    [ $full = yes ] || left="$left|test_gpu_(nvrtc|loop_compilers|beyond_31_bits)"
    find tests -maxdepth 1 -name '*.sh' >"$logs/tests.txt"
    find tests/unit -name 'test_*.c' >>"$logs/tests.txt"
    sed 's/\.c$//' "$logs/tests.txt" | grep -vE "/($left)(\.sh)?\$" | sort
}
