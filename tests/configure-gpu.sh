#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# configure says which architectures of GPUs a compiler of kernels does not
# know: an error where they were asked for, and the reason in its table
# otherwise.  The compilers are none: they know what this says.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source=$(cd "$LIBCORE_SOURCE" && pwd)
number=0
skipped=

# shellcheck source=tests/fixtures/ok.sh
. "$LIBCORE_SOURCE/tests/fixtures/ok.sh"

ok() { # name, command...
    name=$1
    shift
    number=$((number + 1))
    if [ -n "$skipped" ]; then
        echo "ok $number - $name # SKIP $skipped"
    elif "$@" >"$work/log" 2>&1; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        telling "$work/log"
    fi
}

[ ! -f "$source/config.status" ] ||
    skipped='the folder of the sources is configured itself'

# A compiler that takes options like this one and writes no code.
compiler() { # file, pattern of the options for architectures that it knows
    mkdir -p "${1%/*}"
    cat >"$1" <<END
#!/bin/sh
for word; do
    case \$word in
    *arch=$2 | *arch=$2,*) ;;
    *arch=*)
        echo "error: no architecture of \$word" >&2
        exit 1
        ;;
    esac
done
END
    chmod +x "$1"
}
compiler "$work/cuda/bin/nvcc" 'compute_[89]0'
compiler "$work/hip/bin/hipcc" 'gfx9*'
mkdir "$work/cuda/include" "$work/build"
echo '#define CUDA_VERSION 13000' >"$work/cuda/include/cuda.h"

# What is asked of the other compiler is found once.
nvcc=$work/cuda/bin/nvcc hipcc=$work/hip/bin/hipcc
run() { # arguments of configure...
    cd "$work/build" || return
    [ ! -f config.cache ] || sed -i '/NVCC\|HIPCC/d' config.cache
    "$source/configure" -C "ac_cv_path_NVCC=$nvcc" "ac_cv_path_HIPCC=$hipcc" \
        "$@" >"$work/out" 2>&1 </dev/null
    status=$?
    cat "$work/out"
    return $status
}
refused() { # text, arguments of configure...
    text=$1
    shift
    ! run "$@" && grep -qF -e "$text" "$work/out"
}
elsewhere() { # no path of its compiler is known
    run --without-hip >/dev/null
    sed -i '/NVCC/d' "$work/build/config.cache"
    (cd "$work/build" && ! "$source/configure" -C --without-hip \
        --with-cuda="$work/none" 2>&1) |
        grep -F "with-cuda: no nvcc was found in $work/none/bin"
}
row() { # pattern of a row of the table, arguments of configure...
    pattern=$1
    shift
    run "$@" && grep -qE "^ *$pattern" "$work/out"
}

ok 'architectures that are known are taken' \
    row 'cuda  *yes  *sm_80 sm_90$' --with-cuda --with-cuda-arch=sm_80,sm_90 \
    --without-hip
ok 'what is asked for and does not compile for the defaults is an error' \
    refused 'with-cuda: '"$work"'/cuda/bin/nvcc does not compile for sm_75' \
    --with-cuda --without-hip
ok 'an error names each architecture of CUDA that is not known' \
    refused 'with-cuda-arch: '"$work"'/cuda/bin/nvcc does not compile for sm_12 sm_34 (' \
    --with-cuda '--with-cuda-arch=sm_80 sm_12 sm_90 sm_34' --without-hip
ok 'an error names each architecture of HIP that is not known' \
    refused 'with-hip-arch: '"$work"'/hip/bin/hipcc does not compile for gfx77 gfx1 (' \
    --without-cuda --with-hip '--with-hip-arch=gfx90a,gfx77,gfx906 gfx1'
# HIP's headers lie beside its compiler, where AMD's own packages have them.
mkdir -p "$work/hip/include/hip"
echo '#define HIP_VERSION_MAJOR    6' >"$work/hip/include/hip/hip_version.h"
: >"$work/hip/include/hip/hip_runtime_api.h"
beside() {
    run --without-cuda --with-hip --with-hip-arch=gfx90a &&
        grep -x 'HIP_MAJOR = 6' Makefile &&
        grep "^HIP_CPPFLAGS = -I$work/hip/bin/../include$" Makefile
}
ok 'the headers of HIP are those beside its compiler' beside
rm -r "$work/hip/include"
compiler "$work/old/bin/hipcc" 'gfx80[0-9]'
hipcc=$work/old/bin/hipcc
ok 'what is not asked for and does not compile has its reason in the table' \
    row 'rocm  *no  *.*does not compile for gfx90a$' --without-cuda
ok 'and is an error where it is asked for' \
    refused 'with-hip: '"$hipcc"' does not compile for gfx906' --with-hip \
    --without-cuda
nvcc='' hipcc=''
ok 'what is asked for is an error where its compiler is absent' \
    refused 'with-cuda: no nvcc was found' --with-cuda
ok 'so is HIP' \
    refused 'with-hip: no hipcc was found' --without-cuda --with-hip
ok 'so is HIP on the platform of NVIDIA' \
    refused 'with-hipnv: it wants CUDA' --with-hipnv
ok 'which takes no folder' refused 'with-hipnv takes no folder' \
    --with-hipnv=/opt
ok 'CUDA is where --with-cuda says, or nowhere' elsewhere
ok 'absent compilers that nobody asked for are no error' \
    row 'rocm  *no  *no hipcc was found' --disable-dependency-tracking
ok 'a list that is none is an error' \
    refused 'with-hip-arch wants a list' --without-cuda --with-hip-arch
echo "1..$number"
