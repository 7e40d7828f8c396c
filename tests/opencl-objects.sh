#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# plugins/opencl releases every object that it creates: a fake libOpenCL counts
# the live contexts, queues, buffers, programs, kernels and events.  A plugin
# that leaks on purpose is detected.
work=$(mktemp -d)
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
trap 'rm -rf "$work"' EXIT
number=0
fixtures=$LIBCORE_SOURCE/tests/fixtures/opencl

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

skip() {
    echo "1..0 # SKIP $1"
    exit 0
}

real=$(PATH=$PATH:/sbin ldconfig -p 2>/dev/null |
    sed -n 's/.*libOpenCL\.so\.1 .*=> //p' | head -n 1)
echo '#include <CL/cl.h>' >"$work/has.c"
# shellcheck disable=SC2086 # CC may have arguments
${CC:-cc} -DCL_TARGET_OPENCL_VERSION=120 -fsyntax-only "$work/has.c" \
    2>/dev/null || skip 'no CL/cl.h (Debian: opencl-headers)'
[ -n "$real" ] || skip 'no libOpenCL.so.1 (Debian: ocl-icd-libopencl1)'
[ "$(uname -m)" = x86_64 ] || skip 'the fake libOpenCL is x86-64 only'

cat >"$work/libcore.pc" <<END
plugindir=$work/installed
Name: libcore
Description: libcore
Version: 0
Cflags: -I$LIBCORE_SOURCE/include
END

# plugin NAME: builds the plugin from the sources in that folder.
plugin() {
    env PKG_CONFIG_PATH="$work" make -C "$work/$1" -f Makefile.standalone \
        CFLAGS=-O0
}

# A plugin that leaks what CL_LEAK names: it skips the line that releases it.
leaking() {
    cp -r "$work/shipped" "$work/leaking" || return
    rm -f "$work/leaking/core_opencl.so"
    leave_out events stream.c 'cl.ReleaseEvent(before);' &&
        leave_out programs device.c 'opencl_programs_close(device);' &&
        leave_out queues stream.c 'cl.ReleaseCommandQueue(stream->queue);' &&
        leave_out buffers packed_weights.c 'cl.ReleaseMemObject(e->packed);' &&
        plugin leaking
}

leave_out() { # kind, file, line
    grep -qF "$3" "$work/leaking/$2" || return
    sed "s/^\\( *\\)\\($(echo "$3" | sed 's/[.]/\\&/g')\\)/\\1if (!getenv(\"CL_LEAK\") || strcmp(getenv(\"CL_LEAK\"), \"$1\") != 0) \\2/" \
        "$work/leaking/$2" >"$work/changed" &&
        ! cmp -s "$work/changed" "$work/leaking/$2" &&
        mv "$work/changed" "$work/leaking/$2"
}

cp -r "$LIBCORE_SOURCE/plugins/opencl" "$work/shipped"
rm -f "$work/shipped/opencl_kernels.h"
# A checkout generates it in the build folder; a release ships it.
[ -f "$work/shipped/opencl_operations.h" ] ||
    cp "$LIBCORE_BUILD/plugins/opencl/opencl_operations.h" "$work/shipped/"
sanitize= # as libcore was built: ASan must be loaded first
if ldd "$LIBCORE_BUILD/.libs/libcore.so" | grep -q libasan; then
    sanitize=-fsanitize=address
fi
build_fixtures() {
    mkdir "$work/counts" "$work/plugins" &&
        ${CC:-cc} -shared -fPIC -O1 -w -I"$work/shipped" \
            -I"$LIBCORE_SOURCE/include" -o "$work/counts/libOpenCL.so.1" \
            "$fixtures/alive.c" -ldl &&
        ${CC:-cc} -shared -fPIC -O1 -fvisibility=hidden -Wno-unused \
            -I"$LIBCORE_SOURCE/include" \
            -Wl,--version-script="$work/shipped/plugin.map" \
            -o "$work/plugins/core_opencl.so" "$fixtures/unloadable.c" -ldl &&
        ${CC:-cc} -std=gnu11 $sanitize -I"$LIBCORE_SOURCE/include" \
            -I"$LIBCORE_BUILD/include" \
            -iquote "$LIBCORE_SOURCE/include/libcore" \
            -iquote "$LIBCORE_BUILD/include/libcore" -o "$work/program" \
            "$fixtures/work.c" -L"$LIBCORE_BUILD/.libs" -lcore -ldl \
            -Wl,-rpath,"$LIBCORE_BUILD/.libs"
}

counted() { # plugin, leak
    env CL_REAL="$real" CL_PLUGIN="$work/$1/core_opencl.so" CL_LEAK="$2" \
        LIBCORE_OPENCL_CACHE=0 LIBCORE_PLUGIN_PATH="$LIBCORE_BUILD/.libs" \
        LD_LIBRARY_PATH="$work/counts:$LD_LIBRARY_PATH" \
        "$work/program" "$work/plugins/core_opencl.so"
}

# A leak exits with 1, and a line names the kind of object.
detected() { # kind, when
    counted leaking "$1" >"$work/out" 2>&1
    status=$?
    cat "$work/out"
    [ $status = 1 ] &&
        awk -v kind="$1," -v when="$2" 'index($0, when) == 1 {
            sub(/.*: /, "")
            if ($2 == kind && $1 > $3) found = 1 }
            END { exit !found }' "$work/out"
}

ok 'the plugin, the fake libOpenCL and the program build' eval \
    'plugin shipped && build_fixtures'
counted shipped none >"$work/out" 2>&1
if grep -q 'no OpenCL platform\|no device' "$work/out"; then
    number=$((number + 1))
    echo "ok $number # SKIP no OpenCL device (Debian: pocl-opencl-icd)"
    echo "1..$number"
    exit 0
fi
ok 'every object is released' counted shipped none
ok 'a leaking plugin builds' leaking
ok 'the leaking plugin passes with its leaks disabled' counted leaking none
ok 'leaked events are detected' detected events 'after more'
ok 'leaked queues are detected' detected queues 'after more'
ok 'leaked buffers are detected' detected buffers 'after more'
ok 'leaked programs are detected' detected programs 'after the plugin'
echo "1..$number"
