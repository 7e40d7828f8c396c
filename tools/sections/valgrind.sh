# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# valgrind (--full, or by name): reads of memory that was never written, which
# no sanitizer here sees, and leaks.
section_valgrind() {
    if ! have valgrind; then
        skip "valgrind" "no valgrind"
        return
    fi
    use_build "$main"
    for name in test_stream test_event test_engine_streams test_capture \
        test_capture_refused test_memory_callbacks test_memory_streams \
        test_tensor test_autograd_engine test_autograd_inplace; do
        program=$(cd "$source" && find tests/unit -name "$name.c")
        if [ -z "$program" ]; then
            fail "valgrind: there is no $name"
            continue
        fi
        # Each test is a child, as it is written for, and valgrind looks at each
        # as it ends.  In a child that a test forks itself the memory of its
        # parent's threads would count as lost: no such test is here.
        try "$name under valgrind" env CK_DEFAULT_TIMEOUT=600 \
            LIBCORE_BUILD="$main" LIBCORE_SOURCE="$source" \
            "$main/libtool" --mode=execute valgrind -q --trace-children=no \
            --error-exitcode=9 --leak-check=full \
            --show-leak-kinds=definite --errors-for-leak-kinds=definite \
            "$main/${program%.c}"
    done
}
