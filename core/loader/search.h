/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* search.h: the places where plugins are searched for (docs/abi.md 23), and
 * the files that are trusted. */

#ifndef CORE_LOADER_SEARCH_H
#define CORE_LOADER_SEARCH_H

#include "base/error.h"

/* status CORE_OK: path, absolute, may be a plugin.  Otherwise path is a
 * refused file, folder or manifest, and the thread's error record has the
 * reason, which does not name the path.  sha256: 64 lower-case digits if a
 * manifest requires a hash, else "". */
typedef void (*core__search_visit)(void *context, uint32_t from,
                                   const char *path, const char *sha256,
                                   core_status status);

/* Visits every place except the program's own, in order.  Fails only if there
 * is no memory. */
core_status core__search(core__search_visit visit, void *context);

/* Opens a file for reading if it and its folder are trusted; *out_file is -1
 * on failure.  Its real path, or NULL if it has none, belongs to the caller,
 * also on failure, and is freed with free(). */
core_status core__search_open(const char *path, int *out_file,
                              char **out_real_path);

/* For tests: replaces the configured folders; NULL leaves one unchanged, ""
 * disables it. */
void core__search_set_folders(const char *installed,
                              const char *manifests_shared,
                              const char *manifests_local);

#endif
