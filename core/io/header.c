/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "io/header.h"

#include "base/error.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    core_dtype dtype;
} dtypes[] = {
    {"F64", CORE_F64},   {"F32", CORE_F32}, {"F16", CORE_F16},
    {"BF16", CORE_BF16}, {"I64", CORE_I64}, {"I32", CORE_I32},
    {"I16", CORE_I16},   {"I8", CORE_I8},   {"U8", CORE_U8},
    {"BOOL", CORE_BOOL},
};

const char *core__header_dtype_name(core_dtype dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return NULL;
}

core_dtype core__header_dtype(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return dtypes[i].dtype;
    return CORE_DTYPE_NONE;
}

size_t core__header_character(const char *text, size_t size)
{
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    static const unsigned char mask[] = {0x7f, 0x1f, 0x0f, 0x07};
    unsigned char c = (unsigned char)*text;
    size_t more = c < 0x80 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
    uint32_t value = c & mask[more];

    if ((c >= 0x80 && c < 0xc0) || c >= 0xf8 || size <= more)
        return 0;
    for (size_t i = 1; i <= more; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | ((unsigned char)text[i] & 0x3f);
    }
    if (value < least[more] || value > 0x10ffff ||
        (value >= 0xd800 && value < 0xe000))
        return 0;
    return more + 1;
}

void core__header_shape(char *buffer, size_t size, const int64_t *sizes,
                        uint32_t ndim)
{
    size_t used = (size_t)snprintf(buffer, size, "[");

    for (uint32_t i = 0; i < ndim && used + 30 < size; i++)
        used += (size_t)snprintf(buffer + used, size - used, "%s%lld",
                                 i ? ", " : "", (long long)sizes[i]);
    snprintf(buffer + used, size - used, "]");
}

/* -------------------------------------------------------------- reading -- */

/* Decoded texts go one after another into header->strings, which has the
 * header's size: none is longer, with its NUL, than between its quotes. */
typedef struct parser {
    core__header *header;
    const char *path;
    const char *begin;
    const char *next;
    const char *end;
    char *string;
} parser;

static core_status malformed(const parser *p, const char *what)
{
    return core__error(CORE_ERROR_CORRUPT,
                       "%s: not a safetensors file: byte %zu of its header: %s",
                       p->path, (size_t)(p->next - p->begin), what);
}

static void skip_space(parser *p)
{
    while (p->next < p->end && (*p->next == ' ' || *p->next == '\t' ||
                                *p->next == '\n' || *p->next == '\r'))
        p->next++;
}

/* Whether the next character is c, which is then taken. */
static bool take(parser *p, char c)
{
    skip_space(p);
    if (p->next == p->end || *p->next != c)
        return false;
    p->next++;
    return true;
}

static core_status hexadecimal(parser *p, uint32_t *out_value)
{
    *out_value = 0;
    for (int i = 0; i < 4; i++) {
        char c = p->next < p->end ? *p->next : 0;
        uint32_t digit;

        if (c >= '0' && c <= '9')
            digit = (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            digit = (uint32_t)((c | 32) - 'a') + 10;
        else
            return malformed(p, "four hexadecimal digits are wanted");
        *out_value = *out_value * 16 + digit;
        p->next++;
    }
    return CORE_OK;
}

static char *encode(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
        *to++ = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        *to++ = (char)(0xe0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
        *to++ = (char)(0x80 | (c & 0x3f));
    } else {
        *to++ = (char)(0xf0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 0x3f));
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
        *to++ = (char)(0x80 | (c & 0x3f));
    }
    return to;
}

/* Behind a backslash. */
static core_status escape(parser *p, char **to)
{
    static const char from[] = "\"\\/bfnrt";
    static const char into[] = "\"\\/\b\f\n\r\t";
    char c = p->next < p->end ? *p->next : 0;
    const char *known = c ? strchr(from, c) : NULL;
    uint32_t code, low;

    if (known) {
        p->next++;
        *(*to)++ = into[known - from];
        return CORE_OK;
    }
    if (c != 'u')
        return malformed(p, "an unknown escape in a text");
    p->next++;
    CORE_TRY(hexadecimal(p, &code));
    if (code >= 0xd800 && code < 0xdc00) {
        if (p->end - p->next < 2 || p->next[0] != '\\' || p->next[1] != 'u')
            return malformed(p, "half a surrogate pair");
        p->next += 2;
        CORE_TRY(hexadecimal(p, &low));
        if (low < 0xdc00 || low > 0xdfff)
            return malformed(p, "half a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code == 0 || (code >= 0xdc00 && code < 0xe000)) {
        return malformed(p, "a character that a text cannot have");
    }
    *to = encode(*to, code);
    return CORE_OK;
}

/* One character as it stands. */
static core_status plain(parser *p, char **to)
{
    size_t size = core__header_character(p->next, (size_t)(p->end - p->next));

    if ((unsigned char)*p->next < 0x20)
        return malformed(p, "a control character in a text");
    if (size == 0)
        return malformed(p, "a text is not UTF-8");
    memcpy(*to, p->next, size);
    *to += size;
    p->next += size;
    return CORE_OK;
}

static core_status read_text(parser *p, const char **out_text)
{
    char *to = p->string;

    *out_text = to;
    if (!take(p, '"'))
        return malformed(p, "a text in quotes is wanted");
    for (;;) {
        if (p->next == p->end)
            return malformed(p, "a text does not end");
        if (*p->next == '"')
            break;
        if (*p->next == '\\') {
            p->next++;
            CORE_TRY(escape(p, &to));
        } else {
            CORE_TRY(plain(p, &to));
        }
    }
    p->next++;
    *to++ = 0;
    p->string = to;
    return CORE_OK;
}

static core_status read_number(parser *p, uint64_t *out_value)
{
    const char *first;
    uint64_t value = 0;

    skip_space(p);
    first = p->next;
    while (p->next < p->end && *p->next >= '0' && *p->next <= '9') {
        if (value > (INT64_MAX - 9) / 10)
            return malformed(p, "a number is too large");
        value = value * 10 + (uint64_t)(*p->next++ - '0');
    }
    if (p->next == first)
        return malformed(p, "a whole number, 0 or more, is wanted");
    if (*first == '0' && p->next - first > 1)
        return malformed(p, "a number begins with 0");
    *out_value = value;
    return CORE_OK;
}

/* Room for one more element. */
static core_status grow(void **array, size_t *room, size_t count,
                        size_t element)
{
    size_t more = *room ? *room * 2 : 16;
    void *larger;

    if (count < *room)
        return CORE_OK;
    larger = core__realloc(*array, more * element);
    if (!larger)
        return core__error_memory(more * element);
    *array = larger;
    *room = more;
    return CORE_OK;
}

static core_status read_shape(parser *p, core__header_tensor *tensor)
{
    core__header *header = p->header;
    uint64_t size;

    tensor->first_size = header->size_count;
    if (!take(p, '['))
        return malformed(p, "a list is wanted");
    if (take(p, ']'))
        return CORE_OK;
    do {
        CORE_TRY(read_number(p, &size));
        if (tensor->ndim == CORE_MAX_NDIM)
            return malformed(p, "a tensor has more than 32 dimensions");
        CORE_TRY(grow((void **)&header->sizes, &header->size_room,
                      header->size_count, sizeof *header->sizes));
        header->sizes[header->size_count++] = (int64_t)size;
        tensor->ndim++;
    } while (take(p, ','));
    if (!take(p, ']'))
        return malformed(p, "a list does not end");
    return CORE_OK;
}

static core_status read_place(parser *p, core__header_tensor *tensor)
{
    if (!take(p, '['))
        return malformed(p, "a list is wanted");
    CORE_TRY(read_number(p, &tensor->begin));
    if (!take(p, ','))
        return malformed(p, "two offsets are wanted");
    CORE_TRY(read_number(p, &tensor->end));
    if (!take(p, ']'))
        return malformed(p, "two offsets are wanted");
    return CORE_OK;
}

/* {"dtype": …, "shape": …, "data_offsets": …} in any order. */
static core_status read_tensor(parser *p, core__header_tensor *tensor)
{
    enum { DTYPE = 1, SHAPE = 2, PLACE = 4 };
    const char *key;
    unsigned seen = 0, field;

    if (!take(p, '{'))
        return malformed(p, "an object is wanted");
    do {
        CORE_TRY(read_text(p, &key));
        if (!take(p, ':'))
            return malformed(p, "a colon is wanted");
        field = strcmp(key, "dtype") == 0          ? DTYPE
                : strcmp(key, "shape") == 0        ? SHAPE
                : strcmp(key, "data_offsets") == 0 ? PLACE
                                                   : 0;
        if (!field || (seen & field))
            return malformed(p, "a field that does not belong here");
        seen |= field;
        if (field == DTYPE)
            CORE_TRY(read_text(p, &tensor->dtype_name));
        else if (field == SHAPE)
            CORE_TRY(read_shape(p, tensor));
        else
            CORE_TRY(read_place(p, tensor));
    } while (take(p, ','));
    if (!take(p, '}'))
        return malformed(p, "an object does not end");
    if (seen != (DTYPE | SHAPE | PLACE))
        return malformed(p, "dtype, shape and data_offsets are wanted");
    tensor->dtype = core__header_dtype(tensor->dtype_name);
    return CORE_OK;
}

static core_status read_texts(parser *p)
{
    core__header *header = p->header;
    core_named_text *named;

    if (header->texts)
        return malformed(p, "a second __metadata__");
    if (!take(p, '{'))
        return malformed(p, "an object is wanted");
    if (take(p, '}'))
        return CORE_OK;
    do {
        CORE_TRY(grow((void **)&header->texts, &header->text_room,
                      header->text_count, sizeof *header->texts));
        named = &header->texts[header->text_count];
        CORE_TRY(read_text(p, &named->name));
        if (!take(p, ':'))
            return malformed(p, "a colon is wanted");
        CORE_TRY(read_text(p, &named->text));
        header->text_count++;
    } while (take(p, ','));
    if (!take(p, '}'))
        return malformed(p, "an object does not end");
    return CORE_OK;
}

static core_status read_members(parser *p)
{
    core__header *header = p->header;
    core__header_tensor *next;
    const char *name;

    if (!take(p, '{'))
        return malformed(p, "it does not begin with {");
    if (take(p, '}'))
        return CORE_OK;
    do {
        CORE_TRY(read_text(p, &name));
        if (!take(p, ':'))
            return malformed(p, "a colon is wanted");
        if (strcmp(name, "__metadata__") == 0) {
            CORE_TRY(read_texts(p));
            continue;
        }
        CORE_TRY(grow((void **)&header->tensors, &header->tensor_room,
                      header->tensor_count, sizeof *header->tensors));
        next = &header->tensors[header->tensor_count];
        memset(next, 0, sizeof *next);
        next->name = name;
        CORE_TRY(read_tensor(p, next));
        header->tensor_count++;
    } while (take(p, ','));
    if (!take(p, '}'))
        return malformed(p, "it does not end with }");
    return CORE_OK;
}

/* ------------------------------------------------------------- checking -- */

static int tensor_by_name(const void *a, const void *b)
{
    const core__header_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static int text_by_name(const void *a, const void *b)
{
    const core_named_text *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static int tensor_by_place(const void *a, const void *b)
{
    const core__header_tensor *const *x = a, *const *y = b;

    if ((*x)->begin != (*y)->begin)
        return (*x)->begin < (*y)->begin ? -1 : 1;
    if ((*x)->end != (*y)->end)
        return (*x)->end < (*y)->end ? -1 : 1;
    return strcmp((*x)->name, (*y)->name);
}

static core_status check_names(core__header *header, const char *path)
{
    if (header->tensor_count)
        qsort(header->tensors, header->tensor_count, sizeof *header->tensors,
              tensor_by_name);
    if (header->text_count)
        qsort(header->texts, header->text_count, sizeof *header->texts,
              text_by_name);
    for (size_t i = 1; i < header->tensor_count; i++)
        if (strcmp(header->tensors[i - 1].name, header->tensors[i].name) == 0)
            return core__error(CORE_ERROR_CORRUPT,
                               "%s: two tensors are named \"%.80s\"", path,
                               header->tensors[i].name);
    for (size_t i = 1; i < header->text_count; i++)
        if (strcmp(header->texts[i - 1].name, header->texts[i].name) == 0)
            return core__error(CORE_ERROR_CORRUPT,
                               "%s: two texts are named \"%.80s\"", path,
                               header->texts[i].name);
    return CORE_OK;
}

static core_status check_size(const core__header_tensor *tensor,
                              const char *path)
{
    uint64_t size = core_dtype_size(tensor->dtype);

    if (tensor->dtype == CORE_DTYPE_NONE)
        return CORE_OK; /* its element's size is not known */
    for (uint32_t i = 0; i < tensor->ndim; i++)
        if (__builtin_mul_overflow(size, (uint64_t)tensor->sizes[i], &size) ||
            size > INT64_MAX)
            return core__error(CORE_ERROR_CORRUPT,
                               "%s: tensor \"%.80s\": its shape is too large",
                               path, tensor->name);
    if (tensor->end - tensor->begin != size)
        return core__error(
            CORE_ERROR_CORRUPT,
            "%s: tensor \"%.80s\": its shape and dtype want %llu bytes, "
            "its offsets give it %llu",
            path, tensor->name, (unsigned long long)size,
            (unsigned long long)(tensor->end - tensor->begin));
    return CORE_OK;
}

/* The data of all tensors lie behind each other, from the first byte to the
 * last. */
static core_status check_places(core__header *header, const char *path,
                                uint64_t data_size)
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
              tensor_by_place);
    }
    for (size_t i = 0; i < count; i++) {
        const core__header_tensor *tensor = header->by_place[i];

        if (tensor->end < tensor->begin || tensor->end > data_size)
            return core__error(
                CORE_ERROR_CORRUPT,
                "%s: tensor \"%.80s\" reaches from byte %llu to %llu of %llu "
                "bytes of data: the file is truncated or damaged",
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

core_status core__header_parse(core__header *header, const char *path,
                               const char *json, size_t size,
                               uint64_t data_size)
{
    parser p = {header, path, json, json, json + size, NULL};

    memset(header, 0, sizeof *header);
    header->strings = core__alloc(size + 1);
    if (!header->strings)
        return core__error_memory(size + 1);
    p.string = header->strings;
    if (size == 0 || *json != '{')
        return malformed(&p, "it does not begin with {");
    CORE_TRY(read_members(&p));
    skip_space(&p);
    if (p.next != p.end)
        return malformed(&p, "something follows the last }");
    for (size_t i = 0; i < header->tensor_count; i++)
        if (header->tensors[i].ndim)
            header->tensors[i].sizes =
                header->sizes + header->tensors[i].first_size;
    CORE_TRY(check_names(header, path));
    return check_places(header, path, data_size);
}

void core__header_free(core__header *header)
{
    core__free(header->tensors);
    core__free(header->texts);
    core__free(header->by_place);
    core__free(header->sizes);
    core__free(header->strings);
    memset(header, 0, sizeof *header);
}
