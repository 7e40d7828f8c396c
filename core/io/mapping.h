/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* mapping.h: reference-counted mappings of files. */

#ifndef CORE_IO_MAPPING_H
#define CORE_IO_MAPPING_H

#include <libcore/status.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct core__mapping {
    _Atomic uint32_t references;
    uint8_t *bytes;
    size_t size; /* at least `least` */
} core__mapping;

/* Maps a regular file of `least` bytes or more; kind is used in messages.
 * writable: the pages may be written, which does not change the file. */
core_status core__mapping_open(const char *path, const char *kind, size_t least,
                               bool writable, core__mapping **out_mapping);
core__mapping *core__mapping_retain(core__mapping *mapping);
/* Accepts NULL.  Any thread may call it. */
void core__mapping_release(core__mapping *mapping);

#endif
