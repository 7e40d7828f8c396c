/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* embedded_images.h: embeds the images of the kernels in the plugin.
 * GPU_IMAGES is their folder, GPU_SUFFIX the suffix of their names. */

#ifndef GPU_EMBEDDED_IMAGES_H
#define GPU_EMBEDDED_IMAGES_H

#include <gpu/driver.h>
#include <gpu/host/families.h>

#define GPU_EMBED(family)                                         \
    __asm__(".pushsection .rodata.gpu_" #family ", \"a\"\n"       \
            ".balign 4096\n"                                      \
            ".hidden gpu_image_" #family "\n"                     \
            ".globl gpu_image_" #family "\n"                      \
            "gpu_image_" #family ":\n"                            \
            ".incbin \"" GPU_IMAGES "/" #family GPU_SUFFIX "\"\n" \
            ".byte 0\n"                                           \
            ".popsection\n");                                     \
    extern const unsigned char gpu_image_##family[]               \
        __attribute__((visibility("hidden")));
GPU_FAMILIES(GPU_EMBED)
#define GPU_EMBEDDED(family) {#family, gpu_image_##family},

#endif
