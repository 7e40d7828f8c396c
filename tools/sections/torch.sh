# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# torch: the devices for PyTorch (bindings/pytorch), judged by PyTorch's own
# sample inputs, on the devices cpu and sim, modules and optimizers.
# LIBCORE_TORCH_PYTHON names a Python that can import torch 2.10 or later,
# expecttest and numpy; without it the section is skipped.
section_torch() {
    python=${LIBCORE_TORCH_PYTHON-}
    if [ -z "$python" ]; then
        skip "torch" "LIBCORE_TORCH_PYTHON does not name a Python with torch"
        return
    fi
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
    try "torch: an engine for collectives" \
        make -C "$tree" tests/fixtures/core_sockets.la
    # Tests leave out devices that cannot be opened.
    for device in cpu sim opencl; do
        LIBCORE_TORCH_DEVICE=$device "$python" -c 'import os, libcore_torch
libcore_torch.device(os.environ["LIBCORE_TORCH_DEVICE"])' \
            >"$logs/torch-$device.txt" 2>&1 ||
            skip "torch on $device" "$(tail -n 1 "$logs/torch-$device.txt")"
    done
    for test in judges smoke exchange features tools examples distributed \
        wheel leaks module_db; do
        try "torch: $test" "$python" \
            "$source/bindings/pytorch/tests/test_$test.py"
    done
    for device in cpu sim; do
        try "torch: op_db in f32 on $device" env LIBCORE_TORCH_DEVICE=$device \
            "$python" "$source/bindings/pytorch/tests/test_op_db.py"
    done
    for dtype in bfloat16 float64 int64 bool; do
        try "torch: op_db in $dtype on cpu" env LIBCORE_TORCH_DTYPE=$dtype \
            "$python" "$source/bindings/pytorch/tests/test_op_db.py"
    done
}
