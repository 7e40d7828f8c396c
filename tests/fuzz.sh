#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# Fuzzes parsers of untrusted bytes with libFuzzer, if clang provides it.
# LIBCORE_FUZZ_RUNS=N sets the inputs per target; a crash is kept in
# LIBCORE_FUZZ_KEEP.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
runs=${LIBCORE_FUZZ_RUNS:-20000}
clang=${LIBCORE_FUZZ_CC:-clang}
number=0

flags='-std=gnu11 -g -O1 -fsanitize=fuzzer,address,undefined
    -fno-sanitize-recover=undefined -D_GNU_SOURCE='

cat >"$work/try.c" <<'END'
#include <stddef.h>
#include <stdint.h>
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return data && size ? 0 : 0;
}
END
# shellcheck disable=SC2086 # splits into words
if ! "$clang" $flags -o "$work/try" "$work/try.c" >/dev/null 2>&1; then
    echo '1..0 # SKIP no clang with libFuzzer'
    exit 0
fi

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

# fuzz NAME SOURCE…: builds and runs tests/fuzz/NAME.c with these files of
# core/; the corpus is $work/NAME.corpus.
fuzz() {
    name=$1
    shift
    number=$((number + 1))
    # shellcheck disable=SC2086,SC2046 # splits into words
    if "$clang" $flags -I"$LIBCORE_SOURCE/core" -I"$LIBCORE_SOURCE/include" \
        -I"$LIBCORE_BUILD/include" -iquote "$LIBCORE_SOURCE/include/libcore" \
        -iquote "$LIBCORE_BUILD/include/libcore" \
        -o "$work/$name" "$LIBCORE_SOURCE/tests/fuzz/$name.c" \
        "$LIBCORE_SOURCE/tests/fuzz/base.c" \
        $(for file in "$@"; do echo "$LIBCORE_SOURCE/core/$file"; done) \
        >"$work/log" 2>&1 &&
        ASAN_OPTIONS=intercept_tls_get_addr=0 "$work/$name" -runs="$runs" \
            -seed=1 -max_len=65536 -timeout=10 -close_fd_mask=1 \
            -artifact_prefix="${LIBCORE_FUZZ_KEEP:-$work}/" \
            "$work/$name.corpus" >"$work/log" 2>&1; then
        echo "ok $number - $name: $runs inputs"
    else
        echo "not ok $number - $name"
        print_reason "$work/log"
    fi
}

mkdir "$work/note.corpus" "$work/schema.corpus" "$work/safetensors.corpus"
cp "$LIBCORE_SOURCE"/tests/fuzz/seeds/* "$work/safetensors.corpus"
# Small plugins: stripped fixtures.
for plugin in "$LIBCORE_BUILD"/tests/fixtures/.libs/core_good.so \
    "$LIBCORE_BUILD"/tests/fixtures/.libs/core_no_note.so; do
    strip -o "$work/note.corpus/$(basename "$plugin")" "$plugin" 2>/dev/null
done
sed -n 's/^- op: //p' "$LIBCORE_SOURCE/core/ops/ops.yaml" |
    awk -v folder="$work/schema.corpus" \
        '{ printf "%s", $0 > (folder "/" NR); close(folder "/" NR) }'
echo 1..3
fuzz note loader/plugin_note.c loader/integrity_hash.c loader/elf_segments.c \
    loader/elf_dynamic.c loader/elf_symbols.c base/checksum.c
fuzz schema dispatch/schema.c tensor/dtype.c tensor/float8.c
fuzz safetensors safetensors/header.c safetensors/index.c \
    safetensors/json_reader.c
