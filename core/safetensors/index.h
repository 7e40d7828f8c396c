/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* index.h: the index of a sharded set of safetensors files, which maps tensors
 * to files:
 *
 *     {"metadata": {…}, "weight_map": {"NAME": "FILE", …}}
 *
 * Files are in the index's directory or below it; a name that leads elsewhere
 * is CORRUPT, as is any other violation of the format. */

#ifndef CORE_SAFETENSORS_INDEX_H
#define CORE_SAFETENSORS_INDEX_H

#include <libcore/safetensors.h>

typedef struct core__shard_index_entry {
    const char *name;
    const char *file;
    size_t shard; /* index in files */
} core__shard_index_entry;

typedef struct core__shard_index {
    core__shard_index_entry *entries; /* sorted by name; names are unique */
    const char **files;               /* sorted, without duplicates */
    core_named_text *texts;           /* the metadata, sorted by name */
    char *strings;
    size_t entry_count;
    size_t file_count;
    size_t text_count;
    size_t entry_capacity;
    size_t text_capacity;
} core__shard_index;

/* The index's memory is freed with core__shard_index_free, also on failure. */
core_status core__shard_index_parse(core__shard_index *index, const char *path,
                                    const char *json, size_t size);
void core__shard_index_free(core__shard_index *index);

#endif
