#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# plugins/opencl: it builds from the headers alone, says why there is no device
# where there is none, and where there is one computes and learns.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

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

says() { # pattern, command...
    pattern=$1
    shift
    "$@" >"$work/out" 2>&1
    cat "$work/out"
    grep -qE "$pattern" "$work/out"
}

echo '#include <CL/cl.h>' >"$work/has.c"
# shellcheck disable=SC2086 # CC may be words
if ! ${CC:-cc} -DCL_TARGET_OPENCL_VERSION=120 -fsyntax-only "$work/has.c" \
    2>/dev/null; then
    echo '1..0 # SKIP no CL/cl.h (Debian: opencl-headers)'
    exit 0
fi

# As somebody else would build it: what is installed is headers and a .pc.
cp -r "$LIBCORE_SOURCE/plugins/opencl" "$work/plugin"
rm -f "$work/plugin/opencl_kernels.h"
cat >"$work/libcore.pc" <<EOF
plugindir=$work/installed
Name: libcore
Description: libcore
Version: 0
Cflags: -I$LIBCORE_SOURCE/include
EOF
ok 'it builds from installed headers alone' \
    env PKG_CONFIG_PATH="$work" make -C "$work/plugin" \
    -f Makefile.standalone CFLAGS='-O1 -Wall -Wextra -Werror' install
plugin=$work/installed/core_opencl.so
LIBCORE_PLUGIN_PATH=$LIBCORE_BUILD/.libs:$work/installed
XDG_CACHE_HOME=$work/cache
export LIBCORE_PLUGIN_PATH XDG_CACHE_HOME

# The loader of OpenCL finds no platform there.
mkdir "$work/vendors"
ok 'without a platform there is no device, and a reason' \
    says 'opencl.*(no OpenCL platform|no OpenCL loader)' \
    env OCL_ICD_VENDORS="$work/vendors" OPENCL_VENDOR_PATH="$work/vendors" \
    "$LIBCORE_BUILD/core-info"

if ! says '^ *opencl .*streams' "$LIBCORE_BUILD/core-info" >/dev/null; then
    number=$((number + 1))
    echo "ok $number # SKIP no OpenCL device (Debian: pocl-opencl-icd)"
    echo "1..$number"
    exit 0
fi

conformance() {
    "$LIBCORE_BUILD/core-conformance" --plugin "$plugin" "$@"
}

golden() {
    "$LIBCORE_BUILD/core-conformance" \
        --golden "$LIBCORE_SOURCE/tests/golden/public" --device opencl "$@"
}

ok 'level core is passed' says 'level reached: core' conformance --level core
for name in add.Tensor sum addmm; do
    ok "golden cases of $name pass" says '^[1-9][0-9]* passed, 0 failed' \
        golden --filter "$name"
done
kept() {
    ls "$work"/cache/libcore/opencl/*.bin
}
ok 'compiled programs are kept' kept
# A file that is damaged is compiled anew.
for file in "$work"/cache/libcore/opencl/*.bin; do
    printf 'damaged' | dd of="$file" bs=1 seek=60 conv=notrunc 2>/dev/null
done
ok 'damaged ones are not used' says '^[1-9][0-9]* passed, 0 failed' \
    golden --filter add.Tensor
ok 'what it has no kernel for is missing, not wrong' \
    says '^0 passed, 0 failed, [1-9][0-9]* missing' golden --filter linalg_qr
ok 'and is done by the CPU where that is asked for' \
    says '^[1-9][0-9]* passed, 0 failed' env LIBCORE_FALLBACK=count \
    "$LIBCORE_BUILD/core-conformance" \
    --golden "$LIBCORE_SOURCE/tests/golden/public" --device opencl \
    --filter linalg_qr
echo "1..$number"
