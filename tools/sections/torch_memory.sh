# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# torch_memory (by name): the shim for PyTorch, and libcore, under the address
# sanitizer and under valgrind, with the Python of the section torch.  The shim has no
# tests in C++; these are those of Python, but
#
# - judges, which uses no device; op_db and module_db, which call operators hundreds of
#   times by the same functions; wheel, which runs a program that others test; native,
#   whose library is not instrumented; those of distributed whose ranks MPI starts; and
#   leaks, which reads malloc's own count.
#
# Neither torch nor Python is instrumented, and both leave memory when they end:
# of leaks count those whose memory the shim or libcore asked for.  Reports go to
# files, and a process with a report ends with success, since tests expect errors of
# processes that they start: the files are what counts.  Python's own allocator
# would hide from the sanitizer what it points to.  libstdc++ comes along, since the
# sanitizer needs its function that throws.
# shellcheck source=tools/sections/torch_python.sh
. tools/sections/torch_python.sh

section_torch_memory() {
    find_torch_python || return
    sanitizer_options
    tree=$work/torch_asan
    build "torch: address sanitizer" "$tree" --enable-sanitize=address \
        --with-torch="$python" --without-cuda --without-hip \
        CFLAGS="$little_optimized" CPU_OPTIMIZATION=-Og \
        TORCH_CXXFLAGS='-O1 -g1' || return
    files=$logs/reports
    rm -rf "$files" && mkdir -p "$files"
    use_build "$tree"
    if [ -d "$tree/plugins/opencl/.libs" ]; then
        LIBCORE_PLUGIN_PATH=$LIBCORE_PLUGIN_PATH:$tree/plugins/opencl/.libs
    fi
    ASAN_OPTIONS=$ASAN_OPTIONS:exitcode=0:log_path=$files/report
    ASAN_OPTIONS=$ASAN_OPTIONS:stack_trace_format='"    #%n %m %F %S"'
    preload="$(gcc -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so.6)"
    try "torch: engines for collectives under the address sanitizer" \
        make -C "$tree" tests/fixtures/core_sockets.la \
        tests/fixtures/core_own_engine.la
    for test in smoke mixed out features exchange tools examples distributed; do
        only=
        [ $test != distributed ] ||
            only='-k engine_ -k batch -k end_of_a_group -k aborted'
        # shellcheck disable=SC2086 # a list
        try "torch under the address sanitizer: $test" env \
            LD_PRELOAD="$preload" PYTHONMALLOC=malloc \
            PYTHONPATH="$source/bindings/pytorch" LIBCORE_BUILD="$tree" \
            LIBCORE_TORCH_SHIM="$tree/bindings/pytorch/libcore_torch" \
            "$python" "$source/bindings/pytorch/tests/test_$test.py" -v $only
    done
    try "torch: reports of the address sanitizer" no_reports "$files" "$tree/"
    torch_valgrind
}

# test_smoke.py under valgrind, which finds uninitialised reads, too.  Leaks are the
# sanitizer's: when this process ends, valgrind does not search all memory for pointers.
# It also takes the guards of torch's own devices for lost, to which the same table in
# libc10 points as to the shim's.
torch_valgrind() {
    if ! have valgrind; then
        skip "torch under valgrind" "no valgrind"
        return
    fi
    tree=$work/torch
    build "torch" "$tree" --with-torch="$python" --without-cuda \
        --without-hip || return
    files=$logs/valgrind-reports
    rm -rf "$files" && mkdir -p "$files"
    use_build "$tree"
    if [ -d "$tree/plugins/opencl/.libs" ]; then
        LIBCORE_PLUGIN_PATH=$LIBCORE_PLUGIN_PATH:$tree/plugins/opencl/.libs
    fi
    try "torch under valgrind: smoke" env PYTHONMALLOC=malloc \
        OMP_NUM_THREADS=1 PYTHONPATH="$source/bindings/pytorch" \
        LIBCORE_BUILD="$tree" \
        LIBCORE_TORCH_SHIM="$tree/bindings/pytorch/libcore_torch" \
        valgrind --log-file="$files/report.%p" --num-callers=40 \
        --fullpath-after= --leak-check=no \
        "$python" "$source/bindings/pytorch/tests/test_smoke.py" -v
    try "torch: reports of valgrind" no_valgrind_reports "$files" "$source/" \
        "$tree/"
}

# Prints the errors whose first caller, but for the C and C++ libraries, is in our
# sources or libraries, or is not known: neither Python nor torch is free of errors.
no_valgrind_reports() { # folder, beginnings of the names of our files
    find "$1" -type f -exec cat {} + | awk -v sources="$2" -v tree="$3" '
        { sub(/^==[0-9]+== ?/, "") }
        /ERROR SUMMARY/ { ended = 1 }
        !/^ *(at|by) 0x/ { if (shown) print block; block = caller = shown = "" }
        { block = block "\n" $0 }
        /^ *(at|by) 0x/ && !caller && !/vg_replace|vgpreload|\/lib(c|stdc\+\+)\.so/ {
            caller = 1
            if (index($0, "(" sources) || index($0, "(in " tree) || /\?\?\?/)
                shown = bad = 1
        }
        # A line that says what follows belongs to the block.
        !/^ *(at|by) 0x/ { block = $0 }
        END { if (shown) print block
              if (!ended) print "valgrind wrote no summary"
              exit bad || !ended }'
}

# Prints the reports that count, and fails if there is one.
no_reports() { # folder, beginning of the names of our libraries
    find "$1" -type f -exec cat {} + | awk -v ours="$2" '
        /ERROR: AddressSanitizer/ { whole = bad = 1 }
        whole { print; next }
        /^(Direct|Indirect) leak of/ { block = $0; caller = shown = 0; next }
        /^ *#[0-9]+ / {
            if (shown) print
            block = block "\n" $0
            if (caller || $2 ~ /\/lib(asan|stdc\+\+|c)\.so/) next
            caller = 1
            if (index($2, ours) == 1) { print block; shown = bad = 1 }
        }
        END { exit bad }'
}
