/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* plugin.c: the plugin for GPUs through HIP: AMD's, and as `hipnv` NVIDIA's. */

#include <gpu/host/host.h>

#ifdef __HIP_PLATFORM_NVIDIA__
#define NAME "hipnv"
#define COLLECTIVES NULL
CORE_SDK_NOTE("hipnv", "The libcore authors", "0.1.0", "Apache-2.0", "hipnv",
              "CUDA 13.0");
#else
#define NAME "rocm"
#define COLLECTIVES &rocm_collectives
CORE_SDK_NOTE("rocm", "The libcore authors", "0.1.0", "Apache-2.0", "rocm",
              "ROCm 5.0");
#endif

extern const gpu_driver rocm_driver;
extern const gpu_image rocm_images[];
extern const struct gpu_collectives rocm_collectives;

const gpu_vendor gpu_this_vendor = {NAME, &rocm_driver, rocm_images,
                                    COLLECTIVES};

CORE_SDK_EXPORT core_status core_plugin_entry(const core_plugin_offer *offer,
                                              core_plugin_answer *answer);
core_status core_plugin_entry(const core_plugin_offer *offer,
                              core_plugin_answer *answer)
{
    /* Vendors' libraries leave threads behind: the plugin is never unloaded. */
    return core_sdk_negotiate(offer, answer, 1, 0, gpu_init, gpu_stop);
}
