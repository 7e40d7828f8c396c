# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# check: the tests of the tree, as users build it.  Left to the section `sanitize`,
# if that runs too and without --full, are those of the emulated GPU whose kernels
# are compiled in the same way, and do the same, there, and calls with invalid
# arguments.
section_check() {
    case " ${sections-} " in *" sanitize "*) left=yes ;; *) left=no ;; esac
    if [ "$full" = yes ] || [ $left = no ]; then
        check "unit tests" "$main"
        return
    fi
    LIBCORE_TEST_SANITIZED=1
    export LIBCORE_TEST_SANITIZED
    # shellcheck disable=SC2016 # make expands it
    printf 'include Makefile\nlisted:\n\t@echo $(TESTS)\n' |
        make -s -C "$main" -f - listed | tr ' ' '\n' |
        grep -vE '/test_(gpu_(edges|loops|row_registers)|ops_hostile)$' \
            >"$logs/tests.txt"
    check "unit tests" "$main" TESTS="$(tr '\n' ' ' <"$logs/tests.txt")"
}
