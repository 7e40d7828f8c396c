# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# aarch64 (--full, or by name): the library, the cpu and the sim plugin, compiled
# for aarch64 by a cross compiler; their golden cases and unit tests, emulated by
# qemu.  Libraries of arm64 are unpacked below build-tests, so that dpkg need not
# know that architecture.
section_aarch64() {
    triplet=aarch64-linux-gnu
    for program in $triplet-gcc $triplet-g++ qemu-aarch64 apt-get dpkg-deb; do
        if ! have "$program"; then
            skip "aarch64" "no $program"
            return
        fi
    done
    tree=$work/aarch64
    packages=$work/arm64
    libraries=$packages/root/usr/lib/$triplet
    if ! arm64_packages >"$logs/arm64.txt" 2>&1; then
        skip "aarch64" "packages of arm64 cannot be downloaded: $(tail -n 1 "$logs/arm64.txt")"
        return
    fi

    # Nothing that was found, or chosen, for this machine's compiler.
    seed=no
    copy_images=no
    unset PROGRAM_LINKER
    tools='core-info core-conformance'
    PKG_CONFIG=pkg-config
    PKG_CONFIG_LIBDIR=$libraries/pkgconfig
    PKG_CONFIG_SYSROOT_DIR=$packages/root
    export PKG_CONFIG PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR
    ccache=
    ! have ccache || ccache='ccache '
    build "aarch64" "$tree" --host=$triplet --without-cuda --without-hip \
        --disable-opencl --disable-mpi CFLAGS="$optimized" \
        CC="$ccache$triplet-gcc" CXX="$ccache$triplet-g++" \
        CPPFLAGS="-I$packages/root/usr/include" LDFLAGS="-L$libraries" ||
        return
    emulator=$tree/emulated
    write_emulator "$emulator" '"$@"'
    for plugin in cpu sim; do
        try "aarch64: core_$plugin.so is sealed" "$emulator" \
            "$tree/.libs/core-info" --seal "$tree/.libs/core_$plugin.so"
    done
    use_build "$tree"
    emulated_golden
    emulated_tests
}

# Check and zlib without their shared libraries, so that they are linked statically;
# OpenBLAS, which the cpu plugin opens.  apt's lists for arm64 are there too.
arm64_packages() {
    [ ! -f "$packages/complete" ] || return 0
    rm -rf "$packages"
    mkdir -p "$packages/lists/partial" "$packages/archives/partial" \
        "$packages/root" && : >"$packages/status" || return
    (
        cd "$packages" || exit
        set -- -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 \
            -o APT::Sandbox::User="$(id -un)" -o Dir::State="$packages" \
            -o Dir::State::status="$packages/status" -o Dir::Cache="$packages"
        apt-get "$@" update # fails if one of several servers does
        apt-get "$@" download check libsubunit-dev zlib1g-dev \
            libopenblas0-pthread libgfortran5 || exit
        for package in *.deb; do
            dpkg-deb -x "$package" root || exit
        done
    ) && : >"$packages/complete"
}

# Writes a script that runs a program of the tree.
write_emulator() { # script, program and arguments
    found=$tree/.libs:$libraries:$libraries/openblas-pthread
    printf '%s\n' '#!/bin/sh' \
        "exec qemu-aarch64 -L '/usr/$triplet' -E 'LD_LIBRARY_PATH=$found' $2" \
        >"$1" && chmod +x "$1"
}

emulated_golden() {
    # shellcheck source=tools/sections/golden.sh
    . tools/sections/golden.sh
    golden="golden on aarch64"
    conformance=$tree/emulated-conformance
    write_emulator "$conformance" "'$tree/.libs/core-conformance' \"\$@\""
    for device in cpu sim; do
        for set in public current layers; do
            golden_set $set $device
        done
    done
}

# Prints an expression of the tree's Makefile, one word a line.
expand() { # expression
    printf 'include Makefile\nlisted:\n\t@printf "%%s\\n" %s\n' "$1" |
        make -s -C "$tree" -f - listed
}

# Prints patterns of the unit tests that are left out, as are those of the emulated
# GPU, whose kernels compile for longer than all else.
left_out() {
    sed '/^#/d; s,^,tests/unit/,' <<'END'
# They fork while other threads run: in the child, qemu fails an assertion or waits
# for ever when the next thread starts.
autograd/test_engine_devices
base/test_fork
cpu/test_cpu_thread_pool
loader/test_fork_while_opening
# They execute themselves, or the program quarantine, which to the kernel are programs of
# another machine.
base/test_suite
loader/test_quarantine
tensor/test_exported_memory
# They limit the memory of the process, where qemu's own counts, too.
cpu/test_cpu_little_memory
# They fail, and why is not known yet: checks of damaged plugins; a reset without
# memory.
loader/test_plugin_note
sim/test_sim_memory
# Not yet run to their end here.
codegen/test_loop_kernel
codegen/test_loop_operators
comm/.*
compile/.*
cpu/test_cpu_bf16
cpu/test_cpu_bf16_conv
cpu/test_cpu_conv
cpu/test_cpu_copy
cpu/test_cpu_recurrent
cpu/test_cpu_vecmath64
cpu/test_cpu_view_matmul
dlpack/.*
loader/test_integrity_hash
memory/test_memory_stress
nn/test_network_faults
nn/test_network_lazy
ops/test_composites
ops/test_ops_gradgrad
ops/test_ops_hostile
ops/test_ops_memory
optim/test_optim_fused
profiler/.*
tensor/test_float8
transform/.*
END
}

emulated_tests() {
    left_out >"$logs/left-out.txt"
    # shellcheck disable=SC2016 # make expands it
    expand '$(filter-out tests/unit/gpu/%,$(unit_tests))' >"$logs/all.txt"
    grep -vxf "$logs/left-out.txt" "$logs/all.txt" >"$logs/tests.txt"
    for test in $(grep -xf "$logs/left-out.txt" "$logs/all.txt"); do
        skip "aarch64: $test" "left out; tools/sections/aarch64.sh says why"
    done
    # shellcheck disable=SC2016 # make expands it
    expand '$(filter-out backends/gpu/%,$(check_LTLIBRARIES))' \
        >"$logs/libraries.txt"
    set -- bin_PROGRAMS="$tools" \
        check_PROGRAMS="$(tr '\n' ' ' <"$logs/tests.txt")" \
        check_LTLIBRARIES="$(tr '\n' ' ' <"$logs/libraries.txt")"
    build_tests "$tree" "$@" || return
    # Check's limits are for the machine itself.
    CK_DEFAULT_TIMEOUT=600
    export CK_DEFAULT_TIMEOUT
    check "unit tests on aarch64" "$tree" "$@" \
        TESTS="$(tr '\n' ' ' <"$logs/tests.txt")" \
        LOG_COMPILER="$source/tools/sections/timed $work/times/$section $emulator"
}
