# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# check: every test of the tree, as users build it.
section_check() {
    check "unit tests" "$main"
}
