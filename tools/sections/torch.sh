# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# shellcheck source=tools/sections/torch_python.sh
. tools/sections/torch_python.sh

# Runs a test program of Python, and adds the tests that it skips.
try_python() { # what, program, [settings]
    what=$1
    program=$source/bindings/pytorch/tests/test_$2.py
    shift 2
    try "torch: $what" env "$@" "$python" "$program" -v
    ran=$?
    sed -En "s/^(.* )?skipped ['\"](.*)['\"]$/\2/p" "$log" | sort | uniq -c \
        >"$logs/skipped.txt"
    while read -r count reason; do
        skip "$what" "$reason" "$count"
    done <"$logs/skipped.txt"
    return $ran
}

# Whether torch has a device of libcore.
has_device() { # name
    LIBCORE_TORCH_DEVICE=$1 "$python" -c 'import os, libcore_torch
libcore_torch.device(os.environ["LIBCORE_TORCH_DEVICE"])' \
        >"$logs/torch-$1.txt" 2>&1
}

# torch: the devices for PyTorch (bindings/pytorch), judged by PyTorch's own
# sample inputs, on the devices cpu, sim and opencl, modules and optimizers.
# LIBCORE_TORCH_PYTHON names a Python that can import torch 2.10 or later,
# expecttest, numpy and scipy; without it they are installed in build-tests.
section_torch() {
    find_torch_python || return
    tree=$work/torch
    build "torch" "$tree" --with-torch="$python" --without-cuda \
        --without-hip || return
    PYTHONPATH=$source/bindings/pytorch
    LIBCORE_TORCH_SHIM=$tree/bindings/pytorch/libcore_torch
    export PYTHONPATH LIBCORE_TORCH_SHIM
    use_build "$tree"
    if [ -d "$tree/plugins/opencl/.libs" ]; then
        LIBCORE_PLUGIN_PATH=$LIBCORE_PLUGIN_PATH:$tree/plugins/opencl/.libs
    fi
    export LIBCORE_BUILD="$tree"
    try "torch: engines for collectives" \
        make -C "$tree" tests/fixtures/core_sockets.la \
        tests/fixtures/core_own_engine.la
    # Tests leave out devices that cannot be opened.
    for device in cpu sim opencl; do
        has_device "$device" ||
            skip "torch on $device" "$(tail -n 1 "$logs/torch-$device.txt")"
    done
    for test in judges smoke mixed out exchange native features tools examples \
        distributed wheel module_db; do
        try_python "$test" "$test"
    done
    try "torch: costs of calls" "$python" "$PYTHONPATH/bench.py" --rounds 1 \
        --calls 10 --steps 1
    try_python "no leak in 10,000 steps" leaks LIBCORE_TORCH_STEPS=10000
    for device in cpu sim opencl; do
        has_device "$device" || continue
        try_python "op_db in f32 on $device" op_db LIBCORE_TORCH_DEVICE=$device
        try_python "out= in f32 on $device" op_out LIBCORE_TORCH_DEVICE=$device
    done
    has_device sim &&
        try_python "module_db on sim" module_db LIBCORE_TORCH_DEVICE=sim
    for dtype in bfloat16 float16 float64 int64 int32 int16 int8 uint8 bool; do
        try_python "op_db in $dtype on cpu" op_db LIBCORE_TORCH_DTYPE=$dtype
    done
}
