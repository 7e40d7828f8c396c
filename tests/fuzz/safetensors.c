/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Fuzzes the parsers of safetensors headers and shard indexes.  The first byte
 * selects the parser, the rest is the JSON. */

#include "safetensors/header.h"
#include "safetensors/index.h"

#include <stdlib.h>
#include <string.h>

/* The tensors of an accepted header must cover the data without gaps. */
static void check_header(const core__header *header, uint64_t data_size)
{
    uint64_t reached = 0;

    for (size_t i = 0; i < header->tensor_count; i++) {
        const core__header_tensor *tensor = header->by_place[i];

        if (tensor->begin != reached || tensor->end < tensor->begin ||
            tensor->end > data_size || !tensor->name || !tensor->dtype_name)
            abort();
        for (uint32_t k = 0; k < tensor->ndim; k++)
            if (tensor->sizes[k] < 0)
                abort();
        reached = tensor->end;
    }
    if (reached != data_size)
        abort();
}

static void check_index(const core__index *index)
{
    for (size_t i = 0; i < index->entry_count; i++) {
        const core__index_entry *entry = &index->entries[i];

        if (entry->shard >= index->file_count ||
            strcmp(index->files[entry->shard], entry->file) != 0 ||
            entry->file[0] == '/' || strncmp(entry->file, "../", 3) == 0)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t data_sizes[] = {5, 0, 24, UINT64_C(1) << 62};
    const char *json = (const char *)data + 1;
    core__header header;
    core__index index;

    if (size == 0)
        return 0;
    if (*data == 'i') {
        if (core__index_parse(&index, "fuzz", json, size - 1) == CORE_OK)
            check_index(&index);
        core__index_free(&index);
        return 0;
    }
    for (size_t i = 0; i < sizeof data_sizes / sizeof *data_sizes; i++) {
        if (core__header_parse(&header, "fuzz", json, size - 1,
                               data_sizes[i]) == CORE_OK)
            check_header(&header, data_sizes[i]);
        core__header_free(&header);
    }
    return 0;
}
