/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Loop programs in backends/rocm, on a fake libamdhip64 with a fake hipRTC
 * (tests/fixtures/gpu).  Skipped if the plugin was not built. */

#define SUITE_SECONDS 120
#define SUITE_FORKS true
#define GPU "rocm"
/* The version is that of the HIP that configure found. */
#define GPU_DRIVER ".libs/libamdhip64.so.?"
#define GPU_COMPILER ".libs/libhiprtc.so.?"
#define GPU_OLD_COMPILER "old/.libs/libhiprtc.so.?"

#include "support/gpu_loop_faults.h"

/* The fake libamdhip64 has no hipRTC. */
START_TEST(absent_compiler_is_the_reason)
{
    char name[32];

    for (int version = 5; version < 10; version++) {
        snprintf(name, sizeof name, "libhiprtc.so.%d", version);
        if (dlopen(name, RTLD_NOW) != NULL) {
            suite_skip("this machine has hipRTC");
            return;
        }
    }
    load_fake("");
    check_runs_operators("was not found");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        GPU_LOOP_FAULT_TESTS,
        absent_compiler_is_the_reason,
    };

    return run_with_fake_driver("gpu/rocm_loops", "core_rocm.so", tests,
                                sizeof tests / sizeof *tests);
}
