# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# The simulated accelerator.  It borrows the CPU backend's kernels at run time,
# so it builds without that backend but needs it to compute.
AC_DEFUN([LIBCORE_BACKEND_SIM], [
  LIBCORE_BACKEND_SWITCH([sim])
  AS_IF([test "x$enable_sim" = xno],
    [LIBCORE_BACKEND_ROW([sim], [no], [--disable-sim])],
    [LIBCORE_BACKEND_ROW([sim], [yes], [simulated accelerator, for tests])])
  AM_CONDITIONAL([BACKEND_SIM], [test "x$enable_sim" != xno])
])
