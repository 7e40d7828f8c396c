/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* cache.h: the cache of compiled programs on disk. */

#ifndef OPENCL_CACHE_H
#define OPENCL_CACHE_H

#include "opencl.h"

/* A hash of device, driver, options and source. */
typedef struct opencl_cache_key {
    uint64_t hash[2];
    bool enabled; /* there is a folder */
    char folder[512];
} opencl_cache_key;

/* Whether programs are kept on disk.  PoCL's are only if that is asked for. */
bool opencl_cache_keeps(const opencl_device *device);
void opencl_cache_key_make(opencl_cache_key *key, const opencl_device *device,
                           const char *source, const char *options);
/* Returns a built program, or NULL: missing, of another kind, or damaged. */
cl_program opencl_cache_get(opencl_device *device, const opencl_cache_key *key,
                            const char *options);
/* Errors are ignored: they only cost a compilation later. */
void opencl_cache_put(const opencl_cache_key *key, cl_program program);

#endif
