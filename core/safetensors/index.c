/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Parses and checks the index of a sharded set of files. */

#include "safetensors/index.h"

#include "base/error.h"
#include "base/memory.h"
#include "safetensors/json_reader.h"

#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------- reading -- */

/* Whether the file is in the index's directory or below it: no component of the
 * path may be empty, "." or "..". */
static __attribute__((cold)) bool is_inside(const char *file)
{
    for (;;) {
        size_t part = strcspn(file, "/");

        if (part == 0 || (part == 1 && file[0] == '.') ||
            (part == 2 && file[0] == '.' && file[1] == '.'))
            return false;
        if (!file[part])
            return true;
        file += part + 1;
    }
}

static __attribute__((cold)) core_status read_entry(core__json_reader *r,
                                                    core__shard_index *index,
                                                    const char *name)
{
    core__shard_index_entry *entry;

    CORE_TRY(core__json_reader_grow((void **)&index->entries,
                                    &index->entry_capacity, index->entry_count,
                                    sizeof *index->entries));
    entry = &index->entries[index->entry_count];
    *entry = (core__shard_index_entry){.name = name};
    CORE_TRY(core__json_reader_string(r, &entry->file));
    if (!is_inside(entry->file))
        return core__error(CORE_ERROR_CORRUPT,
                           "%s: tensor \"%.80s\" is in the shard \"%.80s\", "
                           "which must be in the index's directory",
                           r->path, name, entry->file);
    index->entry_count++;
    return CORE_OK;
}

/* String values are kept, all others skipped. */
static __attribute__((cold)) core_status read_datum(core__json_reader *r,
                                                    core__shard_index *index,
                                                    const char *name)
{
    core_named_text *text;

    core__json_reader_skip_space(r);
    if (r->next == r->end || *r->next != '"')
        return core__json_reader_skip(r);
    CORE_TRY(core__json_reader_grow((void **)&index->texts,
                                    &index->text_capacity, index->text_count,
                                    sizeof *index->texts));
    text = &index->texts[index->text_count];
    text->name = name;
    CORE_TRY(core__json_reader_string(r, &text->text));
    index->text_count++;
    return CORE_OK;
}

typedef core_status (*read_member)(core__json_reader *r,
                                   core__shard_index *index, const char *name);

static __attribute__((cold)) core_status read_object(core__json_reader *r,
                                                     core__shard_index *index,
                                                     read_member member)
{
    const char *name;

    if (!core__json_reader_accept(r, '{'))
        return core__json_reader_fail(r, "expected an object");
    if (core__json_reader_accept(r, '}'))
        return CORE_OK;
    do {
        CORE_TRY(core__json_reader_string(r, &name));
        if (!core__json_reader_accept(r, ':'))
            return core__json_reader_fail(r, "expected a colon");
        CORE_TRY(member(r, index, name));
    } while (core__json_reader_accept(r, ','));
    if (!core__json_reader_accept(r, '}'))
        return core__json_reader_fail(r, "expected } after the last member");
    return CORE_OK;
}

static __attribute__((cold)) core_status read_top(core__json_reader *r,
                                                  core__shard_index *index,
                                                  const char *name)
{
    if (strcmp(name, "metadata") == 0) {
        if (index->texts)
            return core__json_reader_fail(r, "duplicate metadata");
        return read_object(r, index, read_datum);
    }
    if (strcmp(name, "weight_map") == 0) {
        if (index->entries)
            return core__json_reader_fail(r, "duplicate weight_map");
        return read_object(r, index, read_entry);
    }
    return core__json_reader_skip(r);
}

/* ------------------------------------------------------------- checking -- */

static int by_text(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;

    return strcmp(*x, *y);
}

static __attribute__((cold)) core_status check_names(core__shard_index *index,
                                                     const char *path)
{
    CORE_TRY(core__json_names_sort(index->entries, index->entry_count,
                                   sizeof *index->entries, path, "tensors"));
    return core__json_names_sort(index->texts, index->text_count,
                                 sizeof *index->texts, path,
                                 "metadata entries");
}

static __attribute__((cold)) core_status number_files(core__shard_index *index)
{
    size_t count = index->entry_count;

    index->files = core__alloc(count * sizeof *index->files);
    if (!index->files)
        return core__error_memory(count * sizeof *index->files);
    for (size_t i = 0; i < count; i++)
        index->files[i] = index->entries[i].file;
    qsort(index->files, count, sizeof *index->files, by_text);
    for (size_t i = 0; i < count; i++)
        if (!i ||
            strcmp(index->files[index->file_count - 1], index->files[i]) != 0)
            index->files[index->file_count++] = index->files[i];
    for (size_t i = 0; i < count; i++) {
        const char **found =
            bsearch(&index->entries[i].file, index->files, index->file_count,
                    sizeof *index->files, by_text);

        index->entries[i].shard = (size_t)(found - index->files);
    }
    return CORE_OK;
}

__attribute__((cold)) core_status core__shard_index_parse(
    core__shard_index *index, const char *path, const char *json, size_t size)
{
    core__json_reader r = {.path = path,
                           .kind = "a shard index",
                           .place = "",
                           .begin = json,
                           .next = json,
                           .end = json + size};

    memset(index, 0, sizeof *index);
    index->strings = core__alloc(size + 1);
    if (!index->strings)
        return core__error_memory(size + 1);
    r.string = index->strings;
    CORE_TRY(read_object(&r, index, read_top));
    core__json_reader_skip_space(&r);
    if (r.next != r.end)
        return core__json_reader_fail(&r, "expected nothing after the last }");
    if (!index->entry_count)
        return core__error(
            CORE_ERROR_CORRUPT,
            "%s: not a shard index: its weight_map is missing or empty", path);
    CORE_TRY(check_names(index, path));
    return number_files(index);
}

__attribute__((cold)) void core__shard_index_free(core__shard_index *index)
{
    core__free(index->entries);
    core__free(index->files);
    core__free(index->texts);
    core__free(index->strings);
    memset(index, 0, sizeof *index);
}
