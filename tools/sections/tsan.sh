# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# tsan: the tests that use threads, or devices that do, under the thread
# sanitizer.  This tree is built in its own folder, which has other include
# paths, because users build where they unpacked the tarball; without what these
# tests do not use: the opencl backend and most tools.
section_tsan() {
    sanitizer_options
    try "sources of a tarball" copy_sources "$work/tsan" || return
    # Without --full only baseline kernels: products and bf16, which share packed
    # blocks between threads, are left out.  The emulated GPU's kernels, whose
    # threads are fibers, are the first build's.
    kernel_sets=
    [ $full = yes ] || kernel_sets=--disable-x86-isa
    copied_objects="$typed_calls gpu/emulated/kernels/*.lo"
    tools='core-info core-train'
    # shellcheck disable=SC2086 # a list, and empty or one option
    build "thread sanitizer" "$work/tsan" --enable-sanitize=thread \
        --disable-opencl $kernel_sets CFLAGS="$little_optimized" \
        CPU_OPTIMIZATION=-Og || return
    use_build "$work/tsan"
    try "core-info runs in the folder of the sources" sh -c \
        "'$work/tsan/core-info' | grep -w sim"
    # Of the longest tests only those that use several threads.
    if [ $full = no ]; then
        LIBCORE_TEST_THREADS=1
        export LIBCORE_TEST_THREADS
    fi
    tests=$(tsan_tests)
    if [ -z "$tests" ]; then
        skip "thread sanitizer" "no unit test uses threads"
        return
    fi
    check "thread sanitizer" "$work/tsan" TESTS="$tests" \
        check_PROGRAMS="$(programs "$tests")" ${kernels:+"$kernels"} \
        "$unit_optimization"
    use_build "$work/tsan"
    try "training under the thread sanitizer" "$work/tsan/core-train" \
        --model mlp --epochs 1 --limit 2000 --threads 2 --json
}

# Tests that start threads, or use streams of the simulated device, whose work a
# thread of it does; with --full also those that only run beside threads.
tsan_tests() {
    # Threads of an emulated kernel are fibers, which the sanitizer takes for
    # one stack: it crashes.
    left=test_gpu_order
    pattern='pthread_create|cpu_threads\(|core_threads_set|capture_begin'
    pattern="$pattern|support/(sim|stream|capture|engine_streams|gpu_products)"
    pattern="$pattern|support/memory\.h" # includes sim_device.h
    if [ $full = yes ]; then
        pattern="$pattern|thread|\"sim|base/memory\.h"
    else
        # These have the threads, and the host code, of test_cpu_reduce,
        # test_loop_kernel, test_fusion and test_cuda_driver.
        left="$left|"'test_cpu_bf16$|test_autograd_deep|optim_many|optim_cpu'
        left="$left|"'test_cpu_elementwise$|cuda_dnn_use|cuda_scaled|rocm_driver'
        left="$left|test_loop_operators|test_tune"
    fi
    {
        find tests/unit -name 'test_*.c' -exec grep -lE "$pattern" {} +
        find tests/unit -name 'test_*stream*.c'
    } | sed 's/\.c$//' | grep -vE "$left" | sort -u | tr '\n' ' '
}
