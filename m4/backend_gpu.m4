# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# LIBCORE_BACKEND_GPU: CUDA and ROCm.  Each wants its vendor's compiler of
# kernels, and builds without a GPU: the vendor's libraries are opened when a
# program runs.  Compiling takes minutes, so by itself a plugin is built where
# a GPU is; where only the compiler is, the tests build it, for one
# architecture; --with-cuda and --with-hip build and install it anywhere.
AC_DEFUN([LIBCORE_BACKEND_GPU], [
  AM_CONDITIONAL([HAVE_CXX], [test -n "$CXX_CHECK"])
  LIBCORE_GPU_CUDA
  gpu_cuda_state=$gpu_state
  LIBCORE_GPU_HIP
  LIBCORE_GPU_HIPNV
])

# HIP on its NVIDIA platform, for verification: HIP's headers and nvcc.
AC_DEFUN([LIBCORE_GPU_HIPNV], [
  AC_ARG_WITH([hipnv],
    [AS_HELP_STRING([--with-hipnv],
       [the tests build HIP for NVIDIA's GPUs, too @<:@no@:>@])])
  gpu_state=no
  AS_CASE([$with_hipnv], [''|yes|no], [],
    [AC_MSG_ERROR([--with-hipnv takes no folder: it uses CUDA's, see --with-cuda])])
  AS_IF([test "x$with_hipnv" != xyes],
      [gpu_reason="--with-hipnv builds it, for tests"],
    [test $gpu_cuda_state = no], [gpu_reason="it wants CUDA, which is not built"],
    [test ! -f "$CUDA_INCLUDE/../lib64/libcudart_static.a"],
      [gpu_reason="no libcudart_static.a beside nvcc"],
    [AC_COMPILE_IFELSE([AC_LANG_SOURCE([[
#if !__has_include(<hip/nvidia_detail/nvidia_hip_runtime_api.h>)
#error none
#endif
int x;]])],
       [gpu_state=tests; gpu_reason="the tests alone build it"],
       [gpu_reason="no headers of HIP's NVIDIA platform"])])
  AS_IF([test "x$with_hipnv" = xyes && test $gpu_state = no],
    [AC_MSG_ERROR([--with-hipnv: $gpu_reason])])
  LIBCORE_BACKEND_ROW([hipnv], [$gpu_state], [$gpu_reason])
  AM_CONDITIONAL([TESTS_HIPNV], [test $gpu_state = tests])
])

# LIBCORE_GPU_STATE(NAME, WORD, DEVICE-FILE, WHY-NOT, TEXT)
# Sets gpu_state to yes, tests or no and adds the row.  What --with-WORD asks for
# and cannot be built is an error.
AC_DEFUN([LIBCORE_GPU_STATE], [
  AS_IF([test "x$with_$2" = xno],
      [gpu_state=no; gpu_reason="--without-$2"],
    [test -n "$4" && test -n "$with_$2"],
      [AC_MSG_ERROR([--with-$2: $4])],
    [test -n "$4"], [gpu_state=no; gpu_reason="$4"],
    [test -n "$with_$2" || test -e "$3"], [gpu_state=yes; gpu_reason="$5"],
    [gpu_state=tests; gpu_reason="$5; no GPU here: the tests alone build it"])
  LIBCORE_BACKEND_ROW([$1], [$gpu_state], [$gpu_reason])
])

# LIBCORE_GPU_LIST(OPTION, DEFAULT): gpu_arch, from the option or the default.
AC_DEFUN([LIBCORE_GPU_LIST], [
  AS_CASE([$with_$1],
    [yes|no|[' '*]], [AC_MSG_ERROR([--with-m4_translit([$1], [_], [-]) wants a list of architectures])],
    [''], [gpu_arch="$2"],
    [gpu_arch=$with_$1])
  gpu_arch=`AS_ECHO(["$gpu_arch"]) | tr ',' ' '`
])

# LIBCORE_GPU_COMPILES(OPTION, COMPILER, PREPARE, COMMAND)
# Whether COMMAND, which PREPARE makes for the list in gpu_arch, compiles for
# it; gpu_why otherwise, with the names that are refused.  A list that was asked
# for is an error then.
AC_DEFUN([LIBCORE_GPU_COMPILES], [
  AC_MSG_CHECKING([whether $2 compiles for $gpu_arch])
  $3
  AS_IF([$4 >&AS_MESSAGE_LOG_FD 2>&1], [AC_MSG_RESULT([yes])],
    [gpu_all=$gpu_arch
     gpu_refused=
     for gpu_arch in $gpu_all; do
       $3
       AS_IF([$4 >&AS_MESSAGE_LOG_FD 2>&1], [],
         [gpu_refused="$gpu_refused $gpu_arch"])
     done
     gpu_arch=$gpu_all
     AS_IF([test -z "$gpu_refused"],
       [gpu_refused=" $gpu_all at once"])
     AC_MSG_RESULT([not for$gpu_refused])
     gpu_why="$2 does not compile for$gpu_refused"
     AS_IF([test -n "$with_$1"],
       [AC_MSG_ERROR([--with-m4_translit([$1], [_], [-]): $gpu_why (config.log has the reason)])])])
])

# Of the list in gpu_arch.
AC_DEFUN([LIBCORE_GPU_GENCODE], [
  CUDA_GENCODE=
  for gpu_one in $gpu_arch; do
    gpu_number=${gpu_one@%:@sm_}
    CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$gpu_number,code=sm_$gpu_number"
  done
  CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$gpu_number,code=compute_$gpu_number"
])
AC_DEFUN([LIBCORE_GPU_OFFLOAD], [
  HIP_OFFLOAD=
  for gpu_one in $gpu_arch; do
    HIP_OFFLOAD="$HIP_OFFLOAD --offload-arch=$gpu_one"
  done
])

AC_DEFUN([LIBCORE_GPU_CUDA], [
  AC_ARG_VAR([NVCC], [CUDA's compiler])
  AC_ARG_VAR([NVCCFLAGS], [its flags, by default -O3])
  : ${NVCCFLAGS="-O3"}
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@],
       [build the cuda backend; DIR: where CUDA is @<:@where a GPU is@:>@])])
  AC_ARG_WITH([cuda-arch],
    [AS_HELP_STRING([--with-cuda-arch=LIST],
       [architectures, such as "sm_80 sm_90"; PTX of the last one comes with
        them @<:@sm_75 sm_80 sm_90@:>@])])
  gpu_path=$PATH:/usr/local/cuda/bin
  AS_CASE([$with_cuda], [''|yes|no], [],
    [gpu_path=$with_cuda/bin])
  AC_PATH_PROG([NVCC], [nvcc], [], [$gpu_path])
  AS_IF([test -n "$with_cuda" || test -e /dev/nvidiactl],
    [gpu_all="sm_75 sm_80 sm_90"], [gpu_all=sm_80])
  LIBCORE_GPU_LIST([cuda_arch], [$gpu_all])
  # "80" is "sm_80".
  gpu_arch=`AS_ECHO([" $gpu_arch"]) | sed 's/ \(@<:@0-9@:>@\)/ sm_\1/g; s/^ //'`
  LIBCORE_GPU_GENCODE
  CUDA_INCLUDE=
  gpu_why=
  AS_IF([test "x$with_cuda" = xno], [],
    [test -z "$NVCC"], [gpu_why="no nvcc was found in $gpu_path"],
    [CUDA_INCLUDE=`dirname "$NVCC"`/../include
     AS_ECHO(['extern "C" __global__ void k(int *x) { *x = 1; }']) >conftest.cu
     LIBCORE_GPU_COMPILES([cuda_arch], [$NVCC], [LIBCORE_GPU_GENCODE],
       [$NVCC $CUDA_GENCODE -fatbin -o conftest.fatbin conftest.cu])
     LIBCORE_GPU_GENCODE
     rm -f conftest.cu conftest.fatbin
     AS_IF([test -z "$gpu_why" && test ! -f "$CUDA_INCLUDE/cuda.h"],
       [gpu_why="no cuda.h beside nvcc"])])
  LIBCORE_GPU_STATE([cuda], [cuda], [/dev/nvidiactl], [$gpu_why],
    [$gpu_arch])
  CUDA_MAJOR=`sed -n 's/^#define CUDA_VERSION \(.*\)...$/\1/p' \
    "$CUDA_INCLUDE/cuda.h" 2>/dev/null`
  CUDA_ARCHES=$gpu_arch
  AC_SUBST([CUDA_ARCHES])
  AC_SUBST([CUDA_GENCODE])
  AC_SUBST([CUDA_INCLUDE])
  AC_SUBST([CUDA_MAJOR])
  AM_CONDITIONAL([BACKEND_CUDA], [test $gpu_state = yes])
  AM_CONDITIONAL([TESTS_CUDA], [test $gpu_state = tests])
])

AC_DEFUN([LIBCORE_GPU_HIP], [
  AC_ARG_VAR([HIPCC], [HIP's compiler])
  AC_ARG_VAR([HIPCCFLAGS], [its flags, by default -O3])
  : ${HIPCCFLAGS="-O3"}
  AC_ARG_WITH([hip],
    [AS_HELP_STRING([--with-hip@<:@=DIR@:>@],
       [build the rocm backend; DIR: where ROCm is @<:@where a GPU is@:>@])])
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
     # Of each run it leaves a folder where TMPDIR is.
     mkdir conftest.dir
     LIBCORE_GPU_COMPILES([hip_arch], [$HIPCC], [LIBCORE_GPU_OFFLOAD],
       [TMPDIR=conftest.dir $HIPCC --genco $HIP_OFFLOAD -o conftest.co conftest.hip])
     LIBCORE_GPU_OFFLOAD
     rm -rf conftest.dir
     rm -f conftest.hip conftest.co
     # Beside the compiler, where AMD's packages have it, or where all headers
     # are; hipcc looks there by itself.
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
