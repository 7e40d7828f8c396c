/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "device/interned_text.h"

#include "base/memory.h"

#include <string.h>

typedef struct interned_text {
    struct interned_text *next;
    char text[];
} interned_text;

static interned_text *texts; /* protected by the lock of the devices */

const char *core__intern_text(const char *text, size_t size)
{
    interned_text *entry;

    size = size ? strnlen(text, size) : 0; /* text may be NULL then */
    if (size == 0)
        return "";
    for (entry = texts; entry; entry = entry->next)
        if (strncmp(entry->text, text, size) == 0 && entry->text[size] == '\0')
            return entry->text;
    entry = core__alloc(sizeof *entry + size + 1);
    if (!entry)
        return NULL;
    memcpy(entry->text, text, size);
    entry->text[size] = '\0';
    entry->next = texts;
    texts = entry;
    return entry->text;
}
