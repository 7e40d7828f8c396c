/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* index.h: which file has which tensor, where a set of tensors is spread over
 * several files:
 *
 *     {"metadata": {…}, "weight_map": {"NAME": "FILE", …}}
 *
 * Files lie in the index's folder or below it; a name that leads elsewhere is
 * CORRUPT, as is whatever else does not fit. */

#ifndef CORE_IO_INDEX_H
#define CORE_IO_INDEX_H

#include <libcore/safetensors.h>

typedef struct core__index_entry {
    const char *name;
    const char *file;
    size_t shard; /* number in files */
} core__index_entry;

typedef struct core__index {
    core__index_entry *entries; /* sorted by name, which is unique */
    const char **files;         /* sorted, each once */
    core_named_text *texts;     /* of the metadata, sorted by name */
    char *strings;
    size_t entry_count;
    size_t file_count;
    size_t text_count;
    size_t entry_room;
    size_t text_room;
} core__index;

/* What index has is freed with core__index_free, also on failure. */
core_status core__index_parse(core__index *index, const char *path,
                              const char *json, size_t size);
void core__index_free(core__index *index);

#endif
