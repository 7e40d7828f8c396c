#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# quickstart, in a tree with a fake build: which programs it runs, where, and the
# messages when one fails.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

# tree NAME MAKE TRAIN: both are lines of shell that replace the programs.
tree() {
    tree=$work/$1
    mkdir -p "$tree/tools" &&
        cp "$LIBCORE_SOURCE/tools/quickstart" "$tree/tools" || return
    {
        # shellcheck disable=SC2016 # expanded later
        echo 'say() { echo "$*"; }'
        echo 'install_missing() { true; }'
        echo 'processors() { echo 1; }'
    } >"$tree/tools/setup.sh"
    printf '#!/bin/sh\necho "  backend   state"\n: >Makefile\n' \
        >"$tree/configure"
    printf '#!/bin/sh\n%s\n' "$3" >"$tree/train"
    # shellcheck disable=SC2016 # expanded later
    printf '#!/bin/sh\n%s\nmkdir .libs
        cp ../train core-train; cp ../train core-info\n' "$2" >"$tree/make"
    chmod +x "$tree/configure" "$tree/train" "$tree/make"
}

quickstart() {
    (cd "$work/here" && PATH=$tree:$PATH "$tree/tools/quickstart" "$@") \
        >"$work/out" 2>&1
    got=$?
    cat "$work/out"
    return $got
}

# shellcheck disable=SC2016 # the programs expand it
prints_call='echo "$0: $PWD $LIBCORE_PLUGIN_PATH $*"'

runs_here() {
    tree good true "$prints_call" || return
    quickstart --epochs 1 --text 'a book' || return
    b=$tree/build-quickstart
    grep "^  backend" "$work/out" &&
        grep -F "core-info: $b $b/.libs --devices" "$work/out" &&
        grep -F "core-train: $work/here $b/.libs --model mlp --epochs 10" \
            "$work/out" | grep -e '--epochs 1 --text a book$'
}

# Runs the commands that it suggests.
suggestions_work() {
    tree next true "$prints_call" && quickstart || return
    sed -n 's/^    //p' "$work/out" >"$work/typed"
    [ "$(wc -l <"$work/typed")" = 4 ] || return
    # shellcheck disable=SC1091 # it was just written
    (cd "$work/here" && unset LIBCORE_PLUGIN_PATH && set -e &&
        . "$work/typed") >"$work/out" || return
    cat "$work/out"
    [ "$(grep -cF "$tree/build-quickstart/.libs" "$work/out")" = 3 ]
}

make_fails() {
    tree broken 'echo "rows.c:1: no"; exit 2' "$prints_call" || return
    ! quickstart && grep 'make failed' "$work/out" &&
        grep 'rows.c:1: no' "$work/out" &&
        grep "the whole log is in .*build-quickstart/make.txt" "$work/out" &&
        ! grep core-train: "$work/out"
}

training_fails() {
    # shellcheck disable=SC2016 # the program expands it
    tree sad true 'case $0 in *core-train) echo sad; exit 1;; esac' || return
    ! quickstart && grep 'training failed' "$work/out" &&
        ! grep 'To go on' "$work/out"
}

helps() {
    tree help true "$prints_call" && quickstart --help &&
        grep 'OPTION of core-train' "$work/out" &&
        [ ! -e "$tree/build-quickstart" ]
}

mkdir "$work/here"
echo 1..5
ok 'the model is trained in the current folder with the given options' runs_here
ok 'the suggested commands work' suggestions_work
ok 'a failing build shows its errors' make_fails
ok 'failing training is a failure' training_fails
ok '--help builds nothing' helps
