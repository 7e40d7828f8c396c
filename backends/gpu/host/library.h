/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* library.h: vendors' libraries, opened at run time. */

#ifndef GPU_LIBRARY_H
#define GPU_LIBRARY_H

#include <stddef.h>

typedef struct gpu_symbol {
    const char *name;
    size_t offset; /* of its function pointer in a table */
} gpu_symbol;

/* Stores the address of each symbol in the table.  Returns NULL, or the name of
 * the first symbol that the library lacks; then the table is unusable. */
const char *gpu_library_resolve(void *library, const gpu_symbol *symbols,
                                size_t count, void *table);

/* Opens STEM.so.N for the largest N from `newest` down to `oldest` that there
 * is, and stores its name.  Returns NULL if there is none; then `why` says why
 * the newest does not open. */
enum { GPU_LIBRARY_NAME = 32, GPU_LIBRARY_WHY = 160 };
void *gpu_library_open_newest(const char *stem, int newest, int oldest,
                              char name[GPU_LIBRARY_NAME],
                              char reason[GPU_LIBRARY_WHY]);

#endif
