/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Loop programs in backends/cuda, on a fake driver with a fake NVRTC
 * (tests/fixtures/gpu).  Skipped if the plugin was not built. */

#define SUITE_SECONDS 120
#define SUITE_FORKS true
#define GPU "cuda"
#define GPU_DRIVER ".libs/libcuda.so.1"
#define GPU_COMPILER ".libs/libnvrtc.so.??"
#define GPU_OLD_COMPILER "old/.libs/libnvrtc.so.??"

#include "support/gpu_loop_faults.h"

START_TEST(compiler_of_another_version_is_not_used)
{
    setenv("FAKE_RTC_VERSION", "11", 1);
    begin_faults("");
    check_runs_operators("has version 11.0; versions 12 to ");
}
END_TEST

START_TEST(absent_compiler_is_the_reason)
{
    if (dlopen("libnvrtc.so.13", RTLD_NOW) != NULL ||
        dlopen("libnvrtc.so.12", RTLD_NOW) != NULL) {
        suite_skip("this machine has NVRTC");
        return;
    }
    load_fake("");
    check_runs_operators("was not found");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        GPU_LOOP_FAULT_TESTS,
        compiler_of_another_version_is_not_used,
        absent_compiler_is_the_reason,
    };

    return run_with_fake_driver("gpu/cuda_loops", "core_cuda.so", tests,
                                sizeof tests / sizeof *tests);
}
