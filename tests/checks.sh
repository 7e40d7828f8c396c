#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# The checks of the sources find what they look for: each runs on a copy of
# the tree with one fault.
set -u
root=$LIBCORE_SOURCE
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

if ! command -v python3 >/dev/null 2>&1; then
    echo '1..0 # SKIP no Python'
    exit 0
fi

fresh() {
    chmod -R u+w "$work/tree" 2>/dev/null
    rm -rf "$work/tree"
    mkdir -p "$work/tree"
    cp -R "$root/core" "$root/backends" "$root/plugins" "$work/tree/"
    chmod -R u+w "$work/tree"
}

# Fails, and its output has the pattern.
finds() { # check, pattern
    if "$root/tools/checks/$1" "$work/tree" >"$work/out" 2>&1; then
        echo "# $1 finds nothing"
        return 1
    fi
    grep -q -- "$2" "$work/out" || {
        sed 's/^/# /' "$work/out"
        return 1
    }
}

fresh
ok 'the tree as it is passes the check of folders' \
    "$root/tools/checks/layers" "$work/tree"
ok 'the tree as it is passes the check of functions' \
    "$root/tools/checks/functions" "$work/tree"

sed -i 's|^#include "base/log.h"|&\n#include "device/device.h"|' \
    "$work/tree/core/base/log.c"
ok 'an include that points up is found' \
    finds layers 'core/base/.rules does not allow device/device.h'

echo core/device >>"$work/tree/core/base/.rules"
ok 'rules that form a cycle are found' \
    finds layers 'cycle: .*core/base -> core/device'

fresh
echo core/memory >>"$work/tree/core/io/.rules"
ok 'a rule that nothing uses is found' \
    finds layers 'core/io/.rules: nothing includes core/memory'

fresh
echo 'void core__memory_free_cached(const core_device *device);' \
    >>"$work/tree/core/base/memory.c"
ok 'a function that is declared outside its folder is found' \
    finds layers 'core/base/memory.c declares core__memory_free_cached'

fresh
echo '#include "gpu/host/host.h"' >>"$work/tree/backends/cpu/plugin.c"
ok 'a plugin that includes files of another one is found' \
    finds layers 'backends/cpu/plugin.c: gpu/host/host.h'

fresh
ok "the operators' schemas are ATen's" \
    "$root/tools/checks/schemas" "$work/tree"
sed -i '/^- op: add.Scalar(/s/Scalar alpha=1/int alpha=1/' \
    "$work/tree/core/ops/ops.yaml"
ok "a schema that is not ATen's is found" \
    finds schemas '^ops.yaml: add.Scalar(Tensor self, Scalar other, int alpha=1'

fresh
sed -i 's/^layer_norm /layer_form /' "$work/tree/core/ops/aten-differences.txt"
ok 'a difference that is not listed is found' \
    finds schemas '^ops.yaml: layer_norm('
ok 'a listed difference that is none is found' \
    finds schemas 'matches layer_form'

fresh
{
    printf 'static void long_one(void)\n{\n'
    i=0
    while [ $i -lt 80 ]; do
        echo '    ;'
        i=$((i + 1))
    done
    echo '}'
} >>"$work/tree/core/base/log.c"
ok 'a function that does not fit a screen is found' \
    finds functions 'core/base/log.c: long_one has 82 lines'
echo "1..$number"
