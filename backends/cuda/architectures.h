/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* architectures.h: which GPUs the kernels run on. */

#ifndef CUDA_ARCHITECTURES_H
#define CUDA_ARCHITECTURES_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The architecture whose code, compiled for `list`, such as "sm_80 sm_90", a GPU
 * of a capability, such as 80 for 8.0, runs; 0: none.  Code runs on GPUs of the
 * same major version that are as new or newer, and the PTX of the last
 * architecture on all that are.  "90a" runs only on itself, "100f" on its major
 * version. */
static inline long cuda_code_for(const char *list, int capability)
{
    const char *at = list;
    long best = 0, newer = 0;

    while ((at = strstr(at, "sm_")) != NULL) {
        char *end;
        long arch = strtol(at + 3, &end, 10);
        bool kin = capability >= arch && capability / 10 == arch / 10;

        newer = (*end == 0 || *end == ' ') && capability >= arch ? arch : 0;
        if ((*end == 'a' ? capability == arch : kin) && arch > best)
            best = arch;
        at = end;
    }
    return best != 0 ? best : newer;
}

/* Whether these kernels run on a GPU of this capability. */
static inline bool cuda_arches_fit(const char *list, int capability)
{
    return cuda_code_for(list, capability) != 0;
}

#endif
