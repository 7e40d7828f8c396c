/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "isa.h"

#include <libcore/sdk.h>

#if __has_include(<sys/platform/x86.h>)
#include <sys/platform/x86.h>
#endif

#include "cpu.h"

int cpu_isa = CPU_ISA_BASELINE;

static const char *const names[] = {"baseline", "avx2", "avx512",
                                    "avx512_bf16"};

const char *cpu_isa_name(int isa)
{
    return names[isa];
}

#if defined(__x86_64__) && defined(CPU_X86_ISA)
/* The C library ran CPUID when the process started; running it again costs some
 * microseconds each time in a virtual machine. */
#if __has_include(<sys/platform/x86.h>)
#define HAS(NAME, name) CPU_FEATURE_ACTIVE(NAME)
#else
#define HAS(NAME, name) __builtin_cpu_supports(name)
#endif

static int best_of_avx512(void)
{
#ifdef CPU_X86_BF16
    if (HAS(AVX512_BF16, "avx512bf16"))
        return CPU_ISA_AVX512_BF16;
#endif
    return CPU_ISA_AVX512;
}
#endif

/* The best set that the machine and its operating system support. */
static int best(void)
{
#if defined(__x86_64__) && defined(CPU_X86_ISA)
    if (HAS(AVX2, "avx2") && HAS(FMA, "fma") && HAS(F16C, "f16c")) {
        if (HAS(AVX512F, "avx512f") && HAS(AVX512BW, "avx512bw") &&
            HAS(AVX512DQ, "avx512dq") && HAS(AVX512VL, "avx512vl"))
            return best_of_avx512();
        return CPU_ISA_AVX2;
    }
#endif
    return CPU_ISA_BASELINE;
}

core_status cpu_isa_choose(const core_host *host, int *out_isa)
{
    core_string requested = host->setting(core_sdk_string("LIBCORE_CPU_ISA"));
    int isa = best(), k;

    *out_isa = isa;
    if (requested.data == NULL || requested.size == 0)
        return CORE_OK;
    for (k = CPU_ISA_BASELINE; k <= CPU_ISA_AVX512_BF16; k++)
        if (core_sdk_string_equal(requested, names[k])) {
            *out_isa = k < isa ? k : isa;
            return CORE_OK;
        }
    return cpu_error(CORE_ERROR_INVALID_ARGUMENT,
                     "LIBCORE_CPU_ISA is \"%.*s\"; accepted: baseline, "
                     "avx2, avx512 or avx512_bf16",
                     (int)requested.size, requested.data);
}
