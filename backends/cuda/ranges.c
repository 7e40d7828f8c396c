/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* ranges.c: NVTX, in a domain of libcore's.  Its headers open the library that
 * a tool names (NVTX_INJECTION64_PATH), and nothing where there is no tool. */

#include "ranges.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

#include <pthread.h>
#include <stddef.h>
#include <sys/auxv.h>

static nvtxDomainHandle_t domain;

/* The tool is named by the environment, which a privileged process does not
 * heed. */
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

#else /* a CUDA before 10 */

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
