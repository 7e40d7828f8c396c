# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# LIBCORE_GPU_OFFLOAD: sets HIP_OFFLOAD, hipcc's options for gpu_arch.
AC_DEFUN([LIBCORE_GPU_OFFLOAD], [
  HIP_OFFLOAD=
  for gpu_one in $gpu_arch; do
    HIP_OFFLOAD="$HIP_OFFLOAD --offload-arch=$gpu_one"
  done
])

# LIBCORE_GPU_HIP: the rocm backend.
AC_DEFUN([LIBCORE_GPU_HIP], [
  AC_ARG_VAR([HIPCC], [HIP's compiler])
  AC_ARG_VAR([HIPCCFLAGS], [its flags, -O3 by default])
  : ${HIPCCFLAGS="-O3"}
  AC_ARG_WITH([hip],
    [AS_HELP_STRING([--with-hip@<:@=DIR@:>@],
       [build the rocm backend, with ROCm from DIR @<:@if a GPU is found@:>@])])
  AC_ARG_WITH([hip-arch],
    [AS_HELP_STRING([--with-hip-arch=LIST],
       [architectures @<:@gfx906 gfx908 gfx90a gfx1030@:>@])])
  gpu_path=$PATH:/opt/rocm/bin
  AS_CASE([$with_hip], [''|yes|no], [], [gpu_path=$with_hip/bin])
  AC_PATH_PROG([HIPCC], [hipcc], [], [$gpu_path])
  AS_IF([test -n "$with_hip" || test -e /dev/kfd],
    [gpu_all="gfx906 gfx908 gfx90a gfx1030"], [gpu_all=gfx90a])
  LIBCORE_GPU_LIST([hip_arch], [$gpu_all])
  LIBCORE_GPU_OFFLOAD
  gpu_why=
  HIP_CPPFLAGS=
  HIP_VERSION_H=/usr/include/hip/hip_version.h
  AS_IF([test "x$with_hip" = xno], [],
    [test -z "$HIPCC"], [gpu_why="no hipcc was found in $gpu_path (Debian: hipcc)"],
    [AS_ECHO(['#include <hip/hip_runtime.h>
extern "C" __global__ void k(int *x) { *x = threadIdx.x; }']) >conftest.hip
     # hipcc leaves a folder in TMPDIR.
     mkdir conftest.dir
     LIBCORE_GPU_COMPILES([hip_arch], [$HIPCC], [LIBCORE_GPU_OFFLOAD],
       [TMPDIR=conftest.dir $HIPCC --genco $HIP_OFFLOAD -o conftest.co conftest.hip])
     LIBCORE_GPU_OFFLOAD
     rm -rf conftest.dir
     rm -f conftest.hip conftest.co
     # AMD's packages install the headers beside the compiler, where hipcc
     # finds them by itself; distributions, with all other headers.
     gpu_cppflags=$CPPFLAGS
     for gpu_one in "`dirname "$HIPCC"`/../include" /opt/rocm/include; do
       AS_IF([test -z "$HIP_CPPFLAGS" && test -f "$gpu_one/hip/hip_version.h"],
         [HIP_CPPFLAGS=-I$gpu_one; HIP_VERSION_H=$gpu_one/hip/hip_version.h])
     done
     CPPFLAGS="$CPPFLAGS $HIP_CPPFLAGS"
     AC_CHECK_HEADER([hip/hip_runtime_api.h], [],
       [AS_IF([test -z "$gpu_why"], [gpu_why="no hip/hip_runtime_api.h"])],
       [[#define __HIP_PLATFORM_AMD__ 1]])
     CPPFLAGS=$gpu_cppflags])
  LIBCORE_GPU_STATE([rocm], [hip], [/dev/kfd], [$gpu_why], [$gpu_arch])
  HIP_MAJOR=`sed -n 's/^#define HIP_VERSION_MAJOR  *//p' \
    "$HIP_VERSION_H" 2>/dev/null | head -n 1`
  AS_CASE([$HIP_MAJOR], [6], [ROCBLAS_NUMBER=4], [7], [ROCBLAS_NUMBER=5],
    [ROCBLAS_NUMBER=0])
  HIP_ARCHES=$gpu_arch
  AC_SUBST([HIP_ARCHES])
  AC_SUBST([HIP_CPPFLAGS])
  AC_SUBST([HIP_MAJOR])
  AC_SUBST([ROCBLAS_NUMBER])
  AC_SUBST([HIP_OFFLOAD])
  AM_CONDITIONAL([BACKEND_ROCM], [test $gpu_state = yes])
  AM_CONDITIONAL([TESTS_ROCM], [test $gpu_state = tests])
])

# LIBCORE_GPU_HIPNV: HIP on its NVIDIA platform, for verification; it needs HIP's
# headers and nvcc.
AC_DEFUN([LIBCORE_GPU_HIPNV], [
  AC_ARG_WITH([hipnv],
    [AS_HELP_STRING([--with-hipnv],
       [build, for the tests, HIP for NVIDIA GPUs, too @<:@no@:>@])])
  gpu_state=no
  AS_CASE([$with_hipnv], [''|yes|no], [],
    [AC_MSG_ERROR([--with-hipnv takes no directory: it uses that of --with-cuda])])
  AS_IF([test "x$with_hipnv" != xyes],
      [gpu_reason="only built for tests, with --with-hipnv"],
    [test $gpu_cuda_state = no], [gpu_reason="it needs CUDA, which is not built"],
    [test ! -f "$CUDA_INCLUDE/../lib64/libcudart_static.a"],
      [gpu_reason="no libcudart_static.a beside nvcc"],
    [AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
#if !__has_include(<hip/nvidia_detail/nvidia_hip_runtime_api.h>)
#error none
#endif
int x;]])],
       [gpu_state=tests; gpu_reason="built for tests only"],
       [gpu_reason="the headers of HIP's NVIDIA platform were not found"])])
  AS_IF([test "x$with_hipnv" = xyes && test $gpu_state = no],
    [AC_MSG_ERROR([--with-hipnv: $gpu_reason])])
  LIBCORE_BACKEND_ROW([hipnv], [$gpu_state], [$gpu_reason])
  AM_CONDITIONAL([TESTS_HIPNV], [test $gpu_state = tests])
])
