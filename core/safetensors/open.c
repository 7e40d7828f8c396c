/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Opens single and sharded safetensors files and maps them into memory. */

#include "base/error.h"
#include "base/memory.h"
#include "safetensors/safetensors.h"

#include <libcore/device.h>

#include <stdlib.h>
#include <string.h>

/* Larger headers are refused. */
enum { HEADER_MAX = 100000000 };

/* ------------------------------------------------------------- one file -- */

static __attribute__((cold)) core_status read_header(
    core__safetensors_part *part)
{
    uint64_t size, rest = part->mapping->size - 8;
    const uint8_t *bytes = part->mapping->bytes;

    memcpy(&size, bytes, 8);
    if (size > rest)
        return core__error(CORE_ERROR_CORRUPT,
                           "%s: not a safetensors file, or truncated: it "
                           "states a header of %llu bytes, but %llu follow",
                           part->path, (unsigned long long)size,
                           (unsigned long long)rest);
    if (size > HEADER_MAX)
        return core__error(
            CORE_ERROR_CORRUPT,
            "%s: the header has %llu bytes, more than the format allows",
            part->path, (unsigned long long)size);
    part->data = bytes + 8 + size;
    return core__safetensors_header_parse(&part->header, part->path,
                                          (const char *)bytes + 8, (size_t)size,
                                          rest - size);
}

/* Takes ownership of path. */
static __attribute__((cold)) core_status open_part(core__safetensors_part *part,
                                                   char *path, bool mapped)
{
    part->path = path;
    CORE_TRY(core__mapping_open(path, "a safetensors file", 8, mapped,
                                &part->mapping));
    return read_header(part);
}

static __attribute__((cold)) core_status reserve(core_safetensors *file,
                                                 size_t parts, size_t entries)
{
    if (parts) {
        file->parts = core__alloc_zero(parts * sizeof *file->parts);
        if (!file->parts)
            return core__error_memory(parts * sizeof *file->parts);
    }
    if (entries) {
        file->entries = core__alloc(entries * sizeof *file->entries);
        file->by_place = core__alloc(entries * sizeof *file->by_place);
        if (!file->entries || !file->by_place)
            return core__error_memory(entries * sizeof *file->entries);
    }
    return CORE_OK;
}

static __attribute__((cold)) core_status open_single(core_safetensors *file)
{
    core__safetensors_part *part;
    core__safetensors_header *header;
    char *path;

    CORE_TRY(reserve(file, 1, 0));
    part = file->parts;
    header = &part->header;
    path = core__strdup(file->path);
    if (!path)
        return core__error_memory(strlen(file->path) + 1);
    file->part_count = 1;
    CORE_TRY(open_part(part, path, file->mapped));
    CORE_TRY(reserve(file, 0, header->tensor_count));
    file->count = header->tensor_count;
    for (size_t i = 0; i < file->count; i++) {
        file->entries[i] = (core__safetensors_entry){&header->tensors[i], part};
        file->by_place[i] =
            &file->entries[header->by_place[i] - header->tensors];
    }
    file->texts = header->texts;
    file->text_count = header->text_count;
    return CORE_OK;
}

/* --------------------------------------------------------------- shards -- */

static __attribute__((cold)) core_status read_index(core_safetensors *file)
{
    core__mapping *mapping;
    core_status status;

    CORE_TRY(core__mapping_open(file->path, "an index of shards", 1, false,
                                &mapping));
    if (mapping->size > HEADER_MAX)
        status = core__error(
            CORE_ERROR_CORRUPT,
            "%s: the index has %zu bytes, more than libcore accepts",
            file->path, mapping->size);
    else
        status = core__shard_index_parse(&file->index, file->path,
                                         (const char *)mapping->bytes,
                                         mapping->size);
    core__mapping_release(mapping);
    file->texts = file->index.texts;
    file->text_count = file->index.text_count;
    return status;
}

/* The path of a shard in the directory of the index. */
static __attribute__((cold)) core_status shard_path(
    const core_safetensors *file, const char *name, char **out_path)
{
    const char *slash = strrchr(file->path, '/');
    size_t folder = slash ? (size_t)(slash - file->path) + 1 : 0;
    size_t size = folder + strlen(name) + 1;

    *out_path = core__alloc(size);
    if (!*out_path)
        return core__error_memory(size);
    memcpy(*out_path, file->path, folder);
    strcpy(*out_path + folder, name);
    return CORE_OK;
}

static __attribute__((cold)) core_status open_shard(core_safetensors *file,
                                                    size_t number)
{
    const char *name = file->index.files[number];
    core_status status;
    char *path;

    CORE_TRY(shard_path(file, name, &path));
    file->part_count = number + 1;
    status = open_part(&file->parts[number], path, file->mapped);
    if (status == CORE_ERROR_NOT_FOUND)
        return core__error(CORE_ERROR_NOT_FOUND,
                           "%s: the shard \"%.200s\" does not exist",
                           file->path, name);
    return status;
}

static int compare_name(const void *key, const void *element)
{
    const core__safetensors_header_tensor *tensor = element;

    return strcmp(key, tensor->name);
}

static __attribute__((cold)) core_status find_in_shard(core_safetensors *file,
                                                       size_t number)
{
    const core__shard_index_entry *wanted = &file->index.entries[number];
    const core__safetensors_part *part = &file->parts[wanted->shard];
    const core__safetensors_header_tensor *found = NULL;

    if (part->header.tensor_count)
        found = bsearch(wanted->name, part->header.tensors,
                        part->header.tensor_count, sizeof *found, compare_name);
    if (!found)
        return core__error(CORE_ERROR_CORRUPT,
                           "%s: tensor \"%.80s\" is not in the shard "
                           "\"%.200s\", which the index names for it",
                           file->path, wanted->name, wanted->file);
    file->entries[number] = (core__safetensors_entry){found, part};
    file->by_place[number] = &file->entries[number];
    return CORE_OK;
}

static int by_place(const void *a, const void *b)
{
    const core__safetensors_entry *const *x = a, *const *y = b;

    if ((*x)->part != (*y)->part)
        return (*x)->part < (*y)->part ? -1 : 1;
    if ((*x)->tensor->begin != (*y)->tensor->begin)
        return (*x)->tensor->begin < (*y)->tensor->begin ? -1 : 1;
    return strcmp((*x)->tensor->name, (*y)->tensor->name);
}

static __attribute__((cold)) core_status open_shards(core_safetensors *file)
{
    CORE_TRY(read_index(file));
    CORE_TRY(reserve(file, file->index.file_count, file->index.entry_count));
    for (size_t i = 0; i < file->index.file_count; i++)
        CORE_TRY(open_shard(file, i));
    for (size_t i = 0; i < file->index.entry_count; i++)
        CORE_TRY(find_in_shard(file, i));
    file->count = file->index.entry_count;
    qsort(file->by_place, file->count, sizeof *file->by_place, by_place);
    return CORE_OK;
}

/* ------------------------------------------------------ open and close -- */

static __attribute__((cold)) bool is_index(const char *path)
{
    static const char suffix[] = ".json";
    size_t size = strlen(path), tail = sizeof suffix - 1;

    return size > tail && strcmp(path + size - tail, suffix) == 0;
}

static __attribute__((cold)) core_status open_file(const char *path,
                                                   bool mapped,
                                                   core_safetensors **out_file)
{
    core_safetensors *file = NULL;
    core_status status = CORE_OK;

    *out_file = NULL;
    if (!path || !*path)
        return core__error(CORE_ERROR_INVALID_ARGUMENT,
                           "core_safetensors_open or core_safetensors_map: "
                           "path is NULL or empty");
    file = core__alloc_zero(sizeof *file);
    if (!file)
        return core__error_memory(sizeof *file);
    file->mapped = mapped;
    if (mapped)
        status = core_device_find("cpu", &file->host);
    if (status == CORE_OK) {
        file->path = core__strdup(path);
        status = file->path ? CORE_OK : core__error_memory(strlen(path) + 1);
    }
    if (status == CORE_OK)
        status = is_index(path) ? open_shards(file) : open_single(file);
    if (status == CORE_OK) {
        *out_file = file;
        file = NULL;
    }
    core_safetensors_close(file);
    return status;
}

__attribute__((cold)) core_status core_safetensors_open(
    const char *path, core_safetensors **out_file)
{
    CORE__NOT_NULL(out_file);
    return open_file(path, false, out_file);
}

__attribute__((cold)) core_status core_safetensors_map(
    const char *path, core_safetensors **out_file)
{
    CORE__NOT_NULL(out_file);
    return open_file(path, true, out_file);
}

__attribute__((cold)) void core_safetensors_close(core_safetensors *file)
{
    if (!file)
        return;
    for (size_t i = 0; i < file->part_count; i++) {
        core__safetensors_header_free(&file->parts[i].header);
        core__mapping_release(file->parts[i].mapping);
        core__free(file->parts[i].path);
    }
    core__free(file->parts);
    core__free(file->entries);
    core__free(file->by_place);
    core__shard_index_free(&file->index);
    core__free(file->path);
    core__free(file);
}
