#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# core-conformance: the golden cases pass on every device of the build, and
# invalid files are refused.
conformance=$LIBCORE_BUILD/core-conformance
golden=$LIBCORE_SOURCE/tests/golden
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

# ends STATUS PATTERN ARGUMENT…: expects that exit status, and a line of output
# that matches.
ends() {
    status=$1 pattern=$2
    shift 2
    "$conformance" "$@" >"$work/out" 2>&1
    got=$?
    [ $got = "$status" ] && grep -E -e "$pattern" "$work/out" && return
    cat "$work/out"
    echo "exit status $got, not $status, or no line matches: $pattern"
    return 1
}

full() {
    [ -c /dev/full ] || return 0
    for arguments in --help --version --list-operators \
        "--golden $LIBCORE_SOURCE/tests/golden/public --filter exp" \
        "--plugin $sim --list" "--plugin $sim --filter core/entry/*"; do
        set -f # no file names
        # shellcheck disable=SC2086 # split into words
        "$conformance" $arguments >/dev/full 2>"$work/out"
        got=$?
        set +f
        [ $got = 2 ] || return
        grep 'writing standard output failed' "$work/out" || return
    done
}

# small FILTER: writes a golden set with one case of that operator.
small() {
    {
        echo "golden 1"
        sed -n "/^case [0-9]* $1\$/,/^end/p" "$golden/public.cases" |
            sed '/^end/q'
    } >"$work/small.cases"
    cp "$golden/public.bin" "$work/small.bin"
}

# damaged SED PATTERN: the small set, edited, is refused with this message.
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

# A number for a tensor argument is a tensor without dimensions.
numbers() {
    printf '\000\000\300\077\000\000\000\100' >"$work/number.bin"
    printf '\000\000\100\100\000\000\200\100' >>"$work/number.bin"
    cat >"$work/number.cases" <<'EOF'
golden 1
case 0 mul.Tensor
schema aten::mul.Tensor(Tensor self, Tensor other) -> Tensor
arg T f32 1 2 1 0 0 8
arg I 2
ret T f32 1 2 1 0 8 8
end
case 1 mul.Tensor
schema aten::mul.Tensor(Tensor self, Tensor other) -> Tensor
arg T f32 1 2 1 0 0 8
arg D 0x1p+1
ret T f32 1 2 1 0 8 8
end
EOF
    ends 0 '^2 passed, 0 failed, 0 missing' --golden "$work/number"
}

dropped() {
    small add.Tensor
    sed 's/^end/drop/' "$work/small.cases" >"$work/bad.cases"
    cp "$work/small.bin" "$work/bad.bin"
    ends 2 'no case was selected' --golden "$work/bad"
}

# Overwrites the first bytes of a result.
changed() {
    small neg
    at=$(sed -n 's/^ret .* \([0-9]*\) [0-9]*$/\1/p' "$work/small.cases")
    printf '\125\125\125\125' |
        dd of="$work/small.bin" bs=1 seek="$at" conv=notrunc 2>/dev/null
    ends 1 'FAILED case [0-9]+ neg: result 0, element .*got .*, expected' \
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

# differs LINE STATUS PATTERN SED: the small set, edited, with this list of
# differences.
differs() {
    sed -e "$4" "$work/small.cases" >"$work/bad.cases"
    cp "$work/small.bin" "$work/bad.bin"
    echo "$1" >"$work/bad.differences"
    ends "$2" "$3" --golden "$work/bad" --verbose
    status=$?
    rm "$work/bad.differences"
    return $status
}

differences() {
    small neg
    id=$(sed -n 's/^case \([0-9]*\) .*/\1/p' "$work/small.cases")
    # The result is the argument itself, not its negative.
    wrong='s/^ret.*//; /^arg/{p; s/^arg/ret/;}'
    differs "$id neg result on purpose" 0 \
        "^differs case $id neg: result: on purpose" "$wrong" &&
        differs "1$id neg result on purpose" 1 "^FAILED case $id neg" "$wrong" &&
        differs "1$id neg result on purpose" 1 \
            "^FAILED case 1$id neg: .* the set does not have it" '' &&
        differs "$id neg gradient on purpose" 1 \
            "^FAILED case $id neg: result 0, element" "$wrong" &&
        differs "$id neg result on purpose" 1 'though it is listed' '' &&
        differs "$id abs result on purpose" 2 'which is not' '' &&
        differs "$id neg on purpose" 2 'which is not' '' &&
        differs "$id neg result" 2 'which is not' '' &&
        differs "neg result on purpose" 2 'which is not' ''
}

# quotient RESULT GRADIENT: x / x with these places of the result and of both
# gradients in the data: 16 is 1, 24 is 0.
quotient() {
    printf '\0\0\0\0\0\0\010\100\0\0\0\0\0\0\010\100' >"$work/twice.bin"
    printf '\0\0\0\0\0\0\360\077\0\0\0\0\0\0\0\0' >>"$work/twice.bin"
    cat >"$work/twice.cases" <<EOF
golden 1
case 0 div.Tensor
schema aten::div.Tensor(Tensor self, Tensor other) -> Tensor
arg T f64 0 0 0 8
arg T f64 0 0 8 8
ret T f64 0 0 $1 8
cot 0 T f64 0 0 16 8
grad 0 T f64 0 0 $2 8
grad 1 T f64 0 0 $2 8
end
EOF
    ends "$expected" "$line" --golden "$work/twice" --device cpu
}

# Recorded with one tensor, the gradients add up to 0.
one_tensor_twice() {
    expected=0 line='^of those passed, 1 have the recorded gradients only if' &&
        quotient 16 24 && expected=1 line='gradient of tensor 0, element' &&
        quotient 16 16 && expected=1 line='result 0, element' && quotient 24 24
}

# eigenvectors S…: the eigenvectors of [[2, 1], [1, 2]], whose elements are written
# with these bytes of sign: 77 is positive, 277 negative.
eigenvectors() {
    half='\315\073\177\146\236\240\346'
    {
        printf '\0\0\0\0\0\0\0\100\0\0\0\0\0\0\360\077'
        printf '\0\0\0\0\0\0\360\077\0\0\0\0\0\0\0\100'
        printf '\0\0\0\0\0\0\360\077\0\0\0\0\0\0\010\100'
        # shellcheck disable=SC2059 # escapes are meant
        for byte in "$@"; do printf "$half\\$byte"; done
    } >"$work/eigh.bin"
    cat >"$work/eigh.cases" <<'EOF'
golden 1
case 0 _linalg_eigh
schema aten::_linalg_eigh(Tensor A, str UPLO="L", bool compute_v=True) -> (Tensor eigenvalues, Tensor eigenvectors)
arg T f64 2 2 2 2 1 0 0 32
arg S L
arg B 1
ret T f64 1 2 1 0 32 16
ret T f64 2 2 2 2 1 0 48 32
end
EOF
    ends "$expected" '[01] passed, [01] failed' --golden "$work/eigh" \
        --device cpu
}

signs() {
    expected=0 && eigenvectors 77 77 277 77 && eigenvectors 277 277 77 277 &&
        eigenvectors 77 277 277 277 &&
        expected=1 && eigenvectors 77 77 77 77
}

# singular_vectors U V: the singular vectors of [[2, 0], [0, 1]], of which U and Vh
# are written with these bytes of sign.
singular_vectors() {
    one='\0\0\0\0\0\0\360' zero='\0\0\0\0\0\0\0\0'
    two='\0\0\0\0\0\0\0\100'
    {
        # shellcheck disable=SC2059 # the format has escape sequences
        printf "$two$zero$zero$one\\77$two$one\\77"
        for byte in "$@"; do
            # shellcheck disable=SC2059 # the format has escape sequences
            printf "$one\\$byte$zero$zero$one\\$byte"
        done
    } >"$work/svd.bin"
    cat >"$work/svd.cases" <<'EOF'
golden 1
case 0 _linalg_svd
schema aten::_linalg_svd(Tensor A, bool full_matrices=False, bool compute_uv=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)
arg T f64 2 2 2 2 1 0 0 32
arg B 0
arg B 1
arg N
ret T f64 2 2 2 2 1 0 48 32
ret T f64 1 2 1 0 32 16
ret T f64 2 2 2 2 1 0 80 32
end
EOF
    ends "$expected" "$line" --golden "$work/svd" --device cpu
}

paired_signs() {
    expected=0 line='^1 passed' && singular_vectors 77 77 &&
        singular_vectors 277 277 &&
        expected=1 line='the signs of U and Vh do not agree' &&
        singular_vectors 277 77 && singular_vectors 77 277
}

# Without OpenBLAS there are no matrix factorizations: then only their cases are
# missing.
wanted=$golden/public.ops all='passed, 0 failed, 0 missing'
current=$golden/current.ops factorizations=true
if ! PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -q 'libopenblas\.so\.0'; then
    grep -vE '^(cholesky|linalg_(cholesky_ex|qr|solve_triangular)) ' "$wanted" \
        >"$work/required.ops"
    grep -vE '^(cholesky|geqrf|linalg_|_linalg|ormqr)' "$current" \
        >"$work/current.ops"
    wanted=$work/required.ops all='passed, 0 failed'
    current=$work/current.ops factorizations=false
fi
ok "golden cases pass on cpu" ends 0 "$all" \
    --golden "$golden/public" --device cpu --required "$wanted"
# LIBCORE_TEST_SLOW (sanitizers): what repeats kernels with other settings, or on
# another device, is left out.
slow=${LIBCORE_TEST_SLOW-} devices='cpu sim'
modes='MEMORY=flat QUEUES=1 COMPILE=1 CHECK=1'
[ -z "$slow" ] || devices=cpu modes=CHECK=1
for device in $devices; do
    ok "golden cases of 2.15 pass on $device" ends 0 'passed, 0 failed' \
        --golden "$golden/current" --device "$device" --required "$current"
done
ok "sums that agree only with f64 are counted" ends 0 'agree with the same' \
    --golden "$golden/public" --device cpu --filter 'mm'
[ -n "$slow" ] || ok "golden cases pass on sim" ends 0 "$all" \
    --golden "$golden/public" --device sim --required "$wanted"
# The same with another setting of sim.
golden_in() {
    (
        export "LIBCORE_SIM_$1"
        ends 0 "$all" --golden "$golden/public" --device sim \
            --required "$wanted"
    )
}
for mode in $modes; do
    ok "golden cases pass on sim with $mode" golden_in "$mode"
done
# compiled SET DEVICE LEAST ARGUMENT…: no case is worse by core_compile with fused
# kernels, and at least so many calls are compiled.
compiled() {
    set=$1 device=$2 least=$3
    shift 3
    LIBCORE_COMPILE_CODEGEN=on ends 0 'passed, 0 failed' \
        --golden "$golden/$set" --device "$device" --compiled "$@" || return
    count=$(sed -n 's/^calls: \([0-9]*\) compiled.*/\1/p' "$work/out")
    [ "$count" -ge "$least" ] || { echo "compiled: $count" && return 1; }
    for what in with that; do
        count=$(sed -n "s/^calls $what .*: \([0-9]*\) compiled.*/\1/p" \
            "$work/out")
        [ "$count" -gt 0 ] || return
    done
}
# A kernel whose second call differs from the first one.
compiled_differs() {
    LIBCORE_MUTANT_RULE=second-call-differs \
        LIBCORE_PLUGIN_PATH=$LIBCORE_PLUGIN_PATH:$(dirname "$mutant") \
        ends 1 '^FAILED .* tanh: compiled: result 0 .* has other bits' \
        --golden "$golden/public" --device mutant --filter tanh --compiled
}
if [ -n "${LIBCORE_TEST_LONG-}" ]; then
    for device in cpu sim; do
        ok "compiled calls are the same on $device" compiled public $device 2300
        ok "compiled calls of 2.15 are the same on $device" compiled current \
            $device 5000
    done
elif [ -n "$slow" ]; then
    ok "compiled calls are the same" compiled public cpu 300 --filter '[ab]*'
else
    ok "compiled calls are the same on sim" compiled public sim 2300
fi
mutant=$LIBCORE_BUILD/tests/fixtures/mutants/.libs/core_mutant.so
[ ! -f "$mutant" ] ||
    ok "a compiled call that computes something else fails" compiled_differs
! $factorizations || ok "calls that are not compiled are counted by reason" \
    ends 0 'not compiled: 4 calls, for linalg_lstsq: item: it reads data' \
    --golden "$golden/current" --device cpu --filter linalg_lstsq --compiled
ok "calls on meta are not compiled" ends 2 'needs a device that computes' \
    --golden "$golden/public" --device meta --compiled
ok "shapes and dtypes pass on meta" ends 0 'passed, 0 failed' \
    --golden "$golden/public" --device meta
ok "a filter selects operators" ends 0 '^12 passed, 0 failed, 0 missing' \
    --golden "$golden/public" --filter 'add.Tensor'
ok "a filter that matches nothing is an error" ends 2 'no case' \
    --golden "$golden/public" --filter 'nothing*'
ok "a result that differs is named" changed
ok "an unknown operator counts as missing" missing
ok "a required operator must pass" required
ok "listed differences do not fail" differences
ok "equal arguments may be one tensor" one_tensor_twice
$factorizations && ok "signs of eigenvectors are free" signs
$factorizations && ok "signs of singular vectors are free in pairs" paired_signs
ok "a dropped case is not selected" dropped
ok "a number is accepted for a tensor" numbers
ok "truncated data is refused" truncated_data
ok "truncated cases are refused" truncated_cases
small permute
ok "a file of another version is refused" damaged 's/golden 1/golden 2/' 'version 2'
ok "a file of another kind is refused" damaged '1s/golden/silver/' 'does not begin'
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
ok "a call without input is an error" ends 2 '--golden PREFIX'
ok "operators are listed" ends 0 '^add.Tensor\(' --list-operators
ok "--help prints the usage" ends 0 'usage: core-conformance' --help
# --------------------------------------------------------- --plugin FILE.so
plugins=$LIBCORE_BUILD/.libs

passes() { # level, plugin, setting, more…
    reached=$1 plugin=$2 setting=$3
    shift 3
    env "$setting" "$conformance" --plugin "$plugin" --level "$reached" \
        --timeout 600 "$@" >"$work/out" 2>&1
    got=$?
    cat "$work/out"
    [ $got = 0 ] && grep -qE "^# level reached: $reached" "$work/out"
}

# The same without calls of many elements, which take minutes.
passes_quickly() { # level, plugin, setting
    reached=$1 plugin=$2 setting=$3
    env "$setting" "$conformance" --plugin "$plugin" --level "$reached" \
        --timeout 600 --quick >"$work/out" 2>&1
    got=$?
    cat "$work/out"
    [ $got = 0 ] && grep -qE "^# level $reached  *no failure" "$work/out" &&
        grep -q 'not a conformance run: only a part without large calls' \
            "$work/out"
}

# Under sanitizers the operators take a quarter of an hour.
only_of_sim() { # level, more...
    "$conformance" --plugin "$sim" --only "$@" --timeout 600 --quick \
        >"$work/out" 2>&1
    got=$?
    cat "$work/out"
    [ $got = 0 ] && grep -qE "^# level $1  *no failure: [1-9]" "$work/out"
}

# A quarter of the operators: LIBCORE_TEST_LONG runs all.
in_steps() (
    export LIBCORE_SIM_GRANULARITY=4096
    only_of_sim ops --shard 1/4
)

# Kernels of sim are those of cpu, which all operators test, and recorded calls run
# all of them on sim.  LIBCORE_TEST_LONG runs all operators here too.
every_level_of_sim() {
    for level in core training stress; do
        only_of_sim $level || return
    done
    only_of_sim ops --shard 2/4
}

quick=passes_quickly
[ -z "${LIBCORE_TEST_LONG-}" ] || quick=passes

template() {
    cp "$LIBCORE_SOURCE"/plugins/template/* "$work/"
    # shellcheck disable=SC2086 # CC may have arguments
    ${CC:-cc} -std=gnu11 -O2 -fPIC -fvisibility=hidden \
        -I"$LIBCORE_SOURCE/include" -shared -Wl,-z,defs \
        -Wl,--version-script="$work/plugin.map" \
        -o "$work/core_template.so" "$work/template.c" -lm || return 1
    "$quick" ops "$work/core_template.so" A=1
}

# waived RULE LINE STATUS PATTERN: the verdict of a test of the mutant under a
# waiver.
waived() {
    rule=$1 line=$2 status=$3 pattern=$4
    echo "$line" >"$work/waivers"
    LIBCORE_MUTANT_RULE=$rule ends "$status" "$pattern" --plugin "$mutant" \
        --filter 'core/memory/fills' --waivers "$work/waivers"
}

silent_waiver() {
    waived none 'waive other core/memry/* 2020-01-01 known' 0 . &&
        ! grep '^# waivers' "$work/out"
}

continues_after_a_crash() {
    LIBCORE_MUTANT_RULE=crashes "$conformance" --plugin "$mutant" \
        --filter 'ops/ex[p]*/f32' >"$work/out" 2>&1
    cat "$work/out"
    grep -q '^not ok .* ops/exp/f32 # CRASH' "$work/out" &&
        grep -q '^ok .* ops/expm1/f32' "$work/out"
}

# names_cause RULE CAUSE: a plugin that cannot be opened fails once, and the rest
# is not run.
names_cause() {
    LIBCORE_MUTANT_RULE=$1 ends 1 "^Bail out! .*: $2\$" --plugin "$mutant" \
        --level core && [ "$(grep -c '^not ok' "$work/out")" = 1 ] &&
        grep "^# stopped: core/opening/plugin-opens: $2\$" "$work/out"
}

one_cause() {
    names_cause crashes-in-init 'signal 6 .* during init' &&
        names_cause crashes-in-enumerate 'signal 6 .* during enumerate' &&
        names_cause crashes-in-device-open 'signal 6 .* during device_open' &&
        names_cause lacks-copy 'copy of the memory table is NULL' &&
        names_cause accepts-nothing 'the entry refuses: .*'
}

no_device() {
    LIBCORE_SIM_DEVICES=0 ends 1 \
        '^Bail out! .*: there is no device: LIBCORE_SIM_DEVICES is 0$' \
        --plugin "$sim" --level core &&
        [ "$(grep -c '^not ok' "$work/out")" = 1 ]
}

names_slot() {
    LIBCORE_MUTANT_RULE=destroy-waits ends 1 \
        'not finished after [0-9]+ seconds.* destroy of a stream.* not returned' \
        --plugin "$mutant" --filter core/streams/destroy-does-not-wait \
        --timeout 3
}

# A test that computes for five seconds of the clock, and waits for the processor
# meanwhile, has not had its time; one that hangs has.
held_up() {
    LIBCORE_MUTANT_RULE=is-held-up ends 0 '^ok 1 - ' --plugin "$mutant" \
        --filter ops/rules/operands-are-unchanged --timeout 5 &&
        LIBCORE_MUTANT_RULE=hangs ends 1 'not finished after [0-9]+ seconds' \
            --plugin "$mutant" --filter ops/exp/f32 --timeout 1
}

resumes() {
    "$conformance" --plugin "$sim" --filter 'core/entry/*' \
        --jsonl "$work/run" || return 1
    "$conformance" --plugin "$sim" --filter 'core/e*/*' \
        --resume "$work/run" --verbose >"$work/out" 2>&1
    got=$?
    cat "$work/out"
    [ $got = 0 ] || return
    # Results of the first run are reported, and its tests do not run again.
    grep -q '^ok .* core/entry/' "$work/out" &&
        ! grep -q '^PASS *core/entry/' "$work/out" &&
        grep -q '^PASS *core/events/' "$work/out" &&
        ends 2 'another plugin file, seed' --plugin "$sim" --seed 7 \
            --resume "$work/run"
}

# A run that is killed while a test hangs leaves the results of those before.
interrupted() {
    LIBCORE_MUTANT_RULE=destroy-waits setsid "$conformance" \
        --plugin "$mutant" --filter 'core/streams/*' --timeout 600 \
        --jsonl "$work/part" >"$work/out" 2>&1 &
    pid=$!
    for _ in $(seq 600); do
        grep -qs work-is-in-order "$work/part" && break
        sleep .1
    done
    kill -s KILL -- "-$pid"
    wait "$pid"
    cat "$work/out"
    grep -q '^ok 2 - core/streams/work-is-in-order$' "$work/out" || return 1
    "$conformance" --plugin "$mutant" --filter 'core/streams/*' \
        --resume "$work/part" --verbose >"$work/out" 2>&1 || return 1
    grep -q '^ok 2 - core/streams/work-is-in-order$' "$work/out" &&
        ! grep -q '^PASS *core/streams/work-is-in-order' "$work/out" &&
        grep -q '^PASS *core/streams/destroy-does-not-wait' "$work/out"
}

shards() {
    for i in 1 2 3; do
        "$conformance" --plugin "$sim" --only core --list --shard $i/3
    done | sort >"$work/parts"
    "$conformance" --plugin "$sim" --only core --list | sort >"$work/whole"
    [ -s "$work/whole" ] && cmp "$work/parts" "$work/whole"
}

# Under a sanitizer that is the only run of level core on sim.
submits() {
    # shellcheck disable=SC2086 # empty or one setting
    env ${slow:+LIBCORE_SIM_DELAY_US=100} \
        "$conformance" --plugin "$sim" --level core --submit "$work/s.tar" \
        --html "$work/s.html" --junit "$work/s.xml" || return 1
    tar -tf "$work/s.tar" >"$work/names" || return 1
    grep -qx SHA256SUMS "$work/names" && grep -q '<table class="matrix">' \
        "$work/s.html" && grep -q '<testsuite ' "$work/s.xml" || return 1
    (cd "$work" && mkdir -p t && tar -xf s.tar -C t && cd t &&
        sha256sum -c SHA256SUMS) || return 1
    "$conformance" --verify "$work/s.tar" --plugin "$sim" || return 1
    ends 2 'another plugin file' --verify "$work/s.tar" \
        --plugin "$plugins/core_cpu.so"
}

# A submission with a changed result, with and without an updated hash.
forged() {
    cp "$work/s.tar" "$work/f.tar"
    sed -i 's/"verdict": "PASS"/"verdict": "FAIL"/' "$work/f.tar"
    ends 2 'does not match its hash' --verify "$work/f.tar" || return 1
    (cd "$work/t" && sed -i '0,/"verdict": "PASS"/s//"verdict": "FAIL"/' \
        results.jsonl && sha256sum results.* >SHA256SUMS &&
        xargs tar --format=ustar -cf "$work/f.tar" <"$work/names") || return 1
    ends 2 'summary does not match its results' --verify "$work/f.tar" ||
        return 1
    head -c 3000 "$work/s.tar" >"$work/f.tar"
    ends 2 'is cut' --verify "$work/f.tar" || return 1
    cp "$work/s.tar" "$work/f.tar"
    echo more >>"$work/f.tar"
    ends 2 'data after its end' --verify "$work/f.tar"
}

# A plugin that cannot be opened is reported in one line.
one_line() { # pattern, file
    ends 2 "$1" --plugin "$2" && [ "$(wc -l <"$work/out")" = 1 ]
}

sim=$plugins/core_sim.so
core_of_sim() ( # settings, with commas
    for setting in $(echo "$1" | tr , ' '); do
        export "LIBCORE_SIM_$setting"
    done
    passes core "$sim" A=1
)
# Several settings at once, since each run takes seconds; LIBCORE_TEST_LONG tests
# every level with each alone.
modes='MEMORY=flat,QUEUES=3 CHECK=1,COMPILE=1,DELAY_US=100
    GRANULARITY=4096,ALIGNMENT=256,TAIL=100,DEVICES=1'
if [ -n "${LIBCORE_TEST_SHORT-}" ]; then
    modes=MEMORY=flat
elif [ -n "$slow" ]; then
    modes=
    ok "operators of sim pass" only_of_sim ops --filter 'ops/[am]*/f32'
    ok "gradients and models of sim pass" only_of_sim training
    ok "sim passes the stress tests" only_of_sim stress
else
    ok "cpu passes every level" "$quick" stress "$plugins/core_cpu.so" A=1
    if [ -n "${LIBCORE_TEST_LONG-}" ]; then
        ok "sim passes every level" passes stress "$sim" A=1
    else
        ok "sim passes every level" every_level_of_sim
    fi
    [ -z "${LIBCORE_TEST_LONG-}" ] ||
        ok "sim passes level ops in steps of 4096" in_steps
fi
for mode in $modes; do
    ok "sim passes level core with $mode" core_of_sim "$mode"
done
# Takes minutes: every level in every mode, with the recorded calls.
if [ -n "${LIBCORE_TEST_LONG-}" ]; then
    for mode in MEMORY=flat CHECK=1 QUEUES=1 QUEUES=3 COMPILE=1 DEVICES=1 \
        GRANULARITY=4096 ALIGNMENT=256 TAIL=100 LARGEST=16000000 \
        BYTES=300000000 DELAY_US=100; do
        ok "sim passes every level with $mode" passes stress "$sim" \
            "LIBCORE_SIM_$mode" --golden "$golden/public"
    done
fi
# Compiled without the sanitizers.
[ -n "$slow" ] || ok "the template passes the level that it claims" template
ok "a plugin without devices is reported once" no_device
[ -n "$slow" ] || ok "shards divide the tests among them" shards
ok "the list says what is not checked" ends 0 \
    "^# not checked: the results of the plugin's own operators" \
    --plugin "$sim" --list
ok "a verdict says that no call of many elements was possible" ends 0 \
    '^# ops/arange/i8: .*; no call of many elements was possible$' \
    --plugin "$sim" --filter ops/arange/i8
every_kernel_gets_many() {
    "$conformance" --plugin "$plugins/core_cpu.so" --level ops --list \
        >"$work/out" || return
    grep -q '^ops/eye/f32$' "$work/out" &&
        grep -qxF "# not checked: calls of more than 65,536 elements of\
 _scaled_dot_product_efficient_attention_backward, _ctc_loss_backward, as no\
 sample has them" "$work/out"
}
# docs/conformance.md says why these have none.
ok "all kernels of cpu but two have a call of many elements" \
    every_kernel_gets_many
names_others() {
    LIBCORE_MUTANT_RULE=signature-dtypes-disagree ends 0 \
        '^# not checked: calls of more than 65,536 elements of exp, .*, as no' \
        --plugin "$mutant" --level ops --list
}
[ ! -f "$mutant" ] || ok "the list names kernels without one" names_others
ok "the list says what level training needs" ends 0 \
    '^# level training needs, in f32: .*_log_softmax,.* sigmoid, .*; and for' \
    --plugin "$sim" --level training --list
ok "a run is resumed" resumes
ok "an interrupted run is resumed" interrupted
ok "a filtered run is not a conformance run" ends 0 \
    'this was not a conformance run' --plugin "$sim" --filter 'core/entry/*'
ok "a filter that matches no test is an error" ends 2 \
    '^core-conformance: none of the [0-9]+ tests is selected: --filter' \
    --plugin "$sim" --filter 'nothing*'
ok "a shard without tests is an error" ends 2 \
    'selected: [1-9] are divided among 100 shards$' \
    --plugin "$sim" --filter 'core/entry/*' --shard 100/100
ok "--restore without --remove is an error" ends 2 \
    '--restore needs --remove$' --plugin "$sim" --restore true
ok "reports are bundled and verified" submits
ok "a changed submission is refused" forged
ok "output that cannot be written is an error" full
ok "a file that is not a plugin is refused in one line" one_line \
    'core-conformance.sh: refused: is not an ELF file' \
    "$LIBCORE_SOURCE/tests/core-conformance.sh"
ok "a plugin of another ABI is refused in one line" one_line \
    'core_abi_future.so: refused: .* this libcore offers' \
    "$LIBCORE_BUILD/tests/fixtures/.libs/core_abi_future.so"
# That none is found at all cannot be tested: one may be installed.
alone() {
    LIBCORE_PLUGIN_DENY=cpu one_line 'the reference device "cpu" is missing'\
': .*core_cpu.so is refused: .*LIBCORE_PLUGIN_DENY' "$sim"
}
ok "a missing reference device is an error" alone
ok "a first call has a budget" ends 1 'not ok .* perf/compile/mm # FAIL' \
    --plugin "$plugins/core_cpu.so" --only perf --compile-budget 0 \
    --filter 'perf/compile/mm'
# Errors that would otherwise occur at the end are reported before tests run.
early() { # pattern, arguments…
    pattern=$1
    shift
    ends 2 "$pattern" --plugin "$sim" --filter 'core/entry/*' "$@" &&
        ! grep -E '^(TAP|ok)' "$work/out"
}
before() {
    early 'cannot be written: .*/no/folder/x' --jsonl "$work/no/folder/x" &&
        early 'cannot be written' --html "$work" &&
        early 'cannot be written' --submit "$work" &&
        early "$work cannot be read" --waivers "$work" &&
        early 'none cannot be read' --waivers "$work/none" || return
    echo 'waive sim core/x soon known' >"$work/waivers"
    early 'waivers:1 has no end date' --waivers "$work/waivers" || return
    # Checking whether a file can be written does not change it.
    echo kept >"$work/report"
    early 'cannot be written' --jsonl "$work/report" --html "$work" &&
        [ "$(cat "$work/report")" = kept ] && [ ! -e "$work/no" ]
}
ok "unwritable reports and unreadable waivers are reported first" before
others() {
    ends 2 '^core-conformance: --device cpu: the plugin has "sim"$' \
        --plugin "$sim" --device cpu --only core &&
        ends 2 'device si: the plugin has' --plugin "$sim" --device si &&
        ends 2 '^core-conformance: --device: .*"sim:9" does not exist' \
            --plugin "$sim" --device sim:9 --only core &&
        ends 2 '^core-conformance: --device: "sim:x" is not a device name' \
            --plugin "$sim" --device sim:x --only core &&
        ends 0 '^ok 1 - core/tensors/loads$' --plugin "$sim" --device sim:0 \
            --filter core/tensors/loads
}
ok "a device of another plugin, or that does not exist, is refused" others
# Tests of the plugin's tables, too, open that device.
second_device() {
    LIBCORE_MUTANT_RULE=second-device-fills-one-byte ends 0 \
        '^ok 1 - core/memory/fills$' --plugin "$mutant" \
        --filter core/memory/fills &&
        LIBCORE_MUTANT_RULE=second-device-fills-one-byte ends 1 \
            '^not ok 1 - core/memory/fills # FAIL$' --plugin "$mutant" \
            --filter core/memory/fills --device mutant:1
}
numbers_fit() {
    for shard in 1/99999999999 -1/3 ' 1/3' 0/3 4/3 1/0 1/2/3 1; do
        ends 2 'accepts I/N' --plugin "$sim" --shard "$shard" || return
    done
    ends 2 'at most a week' --plugin "$sim" --timeout 99999999999 &&
        ends 2 'at least one second' --plugin "$sim" --timeout 0
}
ok "numbers out of range are refused" numbers_fit
ok "a missing plugin is named" ends 2 'No such file' \
    --plugin "$work/none.so"
ok "one plugin is tested" ends 2 '--plugin is given twice' \
    --plugin "$sim" --plugin "$sim"
# Each flag of the first paragraph is explained.
flags_are_explained() {
    "$conformance" --help >"$work/out" || return
    grep -oE -- '--[a-z][a-z-]*' "$work/out" | sort -u >"$work/flags"
    grep -E '^  +--' "$work/out" | grep -oE -- '--[a-z][a-z-]*' |
        sort -u >"$work/explained"
    [ "$(wc -l <"$work/flags")" -gt 25 ] && diff "$work/flags" "$work/explained"
}
ok "--help explains every flag" flags_are_explained
ok "--list needs a plugin" ends 2 '--list needs --plugin FILE.so' --list
ok "--level needs a plugin" ends 2 '--level needs --plugin' --level core
ok "missing recordings are found before the run" ends 2 'none.cases: No such' \
    --plugin "$sim" --golden "$work/none"
# A text of the plugin is changed.
damaged_plugin() {
    cp "$sim" "$work/core_sim.so" &&
        "$LIBCORE_BUILD/core-info" --seal "$work/core_sim.so" &&
        at=$(grep -abo "simulated accelerator" "$work/core_sim.so" | head -n 1) &&
        printf '\377\376\375\374' | dd of="$work/core_sim.so" bs=1 \
            seek="${at%%:*}" conv=notrunc 2>"$work/dd" &&
        ends 2 'refused: .*does not match its seal' --plugin "$work/core_sim.so"
}
ok "a damaged plugin is refused" damaged_plugin
if [ -f "$mutant" ]; then
    ok "a run continues after a crash" continues_after_a_crash
    ok "the given device is tested" second_device
    ok "a plugin that cannot be opened is reported once" one_cause
    ok "a test that hangs names the function of the plugin" names_slot
    ok "a test that is held up gets its processor time" held_up
    ok "a failure is waived" waived fills-with-one-byte \
        'waive mutant core/memory/* 2999-01-01 known' 0 'fills # WAIVED'
    ok "an expired waiver has no effect" waived fills-with-one-byte \
        'waive mutant core/memory/* 2020-01-01 known' 1 'fills # FAIL'
    ok "an expired waiver is reported" waived fills-with-one-byte \
        'waive mutant core/memory/* 2020-01-01 known' 1 \
        '^# waivers, line 1: core/memory/\* expired on 2020-01-01'
    ok "a waiver that matches nothing is reported" waived none \
        'waive mutant core/memry/* 2999-01-01 known' 0 \
        '^# waivers, line 1: core/memry/\* matches no test'
    ok "a waiver of another device is not reported" silent_waiver
    ok "a waiver is valid on its last day" waived fills-with-one-byte \
        "waive mutant core/memory/* $(date -u +%Y-%m-%d) known" 0 \
        'fills # WAIVED'
    ok "a nonexistent day is refused" waived none \
        'waive mutant core/memory/* 2999-02-29 known' 2 'has no end date'
    ok "a nonexistent month is refused" waived none \
        'waive mutant core/memory/* 2999-13-01 known' 2 'has no end date'
    ok "a waiver of another device has no effect" waived fills-with-one-byte \
        'waive other core/memory/* 2999-01-01 known' 1 'fills # FAIL'
    ok "an expected failure is reported as one" waived fills-with-one-byte \
        'xfail mutant core/memory/* 2999-01-01 known' 0 'fills # XFAIL'
    ok "an expected failure that passes is an error" waived none \
        'xfail mutant core/memory/* 2999-01-01 known' 1 'fills # XPASS'
    ok "a waiver without a date is refused" waived none \
        'waive mutant core/memory/* soon known' 2 'has no end date'
fi
echo "1..$number"
