/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* note.h: what can be known of a plugin from its file, before any of its code
 * runs (ABI.md 1 and 2).  Pure functions over the bytes of a file: nothing in
 * it is trusted, every offset is checked against its end. */

#ifndef CORE_LOADER_NOTE_H
#define CORE_LOADER_NOTE_H

#include "base/error.h"

#include <stdbool.h>

/* A file, or bytes that stand for one. */
typedef struct core__image core__image;
struct core__image {
    uint64_t size;
    /* Copies size bytes at offset, which lie inside the file; false when the
     * file could not be read. */
    bool (*read)(const core__image *image, uint64_t offset, void *to,
                 uint64_t size);
    const uint8_t *bytes; /* of core__image_bytes */
    int file;             /* of core__image_file */
};

core__image core__image_bytes(const void *bytes, uint64_t size);
/* An open regular file; core_status of fstat. */
core_status core__image_file(int file, core__image *out_image);

/* Finds the note of an ELF64 little-endian shared object for this machine and
 * checks every field.  CORRUPT: not such a file, or damaged; NOT_FOUND: no
 * note of libcore in it; INCOMPATIBLE: for another machine or note version.
 * Does not judge the ABI range. */
core_status core__note_read(const core__image *image,
                            core_plugin_note *out_note);

/* The newest minor that is offered: ours.  Tests set an older one, and have a
 * core of then. */
extern uint32_t core__abi_minor_offered;

/* Does the ABI range of a note meet ours?  INCOMPATIBLE says both. */
core_status core__note_check_abi(const core_plugin_note *note);

/* Can its segments be laid out in memory as the dynamic linker will do it?
 * CORRUPT. */
core_status core__segments_check(const core__image *image);

/* Does the file define the entry, as a function, and import no core_… symbol?
 * Judged by its dynamic symbols, as the dynamic linker finds them.  REFUSED,
 * NOT_FOUND or CORRUPT. */
core_status core__symbols_check(const core__image *image);

#endif
