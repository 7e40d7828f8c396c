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

ok() { # name, command...
    name=$1
    shift
    number=$((number + 1))
    if "$@" >"$work/log" 2>&1; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        tail -n 20 "$work/log" | sed 's/^/# /'
    fi
}

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

if [ -f "$emulated/core_gpuemu.so" ]; then
    LIBCORE_PLUGIN_PATH=$LIBCORE_BUILD/.libs:$emulated
    export LIBCORE_PLUGIN_PATH
    for warp in 32 64; do
        ok "recorded cases pass with warps of $warp" env GPUEMU_WARP=$warp \
            "$LIBCORE_BUILD/core-conformance" --golden "$golden" \
            --device gpuemu --required "$LIBCORE_SOURCE/tests/gpu-operators.txt"
    done
    for program in test_attention test_optim_fused test_gpu_large; do
        ok "$program with warps of 64" env GPUEMU_WARP=64 \
            "$LIBCORE_BUILD/tests/unit/$program"
    done
    ok "recorded cases pass with a vendor's library of products" env GPUEMU_BLAS=1 \
        "$LIBCORE_BUILD/core-conformance" --golden "$golden" \
        --device gpuemu --required "$LIBCORE_SOURCE/tests/gpu-operators.txt"
    ok 'level core is passed' says 'level reached: core' \
        "$LIBCORE_BUILD/core-conformance" --level core \
        --plugin "$emulated/core_gpuemu.so"
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
vendor() { # name, folder, pattern of what it must not need
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
    ok "core_$1.so has at most 40 MB" sh -c "
        test \$(wc -c <'$file') -le 41943040"
    if grep -qE "^ *$1 .*streams" "$work/out"; then
        ok "recorded cases pass on $1" replay "$1" \
            --required "$LIBCORE_SOURCE/tests/gpu-operators.txt"
    else
        ok "$1 says why it has no device" says "$1.*(no |too old|does not)" \
            "$LIBCORE_BUILD/core-info"
        skip "recorded cases on $1" 'no device here'
    fi
}
# A vendor's driver that is none (tests/fixtures/gpu) runs the emulated kernels:
# of the plugin all but the images is what a GPU would have.
fakes=$LIBCORE_BUILD/tests/fixtures/gpu/.libs
behind_fakes() { # name, folder, libraries...
    vendor=$1
    file=$LIBCORE_BUILD/$2/.libs/core_$1.so
    shift 2
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
    ok "recorded cases pass on $vendor behind a driver that is none: $*" \
        env LD_LIBRARY_PATH="$work/$vendor" \
        "$LIBCORE_BUILD/core-conformance" --golden "$golden" \
        --device "$vendor" --required "$LIBCORE_SOURCE/tests/gpu-operators.txt"
    ok "level core is passed by $vendor behind a driver that is none: $*" \
        says 'level reached: core' env LD_LIBRARY_PATH="$work/$vendor" \
        "$LIBCORE_BUILD/core-conformance" --level core --plugin "$file"
    rm -r "${work:?}/$vendor"
}

vendor cuda backends/cuda 'libcuda|libcublas|libnv'
behind_fakes cuda backends/cuda libcuda.so.1
for cublas in "$fakes"/libcublas.so.??; do
    behind_fakes cuda backends/cuda libcuda.so.1 "${cublas##*/}"
done
vendor rocm backends/rocm 'libamdhip|librocblas|libhsa'
echo "1..$number"
