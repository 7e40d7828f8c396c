/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* plugin.c: the emulated device as a plugin, for tests; never installed. */

#include <libcore/sdk.h>

#include <gpu/driver.h>
#include <gpu/host/host.h>

CORE_SDK_NOTE("gpuemu", "The libcore authors", "0.1.0", "Apache-2.0", "gpuemu",
              "");

extern const gpu_driver gpu_emulated_driver;

/* The kernels are linked into the plugin; the images are only placeholders. */
static const unsigned char image[1];
#define IMAGE(family) {#family, image},
static const gpu_image images[] = {GPU_FAMILIES(IMAGE){NULL, NULL}};

const gpu_vendor gpu_this_vendor = {"gpuemu", &gpu_emulated_driver, images,
                                    NULL};

CORE_SDK_EXPORT core_status core_plugin_entry(const core_plugin_offer *offer,
                                              core_plugin_answer *answer);
core_status core_plugin_entry(const core_plugin_offer *offer,
                              core_plugin_answer *answer)
{
    return core_sdk_negotiate(offer, answer, 1, 0, gpu_init, gpu_stop);
}
