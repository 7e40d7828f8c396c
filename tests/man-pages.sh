#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# docs/man: the page of each program has the flags of its --help, and no others.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

# The flags of --help, without those that a sentence quotes from elsewhere.
flags_of_help() {
    "$LIBCORE_BUILD/$1" --help | sed 's/--toggle-collect//' |
        grep -oE -- '--[a-z][a-z-]*' | sort -u
}

flags_of_page() {
    grep -oE 'Fl -[a-z][a-z-]*' "$LIBCORE_SOURCE/docs/man/$1.1" |
        sed 's/^Fl /-/' | sort -u
}

complete() { # program
    flags_of_help "$1" >"$work/help" && flags_of_page "$1" >"$work/page" &&
        [ -s "$work/help" ] && diff "$work/help" "$work/page"
}

for program in core-info core-conformance core-train core-bench; do
    if [ -x "$LIBCORE_BUILD/$program" ]; then
        ok "the page of $program has its flags" complete $program
    else
        number=$((number + 1))
        echo "ok $number - the page of $program has its flags # SKIP not built"
    fi
done
echo "1..$number"
