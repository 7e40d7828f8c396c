/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* search.h: where plugins are looked for (docs/abi.md 23), and which files are
 * trusted. */

#ifndef CORE_LOADER_SEARCH_H
#define CORE_LOADER_SEARCH_H

#include "base/error.h"

/* status CORE_OK: path, absolute, may be a plugin.  Else path is a file,
 * folder or manifest that is refused, and the thread's error record says why;
 * the text does not name the path.  sha256: 64 small digits if a manifest says
 * what the file's hash has to be, else "". */
typedef void (*core__search_visit)(void *context, uint32_t from,
                                   const char *path, const char *sha256,
                                   core_status status);

/* Visits every place but the program's own, in order.  Fails only for want of
 * memory. */
core_status core__search(core__search_visit visit, void *context);

/* Opens a file for reading if it and its folder are trusted; -1 in *out_file
 * on failure.  Its real path, NULL if it has none, is the caller's on failure
 * too, to be freed with free(). */
core_status core__search_open(const char *path, int *out_file,
                              char **out_real_path);

/* For tests: other folders than those that were configured; NULL leaves one
 * as it is, "" turns it off. */
void core__search_set_folders(const char *installed,
                              const char *manifests_shared,
                              const char *manifests_local);

#endif
