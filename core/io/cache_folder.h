/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* cache_folder.h: the folder of files that are kept between processes, which
 * LIBCORE_CACHE sets. */

#ifndef CORE_IO_CACHE_FOLDER_H
#define CORE_IO_CACHE_FOLDER_H

#include <libcore/plugin.h>

#include <stdbool.h>
#include <stddef.h>

/* Writes the path of the part of the folder that has this name, and creates it.
 * UNSUPPORTED, with the reason: there is none, or others than the user may
 * write it. */
core_status core__cache_folder_make(core_string name, char *to,
                                    size_t capacity);

/* False if LIBCORE_CACHE is 0, or nothing says where the folder is to be. */
bool core__cache_folder_is_wanted(void);

/* Checks the text of LIBCORE_CACHE. */
core_status core__cache_folder_check(const char *text);

#endif
