# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# lint: runs tools/lint, which checks what a compiler does not.
section_lint() {
    make -s -C "$main" lint >"$logs/lint.txt" 2>&1
    sed -n '/^SKIP/p; /^FAIL/p; /^    /p' "$logs/lint.txt"
    add_counts lint "$logs/lint.txt"
}
