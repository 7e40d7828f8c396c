# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# check: the tests of the tree, as users build it.  Left out are, but with --full,
# those of the emulated GPU whose kernels are compiled in the same way, and do the
# same, in the section `sanitize`.
section_check() {
    if [ $full = yes ]; then
        check "unit tests" "$main"
        return
    fi
    LIBCORE_TEST_SANITIZED=1
    export LIBCORE_TEST_SANITIZED
    # shellcheck disable=SC2016 # make expands it
    printf 'include Makefile\nlisted:\n\t@echo $(TESTS)\n' |
        make -s -C "$main" -f - listed | tr ' ' '\n' |
        grep -vE '/test_gpu_(loops|row_registers)$' >"$logs/tests.txt"
    check "unit tests" "$main" TESTS="$(tr '\n' ' ' <"$logs/tests.txt")"
}
