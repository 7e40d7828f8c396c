/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* plugin.c: the plugin for NVIDIA GPUs, through CUDA's driver. */

#include <gpu/host/host.h>

CORE_SDK_NOTE("cuda", "The libcore authors", "0.1.0", "Apache-2.0", "cuda",
              "CUDA 11.8");

extern const gpu_driver cuda_driver;
extern const gpu_image cuda_images[];
extern const struct gpu_collectives cuda_collectives;

const gpu_vendor gpu_this_vendor = {"cuda", &cuda_driver, cuda_images,
                                    &cuda_collectives};

CORE_SDK_EXPORT core_status core_plugin_entry(const core_plugin_offer *offer,
                                              core_plugin_answer *answer);
core_status core_plugin_entry(const core_plugin_offer *offer,
                              core_plugin_answer *answer)
{
    /* Vendors' libraries leave threads behind: the plugin is never unloaded. */
    return core_sdk_negotiate(offer, answer, 1, 0, gpu_init, gpu_stop);
}
