#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# gen_ops.py: docs/operators.md and calls.md match ops.yaml, new operators get an id and
# their release, and mistakes in an entry are named.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"
number=0
ops=$LIBCORE_SOURCE/core/ops
python=${PYTHON:-python3}

generate() {
    "$python" "$LIBCORE_SOURCE/tools/gen_ops.py" "$@"
}

document() {
    generate --ops "$ops/ops.yaml" --doc "$work" &&
        diff -u "$LIBCORE_SOURCE/docs/operators.md" "$work/operators.md" &&
        diff -u "$LIBCORE_SOURCE/docs/calls.md" "$work/calls.md"
}

# A copy of ops.yaml with one more entry, of these lines.
with_entry() {
    cp "$ops/ops.yaml" "$ops/ops.ids" "$work" && chmod u+w "$work"/ops.* &&
        printf '%s\n' '' '- op: tenfold(Tensor self, Scalar factor) -> Tensor' \
            '  family: elementwise' "$@" >>"$work/ops.yaml"
}

new_operator() {
    with_entry '  not_differentiable: true' || return
    ! generate --ops "$work/ops.yaml" 2>"$work/err" &&
        grep 'tenfold: has no id' "$work/err" &&
        generate --ops "$work/ops.yaml" --assign &&
        tail -n 1 "$work/ops.ids" | grep ' tenfold$' &&
        minor=$(sed -n 's/^#define CORE_ABI_MINOR //p' \
            "$LIBCORE_SOURCE/include/libcore/plugin.h") &&
        grep -A 1 '^- op: tenfold(' "$work/ops.yaml" |
        grep -x "  since: 0\.$minor" || return
    cp "$work/ops.yaml" "$work/before" &&
        generate --ops "$work/ops.yaml" --assign &&
        cmp "$work/ops.yaml" "$work/before"
}

# An operator of this release must say so.
missing_since() {
    with_entry '  not_differentiable: true' &&
        generate --ops "$work/ops.yaml" --assign &&
        sed '/^- op: tenfold(/{n;/since:/d;}' "$work/ops.yaml" \
            >"$work/without" && mv "$work/without" "$work/ops.yaml" &&
        ! generate --ops "$work/ops.yaml" 2>"$work/err" &&
        grep 'tenfold: since is None, but its id is from ABI' "$work/err"
}

# refuses MESSAGE LINE...: an entry with these lines.
refuses() {
    message=$1
    shift
    with_entry "$@" &&
        ! generate --ops "$work/ops.yaml" --assign --out "$work/out" \
            2>"$work/err"
    grep -F -e "tenfold: $message" "$work/err" || {
        cat "$work/err"
        return 1
    }
}

echo 1..8
if ! "$python" -c 'import yaml' 2>/dev/null; then
    for i in 1 2 3 4 5 6 7 8; do
        echo "ok $i - gen_ops.py # SKIP no python3 with PyYAML"
    done
    exit 0
fi
ok 'docs/operators.md and calls.md are the output of gen_ops.py' document
ok 'a new operator gets an id and its release' new_operator
ok 'a new operator without its release is refused' missing_since
ok 'an unknown word of a sample is named' \
    refuses "sample 't:3 z:7': unknown word 'z:7'" "  samples: t:3 z:7"
ok 'an unknown note of a sample is named' \
    refuses "sample 't:3 f:2; quick': unknown note 'quick'" \
    '  samples: t:3 f:2; quick'
ok 'a missing argument of a sample is named' \
    refuses "sample 't:3': the argument 'factor' is missing" '  samples: t:3'
ok 'superfluous arguments of a sample are counted' \
    refuses "sample 't:3 f:2 f:2': 3 arguments, tenfold takes 2" \
    '  samples: t:3 f:2 f:2'
ok 'an unknown kernel names its operator' \
    refuses "kernel 'ninefold' is not an operator" '  kernel: ninefold'
