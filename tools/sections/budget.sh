# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# budget: compares instruction counts, measured with callgrind, with the limits
# in tests/instruction-budget.txt.
section_budget() {
    if ! have valgrind; then
        skip "instruction budgets" "no valgrind"
    elif [ ! -f tests/instruction-budget.txt ]; then
        fail "instruction budgets: no tests/instruction-budget.txt"
    else
        use_build "$main"
        tools/checks/budget "$main" >"$logs/budget.txt" 2>&1
        sed -n '/^SKIP/p; /^FAIL/p; /^PASS/p' "$logs/budget.txt"
        add_counts "instruction budgets" "$logs/budget.txt"
    fi
}
