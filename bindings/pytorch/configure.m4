# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# The devices for PyTorch.  The shim is built against one installed torch, that
# of the Python that is given, and only on request.
AC_DEFUN([LIBCORE_BINDING_TORCH], [
  AC_ARG_WITH([torch],
    [AS_HELP_STRING([--with-torch=PYTHON],
       [build the devices for PyTorch, for a Python that imports torch 2.10 or
        later @<:@no@:>@])],
    [], [with_torch=no])
  AC_ARG_VAR([TORCH_CXX], [a C++20 compiler for --with-torch])
  AC_ARG_VAR([TORCH_CXXFLAGS], [its flags @<:@-O2@:>@])
  TORCH_PYTHON= TORCH_TAG= TORCH_CPPFLAGS= TORCH_LIBS=
  AS_CASE([$with_torch],
    [no], [LIBCORE_BACKEND_ROW([torch], [no], [only with --with-torch=PYTHON])],
    [yes], [AC_MSG_ERROR([--with-torch needs a Python that imports torch])],
    [LIBCORE_TORCH_FLAGS])
  AC_SUBST([TORCH_PYTHON])
  AC_SUBST([TORCH_TAG])
  AC_SUBST([TORCH_CPPFLAGS])
  AC_SUBST([TORCH_LIBS])
  AM_CONDITIONAL([TORCH], [test -n "$TORCH_TAG"])
])

# Asks the Python, with bindings/pytorch/torch_flags.py.
AC_DEFUN([LIBCORE_TORCH_FLAGS], [
  TORCH_PYTHON=$with_torch
  AC_PATH_PROGS([TORCH_CXX], [g++ clang++ c++])
  : ${TORCH_CXXFLAGS=-O2}
  AC_MSG_CHECKING([for torch 2.10 or later in $TORCH_PYTHON])
  libcore_torch_flags=$srcdir/bindings/pytorch/torch_flags.py
  AS_IF([TORCH_TAG=`"$TORCH_PYTHON" "$libcore_torch_flags" tag 2>conftest.err`],
    [TORCH_CPPFLAGS=`"$TORCH_PYTHON" "$libcore_torch_flags" cppflags 2>/dev/null`
     TORCH_LIBS=`"$TORCH_PYTHON" "$libcore_torch_flags" libs 2>/dev/null`
     AC_MSG_RESULT([$TORCH_TAG])
     LIBCORE_BACKEND_ROW([torch], [yes], [devices for torch $TORCH_TAG])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([--with-torch=$TORCH_PYTHON: `tail -n 1 conftest.err`])])
])
