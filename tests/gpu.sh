#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# backends/gpu: the kernels and their host side on the emulated device, with
# both widths of warps; the plugins of vendors load without a GPU, say why there
# is no device, and want no vendor's library.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
emulated=$LIBCORE_BUILD/backends/gpu/emulated/.libs
golden=$LIBCORE_SOURCE/tests/golden/public

# shellcheck source=tests/fixtures/ok.sh
. "$LIBCORE_SOURCE/tests/fixtures/ok.sh"

skip() { # name, reason
    number=$((number + 1))
    echo "ok $number - $1 # SKIP $2"
}

says() { # pattern, command...
    pattern=$1
    shift
    "$@" >"$work/out" 2>&1
    cat "$work/out"
    grep -qE "$pattern" "$work/out"
}

replay() { # device, arguments...
    device=$1
    shift
    "$LIBCORE_BUILD/core-conformance" --golden "$golden" --device "$device" \
        "$@"
}

recorded() { # setting
    env "$1" "$LIBCORE_BUILD/core-conformance" --golden "$golden" \
        --device gpuemu --required "$LIBCORE_SOURCE/tests/gpu-operators.txt"
}

in_other_ways() {
    ok "recorded cases pass where blocks and threads run in other orders" \
        recorded GPUEMU_ORDER=1
    # A launch of few blocks: what no block has is left to the next round of
    # those that are there, as with more rows than a GPU takes blocks.
    ok 'recorded cases pass in launches of few blocks' recorded GPUEMU_BLOCKS=3
    for program in test_attention test_optim_fused; do
        ok "$program in launches of few blocks" env GPUEMU_BLOCKS=3 \
            "$LIBCORE_BUILD/tests/unit/$program"
    done
    for program in test_attention test_optim_fused test_gpu_large test_gpu_held; do
        ok "$program with warps of 64" env GPUEMU_WARP=64 \
            "$LIBCORE_BUILD/tests/unit/$program"
    done
    ok "recorded cases pass with a vendor's library of products" \
        recorded GPUEMU_BLAS=1
}

# LIBCORE_TEST_SLOW: what differs in a setting alone is left out.
slow=${LIBCORE_TEST_SLOW-}
if [ -f "$emulated/core_gpuemu.so" ]; then
    LIBCORE_PLUGIN_PATH=$LIBCORE_BUILD/.libs:$emulated
    export LIBCORE_PLUGIN_PATH
    warps='32 64'
    [ -z "$slow" ] || warps=64
    for warp in $warps; do
        ok "recorded cases pass with warps of $warp" recorded "GPUEMU_WARP=$warp"
    done
    [ -n "$slow" ] || in_other_ways
    ok 'level core is passed' says 'level reached: core' \
        "$LIBCORE_BUILD/core-conformance" --level core \
        --timeout 600 --plugin "$emulated/core_gpuemu.so"
    ok 'no device, and the reason' says 'GPUEMU_DEVICES is 0' \
        env GPUEMU_DEVICES=0 "$LIBCORE_BUILD/core-info"
    ok 'a device that is lost says so from then on' \
        says 'device must be opened again' \
        env GPUEMU_LOSE_AFTER=5 "$LIBCORE_BUILD/core-conformance" \
        --golden "$golden" --device gpuemu --filter add.Tensor
else
    skip 'the emulated device' 'no C++ compiler was found'
fi

# Where the compiler of kernels is.
vendor() { # name, folder, pattern of what it must not need, MB at most
    file=$LIBCORE_BUILD/$2/.libs/core_$1.so
    if [ ! -f "$file" ]; then
        skip "$1" "configure says why core_$1.so is not built"
        return
    fi
    LIBCORE_PLUGIN_PATH=$LIBCORE_BUILD/.libs:$LIBCORE_BUILD/$2/.libs
    export LIBCORE_PLUGIN_PATH
    ok "core_$1.so is loaded" says "^ *$1  *loaded" "$LIBCORE_BUILD/core-info"
    ok "core_$1.so needs no library of the vendor's" sh -c "
        ! readelf -d '$file' | grep NEEDED | grep -E '$3'"
    ok "core_$1.so has at most $4 MB" sh -c "
        test \$(wc -c <'$file') -le $(($4 * 1048576))"
    if grep -qE "^ *$1 .*streams" "$work/out"; then
        ok "recorded cases pass on $1" replay "$1" \
            --required "$LIBCORE_SOURCE/tests/gpu-operators.txt"
    else
        ok "$1 says why it has no device" says "$1.*(no |too old|does not)" \
            "$LIBCORE_BUILD/core-info"
        skip "recorded cases on $1" 'no device here'
    fi
}
# Matrix units of CDNA, and of nothing else, where no library multiplies.
hipcc=$(sed -n 's/^HIPCC = //p' "$LIBCORE_BUILD/Makefile")
units() { # architecture, how many kernels have some
    TMPDIR=$work "$hipcc" --cuda-device-only -S -x hip "--offload-arch=$1" -std=c++17 -O0 \
        -w -ffp-contract=off -I "$LIBCORE_SOURCE/backends" -o "$work/$1.s" \
        "$LIBCORE_SOURCE/backends/gpu/kernels/matmul.cu" &&
        awk '/^matmul_[a-z0-9_]*:/ { kernel = $1 }
            /v_mfma_f32_16x16x4/ && !seen[kernel]++ { print kernel; count++ }
            END { exit count + 0 != '"$2"' }' "$work/$1.s"
}
for row in gfx906:0 gfx908:5 gfx90a:5 gfx1030:0; do
    name="matrix units in ${row#*:} kernels of products on ${row%:*}"
    if [ -z "$hipcc" ] || [ ! -f "$LIBCORE_BUILD/backends/rocm/.libs/core_rocm.so" ]; then
        skip "$name" 'no hipcc'
    else
        ok "$name" units "${row%:*}" "${row#*:}"
    fi
done

# A vendor's driver that is none (tests/fixtures/gpu) runs the emulated kernels:
# of the plugin all but the images is what a GPU would have.
fakes=$LIBCORE_BUILD/tests/fixtures/gpu/.libs
settings=
behind_fakes() { # name, folder, libraries...; with $settings
    vendor=$1
    file=$LIBCORE_BUILD/$2/.libs/core_$1.so
    shift 2
    # With a library of products alone.
    [ -z "$slow" ] || [ "${2#*blas}" != "${2-}" ] || return 0
    if [ ! -f "$file" ] || [ ! -f "$fakes/$1" ]; then
        skip "$vendor behind a driver that is none" 'it is not built'
        return
    fi
    mkdir "$work/$vendor"
    for library; do
        ln -s "$fakes/$library" "$work/$vendor/$library"
    done
    LIBCORE_PLUGIN_PATH=$LIBCORE_BUILD/.libs:$(dirname "$file")
    export LIBCORE_PLUGIN_PATH
    # shellcheck disable=SC2086 # words are meant
    ok "recorded cases pass on $vendor behind a driver that is none: $*" \
        env LD_LIBRARY_PATH="$work/$vendor" $settings \
        "$LIBCORE_BUILD/core-conformance" --golden "$golden" \
        --device "$vendor" --required "$LIBCORE_SOURCE/tests/gpu-operators.txt"
    # shellcheck disable=SC2086 # words are meant
    ok "level core is passed by $vendor behind a driver that is none: $*" \
        says 'level reached: core' env LD_LIBRARY_PATH="$work/$vendor" \
        $settings "$LIBCORE_BUILD/core-conformance" --level core \
        --timeout 600 --plugin "$file"
    rm -r "${work:?}/$vendor"
}

vendor cuda backends/cuda 'libcuda|libcublas|libcudnn|libnv' 40
if [ -f "$LIBCORE_BUILD/backends/cuda/.libs/core_cuda.so" ]; then
    mkdir "$work/broken"
    seq 1000 >"$work/broken/libcuda.so.1"
    ok 'a driver that is no library is told from one that is not there' \
        says 'cuda .*no NVIDIA driver here: .*libcuda.so.1: .*ELF header' \
        env LD_LIBRARY_PATH="$work/broken" "$LIBCORE_BUILD/core-info"
else
    skip 'a driver that is no library' 'core_cuda.so is not built'
fi
behind_fakes cuda backends/cuda libcuda.so.1
for cublas in "$fakes"/libcublas.so.??; do
    behind_fakes cuda backends/cuda libcuda.so.1 "${cublas##*/}"
done
settings=LIBCORE_CUDA_CUDNN=1
behind_fakes cuda backends/cuda libcuda.so.1 libcudnn.so.9
settings=
# HIP 5's compiler does not compress code: 17 MB for each architecture.
vendor rocm backends/rocm 'libamdhip|librocblas|libhsa' 80
# HIP's library is looked for behind /dev/kfd, or where the program has it.  A
# sanitizer's has to come before it, and looks at the shell, too, then.
before=$(ldd "$LIBCORE_BUILD/.libs/libcore.so" |
    sed -n 's/.*lib[at]san[^ ]* => \([^ ]*\) .*/\1:/p')
quiet=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
for hip in "$fakes"/libamdhip64.so.?; do
    hip=${hip##*/}
    settings="LD_PRELOAD=$before$hip ${before:+ASAN_OPTIONS=$quiet}"
    behind_fakes rocm backends/rocm "$hip"
    settings="$settings GPUEMU_WARP=64"
    for blas in "$fakes"/librocblas.so.?; do
        behind_fakes rocm backends/rocm "$hip" "${blas##*/}"
    done
done
echo "1..$number"
