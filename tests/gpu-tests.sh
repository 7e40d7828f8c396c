#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# tools/gpu-tests, which no machine of ours runs as it is meant: on the simulated
# device it does the same but for the vendor's tools.
script=$LIBCORE_SOURCE/tools/gpu-tests
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/fixtures/ok.sh
. "$LIBCORE_SOURCE/tests/fixtures/ok.sh"

parts() {
    "$script" --short --report "$work/report" "$LIBCORE_BUILD" sim device \
        golden conformance sanitizer >"$work/out" 2>&1 || {
        cat "$work/out"
        return 1
    }
    grep '^PASS: sim is there' "$work/out" &&
        grep '^golden on sim: [1-9][0-9]* passed, 0 failed' "$work/out" &&
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

# A device that is lost before the end.
fails() {
    ! LIBCORE_LAYERS=fault LIBCORE_FAULT=launch:9+ "$script" --short \
        "$LIBCORE_BUILD" sim golden >"$work/out" 2>&1 || return
    cat "$work/out"
    tail -n 1 "$work/out" | grep -E ', [1-9][0-9]* failed, '
}

# Without PyTorch, libcore's figures; a Python that is none stands for that.
figures() {
    printf '#!/bin/sh\necho "No module named torch" >&2\nexit 1\n' \
        >"$work/python"
    chmod +x "$work/python"
    PYTHON=$work/python "$script" --short "$LIBCORE_BUILD" sim bench \
        >"$work/out" 2>&1
    got=$?
    cat "$work/out"
    [ $got = 0 ] && grep '^SKIP: figures against .* No module' "$work/out" &&
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

# A build that has nothing but a plugin, wherever that is made, and programs that
# say where they would look for it.
looks() { # folder, device, program, arguments... of which BUILD is one
    rm -rf "$work/build"
    mkdir -p "$work/build/$1"
    : >"$work/build/$1/core_${2%:*}.so"
    for stands in core-conformance core-info core-bench; do
        # shellcheck disable=SC2016 # the script that is written expands it
        printf '#!/bin/sh\necho "looks at $LIBCORE_PLUGIN_PATH:" >&2\nexit 1\n' \
            >"$work/build/$stands"
        chmod +x "$work/build/$stands"
    done
    looks_at=$work/build/$1:
    shift 2
    env -u LIBCORE_PLUGIN_PATH "$@" >"$work/out" 2>&1
    cat "$work/out"
    grep -F "looks at $work/build/.libs:" "$work/out" | grep -F "$looks_at"
}

finds() { # folder, device
    looks "$1" "$2" "$script" "$work/build" "$2" device &&
        looks "$1" "$2" "${script%/*}/bench-vs-torch" --device "$2" "$work/build"
}

# Without a word of where it was built, or of Check.
staged() {
    "$LIBCORE_SOURCE/tools/gpu-stage" --no-data "$LIBCORE_BUILD" sim \
        "$work/stage" >"$work/out" 2>&1 || return
    env -u LIBCORE_BUILD -u LIBCORE_SOURCE -u LIBCORE_PLUGIN_PATH \
        "$work/stage/tools/gpu-tests" --short --report "$work/report" \
        "$work/stage/build" sim device golden >>"$work/out" 2>&1
    cat "$work/out"
    grep '^PASS: sim is there' "$work/out" &&
        grep '^golden on sim: [1-9][0-9]* passed, 0 failed' "$work/out" &&
        [ -x "$work/stage/build/tests/unit/gpu/test_gpu_rows" ] &&
        ls "$work"/stage/build/.libs/libcore.so.0
}

no_foreign_folder() {
    mkdir -p "$work/foreign"
    : >"$work/foreign/file"
    ! "$LIBCORE_SOURCE/tools/gpu-stage" --no-data "$LIBCORE_BUILD" sim \
        "$work/foreign" >"$work/out" 2>&1 || return
    cat "$work/out"
    [ -f "$work/foreign/file" ] && grep 'none of mine' "$work/out"
}

echo 1..13
ok 'what is staged runs elsewhere' staged
ok 'a folder of others is left alone' no_foreign_folder
ok 'every part runs' parts
ok 'and is reported' reported
ok 'what fails is counted' fails
ok 'without PyTorch there are figures of libcore' figures
ok 'wrong usage is told' wrong_usage
ok 'gpu-tests says how it is used' sh -c "'$LIBCORE_SOURCE/tools/gpu-tests' --help |
    grep '^  gpu-tests '"
ok 'so does bench-vs-torch' sh -c "'$LIBCORE_SOURCE/tools/bench-vs-torch' --help |
    grep '^  bench-vs-torch '"
ok 'the plugin of cuda is found' finds backends/cuda/.libs cuda:1
ok 'the plugin of rocm is found' finds backends/rocm/.libs rocm
ok 'the plugin of hipnv is found' finds backends/rocm/nvidia/.libs hipnv
ok 'the plugin of opencl is found' finds plugins/opencl/.libs opencl
