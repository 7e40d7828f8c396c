/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "isa.h"

#include <libcore/sdk.h>

#include "cpu.h"

int cpu_isa = CPU_ISA_BASELINE;

static const char *const names[] = {"baseline", "avx2", "avx512",
                                    "avx512_bf16"};

const char *cpu_isa_name(int isa)
{
    return names[isa];
}

#if defined(__x86_64__) && defined(CPU_X86_ISA)
static int best_of_avx512(void)
{
#ifdef CPU_X86_BF16
    if (__builtin_cpu_supports("avx512bf16"))
        return CPU_ISA_AVX512_BF16;
#endif
    return CPU_ISA_AVX512;
}
#endif

/* What the machine, and its operating system, can run. */
static int best(void)
{
#if defined(__x86_64__) && defined(CPU_X86_ISA)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c")) {
        if (__builtin_cpu_supports("avx512f") &&
            __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512vl"))
            return best_of_avx512();
        return CPU_ISA_AVX2;
    }
#endif
    return CPU_ISA_BASELINE;
}

core_status cpu_isa_choose(const core_host *host, int *out_isa)
{
    core_string wanted = host->setting(core_sdk_string("LIBCORE_CPU_ISA"));
    int isa = best(), k;

    *out_isa = isa;
    if (wanted.data == NULL || wanted.size == 0)
        return CORE_OK;
    for (k = CPU_ISA_BASELINE; k <= CPU_ISA_AVX512_BF16; k++)
        if (core_sdk_string_equal(wanted, names[k])) {
            *out_isa = k < isa ? k : isa;
            return CORE_OK;
        }
    return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                     "LIBCORE_CPU_ISA is \"%.*s\"; it can be baseline, avx2, "
                     "avx512 or avx512_bf16",
                     (int)wanted.size, wanted.data);
}
