/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/growing_text.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdarg.h>
#include <string.h>

static bool reserve(core__growing_text *to, size_t size)
{
    size_t capacity = 2 * (to->size + size + 1);
    char *grown;

    if (to->size + size + 1 <= to->capacity)
        return true;
    grown = core__realloc(to->data, capacity);
    if (!grown)
        return false;
    to->data = grown;
    to->capacity = capacity;
    return true;
}

bool core__growing_text_append(void *context, const char *data, size_t size)
{
    core__growing_text *to = context;

    if (!reserve(to, size))
        return false;
    memcpy(to->data + to->size, data, size);
    to->size += size;
    to->data[to->size] = '\0';
    return true;
}

void core__text_write(core__text_writer *self, const char *format, ...)
{
    core__growing_text *to = &self->text;
    size_t space = to->capacity - to->size;
    va_list arguments, again;
    int size;

    if (self->status != CORE_OK)
        return;
    va_start(arguments, format);
    va_copy(again, arguments);
    size = core__format_list(space ? to->data + to->size : NULL, space, format,
                             arguments);
    if (size < 0)
        self->status = core__error(CORE_ERROR_INTERNAL,
                                   "the format \"%s\" is not valid", format);
    else if (!reserve(to, (size_t)size))
        self->status = core__error_memory(to->size + (size_t)size);
    else if ((size_t)size >= space)
        core__format_list(to->data + to->size, (size_t)size + 1, format, again);
    if (self->status == CORE_OK)
        to->size += (size_t)size;
    va_end(again);
    va_end(arguments);
}

core_status core__text_writer_finish(core__text_writer *self, char **out_text)
{
    *out_text = NULL;
    core__text_write(self, "%s", "");
    if (self->status == CORE_OK)
        *out_text = self->text.data;
    else
        core__free(self->text.data);
    self->text = (core__growing_text){0};
    return self->status;
}
