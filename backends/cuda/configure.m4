# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# LIBCORE_GPU_GENCODE: sets CUDA_GENCODE, nvcc's options for gpu_arch.
AC_DEFUN([LIBCORE_GPU_GENCODE], [
  CUDA_GENCODE=
  for gpu_one in $gpu_arch; do
    gpu_number=${gpu_one@%:@sm_}
    CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$gpu_number,code=sm_$gpu_number"
  done
  CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$gpu_number,code=compute_$gpu_number"
])

# LIBCORE_GPU_CUDA: the cuda backend.
AC_DEFUN([LIBCORE_GPU_CUDA], [
  AC_ARG_VAR([NVCC], [CUDA's compiler])
  AC_ARG_VAR([NVCCFLAGS], [its flags, -O3 by default])
  : ${NVCCFLAGS="-O3"}
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@],
       [build the cuda backend, with CUDA from DIR @<:@if a GPU is found@:>@])])
  AC_ARG_WITH([cuda-arch],
    [AS_HELP_STRING([--with-cuda-arch=LIST],
       [architectures, such as "sm_80 sm_90", and PTX of the last one
        @<:@sm_75 sm_80 sm_90@:>@])])
  gpu_path=$PATH:/usr/local/cuda/bin
  AS_CASE([$with_cuda], [''|yes|no], [],
    [gpu_path=$with_cuda/bin])
  AC_PATH_PROG([NVCC], [nvcc], [], [$gpu_path])
  AS_IF([test -n "$with_cuda" || test -e /dev/nvidiactl],
    [gpu_all="sm_75 sm_80 sm_90"], [gpu_all=sm_80])
  LIBCORE_GPU_LIST([cuda_arch], [$gpu_all])
  # "80" means "sm_80".
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
