# SPDX-License-Identifier: Apache-2.0 OR MIT-0
# Copyright The libcore authors
#
# Copying and distribution of this file, with or without modification, are
# permitted, for use in the configure.ac of plugins.

# LIBCORE_PLUGIN([MINIMUM-VERSION], [IF-FOUND], [IF-NOT-FOUND])
#
# Looks for libcore's headers, the only requirement of a plugin, and substitutes
#
#   LIBCORE_PLUGIN_CFLAGS    for the compiler: the headers, hidden symbols
#   LIBCORE_PLUGIN_LDFLAGS   for linking, with or without libtool: a shared
#                            object that exports only its entry
#   plugindir                libcore's plugin directory, or the argument of
#                            --with-libcore-plugindir=DIR
#   LIBCORE_PLUGIN_SEAL      a command that seals the plugin file given to it,
#                            or prints that core-info is missing or does not
#                            run
#   libcore_abi_major
#
# Without IF-NOT-FOUND their absence is an error.  With Automake and libtool:
#
#   plugin_LTLIBRARIES = core_example.la
#   core_example_la_CFLAGS = $(LIBCORE_PLUGIN_CFLAGS)
#   core_example_la_LDFLAGS = -module -avoid-version $(LIBCORE_PLUGIN_LDFLAGS)
#   install-data-hook:
#   	$(LIBCORE_PLUGIN_SEAL) $(DESTDIR)$(plugindir)/core_example.so
AC_DEFUN([LIBCORE_PLUGIN], [
  AC_REQUIRE([PKG_PROG_PKG_CONFIG])
  AC_ARG_WITH([libcore-plugindir],
    [AS_HELP_STRING([--with-libcore-plugindir=DIR],
       [where the plugin is installed @<:@libcore's plugin directory@:>@])])
  LIBCORE_PLUGIN_CFLAGS=
  LIBCORE_PLUGIN_LDFLAGS=
  AC_MSG_CHECKING([for the plugin headers of libcore m4_default([$1], [])])
  AS_IF([test -n "$PKG_CONFIG" &&
         $PKG_CONFIG --exists "libcore m4_ifnblank([$1], [>= $1])"],
    [libcore_plugin=yes],
    [libcore_plugin=no])
  AC_MSG_RESULT([$libcore_plugin])
  AS_IF([test $libcore_plugin = yes], [
    LIBCORE_PLUGIN_CFLAGS="`$PKG_CONFIG --cflags libcore` -fPIC -fvisibility=hidden"
    LIBCORE_PLUGIN_LDFLAGS="-shared -Wl,-z,defs"
    libcore_script=`$PKG_CONFIG --variable=versionscript libcore`
    AS_IF([test -f "$libcore_script"],
      [LIBCORE_PLUGIN_LDFLAGS="$LIBCORE_PLUGIN_LDFLAGS -Wl,--version-script=$libcore_script"])
    libcore_abi_major=`$PKG_CONFIG --variable=abi_major libcore`
    plugindir=`$PKG_CONFIG --variable=plugindir libcore`
    AS_CASE([$with_libcore_plugindir], [''|yes|no], [],
      [plugindir=$with_libcore_plugindir])
    AC_PATH_PROG([LIBCORE_CORE_INFO], [core-info], [],
      [`$PKG_CONFIG --variable=bindir libcore`$PATH_SEPARATOR$PATH])
    LIBCORE_PLUGIN_SEAL="echo not sealed, because core-info does not run:"
    AS_IF([test -n "$LIBCORE_CORE_INFO" &&
           "$LIBCORE_CORE_INFO" --version >/dev/null 2>&1],
      [LIBCORE_PLUGIN_SEAL="$LIBCORE_CORE_INFO --seal"])
    # In C++ a unique symbol would prevent unloading the plugin.  Checked without
    # Autoconf's C++ macros, whose order a C project with libtool cannot ensure.
    LIBCORE_PLUGIN_CXXFLAGS=$LIBCORE_PLUGIN_CFLAGS
    AS_IF([test -n "$CXX"], [
      AC_MSG_CHECKING([whether $CXX accepts -fno-gnu-unique])
      echo 'int number;' >conftest.cc
      AS_IF([$CXX $CXXFLAGS -fno-gnu-unique -c -o conftest.o conftest.cc dnl
             >&AS_MESSAGE_LOG_FD 2>&1],
        [AC_MSG_RESULT([yes])
         LIBCORE_PLUGIN_CXXFLAGS="$LIBCORE_PLUGIN_CFLAGS -fno-gnu-unique"],
        [AC_MSG_RESULT([no])])
      rm -f conftest.cc conftest.o
    ])
    $2
  ], [m4_default([$3], [AC_MSG_ERROR([the plugin headers of libcore were not found;
  install libcore, or set PKG_CONFIG_PATH to the folder of its libcore.pc])])])
  AC_SUBST([LIBCORE_PLUGIN_CFLAGS])
  AC_SUBST([LIBCORE_PLUGIN_CXXFLAGS])
  AC_SUBST([LIBCORE_PLUGIN_LDFLAGS])
  AC_SUBST([LIBCORE_PLUGIN_SEAL])
  AC_SUBST([libcore_abi_major])
  AC_SUBST([plugindir])
])
