/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* safetensors.h: the struct of an open file: a single part, or the shards of an
 * index. */

#ifndef CORE_SAFETENSORS_SAFETENSORS_H
#define CORE_SAFETENSORS_SAFETENSORS_H

#include "safetensors/header.h"
#include "safetensors/index.h"
#include "io/mapping.h"

typedef struct core__safetensors_part {
    core__safetensors_header header;
    char *path;
    core__mapping *mapping;
    const uint8_t *data; /* follows the header */
} core__safetensors_part;

typedef struct core__safetensors_entry {
    const core__safetensors_header_tensor *tensor;
    const core__safetensors_part *part;
} core__safetensors_entry;

struct core_safetensors {
    char *path;
    bool mapped; /* opened for tensors that use its memory */
    core_device *host;
    core__shard_index index; /* empty for a single file */
    core__safetensors_part *parts;
    size_t part_count;
    core__safetensors_entry *entries; /* sorted by name */
    const core__safetensors_entry **by_place;
    size_t count;
    const core_named_text *texts; /* those of the only part, or of the index */
    size_t text_count;
};

static inline const uint8_t *core__safetensors_data(
    const core__safetensors_entry *entry)
{
    return entry->part->data + entry->tensor->begin;
}

#endif
