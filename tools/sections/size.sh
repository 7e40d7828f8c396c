# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# size: the bytes that libcore.so and core_cpu.so load from their files, code and
# data (`size`: text and data).  Unlike the size of a stripped file, which grows in
# steps of a page with the length of a path, it depends on the source alone but for
# a few bytes.  The limits are 1 % above the sizes, so that growth is noticed (the
# goal for core_cpu.so is 6 MB).
#
# The operators of PyTorch 2.15 that were missing, with their variants,
# decompositions and gradients, took 320 KB of libcore.so and 35 KB of core_cpu.so;
# core_vmap with its rules 70 KB of libcore.so, programs and compiled functions
# (core/compile) 275 KB, of which training through them 29, prepared calls 31,
# programs for other sizes 13, device graphs 9, frozen weights 3, fused kernels 15,
# lazy regions 21 and blocks of rows 10, modes 17 KB, loop programs (core/codegen)
# 58 KB and 24 KB of core_cpu.so, whose reductions and convolutions of small shapes
# took 12, and native code of loop programs 45; communicators and collectives
# (core/comm) 31 KB of libcore.so, reducers 15, recurrent layers, einsum and 40 other
# operators 70, modules (core/nn) 25, data loaders 8, differentiated and batched loops
# and branches 37, parts of products that are followed by a group 8, sharded
# optimizers and collectives of other counts 22; products, transposed copies and
# convolutions of single channels 41 KB of core_cpu.so, recurrent layers 28 to 42 for
# each instruction set, fused cells 13 each; checks of content and choices that are
# kept 13 KB of libcore.so, networks as expressions and fused cells 15, batched
# messages and names as paths 2, 33 operators that arrange and multiply tensors 29,
# groups of parameters, packed sequences and checks of modules 9, groups of
# collectives and ranks that are named 19, what branches and loops save 9, numbers on
# the fast path 7; reductions, pairs, norms and gradients of bf16 in vectors 38 KB of
# core_cpu.so, remainders, arcs, selection and single images 13, powers of bf16 and
# operands that dimensions repeat 16; errors of networks
# that name files and layers, and collectives as ranges of profiles, 5 KB of libcore.so,
# errors that name the operator that was called 5, and those that name the argument that
# is meant, and losses with few passes, 5.
section_size() {
    for row in libcore.so:2910000 core_cpu.so:1792000; do
        file=${row%:*}
        bytes=$(size "$main/.libs/$file" | awk 'NR == 2 { print $1 + $2 }')
        if [ "${bytes:-0}" -le "${row#*:}" ] && [ "${bytes:-0}" -gt 0 ]; then
            pass "$file is $bytes bytes, at most ${row#*:}"
        else
            fail "$file is ${bytes:-no} bytes, more than ${row#*:}"
        fi
    done
    if tools/checks/size-by-family "$main" >"$logs/families.txt" 2>&1; then
        pass "core_cpu.so's size by kernel family"
    else
        fail "core_cpu.so's size by kernel family"
    fi
    sed 's/^/    /' "$logs/families.txt"
}
