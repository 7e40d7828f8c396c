# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# dist: the tarball has every file and builds, as automake's distcheck sees to:
# apart from its sources, which may not be written, without Python and without
# rebuilding what it brings, is installed and uninstalled, and cleans up.  Its
# generated headers lie elsewhere than those of the first build, whose objects ccache
# therefore does not find, and so without --full it is not optimized, nor compiled
# for several instruction sets, and configure knows what the first one found.  What
# runs there are the tests that build something from the tarball, with the libraries
# that they load; check has built and run the others, and --full builds and runs all.
#
# Users build where they unpacked it, which has other include paths: the thread
# sanitizer's tree is built so.  With --full everything is, from the tarball.
section_dist() {
    flags="--without-python --without-cuda --without-hip CFLAGS=-O0"
    flags="$flags CPU_OPTIMIZATION=-O0 --disable-x86-isa"
    rm -f "$work/dist.cache"
    seed_cache "$work/dist.cache"
    flags="$flags --cache-file=$work/dist.cache --disable-dependency-tracking"
    [ $full = no ] || flags="--without-python CFLAGS='$optimized'"
    set -- AM_DISTCHECK_CONFIGURE_FLAGS="$flags"
    # shellcheck disable=SC2016 # make expands it
    [ $full = yes ] || set -- "$@" check_PROGRAMS=tests/first_result \
        check_LTLIBRARIES='$(fixture_plugins) tests/fixtures/libdependency.la' \
        TESTS='tests/core-info.sh tests/template.sh'
    rm -rf "$main"/libcore-*
    # Objects are compiled as in the other trees; what is linked and installed is
    # libtool's own work.
    [ $full = yes ] || [ ! -f "$main/libtool.full" ] ||
        set -- "$@" LIBTOOL="/bin/sh $source/tools/sections/libtool"
    # shellcheck disable=SC2046 # empty or one option
    try distcheck env LIBCORE_TEST_SHORT=1 XZ_OPT=-1 make -C "$main" \
        $(parallel) distcheck "$@"
    try "configure ends with a table: each backend, its state and why" sh -c "
        sed -n '/^  backend  *state  *reason/,/^ *$/p' '$logs/distcheck.txt' |
            awk '{ print } NR > 1 && NF && NF < 3 { bad = 1 }
                \$1 == \"cpu\" && \$2 == \"yes\" { cpu = 1 }
                END { exit bad || !cpu || NR < 4 }'"
    rm -rf "$work/tarball"
    mkdir -p "$work/tarball"
    try "tarball unpacks" tar -C "$work/tarball" -xf \
        "$main"/libcore-*.tar.xz || return
    tarball_is_whole
    [ $full = no ] || tarball_builds
}

# All files under version control but .gitignore, and the generated kernels,
# from which only tests build something here.
tarball_is_whole() {
    if ! git ls-files >"$logs/tracked.txt" 2>"$logs/git.txt"; then
        skip "tarball has every file" "this is not a clone of the repository"
        return
    fi
    (cd "$main" && find backends/gpu/generated -type f) \
        >>"$logs/tracked.txt"
    for folder in "$work"/tarball/libcore-*; do
        while IFS= read -r name; do
            [ "${name##*/}" = .gitignore ] || [ -e "$folder/$name" ] ||
                printf '%s\n' "$name"
        done <"$logs/tracked.txt" >"$logs/not-shipped.txt"
    done
    if [ -s "$logs/tracked.txt" ] && [ ! -s "$logs/not-shipped.txt" ]; then
        pass "tarball has every file"
    else
        fail "tarball has every file" "$logs/not-shipped.txt"
    fi
}

tarball_builds() {
    # shellcheck disable=SC2016,SC2046 # the inner shell expands; one option
    try "tarball builds in its own folder without Python" sh -c '
        cd "$1"/libcore-* && ./configure -q --without-python --without-cuda \
            --without-hip CFLAGS=-O0 && make $2' \
        sh "$work/tarball" "$(parallel)" || return
    try "tarball's core-info runs" sh -c "
        cd '$work'/tarball/libcore-* && LIBCORE_PLUGIN_PATH=\$PWD/.libs \
            ./core-info | grep -w sim"
}
