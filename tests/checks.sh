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
    reports "$2"
}

# The output of the last check has the pattern.
reports() { # pattern
    grep -q -- "$1" "$work/out" || {
        sed 's/^/# /' "$work/out"
        return 1
    }
}

# Adds a fault to the copy.  Those that do not hide one another share one, since a
# run of the check takes a second.
plant() { # name, pattern, file, line to append
    echo "$4" >>"$work/tree/$3"
    printf '%s\n%s\n' "$1" "$2" >>"$work/faults.txt"
}

all_are_reported() {
    while read -r name && read -r pattern; do
        ok "$name" reports "$pattern"
    done <"$work/faults.txt"
}

copy_tree
ok 'the tree passes tools/checks/folders' \
    "$python" "$root/tools/checks/folders" "$work/tree"
ok 'the tree passes tools/checks/functions' \
    "$python" "$root/tools/checks/functions" "$work/tree"

echo core/device >>"$work/tree/core/base/.rules"
sed -i 's|^#include "base/log.h"|&\n#include "device/device.h"|' \
    "$work/tree/core/base/log.c"
ok 'rules that form a cycle are detected' \
    detects folders 'cycle: .*core/base -> core/device'

copy_tree
# shellcheck disable=SC2016 # the page's marks
sed -i -e '/^| `random` |/s/ base |$/ nothing |/' -e '/^| `dlpack` |/d' \
    "$work/tree/docs/architecture.md"
mv "$work/tree/backends/gpu/kernels/norm.cu" \
    "$work/tree/backends/gpu/kernels/normal.cu"
plant 'an include of a later folder is detected' \
    'core/base/.rules does not allow device/device.h' \
    core/base/log.c '#include "device/device.h"'
plant 'an include of a file of core with angle brackets is detected' \
    'core/base/memory.c: include "device/stream.h" with quot' \
    core/base/memory.c '#include <device/stream.h>'
plant 'an unused rule is detected' \
    'core/io/.rules: nothing uses core/memory' core/io/.rules core/memory
plant 'a function declared outside its folder is detected' \
    'core/base/memory.c declares core__memory_free_cached' core/base/memory.c \
    'void core__memory_free_cached(const core_device *device);'
plant 'a function declared inside another is detected' \
    'core/base/.rules does not allow core__memory_pools_end of' core/base/error.c \
    '    void core__memory_pools_end(const core_device *);'
plant 'a function declared with an attribute is detected' \
    'core/base/.rules does not allow core__memory_record_handle of' core/base/error.c \
    '__attribute__((cold)) void core__memory_record_handle(core_device *);'
plant 'a function declared in parentheses is detected' \
    'core/base/.rules does not allow core__memory_free of' core/base/error.c \
    'void (core__memory_free)(const core_device *);'
plant 'an address of a function that points up is detected' \
    'core/base/.rules does not allow core__memory_alloc of' core/base/error.c \
    'void (*up)(const core_device *) = &core__memory_alloc;'
plant 'a function that a macro declares is detected' \
    'core/base/.rules does not allow core__infer_mm of core/' \
    core/base/memory.c 'core_status core__infer_mm(core__inference *infer);'
plant 'a function that a macro defines is detected' \
    'core/base/.rules does not allow core__op_view of core/' \
    core/base/memory.c 'void *const up = (void *)core__op_view;'
plant 'a variable that a generator makes is detected' \
    'core/base/.rules does not allow core__gradient_9 of core/' \
    core/base/memory.c 'extern const core__gradient core__gradient_9;'
plant 'a variable declared outside its folder is detected' \
    'core/base/.rules does not allow core__device_upcalls of' \
    core/base/memory.c \
    'extern const struct core__device_upcalls core__device_upcalls;'
plant 'a call of a public function that points up is detected' \
    'core/tensor/.rules does not allow core_tensor_is_leaf' \
    core/tensor/access.c \
    'bool up(core_tensor *x) { return core_tensor_is_leaf(x); }'
plant 'an address of a public function that points up is detected' \
    'core/quant/.rules does not allow core_optimizer_step' \
    core/quant/block.c 'void *const up = core_optimizer_step;'
plant 'a string that contains the beginning of a comment hides nothing' \
    'core/quant/.rules does not allow core_optimizer_steps' \
    core/quant/quantizer.c \
    'const char *const x = "/*"; void *up = core_optimizer_steps; /* */'
plant 'a call of an operator that points up is detected' \
    'core/transfer/.rules does not allow core_relu_ of core/ops' \
    core/transfer/copy.c \
    'core_status up(core_tensor *x) { return core_relu_(x); }'
plant 'a public function declared outside public headers is detected' \
    'core/tensor/layout.h declares core_tensor_ndim' core/tensor/layout.h \
    'uint32_t core_tensor_ndim(const core_tensor *tensor);'
plant 'a plugin that includes files of a backend is detected' \
    'plugins/sim may not include <cpu/view.h>' plugins/sim/host.c \
    '#include <cpu/view.h>'
plant 'a kernel that includes files of another backend is detected' \
    'backends/gpu may not include <cuda/api.h>' \
    backends/gpu/kernels/sort.cu '#include <cuda/api.h>'
plant 'a plugin that includes files of another plugin is detected' \
    'backends/cpu/plugin.c: gpu/host/host.h' backends/cpu/plugin.c \
    '#include "gpu/host/host.h"'
plant 'a backend that names a function of another backend is detected' \
    'backends/cpu may not use gpu_stop of backends/gpu' backends/cpu/plugin.c \
    'void gpu_stop(void); void *const up = (void *)gpu_stop;'
plant 'a backend that names a variable of a later one is detected' \
    'backends/gpu may not use cuda_driver of backends/cuda' \
    backends/gpu/host/move.c 'extern const gpu_driver cuda_driver;'
plant 'a plugin that names an internal function of the core is detected' \
    'plugins/sim/host.c names core__memory_free_cached' plugins/sim/host.c \
    'void core__memory_free_cached(const void *device);'
ok 'a row of the table of folders that .rules contradicts is detected' \
    detects folders 'architecture.md: core/random also builds on core/base'
ok 'a folder without a row is detected' \
    reports 'architecture.md: core/dlpack is not a row of the table'
ok 'a file of kernels that the CPU does not have is detected' \
    reports 'backends/gpu/kernels/normal.cu: no file of backends/cpu'
all_are_reported

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
