# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# The CPU backend.  It needs only a C compiler: OpenBLAS is opened at run time,
# so it is looked for only to report whether it will be used.
AC_DEFUN([LIBCORE_BACKEND_CPU], [
  LIBCORE_BACKEND_SWITCH([cpu])
  libcore_cpu_isa=portable
  AVX2_CFLAGS="-mavx2 -mfma -mf16c"
  AVX512_CFLAGS="-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c"
  have_x86_isa=no
  AC_ARG_ENABLE([x86-isa],
    [AS_HELP_STRING([--disable-x86-isa],
       [build the CPU kernels for the baseline instruction set only])])
  AS_CASE([$host_cpu/$enable_x86_isa], [*/no], [],
    [x86_64/*|amd64/*],
    [LIBCORE_CFLAG([$AVX2_CFLAGS $AVX512_CFLAGS],
       [have_x86_isa=yes; libcore_cpu_isa="x86-64, AVX2, AVX-512"])])
  # Products of bf16, which have their own file.
  BF16_CFLAGS="$AVX512_CFLAGS -mavx512bf16"
  have_x86_bf16=no
  AS_IF([test "x$have_x86_isa" = xyes],
    [LIBCORE_CFLAG([$BF16_CFLAGS],
       [have_x86_bf16=yes; libcore_cpu_isa="$libcore_cpu_isa, AVX512-BF16"])])
  # Uses 512-bit registers, but does not vectorize the rest of a loop.
  LIBCORE_CFLAG([-mprefer-vector-width=512],
    [AVX512_CFLAGS="$AVX512_CFLAGS -mprefer-vector-width=512"])
  AC_ARG_VAR([CPU_OPTIMIZATION],
    [optimization of the CPU kernels, where CFLAGS has none])
  CPU_CFLAGS=$CPU_OPTIMIZATION
  LIBCORE_CFLAG([--param=vect-epilogues-nomask=0],
    [CPU_CFLAGS="$CPU_CFLAGS --param=vect-epilogues-nomask=0"])
  AC_SUBST([CPU_CFLAGS])
  AC_SUBST([AVX2_CFLAGS])
  AC_SUBST([AVX512_CFLAGS])
  AC_SUBST([BF16_CFLAGS])
  AC_MSG_CHECKING([for libopenblas.so.0 (used at run time)])
  AC_RUN_IFELSE([AC_LANG_PROGRAM([[#include <dlfcn.h>]],
      [[return !dlopen("libopenblas.so.0", RTLD_LAZY);]])],
    [have_openblas=yes], [have_openblas=no], [have_openblas=unknown])
  AC_MSG_RESULT([$have_openblas])
  AS_CASE([$have_openblas],
    [yes], [libcore_blas="OpenBLAS found"],
    [no], [libcore_blas="no libopenblas.so.0: built-in matrix product"],
    [libcore_blas="OpenBLAS is looked for at run time"])
  AS_IF([test "x$enable_cpu" = xno],
    [LIBCORE_BACKEND_ROW([cpu], [no], [--disable-cpu])],
    [LIBCORE_BACKEND_ROW([cpu], [yes], [$libcore_cpu_isa; $libcore_blas])])
  AM_CONDITIONAL([BACKEND_CPU], [test "x$enable_cpu" != xno])
  AM_CONDITIONAL([X86_ISA], [test "x$have_x86_isa" = xyes])
  AM_CONDITIONAL([X86_BF16], [test "x$have_x86_bf16" = xyes])
])
