# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# OpenCL.  It is built with OpenCL's headers; the library is opened at run time.
AC_DEFUN([LIBCORE_BACKEND_OPENCL], [
  LIBCORE_BACKEND_SWITCH([opencl])
  AC_CHECK_HEADERS([CL/cl.h], [have_opencl=yes], [have_opencl=no],
    [[#define CL_TARGET_OPENCL_VERSION 120]])
  AS_CASE([$enable_opencl:$have_opencl],
    [no:*], [LIBCORE_BACKEND_ROW([opencl], [no], [--disable-opencl])],
    [*:no], [LIBCORE_BACKEND_ROW([opencl], [no],
      [no CL/cl.h (Debian: opencl-headers)])],
    [LIBCORE_BACKEND_ROW([opencl], [yes],
      [OpenCL 1.2 or later; its library is opened at run time])])
  AM_CONDITIONAL([BACKEND_OPENCL],
    [test "x$enable_opencl" != xno && test "x$have_opencl" = xyes])
])
