/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* isa.h: instruction sets.  Files with kernels that benefit from wider vectors
 * are compiled once per set, with -DCPU_ISA=baseline, avx2 or avx512 and the
 * matching compiler flags, into one convenience library each; names shared
 * between such files are written CPU_NAME(x).  Architectures other than x86-64
 * only have `baseline`. */

#ifndef CPU_ISA_H
#define CPU_ISA_H

#include <libcore/plugin.h>

enum {
    CPU_ISA_BASELINE = 0,
    CPU_ISA_AVX2 = 1,
    CPU_ISA_AVX512 = 2,
    CPU_ISA_AVX512_BF16 = 3 /* the files for AVX-512, and bf16.h */
};

/* The set that files are compiled for. */
#define CPU_ISA_COMPILED(isa) ((isa) < CPU_ISA_AVX512 ? (isa) : CPU_ISA_AVX512)

/* Determines the best set of this machine, limited by the setting
 * LIBCORE_CPU_ISA.  An unknown value of the setting is an error. */
core_status cpu_isa_choose(const core_host *host, int *out_isa);
const char *cpu_isa_name(int isa);
/* The set chosen by init. */
extern int cpu_isa;

/* Of what each set has under its own name, that of the chosen one. */
#ifdef CPU_X86_ISA
#define CPU_CHOSEN(name)                                         \
    (CPU_ISA_COMPILED(cpu_isa) == CPU_ISA_AVX512 ? name##_avx512 \
     : CPU_ISA_COMPILED(cpu_isa) == CPU_ISA_AVX2 ? name##_avx2   \
                                                 : name##_baseline)
#else
#define CPU_CHOSEN(name) name##_baseline
#endif

#ifdef CPU_ISA
#define CPU_PASTE2(a, b) a##_##b
#define CPU_PASTE(a, b) CPU_PASTE2(a, b)
#define CPU_NAME(name) CPU_PASTE(name, CPU_ISA)
#endif

#endif
