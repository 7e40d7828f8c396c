#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# Each source check detects the fault that is added to a copy of the tree.
set -u
root=$LIBCORE_SOURCE
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

python=${PYTHON:-python3}
if ! "$python" -c 'import yaml' 2>/dev/null; then
    echo '1..0 # SKIP no Python or no PyYAML'
    exit 0
fi

copy_tree() {
    chmod -R u+w "$work/tree" 2>/dev/null
    rm -rf "$work/tree"
    mkdir -p "$work/tree"
    cp -R "$root/core" "$root/backends" "$root/plugins" "$work/tree/"
    mkdir "$work/tree/docs"
    cp "$root/docs/architecture.md" "$work/tree/docs/"
    chmod -R u+w "$work/tree"
}

# The check fails, and its output has the pattern.
detects() { # check, pattern
    if "$python" "$root/tools/checks/$1" "$work/tree" >"$work/out" 2>&1; then
        echo "# $1 detects nothing"
        return 1
    fi
    grep -q -- "$2" "$work/out" || {
        sed 's/^/# /' "$work/out"
        return 1
    }
}

copy_tree
ok 'the tree passes tools/checks/folders' \
    "$python" "$root/tools/checks/folders" "$work/tree"
ok 'the tree passes tools/checks/functions' \
    "$python" "$root/tools/checks/functions" "$work/tree"

sed -i 's|^#include "base/log.h"|&\n#include "device/device.h"|' \
    "$work/tree/core/base/log.c"
ok 'an include of a later folder is detected' \
    detects folders 'core/base/.rules does not allow device/device.h'

echo '#include <device/device.h>' >>"$work/tree/core/base/memory.c"
ok 'an include of a file of core with angle brackets is detected' \
    detects folders 'core/base/memory.c: include "device/device.h" with quot'

echo core/device >>"$work/tree/core/base/.rules"
ok 'rules that form a cycle are detected' \
    detects folders 'cycle: .*core/base -> core/device'

copy_tree
echo core/memory >>"$work/tree/core/io/.rules"
ok 'an unused rule is detected' \
    detects folders 'core/io/.rules: nothing uses core/memory'

copy_tree
# shellcheck disable=SC2016 # the page's marks
sed -i '/^| `random` |/s/ base |$/ nothing |/' \
    "$work/tree/docs/architecture.md"
ok 'a row of the table of folders that .rules contradicts is detected' \
    detects folders 'architecture.md: core/random also builds on core/base'

copy_tree
# shellcheck disable=SC2016 # the page's marks
sed -i '/^| `dlpack` |/d' "$work/tree/docs/architecture.md"
ok 'a folder without a row is detected' \
    detects folders 'architecture.md: core/dlpack is not a row of the table'

copy_tree
echo 'void core__memory_free_cached(const core_device *device);' \
    >>"$work/tree/core/base/memory.c"
ok 'a function declared outside its folder is detected' \
    detects folders 'core/base/memory.c declares core__memory_free_cached'

for line in \
    '    void core__memory_free_cached(const core_device *);' \
    '__attribute__((cold)) void core__memory_free_cached(core_device *);' \
    'void (core__memory_free_cached)(const core_device *);' \
    'void (*up)(const core_device *) = &core__memory_free_cached;'; do
    copy_tree
    echo "$line" >>"$work/tree/core/base/memory.c"
    ok "a function named outside its folder is detected: $line" \
        detects folders 'core/base/.rules does not allow core__memory_free_cac'
done

for line in \
    'core_status core__infer_mm(core__inference *infer);' \
    'void *const up = (void *)core__op_view;' \
    'extern const core__gradient core__gradient_9;'; do
    copy_tree
    echo "$line" >>"$work/tree/core/base/memory.c"
    ok "a function made by a macro or a generator is detected: $line" \
        detects folders 'core/base/.rules does not allow core__.* of core/'
done

copy_tree
echo 'extern const struct core__device_upcalls core__device_upcalls;' \
    >>"$work/tree/core/base/memory.c"
ok 'a variable declared outside its folder is detected' \
    detects folders 'core/base/.rules does not allow core__device_upcalls of'

copy_tree
echo 'bool up(core_tensor *x) { return core_tensor_is_leaf(x); }' \
    >>"$work/tree/core/tensor/access.c"
ok 'a call of a public function that points up is detected' \
    detects folders 'core/tensor/.rules does not allow core_tensor_is_leaf'

copy_tree
echo 'void *const up = core_optimizer_step;' >>"$work/tree/core/quant/block.c"
ok 'an address of a public function that points up is detected' \
    detects folders 'core/quant/.rules does not allow core_optimizer_step'

copy_tree
echo 'const char *const x = "/*"; void *const up = core_optimizer_step; /* */' \
    >>"$work/tree/core/quant/block.c"
ok 'a string that contains the beginning of a comment hides nothing' \
    detects folders 'core/quant/.rules does not allow core_optimizer_step'

copy_tree
echo 'core_status up(core_tensor *x) { return core_relu_(x); }' \
    >>"$work/tree/core/transfer/copy.c"
ok 'a call of an operator that points up is detected' \
    detects folders 'core/transfer/.rules does not allow core_relu_ of core/ops'

copy_tree
echo 'uint32_t core_tensor_ndim(const core_tensor *tensor);' \
    >>"$work/tree/core/tensor/layout.h"
ok 'a public function declared outside public headers is detected' \
    detects folders 'core/tensor/layout.h declares core_tensor_ndim'

copy_tree
echo '#include <cpu/view.h>' >>"$work/tree/plugins/sim/host.c"
ok 'a plugin that includes files of a backend is detected' \
    detects folders 'plugins/sim may not include <cpu/view.h>'

copy_tree
echo '#include <cuda/api.h>' >>"$work/tree/backends/gpu/kernels/sort.cu"
ok 'a kernel that includes files of another backend is detected' \
    detects folders 'backends/gpu may not include <cuda/api.h>'

copy_tree
echo '#include "gpu/host/host.h"' >>"$work/tree/backends/cpu/plugin.c"
ok 'a plugin that includes files of another plugin is detected' \
    detects folders 'backends/cpu/plugin.c: gpu/host/host.h'

copy_tree
echo 'void gpu_stop(void); void *const up = (void *)gpu_stop;' \
    >>"$work/tree/backends/cpu/plugin.c"
ok 'a backend that names a function of another backend is detected' \
    detects folders 'backends/cpu may not use gpu_stop of backends/gpu'

copy_tree
echo 'extern const gpu_driver cuda_driver;' \
    >>"$work/tree/backends/gpu/host/move.c"
ok 'a backend that names a variable of a later one is detected' \
    detects folders 'backends/gpu may not use cuda_driver of backends/cuda'

copy_tree
echo 'void core__memory_free_cached(const void *device);' \
    >>"$work/tree/plugins/sim/host.c"
ok 'a plugin that names an internal function of the core is detected' \
    detects folders 'plugins/sim/host.c names core__memory_free_cached'

copy_tree
mv "$work/tree/backends/gpu/kernels/norm.cu" \
    "$work/tree/backends/gpu/kernels/normal.cu"
ok 'a file of kernels that the CPU does not have is detected' \
    detects folders 'backends/gpu/kernels/normal.cu: no file of backends/cpu'

copy_tree
ok "the operators' schemas are ATen's" \
    "$python" "$root/tools/checks/schemas" "$work/tree"
sed -i '/^- op: add.Scalar(/s/Scalar alpha=1/int alpha=1/' \
    "$work/tree/core/ops/ops.yaml"
ok "a schema that is not ATen's is detected" \
    detects schemas '^ops.yaml: add.Scalar(Tensor self, Scalar other, int alpha=1'

copy_tree
sed -i 's/^layer_norm /layer_form /' "$work/tree/core/ops/aten-differences.txt"
ok 'a difference that is not listed is detected' \
    detects schemas '^ops.yaml: layer_norm('
ok 'a listed difference that does not exist is detected' \
    detects schemas 'matches layer_form'

copy_tree
{
    printf 'static void long_one(void)\n{\n'
    i=0
    while [ $i -lt 80 ]; do
        echo '    ;'
        i=$((i + 1))
    done
    echo '}'
} >>"$work/tree/core/base/log.c"
ok 'a function longer than 80 lines is detected' \
    detects functions 'core/base/log.c: long_one has 82 lines'
echo "1..$number"
