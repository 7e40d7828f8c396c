# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# valgrind (--full, or by name): uninitialised reads, which the sanitizers used
# here do not detect, and leaks.
section_valgrind() {
    if ! have valgrind; then
        skip "valgrind" "no valgrind"
        return
    fi
    use_build "$main"
    for name in test_stream test_event test_engine_streams test_capture \
        test_capture_refused test_memory_callbacks test_memory_streams \
        test_tensor test_autograd_engine test_autograd_inplace test_scope \
        test_module nn/test_ownership test_network_faults test_loader; do
        program=$(cd "$source" && find tests/unit -path "*/$name.c")
        if [ -z "$program" ]; then
            fail "valgrind: there is no $name"
            continue
        fi
        # Each test runs in its own process, which valgrind checks at exit.
        # In a child of fork, the memory of the parent's threads would be
        # reported as lost, so tests that fork are left out; that of the loader
        # ends its child by a signal.
        try "$name under valgrind" env CK_DEFAULT_TIMEOUT=600 \
            LIBCORE_BUILD="$main" LIBCORE_SOURCE="$source" \
            "$main/libtool" --mode=execute valgrind -q --trace-children=no \
            --error-exitcode=9 --leak-check=full \
            --show-leak-kinds=definite --errors-for-leak-kinds=definite \
            "$main/${program%.c}"
    done
}
