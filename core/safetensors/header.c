/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* Parses and checks the header of a safetensors file. */

#include "safetensors/header.h"

#include "base/error.h"
#include "base/memory.h"
#include "safetensors/json_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    core_dtype dtype;
} dtypes[] = {
    {"F64", CORE_F64},   {"F32", CORE_F32},        {"F16", CORE_F16},
    {"BF16", CORE_BF16}, {"I64", CORE_I64},        {"I32", CORE_I32},
    {"I16", CORE_I16},   {"I8", CORE_I8},          {"U8", CORE_U8},
    {"BOOL", CORE_BOOL}, {"F8_E4M3", CORE_F8E4M3}, {"F8_E5M2", CORE_F8E5M2},
};

__attribute__((cold)) const char *core__safetensors_header_dtype_name(
    core_dtype dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return NULL;
}

__attribute__((cold)) core_dtype core__safetensors_header_dtype(
    const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return dtypes[i].dtype;
    return CORE_DTYPE_NONE;
}

__attribute__((cold)) void core__safetensors_header_shape(char *buffer,
                                                          size_t size,
                                                          const int64_t *sizes,
                                                          uint32_t ndim)
{
    size_t used = (size_t)snprintf(buffer, size, "[");

    for (uint32_t i = 0; i < ndim && used + 30 < size; i++)
        used += (size_t)snprintf(buffer + used, size - used, "%s%lld",
                                 i ? ", " : "", (long long)sizes[i]);
    snprintf(buffer + used, size - used, "]");
}

/* -------------------------------------------------------------- reading -- */

static __attribute__((cold)) core_status read_shape(
    core__json_reader *r, core__safetensors_header *header,
    core__safetensors_header_tensor *tensor)
{
    uint64_t size;

    tensor->first_size = header->size_count;
    if (!core__json_reader_accept(r, '['))
        return core__json_reader_fail(r, "expected an array");
    if (core__json_reader_accept(r, ']'))
        return CORE_OK;
    do {
        CORE_TRY(core__json_reader_number(r, &size));
        if (tensor->ndim == CORE_MAX_NDIM)
            return core__json_reader_fail(
                r, "a tensor has more than 32 dimensions");
        CORE_TRY(core__json_reader_grow(
            (void **)&header->sizes, &header->size_capacity, header->size_count,
            sizeof *header->sizes));
        header->sizes[header->size_count++] = (int64_t)size;
        tensor->ndim++;
    } while (core__json_reader_accept(r, ','));
    if (!core__json_reader_accept(r, ']'))
        return core__json_reader_fail(r, "expected ] after the last element");
    return CORE_OK;
}

static __attribute__((cold)) core_status read_offsets(
    core__json_reader *r, core__safetensors_header_tensor *tensor)
{
    if (!core__json_reader_accept(r, '['))
        return core__json_reader_fail(r, "expected an array");
    CORE_TRY(core__json_reader_number(r, &tensor->begin));
    if (!core__json_reader_accept(r, ','))
        return core__json_reader_fail(r, "expected two offsets");
    CORE_TRY(core__json_reader_number(r, &tensor->end));
    if (!core__json_reader_accept(r, ']'))
        return core__json_reader_fail(r, "expected two offsets");
    return CORE_OK;
}

/* {"dtype": …, "shape": …, "data_offsets": …} in any order. */
static __attribute__((cold)) core_status read_tensor(
    core__json_reader *r, core__safetensors_header *header,
    core__safetensors_header_tensor *tensor)
{
    enum { DTYPE = 1, SHAPE = 2, PLACE = 4 };
    const char *key;
    unsigned seen = 0, field;

    if (!core__json_reader_accept(r, '{'))
        return core__json_reader_fail(r, "expected an object");
    do {
        CORE_TRY(core__json_reader_string(r, &key));
        if (!core__json_reader_accept(r, ':'))
            return core__json_reader_fail(r, "expected a colon");
        field = strcmp(key, "dtype") == 0          ? DTYPE
                : strcmp(key, "shape") == 0        ? SHAPE
                : strcmp(key, "data_offsets") == 0 ? PLACE
                                                   : 0;
        if (!field || (seen & field))
            return core__json_reader_fail(
                r, "unknown or repeated field of a tensor");
        seen |= field;
        if (field == DTYPE)
            CORE_TRY(core__json_reader_string(r, &tensor->dtype_name));
        else if (field == SHAPE)
            CORE_TRY(read_shape(r, header, tensor));
        else
            CORE_TRY(read_offsets(r, tensor));
    } while (core__json_reader_accept(r, ','));
    if (!core__json_reader_accept(r, '}'))
        return core__json_reader_fail(r, "expected } after the last member");
    if (seen != (DTYPE | SHAPE | PLACE))
        return core__json_reader_fail(r,
                                      "expected dtype, shape and data_offsets");
    tensor->dtype = core__safetensors_header_dtype(tensor->dtype_name);
    return CORE_OK;
}

static __attribute__((cold)) core_status read_texts(
    core__json_reader *r, core__safetensors_header *header)
{
    core_named_text *named;

    if (header->texts)
        return core__json_reader_fail(r, "duplicate __metadata__");
    if (!core__json_reader_accept(r, '{'))
        return core__json_reader_fail(r, "expected an object");
    if (core__json_reader_accept(r, '}'))
        return CORE_OK;
    do {
        CORE_TRY(core__json_reader_grow(
            (void **)&header->texts, &header->text_capacity, header->text_count,
            sizeof *header->texts));
        named = &header->texts[header->text_count];
        CORE_TRY(core__json_reader_string(r, &named->name));
        if (!core__json_reader_accept(r, ':'))
            return core__json_reader_fail(r, "expected a colon");
        CORE_TRY(core__json_reader_string(r, &named->text));
        header->text_count++;
    } while (core__json_reader_accept(r, ','));
    if (!core__json_reader_accept(r, '}'))
        return core__json_reader_fail(r, "expected } after the last member");
    return CORE_OK;
}

static __attribute__((cold)) core_status read_members(
    core__json_reader *r, core__safetensors_header *header)
{
    core__safetensors_header_tensor *next;
    const char *name;

    if (!core__json_reader_accept(r, '{'))
        return core__json_reader_fail(r, "expected {");
    if (core__json_reader_accept(r, '}'))
        return CORE_OK;
    do {
        CORE_TRY(core__json_reader_string(r, &name));
        if (!core__json_reader_accept(r, ':'))
            return core__json_reader_fail(r, "expected a colon");
        if (strcmp(name, "__metadata__") == 0) {
            CORE_TRY(read_texts(r, header));
            continue;
        }
        CORE_TRY(core__json_reader_grow(
            (void **)&header->tensors, &header->tensor_capacity,
            header->tensor_count, sizeof *header->tensors));
        next = &header->tensors[header->tensor_count];
        memset(next, 0, sizeof *next);
        next->name = name;
        CORE_TRY(read_tensor(r, header, next));
        header->tensor_count++;
    } while (core__json_reader_accept(r, ','));
    if (!core__json_reader_accept(r, '}'))
        return core__json_reader_fail(r, "expected } after the last member");
    return CORE_OK;
}

/* ------------------------------------------------------------- checking -- */

static int tensor_by_offset(const void *a, const void *b)
{
    const core__safetensors_header_tensor *const *x = a, *const *y = b;

    if ((*x)->begin != (*y)->begin)
        return (*x)->begin < (*y)->begin ? -1 : 1;
    if ((*x)->end != (*y)->end)
        return (*x)->end < (*y)->end ? -1 : 1;
    return strcmp((*x)->name, (*y)->name);
}

static __attribute__((cold)) core_status check_names(
    core__safetensors_header *header, const char *path)
{
    CORE_TRY(core__json_names_sort(header->tensors, header->tensor_count,
                                   sizeof *header->tensors, path, "tensors"));
    return core__json_names_sort(header->texts, header->text_count,
                                 sizeof *header->texts, path,
                                 "metadata entries");
}

static __attribute__((cold)) core_status check_size(
    const core__safetensors_header_tensor *tensor, const char *path)
{
    uint64_t size = core_dtype_size(tensor->dtype);

    if (tensor->dtype == CORE_DTYPE_NONE)
        return CORE_OK; /* its element size is unknown */
    for (uint32_t i = 0; i < tensor->ndim; i++)
        if (__builtin_mul_overflow(size, (uint64_t)tensor->sizes[i], &size) ||
            size > INT64_MAX)
            return core__error(CORE_ERROR_CORRUPT,
                               "%s: the shape of tensor \"%.80s\" has more "
                               "bytes than can be addressed",
                               path, tensor->name);
    if (tensor->end - tensor->begin != size)
        return core__error(CORE_ERROR_CORRUPT,
                           "%s: the shape and dtype of tensor \"%.80s\" need "
                           "%llu bytes, but its data_offsets span %llu",
                           path, tensor->name, (unsigned long long)size,
                           (unsigned long long)(tensor->end - tensor->begin));
    return CORE_OK;
}

/* The data of all tensors must be contiguous, from the first byte to the
 * last. */
static __attribute__((cold)) core_status check_offsets(
    core__safetensors_header *header, const char *path, uint64_t data_size)
{
    size_t count = header->tensor_count;
    uint64_t reached = 0;

    if (count) {
        header->by_place = core__alloc(count * sizeof *header->by_place);
        if (!header->by_place)
            return core__error_memory(count * sizeof *header->by_place);
        for (size_t i = 0; i < count; i++)
            header->by_place[i] = &header->tensors[i];
        qsort(header->by_place, count, sizeof *header->by_place,
              tensor_by_offset);
    }
    for (size_t i = 0; i < count; i++) {
        const core__safetensors_header_tensor *tensor = header->by_place[i];

        if (tensor->end < tensor->begin || tensor->end > data_size)
            return core__error(
                CORE_ERROR_CORRUPT,
                "%s: tensor \"%.80s\" occupies bytes %llu to %llu of %llu "
                "bytes of data; the file is truncated or damaged",
                path, tensor->name, (unsigned long long)tensor->begin,
                (unsigned long long)tensor->end, (unsigned long long)data_size);
        if (tensor->begin != reached)
            return core__error(CORE_ERROR_CORRUPT,
                               "%s: tensor \"%.80s\" begins at byte %llu, but "
                               "the one before it ends at %llu",
                               path, tensor->name,
                               (unsigned long long)tensor->begin,
                               (unsigned long long)reached);
        reached = tensor->end;
        CORE_TRY(check_size(tensor, path));
    }
    if (reached != data_size)
        return core__error(CORE_ERROR_CORRUPT,
                           "%s: %llu bytes of data belong to no tensor", path,
                           (unsigned long long)(data_size - reached));
    return CORE_OK;
}

__attribute__((cold)) core_status core__safetensors_header_parse(
    core__safetensors_header *header, const char *path, const char *json,
    size_t size, uint64_t data_size)
{
    core__json_reader r = {.path = path,
                           .kind = "a safetensors file",
                           .place = " of its header",
                           .begin = json,
                           .next = json,
                           .end = json + size};

    memset(header, 0, sizeof *header);
    header->strings = core__alloc(size + 1);
    if (!header->strings)
        return core__error_memory(size + 1);
    r.string = header->strings;
    if (size == 0 || *json != '{')
        return core__json_reader_fail(&r, "expected {");
    CORE_TRY(read_members(&r, header));
    core__json_reader_skip_space(&r);
    if (r.next != r.end)
        return core__json_reader_fail(&r, "expected nothing after the last }");
    for (size_t i = 0; i < header->tensor_count; i++)
        if (header->tensors[i].ndim)
            header->tensors[i].sizes =
                header->sizes + header->tensors[i].first_size;
    CORE_TRY(check_names(header, path));
    return check_offsets(header, path, data_size);
}

__attribute__((cold)) void core__safetensors_header_free(
    core__safetensors_header *header)
{
    core__free(header->tensors);
    core__free(header->texts);
    core__free(header->by_place);
    core__free(header->sizes);
    core__free(header->strings);
    memset(header, 0, sizeof *header);
}
