# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# kernels (--full, or by name): compiles the kernels, optimized, for every
# architecture whose compiler is installed, and HIP for NVIDIA GPUs.  Needs no
# GPU.
section_kernels() {
    unset NVCCFLAGS HIPCCFLAGS CUDA_TARGETS CUDA_EMPTY_IMAGES HIP_EMPTY_IMAGES
    copy_images=no
    for row in cuda:cuda:nvcc rocm:hip:hipcc; do
        name=${row%%:*}
        with=${row#*:}
        compiler=${row##*:}
        if ! have "$compiler" && [ ! -x "/usr/local/cuda/bin/$compiler" ] &&
            [ ! -x "/opt/rocm/bin/$compiler" ]; then
            skip "$name, all architectures" "no $compiler"
            continue
        fi
        build "$name, all architectures" "$work/$name" --with-"${with%:*}" &&
            gpu_size "$work/$name" "$name" && gpu_load "$work/$name" "$name"
    done
    hipnv
}

hipnv() {
    mkdir -p "$work/hipnv"
    if [ ! -f "$work/hipnv/Makefile" ] && ! (cd "$work/hipnv" &&
        "$source/configure" -q --with-hipnv --without-hip) \
        >"$logs/hipnv.txt" 2>&1; then
        reason=$(sed -n 's/^configure: error: --with-hipnv: //p' \
            "$logs/hipnv.txt")
        if [ -n "$reason" ]; then
            skip "hipnv" "$reason"
        else
            fail "hipnv: configure failed" "$logs/hipnv.txt"
        fi
        return
    fi
    build "hipnv" "$work/hipnv" || return
    # shellcheck disable=SC2046 # empty or one option
    try "hipnv links" make -C "$work/hipnv" $(parallel) \
        backends/rocm/nvidia/core_hipnv.la || return
    try "hipnv is loaded" sh -c "
        LIBCORE_PLUGIN_PATH='$work/hipnv/backends/rocm/nvidia/.libs' \
            '$work/hipnv/core-info' | grep -E '^ *hipnv  *loaded'"
}

# At most 40 MB of core_cuda.so, and 80 MB of core_rocm.so, since HIP 5's
# compiler does not compress code.
gpu_size() { # build, name
    bytes=$(wc -c <"$1/backends/$2/.libs/core_$2.so")
    most=41943040
    [ "$2" != rocm ] || most=83886080
    if [ "$bytes" -le $most ]; then
        pass "core_$2.so is $bytes bytes, at most $most"
    else
        fail "core_$2.so is $bytes bytes, more than $most"
    fi
}

# Without a GPU, core-info loads the plugin in at most 100 million instructions
# (20 ms).
gpu_load() { # build, name
    if [ -e /dev/nvidiactl ] || [ -e /dev/kfd ]; then
        skip "core_$2.so's load without a GPU" "this machine has one"
        return
    fi
    LD_LIBRARY_PATH=$1/.libs LIBCORE_PLUGIN_PATH=$1/backends/$2/.libs \
        valgrind --tool=callgrind --toggle-collect=main \
        --callgrind-out-file=/dev/null "$1/.libs/core-info" \
        >"$logs/load-$2.txt" 2>&1
    count=$(sed -n 's/^.*Collected *: *\([0-9]*\).*/\1/p' "$logs/load-$2.txt")
    if ! grep -qE "^ *$2  *loaded" "$logs/load-$2.txt"; then
        fail "core_$2.so is not loaded" "$logs/load-$2.txt"
    elif [ "${count:-0}" -gt 0 ] && [ "$count" -le 100000000 ]; then
        pass "core_$2.so is loaded without a GPU in $count instructions"
    else
        fail "core_$2.so is loaded without a GPU in ${count:-no} instructions"
    fi
}
