# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# LIBCORE_BACKEND_GPU: the backends of GPU vendors, whose macros are in
# backends/cuda and backends/rocm.  Each needs its vendor's kernel compiler, and
# builds without a GPU: the vendor's libraries are opened at run time.  Compiling
# the kernels takes minutes, so by default a plugin is built and installed only
# where a GPU is; where there is only the compiler, the tests build it, for one
# architecture.  --with-cuda and --with-hip build and install it anywhere.
AC_DEFUN([LIBCORE_BACKEND_GPU], [
  AM_CONDITIONAL([HAVE_CXX], [test -n "$CXX_CHECK"])
  LIBCORE_GPU_CUDA
  gpu_cuda_state=$gpu_state
  LIBCORE_GPU_HIP
  LIBCORE_GPU_HIPNV
])

# LIBCORE_GPU_STATE(NAME, OPTION, DEVICE-FILE, WHY-NOT, TEXT)
# Sets gpu_state to yes, tests or no and adds the row.  It is an error if
# --with-OPTION is given and WHY-NOT is not empty.
AC_DEFUN([LIBCORE_GPU_STATE], [
  AS_IF([test "x$with_$2" = xno],
      [gpu_state=no; gpu_reason="--without-$2"],
    [test -n "$4" && test -n "$with_$2"],
      [AC_MSG_ERROR([--with-$2: $4])],
    [test -n "$4"], [gpu_state=no; gpu_reason="$4"],
    [test -n "$with_$2" || test -e "$3"], [gpu_state=yes; gpu_reason="$5"],
    [gpu_state=tests; gpu_reason="$5; no GPU here: built for tests only"])
  LIBCORE_BACKEND_ROW([$1], [$gpu_state], [$gpu_reason])
])

# LIBCORE_GPU_LIST(OPTION, DEFAULT)
# Sets gpu_arch from the option or, without one, from DEFAULT.
AC_DEFUN([LIBCORE_GPU_LIST], [
  AS_CASE([$with_$1],
    [yes|no|[' '*]], [AC_MSG_ERROR([--with-m4_translit([$1], [_], [-]) needs a list of architectures])],
    [''], [gpu_arch="$2"],
    [gpu_arch=$with_$1])
  gpu_arch=`AS_ECHO(["$gpu_arch"]) | tr ',' ' '`
])

# LIBCORE_GPU_COMPILES(OPTION, COMPILER, PREPARE, COMMAND)
# Checks that COMMAND compiles for the list in gpu_arch; PREPARE sets the
# variables that COMMAND uses, from gpu_arch.  If not, sets gpu_why, which names
# the refused architectures; if the user gave the list, that is an error.
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
