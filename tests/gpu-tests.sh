#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# tools/gpu-tests on the simulated device, where it does the same as on a GPU
# except for the vendor's tools.
script=$LIBCORE_SOURCE/tools/gpu-tests
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

parts() {
    "$script" --short --report "$work/report" "$LIBCORE_BUILD" sim device \
        golden conformance sanitizer >"$work/out" 2>&1 || {
        cat "$work/out"
        return 1
    }
    grep '^PASS: sim is found' "$work/out" &&
        grep '^golden on sim: [1-9][0-9]* passed, 0 failed' "$work/out" &&
        grep '^golden, current, on sim: [1-9][0-9]* passed, 0 failed' \
            "$work/out" &&
        grep '^PASS: conformance, level core' "$work/out" &&
        grep '^SKIP: compute-sanitizer: ' "$work/out" &&
        tail -n 1 "$work/out" | grep -E '^[1-9][0-9]+ passed, 0 failed, 1 '
}

reported() {
    cat "$work/report"
    grep -E '^## [0-9-]{10}, sim$' "$work/report" &&
        grep -E '^- commit .*, short$' "$work/report" &&
        grep -E '^- [1-9][0-9]+ passed, 0 failed, 1 skipped$' "$work/report" &&
        grep -F '    PASS: conformance, level core' "$work/report"
}

# The device is lost before the end.
fails() {
    ! LIBCORE_INTERPOSERS=fault LIBCORE_FAULT=launch:9+ "$script" --short \
        "$LIBCORE_BUILD" sim golden >"$work/out" 2>&1 || return
    cat "$work/out"
    tail -n 1 "$work/out" | grep -E ', [1-9][0-9]* failed, '
}

# Without PyTorch (a fake Python cannot import it), libcore is timed alone.
figures() {
    printf '#!/bin/sh\nexit 1\n' >"$work/python"
    chmod +x "$work/python"
    PYTHON=$work/python "$script" --short "$LIBCORE_BUILD" sim bench \
        >"$work/out" 2>&1
    got=$?
    cat "$work/out"
    [ $got = 0 ] && grep '^SKIP: timings compared .* import torch' "$work/out" &&
        grep '^dev.mlp_step_64-64-10_b32_graph_speedup ' "$work/out"
}

wrong_usage() {
    "$script" "$LIBCORE_BUILD" >"$work/out" 2>&1
    [ $? = 2 ] && grep '^usage: gpu-tests' "$work/out" || return
    "$script" "$LIBCORE_BUILD" sim speed >"$work/out" 2>&1
    [ $? = 2 ] || return
    "$script" "$LIBCORE_BUILD" nothing >"$work/out" 2>&1
    [ $? = 2 ] && grep 'has no core_nothing.so' "$work/out"
}

# A build with only a plugin, in the folder given, and fake programs that print
# where they would look for it.
looks() { # folder, device, command that contains $work/build...
    rm -rf "$work/build"
    mkdir -p "$work/build/$1"
    : >"$work/build/$1/core_${2%:*}.so"
    for name in core-conformance core-info core-bench; do
        # shellcheck disable=SC2016 # expanded by the fake program
        printf '#!/bin/sh\necho "plugin path: $LIBCORE_PLUGIN_PATH:" >&2\nexit 1\n' \
            >"$work/build/$name"
        chmod +x "$work/build/$name"
    done
    looks_at=$work/build/$1:
    shift 2
    env -u LIBCORE_PLUGIN_PATH "$@" >"$work/out" 2>&1
    cat "$work/out"
    grep -F "plugin path: $work/build/.libs:" "$work/out" | grep -F "$looks_at"
}

finds() { # folder, device
    looks "$1" "$2" "$script" "$work/build" "$2" device &&
        looks "$1" "$2" "${script%/*}/bench-vs-torch" --device "$2" "$work/build"
}

# Without the environment of the build and of Check.
staged() {
    "$LIBCORE_SOURCE/tools/gpu-stage" --no-data "$LIBCORE_BUILD" sim \
        "$work/stage" >"$work/out" 2>&1 || return
    env -u LIBCORE_BUILD -u LIBCORE_SOURCE -u LIBCORE_PLUGIN_PATH \
        "$work/stage/tools/gpu-tests" --short --report "$work/report" \
        "$work/stage/build" sim device golden >>"$work/out" 2>&1
    cat "$work/out"
    grep '^PASS: sim is found' "$work/out" &&
        grep '^golden on sim: [1-9][0-9]* passed, 0 failed' "$work/out" &&
        grep '^golden, current, on sim: [1-9][0-9]* passed, 0 failed' \
            "$work/out" &&
        [ -x "$work/stage/build/tests/unit/gpu/test_gpu_rows" ] &&
        ls "$work"/stage/build/.libs/libcore.so.0 &&
        # In the stage, not in the build folder that the programs name.
        env LD_LIBRARY_PATH="$work/stage/build/.libs" \
            ldd "$work/stage/build/tests/unit/gpu/test_gpu_rows" |
        grep 'libcore_internal.so => .*/stage/'
}

no_foreign_folder() {
    mkdir -p "$work/foreign"
    : >"$work/foreign/file"
    ! "$LIBCORE_SOURCE/tools/gpu-stage" --no-data "$LIBCORE_BUILD" sim \
        "$work/foreign" >"$work/out" 2>&1 || return
    cat "$work/out"
    [ -f "$work/foreign/file" ] && grep 'was not created by gpu-stage' "$work/out"
}

echo 1..13
ok staged_folder_runs_elsewhere staged
ok foreign_folder_is_not_replaced no_foreign_folder
ok every_part_runs parts
ok report_has_all_results reported
ok failures_are_counted fails
ok libcore_is_timed_without_pytorch figures
ok wrong_usage_is_an_error wrong_usage
ok gpu_tests_prints_its_usage sh -c "'$LIBCORE_SOURCE/tools/gpu-tests' --help |
    grep '^  gpu-tests '"
ok bench_vs_torch_prints_its_usage sh -c "'$LIBCORE_SOURCE/tools/bench-vs-torch' --help |
    grep '^  bench-vs-torch '"
ok plugin_of_cuda_is_found finds backends/cuda/.libs cuda:1
ok plugin_of_rocm_is_found finds backends/rocm/.libs rocm
ok plugin_of_hipnv_is_found finds backends/rocm/nvidia/.libs hipnv
ok plugin_of_opencl_is_found finds plugins/opencl/.libs opencl
