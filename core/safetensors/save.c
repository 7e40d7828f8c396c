/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Writes safetensors files. */

#include <libcore/safetensors.h>

#include "base/error.h"
#include "base/memory.h"
#include "io/file.h"
#include "safetensors/header.h"
#include "safetensors/json_reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------- string buffer -- */

/* A growing string.  After a failure it ignores further input, so that the
 * status needs to be checked only once. */
typedef struct buffer {
    char *data;
    size_t size;
    size_t capacity;
    core_status status;
} buffer;

static __attribute__((cold)) void append(buffer *text, const char *data,
                                         size_t size)
{
    if (text->status != CORE_OK)
        return;
    if (text->size + size > text->capacity) {
        size_t capacity = (text->size + size) * 2 + 256;
        char *larger = core__realloc(text->data, capacity);

        if (!larger) {
            text->status = core__error_memory(capacity);
            return;
        }
        text->data = larger;
        text->capacity = capacity;
    }
    memcpy(text->data + text->size, data, size);
    text->size += size;
}

static void append_format(buffer *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static __attribute__((cold)) void append_format(buffer *text,
                                                const char *format, ...)
{
    char piece[80];
    va_list arguments;
    int size;

    va_start(arguments, format);
    size = vsnprintf(piece, sizeof piece, format, arguments);
    va_end(arguments);
    append(text, piece, (size_t)size);
}

static __attribute__((cold)) void append_quoted(buffer *text,
                                                const char *string)
{
    size_t left = strlen(string), size;

    append(text, "\"", 1);
    for (; left; string += size, left -= size) {
        size = core__utf8_character_size(string, left);
        if (size == 0 && text->status == CORE_OK)
            text->status = core__error(CORE_ERROR_INVALID_ARGUMENT,
                                       "core_safetensors_save: a name or a "
                                       "metadata text is not UTF-8");
        if (size == 0)
            return;
        if (*string == '"' || *string == '\\')
            append_format(text, "\\%c", *string);
        else if ((unsigned char)*string < 0x20)
            append_format(text, "\\u%04x", (unsigned)*string);
        else
            append(text, string, size);
    }
    append(text, "\"", 1);
}

/* --------------------------------------------------------------- header -- */

static int by_name(const void *a, const void *b)
{
    const core_named_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* Larger elements first: the data starts at a multiple of 8 bytes and has no
 * gaps, so every tensor is aligned to its elements. */
static int by_element(const void *a, const void *b)
{
    const core_named_tensor *x = a, *y = b;
    uint32_t size_x = core_dtype_size(core_tensor_dtype(x->tensor));
    uint32_t size_y = core_dtype_size(core_tensor_dtype(y->tensor));

    if (size_x != size_y)
        return size_x > size_y ? -1 : 1;
    return by_name(a, b);
}

static __attribute__((cold)) core_status check_tensors(
    core_named_tensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        core_dtype dtype;

        if (!tensors[i].name || !tensors[i].tensor)
            return core__error(
                CORE_ERROR_INVALID_ARGUMENT,
                "core_safetensors_save: entry %zu has no name or no tensor", i);
        if (strcmp(tensors[i].name, "__metadata__") == 0)
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "core_safetensors_save: a tensor is named "
                               "\"__metadata__\", which the format reserves");
        dtype = core_tensor_dtype(tensors[i].tensor);
        if (!core__safetensors_header_dtype_name(dtype))
            return core__error(CORE_ERROR_UNSUPPORTED,
                               "core_safetensors_save: tensor \"%.80s\" has "
                               "dtype %s, which the format does not support",
                               tensors[i].name, core_dtype_name(dtype));
    }
    if (count > 1)
        qsort(tensors, count, sizeof *tensors, by_name);
    for (size_t i = 1; i < count; i++)
        if (strcmp(tensors[i - 1].name, tensors[i].name) == 0)
            return core__error(
                CORE_ERROR_INVALID_ARGUMENT,
                "core_safetensors_save: two tensors are named \"%.80s\"",
                tensors[i].name);
    if (count > 1)
        qsort(tensors, count, sizeof *tensors, by_element);
    return CORE_OK;
}

static __attribute__((cold)) uint64_t byte_count(const core_tensor *tensor)
{
    return (uint64_t)core_tensor_numel(tensor) *
           core_dtype_size(core_tensor_dtype(tensor));
}

static __attribute__((cold)) core_status write_texts(
    buffer *json, const core_named_text *texts, size_t count)
{
    append(json, "\"__metadata__\":{", 16);
    for (size_t i = 0; i < count; i++) {
        if (!texts[i].name || !texts[i].text)
            return core__error(CORE_ERROR_INVALID_ARGUMENT,
                               "core_safetensors_save: metadata entry %zu has "
                               "no name or no text",
                               i);
        for (size_t k = 0; k < i; k++)
            if (strcmp(texts[i].name, texts[k].name) == 0)
                return core__error(CORE_ERROR_INVALID_ARGUMENT,
                                   "core_safetensors_save: two metadata "
                                   "entries are named \"%.80s\"",
                                   texts[i].name);
        if (i)
            append(json, ",", 1);
        append_quoted(json, texts[i].name);
        append(json, ":", 1);
        append_quoted(json, texts[i].text);
    }
    append(json, "}", 1);
    return CORE_OK;
}

static __attribute__((cold)) void write_tensor(buffer *json,
                                               const core_named_tensor *named,
                                               uint64_t begin)
{
    const core_tensor *tensor = named->tensor;

    append_quoted(json, named->name);
    append_format(
        json, ":{\"dtype\":\"%s\",\"shape\":[",
        core__safetensors_header_dtype_name(core_tensor_dtype(tensor)));
    for (uint32_t i = 0; i < core_tensor_ndim(tensor); i++)
        append_format(json, "%s%lld", i ? "," : "",
                      (long long)core_tensor_sizes(tensor)[i]);
    append_format(json, "],\"data_offsets\":[%llu,%llu]}",
                  (unsigned long long)begin,
                  (unsigned long long)(begin + byte_count(tensor)));
}

/* Writes the eight length bytes and the JSON, padded to a multiple of 8. */
static __attribute__((cold)) core_status write_header(
    buffer *json, const core_named_tensor *tensors, size_t tensor_count,
    const core_named_text *texts, size_t text_count)
{
    uint64_t begin = 0, size = 0;

    append(json, (const char *)&size, 8);
    append(json, "{", 1);
    if (text_count)
        CORE_TRY(write_texts(json, texts, text_count));
    for (size_t i = 0; i < tensor_count; i++) {
        if (i || text_count)
            append(json, ",", 1);
        write_tensor(json, &tensors[i], begin);
        begin += byte_count(tensors[i].tensor);
    }
    append(json, "}", 1);
    append(json, "        ", (8 - json->size % 8) % 8);
    if (json->status == CORE_OK) {
        size = json->size - 8;
        memcpy(json->data, &size, 8);
    }
    return json->status;
}

/* ----------------------------------------------------------------- data -- */

static __attribute__((cold)) core_status write_data(
    core__file *file, const core_named_tensor *named)
{
    size_t size = (size_t)byte_count(named->tensor);
    core_status status;
    void *data;

    if (size == 0)
        return CORE_OK;
    data = core__alloc(size);
    if (!data)
        return core__error_memory(size);
    status = core_tensor_read(named->tensor, data, size);
    if (status == CORE_OK)
        status = core__file_write(file, data, size);
    core__free(data);
    return status;
}

__attribute__((cold)) core_status core_safetensors_save(
    const char *path, const core_named_tensor *tensors, size_t tensor_count,
    const core_named_text *texts, size_t text_count)
{
    core__file file = {-1, NULL, NULL};
    buffer json = {NULL, 0, 0, CORE_OK};
    size_t size = (tensor_count + 1) * sizeof *tensors;
    core_named_tensor *sorted;
    core_status status;

    CORE__NOT_NULL(path);
    if (tensor_count)
        CORE__NOT_NULL(tensors);
    if (text_count)
        CORE__NOT_NULL(texts);
    sorted = core__alloc(size);
    if (!sorted)
        return core__error_memory(size);
    if (tensor_count)
        memcpy(sorted, tensors, tensor_count * sizeof *tensors);
    status = check_tensors(sorted, tensor_count);
    if (status == CORE_OK)
        status = write_header(&json, sorted, tensor_count, texts, text_count);
    if (status == CORE_OK)
        status = core__file_begin(&file, path);
    if (status == CORE_OK)
        status = core__file_write(&file, json.data, json.size);
    for (size_t i = 0; status == CORE_OK && i < tensor_count; i++)
        status = write_data(&file, &sorted[i]);
    if (status == CORE_OK)
        status = core__file_commit(&file);
    core__file_end(&file);
    core__free(json.data);
    core__free(sorted);
    return status;
}

__attribute__((cold)) core_status core_safetensors_check_path(const char *path)
{
    core__file file;

    CORE__NOT_NULL(path);
    CORE_TRY(core__file_begin(&file, path));
    core__file_end(&file);
    return CORE_OK;
}
