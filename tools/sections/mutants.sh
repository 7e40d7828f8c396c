# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# mutants: each wait, event and record_stream of the engine has a test that
# fails without it.  With --full also each assumption of the allocator,
# which takes minutes.
section_mutants() {
    use_build "$main"
    areas=engine
    [ $full = no ] || areas='engine memory'
    for area in $areas; do
        log=$logs/$area.txt
        "tools/checks/mutate-$area" "$main" >"$log" 2>&1
        sed -n '/^SKIP/p; /^FAIL/p' "$log"
        add_counts "mutants of $area" "$log"
    done
}
