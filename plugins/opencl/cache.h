/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* cache.h: compiled programs on disk, from one process to the next. */

#ifndef OPENCL_CACHE_H
#define OPENCL_CACHE_H

#include "opencl.h"

/* Of device, driver, options and source. */
typedef struct opencl_cache_key {
    uint64_t words[2];
    bool kept; /* in folder */
    char folder[512];
} opencl_cache_key;

void opencl_cache_key_make(opencl_cache_key *key, const opencl_device *device,
                           const char *source, const char *options);
/* A built program, or NULL: not there, of another kind, or damaged. */
cl_program opencl_cache_get(opencl_device *device, const opencl_cache_key *key,
                            const char *options);
/* Failure is silent: it costs a compilation later. */
void opencl_cache_put(const opencl_cache_key *key, cl_program program);

#endif
