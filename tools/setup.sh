# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# setup.sh: sourced by quickstart and run-tests.  Installs missing packages on
# Debian and Ubuntu; elsewhere prints what to install.

say() { printf '%s\n' "$*"; }

have() { command -v "$1" >/dev/null 2>&1; }

have_yaml() {
    for python in "${PYTHON-}" python3 /usr/bin/python3; do
        [ -n "$python" ] && "$python" -c 'import yaml' 2>/dev/null && return 0
    done
    return 1
}

have_library() { # soname
    /sbin/ldconfig -p 2>/dev/null | grep -q "$1"
}

have_module() { # pkg-config name
    have pkg-config && pkg-config --exists "$1"
}

# Prints the missing packages of group $1: build, data, test, hip, torch or
# aarch64.
missing_packages() {
    case $1 in
    build)
        # A compiler is useless without the C library's headers.
        echo 'int main(void) { return 0; }' |
            cc -include stdio.h -x c -o /dev/null - 2>/dev/null ||
            echo gcc libc6-dev
        have make || echo make
        have autoconf || echo autoconf
        have automake || echo automake
        have libtoolize || echo libtool
        have pkg-config || echo pkg-config
        echo 'int main(void) { return 0; }' |
            cc -include zlib.h -x c -o /dev/null - -lz 2>/dev/null ||
            echo zlib1g-dev
        have_yaml || echo python3 python3-yaml
        have_library libopenblas.so.0 || echo libopenblas0-pthread
        ;;
    data)
        [ -d /usr/share/datasets/fashion-mnist ] ||
            echo dataset-fashion-mnist
        ;;
    test)
        have_module check || echo check
        have g++ || echo g++
        have valgrind || echo valgrind
        have clang-format || echo clang-format
        have shellcheck || echo shellcheck
        have xz || echo xz-utils
        have ccache || echo ccache
        # Both MPI libraries that plugins/mpi is built for.
        { have mpicc.openmpi && have mpirun.openmpi; } ||
            echo libopenmpi-dev openmpi-bin
        { have mpicc.mpich && have mpirun.mpich; } || echo libmpich-dev mpich
        # An OpenCL device on the CPU, and CLBlast.
        [ -e /usr/include/CL/cl.h ] || echo opencl-headers
        [ -e /etc/OpenCL/vendors/pocl.icd ] || echo pocl-opencl-icd
        have_library libOpenCL.so.1 || echo ocl-icd-libopencl1
        have_library libclblast.so.1 || echo libclblast1
        ;;
    # Some distributions do not have it.
    hip) have hipcc || [ -x /opt/rocm/bin/hipcc ] || echo hipcc ;;
    # What Debian leaves out of its Python; its pip installs in virtual environments
    # only.
    torch)
        "${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null ||
            echo python3-venv
        "${PYTHON:-python3}" -c 'import os, sysconfig
os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null ||
            echo python3-dev
        ;;
    # A cross compiler and an emulator.
    aarch64)
        have aarch64-linux-gnu-gcc ||
            echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross
        have aarch64-linux-gnu-g++ || echo g++-aarch64-linux-gnu
        have qemu-aarch64 || echo qemu-user
        ;;
    esac
}

# Installs the missing packages of the groups $@.  If it cannot, prints their
# names and fails.
install_missing() {
    packages=
    for group in "$@"; do
        packages="$packages $(missing_packages "$group" | tr '\n' ' ')"
    done
    # shellcheck disable=SC2086 # split into words on purpose
    set -- $packages
    [ $# -gt 0 ] || return 0
    if ! have apt-get; then
        say "Please install the equivalents of these Debian packages: $*" >&2
        return 1
    fi
    as_root=
    if [ "$(id -u)" != 0 ]; then
        if ! have sudo; then
            say "Please install, as root: apt-get install $*" >&2
            return 1
        fi
        as_root=sudo
    fi
    say "Installing $*"
    setup_log=$(mktemp)
    # The package lists may be missing or old: update them only if the
    # installation fails.
    for round in 1 2 3; do
        # shellcheck disable=SC2086 # empty or one word
        if $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
            -o DPkg::Lock::Timeout=120 --no-install-recommends "$@" >"$setup_log" 2>&1 </dev/null; then
            rm -f "$setup_log"
            return 0
        fi
        $as_root apt-get update -q >>"$setup_log" 2>&1 </dev/null ||
            sleep $((round * 2))
    done
    tail -n 20 "$setup_log" >&2
    rm -f "$setup_log"
    say "These packages could not be installed: $*" >&2
    return 1
}

processors() { getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2; }
