/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* plugin_note.h: what a plugin's file says about it, before any of its code runs
 * (docs/abi.md 1 and 2).  Pure functions over the bytes of a file: nothing
 * in it is trusted, every offset is checked against its end. */

#ifndef CORE_LOADER_NOTE_H
#define CORE_LOADER_NOTE_H

#include "base/error.h"

#include <stdbool.h>
#include <string.h>

enum { CORE__IMAGE_HEAD = 8192 };

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
    /* How the file began when it was opened: the tables that a loader reads,
     * in a hundred small pieces, mostly lie there. */
    uint32_t nhead;
    uint8_t head[CORE__IMAGE_HEAD];
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

/* The room for a seal behind a note. */
typedef struct core__seal {
    uint64_t at; /* where in the file; 0: the note has no room for one */
    core_plugin_seal content;
} core__seal;

/* The same as core__note_read, and the seal: CORRUPT also where that is
 * neither whole nor empty. */
core_status core__note_read_sealed(const core__image *image,
                                   core_plugin_note *out_note,
                                   core__seal *out_seal);

/* CORE_PLUGIN_…SEAL… of plugins.h. */
uint32_t core__seal_kind(const core__seal *seal);
static inline bool core__seal_closed(const core__seal *seal)
{
    return seal->at > 0 && memcmp(seal->content.mark, "SEALED\0", 8) == 0;
}

/* Is what is loaded of the file what was sealed?  CORRUPT, or CORE_OK where
 * nothing was sealed. */
core_status core__seal_check(const core__image *image, const core__seal *seal);
/* What the seal of the file has to be. */
core_status core__seal_compute(const core__image *image, const core__seal *seal,
                               core_plugin_seal *out_content);

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
