/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "base/growing_text.h"

#include "base/memory.h"

#include <string.h>

bool core__growing_text_append(void *context, const char *data, size_t size)
{
    core__growing_text *to = context;

    if (to->size + size + 1 > to->capacity) {
        size_t capacity = 2 * (to->size + size + 1);
        char *grown = core__realloc(to->data, capacity);

        if (!grown)
            return false;
        to->data = grown;
        to->capacity = capacity;
    }
    memcpy(to->data + to->size, data, size);
    to->size += size;
    to->data[to->size] = '\0';
    return true;
}
