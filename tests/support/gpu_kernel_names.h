/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* gpu_kernel_names.h: which kernels a call launches. */

#ifndef TESTS_SUPPORT_GPUKERNEL_H
#define TESTS_SUPPORT_GPUKERNEL_H

#include "gpu_emulated.h"

#include "profiler/profile.h"

#include <libcore/profiler.h>

static inline core_profiler *start_kernel_trace(void)
{
    core_profiler *profiler;

    OK(core_profiler_start(NULL, &profiler));
    return profiler;
}

/* The kernels launched since then are these, in order; the list ends with
 * NULL. */
static inline void check_kernels(core_profiler *profiler,
                                 const char *const *names)
{
    OK(core_device_synchronize(gpuemu()));
    OK(core_profiler_stop(profiler));
    for (size_t i = 0; i < profiler->nslices; i++) {
        const core__profile_slice *slice = &profiler->slices[i];

        if (slice->kind != CORE_ACTIVITY_KERNEL)
            continue;
        ck_assert_msg(*names != NULL, "%s was launched, too", slice->name);
        ck_assert_str_eq(slice->name, *names++);
    }
    ck_assert_msg(*names == NULL, "%s was not launched", *names);
    core_profiler_release(profiler);
}

#endif
