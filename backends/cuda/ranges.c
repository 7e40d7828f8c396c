/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* ranges.c: NVTX ranges, in libcore's own domain.  NVTX's headers open the
 * library that a tool names in NVTX_INJECTION64_PATH; without a tool they do
 * nothing. */

#include "ranges.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

#include <pthread.h>
#include <stddef.h>
#include <sys/auxv.h>

static nvtxDomainHandle_t domain;

/* The environment names the tool; a privileged process ignores it. */
static void find(void)
{
    if (getauxval(AT_SECURE) == 0)
        domain = nvtxDomainCreateA("libcore");
}

bool cuda_ranges_enabled(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, find);
    return domain != NULL;
}

void cuda_range_begin(const char *name)
{
    nvtxEventAttributes_t range = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                   .message.ascii = name};

    nvtxDomainRangePushEx(domain, &range);
}

void cuda_range_end(void)
{
    nvtxDomainRangePop(domain);
}

#else /* CUDA before version 10 */

bool cuda_ranges_enabled(void)
{
    return false;
}

void cuda_range_begin(const char *name)
{
    (void)name;
}

void cuda_range_end(void) {}
#endif
