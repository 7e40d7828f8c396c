#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# backends/gpu: the kernels and the host side on the emulated device, with both
# warp widths.  The vendors' plugins load without a GPU, report why there is no
# device, and do not link to a vendor's library.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
emulated=$LIBCORE_BUILD/backends/gpu/emulated/.libs
golden=$LIBCORE_SOURCE/tests/golden

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"
# shellcheck source=tests/support/train.sh
. "$LIBCORE_SOURCE/tests/support/train.sh"

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

# replay DEVICE SETTING…: the recorded cases of both versions of PyTorch.
replay() {
    device=$1
    shift
    for required in public current-gpu; do
        env "$@" "$LIBCORE_BUILD/core-conformance" \
            --golden "$golden/${required%-gpu}" \
            --device "$device" --required "$golden/$required.ops" || return
    done
}

recorded() { # settings...
    replay gpuemu "$@"
}

in_other_ways() {
    # With few blocks in a launch, kernels have to loop, as for more rows than a
    # GPU allows blocks.
    ok recorded_cases_pass_in_another_order_with_few_blocks_and_a_blas_library \
        recorded GPUEMU_ORDER=1 GPUEMU_BLOCKS=3 GPUEMU_BLAS=1
    # Attention takes a quarter of a minute.
    for program in ${LIBCORE_TEST_LONG:+ops/test_attention} \
        optim/test_optim_fused; do
        ok "$(basename "$program")_passes_with_few_blocks" env GPUEMU_BLOCKS=3 \
            "$LIBCORE_BUILD/tests/unit/$program"
    done
    for program in ops/test_attention optim/test_optim_fused \
        gpu/test_gpu_large gpu/test_gpu_row_registers; do
        # Of row_registers fewer lengths and dtypes, as under a sanitizer.
        fewer=
        [ "$program" != gpu/test_gpu_row_registers ] ||
            [ -n "${LIBCORE_TEST_LONG-}" ] || fewer=LIBCORE_TEST_SLOW=1
        # shellcheck disable=SC2086 # empty or one setting
        ok "$(basename "$program")_passes_with_warps_of_64" env GPUEMU_WARP=64 \
            $fewer "$LIBCORE_BUILD/tests/unit/$program"
    done
    [ -n "${LIBCORE_TEST_LONG-}" ] || return 0
    ok recorded_cases_pass_in_other_orders recorded GPUEMU_ORDER=1
    ok recorded_cases_pass_with_few_blocks recorded GPUEMU_BLOCKS=3
    ok recorded_cases_pass_with_a_blas_library recorded GPUEMU_BLAS=1
}

# Compiles loop programs for the emulated device, and as the fake NVRTC and
# hipRTC.
compiler=$(sed -n 's/^CXX_CHECK = //p' "$LIBCORE_BUILD/Makefile")
GPUEMU_COMPILER="${compiler#ccache } -I $LIBCORE_SOURCE/backends"
# LIBCORE_TEST_SLOW: skips cases that differ only in a setting.
slow=${LIBCORE_TEST_SLOW-}
# LIBCORE_TEST_SANITIZED: skips what a sanitizer's tree runs with the same settings.
sanitized=${LIBCORE_TEST_SANITIZED-}
export GPUEMU_COMPILER

if [ -f "$emulated/core_gpuemu.so" ]; then
    LIBCORE_PLUGIN_PATH=$LIBCORE_BUILD/.libs:$emulated
    export LIBCORE_PLUGIN_PATH
    warps='32 64'
    [ -z "$slow" ] || warps=64
    [ -z "$sanitized" ] || warps=32
    for warp in $warps; do
        ok "recorded_cases_pass_with_warps_of_$warp" recorded "GPUEMU_WARP=$warp"
    done
    [ -n "$slow" ] || in_other_ways
    # Under a sanitizer without the compiler, which the fake NVRTC uses there.
    level_compiler=$GPUEMU_COMPILER
    [ -z "$slow" ] || level_compiler=
    # The level is reached with a fake driver below, if a vendor's plugin was built.
    if [ -z "$sanitized" ] ||
        [ ! -f "$LIBCORE_BUILD/backends/cuda/.libs/core_cuda.so" ]; then
        ok conformance_level_core_is_reached says 'level reached: core' \
            env "GPUEMU_COMPILER=$level_compiler" \
            "$LIBCORE_BUILD/core-conformance" --level core \
            --timeout 600 --plugin "$emulated/core_gpuemu.so"
    fi
    [ -n "$slow" ] || ok loop_programs_are_compiled says 'codegen/layouts$' \
        "$LIBCORE_BUILD/core-conformance" --plugin "$emulated/core_gpuemu.so" \
        --level core --filter core/codegen/layouts
    ok loop_programs_without_a_compiler_are_refused says \
        'SKIP not claimed' env GPUEMU_COMPILER= \
        "$LIBCORE_BUILD/core-conformance" --plugin "$emulated/core_gpuemu.so" \
        --level core --filter core/codegen/layouts
    ok operators_of_training_are_complete says 'level training no failure: 1' \
        "$LIBCORE_BUILD/core-conformance" --plugin \
        "$emulated/core_gpuemu.so" --filter training/operators/are-complete
    ok_kernel_lists operators_without_kernels_are_documented gpuemu \
        backends/gpu/README.md
    ok missing_device_has_a_reason says 'GPUEMU_DEVICES is 0' \
        env GPUEMU_DEVICES=0 "$LIBCORE_BUILD/core-info"
    ok lost_device_stays_lost \
        says 'the device is lost' \
        env GPUEMU_LOSE_AFTER=5 "$LIBCORE_BUILD/core-conformance" \
        --golden "$golden/public" --device gpuemu --filter add.Tensor
else
    skip emulated_device 'no C++ compiler was found'
fi

# The plugins of vendors, if their kernel compilers were found.
vendor() { # name, folder, pattern of libraries not to link to
    file=$LIBCORE_BUILD/$2/.libs/core_$1.so
    if [ ! -f "$file" ]; then
        skip "$1" "core_$1.so was not built (configure reports why)"
        return
    fi
    LIBCORE_PLUGIN_PATH=$LIBCORE_BUILD/.libs:$LIBCORE_BUILD/$2/.libs
    export LIBCORE_PLUGIN_PATH
    ok "core_$1_is_loaded" says "^ *$1  *loaded" "$LIBCORE_BUILD/core-info"
    ok "core_$1_links_to_no_vendor_library" sh -c "
        ! readelf -d '$file' | grep NEEDED | grep -E '$3'"
    if grep -qE "^ *$1 .*streams" "$work/out"; then
        ok "recorded_cases_pass_on_$1" replay "$1"
    else
        ok "$1_reports_why_there_is_no_device" says "$1.*(no |too old|does not)" \
            "$LIBCORE_BUILD/core-info"
        skip "recorded_cases_pass_on_$1" 'no device'
    fi
}
# The plugin's own products use matrix units, on CDNA only.
hipcc=$(sed -n 's/^HIPCC = //p' "$LIBCORE_BUILD/Makefile")
units() { # architecture, number of kernels that use them
    TMPDIR=$work "$hipcc" --cuda-device-only -S -x hip "--offload-arch=$1" -std=c++17 -O0 \
        -w -ffp-contract=off -I "$LIBCORE_SOURCE/backends" -o "$work/$1.s" \
        "$LIBCORE_SOURCE/backends/gpu/kernels/matmul.cu" &&
        awk '/^matmul_[a-z0-9_]*:/ { kernel = $1 }
            /v_mfma_f32_16x16x4/ && !seen[kernel]++ { print kernel; count++ }
            END { exit count + 0 != '"$2"' }' "$work/$1.s"
}
rows='gfx906:0 gfx90a:5'
[ -z "${LIBCORE_TEST_LONG-}" ] || rows="$rows gfx908:5 gfx1030:0"
[ -z "$slow" ] || rows=
for row in $rows; do
    name="${row#*:}_kernels_use_matrix_units_on_${row%:*}"
    if [ -z "$hipcc" ] || [ ! -f "$LIBCORE_BUILD/backends/rocm/.libs/core_rocm.so" ]; then
        skip "$name" 'no hipcc'
    else
        ok "$name" units "${row%:*}" "${row#*:}"
    fi
done

# A fake driver (tests/fixtures/gpu) runs the emulated kernels: everything in the
# plugin except the images is tested.
fakes=$LIBCORE_BUILD/tests/fixtures/gpu/.libs
settings=
level_reached=
[ -n "$slow" ] || data_set idx_images "$work/data" 12 1
seq 1000 1100 >"$work/text"
# steps MODEL ARGUMENT…: a few, on $vendor with its fake driver.
steps() {
    model=$1 data="--data $work/data"
    shift
    [ "$model" != gpt ] || data="--text $work/text --context 8 --layers 1
        --heads 2 --width 16"
    # shellcheck disable=SC2086 # word splitting is intended
    env LD_LIBRARY_PATH="$work/$vendor" $settings "$train" --json $data \
        --model "$model" --batch 4 --steps 3 --device "$vendor" "$@" \
        >"$work/out" || return
    last=$(tail -n 1 "$work/out")
    echo "$last"
}
compiled_alike() { # model, modes
    steps "$1" || return
    weights=$(of weights)
    for mode in $2; do
        steps "$1" "--compile=$mode" || return
        same "$weights" "$(of weights)" && same "$(of compiled_steps)" 3 ||
            return
    done
    [ "$(of graph_launches)" -ge 1 ]
}
# The host code, which makes graphs, differs between vendors; programs do not.
compiled_steps_lead_to_the_same_weights() {
    modes=reduce-overhead
    [ "$vendor" != cuda ] || modes='default reduce-overhead'
    compiled_alike mlp "$modes" || return
    [ -n "${LIBCORE_TEST_LONG-}" ] || return 0
    compiled_alike cnn "$modes" && compiled_alike gpt "$modes"
}
with_fakes() { # name, folder, libraries...; with $settings
    vendor=$1
    file=$LIBCORE_BUILD/$2/.libs/core_$1.so
    shift 2
    case ${2-} in
    *blas*) [ -z "$sanitized" ] || return 0 ;;
    *) [ -z "$slow" ] || return 0 ;;
    esac
    if [ ! -f "$file" ] || [ ! -f "$fakes/$1" ]; then
        skip "$vendor with a fake driver" 'not built'
        return
    fi
    mkdir "$work/$vendor"
    case $vendor in cuda) compiler=libnvrtc ;; *) compiler=libhiprtc ;; esac
    # Instead of the machine's, whose code the fake driver cannot run.
    for major in 5 6 7 11 12 13 14; do
        echo none >"$work/$vendor/$compiler.so.$major"
    done
    # One vendor's compiler suffices, since it needs 15 seconds: programs are the
    # same, and test_rocm_loops and test_cuda_loops, also under a sanitizer, call
    # what differs.
    if [ -z "${LIBCORE_TEST_LONG-}" ]; then
        [ -z "$slow" ] && [ "$vendor" = cuda ] || compiler=none
    fi
    for library in "$fakes/$compiler".so.*; do
        [ ! -f "$library" ] || ln -sf "$library" "$work/$vendor/"
    done
    for library; do
        ln -s "$fakes/$library" "$work/$vendor/$library"
    done
    LIBCORE_PLUGIN_PATH=$LIBCORE_BUILD/.libs:$(dirname "$file")
    export LIBCORE_PLUGIN_PATH
    # shellcheck disable=SC2086 # word splitting is intended
    ok "recorded_cases_pass_on_${vendor}_with_fake $*" \
        replay "$vendor" LD_LIBRARY_PATH="$work/$vendor" $settings
    # Once for each vendor, or with LIBCORE_TEST_LONG with each library.
    if [ "$level_reached" != "$vendor" ] || [ -n "${LIBCORE_TEST_LONG-}" ]; then
        # shellcheck disable=SC2086 # word splitting is intended
        ok "${vendor}_reaches_level_core_with_fake $*" \
            says 'level reached: core' env LD_LIBRARY_PATH="$work/$vendor" \
            $settings "$LIBCORE_BUILD/core-conformance" --level core \
            --timeout 600 --plugin "$file"
        [ -n "$slow" ] || ok "compiled_steps_lead_to_the_same_weights_on_$vendor" \
            compiled_steps_lead_to_the_same_weights
        level_reached=$vendor
    fi
    rm -r "${work:?}/$vendor"
}

vendor cuda backends/cuda 'libcuda|libcublas|libcudnn|libnv'
if [ -f "$LIBCORE_BUILD/backends/cuda/.libs/core_cuda.so" ]; then
    mkdir "$work/broken"
    seq 1000 >"$work/broken/libcuda.so.1"
    ok unreadable_driver_is_reported_as_such \
        says 'cuda .*no NVIDIA driver was found: .*libcuda.so.1: .*ELF header' \
        env LD_LIBRARY_PATH="$work/broken" "$LIBCORE_BUILD/core-info"
else
    skip unreadable_driver_is_reported_as_such 'core_cuda.so was not built'
fi
with_fakes cuda backends/cuda libcuda.so.1
for cublas in "$fakes"/libcublas.so.??; do
    with_fakes cuda backends/cuda libcuda.so.1 "${cublas##*/}"
done
settings=LIBCORE_CUDA_CUDNN=1
with_fakes cuda backends/cuda libcuda.so.1 libcudnn.so.9
settings=
vendor rocm backends/rocm 'libamdhip|librocblas|libhsa'
# HIP's library is used only if there is /dev/kfd or the program has loaded it.  A
# sanitizer's library must be preloaded first; it then also checks the shell.
before=$(ldd "$LIBCORE_BUILD/.libs/libcore.so" |
    sed -n 's/.*lib[at]san[^ ]* => \([^ ]*\) .*/\1:/p')
quiet=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
for hip in "$fakes"/libamdhip64.so.?; do
    hip=${hip##*/}
    settings="LD_PRELOAD=$before$hip ${before:+ASAN_OPTIONS=$quiet}"
    with_fakes rocm backends/rocm "$hip"
    settings="$settings GPUEMU_WARP=64"
    for blas in "$fakes"/librocblas.so.?; do
        with_fakes rocm backends/rocm "$hip" "${blas##*/}"
    done
done
echo "1..$number"
