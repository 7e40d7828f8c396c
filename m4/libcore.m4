# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# libcore.m4: the macros of configure.ac.

# LIBCORE_LP64: fails unless the machine has the data model of the plugin ABI.
AC_DEFUN([LIBCORE_LP64], [
  AC_MSG_CHECKING([for 64-bit addresses, little endian])
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
    #if !defined __LP64__ || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #error not here
    #endif]])],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([libcore supports only LP64, little-endian machines])])
])

# LIBCORE_WARNINGS: sets WARN_CFLAGS.
AC_DEFUN([LIBCORE_WARNINGS], [
  AC_ARG_ENABLE([werror],
    [AS_HELP_STRING([--enable-werror], [treat warnings as errors])])
  WARN_CFLAGS="-Wall -Wextra"
  for flag in -Wstrict-prototypes -Wmissing-prototypes -Wvla; do
    LIBCORE_CFLAG([$flag], [WARN_CFLAGS="$WARN_CFLAGS $flag"])
  done
  AS_IF([test "x$enable_werror" = xyes],
    [WARN_CFLAGS="$WARN_CFLAGS -Werror"])
  AC_SUBST([WARN_CFLAGS])
])

# LIBCORE_CFLAG(FLAG, IF-ACCEPTED, [IF-NOT])
AC_DEFUN([LIBCORE_CFLAG], [
  libcore_saved_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS -Werror $1"
  AC_MSG_CHECKING([whether $CC accepts $1])
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM],
    [libcore_flag=yes], [libcore_flag=no])
  CFLAGS=$libcore_saved_CFLAGS
  AC_MSG_RESULT([$libcore_flag])
  AS_IF([test "x$libcore_flag" = xyes], [$2], [$3])
])

# LIBCORE_SANITIZE: --enable-sanitize=address,undefined or thread; a name after
# `no-` is what one of those before it does not check.
AC_DEFUN([LIBCORE_SANITIZE], [
  AC_ARG_ENABLE([sanitize],
    [AS_HELP_STRING([--enable-sanitize=LIST],
       [instrument everything: address,undefined or thread; and no-CHECK])],
    [], [enable_sanitize=no])
  SANITIZE_CFLAGS=
  AS_CASE([$enable_sanitize],
    [no], [],
    [yes], [enable_sanitize=address,undefined])
  AS_IF([test "x$enable_sanitize" != xno], [
    SANITIZE_CFLAGS=`AS_ECHO([",$enable_sanitize"]) |
      sed 's/,no-/ -fno-sanitize=/g; s/,/ -fsanitize=/g'`
    SANITIZE_CFLAGS="$SANITIZE_CFLAGS -fno-omit-frame-pointer"
    AS_CASE([$enable_sanitize], [*undefined*],
      [SANITIZE_CFLAGS="$SANITIZE_CFLAGS -fno-sanitize-recover=undefined"])
    libcore_saved_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS $SANITIZE_CFLAGS"
    AC_MSG_CHECKING([whether $CC can link with -fsanitize=$enable_sanitize])
    AC_LINK_IFELSE([AC_LANG_PROGRAM], [AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no])
       AC_MSG_ERROR([$CC cannot build with -fsanitize=$enable_sanitize])])
    CFLAGS=$libcore_saved_CFLAGS
  ])
  AC_SUBST([SANITIZE_CFLAGS])
  AM_CONDITIONAL([SANITIZE], [test "x$enable_sanitize" != xno])
])

# LIBCORE_SMALL: SMALL_CFLAGS, for plugins: no unwind tables, which are a tenth
# of a library.  Nothing unwinds through plugins, and debuggers use the debug
# information; sanitizers need the tables for their reports.
# COMPACT_CFLAGS: less inlining.
AC_DEFUN([LIBCORE_SMALL], [
  COMPACT_CFLAGS=
  LIBCORE_CFLAG([-finline-limit=10], [COMPACT_CFLAGS=-finline-limit=10])
  AC_SUBST([COMPACT_CFLAGS])
  SMALL_CFLAGS=
  AS_IF([test "x$enable_sanitize" = xno],
    [LIBCORE_CFLAG([-fno-asynchronous-unwind-tables],
       [SMALL_CFLAGS=-fno-asynchronous-unwind-tables])])
  AC_SUBST([SMALL_CFLAGS])
])

# LIBCORE_LINKER: checks for version scripts, which control exported symbols.
AC_DEFUN([LIBCORE_LINKER], [
  AC_MSG_CHECKING([whether the linker accepts version scripts])
  echo '{ global: shown; local: *; };' >conftest.map
  libcore_saved_LDFLAGS=$LDFLAGS
  LDFLAGS="$LDFLAGS -shared -fPIC -Wl,--version-script=conftest.map"
  AC_LINK_IFELSE([AC_LANG_SOURCE([[int shown(void) { return 0; }]])],
    [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([a linker with --version-script (GNU ld, lld) is required])])
  rm -f conftest.map
  # Half of the library's relocations are relative; packed they take a tenth
  # of the space.  The C library must know them when the program runs.
  AC_MSG_CHECKING([whether the linker packs relative relocations])
  LDFLAGS="$libcore_saved_LDFLAGS -shared -fPIC -Wl,--fatal-warnings"
  LDFLAGS="$LDFLAGS -Wl,-z,pack-relative-relocs"
  RELR_LDFLAGS=
  AC_LINK_IFELSE([AC_LANG_SOURCE([[
#include <features.h>
#if !defined __GLIBC__ || !__GLIBC_PREREQ(2, 36)
#error "older than DT_RELR"
#endif
int shown(void) { return 0; }
]])],
    [RELR_LDFLAGS=-Wl,-z,pack-relative-relocs
     AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])])
  AC_SUBST([RELR_LDFLAGS])
  LDFLAGS=$libcore_saved_LDFLAGS
])

# LIBCORE_PYTHON: sets PYTHON, an interpreter with PyYAML.  Only a checkout needs
# it: a tarball has the generated files.
AC_DEFUN([LIBCORE_PYTHON], [
  AC_ARG_VAR([PYTHON], [a Python 3 with PyYAML, for the generators])
  AC_ARG_WITH([python],
    [AS_HELP_STRING([--without-python],
       [generate nothing: a tarball has the generated files])])
  AC_MSG_CHECKING([for a Python 3 with PyYAML])
  libcore_python=
  for candidate in "$PYTHON" python3 /usr/bin/python3 /usr/local/bin/python3
  do
    AS_IF([test "x$with_python" = xno], [break])
    AS_IF([test -n "$candidate" && "$candidate" -c \
      'import sys, yaml; sys.exit(sys.version_info < (3, 6))' \
      >/dev/null 2>&1], [libcore_python=$candidate; break])
  done
  AS_IF([test -n "$libcore_python"],
    [PYTHON=$libcore_python; AC_MSG_RESULT([$PYTHON])],
    [PYTHON=; AC_MSG_RESULT([no])
     AS_IF([test ! -f "$srcdir/core/ops/generated/ops.stamp"],
       [AC_MSG_ERROR([a checkout builds its operator tables from ops.yaml:
  install Python 3 and PyYAML (Debian: python3-yaml), or build from a
  released tarball, which needs neither])])])
])

# LIBCORE_CHECK: looks for the unit test library.
AC_DEFUN([LIBCORE_CHECK], [
  PKG_CHECK_MODULES([CHECK], [check >= 0.11],
    [have_check=yes], [have_check=no])
  AM_CONDITIONAL([HAVE_CHECK], [test "x$have_check" = xyes])
])

# LIBCORE_ZLIB: looks for zlib, with which core-train reads compressed data sets.
AC_DEFUN([LIBCORE_ZLIB], [
  ZLIB_LIBS=
  have_zlib=no
  AC_CHECK_HEADER([zlib.h],
    [AC_CHECK_LIB([z], [gzopen], [have_zlib=yes; ZLIB_LIBS=-lz])])
  AC_SUBST([ZLIB_LIBS])
  AM_CONDITIONAL([HAVE_ZLIB], [test "x$have_zlib" = xyes])
])

# LIBCORE_TOOLS: looks for programs that only tests and checks use; without one,
# the tests that need it are skipped with a message.
AC_DEFUN([LIBCORE_TOOLS], [
  AC_CHECK_PROGS([VALGRIND], [valgrind])
  AC_CHECK_PROGS([CLANG_FORMAT], [clang-format])
  AC_CHECK_PROGS([SHELLCHECK], [shellcheck])
  AC_CHECK_PROGS([CXX_CHECK], [g++ clang++ c++])
])

# LIBCORE_BACKEND_ROW(NAME, STATE, REASON): adds a row to the final table.
AC_DEFUN([LIBCORE_BACKEND_ROW], [
  libcore_backend_rows="$libcore_backend_rows
$1|$2|$3"
])

# LIBCORE_BACKEND_SWITCH(NAME): adds the option --disable-NAME.
AC_DEFUN([LIBCORE_BACKEND_SWITCH], [
  AC_ARG_ENABLE([$1],
    [AS_HELP_STRING([--disable-$1], [do not build the $1 backend])],
    [], [enable_$1=yes])
])

# LIBCORE_BACKEND_LATER(NAME, FOLDER): a backend that is not in this tree.
AC_DEFUN([LIBCORE_BACKEND_LATER], [
  AS_IF([test -d "$srcdir/$2"],
    [LIBCORE_BACKEND_ROW([$1], [no], [$2 exists but is not integrated yet])],
    [LIBCORE_BACKEND_ROW([$1], [no], [not in this release])])
])

# LIBCORE_SUMMARY: prints what will be built, and why the rest will not.
AC_DEFUN([LIBCORE_SUMMARY], [
  AS_ECHO([""])
  AS_ECHO(["libcore $PACKAGE_VERSION, plugin ABI $LIBCORE_ABI_MAJOR"])
  AS_ECHO([""])
  AS_ECHO(["$libcore_backend_rows"]) | $AWK -F'|' '
    BEGIN { printf "  %-9s %-6s %s\n", "backend", "state", "reason" }
    NF == 3 { printf "  %-9s %-6s %s\n", @S|@1, @S|@2, @S|@3 }'
  AS_ECHO([""])
  AS_IF([test "x$enable_sanitize" != xno],
    [AS_ECHO(["  sanitizers: $enable_sanitize"])])
  AS_IF([test "x$have_zlib" = xno],
    [AS_ECHO(["  core-train: not built, zlib was not found (Debian: zlib1g-dev)"])])
  AS_IF([test "x$have_check" = xno],
    [AS_ECHO(["  unit tests: skipped, Check was not found (Debian: check)"])])
])
