# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# dist: the tarball has every file and configures from sources that may not be
# written, without Python and without rebuilding what it brings; what is installed is
# uninstalled, and cleaning up leaves nothing.  What is compiled from the tarball's
# files are the trees of the thread sanitizer and, with --full, of automake's
# distcheck, which builds and tests all of it.
section_dist() {
    if [ $full = yes ]; then
        checked_tarball
    else
        try "make dist" make -C "$main" dist-xz XZ_OPT=-1
    fi
    rm -rf "$work/tarball"
    mkdir -p "$work/tarball"
    try "tarball unpacks" tar -C "$work/tarball" -xf \
        "$main"/libcore-*.tar.xz || return
    tarball_is_whole
    if [ $full = yes ]; then
        tarball_builds
    else
        tarball_configures
        installed_is_uninstalled
    fi
}

checked_tarball() {
    rm -rf "$main"/libcore-*
    # shellcheck disable=SC2046 # empty or one option
    try distcheck env LIBCORE_TEST_SHORT=1 XZ_OPT=-1 make -C "$main" \
        $(parallel) distcheck \
        AM_DISTCHECK_CONFIGURE_FLAGS="--without-python CFLAGS='$optimized'"
    configure_has_table "$logs/distcheck.txt"
}

configure_has_table() { # output of configure
    try "configure ends with a table: each backend, its state and why" sh -c "
        sed -n '/^  backend  *state  *reason/,/^ *$/p' '$1' |
            awk '{ print } NR > 1 && NF && NF < 3 { bad = 1 }
                \$1 == \"cpu\" && \$2 == \"yes\" { cpu = 1 }
                END { exit bad || !cpu || NR < 4 }'"
}

# In a folder of its own, as distcheck does it.
tarball_configures() {
    seed_cache "$work/dist.cache"
    tarball=$(echo "$work"/tarball/libcore-*)
    chmod -R a-w "$tarball"
    mkdir -p "$work/tarball/build"
    try "tarball configures" sh -c '
        cd "$1" && "$2/configure" --without-python --without-cuda \
            --without-hip --cache-file="$3" --disable-dependency-tracking' \
        sh "$work/tarball/build" "$tarball" "$work/dist.cache" &&
        configure_has_table "$logs/tarball_configures.txt"
    try "nothing that the tarball brings is made again" sh -c '
        make -C "$1" -n all check TESTS= >"$1.commands" &&
            grep -c "libtool.*mode=compile" "$1.commands" &&
            ! grep -E "gen_[a-z]*\.py|python|autom|aclocal" "$1.commands"' \
        sh "$work/tarball/build"
    try "make distclean leaves no file" sh -c '
        make -C "$1" distclean && ! find "$1" -type f | grep .' \
        sh "$work/tarball/build"
    chmod -R u+w "$tarball"
}

installed_is_uninstalled() {
    rm -rf "$work/uninstalled"
    try "make install and make uninstall leave no file" sh -c '
        make -C "$1" install DESTDIR="$2" &&
            find "$2" -type f | grep -c . &&
            make -C "$1" uninstall DESTDIR="$2" &&
            ! find "$2" ! -type d | grep .' sh "$main" "$work/uninstalled"
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
