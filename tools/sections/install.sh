# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# install: the installation is complete and works, a plugin builds outside the
# source tree as a third party builds it, and the README's program compiles
# against the installation and prints what the README says.  All of that but the
# plugin works, too, when the installation is moved, as the guide says.
section_install() {
    rm -rf "$prefix"
    try "make install" make -C "$main" install || return
    unset LIBCORE_PLUGIN_PATH
    PKG_CONFIG_PATH=$prefix/lib/pkgconfig
    export PKG_CONFIG_PATH
    library_path=$prefix/lib
    try "plugins are installed without libtool's files" sh -c "
        ls '$prefix'/lib/libcore/plugins-0/core_cpu.so &&
        ! ls '$prefix'/lib/libcore/plugins-0/*.la"
    try "installed core-info finds the CPU" sh -c "
        LD_LIBRARY_PATH=$library_path '$prefix/bin/core-info' | grep -w cpu"
    try "recorded calls are installed and pass" sh -c "
        LD_LIBRARY_PATH=$library_path '$prefix/bin/core-conformance' \
            --golden '$prefix/share/libcore/golden/current' --device cpu \
            --filter mul.Tensor | grep '^[1-9][0-9]* passed, 0 failed'"
    for program in core-info core-conformance core-train core-bench; do
        try "the page of $program is installed" \
            test -f "$prefix/share/man/man1/$program.1"
    done
    grep -o 'docs/[a-z-]*\.md' README.md >"$logs/named.txt"
    while IFS= read -r name; do
        try "README's $name is installed" \
            test -f "$prefix/share/doc/libcore/$name"
    done <"$logs/named.txt"
    examples
    # A copy of the folder, and the installed headers.
    rm -rf "$work/outside"
    mkdir -p "$work/outside"
    cp plugins/sim/* "$work/outside/"
    try "plugin builds out of tree" make -C "$work/outside" \
        -f Makefile.standalone || return
    try "plugin built out of tree exports one symbol and imports none" \
        tools/checks/exports "$prefix/lib/libcore.so" \
        "$work/outside/core_sim.so"
    rm -f "$prefix"/lib/libcore/plugins-0/core_sim.*
    try "device of the plugin built out of tree is found" sh -c "
        LD_LIBRARY_PATH=$library_path LIBCORE_PLUGIN_PATH='$work/outside' \
            '$prefix/bin/core-info' | grep -w sim"
    readme
    network
    moved "$prefix" "$work/stage/usr/local"
}

# The commands of docs/plugin-guide.md, "A libcore that was moved", in a folder
# to which the installation is moved for the time.
moved() { # from, to
    rm -rf "$2"
    mkdir -p "${2%/*}"
    mv "$1" "$2"
    sed -n '/^## A libcore that was moved/,/^## F/s/^    //p' \
        docs/plugin-guide.md | sed "s|/stage/usr/local|$2|g" >"$work/moved.sh"
    cat >>"$work/moved.sh" <<END
test -n "\$LD_LIBRARY_PATH" && test -n "\$LIBCORE_PLUGIN_PATH" || exit
'$2/bin/core-info' || exit
cc -std=c11 -o '$work/moved' '$work/readme/program.c' \\
    \$(sed -n '/^pkg-config/p' '$work/moved.sh' | sh) || exit
'$work/moved' | diff -u '$work/readme/expected.txt' -
END
    try "the guide's commands find a moved installation" sh -c "
        PKG_CONFIG_PATH='$2/lib/pkgconfig' sh '$work/moved.sh' \
            >'$work/moved.txt' && grep -w 'cpu.*loaded' '$work/moved.txt'"
    mv "$2" "$1"
}

# The last program of docs/expressions.md, with the installed headers.
network() {
    [ -f "$prefix/lib/pkgconfig/libcore.pc" ] || return 0
    for block in c output; do
        # shellcheck disable=SC2016 # not a command substitution
        awk -v block="$block" '
            $0 == "```" block { text = ""; inside = 1; next }
            /^```/ { inside = 0 }
            inside { text = text $0 "\n" }
            END { printf "%s", text }' docs/expressions.md \
            >"$work/network.$block"
    done
    # shellcheck disable=SC2046 # split into words on purpose
    try "the network of docs/expressions.md compiles" cc -std=c11 -Wall \
        -Wextra -Werror -o "$work/network" "$work/network.c" \
        $(pkg-config --cflags --libs libcore) || return 0
    try "the network prints what the page says" sh -c "
        LD_LIBRARY_PATH=$prefix/lib '$work/network' |
        diff -u '$work/network.output' -"
}

# The examples that were installed, against the installation.
examples() {
    # shellcheck disable=SC2016 # the inner shell expands
    try "the installed examples compile and compute" env \
        LD_LIBRARY_PATH="$prefix/lib" LIBCORE_SOURCE="$source" \
        EXAMPLES_FLAGS="$(pkg-config --cflags --libs libcore)" \
        EXAMPLES="$prefix/share/doc/libcore/examples" sh -c '
            sh tests/example-programs.sh | tee "$1" && ! grep "^not ok" "$1"' \
        sh "$work/examples.txt"
}

readme() {
    [ -f "$prefix/lib/pkgconfig/libcore.pc" ] || return 0
    rm -rf "$work/readme"
    mkdir -p "$work/readme"
    # shellcheck disable=SC2016 # not a command substitution
    sed -n '/^```c$/,/^```$/p' README.md | sed '/^```/d' \
        >"$work/readme/program.c"
    # shellcheck disable=SC2016
    sed -n '/^```output$/,/^```$/p' README.md | sed '/^```/d' \
        >"$work/readme/expected.txt"
    # shellcheck disable=SC2046 # split into words on purpose
    try "README's program compiles" cc -std=c11 -Wall -Wextra -Werror \
        -o "$work/readme/program" "$work/readme/program.c" \
        $(pkg-config --cflags --libs libcore) || return 0
    try "README's program prints what README says" sh -c "
        LD_LIBRARY_PATH=$prefix/lib '$work/readme/program' |
        diff -u '$work/readme/expected.txt' -"
}
