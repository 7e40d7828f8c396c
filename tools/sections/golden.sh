# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# golden: the sets of cases recorded from an independent implementation, on the
# CPU and on the simulated accelerator in each of its modes.
# tests/golden/SET.ops lists the operators that must pass all of theirs.
section_golden() {
    conformance=$main/core-conformance
    golden=golden
    if [ ! -x "$conformance" ]; then
        fail "golden: no core-conformance was built"
        return
    fi
    use_build "$main"
    say "golden: cases of operators that this release does not have are" \
        "missing, and count as skipped"
    for device in cpu sim; do
        golden_set public $device
        golden_set current $device
        golden_set layers $device
    done
    golden_modes
}

# golden_set SET DEVICE: with the program $conformance; $golden begins what it prints.
golden_set() {
    what="$golden on $2"
    [ "$1" = public ] || what="$golden, $1, on $2"
    log=$logs/golden-$1-$2.txt
    "$conformance" --golden "$source/tests/golden/$1" \
        --required "$source/tests/golden/$1.ops" --device "$2" >"$log" 2>&1
    status=$?
    before=$failed
    add_counts "$what" "$log"
    if [ $status != 0 ]; then
        grep -v ' passed' "$log" | head -n 40 | sed 's/^/    /'
        [ "$failed" -gt "$before" ] ||
            fail "$what: required operators do not pass"
    fi
}

# Each mode takes about a second, counts as one test, and detects races.
golden_modes() {
    while IFS= read -r mode; do
        # shellcheck disable=SC2086 # split into words on purpose
        try "golden on sim, $mode" env LIBCORE_SIM_CHECK=1 $mode \
            "$conformance" --golden "$source/tests/golden/public" \
            --required "$source/tests/golden/public.ops" --device sim
        # shellcheck disable=SC2086 # words are meant
        try "golden, current, on sim, $mode" env LIBCORE_SIM_CHECK=1 $mode \
            "$conformance" --golden "$source/tests/golden/current" \
            --required "$source/tests/golden/current.ops" --device sim
    done <<END
LIBCORE_SIM_MEMORY=handle
LIBCORE_SIM_MEMORY=flat
LIBCORE_SIM_QUEUES=1
LIBCORE_SIM_COMPILE=1
LIBCORE_SIM_MEMORY=flat LIBCORE_SIM_QUEUES=1 LIBCORE_SIM_COMPILE=1
LIBCORE_SIM_DELAY_US=50
LIBCORE_SIM_ALIGNMENT=1024 LIBCORE_SIM_GRANULARITY=4096 LIBCORE_SIM_TAIL=64
LIBCORE_ALLOC=expandable_segments:true
END
}
