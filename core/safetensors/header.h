/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* header.h: the JSON header of a safetensors file.
 *
 * Only what the format allows is accepted: objects, strings, and arrays of
 * integers that are 0 or more.  Everything else is CORRUPT. */

#ifndef CORE_SAFETENSORS_HEADER_H
#define CORE_SAFETENSORS_HEADER_H

#include <libcore/safetensors.h>

typedef struct core__safetensors_header_tensor {
    const char *name;
    const char *dtype_name;
    const int64_t *sizes;
    uint64_t begin; /* in the data, which follows the header */
    uint64_t end;
    uint64_t first_size; /* index in header->sizes */
    core_dtype dtype;    /* NONE: libcore has no such dtype */
    uint32_t ndim;
} core__safetensors_header_tensor;

typedef struct core__safetensors_header {
    core__safetensors_header_tensor
        *tensors;           /* sorted by name; names are unique */
    core_named_text *texts; /* likewise */
    const core__safetensors_header_tensor **by_place; /* sorted by begin */
    int64_t *sizes;
    char *strings;
    size_t tensor_count;
    size_t text_count;
    size_t size_count;
    size_t tensor_capacity;
    size_t text_capacity;
    size_t size_capacity;
} core__safetensors_header;

/* Reads and checks a header of `size` bytes, which is followed by `data_size`
 * bytes of data.  path is for messages.  The header's memory is freed with
 * core__safetensors_header_free, also on failure. */
core_status core__safetensors_header_parse(core__safetensors_header *header,
                                           const char *path, const char *json,
                                           size_t size, uint64_t data_size);
void core__safetensors_header_free(core__safetensors_header *header);

/* "F32"; NULL for a dtype that the format does not have. */
const char *core__safetensors_header_dtype_name(core_dtype dtype);
core_dtype core__safetensors_header_dtype(const char *name);
/* "[2, 3]", shortened to fit. */
void core__safetensors_header_shape(char *buffer, size_t size,
                                    const int64_t *sizes, uint32_t ndim);

#endif
