#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# core-conformance: the golden cases pass on every device here, and files that
# are wrong are refused.
conformance=$LIBCORE_BUILD/core-conformance
golden=$LIBCORE_SOURCE/tests/golden
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# ok NAME COMMAND…: the command's status decides.
ok() {
    name=$1
    shift
    number=$((number + 1))
    if "$@" >"$work/log" 2>&1; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        tail -n 20 "$work/log" | sed 's/^/# /'
    fi
}

# ends STATUS PATTERN ARGUMENT…: that exit status, and a line that matches.
ends() {
    status=$1 pattern=$2
    shift 2
    "$conformance" "$@" >"$work/out" 2>&1
    [ $? = "$status" ] && grep -E -e "$pattern" "$work/out" && return
    tail -n 20 "$work/out"
    return 1
}

# A golden set of its own: small FILTER writes one case of it.
small() {
    {
        echo "golden 1"
        sed -n "/^case [0-9]* $1\$/,/^end/p" "$golden/public.cases" |
            sed '/^end/q'
    } >"$work/small.cases"
    cp "$golden/public.bin" "$work/small.bin"
}

# damaged SED PATTERN: the small set, changed, is refused with this message.
damaged() {
    sed -e "$1" "$work/small.cases" >"$work/bad.cases"
    cp "$work/small.bin" "$work/bad.bin"
    ends 2 "$2" --golden "$work/bad"
}

truncated_data() {
    head -c 1000 "$golden/public.bin" >"$work/small.bin"
    ends 2 'truncated' --golden "$work/small"
}

truncated_cases() {
    small add.Tensor
    sed '/^end/d' "$work/small.cases" >"$work/bad.cases"
    cp "$work/small.bin" "$work/bad.bin"
    ends 2 'within case' --golden "$work/bad"
}

dropped() {
    small add.Tensor
    sed 's/^end/drop/' "$work/small.cases" >"$work/bad.cases"
    cp "$work/small.bin" "$work/bad.bin"
    ends 2 'no case was chosen' --golden "$work/bad"
}

# The first byte of a result is changed.
changed() {
    small neg
    at=$(sed -n 's/^ret .* \([0-9]*\) [0-9]*$/\1/p' "$work/small.cases")
    printf '\125\125\125\125' |
        dd of="$work/small.bin" bs=1 seek="$at" conv=notrunc 2>/dev/null
    ends 1 'FAILED case [0-9]+ neg: result 0, element .*got .*, want' \
        --golden "$work/small"
}

missing() {
    small neg
    sed -i 's/^\(case [0-9]*\) neg/\1 no_such_operator/' "$work/small.cases"
    ends 0 '^0 passed, 0 failed, 1 missing' --golden "$work/small" &&
        ends 0 'not registered' --golden "$work/small" --verbose
}

required() {
    small neg
    echo "no_such_operator # is required" >"$work/list"
    ends 1 'no_such_operator has no case' --golden "$work/small" \
        --required "$work/list" &&
        ends 2 'No such file' --golden "$work/small" --required "$work/none"
}

ok "golden cases pass on cpu" ends 0 'passed, 0 failed' \
    --golden "$golden/public" --device cpu --required "$golden/required.ops"
ok "golden cases pass on sim" ends 0 'passed, 0 failed' \
    --golden "$golden/public" --device sim
ok "shapes and dtypes pass on meta" ends 0 'passed, 0 failed' \
    --golden "$golden/public" --device meta
ok "a filter chooses operators" ends 0 '^12 passed, 0 failed, 0 missing' \
    --golden "$golden/public" --filter 'add.Tensor'
ok "a filter that matches nothing is an error" ends 2 'no case' \
    --golden "$golden/public" --filter 'nothing*'
ok "a result that differs is named" changed
ok "an unknown operator is missing, not passed" missing
ok "a required operator must have passed" required
ok "a dropped case is void" dropped
ok "truncated data are refused" truncated_data
ok "truncated cases are refused" truncated_cases
small permute
ok "another version is refused" damaged 's/golden 1/golden 2/' 'version 2'
ok "another file is refused" damaged '1s/golden/silver/' 'does not begin'
ok "an unknown dtype is refused" damaged 's/arg T f32/arg T f99/' 'f99'
ok "too many dimensions are refused" damaged 's/arg T f32 2/arg T f32 99/' \
    '99 is not between'
ok "a negative size is refused" \
    damaged 's/\(arg T f32 2\) [0-9]*/\1 -5/' 'is not between'
ok "sizes beyond the data are refused" \
    damaged 's/\(arg T f32 2\) [0-9]*/\1 5000/' 'beyond its'
ok "an unknown kind of argument is refused" damaged 's/arg I/arg Q/' 'Q'
ok "an unknown line is refused" damaged 's/^ret/rat/' 'rat'
ok "a missing file is named" ends 2 'none.cases: No such file' \
    --golden "$work/none"
ok "an unknown device is named" ends 2 'abacus' \
    --golden "$golden/public" --device abacus
ok "an unknown flag is refused" ends 2 'unknown flag --wrong' --wrong
ok "a flag without its value is refused" ends 2 'needs a value' --golden
ok "nothing to replay is an error" ends 2 '--golden PREFIX'
ok "operators are listed" ends 0 '^add.Tensor\(' --list-operators
ok "help is given" ends 0 'usage: core-conformance' --help
echo "1..$number"
