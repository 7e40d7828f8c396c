/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* instruction_sets.h: the instruction sets of the CPU backend that this machine
 * has and this build contains, determined without the backend: a fault of its
 * detection must fail tests, not skip them. */

#ifndef TESTS_SUPPORT_INSTRUCTION_SETS_H
#define TESTS_SUPPORT_INSTRUCTION_SETS_H

#include <check.h>
#include <stdbool.h>
#include <string.h>

/* From the worst to the best, as numbered in backends/cpu/isa.h. */
static const char *const instruction_set_names[] = {"baseline", "avx2",
                                                    "avx512", "avx512_bf16"};

static inline int instruction_set_number(const char *name)
{
    int number = 0;

    while (strcmp(instruction_set_names[number], name) != 0) {
        number++;
        ck_assert_msg((size_t)number < sizeof instruction_set_names /
                                           sizeof *instruction_set_names,
                      "there is no instruction set %s", name);
    }
    return number;
}

/* CPU_X86_ISA and CPU_X86_BF16: the build has kernels for these sets. */
static inline int instruction_set_best(void)
{
    int best = 0;

#if defined(__x86_64__) && defined(CPU_X86_ISA)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c"))
        best = 1;
    if (best == 1 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        best = 2;
#ifdef CPU_X86_BF16
    if (best == 2 && __builtin_cpu_supports("avx512bf16"))
        best = 3;
#endif
#endif
    return best;
}

#endif
