#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# plugins/template builds with only the public headers, is short enough to copy,
# and implements a complete device.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

says() { # pattern, command...
    pattern=$1
    shift
    "$@" >"$work/out" 2>&1
    cat "$work/out"
    grep -qE "$pattern" "$work/out"
}

golden() {
    "$LIBCORE_BUILD/core-conformance" \
        --golden "$LIBCORE_SOURCE/tests/golden/public" --device template "$@"
}

cp "$LIBCORE_SOURCE"/plugins/template/*.* "$work/"
# shellcheck disable=SC2016 # the inner shell expands
ok 'the source has fewer than 300 lines' sh -c '[ "$(wc -l <"$1")" -lt 300 ]' sh \
    "$work/template.c"
# shellcheck disable=SC2086 # CC may have arguments
ok 'the source compiles without warnings' ${CC:-cc} -std=gnu11 -O2 -Wall -Wextra \
    -Werror -fPIC -fvisibility=hidden -I"$LIBCORE_SOURCE/include" -shared \
    -Wl,-z,defs -Wl,--version-script="$work/plugin.map" \
    -o "$work/core_template.so" "$work/template.c" -lm
# The Makefile of the template, for a device with another name.
renamed() {
    mkdir -p "$work/pc" "$work/mine" || return 1
    sed -e "s,^includedir=.*,includedir=$LIBCORE_SOURCE/include," \
        -e "s,^bindir=.*,bindir=$LIBCORE_BUILD," \
        "$LIBCORE_BUILD/libcore.pc" >"$work/pc/libcore.pc"
    cp "$work/Makefile.standalone" "$work/plugin.map" "$work/mine"
    sed 's/^#define NAME "template"/#define NAME "mine"/' \
        "$work/template.c" >"$work/mine/device.c"
    PKG_CONFIG_PATH=$work/pc make -C "$work/mine" -f Makefile.standalone &&
        LIBCORE_PLUGIN_PATH=$work/mine says '^ *mine ' \
            "$LIBCORE_BUILD/core-info" &&
        [ "$(cd "$work/mine" && echo core_*.so)" = core_mine.so ]
}
# The guide's steps by the same Makefile, from a copy of the whole folder.
steps() {
    cp -R "$LIBCORE_SOURCE/plugins/template" "$work/copy" &&
        PKG_CONFIG_PATH=$work/pc make -C "$work/copy/steps" \
            -f ../Makefile.standalone CPPFLAGS=-DSTEP=1 CFLAGS=-O0 &&
        LIBCORE_PLUGIN_PATH=$work/copy/steps says '^ *steps ' \
            "$LIBCORE_BUILD/core-info"
}
if command -v pkg-config >/dev/null 2>&1; then
    ok 'the Makefile names the plugin after its device' renamed
    ok 'the Makefile builds the steps of the guide' steps
else
    number=$((number + 2))
    echo "ok $((number - 1)) - the Makefile names the plugin after its device" \
        '# SKIP no pkg-config'
    echo "ok $number - the Makefile builds the steps of the guide" \
        '# SKIP no pkg-config'
fi
LIBCORE_PLUGIN_PATH=$LIBCORE_BUILD/.libs:$work
export LIBCORE_PLUGIN_PATH
ok 'core-info lists the device' says '^ *template ' "$LIBCORE_BUILD/core-info"
LIBCORE_FALLBACK=copy_
export LIBCORE_FALLBACK
for name in 'add.Tensor' exp mm; do
    ok "the kernel of $name is correct" \
        says '^[1-9][0-9]* passed, 0 failed' golden --filter "$name"
done
LIBCORE_FALLBACK=count
ok 'every recorded case passes with the fallback' \
    says '^[0-9]{4} passed, 0 failed, 0 missing' golden
echo "1..$number"
