/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* images.c: what the compiler of kernels made of backends/gpu/kernels. */

#include "images.h"

#include <gpu/host/embed.h>

#include <stdlib.h>
#include <string.h>

extern const gpu_image cuda_images[];
const gpu_image cuda_images[] = {GPU_FAMILIES(GPU_EMBEDDED){NULL, NULL}};

/* Code runs on GPUs of its major number that are as new or newer; PTX, which the
 * last has, on all that are.  "90a" is for itself alone. */
bool cuda_images_fit(int capability)
{
    const char *at = CUDA_ARCHES;
    bool fit = false, newer = false;

    while ((at = strstr(at, "sm_")) != NULL) {
        char *end;
        long arch = strtol(at + 3, &end, 10);
        bool plain = *end == 0 || *end == ' ';

        newer = plain && capability >= arch;
        fit |=
            plain ? newer && capability / 10 == arch / 10 : capability == arch;
        at = end;
    }
    return fit || newer;
}
