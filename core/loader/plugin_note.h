/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* plugin_note.h: the description of a plugin in its file, read before any of
 * its code runs (docs/abi.md 1 and 2).  Pure functions over the bytes of a
 * file: nothing in it is trusted, and every offset is checked against its
 * end. */

#ifndef CORE_LOADER_PLUGIN_NOTE_H
#define CORE_LOADER_PLUGIN_NOTE_H

#include "base/error.h"

#include <stdbool.h>
#include <string.h>

enum { CORE__IMAGE_HEAD = 8192 };

/* A file, or bytes that represent one. */
typedef struct core__image core__image;
struct core__image {
    uint64_t size;
    /* Copies size bytes at an offset inside the file; false if the file cannot
     * be read. */
    bool (*read)(const core__image *image, uint64_t offset, void *to,
                 uint64_t size);
    const uint8_t *bytes; /* of core__image_bytes */
    int file;             /* of core__image_file */
    /* The first bytes of the file, as they were when it was opened: they
     * usually contain the tables that a loader reads in a hundred small
     * pieces. */
    uint32_t nhead;
    uint8_t head[CORE__IMAGE_HEAD];
};

core__image core__image_bytes(const void *bytes, uint64_t size);
/* For an open regular file; the core_status is that of fstat. */
core_status core__image_file(int file, core__image *out_image);

/* Finds the note of an ELF64 little-endian shared object for this machine and
 * checks every field.  CORRUPT: not such a file, or damaged; NOT_FOUND: it has
 * no libcore note; INCOMPATIBLE: for another machine or note version.  Does
 * not check the ABI range. */
core_status core__note_read(const core__image *image,
                            core_plugin_note *out_note);

/* The space for a seal after a note. */
typedef struct core__seal {
    uint64_t at; /* offset in the file; 0: the note has no space for a seal */
    core_plugin_seal content;
} core__seal;

/* The same as core__note_read, and also reads the seal: CORRUPT also if the
 * seal is neither complete nor empty. */
core_status core__note_read_sealed(const core__image *image,
                                   core_plugin_note *out_note,
                                   core__seal *out_seal);

/* CORE_PLUGIN_…SEAL… of libcore/plugins.h. */
uint32_t core__seal_kind(const core__seal *seal);
static inline bool core__seal_closed(const core__seal *seal)
{
    return seal->at > 0 && memcmp(seal->content.mark, "SEALED\0", 8) == 0;
}

/* Checks the loaded parts of the file against its seal: CORRUPT, or CORE_OK if
 * the file is not sealed. */
core_status core__seal_check(const core__image *image, const core__seal *seal);
/* Computes the seal of the file. */
core_status core__seal_compute(const core__image *image, const core__seal *seal,
                               core_plugin_seal *out_content);

/* The newest minor that is offered: this libcore's.  Tests set an older one,
 * to have an older core. */
extern uint32_t core__abi_minor_offered;

/* Checks that the ABI range of a note overlaps this libcore's.  INCOMPATIBLE
 * names both. */
core_status core__note_check_abi(const core_plugin_note *note);

/* Checks that the dynamic linker can lay out the segments in memory. 
 * CORRUPT. */
core_status core__segments_check(const core__image *image);

/* Checks that the file defines the entry, as a function, and imports no core_…
 * symbol, by its dynamic symbols, as the dynamic linker finds them.  REFUSED,
 * NOT_FOUND or CORRUPT. */
core_status core__symbols_check(const core__image *image);

#endif
