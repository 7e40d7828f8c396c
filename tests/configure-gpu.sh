#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# configure reports which GPU architectures a kernel compiler does not support:
# as an error where the user asked for them, otherwise as the reason in its
# table.  The compilers are fakes that support what this script says.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source=$(cd "$LIBCORE_SOURCE" && pwd)
number=0
skipped=

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

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
        print_reason "$work/log"
    fi
}

[ ! -f "$source/config.status" ] ||
    skipped='the source tree is itself configured'

# Writes a fake compiler, which only checks its options.
compiler() { # file, pattern of the architecture options it accepts
    mkdir -p "${1%/*}"
    cat >"$1" <<END
#!/bin/sh
for option; do
    case \$option in
    *arch=$2 | *arch=$2,*) ;;
    *arch=*)
        echo "error: no architecture of \$option" >&2
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

# The cache keeps the results that do not depend on the compilers.  They are the
# build's, if it has kept them.
[ ! -f "$LIBCORE_BUILD/config.cache" ] ||
    sed '/^ac_cv_env_/d; /hip/d' "$LIBCORE_BUILD/config.cache" \
        >"$work/build/config.cache"
nvcc=$work/cuda/bin/nvcc hipcc=$work/hip/bin/hipcc
run() { # arguments of configure...
    cd "$work/build" || return
    [ ! -f config.cache ] || sed -i '/NVCC\|HIPCC/d' config.cache
    "$source/configure" -C --disable-dependency-tracking \
        "ac_cv_path_NVCC=$nvcc" "ac_cv_path_HIPCC=$hipcc" "$@" >"$work/out" 2>&1 </dev/null
    status=$?
    cat "$work/out"
    return $status
}
refused() { # text, arguments of configure...
    text=$1
    shift
    ! run "$@" && grep -qF -e "$text" "$work/out"
}
elsewhere() { # without the compiler's path in the cache
    run --without-hip >/dev/null
    sed -i '/NVCC/d' "$work/build/config.cache"
    (cd "$work/build" && ! "$source/configure" -C --without-hip \
        --with-cuda="$work/none" 2>&1) |
        grep -F "with-cuda: no nvcc was found in $work/none/bin"
}
row() { # pattern of a row in the table, arguments of configure...
    pattern=$1
    shift
    run "$@" && grep -qE "^ *$pattern" "$work/out"
}

ok 'supported_architectures_are_accepted' \
    row 'cuda  *yes  *sm_80 sm_90$' --with-cuda --with-cuda-arch=sm_80,sm_90 \
    --without-hip
ok 'with_cuda_fails_if_a_default_architecture_is_refused' \
    refused 'with-cuda: '"$work"'/cuda/bin/nvcc does not compile for sm_75' \
    --with-cuda --without-hip
ok 'error_names_each_refused_cuda_architecture' \
    refused 'with-cuda-arch: '"$work"'/cuda/bin/nvcc does not compile for sm_12 sm_34 (' \
    --with-cuda '--with-cuda-arch=sm_80 sm_12 sm_90 sm_34' --without-hip
ok 'error_names_each_refused_hip_architecture' \
    refused 'with-hip-arch: '"$work"'/hip/bin/hipcc does not compile for gfx77 gfx1 (' \
    --without-cuda --with-hip '--with-hip-arch=gfx90a,gfx77,gfx906 gfx1'
# AMD's own packages install HIP's headers beside its compiler.
mkdir -p "$work/hip/include/hip"
echo '#define HIP_VERSION_MAJOR    6' >"$work/hip/include/hip/hip_version.h"
: >"$work/hip/include/hip/hip_runtime_api.h"
beside() {
    run --without-cuda --with-hip --with-hip-arch=gfx90a &&
        grep -x 'HIP_MAJOR = 6' Makefile &&
        grep "^HIP_CPPFLAGS = -I$work/hip/bin/../include$" Makefile
}
ok 'hip_headers_beside_the_compiler_are_used' beside
rm -r "$work/hip/include"
compiler "$work/old/bin/hipcc" 'gfx80[0-9]'
hipcc=$work/old/bin/hipcc
ok 'table_gives_the_reason_if_hip_is_not_requested' \
    row 'rocm  *no  *.*does not compile for gfx90a$' --without-cuda
ok 'with_hip_fails_if_an_architecture_is_refused' \
    refused 'with-hip: '"$hipcc"' does not compile for gfx906' --with-hip \
    --without-cuda
nvcc='' hipcc=''
ok 'with_cuda_without_nvcc_fails' \
    refused 'with-cuda: no nvcc was found' --with-cuda
ok 'with_hip_without_hipcc_fails' \
    refused 'with-hip: no hipcc was found' --without-cuda --with-hip
ok 'with_hipnv_without_cuda_fails' \
    refused 'with-hipnv: it needs CUDA' --with-hipnv
ok 'with_hipnv_takes_no_directory' refused 'with-hipnv takes no directory' \
    --with-hipnv=/opt
ok 'nvcc_is_searched_only_in_the_given_directory' elsewhere
ok 'absent_compilers_are_not_an_error_by_default' \
    row 'rocm  *no  *no hipcc was found'
ok 'with_hip_arch_without_a_list_fails' \
    refused 'with-hip-arch needs a list' --without-cuda --with-hip-arch
echo "1..$number"
