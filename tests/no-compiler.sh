#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# A compiled function with a fused kernel runs in a file system that has libcore,
# the CPU plugin and the C library, and no other file: no compiler, no shell.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

# Copies a program or library, and the libraries of the system that it needs.
add() {
    cp -L "$1" "$work/" || return
    for file in $(ldd "$1" | grep -o '/[^ ]*'); do
        case $file in
        */libcore*) continue ;;
        esac
        mkdir -p "$work/${file%/*}" && cp -L "$file" "$work/$file" || return
    done
}

compiles() {
    add "$LIBCORE_BUILD/.libs/core-info" &&
        add "$LIBCORE_BUILD/.libs/libcore.so.0" &&
        add "$LIBCORE_BUILD/.libs/core_cpu.so" &&
        [ ! -e "$work/bin/sh" ] || return
    # shellcheck disable=SC2086 # words
    $root "$work" /core-info --compile >"$work/out" 2>&1 || return
    grep -q 'loop program: [0-9]* steps' "$work/out" &&
        grep -q 'a trial of 3 operators on "cpu"' "$work/out"
}

root=$(command -v chroot) || root=/usr/sbin/chroot
[ "$(id -u)" = 0 ] || root="unshare -r $root"
# shellcheck disable=SC2086 # words
if ! $root / true 2>/dev/null; then
    echo '1..0 # SKIP the root folder cannot be changed here'
    exit 0
fi
for each in "$LIBCORE_BUILD/.libs/core-info" "$LIBCORE_BUILD/.libs/core_cpu.so"; do
    [ -f "$each" ] || {
        echo "1..0 # SKIP $each is not built"
        exit 0
    }
done
export LD_LIBRARY_PATH=/ LIBCORE_PLUGIN_PATH=/ LIBCORE_LOG=debug \
    LIBCORE_COMPILE_CODEGEN=on LIBCORE_CACHE=0
echo 1..1
ok 'a compiled function runs without a compiler' compiles
