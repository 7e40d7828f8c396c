# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# setup.sh: sourced by quickstart and run-tests.  Installs on Debian and Ubuntu
# what is missing; elsewhere says what to install.

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

# The packages of those that $1 names (build, data, test, hip) that are missing.
missing_packages() {
    case $1 in
    build)
        # A compiler without the C library's headers is no compiler.
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
        # A device of OpenCL on the CPU, and CLBlast.
        [ -e /usr/include/CL/cl.h ] || echo opencl-headers
        [ -e /etc/OpenCL/vendors/pocl.icd ] || echo pocl-opencl-icd
        have_library libOpenCL.so.1 || echo ocl-icd-libopencl1
        have_library libclblast.so.1 || echo libclblast1
        ;;
    # Not every distribution has it.
    hip) have hipcc || [ -x /opt/rocm/bin/hipcc ] || echo hipcc ;;
    esac
}

# Installs what is missing of the groups $@.  Fails, having said which
# packages, where it cannot.
install_missing() {
    packages=
    for group in "$@"; do
        packages="$packages $(missing_packages "$group" | tr '\n' ' ')"
    done
    # shellcheck disable=SC2086 # words are meant
    set -- $packages
    [ $# -gt 0 ] || return 0
    if ! have apt-get; then
        say "Please install what these Debian packages bring: $*" >&2
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
    # The lists of packages may be missing or old: ask for new ones only when
    # those at hand do not do.
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
