# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# MPI.  The plugin is built once for each mpi.h, because their handles differ;
# the library is opened at run time.

# LIBCORE_MPI(NAME, VARIABLE, COMPILER, QUERY, PACKAGE)
AC_DEFUN([LIBCORE_MPI], [
  AC_ARG_VAR([$2_CFLAGS], [preprocessor flags for the mpi.h of $1])
  AC_PATH_PROG([$2_COMPILER], [$3], [no])
  AS_IF([test "x$$2_CFLAGS" = x && test "x$$2_COMPILER" != xno],
    [$2_CFLAGS=`$$2_COMPILER $4 2>/dev/null | tr ' ' '\n' |
       $SED -n 's/^-I/-isystem /p' | tr '\n' ' '`])
  AS_CASE([$enable_mpi:$$2_CFLAGS],
    [no:*], [have_$1=no; LIBCORE_BACKEND_ROW([$1], [no], [--disable-mpi])],
    [*:?*], [have_$1=yes
      LIBCORE_BACKEND_ROW([$1], [yes],
        [collectives; its library is opened at run time])],
    [have_$1=no
     LIBCORE_BACKEND_ROW([$1], [no], [no $3 (Debian: $5)])])
])

AC_DEFUN([LIBCORE_PLUGIN_MPI], [
  LIBCORE_BACKEND_SWITCH([mpi])
  LIBCORE_MPI([openmpi], [OPENMPI], [mpicc.openmpi], [--showme:compile],
    [libopenmpi-dev])
  LIBCORE_MPI([mpich], [MPICH], [mpicc.mpich], [-compile_info],
    [libmpich-dev])
  AM_CONDITIONAL([OPENMPI], [test "x$have_openmpi" = xyes])
  AM_CONDITIONAL([MPICH], [test "x$have_mpich" = xyes])
])
